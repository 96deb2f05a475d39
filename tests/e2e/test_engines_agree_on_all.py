"""Engines agree on every method that `make test` leaves out."""

import test_dplcf
import test_ease
import test_implicit
import test_method_contracts as contracts
from test_engines_agree import KINDS

from tacit.testing.agreement_contract import AgreementContract
from tacit.testing.method_contract import MethodContract

OTHERS = [
    found
    for module in (contracts, test_dplcf, test_ease, test_implicit)
    for found in vars(module).values()
    if isinstance(found, type)
    and issubclass(found, MethodContract)
    and found not in (MethodContract, test_implicit.Reported, *KINDS)
]
globals().update({other.__name__: AgreementContract.of(other) for other in OTHERS})


def test_there_are_others():
    assert len(OTHERS) > 10
