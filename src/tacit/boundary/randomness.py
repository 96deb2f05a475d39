"""Sources of randomness: `Seeded` for simulations, `Secure` for deployments, `Keyed` for noise to be removed later.

All are streams of 64-bit words with one interface. Calls draw fresh ones. `Secure` protects, and `Keyed` protects from
those who do not hold its key. Anyone who knows a seed can subtract the noise derived from it, so a seeded source states
that it is `simulated`.
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tacit.boundary.wire import all_finite
from tacit.errors import PrivacyRefused, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext

Shape = int | Sequence[int]
Array = np.ndarray[Any, Any]


class Source(Protocol):
    """A private stream of random numbers."""

    simulated: bool

    def words(self, n: int) -> NDArray[np.uint64]:
        """(n,) uniform 64-bit words."""

    def uniform(self, shape: Shape) -> NDArray[np.float64]:
        """Uniform numbers in (0, 1): the 2⁵² odd multiples of 2⁻⁵³; never 0, never 1."""

    def integers(self, high: int | NDArray[np.int64], n: int) -> NDArray[np.int64]:
        """(n,) uniform integers in [0, high), unbiased; `high` may differ from entry to entry."""

    def normal(self, shape: Shape) -> NDArray[np.float32]:
        """Standard Gaussians."""

    def add_normal(self, x: Array, sigma: float) -> None:
        """x ← x + σ·N, in place; x: contiguous, float32 or float64."""

    def noised_rows(self, n: int, rows: NDArray[np.int64], values: Array, sigma: float) -> NDArray[np.float32]:
        """x + σ·N where x, (n, p), is `values` in `rows`, which increase, and 0 elsewhere: what add_normal makes of
        x in float64, rounded to float32. FloatingPointError where a value is not finite."""


class _Words:
    """What can be read from any stream of words."""

    def words(self, n: int) -> NDArray[np.uint64]:
        raise NotImplementedError

    def add_normal(self, x: Array, sigma: float) -> None:
        raise NotImplementedError

    def uniform(self, shape: Shape) -> NDArray[np.float64]:
        drawn = (self.words(_size(shape)) >> np.uint64(12)).astype(np.float64)
        return ((drawn + 0.5) * 2.0**-52).reshape(shape)

    def integers(self, high: int | NDArray[np.int64], n: int) -> NDArray[np.int64]:
        """A word's top bits, as many as `high` needs, drawn again until they are below it: at most twice on average."""
        bound = np.broadcast_to(np.asarray(high, dtype=np.int64), (n,))
        if np.any(bound < 1):
            raise UsageError(f"There is no integer in [0, {bound.min()}); give a bound of at least 1.")
        bits = np.frexp((bound - 1).astype(np.float64))[1]  # rounding may add a bit, and with it another try
        shift = (64 - np.maximum(bits, 1)).astype(np.uint64)
        out, left = np.empty(n, dtype=np.int64), np.arange(n)
        while left.size:
            drawn = (self.words(left.size) >> shift[left]).view(np.int64)
            below = (drawn >= 0) & (drawn < bound[left])
            out[left[below]] = drawn[below]
            left = left[~below]
        return out

    def noised_rows(self, n: int, rows: NDArray[np.int64], values: Array, sigma: float) -> NDArray[np.float32]:
        if not all_finite(values):
            raise FloatingPointError("the values of a noised block must be finite")
        x = np.zeros((n, values.shape[1]))
        x[rows] = values
        self.add_normal(x, sigma)
        return x.astype(np.float32)

    def normal(self, shape: Shape) -> NDArray[np.float32]:
        out = np.zeros(_size(shape), dtype=np.float32)
        self.add_normal(out, 1.0)
        return out.reshape(shape)


class Seeded(_Words):
    """A stream derived from a key, as `tacit.rng.stream_key` makes it: the same on every machine.

    Call number c reads ChaCha8's stream (key, c) from its beginning, so that no two calls overlap, and the numbers of
    one call do not depend on chunks or threads.

    >>> from tacit.rng import stream_key
    >>> a, b = (Seeded(stream_key(7, "party-1", 3, "noise")) for _ in range(2))
    >>> bool((a.normal(4) == b.normal(4)).all()), bool((a.normal(4) == a.normal(4)).any())
    (True, False)

    Guarantee
    ---------
    None. Anyone who holds the seed can recompute the noise: what rests on it is SIMULATED.
    """

    simulated = True

    def __init__(self, key: bytes) -> None:
        if not isinstance(key, bytes) or len(key) != 32:
            raise UsageError("A seeded source needs 32 bytes; make them with tacit.rng.stream_key(seed, purpose).")
        self._key, self._calls = key, 0

    def words(self, n: int) -> NDArray[np.uint64]:
        self._calls += 1
        words: NDArray[np.uint64] = _kernels().random_words(self._key, 2 * n, self._calls).view(np.uint64)
        return words

    def add_normal(self, x: Array, sigma: float) -> None:
        self._calls += 1
        _kernels().add_noise(x, sigma, self._key, self._calls)

    def noised_rows(self, n: int, rows: NDArray[np.int64], values: Array, sigma: float) -> NDArray[np.float32]:
        self._calls += 1
        noised: NDArray[np.float32] = _kernels().noised_rows(n, rows, values, sigma, self._key, self._calls)
        return noised


class Secure(_Words):
    """A stream that nobody can repeat: AES-256 in counter mode under a key from the operating system.

    The key is drawn when it is first needed, lives in the cipher alone, and is never stored, shown or derived. The
    object cannot be seeded, copied or pickled; a forked process draws a key of its own. The 64-bit counter never comes
    round: the source refuses to go on after 2⁴⁸ blocks.

    Its Gaussians are each half the sum of four, from four Box–Muller pairs that share no uniform number; the radius
    comes from 64 bits, so that a Gaussian can be 9.4 and a sum 18.8, the angle from 53. The sum is what defeats the
    attacks on floating-point noise that invert its sampler (Holohan and Braghin 2021, "Secure random sampling in
    differential privacy", §5.1): with 2n Gaussians an attacker searches 2^(53·(2n−1)) candidates, 2⁵³ for two, which
    is feasible, and 2¹⁵⁹ for four. A pair's sine and cosine go to two different sums, because
    cos φ + sin φ = √2 cos(φ − π/4) would be one Gaussian again. All of it is float64; a sum with float32 data is
    rounded once, at the end, which is post-processing.

    Guarantee
    ---------
    Indistinguishable from uniform words as long as AES-256 is a good block cipher. Gaussians are analysed in real
    arithmetic; the argument above is about known attacks, not a proof for floating-point numbers: sums that can be
    taken over integers should use the exact noise of `tacit.boundary.discrete`. A snapshot of the whole machine, run
    twice, draws the same noise twice: nothing in a process can notice that.
    """

    simulated = False

    _stream: CipherContext | None
    _CHUNK = 1 << 10  # pairs at a time, small enough for the cache and for the allocator to reuse
    _MOST_BLOCKS = 1 << 48

    def __init__(self, *seed: object) -> None:
        if seed:
            raise PrivacyRefused(
                "A secure source cannot be seeded; leave the seed out, or use Seeded, which marks the run as SIMULATED."
            )
        self._forget()
        _LIVE.add(self)

    def words(self, n: int) -> NDArray[np.uint64]:
        with self._lock:
            if self._stream is None:
                self._stream = _keystream()
            self._blocks += n // 2 + 1
            if self._blocks > self._MOST_BLOCKS:
                raise PrivacyRefused("A secure source has given 2⁴⁸ blocks and stops there; make a new one.")
            return _read(self._stream, n)

    def add_normal(self, x: Array, sigma: float) -> None:
        flat = x.reshape(-1, copy=False)
        for at in range(0, flat.size, 2 * self._CHUNK):
            part = flat[at : at + 2 * self._CHUNK]
            part[:] = part + sigma * self._gaussians(part.size)

    def _gaussians(self, n: int) -> NDArray[np.float64]:
        drawn = self.words(8 * ((n + 1) // 2)).reshape(8, -1)
        radius = np.sqrt(-2.0 * np.log((drawn[:4].astype(np.float64) + 1.0) * 2.0**-64))
        # φ in (−π/2, π/2) by t = tan(φ/2), which NumPy has fast; a bit of its own mirrors the cosine
        t = np.tan(((drawn[4:] >> np.uint64(11)) + 0.5) * (0.5 * math.pi * 2.0**-53) - 0.25 * math.pi)
        scale = radius / (1.0 + t * t)
        mirror = (drawn[4:] & np.uint64(1)) * 2.0 - 1.0
        cosines, sines = np.einsum("kn,kn->n", scale * mirror, 1.0 - t * t), np.einsum("kn,kn->n", scale, t + t)
        return (0.5 * np.concatenate([cosines, sines]))[:n]

    def _forget(self) -> None:
        self._lock, self._blocks, self._stream = threading.Lock(), 0, None

    def _refuse(self, *_: object) -> NoReturn:
        raise PrivacyRefused("A secure source cannot be copied or stored: two of the same would give the same noise.")

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = _refuse


class Keyed(_Words):
    """AES-256 in counter mode from 0 under a given key of 32 bytes: the same words on every machine.

    It expands the seed of a share of discrete noise, or of rounding, that someone who is given the seed later can
    remove. The words are one stream, however the calls cut it up. It has no floating-point Gaussians, which could not
    be removed to the last bit. One thread reads it; one key is for one purpose, once.

    >>> a, b = (Keyed(bytes(range(32))) for _ in range(2))
    >>> bool((a.words(4) == b.words(4)).all()), bool((a.words(4) == a.words(4)).any())
    (True, False)

    Guarantee
    ---------
    Indistinguishable from uniform words for anyone who does not hold the key, as long as AES-256 is a good block cipher
    and the key was 32 bytes from the operating system, used for nothing else. Anyone who holds it knows every draw:
    noise from a revealed key protects no one, so only noise beyond what the guarantee needs may come from it.
    """

    simulated = False

    def __init__(self, key: bytes) -> None:
        if not isinstance(key, bytes) or len(key) != 32:
            raise UsageError("A keyed source needs a key of exactly 32 bytes; draw one with os.urandom(32).")
        self._stream = _counter_mode(key)

    def words(self, n: int) -> NDArray[np.uint64]:
        return _read(self._stream, n)

    def add_normal(self, x: Array, sigma: float) -> None:
        raise PrivacyRefused(
            "A keyed source has no Gaussians, because floating-point noise cannot be removed exactly; "
            "use Skellam noise on a grid."
        )

    def _refuse(self, *_: object) -> NoReturn:
        raise PrivacyRefused("A keyed source cannot be copied or stored; make another from the same key.")

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = _refuse


class SecureStream:
    """The part of `numpy.random.Generator` that queries and methods use, over a `Secure` source: for deployments.

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
        """Integers in [0, high), unbiased."""
        return self._source.integers(high, _size(size)).astype(dtype).reshape(size)

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


@cache
def _kernels() -> Any:
    """The seeded kernels; a deployment needs neither them nor their compiler."""
    from tacit.kernels import noise

    return noise


def _keystream() -> CipherContext:
    """AES-256 in counter mode from 0, under a fresh key that only the cipher holds."""
    try:
        drawn = os.urandom(32)
    except (OSError, NotImplementedError) as error:
        raise PrivacyRefused(f"The operating system gave no randomness ({error}); nothing can be released.") from None
    if len(drawn) != 32 or len(set(drawn)) < 8:  # chance: 2⁻¹²²
        raise PrivacyRefused("The operating system's randomness is not random; nothing can be released.")
    key = bytearray(drawn)
    stream = _counter_mode(key)
    key[:] = bytes(32)
    return stream


def _counter_mode(key: bytes | bytearray) -> CipherContext:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()


def _read(stream: CipherContext, n: int) -> NDArray[np.uint64]:
    """The next n words of a key stream, the lowest byte first."""
    out = np.empty(n + 2, dtype="<u8")  # the cipher wants room for a block more
    for at in range(0, n, _STEP):
        size = min(_STEP, n - at)
        stream.update_into(_ZEROS[: 8 * size], out[at : at + size + 2].view(np.uint8).data)
    return out[:n].astype(np.uint64, copy=False)


def _size(shape: Shape) -> int:
    return int(shape) if isinstance(shape, int | np.integer) else math.prod(shape)


_STEP = 1 << 16
_ZEROS = memoryview(bytes(8 * _STEP))
_LIVE: weakref.WeakSet[Secure] = weakref.WeakSet()


def _after_fork() -> None:
    for source in _LIVE:
        source._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
