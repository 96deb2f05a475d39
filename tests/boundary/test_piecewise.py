"""The piecewise mechanism on integers: its law in exact arithmetic, its mean, its variance, and planted bugs."""

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from privacy_loss import exceeds, seeded

from tacit.boundary.piecewise import LEVELS, Piecewise
from tacit.boundary.projected import OneBit
from tacit.boundary.randomness import Secure
from tacit.errors import PrivacyRefused, UsageError

EPSILONS = (0.05, 0.61, 1.0, 2.5, 8.0)
NUMBERS = (-math.inf, -1.0, -0.3, 0.0, 0.2, 0.999, 1.0, 9.0, math.nan)


class Script:
    """Coins that are given: the uniform number, whether the report is near, and which of the values it is."""

    simulated = True

    def __init__(self, uniform, word, place):
        self._uniform, self._word, self._place = uniform, word, place

    def uniform(self, shape):
        return np.full(shape, self._uniform)

    def words(self, n):
        return np.full(n, self._word, dtype=np.uint64)

    def integers(self, high, n):
        return np.minimum(self._place, np.broadcast_to(high, n) - 1).astype(np.int64)


def law(report, number):
    """P(o | number) of every value o, as fractions, from what the code does; a window's chance to 2⁻⁵²."""
    w, L = report.window, LEVELS
    near = Fraction(report._threshold, 2**64)
    starts = {}
    for low, high in zip(*_pieces(report, number), strict=True):
        start = _start(report, number, (low + high) / 2)
        starts[start] = starts.get(start, 0) + Fraction(high) - Fraction(low)
    chances = [Fraction(0)] * L
    for start, chance in starts.items():
        middle = start_uniform(report, number, start)
        for place in range(w):
            chances[int(report.draw(np.array([number]), Script(middle, 0, place))[0])] += chance * near / w
        for place in range(L - w):
            o = int(report.draw(np.array([number]), Script(middle, 2**64 - 1, place))[0])
            chances[o] += chance * (1 - near) / (L - w)
    assert sum(chances) == 1
    return chances


def _start(report, number, uniform):
    """Where the window starts: the least value that a near report can have."""
    return int(report.draw(np.array([number]), Script(uniform, 0, 0))[0])


def start_uniform(report, number, start):
    """A uniform number that makes the window start there."""
    return next(u for u in (2.0**-53, 1 - 2.0**-53, 0.5) if _start(report, number, u) == start)


def _pieces(report, number):
    """The uniform numbers below and above which the window is one and the other: found by halving."""
    low, high = 2.0**-53, 1 - 2.0**-53
    if _start(report, number, low) == _start(report, number, high):
        return (0.0,), (1.0,)
    while high - low > 2.0**-52:
        middle = (low + high) / 2
        low, high = (
            (middle, high) if _start(report, number, middle) == _start(report, number, 2.0**-53) else (low, middle)
        )
    return (0.0, high), (high, 1.0)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_two_numbers_make_a_report_likelier_by_more_than_e_to_the_epsilon(epsilon):
    laws = [law(Piecewise(epsilon, 1.0), x) for x in NUMBERS]
    worst = 0.0
    for one, other in permutations(laws, 2):
        assert not any(exceeds(a, b, epsilon) for a, b in zip(one, other, strict=True))
        worst = max(worst, *(float(a / b) for a, b in zip(one, other, strict=True)))
    assert worst > 0.999 * math.exp(epsilon)  # all of it is used


@dataclass(frozen=True)
class WideWindow(Piecewise):
    """Planted: the chance of a window of w, with a window twice as wide left out of those beyond."""

    @property
    def _threshold(self):
        return min(2**64 - 1, int(1.02 * Piecewise(self.epsilon, self.bound)._threshold))


@dataclass(frozen=True)
class NeverBeyond(Piecewise):
    """Planted: always in the window."""

    @property
    def _threshold(self):
        return 2**64 - 1


@pytest.mark.parametrize("kind", [WideWindow, NeverBeyond])
def test_planted_a_window_that_is_too_likely_is_found(kind):
    one, other = (law(kind(1.0, 1.0), x) for x in (-1.0, 1.0))
    assert any(b == 0 or exceeds(a, b, 1.0) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("epsilon", [*EPSILONS, math.inf])
@pytest.mark.parametrize("bound", [1.0, 0.25])
def test_a_report_is_unbiased_and_has_the_variance_that_it_says(epsilon, bound):
    """By the exact law where there is one; a million draws without it: mean and second moment within 5σ."""
    report = Piecewise(epsilon, bound)
    for x in np.array([-1.0, -0.3, 0.0, 0.2, 0.999]) * bound:
        if epsilon < math.inf:
            chances = np.array([float(c) for c in law(report, x)])
            assert chances @ report.values == pytest.approx(x, abs=1e-9 * report.values.max())
            assert chances @ report.values**2 == pytest.approx(report.second_moment(np.array([x]))[0], rel=1e-9)
        else:
            found = report.values[report.draw(np.full(1_000_000, x), seeded("exact", str(x)))]
            assert found.mean() == pytest.approx(x, abs=5 * bound / LEVELS / 1000)


def test_less_variance_than_one_bit_where_epsilon_is_not_small_and_more_where_it_is():
    """At 0 from ε = 0.61 on; over all numbers, at its worst, from 1.3 on. At the ends one bit is always better."""

    def at(kind, epsilon, x):
        return float(kind(epsilon, 1.0).second_moment(np.array([x]))[0]) - x * x

    ratio = {e: at(Piecewise, e, 0.0) / at(OneBit, e, 0.0) for e in (0.3, 0.55, 0.65, 1.0, 2.5, 5.0)}
    assert ratio[0.3] > ratio[0.55] > 1 > ratio[0.65]
    assert ratio[1.0] == pytest.approx(0.787, abs=0.002)
    assert ratio[2.5] == pytest.approx(0.253, abs=0.002)
    assert ratio[5.0] == pytest.approx(0.039, abs=0.002)
    for e in (0.3, 1.0, 2.5, 5.0):
        assert at(Piecewise, e, 1.0) > at(OneBit, e, 1.0)
        assert (at(Piecewise, e, 1.0) < at(OneBit, e, 0.0)) == (e > 1.3)


@pytest.mark.parametrize("epsilon", [0.61, 1.0, 2.5])
def test_the_variance_is_that_of_the_continuous_mechanism_but_for_a_fiftieth(epsilon):
    """Wang et al. 2019, Lemma 1: t²/(e^(ε/2) − 1) + (e^(ε/2) + 3)/(3·(e^(ε/2) − 1)²)."""
    h = math.exp(epsilon / 2)
    for x in (0.0, 0.5, 1.0):
        expected = x * x / (h - 1) + (h + 3) / (3 * (h - 1) ** 2)
        found = float(Piecewise(epsilon, 1.0).second_moment(np.array([x]))[0]) - x * x
        assert found == pytest.approx(expected, rel=0.02)


def test_reports_are_drawn_anew_and_from_the_operating_system_too():
    report, numbers, source = Piecewise(1.0, 1.0), np.zeros(1000), seeded("anew")
    assert np.mean(report.draw(numbers, source) != report.draw(numbers, source)) > 0.9
    assert set(report.draw(np.zeros(20_000), Secure())) == set(range(LEVELS))


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
def test_an_epsilon_that_cannot_be_kept_is_refused(epsilon):
    with pytest.raises(PrivacyRefused, match="epsilon"):
        Piecewise(epsilon, 1.0)
    with pytest.raises(UsageError, match="not possible"):
        Piecewise(1.0, 0.0)
