"""Engines agree on every method that `make test` leaves out."""

import test_ease
import test_method_contracts as contracts
from test_engines_agree import KINDS

from tacit.testing.agreement_contract import AgreementContract
from tacit.testing.method_contract import MethodContract

OTHERS = [
    found
    for found in (*vars(contracts).values(), *vars(test_ease).values())
    if isinstance(found, type) and issubclass(found, MethodContract) and found not in (MethodContract, *KINDS)
]
globals().update({other.__name__: AgreementContract.of(other) for other in OTHERS})


def test_there_are_others():
    assert len(OTHERS) > 10
