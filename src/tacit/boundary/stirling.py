"""ln P of a Poisson variable: fast, in float64 without cancellation, and to fifty digits where it must be."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from functools import cache

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

#: Stirling's series of ln k! − ((k + ½) ln k − k + ½ ln 2π): it is enveloping, its error below the first term left out.
_STIRLING = [Fraction(*c) for c in ((1, 12), (-1, 360), (1, 1260), (-1, 1680), (1, 1188), (-691, 360360), (1, 156))]

_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798")


def log_poisson(k: Integers, mean: float) -> NDArray[np.float64]:
    """ln P(k) without cancellation: −½ ln 2πk − rest(k) − D, D = k ln(k/μ) + μ − k (Loader 2000, "Fast and accurate…").

    With v = (k − μ)/(k + μ), D = (k − μ)·v + 2k·(v³/3 + v⁵/5 + …), which keeps its digits where k is near μ.
    """
    safe = np.maximum(k, 1).astype(np.float64)
    v = (safe - mean) / (safe + mean)
    near = np.abs(v) < 0.1
    square = np.where(near, v * v, 0.0)
    series = np.zeros_like(square)
    for j in range(8, 0, -1):
        series = square * (1 / (2 * j + 1) + series)
    distance = np.where(near, (safe - mean) * v + 2.0 * safe * v * series, safe * np.log(safe / mean) + mean - safe)
    inverse = 1.0 / (safe * safe)
    rest = np.zeros_like(safe)
    for c in reversed(_STIRLING[:5]):
        rest = rest * inverse + float(c)
    rest = np.where(safe < 16, _small_rests()[np.minimum(k, 15)], rest / safe)
    return np.where(k == 0, -mean, -0.5 * np.log(2.0 * math.pi * safe) - rest - distance)


@cache
def _small_rests() -> NDArray[np.float64]:
    """What Stirling's formula leaves of ln k!, for k below 16."""
    stirling = [(k + 0.5) * math.log(k) - k + 0.5 * math.log(2 * math.pi) for k in range(1, 16)]
    return np.array([0.0] + [math.lgamma(k + 1) - s for k, s in enumerate(stirling, start=1)])


def log_factorial(k: int) -> Decimal:
    """ln k!, in the precision of the context, to 10⁻⁵⁰ or better."""
    if k <= 2000:
        return Decimal(math.factorial(k)).ln()
    rest = sum((Decimal(c.numerator) / c.denominator / Decimal(k) ** (2 * j + 1) for j, c in enumerate(_STIRLING)))
    return (k + Decimal("0.5")) * Decimal(k).ln() - k + (2 * _PI).ln() / 2 + rest
