"""Randomised response: each user reports a value that may not be the true one, and counts are corrected afterwards."""

import math
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal, localcontext
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit.boundary import events
from tacit.boundary.randomness import Source
from tacit.boundary.wire import Array
from tacit.errors import PrivacyRefused, UsageError

SMALLEST = 2.0**-20  # where ε is near k·2⁻⁶³, p rounded down could make a lie likelier than e^ε allows


@dataclass(frozen=True)
class RandomizedResponse:
    """One of k values, 0 … k − 1: the true one with probability p = e^ε/(e^ε + k − 1), else any other, at random.

    Two values are Warner's coin (1965), more the k-ary response of Kairouz, Bonawitz and Ramage 2016.

    Formal guarantee
    ----------------
    For any two true values and any report r, P(r|v)/P(r|v') ≤ p/q = e^ε with q = (1 − p)/(k − 1): ε-DP for the report
    against anyone, and ε-*local* DP for a user whose only report it is. m reports of one user spend m·ε: an event with
    count m. It holds exactly, not up to rounding: p is rounded down to a multiple of 2⁻⁶⁴, which makes p/q smaller, the
    truth is reported where a uniform 64-bit word is below p·2⁶⁴, and the others are drawn without bias.

    >>> from tacit.boundary.randomness import Secure
    >>> answer = RandomizedResponse(epsilon=1.0, values=5)
    >>> answer.report(np.array([0, 4, 4]), Secure()).shape, answer.event().epsilon
    ((3,), 1.0)
    """

    epsilon: float
    values: int = 2

    def __post_init__(self) -> None:
        if not SMALLEST <= self.epsilon < math.inf:
            raise PrivacyRefused(f"Randomised response needs an epsilon of {SMALLEST:g} or more, not {self.epsilon:g}.")
        if not 2 <= self.values < 2**31:
            raise UsageError(
                f"Randomised response among {self.values} values is not possible; there must be two or more."
            )

    def report(self, truth: Array, source: Source) -> NDArray[np.int64]:
        """A report for each true value, int64, of the same shape; truth: integers in 0 … values − 1."""
        if not np.issubdtype(truth.dtype, np.integer) or np.any((truth < 0) | (truth >= self.values)):
            raise UsageError(f"A value to report is not one of 0 … {self.values - 1}; number the answers so.")
        flat = truth.astype(np.int64).ravel()
        lies = source.words(flat.size) >= np.uint64(self._threshold)
        other = (flat + 1 + source.integers(self.values - 1, flat.size)) % self.values
        reports: NDArray[np.int64] = np.where(lies, other, flat).reshape(truth.shape)
        return reports

    def estimate(self, reports: Array) -> NDArray[np.float64]:
        """How often each value was true, (values,) float64: (count − n·q)/(p − q), unbiased; may be negative."""
        if np.any((reports < 0) | (reports >= self.values)):
            raise UsageError(f"A report is not one of 0 … {self.values - 1}; it was not made by this response.")
        counts = np.bincount(reports.ravel(), minlength=self.values)
        estimates: NDArray[np.float64] = (counts - counts.sum() * self.lie) / (self.truth - self.lie)
        return estimates

    def event(self, count: int = 1) -> events.Pure:
        """What `count` reports of one unit spend."""
        return events.Pure(self.epsilon, "randomised response", count)

    @property
    def truth(self) -> float:
        """p, the probability of the true value."""
        return self._threshold * 2.0**-64

    @property
    def lie(self) -> float:
        """q, the probability of each other value."""
        return (2**64 - self._threshold) * 2.0**-64 / (self.values - 1)

    @cached_property
    def _threshold(self) -> int:
        return exact_threshold(self.epsilon, self.values - 1)


def exact_threshold(epsilon: float, others: int, likely: int = 1) -> int:
    """⌊p·2⁶⁴⌋ where p = e^ε·likely/(e^ε·likely + others), and never 2⁶⁴: what is always reported would have no ε.

    p is the chance to report one of `likely` values, each e^ε times as likely as each of the `others`.
    """
    with localcontext() as digits:
        digits.prec = 60
        odds = (-Decimal(epsilon)).exp() * others / likely
        return min(int((Decimal(2**64) / (1 + odds)).to_integral_value(ROUND_FLOOR)), 2**64 - 1)
