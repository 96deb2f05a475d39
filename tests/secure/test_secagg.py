"""Secure sums: exact whoever drops out, one step after the other, and what does not suit is refused."""

from itertools import product

import numpy as np
import pytest
from secure_rounds import Round, same

from tacit.errors import PrivacyRefused, TamperingFound, UsageError
from tacit.rng import derive
from tacit.secure.graph import choose
from tacit.secure.secagg_party import SecAggParty
from tacit.secure.secagg_protocol import SecureSum, VoidRound

BITS = (8, 16, 24, 32, 40, 48, 56, 64)
EXCHANGES = ("advertise", "share", "collect", "mask", "unmask")


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("size", [0, 1, 33])
def test_the_sum_is_exact(bits, size):
    round_ = Round(5, size=size, bits=bits, tolerate=0.2)
    assert same(round_.play(), round_)
    assert round_.survivors == tuple(round_.names)
    assert round_.opener.rejected == {}


@pytest.mark.parametrize(("n", "w", "c"), [(17, 0.2, 1), (24, 0.3, 1), (30, 0.3, 3), (40, 0.3, 1)])
def test_the_sum_is_exact_on_a_ring(n, w, c):
    """One party drops out before each exchange and the rest before the last two: as many as are tolerated."""
    round_ = Round(n, tolerate=w, colluding=c, bits=24, extras=1)
    assert not round_.shape.complete
    leave = [str(name) for name in derive(7, n).permutation(round_.names)[: n - round_.shape.fewest]]
    gone = {exchange: leave[i : i + 1] for i, exchange in enumerate(EXCHANGES[:3])}
    gone |= {"mask": leave[3::2], "unmask": leave[4::2]}
    opened = round_.play(gone, reveal=[0])
    assert same(opened, round_)
    assert set(leave[4::2]) <= set(round_.survivors)
    assert opened.extras == {name: {0: round_.secrets[name][0]} for name in round_.survivors}


def test_only_the_extras_that_are_asked_for_are_revealed_and_only_of_survivors():
    round_ = Round(6, tolerate=0.3, extras=3)
    opened = round_.play({"mask": ["party-2"], "unmask": ["party-4"]}, reveal=[2])
    assert opened.extras == {name: {2: round_.secrets[name][2]} for name in round_.names if name != "party-2"}
    hidden = [secret for name in round_.names for secret in round_.secrets[name][:2]] + round_.secrets["party-2"]
    told = b"".join(round_.answers.values())
    assert not any(secret in told for secret in hidden)


def test_an_extra_that_cannot_be_recovered_is_left_out():
    round_ = Round(6, tolerate=0.3, extras=1)
    round_.until_masked()
    reveals = {name: [0] if name in ("party-1", "party-2") else [] for name in round_.names[:5]}
    round_.answers = {name: round_.parties[name].unmask(round_.survivors, reveals[name]) for name in reveals}
    opened = round_.open()
    assert same(opened, round_)
    assert {name for name, extras in opened.extras.items() if extras} == {"party-1", "party-2"}


def test_too_few_left_make_the_round_void():
    for exchange, gone in product(("advertise", "share", "mask"), (3, 4)):
        round_ = Round(7, tolerate=0.29)
        with pytest.raises(VoidRound, match="and 5 must"):
            round_.play({exchange: round_.names[:gone]})


def test_a_vector_of_a_party_that_sent_no_shares_does_not_count():
    """Nobody could take its masks off."""
    round_ = Round(6, tolerate=0.34)
    round_.advertise()
    round_.share(gone=["party-6"])
    assert round_.opener.survivors(round_.names) == tuple(round_.names[:-1])


def test_too_few_answers_make_the_round_void():
    round_ = Round(7, tolerate=0.29)
    round_.until_masked(gone=["party-7"])
    round_.unmask(gone=round_.names[: 7 - round_.shape.threshold])
    with pytest.raises(VoidRound, match="cannot be recovered"):
        round_.open()


def test_every_step_is_done_once_and_in_order():
    round_ = Round(4, tolerate=0)
    party = round_.parties["party-1"]
    for early in (
        lambda: party.collect({}),
        lambda: party.mask(round_.vectors["party-1"], 32),
        lambda: party.unmask(round_.names),
    ):
        with pytest.raises(UsageError, match="comes first"):
            early()
    round_.until_masked()
    for again in (
        lambda: party.share(round_.keys["party-1"], []),
        lambda: party.collect(round_.mail["party-1"]),
        lambda: party.mask(round_.vectors["party-1"], 32),
    ):
        with pytest.raises(PrivacyRefused, match="once"):
            again()
    assert party.unmask(round_.names) == party.unmask(round_.names[::-1])
    round_.go("unmask")


def test_what_does_not_suit_is_refused():
    shape, names = choose(4, 0, 1), tuple(f"party-{i}" for i in range(1, 5))
    about = SecureSum(names, shape, b"")
    with pytest.raises(UsageError, match="not on the roster"):
        SecAggParty("mallory", about)
    with pytest.raises(UsageError, match="identities"):
        SecureSum(names, choose(5, 0, 1, signed=True), b"")
    with pytest.raises(UsageError, match="256 extra"):
        SecureSum(names, shape, b"", extras=256)
    with pytest.raises(UsageError, match="no identity to sign"):
        SecAggParty("party-1", about).confirm(names)
    with pytest.raises(UsageError, match="both its own identity"):
        SecAggParty("party-1", SecureSum(names, shape, b"", identities=dict.fromkeys(names)))
    with pytest.raises(UsageError, match='no identity of "party-1"'):
        SecureSum(names, shape, b"", identities={})
    round_ = Round(4, tolerate=0, extras=1)
    round_.advertise()
    with pytest.raises(UsageError, match="1 extra secrets of 32 bytes"):
        round_.parties["party-1"].share(round_.keys["party-1"], [bytes(16)])
    round_.go("share", "collect")
    with pytest.raises(UsageError, match="uint64"):
        round_.parties["party-1"].mask(round_.vectors["party-1"], 40)
    with pytest.raises(UsageError, match="`survivors` first"):
        round_.opener.unmasked(np.zeros(6, dtype=np.uint32), {}, 32)


def test_a_saved_state_that_is_damaged_or_of_another_sum_is_refused():
    round_ = Round(4, tolerate=0)
    round_.until_masked()
    state = round_.parties["party-1"].state()
    for bad in (b"", state[:-1], b"[]", b"{}", state.replace(b'"secrets": ["', b'"secrets": ["zz')):
        with pytest.raises(TamperingFound, match="cannot be read"):
            SecAggParty.restore(bad, round_.about)
    with pytest.raises(UsageError, match="another sum"):
        SecAggParty.restore(state, Round(4, tolerate=0, context=b"another").about)
