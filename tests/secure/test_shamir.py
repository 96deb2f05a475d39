"""Shares: any t of them give the secret back, t − 1 say nothing, and what is not a share is refused."""

from itertools import combinations
from time import process_time

import numpy as np
import pytest
from scipy.stats import chi2

from tacit.errors import BadMessage, PeerFailed, UsageError
from tacit.rng import derive, stream_key
from tacit.secure.shamir import PRIME, SHARE, fits, joined, split

FALSE_ALARM = 1e-9
SECRETS = [bytes(32), b"\xff" * 32, bytes(range(32)), stream_key(7, "secret")]


def seeded(*purpose):
    return derive(7, "shamir", *purpose).bytes


def test_the_modulus_is_a_prime():
    """Miller and Rabin's test with 40 bases: a composite would pass with probability below 4⁻⁴⁰."""
    odd, twos = PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in range(2, 42):
        x = pow(base, odd, PRIME)
        assert x in (1, PRIME - 1) or any(pow(x, 2**i, PRIME) == PRIME - 1 for i in range(twos))


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(("n", "t"), [(1, 1), (3, 2), (5, 5), (6, 3)])
def test_any_t_shares_give_the_secret_back(secret, n, t):
    points = [3 * i + 1 for i in range(n)]
    shares = dict(zip(points, split(secret, points, t, seeded(n, t)), strict=True))
    assert all(len(share) == SHARE for share in shares.values())
    for chosen in combinations(reversed(points), t):
        assert joined({x: shares[x] for x in chosen}, t) == secret
    for x in points:
        assert fits(shares, t, x, shares[x])
        assert not fits(shares, t, x, bytes([shares[x][0] ^ 1]) + shares[x][1:])


def test_the_polynomial_is_the_one_that_the_coefficients_say():
    """Two coefficients, by hand: f(x) = 5 + 3x + 2x², Horner's way, highest power first."""
    drawn = (2).to_bytes(SHARE, "little") + (3).to_bytes(SHARE, "little")
    shares = split((5).to_bytes(32, "little"), [1, 2, 10], 3, lambda size: (drawn + bytes(size))[:size])
    assert [int.from_bytes(share, "little") for share in shares] == [10, 19, 235]


def test_a_coefficient_that_is_not_below_the_prime_is_drawn_again():
    drawn = PRIME.to_bytes(SHARE, "little") + (9).to_bytes(SHARE, "little")
    (share,) = split(bytes(32), [1, 2], 2, lambda size: drawn[:size])[:1]
    assert int.from_bytes(share, "little") == 9


def small_parts(secret, t, random, repetitions=4000):
    """Chi-square p-value of the first t − 1 shares' low and high bytes against uniform ones."""
    counts = np.zeros(256)
    for _ in range(repetitions):
        for share in split(secret, range(1, t + 1), t, random)[: t - 1]:
            counts[share[0]] += 1
            counts[share[31]] += 1
    expected = counts.sum() / 256
    return chi2.sf(((counts - expected) ** 2 / expected).sum(), 255)


@pytest.mark.parametrize("secret", SECRETS[:2])
def test_fewer_than_t_shares_are_uniform(secret):
    """False alarms: none, the seed is fixed; with another seed 1e-9."""
    assert small_parts(secret, 3, seeded("uniform")) > FALSE_ALARM


def test_that_test_notices_coefficients_of_too_few_bits():
    source = seeded("few")
    few = lambda size: bytes(b if i % SHARE < 16 else 0 for i, b in enumerate(source(size)))  # noqa: E731
    assert small_parts(bytes(32), 3, few, 400) < FALSE_ALARM


def test_t_minus_one_shares_fit_every_secret():
    """The proof, played out: with a made-up last share, t − 1 true ones join to something else, never to an error
    that would tell; and each candidate secret belongs to exactly one last share."""
    shares = split(SECRETS[2], [1, 2, 3], 3, seeded("every"))
    told = {joined({1: shares[0], 2: shares[1], 3: i.to_bytes(SHARE, "little")}, 3) for i in range(200)}
    assert len(told) == 200
    assert SECRETS[2] not in told


@pytest.mark.parametrize(
    ("shares", "error", "words"),
    [
        ({1: bytes(SHARE)}, PeerFailed, "1 shares are too few"),
        ({0: bytes(SHARE), 1: bytes(SHARE)}, UsageError, "from 1"),
        ({1: bytes(SHARE - 1), 2: bytes(SHARE)}, BadMessage, "point 1"),
        ({1: bytes(SHARE), 2: PRIME.to_bytes(SHARE, "little")}, BadMessage, "point 2"),
        ({1: (PRIME - 1).to_bytes(SHARE, "little"), 2: bytes(SHARE)}, BadMessage, "do not fit"),
    ],
)
def test_what_cannot_be_joined_is_refused(shares, error, words):
    if words == "do not fit":  # f(1) = v, f(2) = 0 give f(0) = 2v, which must be at least 2^256
        shares = {1: (2**255).to_bytes(SHARE, "little"), 2: bytes(SHARE)}
    with pytest.raises(error, match=words):
        joined(shares, 2)


@pytest.mark.parametrize(
    ("secret", "points", "t", "words"),
    [
        (bytes(31), [1, 2], 2, "32 bytes"),
        (bytes(32), [1, 1], 2, "repeated"),
        (bytes(32), [0, 1], 2, "from 1"),
        (bytes(32), [1, 2], 3, "threshold of 3"),
        (bytes(32), [1, 2], 0, "threshold of 0"),
    ],
)
def test_what_cannot_be_split_is_refused(secret, points, t, words):
    with pytest.raises(UsageError, match=words):
        split(secret, points, t)


def test_26_of_50_take_little_time():
    """About 0.3 ms here; ten times as much would be a slip, such as an inversion for every share."""
    best = 1.0
    for i in range(5):
        began = process_time()
        shares = split(SECRETS[3], range(1, 51), 26)
        assert joined({x: shares[x - 1] for x in range(1 + i, 27 + i)}, 26) == SECRETS[3]
        best = min(best, process_time() - began)
    assert best < 3e-3
