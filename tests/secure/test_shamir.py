"""Shares: any t of them give the secret back, t − 1 say nothing, and what is not a share is refused."""

from itertools import combinations

import pytest
from secure_rounds import FALSE_ALARM, uniform_p

from tacit.errors import BadMessage, PeerFailed, UsageError
from tacit.rng import derive, stream_key
from tacit.secure.shamir import PRIME, SHARE, fits, joined, split

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


def uniform_shares_p(secret, random, repetitions=4000):
    """Chi-square p-value of low and high bytes of the first two of three shares, of which three join."""
    shares = [split(secret, range(1, 4), 3, random)[:2] for _ in range(repetitions)]
    return uniform_p(*(bytes([share[0], share[31]]) for pair in shares for share in pair))


@pytest.mark.parametrize("secret", SECRETS[:2])
def test_fewer_than_t_shares_are_uniform(secret):
    """False alarms: none, the seed is fixed; with another seed 1e-9. Planted: coefficients of too few bits."""
    assert uniform_shares_p(secret, seeded("uniform")) > FALSE_ALARM
    source = seeded("few")
    few = lambda size: bytes(b if i % SHARE < 16 else 0 for i, b in enumerate(source(size)))  # noqa: E731
    assert uniform_shares_p(bytes(32), few, 400) < FALSE_ALARM


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
        # f(1) = v, f(2) = 0 give f(0) = 2v, here 2^256
        ({1: (2**255).to_bytes(SHARE, "little"), 2: bytes(SHARE)}, BadMessage, "do not fit"),
    ],
)
def test_what_cannot_be_joined_is_refused(shares, error, words):
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
