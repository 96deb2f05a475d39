"""Gaussian noise: the seeded kernel and the secure source, beside NumPy's generators.

The kernel adds noise to an array in place; NumPy's generators fill one, which is less work.
"""

from __future__ import annotations

import numpy as np

from benchmarks.common.result import Result
from benchmarks.common.stopwatch import best_of
from tacit.boundary.randomness import Secure
from tacit.kernels.noise import add_noise
from tacit.rng import derive, stream_key

SIZE = 1 << 22
REPETITIONS = 15


def measure() -> list[Result]:
    """Nanoseconds per Gaussian, float32, on one core; 1 ns is 1,000 million a second."""
    x = np.zeros(SIZE, dtype=np.float32)
    few = x[: SIZE // 8]
    key, secure = stream_key(7, "benchmarks", "noise"), Secure()
    peers = {
        "NumPy, SFC64": derive(7, "benchmarks", "noise"),
        "NumPy, Philox": np.random.Generator(np.random.Philox(7)),
    }
    seconds = best_of(
        {
            "seeded": lambda: add_noise(x, 1.0, key),
            "secure": lambda: secure.add_normal(few, 1.0),
            **{name: lambda g=g: g.standard_normal(out=x, dtype=np.float32) for name, g in peers.items()},
        },
        REPETITIONS,
    )
    each = {name: time * 1e9 / (few.size if name == "secure" else SIZE) for name, time in seconds.items()}
    return [
        Result(f"{name} noise, {1e3 / each[name]:,.0f} million a second", each[name], "ns", peer, each[peer], most=most)
        for name, most in (("seeded", 1e3 / 150), ("secure", None))
        for peer in peers
    ]
