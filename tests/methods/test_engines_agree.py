"""Engines agree on every kind of conversation; tests/e2e has every other method."""

import test_bias
import test_method_contracts
import test_reduced

from tacit.testing.agreement_contract import AgreementContract

#: Chains that are averaged, sums, and a device's sums; sums alone; reports.
KINDS = (
    test_method_contracts.TestSGDMF,
    test_method_contracts.TestDevices,
    test_bias.TestBias,
    test_reduced.TestContract,
)

TestChains, TestDevices, TestSums, TestReports = map(AgreementContract.of, KINDS)
