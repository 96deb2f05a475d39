"""What is altered, cut off, replayed or made up is rejected by name, and the rest goes on to the right sum."""

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from secure_rounds import Round, same

from tacit.secure.secagg_party import SecAggParty
from tacit.secure.secagg_protocol import Keys, VoidRound


def flipped(message, at=40):
    return message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :]


def other_round(signed, exchange):
    """What party-2 said in a sum of another context."""
    other = Round(6, tolerate=0.2, context=b"another", signed=signed)
    other.go("advertise", "share")
    if exchange == "collect":
        return other.mail["party-1"]["party-2"]
    other.go("collect", "mask", "unmask")
    return other.parties["party-2"].advertise() if exchange == "advertise" else other.answers["party-2"]


SPOILS = {
    "altered": lambda message, *_: flipped(message),
    "cut": lambda message, *_: message[:-1],
    "empty": lambda *_: b"",
    "longer": lambda message, *_: message + b"\0",
    "replayed": lambda _message, signed, exchange: other_round(signed, exchange),
}


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("spoil", SPOILS)
@pytest.mark.parametrize("exchange", ["advertise", "unmask"])
def test_spoilt_keys_and_answers_are_rejected_by_name_and_the_rest_goes_on(exchange, spoil, signed):
    round_ = Round(6, tolerate=0.2, signed=signed)

    def spoilt(sent):
        return sent | {"party-2": SPOILS[spoil](sent["party-2"], signed, exchange)}

    if exchange == "advertise":
        round_.advertise(spoil=spoilt)
        round_.go("share", "collect", "mask", "unmask")
    else:
        round_.until_masked(gone=["party-6"])
        round_.unmask(spoil=spoilt)
        assert same(round_.open(), round_)
    assert list(round_.opener.rejected) == ["party-2"]
    assert "party-2" in round_.opener.rejected["party-2"]
    assert len(round_.survivors) == 5


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("spoil", SPOILS)
def test_spoilt_mail_is_rejected_by_name_and_the_rest_goes_on(spoil, signed):
    """Between the coordinator and one receiver: both go on, masks and all; and then either may drop out."""
    for gone in ([], ["party-1"], ["party-2"], ["party-4"]):
        round_ = Round(6, tolerate=0.2, signed=signed)
        round_.go("advertise", "share")
        mail = round_.mail["party-1"]
        mail["party-2"] = SPOILS[spoil](mail["party-2"], signed, "collect")
        round_.collect()
        assert round_.noted == {name: ("party-2",) if name == "party-1" else () for name in round_.names}
        assert "party-2" in round_.parties["party-1"].rejected["party-2"]
        round_.mask(gone)
        round_.unmask()
        assert same(round_.open(), round_)


@pytest.mark.parametrize("spoil", ["cut", "empty", "longer"])
def test_mail_of_the_wrong_size_puts_its_sender_out(spoil):
    round_ = Round(6, tolerate=0.2)
    round_.advertise()

    def spoilt(sent):
        sent["party-2"]["party-1"] = SPOILS[spoil](sent["party-2"]["party-1"])
        return sent

    round_.share(spoil=spoilt)
    assert "party-1" in round_.opener.rejected["party-2"]
    round_.go("collect", "mask", "unmask")
    assert "party-2" not in round_.survivors


def test_an_answer_for_another_list_is_rejected():
    round_ = Round(6, tolerate=0.3)
    round_.until_masked()
    round_.answers = {name: round_.parties[name].unmask(round_.survivors) for name in round_.names[1:]}
    round_.answers["party-1"] = round_.parties["party-1"].unmask(round_.names[:5])
    assert same(round_.open(), round_)
    assert list(round_.opener.rejected) == ["party-1"]


def test_keys_that_one_receiver_cannot_trust_put_that_receiver_out():
    round_ = Round(6, tolerate=0.2)
    round_.advertise()
    round_.keys["party-1"]["party-2"] = flipped(round_.keys["party-1"]["party-2"])
    round_.share()
    assert "party-2" in round_.parties["party-1"].rejected
    assert list(round_.opener.rejected) == ["party-1"]
    round_.go("collect", "mask", "unmask")


def test_a_key_of_low_order_is_rejected_before_anybody_stumbles():
    round_ = Round(5, tolerate=0.2)
    liar = round_.parties["party-3"]
    body = bytes(32) + Keys.of(liar.advertise()).mask + bytes(32)
    spoilt = liar._sum.stamped("party-3", "advertisement", body, None)
    round_.advertise(spoil=lambda sent: sent | {"party-3": spoilt})
    assert "low order" in round_.opener.rejected["party-3"]
    round_.go("share", "collect", "mask", "unmask")


class Liar(SecAggParty):
    """Gives wrong shares, wrong seeds and wrong extras, and stamps them as it should."""

    def unmask(self, survivors, reveal=(), signatures=None):
        self._shares = {owner: tuple(bytes(33) for _ in shares) for owner, shares in self._shares.items()}
        self._seed = bytes(32)
        self._extras = tuple(bytes(32) for _ in self._extras)
        return super().unmask(survivors, reveal, signatures)


@pytest.mark.parametrize(("n", "liars"), [(7, ["party-1"]), (9, ["party-1", "party-2"]), (24, ["party-3"])])
def test_lies_in_answers_are_found_out_by_name(n, liars):
    round_ = Round(n, tolerate=0.2, extras=1)
    for name in liars:
        round_.parties[name].__class__ = Liar
    gone = round_.names[-1]
    opened = round_.play({"mask": [gone]}, reveal=[0])
    assert same(opened, round_)
    assert set(round_.opener.rejected) == set(liars)
    assert opened.extras == {name: {0: round_.secrets[name][0]} for name in round_.survivors}


def test_strangers_are_noted_and_left_out():
    round_ = Round(5, tolerate=0.2)
    round_.advertise(spoil=lambda sent: sent | {"mallory": sent["party-1"]})
    round_.share(spoil=lambda sent: sent | {"mallory": {}})
    round_.mail["party-1"]["mallory"] = b"hello"
    round_.collect()
    assert round_.noted["party-1"] == ("mallory",)
    round_.mask()
    round_.unmask(spoil=lambda sent: sent | {"mallory": b""})
    assert same(round_.open(), round_)
    assert list(round_.opener.rejected) == ["mallory"]


def test_a_party_with_too_little_genuine_mail_leaves():
    round_ = Round(6, tolerate=0.3)
    round_.go("advertise", "share")
    few = {other: flipped(sealed) for other, sealed in round_.mail["party-1"].items()}
    with pytest.raises(VoidRound, match="genuine mail of 0"):
        round_.parties["party-1"].collect(few)
    with pytest.raises(VoidRound, match="genuine keys of 1"):
        Round(6, tolerate=0.3).parties["party-1"].share({"party-2": round_.keys["party-1"]["party-2"]})


def test_lost_mail_makes_the_round_void_rather_than_wrong():
    """One message never reaches its receiver, which then has no mask with a party that has one with it."""
    round_ = Round(6, tolerate=0.3)
    round_.go("advertise", "share")
    del round_.mail["party-1"]["party-2"]
    round_.collect()
    round_.mask(gone=["party-2"])
    round_.unmask()
    with pytest.raises(VoidRound, match='"party-1" got other mail'):
        round_.open()


def test_mail_that_is_sent_back_is_rejected():
    """Two parties share one key for mail; its direction is bound to it all the same."""
    round_ = Round(6, tolerate=0.2)
    round_.go("advertise", "share")
    round_.mail["party-1"]["party-2"] = round_.mail["party-2"]["party-1"]
    round_.collect()
    assert round_.noted["party-1"] == ("party-2",)


def test_keys_that_were_swapped_and_stamped_anew_spoil_the_mail():
    """Without identities anybody can stamp; but mail is bound to the advertisements that both sides know."""
    round_ = Round(6, tolerate=0.2)
    round_.advertise()
    genuine = Keys.of(round_.keys["party-1"]["party-2"])
    other = X25519PrivateKey.generate().public_key().public_bytes_raw()
    swapped = round_.opener._sum.stamped("party-2", "advertisement", genuine.mail + other + genuine.commitment, None)
    round_.keys["party-1"]["party-2"] = swapped
    round_.share()
    round_.collect()
    assert round_.noted["party-1"] == ("party-2",)
    assert round_.noted["party-2"] == ("party-1",)


def test_masks_and_stamps_belong_to_one_sum_and_one_pair():
    """Even where keys were used twice, which they never are."""
    a, b = (Round(4, tolerate=0, context=context) for context in (b"a", b"b"))
    keys = {name: Keys.of(party.advertise()) for name, party in a.parties.items()}
    mine = a.parties["party-1"]._mask_key
    seed, sign = a.opener._sum.pair_mask(mine, "party-1", "party-2", keys["party-2"])
    assert sign == 1
    assert a.opener._sum.pair_mask(mine, "party-1", "party-3", keys["party-2"])[0] != seed
    assert b.opener._sum.pair_mask(mine, "party-1", "party-2", keys["party-2"])[0] != seed
    theirs = a.parties["party-2"]._mask_key
    assert a.opener._sum.pair_mask(theirs, "party-2", "party-1", keys["party-1"]) == (seed, -1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda body: body + b"\0", "too long"),
        (lambda body: body[:-1], "too early"),
        (lambda body: b"\x01\x05" + body[1:], "do not exist"),
        (lambda body: b"\x02\x00\x00" + body[1:], "do not exist"),
        (lambda body: body[:33] + b"\x02" + body[34:], "not requested"),
        (lambda body: body[:33] + b"\x09" + body[34:], "not requested"),
    ],
)
def test_an_answer_that_is_stamped_but_malformed_is_rejected(change, said):
    round_ = Round(5, tolerate=0.2, extras=1)
    round_.until_masked()
    room = round_.opener._sum
    about = room.listed(round_.survivors)

    def spoil(sent):
        body = room.genuine("party-2", "answer", sent["party-2"], about)
        return sent | {"party-2": room.stamped("party-2", "answer", change(body), None, about)}

    round_.unmask(spoil=spoil)
    assert same(round_.open(), round_)
    assert said in round_.opener.rejected["party-2"]


@pytest.mark.parametrize("size", [0, 64, 95, 97])
def test_an_advertisement_that_is_stamped_but_malformed_is_rejected(size):
    round_ = Round(5, tolerate=0.2)
    message = round_.opener._sum.stamped("party-2", "advertisement", bytes([9]) * size, None)
    round_.advertise(spoil=lambda sent: sent | {"party-2": message})
    assert "wrong size" in round_.opener.rejected["party-2"]
    assert "party-2" not in round_.keys
