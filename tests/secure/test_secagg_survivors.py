"""Who counts as a survivor for the opener: whoever sent shares and then a vector, and not all that a list names."""

import pytest

from tacit.secure.graph import choose
from tacit.secure.secagg_party import SecAggParty
from tacit.secure.secagg_protocol import SecureSum, VoidRound
from tacit.secure.secagg_server import SecAggServer

NAMES = tuple(f"party-{k}" for k in range(1, 7))
SHAPE = choose(len(NAMES), 0.34, 1)


@pytest.fixture
def opener():
    """Everybody advertised; the last one sent no shares."""
    opener = SecAggServer(SecureSum(NAMES, SHAPE, b"sum"))
    sealers = {name: SecAggParty(name, SecureSum(NAMES, SHAPE, b"sum")) for name in NAMES}
    keys = opener.keys({name: sealer.advertise() for name, sealer in sealers.items()})
    opener.mail({name: sealers[name].share(keys[name]) for name in NAMES[:-1]})
    return opener


def test_a_vector_of_one_that_sent_no_shares_does_not_count(opener):
    """Nobody could take its masks off."""
    assert opener.survivors(NAMES) == NAMES[:-1]


def test_it_does_not_make_enough_of_too_few(opener):
    too_few = NAMES[: SHAPE.fewest - 1]
    with pytest.raises(VoidRound):
        opener.survivors((*too_few, NAMES[-1]))
