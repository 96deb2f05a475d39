"""Every method keeps the method contract."""

from tacit.partition import Setting
from tacit.testing.method_contract import NO_GUARANTEE, MethodContract


class TestSGDMF(MethodContract):
    name = "sgdmf"
    parameters = {"factors": 4, "rounds": 3, "local_steps": 2, "sampling": 0.5}
    never = {"horizontal": ("users",)}

    def pytest_generate_tests(self, metafunc):
        if "setting" in metafunc.fixturenames:
            metafunc.parametrize("setting", [Setting.HORIZONTAL, Setting.VERTICAL])


class TestDevices(MethodContract):
    """All take part, and each makes one step a round."""

    name = "sgdmf"
    parameters = {"factors": 4, "rounds": 3}
    never = {"device": ("users",)}

    def pytest_generate_tests(self, metafunc):
        if "setting" in metafunc.fixturenames:
            metafunc.parametrize("setting", [Setting.DEVICE])


class TestALS(MethodContract):
    name = "als"
    parameters = {"factors": 3, "sweeps": 3}
    never = dict.fromkeys(("horizontal", "device"), ("states", "variances"))
    refused = dict.fromkeys([("vertical", "plain"), ("vertical", "secagg")], "sums of one user each")


class TestDPALS(MethodContract):
    name = "dpals"
    parameters = {"factors": 3, "rounds": 2}


class TestAuto(MethodContract):
    """Without privacy it is `als` and `ease`."""

    name = "auto"
    ranks_by_rating = False
    never = dict.fromkeys(("horizontal", "device"), ("states", "variances"))


class TestCentral(MethodContract):
    name = "central"
    parameters = {"factors": 3, "sweeps": 3}
    seeded = False  # what crosses is the ratings, whatever the seed
    ranks_by_rating = False
    refused = NO_GUARANTEE


class TestCentralSGD(MethodContract):
    name = "central-sgd"
    parameters = {"factors": 4, "epochs": 3}
    seeded = False
    refused = NO_GUARANTEE


class TestLocal(MethodContract):
    name = "local"
    parameters = {"sweeps": 3}
    seeded = False  # only "done" crosses
    ranks_by_rating = False
    never = {"horizontal": ("users", "items"), "vertical": ("users", "items"), "device": ("means",)}
    refused = NO_GUARANTEE


class TestLocalSGD(MethodContract):
    name = "local-sgd"
    parameters = {"factors": 4, "epochs": 3}
    seeded = False
    never = {"horizontal": ("users", "items"), "vertical": ("users", "items"), "device": ("means",)}
    refused = NO_GUARANTEE


class TestGlobalMean(MethodContract):
    name = "global-mean"
    seeded = False
    refused = NO_GUARANTEE


class TestItemMean(MethodContract):
    name = "item-mean"
    seeded = False
    refused = NO_GUARANTEE


class TestPopularity(MethodContract):
    name = "popularity"
    seeded = False
    refused = NO_GUARANTEE


class TestRandom(MethodContract):
    name = "random"
    seeded = False  # only "done" crosses
    ranks_by_rating = False
    refused = NO_GUARANTEE


class TestGradientClipping(MethodContract):
    name = "gradient-clipping"
    parameters = {"factors": 4, "rounds": 3, "local_steps": 2, "sampling": 0.5}
    never = {"horizontal": ("users",)}


class TestSGLD(MethodContract):
    name = "dp-sgld"
    parameters = {"factors": 4, "rounds": 3, "local_steps": 2, "sampling": 0.5}
    never = {"horizontal": ("users",)}


class TestObjectivePerturbation(MethodContract):
    name = "objective-perturbation"
    parameters = {"factors": 4}
    never = {"horizontal": ("users",)}


class TestAlternating(MethodContract):
    name = "am-dpsgd"
    parameters = {"factors": 2, "rounds": 3}
    never = dict.fromkeys(("horizontal", "device"), ("states",))


class TestSynchronous(MethodContract):
    name = "synsgd"
    parameters = {"factors": 4, "rounds": 4, "sampling": 0.5, "fine_tuning": 2}
    never = {"horizontal": ("users", "own users", "own items")}


class TestLocalPrivate(MethodContract):
    name = "local-private"
    parameters = {"factors": 4, "rounds": 3, "local_steps": 2, "sampling": 0.5}
    refused = {("vertical", "secagg"): "local-private has none here"}


class TestPretrained(MethodContract):
    name = "sgdmf"
    parameters = {"factors": 4, "rounds": 3, "local_steps": 2, "users": "pretrained", "trim": 5, "fine_tuning": 2}
    never = {"horizontal": ("users", "own users", "own items")}

    def pytest_generate_tests(self, metafunc):
        if "setting" in metafunc.fixturenames:
            metafunc.parametrize("setting", [Setting.HORIZONTAL])
