"""A number reported by one of a few values near it: less variance than one bit where ε is not small."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit.boundary.projected import check_bound
from tacit.boundary.randomized_response import SMALLEST, exact_threshold
from tacit.boundary.randomness import Source
from tacit.boundary.wire import Array
from tacit.errors import PrivacyRefused

#: L, how many values a report can have: at usual ε rounding to so many adds less than 2 % to the variance.
LEVELS = 64


@dataclass(frozen=True)
class Piecewise:
    """A number x, clipped to ±B, reported by one of L = 64 equally spaced values, more likely one of w near it.

    The piecewise mechanism of Wang, Xiao, Yang, Zhao, Hui, Shin, Shin and Yu 2019 ("Collecting and Analyzing
    Multidimensional Data with Local Differential Privacy", ICDE, Algorithm 2) on integers. x is rounded, at random and
    without bias, to one of the L − w + 1 windows of w neighbouring values, and then

        P(in the window) = e^ε·w/(e^ε·w + L − w),   w ≈ L/(e^(ε/2) + 1)

    uniformly within, or uniformly outside. The mean of what is reported is proportional to the window's middle, since
    all values together have the mean 0; so a report divided by that slope is unbiased.

    Attributes
    ----------
    epsilon : ε; infinite: the number is rounded and reported as it is, which protects nothing
    bound : B, a public number

    Formal guarantee
    ----------------
    Given its window, a report inside has the probability P/w and one outside (1 − P)/(L − w), with a ratio of at most
    e^ε: P is rounded down to a multiple of 2⁻⁶⁴ (`exact_threshold`), and the draws within and outside are exact. The
    window is drawn from x alone, whatever x is (NaN counts as 0), so P(report | x) is a mixture of these two
    probabilities: any two numbers make any report within a factor e^ε as likely. That is ε-local DP, and neither
    floating-point rounding of x nor a wrong B changes it.

    Variance at x = 0: about (e^(ε/2) + 3)/(3·(e^(ε/2) − 1)²)·B², where `OneBit` has ((e^ε + 1)/(e^ε − 1))²·B².
    It is less from ε = 0.61 on: 0.79 of it at ε = 1, a quarter at 2.5, 0.04 at 5; below that one bit is better. At
    |x| = B one bit is better whatever ε is; the largest variance over all x is smaller here from ε = 1.3 on.

    >>> from tacit.boundary.randomness import Secure
    >>> report = Piecewise(2.5, bound=1.0)
    >>> report.draw(np.array([0.3, -9.0, np.nan]), Secure()).shape, report.window
    ((3,), 14)
    """

    epsilon: float
    bound: float

    def __post_init__(self) -> None:
        check_bound(self.bound)
        if not self.epsilon >= SMALLEST:
            raise PrivacyRefused(f"A piecewise report needs an epsilon of {SMALLEST:g} or more, not {self.epsilon:g}.")

    @cached_property
    def window(self) -> int:
        """w, from 1 to L/2."""
        return max(1, round(LEVELS / (1 + math.exp(min(self.epsilon / 2, 100.0)))))

    def draw(self, numbers: Array, coins: Source) -> Array:
        """A report for each number, (n,) int32 in 0 … L − 1."""
        n, w, last = len(numbers), self.window, LEVELS - self.window
        at = (1 + self._clipped(numbers)) / 2 * last
        start = np.minimum(np.floor(at + coins.uniform(n)), last).astype(np.int64)
        if self.epsilon == math.inf:
            return start.astype(np.int32)
        near = coins.words(n) < np.uint64(self._threshold)
        place = coins.integers(np.where(near, w, last), n)
        place += np.where(near, start, w * (place >= start))
        reported: Array = place.astype(np.int32)
        return reported

    @property
    def values(self) -> Array:
        """What each report says about the clipped number, unbiased; (L,) float64."""
        return self._unit * (np.arange(LEVELS) - (LEVELS - 1) / 2)

    def second_moment(self, numbers: Array) -> Array:
        """E[value²] of the report of each number, rounding to windows included; its variance is x² less."""
        L, w = LEVELS, self.window
        at = (1 + self._clipped(numbers)) / 2 * (L - w)
        part = at - np.floor(at)
        # the squared distance of a window's middle from 0, on average
        middle = np.square(at - (L - w) / 2) + part * (1 - part)
        within = self._near * (middle + (w * w - 1) / 12)
        beyond = (1 - self._near) / (L - w) * (L * (L * L - 1) / 12 - w * (middle + (w * w - 1) / 12))
        moment: Array = self._unit**2 * (within + beyond)
        return moment

    def _clipped(self, numbers: Array) -> Array:
        """x/B in [−1, 1]."""
        inside: Array = np.clip(np.nan_to_num(numbers / self.bound, nan=0.0, posinf=1.0, neginf=-1.0), -1.0, 1.0)
        return inside

    @property
    def _near(self) -> float:
        """P, the probability of a report in the window."""
        return 1.0 if self.epsilon == math.inf else self._threshold * 2.0**-64

    @property
    def _unit(self) -> float:
        """What a step from one value to the next says: B·2/(L − w) over the slope of the reports' mean."""
        slope = self._near - (1 - self._near) * self.window / (LEVELS - self.window)
        return self.bound * 2 / (LEVELS - self.window) / slope

    @cached_property
    def _threshold(self) -> int:
        return exact_threshold(self.epsilon, LEVELS - self.window, self.window)
