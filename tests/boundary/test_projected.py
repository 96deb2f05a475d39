"""One bit about one coordinate of a projected gradient: what it tells, what it may tell, and what it adds up to."""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest
from bounded_cases import ratings_of
from privacy_loss import ALARM, exceeds, seeded
from scipy import stats

from tacit.boundary import projected
from tacit.boundary.code import Floats
from tacit.boundary.projected import OneBit, ProjectedBit, ProjectedGradient, estimated, spread
from tacit.boundary.randomized_response import RandomizedResponse
from tacit.boundary.randomness import Secure
from tacit.boundary.spec import event_of
from tacit.data.ratings import Ratings
from tacit.data.vocabulary import Vocabulary
from tacit.errors import BadMessage, PrivacyRefused
from tacit.guarantee import Relation, Unit
from tacit.kernels.squared_error import factor_gradients_numpy
from tacit.rng import derive

EPSILON, BOUND = 1.0, 0.5
Q, P, M = 2, 2, 6
SIGNS = np.array([[1, 1, -1, 1, -1, -1], [1, -1, 1, 1, 1, -1]], dtype=np.int8)
V = derive(7, "items").random((M, P), dtype=np.float32)
COPIES = 40_000


#: Records to tell apart: ratings by item on the scale 1…5, some of them beyond it, and one with none.
RECORDS = {
    "lowest": dict.fromkeys(range(M), 1.0),
    "highest": dict.fromkeys(range(M), 5.0),
    "one": {2: 5.0},
    "along one row": {0: 5.0, 1: 5.0, 3: 5.0},
    "along the other": {2: 5.0, 3: 5.0, 4: 5.0},
    "empty": {},
    "beyond": {0: 1e9, 1: -1e9, 3: -1e30},
    "infinite": {0: math.inf, 4: 2.0},
    "no number": {1: math.nan, 2: 3.0},
}


def holding(record, copies=1):
    """Devices that all hold the same record."""
    one = ratings_of([sorted(record.items())], M)
    return replace(
        one,
        indptr=len(record) * np.arange(copies + 1),
        items=np.tile(one.items, copies),
        values=np.tile(one.values, copies),
        user_ids=Vocabulary(np.arange(copies), "user"),
    )


def query(record, copies=1, kind=ProjectedGradient, bound=BOUND, present=None):
    users = np.tile(np.array([[1.0, 0.7]], np.float32), (copies, 1))
    return kind(ProjectedBit((Q, P), bound), holding(record, copies), users, V, SIGNS, present)


def test_a_number_is_the_coordinate_of_the_projected_gradient():
    """Beside the plain product of Φ with each device's own gradient, a device at a time."""
    stream = derive(7, "world")
    i, j = np.nonzero(stream.random((9, M)) < 0.6)
    ratings = Ratings.from_columns(i, j, stream.integers(1, 6, len(i)).astype(float), scale=(1, 5))
    n, m = ratings.n_users, ratings.n_items
    U, items = stream.random((n, P), dtype=np.float32), stream.random((m, P), dtype=np.float32)
    rows, drawn = np.array([0, 3, 4, n - 1]), np.array([0, 3, 1, 2])
    present = np.isin(np.arange(n), rows)
    told = ProjectedBit((Q, P), 1.0).over(ratings, U, items, SIGNS[:, :m], present).numbers(drawn)
    for number, row, c in zip(told, rows, drawn, strict=True):
        one = np.array([row])
        _, G = factor_gradients_numpy(ratings.indptr, ratings.items, ratings.values, 1.0, one, U, items)
        assert number == pytest.approx((SIGNS[:, :m] / math.sqrt(Q) @ G)[c // P, c % P], rel=1e-5, abs=1e-6)


def test_everybody_reports_a_coordinate_and_a_bit_whatever_she_holds():
    for record in RECORDS.values():
        made = query(record, 50).reports(derive(7, "draw"), seeded("all"), EPSILON)
        assert {name: (a.dtype, a.shape) for name, a in made.items()} == dict.fromkeys(
            ("coordinate", "bit"), (np.dtype(np.int32), (50,))
        )
        assert set(made["bit"]) <= {0, 1}


def test_only_those_who_take_part_report():
    some = query(RECORDS["one"], 50, present=np.isin(np.arange(50), [4, 7, 30]))
    assert len(some.reports(derive(7, "draw"), seeded("some"), EPSILON)["bit"]) == 3


class Script:
    """Coins that always fall alike: a given uniform number, and the truth or a lie."""

    simulated = True

    def __init__(self, uniform, lies):
        self._uniform, self._lies = uniform, lies

    def uniform(self, shape):
        return np.full(shape, self._uniform)

    def words(self, n):
        return np.full(n, 2**64 - 1 if self._lies else 0, dtype=np.uint64)

    def integers(self, high, n):
        return np.zeros(n, dtype=np.int64)


def law(told, number):
    """P(1 | number) as a fraction, from what the code does for each of the 2⁵² uniform numbers and either answer."""

    def ones(lies):
        """For how many uniform numbers, (k + ½)·2⁻⁵², the bit is 1: it changes at most once, found by halving."""
        at = [int(told.bits(np.array([number]), Script((k + 0.5) * 2.0**-52, lies))[0]) for k in (0, 2**52 - 1)]
        if at[0] == at[1]:
            return Fraction(at[0])
        low, high = 0, 2**52 - 1
        while high - low > 1:
            middle = (low + high) // 2
            same = told.bits(np.array([number]), Script((middle + 0.5) * 2.0**-52, lies))[0] == at[0]
            low, high = (middle, high) if same else (low, middle)
        return Fraction(high, 2**52) if at[0] else 1 - Fraction(high, 2**52)

    truth = Fraction(RandomizedResponse(told.epsilon)._threshold, 2**64)
    return truth * ones(lies=False) + (1 - truth) * ones(lies=True)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 6.0])
def test_no_two_records_make_a_report_likelier_by_more_than_e_to_the_epsilon(epsilon):
    """Every coordinate, both bits, every ordered pair of records, in exact arithmetic."""
    told, tight = OneBit(epsilon, BOUND), False
    for c in range(Q * P):
        laws = [law(told, query(record).numbers(np.array([c]))[0]) for record in RECORDS.values()]
        for one, other in permutations(laws, 2):
            assert not exceeds(one, other, epsilon)
            assert not exceeds(1 - one, 1 - other, epsilon)
            tight = tight or one / other > 0.999 * math.exp(epsilon)
    assert tight  # some pair of these records uses all of it


@pytest.mark.parametrize("z", [0.25, 1.0, 8.0])
def test_what_is_charged_for_a_bit_is_what_two_records_can_change(z):
    """Noise z·Δ means ε₀ = 1/z: charged as such, and no pair of records, of any unit or relation, exceeds Δ/z."""
    asked = ProjectedBit((Q, P), BOUND)
    charged = event_of(asked, z, 1, Floats())
    laws = [law(OneBit(1 / z, BOUND), query(record).numbers(np.array([1]))[0]) for record in RECORDS.values()]
    worst = max(max(one / other, (1 - one) / (1 - other)) for one, other in permutations(laws, 2))
    for unit, relation in product(Unit, Relation):
        assert asked.sensitivity(unit, relation) / z == charged.epsilon
        assert math.log(worst) <= asked.sensitivity(unit, relation) / z
    assert math.log(worst) > 0.99 / z


def test_an_empty_record_and_no_number_tell_a_fair_bit():
    for name in ("empty", "no number"):
        number = query(RECORDS[name]).numbers(np.array([1]))[0]
        assert law(OneBit(EPSILON, BOUND), number) == Fraction(1, 2)


@pytest.mark.parametrize("x", [-0.7, -0.5, -0.13, 0.0, 0.2, 0.5, 3.0])
def test_the_law_is_that_of_the_paper(x):
    clipped = max(-BOUND, min(BOUND, x))
    expected = 0.5 + clipped / (2 * BOUND) * math.tanh(EPSILON / 2)
    assert float(law(OneBit(EPSILON, BOUND), x)) == pytest.approx(expected, abs=1e-12)


def leaks(kind=ProjectedGradient, bound=BOUND, epsilon=EPSILON, pairs=tuple(permutations(RECORDS, 2))):
    """Whether some set of reports is too likely under one record beside another: P(S) > e^ε·P'(S).

    Sets are each report (c, b), each coordinate and each bit; both probabilities get a Clopper–Pearson bound, at a
    level that makes a false alarm over all sets and pairs together as rare as `ALARM`, 10⁻⁶.
    """
    counts = {}
    for name in {name for pair in pairs for name in pair}:
        made = query(RECORDS[name], COPIES, kind, bound).reports(
            derive(7, "draw", name), seeded("leaks", name), epsilon
        )
        table = np.zeros((Q * P, 2))
        np.add.at(table, (made["coordinate"], made["bit"]), 1)
        counts[name] = np.concatenate([table.ravel(), table.sum(axis=0), table.sum(axis=1)])
    alarm = ALARM / (2 * len(pairs) * (3 * Q * P + 2))
    for one, other in pairs:
        k, m = counts[one], counts[other]
        low = np.where(k > 0, stats.beta.ppf(alarm, np.maximum(k, 1), COPIES - k + 1), 0.0)
        high = np.where(m < COPIES, stats.beta.isf(alarm, m + 1, np.maximum(COPIES - m, 1)), 1.0)
        if np.any(low > math.exp(epsilon) * high):
            return True
    return False


class ByData(ProjectedGradient):
    """Planted: the coordinate is the one with the longest number."""

    def reports(self, stream, coins, epsilon):
        every = np.stack([self.numbers(np.full(len(self.rows), c)) for c in range(Q * P)])
        drawn = np.argmax(np.abs(np.nan_to_num(every)), axis=0).astype(np.int32)
        return {"coordinate": drawn, "bit": OneBit(epsilon, BOUND).bits(self.numbers(drawn), coins)}


@dataclass(frozen=True)
class Unclipped(OneBit):
    """Planted: the law of the paper in one go, with the clip forgotten."""

    def bits(self, numbers, coins):
        odds = 0.5 + np.nan_to_num(numbers) / (2 * self.bound) * math.tanh(self.epsilon / 2)
        return (coins.uniform(len(numbers)) < odds).astype(np.int32)


@dataclass(frozen=True)
class Unanswered(OneBit):
    """Planted: rounded, and never randomised."""

    def bits(self, numbers, coins):
        return OneBit(math.inf, self.bound).bits(numbers, coins)


class Silent(ProjectedGradient):
    """Planted: a device without ratings always says 0."""

    def reports(self, stream, coins, epsilon):
        made = super().reports(stream, coins, epsilon)
        rated = np.diff(self.ratings.indptr)[self.rows] > 0
        return {**made, "bit": np.where(rated, made["bit"], 0).astype(np.int32)}


PLANTED = {
    "nothing": (OneBit, ProjectedGradient),
    "twice the epsilon": (lambda epsilon, bound: OneBit(2 * epsilon, bound), ProjectedGradient),
    "a fifth more": (lambda epsilon, bound: OneBit(1.2 * epsilon, bound), ProjectedGradient),
    "no clip": (Unclipped, ProjectedGradient),
    "no response": (Unanswered, ProjectedGradient),
    "coordinate by data": (OneBit, ByData),
    "empty is silent": (OneBit, Silent),
}


@pytest.mark.parametrize("name", PLANTED)
def test_reports_tell_no_more_than_they_may_unless_a_bug_is_planted(name, monkeypatch):
    bit, kind = PLANTED[name]
    monkeypatch.setattr(projected, "OneBit", bit)
    assert leaks(kind) == (name != "nothing")


def test_a_wrong_bound_costs_no_privacy():
    """The clip of this law is in the rounding, behind which the response stands: any B keeps ε₀."""
    assert not leaks(bound=1e-6)


def test_bits_are_drawn_anew_for_every_call():
    told, source, numbers = OneBit(EPSILON, BOUND), seeded("anew"), np.zeros(1000)
    assert 0.4 < np.mean(told.bits(numbers, source) != told.bits(numbers, source)) < 0.6  # six standard errors
    assert 0.3 < np.mean(told.bits(numbers, Secure())) < 0.7  # twelve


def deviation(told, gain=1.0, rounds=40, n=5000):
    """The largest distance, in standard errors, of the mean estimate from the true mean of clipped numbers."""
    stream = derive(7, "mean")
    numbers = stream.normal(0.1, BOUND, (n, Q * P))
    truth = np.clip(numbers, -BOUND, BOUND).mean(axis=0)
    found = []
    for r in range(rounds):
        drawn = stream.integers(Q * P, size=n)
        bits = told.bits(numbers[np.arange(n), drawn], seeded("mean", r))
        found.append(gain * estimated(drawn, bits, (Q, P), told).ravel())
    return float(np.max(np.abs(np.mean(found, axis=0) - truth)) / (spread((Q, P), told, n) / math.sqrt(rounds)))


@pytest.mark.parametrize("epsilon", [0.5, 2.0, math.inf])
def test_the_estimate_is_unbiased(epsilon):
    """Four cells within five standard errors: a false alarm in about 400,000."""
    assert deviation(OneBit(epsilon, BOUND)) < 5


def test_a_forgotten_gain_is_noticed():
    told = OneBit(2.0, BOUND)
    assert deviation(told, gain=1 / told.gain, rounds=400) > 5


def test_the_spread_is_what_it_says():
    """400 estimates of four cells at 0, where it is attained; the standard deviation of 1,600 within 10 %, 5.6σ."""
    told, n, stream = OneBit(1.0, BOUND), 500, derive(7, "spread")
    draws = [(stream.integers(Q * P, size=n), told.bits(np.zeros(n), seeded("spread", r))) for r in range(400)]
    phi = SIGNS / math.sqrt(Q)
    cells = [(phi.T @ estimated(c, bits, (Q, P), told))[0] for c, bits in draws]
    assert np.std(cells) == pytest.approx(spread((Q, P), told, n), rel=0.1)


def test_nobody_reports():
    nothing = np.zeros(0, dtype=np.int32)
    assert not estimated(nothing, nothing, (Q, P), OneBit(1.0, 1.0)).any()


@pytest.mark.parametrize(
    ("coordinates", "bits"), [([0, 4], [0, 1]), ([-1, 0], [0, 1]), ([0, 1], [0, 2]), ([0, 1], [1]), ([0], [-1])]
)
def test_forged_reports_are_refused(coordinates, bits):
    with pytest.raises(BadMessage, match="damaged or forged"):
        estimated(np.array(coordinates), np.array(bits), (Q, P), OneBit(1.0, 1.0))


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
def test_an_epsilon_that_cannot_be_kept_is_refused(epsilon):
    with pytest.raises(PrivacyRefused, match="epsilon"):
        OneBit(epsilon, 1.0)


def test_without_an_epsilon_the_sign_is_told_as_it_is():
    told = OneBit(math.inf, BOUND)
    assert told.bits(np.array([BOUND, 9.0, -BOUND, -9.0]), seeded("plain")).tolist() == [1, 1, 0, 0]
    assert told.gain == 1.0
    plain = query(RECORDS["highest"], 9).reports(derive(7, "draw"), seeded("plain"), math.inf)
    drawn = query(RECORDS["highest"], 9).numbers(plain["coordinate"])
    sure = np.abs(drawn) >= BOUND
    assert sure.any()
    np.testing.assert_array_equal(plain["bit"][sure], drawn[sure] > 0)
