"""Engines agree on every kind of conversation; tests/e2e has every other method and setting."""

import test_bias
import test_ease
import test_method_contracts
import test_reduced

from tacit.partition import Setting
from tacit.testing.agreement_contract import AgreementContract

#: Chains that are averaged, sums, and a device's sums; sums alone; reports.
KINDS = (
    test_method_contracts.TestSGDMF,
    test_method_contracts.TestDevices,
    test_bias.TestBias,
    test_reduced.TestContract,
)

TestChains, TestDevices, TestSums, TestReports = map(AgreementContract.of, KINDS)


class EveryStage(test_method_contracts.TestAuto):
    """The rule would leave most stages out for so few users."""

    __test__ = False
    parameters = {"prior_share": 0.2, "tastes_share": 0.2, "factors_share": 0.2, "corrections": 2}


def in_one(setting, contract):
    """The agreement of a method in one setting."""
    agreement = AgreementContract.of(contract)
    agreement.pytest_generate_tests = lambda self, metafunc: metafunc.parametrize("setting", [setting])
    return agreement


TestALS = in_one(Setting.HORIZONTAL, test_method_contracts.TestALS)
TestEase = in_one(Setting.DEVICE, test_ease.TestEaseOfASmallHead)
TestAuto = in_one(Setting.HORIZONTAL, EveryStage)
TestAuto.test_parties_in_processes_of_their_own_give_the_same_digest = None  # with noise only; the rest is in tests/e2e
