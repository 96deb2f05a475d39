"""Measuring what a mechanism really gives away, against what its event says.

Monte Carlo: for any set S, P(y ∈ S) − e^ε·P'(y ∈ S) is at most δ(ε). Both probabilities get a Clopper–Pearson bound, so
that `measured_delta` exceeds the true δ(ε) by chance with probability `ALARM` at most, over all sets together; the sets
are fixed by a pilot sample of its own. Exact: sums over a support, for mechanisms whose probabilities are known.
"""

from decimal import Context, Decimal

import numpy as np
from scipy import stats

from tacit.boundary.randomness import Seeded
from tacit.rng import stream_key

ALARM = 1e-6
EPSILONS = (0.1, 1.0, 3.0, 6.0)


QUANTILES = (0.0005, 0.003, 0.01, 0.03, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 0.97, 0.99, 0.997, 0.9995)


def measured_delta(release, x, neighbour, epsilon, statistic, n):
    """A lower bound on δ(ε) between the releases of two neighbours; release(x, n) gives n independent ones."""
    best = 0.0
    for one, other in ((x, neighbour), (neighbour, x)):
        pilot = statistic(release(one, 4000))
        cuts = np.unique(np.quantile(pilot, QUANTILES))
        a, b = (np.sort(statistic(release(data, n))) for data in (one, other))
        for side in ("left", "right"):
            above, below = n - np.searchsorted(a, cuts, side), n - np.searchsorted(b, cuts, side)
            for k, m in zip(above, below, strict=True):  # S is a half-line, or its complement
                best = max(best, _advantage(k, m, n, epsilon), _advantage(n - k, n - m, n, epsilon))
    return best


def _advantage(k, m, n, epsilon):
    alarm = ALARM / (16 * len(QUANTILES))  # two directions, sides and complements, and two bounds for each
    low = stats.beta.ppf(alarm, k, n - k + 1) if k else 0.0
    high = stats.beta.isf(alarm, m + 1, n - m) if m < n else 1.0
    return low - np.exp(epsilon) * high


def gaussian_delta(epsilon, event):
    """δ(ε) of a Gaussian event: `count` answers at z are one at z/√count (Balle and Wang 2018, Theorem 8)."""
    z = event.multiplier / np.sqrt(event.count)
    norm = stats.norm
    return norm.cdf(0.5 / z - epsilon * z) - np.exp(epsilon + norm.logcdf(-0.5 / z - epsilon * z))


def leaks(release, x, neighbour, event, statistic, n=40_000):
    """The first ε at which more is given away than a Gaussian event claims, or None."""
    for epsilon in EPSILONS:
        if measured_delta(release, x, neighbour, epsilon, statistic, n) > gaussian_delta(epsilon, event):
            return epsilon
    return None


def seeded(*purpose):
    """A source of its own for every purpose, the same in every run."""
    return Seeded(stream_key(7, *purpose))


def exceeds(p, q, epsilon):
    """Whether p/q > e^ε, for fractions, in 80 digits."""
    ratio = p / q
    return Context(prec=80).divide(ratio.numerator, ratio.denominator) > Context(prec=80).exp(Decimal(epsilon))


def hockey_stick(p, q, epsilon):
    """δ(ε) between two distributions over the same support, exactly, in the worse direction."""
    e = np.exp(epsilon)
    return max(np.maximum(p - e * q, 0).sum(), np.maximum(q - e * p, 0).sum())


def fits(sample, support, probabilities):
    """The p-value of a χ² test of integers against their probabilities; what is rare is put together."""
    n = len(sample)
    inside = (sample >= support[0]) & (sample <= support[-1])
    counts = np.append(np.bincount(sample[inside] - support[0], minlength=len(support)), np.count_nonzero(~inside))
    expected = n * np.append(probabilities, max(0.0, 1 - probabilities.sum()))
    common = expected >= 10
    counts = np.append(counts[common], counts[~common].sum())
    expected = np.append(expected[common], expected[~common].sum())
    if expected[-1] < 1e-9 and counts[-1] == 0:
        counts, expected = counts[:-1], expected[:-1]
    chi = np.sum((counts - expected) ** 2 / np.maximum(expected, 1e-12))
    return stats.chi2.sf(chi, max(1, len(counts) - 1))
