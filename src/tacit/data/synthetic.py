"""Synthetic ratings with planted tastes, MovieLens-like tails, and attributes that carry signal.

With the score s = μ + b_u + c_i + ⟨p_u, q_i⟩ of user u and item i,

    explicit   rating = s + noise, rounded to the scale
    count      rating ~ Poisson(exp s), given that it is not 0
    implicit   u's items are the k_u winners of a race in which item i runs at rate exp s

For explicit ratings and counts, popularity and a little taste make the rates of that race. p_u comes in part
from gender, age, occupation and region, q_i from genres and year. One seed gives one world on one machine and
NumPy; on another, rounding may change the winner of a race that is nearly a tie.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tacit.data.ratings import Feedback, Ratings, Scale
from tacit.data.vocabulary import Vocabulary
from tacit.errors import UsageError, check_integer, did_you_mean
from tacit.rng import derive

OPENING = 946_684_800  # 1 January 2000, in seconds; all times lie within four years of it
DAY = 86_400
RANK = 5  # of planted tastes, by default


def demo(
    users: int | None = None,
    items: int | None = None,
    ratings: int | None = None,
    feedback: str = "explicit",
    seed: int = 7,
) -> Ratings:
    """Ratings to try things on: 1,000 users ("u1" …), 500 items (1 …), 50 ratings a user by default.

    >>> demo()
    Ratings(demo: 1,000 users × 500 items, 50,000 ratings on 1…5)
    """
    users, items = 1_000 if users is None else users, 500 if items is None else items
    if ratings is None:
        _check_size(users, items, users)
        ratings = users * min(50, (items + 1) // 2)
    return synthesize(users, items, ratings, feedback=feedback, seed=seed, name="demo").ratings


def demo_items(items: int, seed: int = 7) -> pa.Table:
    """The attributes of the demo's items, with their ids in the column "item"; no rating is made."""
    described, _tastes = _items(items, RANK, seed)
    return described.add_column(0, "item", pa.array(np.arange(1, items + 1)))


def synthesize(
    users: int,
    items: int,
    ratings: int,
    *,
    rank: int = RANK,
    noise: float | None = None,
    scale: Scale | tuple[float, float] | None = None,
    step: float = 1.0,
    feedback: str = "explicit",
    seed: int = 7,
    name: str = "synthetic",
) -> World:
    """A world of exactly so many users, items and ratings, at least one rating per user.

    Parameters
    ----------
    rank : of the planted tastes; the biases add two
    noise : standard deviation of explicit ratings before rounding; by default 0.7 on 1…5
    scale : by default 1…5 for explicit feedback, 0…1 for implicit, 0…100 for counts
    step : distance of neighbouring explicit ratings
    """
    _check_size(users, items, ratings)
    check_integer("rank", rank)
    kind, scale = _kind_and_scale(feedback, scale, step)
    if noise is not None and (kind is not Feedback.EXPLICIT or not 0 <= noise < np.inf):
        raise UsageError(f"noise = {noise!r} is not possible; it is 0 or more, and for explicit feedback only.")
    star = scale.span / 4
    if kind is Feedback.EXPLICIT:
        mean, b, c, spread, pull = scale.low + 2.25 * star, 0.35 * star, 0.45 * star, 0.8 * star, 0.4 / star
        noise = 0.7 * star if noise is None else float(noise)
    elif kind is Feedback.COUNT:
        mean, b, c, spread, pull, noise = 0.8, 0.3, 0.4, 0.7, 0.5, 0.0
    else:
        mean, b, c, spread, pull, noise = 0.0, 0.0, 0.0, 1.2, 1.0, 0.0

    user_table, p = _users(users, rank, seed)
    item_table, q = _items(items, rank, seed)
    strength = np.arange(1, rank + 1) ** -0.5
    q *= spread * strength / np.sqrt(np.sum(strength**2))  # so that `spread` is the deviation of ⟨p, q⟩
    draw = derive(seed, "world")
    fame, quality, leniency = (draw.standard_normal(k) for k in (items, items, users))
    quality = 0.5 * fame + 0.75**0.5 * quality  # what is good is also met more often
    popularity = np.empty(items)
    popularity[np.argsort(-fame)] = (1 + np.arange(items) + 0.06 * items) ** -1.5  # near MovieLens 1M's tail
    popularity /= popularity.sum()

    counts = _activity(users, items, ratings, seed)
    indptr = np.concatenate(([0], np.cumsum(counts)))
    whole = Ratings(
        indptr=indptr,
        items=_race(p, pull * q, popularity, counts, indptr, seed),
        values=np.ones(ratings, dtype=np.float32),
        times=_times(counts, seed),
        user_ids=Vocabulary(np.array(sorted(f"u{k}" for k in range(1, users + 1)), dtype=object), "user"),
        item_ids=Vocabulary(np.arange(1, items + 1), "item"),
        scale=scale,
        feedback=kind,
        user_attributes=user_table,
        item_attributes=item_table,
        name=name,
    )
    biases = np.log(popularity) if kind is Feedback.IMPLICIT else c * quality
    world = World(whole, mean, b * leniency, biases, p, q, noise, float(step))
    _draw_values(world, whole.values, derive(seed, "values"))
    return world


def _check_size(users: int, items: int, ratings: int) -> None:
    for what, size in (("users", users), ("items", items), ("ratings", ratings)):
        check_integer(what, size)
    if ratings > users * items:
        most = f"{users:,} users × {items:,} items hold at most {users * items:,} ratings"
        raise UsageError(f"{most}, not {ratings:,}; request fewer.")
    if ratings < users:
        raise UsageError(f"{ratings:,} ratings are too few for {users:,} users; each has one at least.")


def _kind_and_scale(feedback: str, scale: Scale | tuple[float, float] | None, step: float) -> tuple[Feedback, Scale]:
    known = [str(k) for k in Feedback]
    if feedback not in known:
        hint = did_you_mean(feedback, known)
        raise UsageError(f"feedback = {feedback!r} is not possible; it is one of {', '.join(known)}.{hint}")
    kind = Feedback(feedback)
    if scale is None:
        scale = {Feedback.EXPLICIT: (1, 5), Feedback.IMPLICIT: (0, 1), Feedback.COUNT: (0, 100)}[kind]
    if not isinstance(scale, Scale):
        scale = Scale(float(scale[0]), float(scale[1]))
    cells = scale.span / step if step > 0 else 0.0
    if kind is Feedback.EXPLICIT and (cells < 1 or abs(cells - round(cells)) > 1e-9):
        raise UsageError(f"step = {step!r} does not divide the scale {scale}; take {scale.span / 4:g}, say.")
    if kind is Feedback.IMPLICIT and (scale.low, scale.high) != (0, 1):
        raise UsageError(f"Implicit feedback is on the scale 0…1, not {scale}; leave the scale out.")
    if kind is Feedback.COUNT and not (scale.low <= 1 and scale.high >= 8):
        raise UsageError(f"Counts need a scale that holds 1…8, not {scale}; take (0, 100), say.")
    return kind, scale


def _activity(n: int, m: int, total: int, seed: int) -> np.ndarray:
    """Ratings per user, (n,) int64: log-normal above a floor and below a ceiling, `total` in all."""
    least = max(1, min(20, int(0.3 * total / n)))
    most = m if total > n * m // 4 else m // 2  # in a sparse world no user has rated nearly everything
    room, rest = most - least, total - n * least
    weight = derive(seed, "activity").lognormal(0, 1.1, n)
    heavy = np.sort(weight)[::-1]
    # If the j heaviest are at the ceiling, the others share at this level; the smallest j that fits is right.
    level = (rest - room * np.arange(n)) / np.cumsum(heavy[::-1])[::-1]
    fits = level * heavy <= room
    share = np.minimum(room, level[np.argmax(fits)] * weight) if fits.any() else np.full(n, float(room))
    counts = np.floor(share).astype(np.int64)
    fraction = np.where(counts < room, share - counts, -1.0)
    counts[np.argsort(-fraction, kind="stable")[: rest - counts.sum()]] += 1
    return counts + least


def _race(
    p: np.ndarray, q: np.ndarray, popularity: np.ndarray, counts: np.ndarray, indptr: np.ndarray, seed: int
) -> np.ndarray:
    """The k_u items that reach each user first, item i after a time ~ Exponential(pop_i·exp⟨p_u, q_i⟩).

    The same as k_u draws without replacement. Returns (nnz,) int32, increasing within a user.
    """
    n, m = len(p), len(q)
    columns = np.empty(indptr[-1], dtype=np.int32)
    P, Q, handicap = p.astype(np.float32), -q.T.astype(np.float32), -np.log(popularity).astype(np.float32)
    order = np.argsort(counts, kind="stable")  # users of like activity share a block, and one partition
    height = max(1, BLOCK // m)

    def run(start: int) -> None:
        rows = order[start : start + height]
        k = counts[rows]
        arrival = derive(seed, "race", start).random((len(rows), m), dtype=np.float32)
        np.log(np.subtract(1, arrival, out=arrival), out=arrival)
        wait = np.repeat(handicap[None], len(rows), axis=0)
        for f in range(len(Q)):  # not `@`: its threads and its rounding differ from machine to machine
            wait += P[rows, f, None] * Q[f]
        arrival *= np.negative(np.exp(wait, out=wait), out=wait)
        last = np.take_along_axis(np.partition(arrival, np.unique(k) - 1, axis=1), k[:, None] - 1, axis=1)
        won = arrival <= last
        for row in np.flatnonzero(won.sum(axis=1) > k):  # some arrivals tie in 24 bits, about one user in 10⁵
            tied = np.flatnonzero(arrival[row] == last[row])
            won[row, tied[k[row] - won[row].sum() :]] = False
        columns[np.repeat(indptr[rows] - np.cumsum(k) + k, k) + np.arange(k.sum())] = np.nonzero(won)[1]

    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:  # each block has its own stream and its own place
        list(pool.map(run, range(0, n, height)))
    return columns


def _times(counts: np.ndarray, seed: int) -> np.ndarray:
    """Seconds, (nnz,) int64: users join over three years and rate in evenings of about 25 each."""
    draw, n, total = derive(seed, "times"), len(counts), int(counts.sum())
    evenings = 1 + counts // 25
    joined, stay = draw.integers(0, 1000 * DAY, n), np.minimum(draw.exponential(100 * DAY, n), 400 * DAY)
    passed = draw.random(evenings.sum()) ** 2 * np.repeat(stay, evenings)
    opened = OPENING + np.repeat(joined, evenings) + passed.astype(np.int64)
    which = np.repeat(np.cumsum(evenings) - evenings, counts)
    which += (draw.random(total) * np.repeat(evenings, counts)).astype(np.int64)
    return opened[which] + draw.integers(0, 3600, total)


def _draw_values(world: World, values: np.ndarray, draw: np.random.Generator) -> None:
    r = world.ratings
    if r.feedback is Feedback.IMPLICIT:
        return
    s = world.score(r.users, r.items)
    if r.feedback is Feedback.EXPLICIT:
        s += world.noise * draw.standard_normal(len(s))
        cells = np.rint((s - r.scale.low) / world.step)
        values[:] = np.clip(r.scale.low + world.step * cells, r.scale.low, r.scale.high)
    else:
        rate = count_rate(s, r.scale)
        # Given one arrival at least within `rate`, the first comes at this time and the others are free.
        first = -np.log1p(draw.random(len(s)) * np.expm1(-rate))
        values[:] = np.minimum(1 + draw.poisson(np.maximum(rate - first, 0)), r.scale.high)


def _words(text: str) -> np.ndarray:
    return np.array(text.split(), dtype=object)


AGES = np.array([1, 18, 25, 35, 45, 50, 56], dtype=np.int8)
AGE_SHARES = [0.04, 0.18, 0.35, 0.2, 0.09, 0.08, 0.06]
OCCUPATIONS = _words(
    "other educator artist clerical student service doctor executive farmer homemaker pupil lawyer "
    "programmer retired sales scientist self-employed technician tradesman unemployed writer"
)
GENRES = _words(
    "Action Adventure Animation Children's Comedy Crime Documentary Drama Fantasy Film-Noir Horror Musical "
    "Mystery Romance Sci-Fi Thriller War Western"
)
GENRE_WEIGHTS = np.array([9, 6, 2, 4, 20, 5, 3, 25, 2, 1, 6, 2, 2, 8, 5, 9, 3, 2], dtype=np.float64)
ADJECTIVES = _words(
    "Amber Broken Crimson Distant Electric Faithful Golden Hidden Idle Jagged Lonely Midnight Northern Open "
    "Patient Quiet Restless Silver Tender Unseen Velvet Wandering Yellow Zealous"
)
NOUNS = _words(
    "Anchor Bridge Circus Daughter Engine Forest Garden Harbour Island Journey Kingdom Lantern Mirror "
    "Notebook Orchard Promise Quarry River Stranger Tower Umbrella Violin Winter Year"
)


def _users(n: int, rank: int, seed: int) -> tuple[pa.Table, np.ndarray]:
    """Attributes, and p (n, rank) with entries of variance about 1, almost half of it from the attributes."""
    draw = derive(seed, "users")
    gender, age = (draw.random(n) < 0.72).astype(np.int64), draw.choice(len(AGES), n, p=AGE_SHARES)
    occupation, region = draw.integers(len(OCCUPATIONS), size=n), draw.integers(10, size=n)
    p = np.sqrt(0.55) * draw.standard_normal((n, rank))
    for codes, kinds, share in ((gender, 2, 0.15), (age, 7, 0.1), (occupation, 21, 0.1), (region, 10, 0.1)):
        p += np.sqrt(share) * draw.standard_normal((kinds, rank))[codes]
    rest = draw.integers(10_000, size=n)
    columns = {
        "gender": _words("F M")[gender],
        "age": AGES[age],
        "occupation": OCCUPATIONS[occupation],
        "zip": [f"{r}{d:04d}" for r, d in zip(region, rest, strict=True)],
        "zip1": _words("0 1 2 3 4 5 6 7 8 9")[region],
    }
    return pa.table(columns), p


def _items(m: int, rank: int, seed: int) -> tuple[pa.Table, np.ndarray]:
    """Attributes, and q (m, rank) with entries of variance about 1, half of it from the attributes."""
    draw = derive(seed, "items")
    number = draw.choice([1, 2, 3], m, p=[0.4, 0.4, 0.2])
    race = draw.standard_exponential((m, len(GENRES))) / GENRE_WEIGHTS
    belongs = np.argsort(np.argsort(race, axis=1), axis=1) < number[:, None]
    year = np.maximum(1930, 1999 - draw.exponential(12, m).astype(np.int64))
    q = np.sqrt(0.5) * draw.standard_normal((m, rank))
    q += np.sqrt(0.4) * (belongs @ draw.standard_normal((len(GENRES), rank))) / np.sqrt(number)[:, None]
    q += np.sqrt(0.1) * ((year - 1987) / 12)[:, None] * draw.standard_normal(rank)
    names = draw.permutation([f"The {a} {b}" for a in ADJECTIVES for b in NOUNS]).tolist()
    part = [f" {k + 1}" if k else "" for k in range(m // len(names) + 1)]
    columns = {
        "title": [f"{names[i % len(names)]}{part[i // len(names)]} ({y})" for i, y in enumerate(year)],
        "genres": ["|".join(GENRES[row]) for row in belongs],
        "year": year.astype(np.int16),
    }
    return pa.table(columns), q


BLOCK = 1 << 20  # pairs worked on at a time


@dataclass(frozen=True, eq=False)
class World:
    """Ratings, and what made them. Users and items are rows and columns here, not ids.

    Attributes
    ----------
    mean : μ
    user_biases, item_biases : b (n,), c (m,) float64; for implicit feedback b = 0 and c is log popularity
    user_factors, item_factors : p (n, rank), q (m, rank) float64
    noise : standard deviation before rounding; 0 for implicit feedback and counts
    step : distance of neighbouring ratings
    """

    ratings: Ratings
    mean: float
    user_biases: np.ndarray
    item_biases: np.ndarray
    user_factors: np.ndarray
    item_factors: np.ndarray
    noise: float
    step: float

    def score(self, users: Any, items: Any) -> np.ndarray:
        """s = μ + b_u + c_i + ⟨p_u, q_i⟩ of every pair, float64; the two arguments are broadcast."""
        users, items = np.broadcast_arrays(users, items)
        u, i = users.ravel(), items.ravel()
        s = np.empty(len(u))
        for start in range(0, len(u), BLOCK):
            part = slice(start, start + BLOCK)
            s[part] = np.einsum("kf,kf->k", self.user_factors[u[part]], self.item_factors[i[part]])
            s[part] += self.mean + self.user_biases[u[part]] + self.item_biases[i[part]]
        return s.reshape(users.shape)

    def truth(self, users: Any, items: Any) -> np.ndarray:
        """The expected explicit rating, or count, of every pair, float64; no predictor has a lower squared error."""
        return self._moments(users, items)[0]

    @property
    def irreducible_mse(self) -> float:
        """The expected squared error of `truth` over the rated pairs."""
        return float(self._moments(self.ratings.users, self.ratings.items)[1].mean())

    def _moments(self, users: Any, items: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the rating of every pair, with noise, rounding and the scale's ends.

        With N the number of cuts below s + noise: E N = Σ_j P(N ≥ j), E N² = Σ_j (2j − 1)·P(N ≥ j).
        """
        from scipy.special import ndtr

        if self.ratings.feedback is Feedback.IMPLICIT:
            raise UsageError("Implicit feedback has no expected rating; compare with `score`, by which items were met.")
        s, scale = self.score(users, items), self.ratings.scale
        if self.ratings.feedback is Feedback.COUNT:
            rate = count_rate(s, scale)
            mean = rate / -np.expm1(-rate)
            return mean, mean * (1 + rate - mean)
        first, second = np.zeros(s.shape), np.zeros(s.shape)
        for j in range(1, round(scale.span / self.step) + 1):
            above = s - (scale.low + (j - 0.5) * self.step)
            p = ndtr(above / self.noise) if self.noise > 0 else (above > 0).astype(np.float64)
            first += p
            second += (2 * j - 1) * p
        return scale.low + self.step * first, self.step**2 * (second - first**2)


def count_rate(s: np.ndarray, scale: Scale) -> np.ndarray:
    """A count's Poisson rate, so far below the scale's top that a draw hardly ever meets it."""
    return np.exp(np.minimum(s, np.log(scale.high / 4)))
