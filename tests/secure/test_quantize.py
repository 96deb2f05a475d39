"""Rounding to integers: the bounds hold for every outcome, sums are exact, nothing wraps.

Statistical tests state their false-alarm rate; seeds are fixed, so that chance was taken once.
"""

import math
from collections import Counter

import numpy as np
import pytest
from bounded_cases import by_user, ratings_of
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.boundary.clipped_gradients import ClippedGradient, EmbeddingGradient
from tacit.boundary.clipped_sums import Clipped, Normalised
from tacit.boundary.deviations import Deviations
from tacit.boundary.mechanisms import Skellam
from tacit.boundary.query import Rows
from tacit.boundary.randomness import Seeded
from tacit.data.ratings import Scale
from tacit.errors import DataError, PrivacyRefused, UsageError
from tacit.rng import derive, stream_key
from tacit.secure.masks import words
from tacit.secure.quantize import (
    TRIES,
    WIDTHS,
    WRAP,
    Contributions,
    Repeated,
    Rounding,
    bits_for,
    centred,
    reduced,
    wrapped,
)

UP, DOWN = 1 - 2.0**-53, 2.0**-53
#: Rounding moves a float64 norm by less than this part of it.
SLACK = 1 + 1e-12


class Always:
    """Coins that all fall the same way: up, down, or in the middle."""

    def __init__(self, u):
        self.u, self.calls = u, 0

    def uniform(self, shape):
        self.calls += 1
        return np.full(shape, self.u)


def real(*purpose):
    return Seeded(stream_key(7, "coins", *purpose))


COINS = {"up": lambda: Always(UP), "down": lambda: Always(DOWN), "half": lambda: Always(0.5), "real": real}


def pieces_of(vectors, size=None):
    """Dense vectors as pieces, each over the cells 0, 1, …"""
    vectors = [np.asarray(v, dtype=np.float64) for v in vectors]
    size = size or max((len(v) for v in vectors), default=1)
    starts = np.cumsum([0, *map(len, vectors)])
    cells = np.concatenate([np.arange(len(v)) for v in vectors]) if vectors else np.zeros(0, dtype=np.int64)
    return Contributions(starts, cells.astype(np.int64), np.concatenate([*vectors, np.zeros(0)]), size)


def adversarial(kind, d, rounding, seed):
    """A vector as bad for rounding as its kind can be, in the unit of the sum; it may be longer than the clip."""
    stream, step, clip = derive(seed, kind, d), rounding.step, rounding.clip
    match kind:
        case "one cell":
            return np.eye(1, d, int(stream.integers(d)))[0] * clip * stream.choice([-1, 1])
        case "all equal":
            return np.full(d, clip / math.sqrt(d)) * stream.choice([-1, 1], d)
        case "below a boundary":  # a hair under a whole number of steps, as many as fit into the clip
            whole = max(1, math.floor(clip / step / math.sqrt(d)))
            return (whole - 1e-9) * step * stream.choice([-1, 1], d)
        case "above a boundary":
            whole = math.floor(clip / step / math.sqrt(d) * 0.999)
            return (whole + 1e-9) * step * stream.choice([-1, 1], d)
        case "tiny":  # every coin may push a cell from 0 to 1
            return np.full(d, 1e-9 * step) * stream.choice([-1, 1], d)
        case "halves":
            whole = math.floor(clip / step / math.sqrt(d) * 0.999)
            return np.minimum(whole + 0.5, clip / step / math.sqrt(d)) * step * stream.choice([-1, 1], d)
        case _:
            x = stream.normal(size=d)
            return x * clip / np.linalg.norm(x)


KINDS = ("one cell", "all equal", "below a boundary", "above a boundary", "tiny", "halves", "any")


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    kind=st.sampled_from(KINDS),
    coins=st.sampled_from(sorted(COINS)),
    d=st.sampled_from([1, 2, 3, 10, 64, 257, 1000]),
    clip=st.sampled_from([1.0, 0.1, 3.7, 1e-6, 1e6]),
    coarse=st.sampled_from([1.0, 16.0, 300.0]),
    seed=st.integers(0, 2**32),
)
def test_no_outcome_is_longer_than_the_bounds(kind, coins, d, clip, coarse, seed):
    """Also where the step is much too coarse, so that rounding dominates."""
    fine = Rounding.fine(clip, d)
    rounding = Rounding(fine.step * coarse, clip, d)
    x = adversarial(kind, d, rounding, seed)
    x *= min(1.0, clip / np.linalg.norm(x))
    whole = rounding.summed(pieces_of([x]), COINS[coins]() if coins != "real" else real(seed))
    assert np.linalg.norm(whole) <= rounding.l2
    assert np.abs(whole).sum() <= rounding.l1 * SLACK
    assert np.abs(whole - x / rounding.step).max() <= 1


def test_delta_2_is_the_published_one():
    """Kairouz, Liu and Steinke 2021, β = e^(−1/2): √(c² + d/4 + c + √d/2) in steps, or c + √d if that is less."""
    assert Rounding(1.0, 100.0, 16).l2 == pytest.approx(math.sqrt(100**2 + 4 + 100 + 2))
    assert Rounding(1.0, 0.25, 1).l2 == pytest.approx(min(1.25, math.sqrt(0.25**2 + 0.25 + 0.25 + 0.5)))
    assert Rounding(0.5, 0.5, 1).l2 == pytest.approx(math.sqrt(2.75))


def test_a_fine_step_lengthens_a_piece_by_little():
    for d in (1, 2, 10, 1000, 10**6):
        rounding = Rounding.fine(2.5, d)
        assert 1 <= rounding.l2 * rounding.step / rounding.clip < 1.003
        assert math.log2(rounding.clip / rounding.step).is_integer()


@pytest.mark.parametrize("u", [UP, DOWN])
def test_coins_that_never_give_in_end_in_a_cut_towards_0(u):
    """Planted coins: every draw is too long, so that the last resort is seen at work."""
    coarse, stubborn = Rounding(1.0, 2.0, 100), Always(u)  # all of 100 cells up by one have norm 10, and Δ₂ is 6.8
    x = np.full(100, -0.19 if u == DOWN else 0.19)
    assert not coarse.summed(pieces_of([x]), stubborn).any()
    assert stubborn.calls in (TRIES, TRIES + 1)


def test_rounding_without_a_second_draw_is_noticed():
    """Planted bug: unconditional rounding. Where one step is much of a clip its outcome is longer than Δ₂, three times
    in ten for this vector; coins that push make it so for many cells."""
    rounding, x = Rounding(1.0, 1.3, 1), np.array([1.3])
    unconditional = np.floor(x + real("unconditional").uniform(2000))
    assert 0.2 < np.mean(np.abs(unconditional) > rounding.l2) < 0.4
    kept = [rounding.summed(pieces_of([x]), real("conditional", i)) for i in range(200)]
    assert max(np.linalg.norm(whole) for whole in kept) <= rounding.l2
    many = np.full(400, 4.0 / 20)
    assert np.linalg.norm(np.floor(many + UP)) > Rounding(1.0, 4.0, 400).l2


def test_a_broken_clip_is_still_cut():
    for coins in COINS.values():
        for d in (1, 7, 300):
            rounding = Rounding.fine(1.0, d)
            long = np.full(d, 10.0 / math.sqrt(d))
            good = np.full(d, 0.5 / math.sqrt(d))
            whole = rounding.summed(pieces_of([long, good]), coins())
            assert np.linalg.norm(rounding.summed(pieces_of([long]), coins())) <= rounding.l2
            np.testing.assert_allclose(whole * rounding.step, good, atol=rounding.step)


def test_a_piece_is_rounded_by_itself():
    """The others' numbers do not go into it: in their presence, a piece on cells of its own comes out in the same way
    as alone, for coins that are the same for all."""
    rounding = Rounding.fine(1.0, 5)
    mine = np.array([0.1, -0.2, 0.3, 0.123, -0.7])
    for coins in ("up", "down", "half"):
        alone = rounding.summed(pieces_of([mine]), COINS[coins]())
        starts, cells = np.array([0, 5, 10]), np.arange(10)
        for others in (np.zeros(5), np.full(5, 0.4), np.full(5, 1e9), np.full(5, np.nan)):
            both = rounding.summed(Contributions(starts, cells, np.concatenate([mine, others]), 10), COINS[coins]())
            np.testing.assert_array_equal(both[:5], alone)


def test_the_sum_is_that_of_the_pieces():
    """On cells that several pieces meet in, in any order of cells."""
    stream, rounding = derive(7, "sums"), Rounding.fine(1.0, 8)
    cells = [np.sort(stream.permutation(20)[: stream.integers(0, 9)]) for _ in range(30)]
    values = [x / max(1.0, np.linalg.norm(x)) for x in (stream.normal(size=len(c)) for c in cells)]
    starts = np.cumsum([0, *map(len, cells)])
    for u in (UP, DOWN, 0.5):
        whole = rounding.summed(Contributions(starts, np.concatenate(cells), np.concatenate(values), 20), Always(u))
        wanted = np.zeros(20, dtype=np.int64)
        for c, v in zip(cells, values, strict=True):
            wanted[c] += rounding.summed(pieces_of([v], max(1, len(v))), Always(u))[: len(v)]
        np.testing.assert_array_equal(whole, wanted)
        assert whole.dtype == np.int64


def repeated(seed, users=20, width=3, height=9, extra=4):
    """Rows at several places and further cells after them, every contribution of length 1."""
    stream = derive(seed, "repeated")
    counts = stream.integers(0, height + 1, users)
    places = [np.sort(stream.permutation(height)[:n]) for n in counts]
    rows, rest = stream.normal(size=(users, width)), stream.normal(size=(users, extra))
    length = np.sqrt(counts * np.square(rows).sum(axis=1) + np.square(rest).sum(axis=1))[:, None]
    size, starts = height * width + extra, np.concatenate([[0], np.cumsum(counts)])
    cells = np.tile(height * width + np.arange(extra), users)
    others = Contributions(extra * np.arange(users + 1), cells, (rest / length).ravel(), size)
    return Repeated(starts, np.concatenate(places), rows / length, 0, height, others)


@pytest.mark.parametrize("coins", ["up", "down", "half"])
def test_a_row_at_several_places_adds_what_its_copies_would(coins):
    given, rounding = repeated(7), Rounding.fine(1.1, 31)
    np.testing.assert_allclose(np.linalg.norm(by_user(given.each), axis=1), 1)
    np.testing.assert_array_equal(rounding.summed(given, COINS[coins]()), rounding.summed(given.each, COINS[coins]()))


@settings(derandomize=True, deadline=None, max_examples=100)
@given(coins=st.sampled_from(sorted(COINS)), coarse=st.sampled_from([1.0, 16.0, 300.0]), seed=st.integers(0, 2**32))
def test_no_outcome_with_rows_is_longer_than_the_bounds(coins, coarse, seed):
    fine = Rounding.fine(1.0, 31)
    rounding = Rounding(fine.step * coarse, 1.0, 31)
    given = repeated(seed)
    for a in range(len(given.rows)):
        alone = given.some(np.arange(len(given.rows)) == a)
        whole = rounding.summed(alone, COINS[coins]() if coins != "real" else real(seed, a))
        assert np.linalg.norm(whole) <= rounding.l2
        assert np.abs(whole).sum() <= rounding.l1 * SLACK


def test_rows_whose_places_are_not_counted_are_too_long():
    """Planted bug: a row's length is bounded as if it were at one place."""
    rounding, one = Rounding.fine(1.0, 30), np.array([[1.0, 0.0]])
    none = Contributions(np.zeros(2, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0), 30)
    once, often = (Repeated(np.array([0, n]), np.arange(n), one, 0, 15, none) for n in (1, 15))
    assert rounding.summed(once, Always(0.5)).any()
    assert not rounding.summed(often, Always(0.5)).any()  # its clip is broken: it adds nothing


def test_rounding_rows_together_keeps_means():
    """5,000 contributions of one row at 50 places, at the clip: what is drawn again shortens them by under 1 %/√width,
    plus chance of 5.5 standard deviations, at most ½/√n each; a false alarm in about three million over all cells."""
    n, width, height = 5_000, 8, 50
    rounding, stream = Rounding.fine(1.0, width * height), derive(7, "row")
    row = stream.normal(size=width)
    row /= np.linalg.norm(row) * math.sqrt(height)
    none = Contributions(np.zeros(n + 1, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0), width * height)
    places = np.tile(np.arange(height), n)
    given = Repeated(height * np.arange(n + 1), places, np.tile(row, (n, 1)), 0, height, none)
    mean = rounding.summed(given, real("rows")).reshape(height, width) / n
    assert np.abs(mean - row / rounding.step).max() < 0.01 / math.sqrt(width) * np.abs(
        row / rounding.step
    ).max() + 5.5 * 0.5 / math.sqrt(n)


def test_means_are_kept():
    """Well inside the clip nothing is drawn again, and rounding is unbiased: 20,000 roundings of 50 cells, whose means
    are within 5.5 standard deviations, at most ½/√n each; a false alarm in about half a million over all cells."""
    d, n = 50, 20_000
    rounding = Rounding.fine(1.0, d)
    x = 0.5 * adversarial("any", d, rounding, 7)
    repeated = Contributions(d * np.arange(n + 1), np.tile(np.arange(d), n), np.tile(x, n), d)
    mean = rounding.summed(repeated, real("means")) / n
    assert np.abs(mean - x / rounding.step).max() < 5.5 * 0.5 / math.sqrt(n)
    nearest = rounding.summed(pieces_of([x]), Always(0.5))  # planted bug: rounding to the nearest is biased
    assert np.abs(nearest - x / rounding.step).max() > 5.5 * 0.5 / math.sqrt(n)


def test_zeros_stay_zeros_empty_records_add_nothing_and_what_is_no_number_counts_as_0():
    rounding, nothing = Rounding.fine(1.0, 6), Contributions(np.array([0]), np.zeros(0, int), np.zeros(0), 6)
    for coins in COINS.values():
        assert not rounding.summed(pieces_of([np.zeros(6), -np.zeros(6), []], 6), coins()).any()
        assert rounding.summed(nothing, coins()).tolist() == [0] * 6
        sparse = rounding.summed(pieces_of([[0, 0.3, 0, 0, -0.2, 0]]), coins())
        assert np.flatnonzero(sparse).tolist() == [1, 4]
        bad = rounding.summed(pieces_of([[np.nan, 0.3, np.inf, -np.inf, -0.2, 0]]), coins())
        np.testing.assert_array_equal(bad, sparse)


def test_pieces_that_do_not_cover_their_entries_are_refused():
    for starts, values in (([0, 2], [0.1, 0.2, 0.3]), ([0, 3], [0.1, 0.2]), ([], [0.1, 0.2, 0.3])):
        uncovered = Contributions(np.array(starts, int), np.arange(3), np.array(values), 3)
        with pytest.raises(DataError, match="do not cover"):
            Rounding.fine(1.0, 3).summed(uncovered, real())


@pytest.mark.parametrize(("clip", "touched"), [(0.0, 3), (math.inf, 3), (math.nan, 3), (-1.0, 3), (1.0, 0)])
def test_a_step_for_what_nothing_bounds_is_refused(clip, touched):
    with pytest.raises(PrivacyRefused, match="clip it first"):
        Rounding.fine(clip, touched)


@pytest.mark.parametrize(("people", "variance"), [(1, 1.0), (5, 300.0), (2000, 1e5), (10**6, 1e9), (10**8, 1e12)])
def test_sums_with_the_planned_noise_do_not_wrap(people, variance):
    """All pieces at their largest in one cell, and noise on 200,000 cells: a wrap happens once in 2⁴⁰ releases. The
    width is not wasted either: the next smaller one would not hold the bound."""
    cells, rounding = 200_000, Rounding.fine(1.0, 10)
    bits = bits_for(people, rounding, variance, cells)
    largest = people * int(rounding.clip / rounding.step + 1)
    noised = largest + Skellam(variance).sample(cells, real("wrap", people))
    np.testing.assert_array_equal(centred(wrapped(noised, bits), bits), noised)
    np.testing.assert_array_equal(centred(wrapped(-noised, bits), bits), -noised)
    tail = math.log(2 * cells / WRAP)
    assert 2.0 ** (bits - 1) >= largest + math.sqrt(2 * tail * variance)
    assert bits == 8 or 2.0 ** (bits - 9) < largest + tail + math.sqrt(2 * tail * variance)


def test_a_width_that_is_too_small_is_noticed():
    """Planted bug: eight bits fewer than planned."""
    rounding = Rounding.fine(1.0, 10)
    bits = bits_for(2000, rounding, 1e5, 1000)
    noised = 2000 * 257 + Skellam(1e5).sample(1000, real("narrow"))
    assert (centred(wrapped(noised, bits - 8), bits - 8) != noised).any()


@pytest.mark.parametrize(
    ("people", "variance", "why"), [(10**13, 1.0, "53 are exact"), (1, 1e31, "drawn exactly"), (10**15, 1e30, "drawn")]
)
def test_a_sum_that_fits_into_no_width_is_refused(people, variance, why):
    with pytest.raises(PrivacyRefused, match=why):
        bits_for(people, Rounding.fine(1.0, 10**4), variance, 10**6)


@pytest.mark.parametrize("bits", WIDTHS[:-1])
def test_wrapping_and_centring_are_inverse_and_sums_mod_2_to_the_bits_are_those_of_integers(bits):
    half = 2 ** (bits - 1)
    edges = np.array([-half, -half + 1, -1, 0, 1, half - 2, half - 1], dtype=np.int64)
    inside = np.concatenate([edges, derive(7, bits).integers(-half, half, 500)])
    low = wrapped(inside, bits)
    assert low.dtype == words(bits)
    np.testing.assert_array_equal(centred(low, bits), inside)
    np.testing.assert_array_equal(low, reduced(low, bits))
    np.testing.assert_array_equal(wrapped(centred(low, bits), bits), low)
    parts = derive(7, "modular", bits).integers(-half, half, (9, 100))
    total = np.sum([wrapped(part, bits) for part in parts], axis=0, dtype=words(bits))
    wanted = [(sum(map(int, column)) + half) % (2 * half) - half for column in parts.T]
    assert centred(reduced(total, bits), bits).tolist() == wanted
    beyond = wrapped(np.array([half, -half - 1], dtype=np.int64), bits)
    assert centred(beyond, bits).tolist() == [-half, half - 1]


def records(seed, users=9, items=14):
    """Lists of (item, value): extremes, long ones, one empty, one with a single rating."""
    stream = derive(seed, "records")
    lists = [
        [(int(j), float(stream.choice([1, 5, 3.3, 2]))) for j in np.sort(stream.permutation(items)[:count])]
        for count in stream.integers(2, items, users)
    ]
    return [*lists, [], [(0, 5.0)]]


def normalised(lists):
    ratings = ratings_of(lists, 14)
    channels = {"weights": np.full(ratings.n_ratings, 0.7), "errors": ratings.values - 3.0}
    return Normalised(("errors", "weights")).over(ratings, channels), 1.0


def deviations(lists):
    return Deviations(Scale(1, 5), 0.7).over(ratings_of(lists, 14)), math.hypot(2.0, 0.7)


def clipped(lists):
    ratings = ratings_of(lists, 14)
    x = np.zeros((ratings.n_users, 14))
    x[ratings.users, ratings.items] = ratings.values
    return Clipped(("a", "b"), 2.5).over({"b": x, "a": -x[:, :3].reshape(-1, 3, 1)}, ratings.counts), 2.5


def factors(rows, purpose):
    return derive(7, purpose).uniform(0, 2, (rows, 3)).astype(np.float32)


def gradient(kind, trim=14, sampling=1.0, **others):
    def query(lists):
        at = {"users": factors(len(lists), "users"), "items": factors(14, "items")}
        asked = kind(Scale(1, 5), sampling, trim, ("items",), users_are_public=False, **others)
        return asked.over(ratings_of(lists, 14), at), asked.clip

    return query


QUERIES = {
    "normalised": normalised,
    "deviations": deviations,
    "clipped": clipped,
    "embedding": gradient(EmbeddingGradient),
    "gradient clipping": gradient(ClippedGradient, threshold=1.5),
}
DRAWN = {
    "trimmed": gradient(EmbeddingGradient, trim=3),
    "sampled": gradient(EmbeddingGradient, trim=3, sampling=0.5),
    "sampled, clipped": gradient(ClippedGradient, trim=3, sampling=0.5, threshold=1.5),
}


def flat(query, stream):
    """The exact answer in one vector, in the order of its blocks' names."""
    blocks = sorted(query.exact({}, stream).items())
    return np.concatenate([np.asarray(x.dense() if isinstance(x, Rows) else x).ravel() for _, x in blocks])


@pytest.mark.parametrize("name", [*QUERIES, *DRAWN])
@pytest.mark.parametrize("seed", range(5))
def test_pieces_add_up_to_the_exact_answer_and_none_is_longer_than_the_clip(name, seed):
    query, clip = {**QUERIES, **DRAWN}[name](records(seed))
    exact, pieces = flat(query, derive(seed, "answer")), query.contributions({}, derive(seed, "answer"))
    dense = by_user(pieces)
    np.testing.assert_allclose(dense.sum(axis=0), exact, rtol=1e-9, atol=1e-9 * clip)
    assert np.linalg.norm(dense, axis=1).max() <= clip
    assert np.abs(exact).max() > 0


def counted(dense):
    return Counter(tuple(row) for row in dense if row.any())


@pytest.mark.parametrize("name", QUERIES)
def test_a_neighbour_changes_one_piece_only(name):
    """One user's record emptied; one rating gone, where every rating is a piece of its own."""
    lists = records(7)
    before = by_user(QUERIES[name](lists)[0].contributions({}, derive(7, "answer")))
    for i, record in enumerate(lists[:9]):
        near = [*lists[:i], record[1:] if name == "deviations" else [], *lists[i + 1 :]]
        after = by_user(QUERIES[name](near)[0].contributions({}, derive(7, "answer")))
        was, now = counted(before), counted(after)
        assert (sum((was - now).values()), now - was) == (1, Counter())


def test_a_query_whose_pieces_depend_on_each_other_is_noticed():
    """Planted bug: contributions divided by how many users there are with ratings, a realised count."""
    lists = records(7)

    def averaged(these):
        dense = by_user(normalised(these)[0].contributions({}, derive(7, "answer")))
        return dense / sum(map(bool, these))

    gone = counted(averaged(lists)) - counted(averaged([[], *lists[1:]]))
    assert sum(gone.values()) > 1


def test_gradients_of_user_factors_have_no_pieces():
    query = EmbeddingGradient(Scale(1, 5), 1.0, 3, users_are_public=True).over(ratings_of(records(7), 14))
    with pytest.raises(UsageError, match="item factors alone"):
        query.contributions({"users": factors(11, "users"), "items": factors(14, "items")}, derive(7, "answer"))


def test_a_piece_on_more_cells_than_were_declared_keeps_within_delta_1():
    """Of norm c, and so within Δ₂, but on 100 cells where 4 are declared: its ℓ1 norm is five times Δ₁."""
    rounding = Rounding.fine(1.0, 4)
    whole = rounding.summed(pieces_of([np.full(100, 0.1)]), real("many cells"))
    assert np.linalg.norm(whole) <= rounding.l2
    assert np.abs(whole).sum() <= rounding.l1


@pytest.mark.parametrize("variance", [2.0**10, 2.0**25, 2.0**39])
def test_a_cell_has_room_for_its_noise(variance):
    """2⁻⁴⁰ is 7.6 standard deviations of a normal variable; one contribution is small beside these."""
    bits = bits_for(1, Rounding(1.0, 1.0, 1), variance, 1)
    assert 2.0 ** (bits - 1) > 7 * math.sqrt(variance)
