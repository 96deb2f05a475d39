"""A signature under a list of survivors is worth nothing in another sum, even of the same context."""

import pytest
from secure_rounds import Round

from tacit.errors import PrivacyRefused
from tacit.secure import secagg_protocol


def masked_twice():
    earlier, now = (Round(7, tolerate=0.29, signed=True) for _ in range(2))
    for round_ in (earlier, now):
        round_.until_masked()
    return earlier, now


def attack(earlier, now):
    """The others settle on a list without party-1, and give its mask key away; party-1 is shown old signatures."""
    old = {name: earlier.parties[name].confirm(earlier.names) for name in earlier.names}
    others = now.names[1:]
    fresh = {name: now.parties[name].confirm(others) for name in others}
    for name in others:
        now.parties[name].unmask(others, (), fresh)
    return now.parties["party-1"].unmask(now.names, (), old)


def test_signatures_of_an_earlier_sum_of_the_same_context_are_refused():
    with pytest.raises(PrivacyRefused, match="0 of its parties signed"):
        attack(*masked_twice())


@pytest.mark.parametrize("plant", ["keys left out", "bound to nothing"])
def test_a_list_that_is_signed_without_its_sum_is_noticed(monkeypatch, plant):
    """Planted: the signature covers the names alone, of this context or of any."""
    names_alone = {
        "keys left out": lambda self, survivors, keys: self.listed(survivors),
        "bound to nothing": lambda self, survivors, keys: secagg_protocol.digest("survivors", *survivors),
    }[plant]
    monkeypatch.setattr(secagg_protocol.SecureSum, "to_sign", names_alone)
    assert attack(*masked_twice())  # it answers: its vector would be open


def test_a_party_that_was_shown_other_keys_signs_something_else():
    one, other = masked_twice()
    keys = {name: one.opener._keys[name] for name in one.names}
    swapped = {**keys, "party-3": other.opener._keys["party-3"]}
    room = one.opener._sum
    assert room.to_sign(one.names, keys) != room.to_sign(one.names, swapped)
    assert room.to_sign(one.names, keys) != room.to_sign(one.names[:-1], keys)
