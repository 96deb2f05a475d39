"""Seeded random words and Gaussian noise: ChaCha with 8 rounds, in counter mode, and Box–Muller.

Number i of a stream is a function of (key, stream, i) alone, however an array is cut up and whichever thread computes
it. ChaCha (Bernstein 2008) separates the streams of neighbouring keys; 8 of its 20 rounds are enough for a simulation
(best attack known: 7), and nothing here has to be secret. NumPy's generators draw such noise too, at six times the cost
per number. Blocks are computed `LANES` at a time, so that compilers can hold each of the 16 state words in a vector; a
*tile* is what they yield, word by word:

    tile t = [word w of block t·LANES + l  for w in 0…15  for l in 0…LANES−1]

A word a of a tile's first half and the word b at the same place in its second half make two Gaussians there (Box and
Muller 1958):

    r = √(−2 ln u),  u = (a + b_low/2⁸ + 2⁻⁹)/2³²        40 random bits near 0: the largest |x| is √(2·41·ln 2) = 7.5
    (x, y) = r·(±cos φ, sin φ) or r·(sin φ, ±cos φ)      |φ| < π/4; the octants come from b's top two bits

with Cephes' polynomials for logarithm, sine and cosine. No operation is contracted or reordered (`fastmath` is off), so
kernel and twin agree in every bit, on every machine that rounds as IEEE 754 says.
"""

import numpy as np
from numba.extending import register_jitable

from tacit.kernels.jit import Array, compiled

ROUNDS = 8
LANES = 64
TILE = 16 * LANES

_f, _i, _u = np.float32, np.int32, np.uint32
_EXPAND = tuple(_u(word) for word in (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574))  # "expand 32-byte k"
_LN_HIGH = tuple(_f(c) for c in (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1))
_LN_LOW = tuple(_f(c) for c in (1.4249322787e-1, -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1))
_LN = (*_LN_HIGH, *_LN_LOW)
_SIN = tuple(_f(c) for c in (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1))
_COS = tuple(_f(c) for c in (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2))
_LN2, _ROOT_HALF = _f(np.log(2)), _i(0x3F3504F3)  # the bits of √½
_QUARTER = _f(np.pi / 2 * 2.0**-22)


# -- kernels; numba widens 32-bit integers to 64 bits, hence the casts ---------------------------------------------


@register_jitable
def _quarter_round(a, b, c, d):
    a = _u(a + b)
    d = _u(d ^ a)
    d = _u(_u(d << _u(16)) | _u(d >> _u(16)))
    c = _u(c + d)
    b = _u(b ^ c)
    b = _u(_u(b << _u(12)) | _u(b >> _u(20)))
    a = _u(a + b)
    d = _u(d ^ a)
    d = _u(_u(d << _u(8)) | _u(d >> _u(24)))
    c = _u(c + d)
    b = _u(b ^ c)
    b = _u(_u(b << _u(7)) | _u(b >> _u(25)))
    return a, b, c, d


@register_jitable
def _double_round(x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, xa, xb, xc, xd, xe, xf):
    x0, x4, x8, xc = _quarter_round(x0, x4, x8, xc)
    x1, x5, x9, xd = _quarter_round(x1, x5, x9, xd)
    x2, x6, xa, xe = _quarter_round(x2, x6, xa, xe)
    x3, x7, xb, xf = _quarter_round(x3, x7, xb, xf)
    x0, x5, xa, xf = _quarter_round(x0, x5, xa, xf)
    x1, x6, xb, xc = _quarter_round(x1, x6, xb, xc)
    x2, x7, x8, xd = _quarter_round(x2, x7, x8, xd)
    x3, x4, x9, xe = _quarter_round(x3, x4, x9, xe)
    return x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, xa, xb, xc, xd, xe, xf


@register_jitable
def _fill_tile(key, stream, tile, out):
    """One tile of words, (16, LANES) uint32. Rounds are written out: only an innermost loop is made into vectors."""
    first = np.uint64(tile) * np.uint64(LANES)
    low, high = _u(first & np.uint64(0xFFFFFFFF)), _u(first >> np.uint64(32))
    s0, s1 = _u(stream & np.uint64(0xFFFFFFFF)), _u(stream >> np.uint64(32))
    e0, e1, e2, e3 = _EXPAND
    k0, k1, k2, k3, k4, k5, k6, k7 = key[0], key[1], key[2], key[3], key[4], key[5], key[6], key[7]
    for lane in range(LANES):
        c = _u(low + _u(lane))
        x = _double_round(e0, e1, e2, e3, k0, k1, k2, k3, k4, k5, k6, k7, c, high, s0, s1)
        x = _double_round(*x)
        x = _double_round(*x)
        x = _double_round(*x)
        out[0, lane] = x[0] + e0
        out[1, lane] = x[1] + e1
        out[2, lane] = x[2] + e2
        out[3, lane] = x[3] + e3
        out[4, lane] = x[4] + k0
        out[5, lane] = x[5] + k1
        out[6, lane] = x[6] + k2
        out[7, lane] = x[7] + k3
        out[8, lane] = x[8] + k4
        out[9, lane] = x[9] + k5
        out[10, lane] = x[10] + k6
        out[11, lane] = x[11] + k7
        out[12, lane] = x[12] + c
        out[13, lane] = x[13] + high
        out[14, lane] = x[14] + s0
        out[15, lane] = x[15] + s1


@register_jitable
def _gaussian_pair(a, b):
    u = (_f(a) + _f(_u(b & _u(255))) * _f(2.0**-8) + _f(2.0**-9)) * _f(2.0**-32)
    bits = _f(u).view(np.int32)
    exponent = _i(_i(bits - _ROOT_HALF) >> _i(23))
    z = _i(bits - _i(exponent << _i(23))).view(np.float32) - _f(1)
    p = _f(0)
    for c in _LN:
        p = p * z + c
    logarithm = _f(exponent) * _LN2 + (z + (z * z * z * p - _f(0.5) * (z * z)))
    r = np.sqrt(_f(-2) * logarithm)
    t = (_f(_u(_u(b >> _u(8)) & _u(0x3FFFFF))) - _f(2097151.5)) * _QUARTER
    q = t * t
    sine = r * (t + t * q * ((_SIN[0] * q + _SIN[1]) * q + _SIN[2]))
    cosine = r * (_f(1) - _f(0.5) * q + q * q * ((_COS[0] * q + _COS[1]) * q + _COS[2]))
    cosine = -cosine if b >> _u(31) else cosine
    if _u(b >> _u(30)) & _u(1):
        return sine, cosine
    return cosine, sine


@compiled()
def _random_words(out, key, stream, start):
    tile = np.empty((16, LANES), dtype=np.uint32)
    flat = tile.reshape(TILE)
    at = 0
    while at < len(out):
        _fill_tile(key, stream, (start + at) // TILE, tile)
        skip = (start + at) % TILE
        count = min(TILE - skip, len(out) - at)
        for j in range(count):
            out[at + j] = flat[skip + j]
        at += count


@compiled()
def _add_noise(x, sigma, key, stream, start):
    tile, noise = np.empty((16, LANES), dtype=np.uint32), np.empty((16, LANES), dtype=np.float32)
    flat = noise.reshape(TILE)
    at = 0
    while at < len(x):
        _fill_tile(key, stream, (start + at) // TILE, tile)
        for w in range(8):
            for lane in range(LANES):
                noise[w, lane], noise[w + 8, lane] = _gaussian_pair(tile[w, lane], tile[w + 8, lane])
        skip = (start + at) % TILE
        count = min(TILE - skip, len(x) - at)
        for j in range(count):
            x[at + j] += sigma * flat[skip + j]
        at += count


@compiled()
def _noised_rows(out, rows, values, sigma):
    k = 0
    for i in range(len(out)):
        noise = out[i]
        if k < len(rows) and rows[k] == i:
            for f in range(len(noise)):
                noise[f] = values[k, f] + sigma * noise[f]
            k += 1
        else:
            for f in range(len(noise)):
                noise[f] = 0.0 + sigma * noise[f]
    return k == len(rows)


def random_words(key: bytes, n: int, stream: int = 0, start: int = 0) -> Array:
    """Words start … start + n − 1 of a stream, (n,) uint32; key: 32 bytes."""
    out = np.empty(n, dtype=np.uint32)
    _random_words(out, np.frombuffer(key, dtype="<u4", count=8), np.uint64(stream), start)
    return out


def standard_normals(key: bytes, n: int, stream: int = 0, start: int = 0) -> Array:
    """Gaussians start … start + n − 1 of a stream, (n,) float32."""
    return add_noise(np.zeros(n, dtype=np.float32), 1.0, key, stream, start)


def add_noise(x: Array, sigma: float, key: bytes, stream: int = 0, start: int = 0) -> Array:
    """x ← x + σ·N, in place and returned: entry i gets Gaussian start + i. x: contiguous, float32 or float64.

    σ is rounded up to x's type: too much noise is no leak.
    """
    rounded = x.dtype.type(sigma)
    if float(rounded) < sigma:
        rounded = np.nextafter(rounded, x.dtype.type(np.inf))
    words = np.frombuffer(key, dtype="<u4", count=8)
    _add_noise(x.reshape(-1, copy=False), rounded, words, np.uint64(stream), start)
    return x


def noised_rows(n: int, rows: Array, values: Array, sigma: float, key: bytes, stream: int = 0) -> Array:
    """x + σ·N, (n, p) float32, where x is `values` in `rows` and 0 elsewhere: added in float64, rounded once.

    rows: (k,) int64, increasing, in [0, n); values: (k, p) float64. The noise is that of `add_noise` on x.
    """
    if not np.isfinite(values).all():
        raise FloatingPointError("the values of a noised block must be finite")
    width = values.shape[1]
    out = standard_normals(key, n * width, stream).reshape(n, width)
    if not _noised_rows(out, rows, values, float(sigma)):
        raise ValueError(f"the rows of a noised block must increase, from 0 at least to {n - 1} at most")
    return out


def random_words_numpy(key: bytes, n: int, stream: int = 0, start: int = 0, rounds: int = ROUNDS) -> Array:
    """The twin of `random_words`; with 20 rounds it is ChaCha20."""
    tiles, skip = np.arange(start // TILE, -(-(start + n) // TILE), dtype=np.uint64), start % TILE
    blocks: Array = tiles[:, None] * np.uint64(LANES) + np.arange(LANES, dtype=np.uint64)
    head = np.concatenate([np.array(_EXPAND), np.frombuffer(key, dtype="<u4", count=8)])
    nonce = np.array([stream & 0xFFFFFFFF, stream >> 32])
    x = np.empty((16, *blocks.shape), dtype=np.uint32)
    x[:12], x[14:] = head[:, None, None], nonce[:, None, None]
    x[12], x[13] = blocks & np.uint64(0xFFFFFFFF), blocks >> np.uint64(32)
    begun = x.copy()
    a, b, c, d = x.reshape(4, 4, *blocks.shape)  # the rows of the state
    for number in range(rounds):
        turn = number % 2  # columns, then diagonals
        b, c, d = (np.roll(row, -turn * k, axis=0) for k, row in enumerate((b, c, d), start=1))
        for upper, lower in ((16, 12), (8, 7)):
            a = a + b
            d = _rotated(d ^ a, upper)
            c = c + d
            b = _rotated(b ^ c, lower)
        b, c, d = (np.roll(row, turn * k, axis=0) for k, row in enumerate((b, c, d), start=1))
    words = np.concatenate([a, b, c, d]) + begun
    return words.transpose(1, 0, 2).reshape(-1)[skip : skip + n]


def _rotated(x: Array, bits: int) -> Array:
    return (x << _u(bits)) | (x >> _u(32 - bits))


def standard_normals_numpy(key: bytes, n: int, stream: int = 0, start: int = 0) -> Array:
    """The twin of `standard_normals`."""
    first, last = start // TILE, -(-(start + n) // TILE)
    words = random_words_numpy(key, (last - first) * TILE, stream, first * TILE).reshape(-1, 2, TILE // 2)
    a, b = words[:, 0], words[:, 1]
    u = (a.astype(_f) + (b & _u(255)).astype(_f) * _f(2.0**-8) + _f(2.0**-9)) * _f(2.0**-32)
    mantissa, exponent = np.frexp(u)  # in [½, 1); moved to [√½, √2)
    below = mantissa < _ROOT_HALF.view(np.float32)
    mantissa, exponent = np.where(below, 2 * mantissa, mantissa), exponent - below
    z = mantissa - _f(1)
    p = np.zeros_like(z)
    for coefficient in _LN:
        p = p * z + coefficient
    logarithm = exponent.astype(_f) * _LN2 + (z + (z * z * z * p - _f(0.5) * (z * z)))
    r = np.sqrt(_f(-2) * logarithm)
    t = ((b >> _u(8) & _u(0x3FFFFF)).astype(_f) - _f(2097151.5)) * _QUARTER
    q = t * t
    sine = r * (t + t * q * ((_SIN[0] * q + _SIN[1]) * q + _SIN[2]))
    cosine = r * (_f(1) - _f(0.5) * q + q * q * ((_COS[0] * q + _COS[1]) * q + _COS[2]))
    cosine = np.where(b >> _u(31), -cosine, cosine)
    swap = (b >> _u(30) & _u(1)).astype(bool)
    noise = np.stack([np.where(swap, sine, cosine), np.where(swap, cosine, sine)], axis=1).reshape(-1)
    return noise[start % TILE :][:n]


def add_noise_numpy(x: Array, sigma: float, key: bytes, stream: int = 0, start: int = 0) -> Array:
    """The twin of `add_noise`; leaves x as it is."""
    rounded = x.dtype.type(sigma)
    rounded = rounded if rounded >= sigma else np.nextafter(rounded, x.dtype.type(np.inf))
    return x + rounded * standard_normals_numpy(key, x.size, stream, start)


def noised_rows_numpy(n: int, rows: Array, values: Array, sigma: float, key: bytes, stream: int = 0) -> Array:
    """The twin of `noised_rows`."""
    width = values.shape[1]
    x = sigma * standard_normals_numpy(key, n * width, stream).astype(np.float64).reshape(n, width)
    x[rows] += values
    return x.astype(np.float32)
