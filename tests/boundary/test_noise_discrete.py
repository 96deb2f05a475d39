"""Discrete samplers draw from exactly the distributions they name, at every size.

χ² tests: n = 100,000 draws, false alarm 10⁻⁶ each, seeds fixed.
"""

import math
import os
from dataclasses import replace
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from privacy_loss import ALARM, fits, seeded
from scipy import special, stats

from tacit.boundary import discrete
from tacit.boundary.discrete import discrete_gaussian, discrete_laplace, poisson, skellam
from tacit.boundary.randomness import Secure, Seeded
from tacit.errors import UsageError
from tacit.rng import derive, stream_key

N = 100_000


def laplace_law(scale):
    support = np.arange(-math.ceil(60 * scale) - 2, math.ceil(60 * scale) + 3)
    return support, np.tanh(0.5 / scale) * np.exp(-np.abs(support) / scale)


def gaussian_law(variance):
    reach = math.ceil(12 * math.sqrt(variance)) + 2
    support = np.arange(-reach, reach + 1)
    weights = np.exp(-(support**2) / (2 * variance))
    return support, weights / weights.sum()


def poisson_law(mean):
    reach = math.ceil(12 * math.sqrt(mean)) + 20
    support = np.arange(max(0, math.floor(mean) - reach), math.floor(mean) + reach)
    return support, stats.poisson.pmf(support, mean)


def skellam_law(variance):
    reach = math.ceil(12 * math.sqrt(variance)) + 20
    support = np.arange(-reach, reach + 1)
    return support, special.ive(np.abs(support), variance)


LAWS = {
    discrete_laplace: (laplace_law, (0.05, 0.3, 1.0, math.pi, 30.0)),
    discrete_gaussian: (gaussian_law, (0.04, 0.3, 1.0, 2.5, 1000.0)),
    poisson: (poisson_law, (1e-6, 0.2, 1.0, 3.7, 15.9, 80.0, 2500.0, 1e5)),
    skellam: (skellam_law, (1e-6, 0.1, 1.0, 2.0, 37.5, 900.0, 1e5)),
}
CASES = [(sampler, law, size) for sampler, (law, sizes) in LAWS.items() for size in sizes]


@pytest.mark.parametrize(("sampler", "law", "size"), CASES)
def test_draws_follow_their_law(sampler, law, size):
    drawn = sampler(seeded(sampler.__name__, str(size)), size, N)
    assert drawn.dtype == np.int64
    assert drawn.shape == (N,)
    assert fits(drawn, *law(size)) > ALARM


@pytest.mark.parametrize("sampler", LAWS)
def test_draws_from_the_secure_source_follow_their_law(sampler, monkeypatch):
    monkeypatch.setattr(os, "urandom", lambda n: stream_key(7, "fixed key")[:n])
    law, _ = LAWS[sampler]
    assert fits(sampler(Secure(), 2.5, N), *law(2.5)) > ALARM


@pytest.mark.parametrize("sampler", [discrete_laplace, discrete_gaussian, poisson, skellam])
@pytest.mark.parametrize("size", [1e5, 1e8, 1e12])
def test_large_noise_has_the_shape_of_its_continuous_limit(sampler, size):
    """Kolmogorov–Smirnov against the limit; a grid step is below 1/200 of the spread where n = 20,000 sees 1/70."""
    drawn = sampler(seeded("large", sampler.__name__, str(size)), size, 20_000)
    shift, spread = (size, math.sqrt(size)) if sampler is poisson else (0, math.sqrt(size))
    limit = stats.laplace(scale=size) if sampler is discrete_laplace else stats.norm(shift, spread)
    assert stats.kstest(drawn.astype(np.float64), limit.cdf).pvalue > ALARM
    assert abs(np.mean(drawn % 2) - 0.5) < 5 / np.sqrt(20_000)


def minus_zero(source, scale, n):
    """A sign on a geometric variable, and the second zero not thrown away."""
    size = derive(7, "geometric").geometric(1 - math.exp(-1 / scale), n) - 1
    return np.where(source.words(n) >> np.uint64(63) == 1, size, -size)


def rounded_laplace(source, scale, n):
    return np.rint(scale * np.log(source.uniform(n) / source.uniform(n))).astype(np.int64)


def rounded_gaussian(source, variance, n):
    return np.rint(math.sqrt(variance) * source.normal(n)).astype(np.int64)


@pytest.mark.parametrize(
    ("planted", "law", "size", "n"),
    [
        (lambda s, v, n: skellam(s, 2 * v, n), skellam_law, 2.0, N),  # the mean for the variance
        (lambda s, v, n: poisson(s, v, n) - round(v), skellam_law, 2.0, N),  # one Poisson, centred
        (rounded_gaussian, gaussian_law, 1.0, N),
        (lambda s, v, n: discrete_gaussian(s, 1.02 * v, n), gaussian_law, 2.5, 10 * N),  # 2 % too much
        (rounded_laplace, laplace_law, 1.0, N),
        (minus_zero, laplace_law, 3.0, N),
        (lambda s, v, n: np.minimum(poisson(s, v, n), 7), poisson_law, 2.5, N),  # a tail of 0.4 % cut off
        (lambda s, v, n: round(v) + rounded_gaussian(s, v, n), poisson_law, 80.0, N),  # the Gaussian limit
    ],
)
def test_other_laws_are_found_out(planted, law, size, n):
    assert fits(planted(seeded("planted"), size, n), *law(size)) < ALARM


LARGE = [(sampler, 30, size) for sampler in (discrete_gaussian, poisson, discrete_laplace) for size in (2500.0, 1e12)]


@pytest.mark.parametrize(("sampler", "n", "size"), [*((c[0], 300, c[2]) for c in CASES if 1e-3 < c[2] < 100), *LARGE])
def test_doubtful_coins_decide_as_float64_does(sampler, n, size, monkeypatch):
    """With all in doubt every coin is computed to 50 digits, from the same words: the draws must not change.

    That shows both that the long computation is right, and that the short one is as good as it claims.
    """
    quick = sampler(seeded("coins", str(size)), size, n)
    monkeypatch.setattr(discrete, "DOUBT", 2.0)
    np.testing.assert_array_equal(sampler(seeded("coins", str(size)), size, n), quick)


def float_errors(sampler, size, monkeypatch):
    """|p in float64 − p to 50 digits|, over all coins of a few draws."""
    errors, coins = [0.0], discrete._coins

    def watched(source, p, exact, *leading):
        errors.extend(abs(float(Decimal(float(p[i])) - exact(i))) for i in range(0, len(p), max(1, len(p) // 20)))
        return coins(source, p, exact, *leading)

    monkeypatch.setattr(discrete, "_coins", watched)
    sampler(seeded("errors", str(size)), size, 1000)
    return max(errors)


@pytest.mark.parametrize("sampler", LAWS)
@pytest.mark.parametrize("size", [1e-6, 0.3, 3.7, 15.5, 16.5, 1999.0, 2.0**30, 1e12])
def test_float64_errs_by_far_less_than_the_doubt_allows(sampler, size, monkeypatch):
    assert float_errors(sampler, size, monkeypatch) < discrete.DOUBT / 1000


def test_an_inexact_probability_is_found(monkeypatch):
    """The test above can fail: ln Γ in the obvious way loses its digits where the mean is large."""

    def careless(k, mean):
        return k * math.log(mean) - mean - special.gammaln(k + 1.0)

    monkeypatch.setattr(discrete, "_log_poisson", careless)
    monkeypatch.setattr(discrete, "_table", discrete._table.__wrapped__)  # keep none that was made carelessly
    assert float_errors(poisson, 1e12, monkeypatch) > discrete.DOUBT


K = 0x1234567890ABC
BETWEEN = Context(prec=100).divide(2 * K + 1, 2**54)


class Tape(Seeded):
    """A source whose first words are given."""

    def __init__(self, *words):
        super().__init__(stream_key(7, "tape"))
        self.tape = list(words)

    def words(self, n):
        given, self.tape = self.tape[:n], self.tape[n:]
        return np.concatenate([np.array(given, dtype=np.uint64), super().words(n - len(given))])


@pytest.mark.parametrize(
    ("first", "more", "heads"),
    [(K - 1, 2**64 - 1, True), (K + 1, 0, False), (K, 0, True), (K, 2**63 - 1, True), (K, 2**63, False)],
)
@pytest.mark.parametrize("drawn_before", [False, True])
def test_a_tie_in_53_bits_is_broken_by_the_next_128(first, more, heads, drawn_before):
    """p = (K + ½)/2⁵³: where U starts with K, heads if the rest of U is below ½; 32 bits may have been drawn before."""
    leading = np.array([first >> 21], dtype=np.uint64) if drawn_before else None
    tape = Tape((first & (2**21 - 1)) << 43 if drawn_before else first << 11, more, 0)
    assert discrete._coins(tape, np.array([float(BETWEEN)]), lambda i: BETWEEN, leading).tolist() == [heads]


def test_fifty_digits_are_fifty_digits():
    e = Decimal("2.7182818284590452353602874713526624977572470936999595749669676277")
    assert abs(discrete._exp(Fraction(1)) - e) < Decimal("1e-60")
    for k in (1, 50, 2000, 2001, 5000):  # on both sides of the switch to Stirling's series
        with localcontext() as digits:
            digits.prec = 100
            assert abs(discrete._log_factorial(k) - Decimal(math.factorial(k)).ln()) < Decimal("1e-48")


MEANS = (1e-9, 0.3, 3.7, 80.0, 4095.9, 4096.0, 123456.7, 1e9, 2.0**40)


def kept_with(table, mean, b, k):
    """F·P(k)/w for numbers k of bin b, by SciPy, which is good to 10⁻¹⁰ or so below a mean of 10⁶."""
    return table.factor * stats.poisson.pmf(k, mean) / table.slots[b]


def too_sure(table, mean):
    """Bins in which some number is kept unseen more often than it may be, or would have to be kept more than always."""
    found = []
    for b in range(table.inside):
        odds = kept_with(table, mean, b, table.starts[b] + np.arange(table.mask + 1))
        if table.sure[b] > 2.0**32 * odds.min() * (1 + 1e-9) or odds.max() > 1 + 1e-9:
            found.append(b)
    return found


@pytest.mark.parametrize("mean", [mean for mean in MEANS if mean < 1e6])
def test_nothing_is_kept_unseen_more_often_than_it_may_be(mean):
    table = discrete._table(mean)
    assert too_sure(table, mean) == []
    assert too_sure(replace(table, sure=table.sure + np.uint64(2**23)), mean) != []  # 0.2 % too sure
    assert too_sure(replace(table, factor=1.05 * table.factor), mean) != []


def halves_of_bins(mean, n):
    """χ² over half bins, of so many draws that 1 % too many or too few in a half would show: p-value."""
    table, half = discrete._table(mean), max(1, (discrete._table(mean).mask + 1) // 2)
    support, law = poisson_law(mean)
    cell = (support - table.starts[0]) // half
    drawn = (poisson(seeded("halves", str(mean)), mean, n) - table.starts[0]) // half
    return fits(drawn, np.arange(cell[0], cell[-1] + 1), np.bincount(cell - cell[0], weights=law))


@pytest.mark.parametrize("mean", [30.3, 1e5, 1.1e6])
def test_within_a_bin_the_law_is_kept_too(mean):
    assert halves_of_bins(mean, 50 * N) > ALARM


@pytest.mark.parametrize("mean", [1e5, 1.1e6])
@pytest.mark.parametrize("answer", [True, False])
def test_keeping_all_or_none_of_the_unsure_would_be_noticed(mean, answer, monkeypatch):
    monkeypatch.setattr(discrete, "_coins", lambda source, p, exact, leading: np.full(len(p), answer))
    monkeypatch.setattr(discrete, "_geometric", lambda source, t, m: np.zeros(m, dtype=np.int64))
    assert halves_of_bins(mean, 50 * N) < ALARM


@pytest.mark.parametrize(
    ("mean", "side"), [(3.7, 0), (80.0, 0), (4096.0, 0), (123456.7, 0), (4096.0, 1), (123456.7, 1)]
)
def test_tails_follow_the_law_too(mean, side, monkeypatch):
    """What one draw in 10⁵ comes from, drawn on purpose: P beyond the bins, on the right and on the left."""
    table = discrete._table(mean)
    tail = table.inside + side
    start, step = int(table.starts[tail]), int(table.steps[tail])
    support = np.arange(start, start + 60 * table.scales[side] + 60) if step > 0 else np.arange(start + 1)
    law = stats.poisson.pmf(support, mean) / stats.poisson.pmf(support, mean).sum()
    only = replace(table, bin_of=np.full(discrete.SLOTS, tail, dtype=np.uint16))
    monkeypatch.setattr(discrete, "_table", lambda mean: only)
    assert fits(poisson(seeded("tail", str(mean), side), mean, N), support, law) > ALARM
    geometric = discrete._geometric
    monkeypatch.setattr(discrete, "_geometric", lambda source, t, m: geometric(source, 2 * t, m))
    assert fits(poisson(seeded("planted"), mean, N), support, law) < ALARM


@pytest.mark.parametrize("sampler", LAWS)
@pytest.mark.parametrize("size", [0.0, -1.0, math.nan, math.inf, 1e-30, 1e300])
def test_impossible_sizes_are_refused(sampler, size):
    with pytest.raises(UsageError, match="Discrete noise needs"):
        sampler(seeded(), size, 3)


@pytest.mark.parametrize("size", [discrete.SMALLEST, 2 * discrete.SMALLEST, discrete.LARGEST])
@pytest.mark.parametrize("sampler", LAWS)
def test_the_smallest_and_the_largest_noise_are_drawn_without_a_murmur(sampler, size):
    drawn = sampler(seeded("edges"), size, 2000)
    if size < 1e-9:
        assert np.all(drawn == 0)
    else:
        spread = size * math.sqrt(2) if sampler is discrete_laplace else math.sqrt(size)
        centre = size if sampler is poisson else 0
        assert (drawn - centre).std() == pytest.approx(spread, rel=0.15)
