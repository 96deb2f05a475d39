"""What the coordinator sees is uniform but for the sum, and every mask has a full seed of its own."""

from itertools import combinations

import numpy as np
import pytest
from secure_rounds import FALSE_ALARM, Round, uniform_p

from tacit.secure import secagg_party
from tacit.secure.masks import add_mask
from tacit.secure.secagg_party import SecAggParty

SIZE = 4000


class ForgetsItsOwnMask(SecAggParty):
    """The planted bug: only masks in common with others."""

    def mask(self, vector, bits):
        masked = super().mask(vector, bits)
        add_mask(masked, self._sum.bound("own mask", self.name, self._seed), bits, -1)
        return masked


class ForgetsItsPairs(SecAggParty):
    """The planted bug: only its own mask."""

    def mask(self, vector, bits):
        self._partners, partners = (), self._partners
        masked = super().mask(vector, bits)
        self._partners = partners
        return masked


def extreme(value, sealer=SecAggParty, bits=32, gone=()):
    """A round whose vectors are all one extreme value, as far as the masked vectors."""
    round_ = Round(5, tolerate=0.2, size=SIZE, bits=bits, sealer=sealer)
    round_.vectors = {name: np.full_like(v, value) for name, v in round_.vectors.items()}
    round_.until_masked(gone)
    return round_


def smallest(vectors, most):
    """The smallest p-value over sums of up to `most` of the vectors: all that is linear in the view."""
    some = [chosen for k in range(1, most + 1) for chosen in combinations(vectors, k)]
    return min(uniform_p(np.sum(chosen, axis=0, dtype=chosen[0].dtype).tobytes()) for chosen in some)


def before_answers(round_):
    return smallest(list(round_.masked.values()), len(round_.masked))


def after_answers(round_):
    """The same once own masks are known, for any but all of the survivors."""
    plain = {name: round_.masked[name].copy() for name in round_.survivors}
    for name, vector in plain.items():
        add_mask(vector, round_.about.bound("own mask", name, round_.parties[name]._seed), round_.bits, -1)
    return smallest(list(plain.values()), len(plain) - 1)


def late_vector(round_):
    """The p-value of the vector of a party that was given up, with the masks that it has in common with others, whose
    seeds follow from the key that the answers give away, taken off."""
    party = round_.parties["party-5"]
    late = party.mask(round_.vectors["party-5"], round_.bits)
    for other in party._partners:
        seed, sign = party._sum.pair_mask(party._mask_key, "party-5", other, party._keys[other])
        add_mask(late, seed, round_.bits, -sign)
    return uniform_p(late.tobytes())


@pytest.mark.parametrize(("value", "bits"), [(0, 32), (2**32 - 1, 32), (0, 64), (2**64 - 1, 64)])
def test_the_view_is_uniform_until_the_answers_and_only_the_whole_sum_is_not_after(value, bits):
    """Chi-square tests of all sub-sums, false-alarm rate 1e-9 each: at most 1e-7 for this test."""
    assert before_answers(extreme(value, bits=bits)) > FALSE_ALARM
    assert after_answers(extreme(value, bits=bits)) > FALSE_ALARM
    assert late_vector(extreme(value, bits=bits, gone=["party-5"])) > FALSE_ALARM


def test_a_forgotten_mask_is_noticed():
    assert late_vector(extreme(0, ForgetsItsOwnMask, gone=["party-5"])) < FALSE_ALARM
    assert before_answers(extreme(0, ForgetsItsOwnMask)) < FALSE_ALARM  # the sum of all is plain

    assert after_answers(extreme(0, ForgetsItsPairs)) < FALSE_ALARM


def seeds_used(monkeypatch, rounds=12, spoil=lambda seed: seed):
    """The seeds of all masks of several rounds, as `add_mask` gets them."""
    seen = []

    def spy(total, seed, bits, sign):
        seen.append(spoil(seed))
        add_mask(total, seed, bits, sign)

    monkeypatch.setattr(secagg_party, "add_mask", spy)
    for i in range(rounds):
        Round(8, tolerate=0, context=bytes([i])).until_masked()
    return seen


def full_strength(seeds):
    """Every seed of 32 bytes, uniform in each half; each pair's used twice, each own one once."""
    counts = {seed: seeds.count(seed) for seed in set(seeds)}
    return (
        all(len(seed) == 32 for seed in seeds)
        and sorted(counts.values()) == [1] * 96 + [2] * 336
        and min(uniform_p(*(seed[:16] for seed in counts)), uniform_p(*(seed[16:] for seed in counts))) > FALSE_ALARM
    )


def test_every_mask_has_a_full_seed_of_its_own(monkeypatch):
    """12 rounds of 8 parties. False-alarm rate 2e-9, and a collision of uniform 32 bytes never happens."""
    assert full_strength(seeds_used(monkeypatch))


@pytest.mark.parametrize("spoil", [lambda s: s[:4] + bytes(28), lambda s: s[:16], lambda s: s[:1] * 32])
def test_a_short_seed_is_noticed(monkeypatch, spoil):
    """The planted bug: seeds of 32 bits, of 128 bits, of one byte."""
    assert not full_strength(seeds_used(monkeypatch, spoil=spoil))
