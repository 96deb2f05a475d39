"""`ease`: the closed form over one sum, the same however users are divided; private ranks by what stands above noise."""

from tacit.testing.method_contract import MethodContract


class TestEase(MethodContract):
    name = "ease"
    seeded = False  # without privacy nothing random crosses
