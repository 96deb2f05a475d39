"""A method with a role does all that every method must."""

from typing import Any, ClassVar

import pytest

from tacit.methods import known
from tacit.testing.method_contract import MethodContract
from tacit.testing.role_method import WEIGHED


@pytest.fixture(autouse=True, scope="module")
def installed():
    known()[WEIGHED.name] = WEIGHED
    yield
    del known()[WEIGHED.name]


class TestWeighedMeans(MethodContract):
    name = WEIGHED.name
    parameters: ClassVar[dict[str, Any]] = {"rounds": 2}
    seeded = False

    def pytest_generate_tests(self, metafunc):
        """The method is known only while its tests run."""
        if "setting" in metafunc.fixturenames:
            metafunc.parametrize("setting", list(WEIGHED.sides))
