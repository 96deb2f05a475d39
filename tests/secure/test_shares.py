"""Shares of one noise: never too little is left, whoever stays and whoever subtracts, and hardly ever much more."""

import math
from dataclasses import replace
from itertools import product

import pytest

from tacit.aggregation.ideal import Ideal
from tacit.aggregation.secagg import SecAgg
from tacit.errors import PrivacyRefused
from tacit.partition import Setting
from tacit.secure.noise_shares import UP, NoiseShares

VARIANCE = 3.7
TOLERATE = [0.0, 0.1, 0.25, 0.3, 0.5, 0.75, 0.9]


def all_shares():
    """Every way to share among up to 60 parties that is possible."""
    for n, tolerate, colluding in product(range(1, 61), TOLERATE, range(1, 6)):
        if math.ceil((1 - tolerate) * n - 1e-9) - colluding >= 1:
            yield NoiseShares.of(n, tolerate, colluding)


def too_little(shares):
    """The first number of survivors that leaves honest parties with too little noise; None where there is none."""
    for survivors in range(shares.fewest, shares.parties + 1):
        left = shares.remaining_variance(VARIANCE, survivors)
        own = left / survivors  # every survivor's share keeps the same
        if left < VARIANCE or left - shares.colluding * own < VARIANCE:
            return survivors
    return None


def test_never_too_little_is_left_even_after_colluders_subtract_their_own():
    every = list(all_shares())
    assert len(every) > 1000
    assert [shares for shares in every if too_little(shares) is not None] == []


def test_what_is_left_is_what_the_level_says():
    """s ≤ |S| is the level reached: v·|S|/(s − c), between the ideal v·|S|/(|S| − c) and everything."""
    for shares in all_shares():
        for survivors in range(shares.fewest, shares.parties + 1):
            level = max(level for level in shares.levels if level <= survivors)
            left = shares.remaining_variance(VARIANCE, survivors)
            assert left == pytest.approx(VARIANCE * survivors / (level - shares.colluding), rel=1e-9)
            assert left >= VARIANCE * survivors / (survivors - shares.colluding)
            assert left <= shares.largest_variance(VARIANCE) * UP


def test_five_levels_leave_little_more_than_is_needed():
    """Three tenths of drop-outs allowed for, many parties: at most 1.11 of the variance, and that is nearly met."""
    shares = NoiseShares.of(100_000, 0.3, 1)
    worst = max(shares.remaining_variance(1.0, survivors) for survivors in range(shares.fewest, shares.parties + 1, 7))
    assert 1.05 < worst <= 1.11
    everybody = replace(shares, parties=shares.fewest)  # no levels but one: nothing could be taken out again
    assert 100_000 * everybody.base(1.0) > 1.4


@pytest.mark.parametrize(("n", "tolerate", "c"), [(10, 0.3, 1), (100, 0.3, 5), (20, 0.0, 3)])
def test_fewer_survivors_than_the_noise_was_shared_among_are_refused(n, tolerate, c):
    shares = NoiseShares.of(n, tolerate, c)
    shares.spare(shares.fewest)
    for survivors in (shares.fewest - 1, 0):
        with pytest.raises(PrivacyRefused, match="fewer than the"):
            shares.spare(survivors)
        with pytest.raises(PrivacyRefused, match="fewer than the"):
            SecAgg(Setting.HORIZONTAL, n, tolerate, c).noise(1.0, survivors)


@pytest.mark.parametrize(("n", "tolerate", "c"), [(1, 0.0, 1), (3, 0.5, 2), (10, 0.9, 1), (100, 0.3, 70)])
def test_where_nobody_honest_may_be_left_it_is_refused(n, tolerate, c):
    with pytest.raises(PrivacyRefused, match="nobody is left"):
        NoiseShares.of(n, tolerate, c)


def test_fractions_that_float64_does_not_hold_are_counted_right():
    """(1 − 0.3)·10 is 7.000000000000001 or 6.999999999999999: seven parties all the same."""
    for n in range(10, 200, 10):
        assert NoiseShares.of(n, 0.3, 1).fewest == 7 * n // 10
        assert NoiseShares.of(n, 0.1, 1).fewest == 9 * n // 10


def test_aggregations_say_the_noise_that_shares_leave():
    shares = NoiseShares.of(20, 0.3, 2)
    secagg, ideal = SecAgg(Setting.HORIZONTAL, 20, 0.3, 2), Ideal(Setting.HORIZONTAL, 20, 2)
    for survivors in range(14, 21):
        real = secagg.noise(1.5, survivors)
        assert real**2 == pytest.approx(shares.remaining_variance(1.5**2, survivors))
        assert real >= ideal.noise(1.5, survivors) >= 1.5
    assert secagg.noise(1.5, 20) == pytest.approx(ideal.noise(1.5, 20))


class SizedForAll(NoiseShares):
    """Planted: shares as if everybody stayed."""

    def excess(self, variance):
        return tuple(0.0 for _ in super().excess(variance))


class Generous(NoiseShares):
    """Planted: one piece more than can be spared is taken out."""

    def spare(self, survivors):
        return min(self.extras, super().spare(survivors) + 1)


class Trusting(NoiseShares):
    """Planted: colluders are forgotten."""

    def base(self, variance):
        return variance / self.parties

    def excess(self, variance):
        return tuple(variance / low - variance / high for low, high in zip(self.levels, self.levels[1:], strict=False))


@pytest.mark.parametrize("planted", [SizedForAll, Generous, Trusting])
def test_too_little_noise_is_noticed(planted):
    assert too_little(NoiseShares.of(20, 0.3, 2)) is None
    assert too_little(planted.of(20, 0.3, 2)) is not None
