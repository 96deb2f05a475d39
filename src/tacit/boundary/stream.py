"""Samples, trimming, draws and orders from randomness that nobody can repeat: what a deployment uses for a stream.

Queries and methods draw from a `numpy.random.Generator` that is derived from the seed, which is SIMULATED. In a
deployment they get this instead: the few ways to draw that they use, over a `Secure` source.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from tacit.boundary.randomness import Secure, Shape
from tacit.boundary.wire import Array


class SecureStream:
    """The part of a generator's interface that Tacit uses, drawn from the operating system's randomness.

    >>> stream = SecureStream()
    >>> bool((stream.random(5) < 1).all()), sorted(stream.permutation(3).tolist())
    (True, [0, 1, 2])
    """

    def __init__(self) -> None:
        self._source = Secure()
        self.bit_generator = self

    def random(self, size: Shape, dtype: DTypeLike = np.float64) -> Array:
        """Uniform numbers in (0, 1); in float32 they may round to 1."""
        return self._source.uniform(size).astype(dtype)

    def random_raw(self, size: int) -> Array:
        """64-bit words."""
        return self._source.words(size)

    def integers(self, high: int, size: Shape, dtype: DTypeLike = np.int64) -> Array:
        """Whole numbers in [0, high), unbiased."""
        count = int(size) if isinstance(size, int | np.integer) else math.prod(size)
        return self._source.integers(high, count).astype(dtype).reshape(size)

    def permutation(self, n: int) -> Array:
        """0 … n − 1 in random order: by words, two of which are equal once in 2⁶⁴/n² times."""
        return np.argsort(self._source.words(n), kind="stable")

    def standard_normal(self, size: Shape, dtype: DTypeLike = np.float64) -> Array:
        """Gaussians."""
        return self._source.normal(size).astype(dtype)

    def among(self, total: int, rate: float) -> Array:
        """A Poisson sample of 0 … total − 1: each is in it with probability `rate`, independently; increasing."""
        drawn: Any = self._source.uniform(total) < rate
        return np.flatnonzero(drawn)
