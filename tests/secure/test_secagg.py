"""Secure sums: exact whoever drops out, answered for one survivor list, and nothing for a coordinator that lies."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from secure_rounds import Round, same

from tacit.errors import PrivacyRefused, TamperingFound, UsageError
from tacit.rng import derive
from tacit.secure import secagg_protocol
from tacit.secure.graph import choose
from tacit.secure.masks import add_mask
from tacit.secure.secagg_party import SecAggParty
from tacit.secure.secagg_protocol import Given, SecureSum, VoidRound
from tacit.secure.shamir import joined

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


def test_a_second_survivor_list_is_refused_also_after_a_crash():
    round_ = Round(6, tolerate=0.3)
    round_.until_masked()
    first = round_.parties["party-1"].unmask(round_.names)
    for _ in range(2):
        with pytest.raises(PrivacyRefused, match="second survivor list"):
            round_.parties["party-1"].unmask(round_.names[:5])
        assert round_.parties["party-1"].unmask(round_.names) == first
        round_.restart("party-1")


def test_other_extras_for_the_same_list_are_refused():
    round_ = Round(5, tolerate=0, extras=2)
    round_.until_masked()
    party = round_.parties["party-1"]
    first = party.unmask(round_.names, [0])
    for reveal in ([0, 1], [], [1]):
        with pytest.raises(PrivacyRefused, match="other extras"):
            party.unmask(round_.names, reveal)
    assert party.unmask(round_.names, [0, 0]) == first
    with pytest.raises(UsageError, match="2 extra secrets"):
        party.unmask(round_.names, [2])


@pytest.mark.parametrize(
    ("survivors", "said"),
    [
        (slice(0, 4), "at least 5 must survive"),
        (slice(1, 7), "not on itself"),
        (["party-1"] * 6, "a name twice"),
        ([*(f"party-{i}" for i in range(1, 6)), "mallory"], "strangers"),
        ([], "not on itself"),
    ],
)
def test_a_party_refuses_lists_that_would_lay_others_open(survivors, said):
    round_ = Round(7, tolerate=0.29)
    round_.until_masked()
    chosen = round_.names[survivors] if isinstance(survivors, slice) else survivors
    with pytest.raises(PrivacyRefused, match=said):
        round_.parties["party-1"].unmask(chosen)
    assert round_.parties["party-1"].unmask(round_.names)  # a refused list leaves no trace


def test_a_party_refuses_survivors_that_it_did_not_mask_with():
    """A coordinator that withholds one letter and then says that its sender survived."""
    round_ = Round(6, tolerate=0.3)
    round_.go("advertise", "share")
    del round_.mail["party-1"]["party-2"]
    round_.collect()
    round_.mask()
    with pytest.raises(PrivacyRefused, match='did not mask with "party-2"'):
        round_.parties["party-1"].unmask(round_.names)


class Forgetful(SecAggParty):
    """The planted bug: it forgets which list it answered for."""

    def unmask(self, survivors, reveal=(), signatures=None):
        self._survivors = self._reveal = None
        return super().unmask(survivors, reveal, signatures)


def both_given(sealer):
    """Whether any sequence of 60 odd requests, crashes in between, gets both secrets of one neighbour."""
    round_, draw = Round(7, tolerate=0.29, extras=1, sealer=sealer), derive(7, "requests")
    round_.until_masked(gone=["party-7"])
    given = {}
    for _ in range(60):
        chosen = [name for name in round_.names if draw.random() < 0.85]
        if draw.random() < 0.3:
            round_.restart("party-1")
        try:
            answer = round_.parties["party-1"].unmask(chosen, [0] if draw.random() < 0.5 else [])
        except PrivacyRefused:
            continue
        read = round_.opener._sum.read_answer("party-1", answer, set(chosen), round_.opener._sum.listed(chosen))
        for other, (kind, _) in read.given.items():
            given.setdefault(other, set()).add(kind)
    assert given
    return any({Given.SEED, Given.KEY} <= kinds for kinds in given.values())


def test_no_sequence_of_requests_gets_both_secrets_of_anyone():
    assert not both_given(SecAggParty)
    assert both_given(Forgetful)


def test_a_list_that_too_few_signed_is_refused():
    round_ = Round(7, tolerate=0.2, signed=True)
    round_.until_masked()
    signatures = {name: round_.parties[name].confirm(round_.names) for name in round_.names}
    t, party = round_.shape.threshold, round_.parties["party-1"]
    few = dict(list(signatures.items())[: t - 1])
    forged = few | {"party-7": signatures["party-6"]}
    stranger = few | {"mallory": signatures["party-6"]}
    for bad in (None, {}, few, forged, stranger):
        with pytest.raises(PrivacyRefused, match=f"{t} must"):
            party.unmask(round_.names, (), bad)
    assert party.unmask(round_.names, (), dict(list(signatures.items())[:t]))


def test_a_party_signs_one_list_only():
    round_ = Round(7, tolerate=0.29, signed=True)
    round_.until_masked()
    party = round_.parties["party-1"]
    signature = party.confirm(round_.names)
    round_.restart("party-1")
    assert round_.parties["party-1"].confirm(round_.names) == signature
    with pytest.raises(PrivacyRefused, match="second survivor list"):
        round_.parties["party-1"].confirm(round_.names[:6])


def attack(threshold):
    """A lying coordinator with party-7 at its side tells two halves different lists, to get both secrets of party-1:
    its vector, or None where the parties refuse."""
    shape = replace(choose(7, 0.29, 1, signed=True), threshold=threshold)
    round_ = Round(7, signed=True, shape=shape)
    round_.until_masked()
    with_it, without = round_.names, round_.names[1:]
    half, rest, colluder = round_.names[:3], round_.names[3:6], round_.parties["party-7"]
    signed = {name: round_.parties[name].confirm(with_it) for name in half}
    unsigned = {name: round_.parties[name].confirm(without) for name in rest}
    for names, signatures in ((with_it, signed), (without, unsigned)):
        signatures["party-7"] = colluder._identity.sign(colluder._to_sign(names))
    room, told = round_.opener._sum, {}
    try:
        told["seed"] = room.read_answer(
            "party-1", round_.parties["party-1"].unmask(with_it, (), signed), set(with_it), room.listed(with_it)
        ).seed
        shares = {7: colluder._shares["party-1"][1]}
        for name in rest:
            answer = round_.parties[name].unmask(without, (), unsigned)
            read = room.read_answer(name, answer, set(without), room.listed(without))
            shares[room.point[name]] = read.given["party-1"][1][0]
    except PrivacyRefused:
        return None, round_
    key = X25519PrivateKey.from_private_bytes(joined(shares, threshold))
    plain = round_.masked["party-1"].copy()
    add_mask(plain, room.bound("own mask", "party-1", told["seed"]), 32, -1)
    for other in round_.names[1:]:
        seed, sign = room.pair_mask(key, "party-1", other, round_.opener._keys[other])
        add_mask(plain, seed, 32, -sign)
    return plain, round_


def test_a_coordinator_that_sends_two_lists_gets_nothing():
    """With the planted bug 2t = n + c it would get a vector: the attack is a real one."""
    assert choose(7, 0.29, 1, signed=True).threshold == 5
    assert attack(5)[0] is None
    plain, round_ = attack(4)
    assert np.array_equal(plain, round_.vectors["party-1"])


def test_keys_of_somebody_else_are_refused_where_parties_have_identities():
    """A coordinator that puts itself between two parties, with keys of its own under their names."""
    honest, fake = Round(5, tolerate=0, signed=True), Round(5, tolerate=0)
    keys = {name: party.advertise() for name, party in honest.parties.items() if name != "party-1"}
    keys["party-2"] = fake.parties["party-2"].advertise()
    sent = honest.parties["party-1"].share(keys)
    assert "party-2" not in sent
    assert "not genuine" in honest.parties["party-1"].rejected["party-2"]


def masked_twice():
    earlier, now = (Round(7, tolerate=0.29, signed=True) for _ in range(2))
    for round_ in (earlier, now):
        round_.until_masked()
    return earlier, now


def replayed(earlier, now):
    """The others settle on a list without party-1, and give its mask key away; party-1 is shown old signatures."""
    old = {name: earlier.parties[name].confirm(earlier.names) for name in earlier.names}
    others = now.names[1:]
    fresh = {name: now.parties[name].confirm(others) for name in others}
    for name in others:
        now.parties[name].unmask(others, (), fresh)
    return now.parties["party-1"].unmask(now.names, (), old)


@pytest.mark.parametrize("plant", ["keys left out", "bound to nothing"])
def test_signatures_of_an_earlier_sum_of_the_same_context_are_refused(monkeypatch, plant):
    """Planted: the signature covers the names alone, of this context or of any."""
    with pytest.raises(PrivacyRefused, match="0 of its parties signed"):
        replayed(*masked_twice())
    names_alone = {
        "keys left out": lambda self, survivors, keys: self.listed(survivors),
        "bound to nothing": lambda self, survivors, keys: secagg_protocol.digest("survivors", *survivors),
    }[plant]
    monkeypatch.setattr(secagg_protocol.SecureSum, "to_sign", names_alone)
    assert replayed(*masked_twice())  # it answers: its vector would be open
