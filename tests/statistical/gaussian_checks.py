"""What a stream of standard Gaussians must look like. Each check names the first thing that is wrong, or nothing.

A *stream* is a function n → the next n numbers. Every single comparison fails by chance once in a million (`ALARM`)
for true Gaussians; the tests' seeds are fixed, so that chance was taken once.
"""

import numpy as np
from scipy import special, stats

ALARM = 1e-6
Z = stats.norm.isf(ALARM / 2)  # 4.89


def checked(stream, n, checks):
    """The first complaint of several checks."""
    for check in checks:
        complaint = check(stream, n)
        if complaint:
            return complaint
    return None


def moments_and_histogram(stream, n, chunk=1 << 20):
    """Mean, variance, skewness and kurtosis, then 512 bins of width 1/32, then tails."""
    sums, counts = np.zeros(4), np.zeros(514, dtype=np.int64)
    for _ in range(-(-n // chunk)):
        x = stream(chunk)
        wide = x.astype(np.float64)
        square = wide * wide
        sums += wide.sum(), square.sum(), square @ wide, square @ square
        place = np.floor(x * x.dtype.type(32)).astype(np.int32)  # exact: 32 is a power of 2
        counts += np.bincount(np.clip(place + 257, 0, 513), minlength=514)
    n = counts.sum()
    # moments of a standard Gaussian, and their standard deviations times √n
    for name, value, spread in zip(
        ("mean", "variance", "third moment", "fourth moment"),
        sums / n - [0, 1, 0, 3],
        np.sqrt([1, 2, 15, 96]),
        strict=True,
    ):
        if abs(value) * np.sqrt(n) > Z * spread:
            return f"{name} off by {value:.2e}, {value * np.sqrt(n) / spread:.1f} standard errors"
    edges = np.concatenate([[-np.inf], np.arange(-256, 257) / 32, [np.inf]])
    expected = n * np.diff(stats.norm.cdf(edges))
    expected[257:] = n * -np.diff(stats.norm.sf(edges[257:]))
    full = expected >= 10
    chi = np.sum((counts[full] - expected[full]) ** 2 / expected[full])
    if chi > stats.chi2.isf(ALARM, full.sum()):
        return f"histogram: χ² = {chi:.0f} on {full.sum()} bins"
    for edge in (3, 4, 4.5, 5):
        beyond = int(counts[np.abs(np.concatenate([[-9], edges[1:-1], [9]])[:-1] + 1 / 64) > edge].sum())
        complaint = rare(beyond, 2 * n * stats.norm.sf(edge), f"beyond {edge}")
        if complaint:
            return complaint
    return None


def rare(count, expected, what):
    """A count of rare events against its Poisson distribution."""
    if min(stats.poisson.cdf(count, expected), stats.poisson.sf(count - 1, expected)) < ALARM / 2:
        return f"{what}: {count} where {expected:.1f} are expected"
    return None


def far_tails(stream, n, chunk=1 << 18):
    """How many lie beyond 5.5 and beyond 6."""
    beyond = np.zeros(2, dtype=np.int64)
    for _ in range(-(-n // chunk)):
        x = stream(chunk)
        if x.max() > 5.5 or x.min() < -5.5:
            beyond += [np.count_nonzero(np.abs(x) > edge) for edge in (5.5, 6)]
    complaints = (
        rare(c, 2 * n * stats.norm.sf(edge), f"beyond {edge}") for c, edge in zip(beyond, (5.5, 6), strict=True)
    )
    return next(filter(None, complaints), None)


def goodness_of_fit(stream, n):
    """Kolmogorov–Smirnov, and Anderson–Darling, whose tail is near e^−z/2: P(A² > 13) is about 10⁻⁶."""
    x = np.sort(stream(n).astype(np.float64))
    uniform = special.ndtr(x)
    steps = np.arange(n)
    distance = max(np.max(uniform - steps / n), np.max((steps + 1) / n - uniform))
    if stats.kstwobign.sf(distance * np.sqrt(n)) < ALARM:
        return f"Kolmogorov–Smirnov distance {distance:.2e}"
    logs = special.log_ndtr(x) + special.log_ndtr(-x[::-1])
    statistic = -n - np.mean((2 * steps + 1) * logs)
    return f"Anderson–Darling {statistic:.1f}" if statistic > 13 else None


def serial_independence(stream, n, lags=(*range(1, 20), 63, 64, 65, 128, 511, 512, 513, 1024, 1025)):
    """Numbers, and their squares, are uncorrelated with later ones; neighbours fill a plane evenly."""
    x = stream(n).astype(np.float64)
    square = (x * x - 1) / np.sqrt(2)
    for lag in lags:
        for name, y in (("numbers", x), ("squares", square)):
            correlation = (y[:-lag] @ y[lag:]) / (n - lag)
            if abs(correlation) * np.sqrt(n - lag) > Z:
                return f"{name} {lag} apart correlate: {correlation:.2e}"
    u = np.minimum((special.ndtr(x) * 32).astype(np.int32), 31)
    for lag in (1, 64, 512):
        counts = np.bincount(u[:-lag] * 32 + u[lag:], minlength=1024)
        chi = np.sum((counts - counts.mean()) ** 2) / counts.mean()
        if chi > stats.chi2.isf(ALARM, 1023):
            return f"pairs {lag} apart do not fill the plane: χ² = {chi:.0f}"
    return None


def no_lattice(stream, n):
    """Low-order bits in [1, 2) are fair coins, and values repeat as seldom as float32 allows."""
    x = stream(n).astype(np.float32)
    inside = np.abs(x[(np.abs(x) >= 1) & (np.abs(x) < 2)])
    for bit in range(12):
        ones = np.count_nonzero(inside.view(np.uint32) & np.uint32(1 << bit))
        if abs(ones - len(inside) / 2) > Z * np.sqrt(len(inside)) / 2:
            return f"bit {bit} of the mantissa is one in {ones / len(inside):.4f} of all"
    # in [1, 2) there are 2²³ floats of either sign; pairs of equal ones are Poisson
    values = x[(np.abs(x) >= 1) & (np.abs(x) < 2)]
    mass = np.diff(stats.norm.cdf(np.linspace(1, 2, 1025)))
    expected = 2 * n**2 / 2 * np.sum(mass**2 / 2**13)
    found = np.sum(special.comb(np.unique(values, return_counts=True)[1], 2))
    if abs(found - expected) > 10 * np.sqrt(expected):
        return f"{found:.0f} equal pairs where {expected:.0f} are expected"
    return None
