"""`tacit.rng.derive` for hot paths: the same generators, in a third of the time.

NumPy grows a generator's state from a key by its `SeedSequence` (O'Neill 2015, "Developing a seed_seq alternative"): a
pool of four words is mixed with every word of the key, and the state is hashed from the pool. The kernel does just
that, so that a step that draws a few hundred numbers does not spend more time on its seed than on its draws.
"""

from typing import Any

import numpy as np
from numba.extending import register_jitable
from numpy.random.bit_generator import ISeedSequence, SeedSequence
from numpy.typing import DTypeLike

from tacit.kernels.jit import Array, compiled
from tacit.rng import Purpose, stream_key

_u = np.uint32


@register_jitable
def _hashed(value, factor, multiplier):
    value, factor = _u(value ^ factor), _u(factor * multiplier)
    value = _u(value * factor)
    return _u(value ^ _u(value >> _u(16))), factor


@register_jitable
def _mixed(x, y):
    z = _u(_u(_u(0xCA01F9DD) * x) - _u(_u(0x4973F715) * y))
    return _u(z ^ _u(z >> _u(16)))


@compiled()
def _expand(key, out):
    """A generator's state, (n,) uint64, from a key, (k,) uint32, whose last words may be 0 and then do not count."""
    count = len(key)
    while count > 1 and key[count - 1] == 0:
        count -= 1
    pool, factor, multiplier = np.empty(4, dtype=np.uint32), _u(0x43B0D7E5), _u(0x931E8875)
    for i in range(4):
        pool[i], factor = _hashed(key[i] if i < count else _u(0), factor, multiplier)
    for source in range(4):
        for i in range(4):
            if i != source:
                word, factor = _hashed(pool[source], factor, multiplier)
                pool[i] = _mixed(pool[i], word)
    for source in range(4, count):
        for i in range(4):
            word, factor = _hashed(key[source], factor, multiplier)
            pool[i] = _mixed(pool[i], word)
    factor, multiplier = _u(0x8B51F9DD), _u(0x58F38DED)
    for i in range(len(out)):
        low, factor = _hashed(pool[(2 * i) % 4], factor, multiplier)
        high, factor = _hashed(pool[(2 * i + 1) % 4], factor, multiplier)
        out[i] = np.uint64(low) | (np.uint64(high) << np.uint64(32))


def expand(key: bytes, n: int) -> Array:
    """The first n words of a generator's state, (n,) uint64, from a key of whole 32-bit words."""
    out = np.empty(n, dtype=np.uint64)
    _expand(np.frombuffer(key, dtype="<u4"), out)
    return out


def expand_numpy(key, n):
    """The twin of `expand`."""
    return SeedSequence(int.from_bytes(key, "little")).generate_state(n, np.uint64)


class _Expanded(ISeedSequence):
    """What a bit generator asks for its state."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def generate_state(self, n_words: int, dtype: DTypeLike = np.uint64) -> Array:
        return expand(self._key, n_words)


def derive(seed: int, *purpose: Purpose) -> np.random.Generator:
    """A generator for one purpose, the one that `tacit.rng.derive` makes.

    >>> from tacit import rng
    >>> bool(derive(7, "party-1", 3).random() == rng.derive(7, "party-1", 3).random())
    True
    """
    state: Any = _Expanded(stream_key(seed, *purpose))  # NumPy's own types know its SeedSequence alone
    return np.random.Generator(np.random.SFC64(state))
