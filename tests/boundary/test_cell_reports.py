"""Reports of single cells of an item gradient: what they are, what they reveal, and what they add up to."""

import math
from dataclasses import dataclass, replace
from itertools import permutations, product

import numpy as np
import pytest
from bounded_cases import ratings_of
from privacy_loss import ALARM, seeded
from scipy import stats

from tacit.boundary import cell_reports
from tacit.boundary.account import epsilon as epsilon_of
from tacit.boundary.cell_reports import CellGradients, CellReports, estimated, spread, variance
from tacit.boundary.code import Floats
from tacit.boundary.events import Pure, Shuffled
from tacit.boundary.piecewise import Piecewise
from tacit.boundary.projected import OneBit
from tacit.boundary.spec import event_of
from tacit.data.vocabulary import Vocabulary
from tacit.errors import BadMessage, UsageError
from tacit.guarantee import Relation, Unit
from tacit.model import Implicit
from tacit.rng import derive

M, F, K, EPSILON, ALPHA = 3, 2, 2, 1.0, 2.0
#: Two opposite items, so that those who took one or the other are at the two ends of the clip.
V = np.array([[0.1, 0.05], [0.0, 0.1], [-0.1, -0.05]], dtype=np.float32)
COPIES = 20_000

#: Records to tell apart: counts by item, some of them huge, and one with none.
RECORDS = {
    "one": {0: 1.0},
    "another": {2: 1.0},
    "all": dict.fromkeys(range(M), 1.0),
    "often": {0: 50.0},
    "another often": {2: 50.0},
    "huge": {0: 1e30, 2: 1.0},
    "empty": {},
    "infinite": {1: math.inf},
    "no number": {0: math.nan, 1: 2.0},
}


def holding(record, copies=1):
    """Devices that all hold the same record."""
    one = ratings_of([sorted(record.items())], M, (0, 100))
    return replace(
        one,
        indptr=len(record) * np.arange(copies + 1),
        items=np.tile(one.items, copies),
        values=np.tile(one.values, copies),
        user_ids=Vocabulary(np.arange(copies), "user"),
    )


def query(record, copies=1, kind=CellGradients, k=K, how="one-bit", present=None):
    ratings = holding(record, copies)
    with np.errstate(all="ignore"):
        x = Implicit(V, ALPHA, 0.1).fold_in(ratings.indptr, ratings.items, ratings.values)
    return kind(CellReports((M, F), ALPHA, k, how), ratings, x, V, present)


@pytest.mark.parametrize("how", ["one-bit", "piecewise", None])
def test_everybody_makes_k_reports_of_one_integer_whatever_they_hold(how):
    for record in RECORDS.values():
        made = query(record, 50, how=how).reports(derive(7, "draw"), seeded("all"), EPSILON)
        assert list(made) == ["report"]
        assert (made["report"].dtype, made["report"].shape) == (np.int32, (50 * K,))
        outcomes = len(CellReports((M, F), ALPHA, K, how).randomizer(EPSILON).values)
        assert made["report"].min() >= 0
        assert made["report"].max() < M * F * outcomes
    some = query(RECORDS["one"], 50, present=np.isin(np.arange(50), [4, 7, 30]))
    assert len(some.reports(derive(7, "draw"), seeded("some"), EPSILON)["report"]) == 3 * K


# -- what they cost --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 7])
def test_k_reports_are_charged_one_by_one(k):
    asked = CellReports((M, F), ALPHA, k)
    assert asked.reports == k
    assert event_of(asked, 2.0, k, Floats()) == Pure(0.5, "randomised reports", k)
    assert event_of(asked, 2.0, k, Floats(), crowd=99) == Shuffled(0.5, 99, k)
    assert epsilon_of([Pure(0.5, "randomised reports", k)], 0.0, Relation.ZERO_OUT) == 0.5 * k
    for unit, relation in product(Unit, Relation):
        assert asked.sensitivity(unit, relation) == 1.0


def leaks(kind=CellGradients, how="one-bit", epsilon=EPSILON, k=1, total=None):
    """Whether some set of a device's reports is too likely under one record beside another: P(S) > e^total·P'(S).

    Sets are all k reports together and each of them alone; both probabilities get a Clopper–Pearson bound, at a level
    that makes a false alarm over all sets and pairs together as rare as `ALARM`, 10⁻⁶. n = 20,000 devices a record.
    """
    outcomes = len(CellReports((M, F), ALPHA, k, how).randomizer(epsilon).values)
    size, total, counts = M * F * outcomes, epsilon if total is None else total, {}
    for name, record in RECORDS.items():
        made = query(record, COPIES, kind, k, how).reports(derive(7, "draw", name), seeded("leaks", name), epsilon)
        drawn = made["report"].reshape(COPIES, k).astype(np.int64)
        together = drawn @ (size ** np.arange(k))
        counts[name] = np.concatenate(
            [np.bincount(together, minlength=size**k), *(np.bincount(one, minlength=size) for one in drawn.T)]
        )
    pairs = list(permutations(RECORDS, 2))
    alarm = ALARM / (2 * len(pairs) * len(counts["one"]))
    for one, other in pairs:
        a, b = counts[one], counts[other]
        low = np.where(a > 0, stats.beta.ppf(alarm, np.maximum(a, 1), COPIES - a + 1), 0.0)
        high = np.where(b < COPIES, stats.beta.isf(alarm, b + 1, np.maximum(COPIES - b, 1)), 1.0)
        if np.any(low > math.exp(total) * high):
            return True
    return False


class ByData(CellGradients):
    """Planted: the cell is the one with the largest number."""

    def reports(self, stream, coins, epsilon):
        each, bit = self.query.per_device, self.query.randomizer(epsilon)
        every = np.tile(np.arange(M * F, dtype=np.int32), len(self.rows))
        numbers = np.nan_to_num(self.numbers(every)).reshape(len(self.rows), -1)
        cells = np.repeat(np.argmax(np.abs(numbers), axis=1).astype(np.int32), each)
        return {"report": cells * 2 + bit.draw(self.numbers(cells), coins)}


class Taken(CellGradients):
    """Planted: cells of items that the device took, as where only those are sent."""

    def reports(self, stream, coins, epsilon):
        made = super().reports(stream, coins, epsilon)["report"]
        first = np.where(
            np.diff(self.ratings.indptr) > 0, np.append(self.ratings.items, 0)[self.ratings.indptr[:-1]], 0
        )
        item = np.repeat(first[self.rows], self.query.per_device).astype(np.int32)
        return {"report": item * F * 2 + made % (2 * F)}


class Reused(CellGradients):
    """Planted: k reports of one cell and one coin are fine, but the second says its sign as it is."""

    def reports(self, stream, coins, epsilon):
        made = super().reports(stream, coins, epsilon)["report"].reshape(len(self.rows), -1)
        made[:, 1] = made[:, 0] // 2 * 2 + (
            self.numbers(np.repeat(made[:, 0] // 2, made.shape[1]))[:: made.shape[1]] > 0
        )
        return {"report": made.ravel()}


@dataclass(frozen=True)
class Unclipped(OneBit):
    """Planted: the law of Algorithm 1 in one go, with its projection to [−1, 1] forgotten."""

    def draw(self, numbers, coins):
        odds = 0.5 + np.nan_to_num(numbers) / 2 * math.tanh(self.epsilon / 2)
        return (coins.uniform(len(numbers)) < odds).astype(np.int32)


@dataclass(frozen=True)
class NoFlip(OneBit):
    """Planted: rounded to a sign, which is never flipped."""

    def draw(self, numbers, coins):
        return OneBit(math.inf, self.bound).bits(numbers, coins)


PLANTED = {
    "nothing": (OneBit, CellGradients),
    "no clip": (Unclipped, CellGradients),
    "no flip": (NoFlip, CellGradients),
    "half as much again": (lambda epsilon, bound: OneBit(1.5 * epsilon, bound), CellGradients),
    "cell by data": (OneBit, ByData),
    "only what was taken": (OneBit, Taken),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_report_reveals_no_more_than_it_may_unless_a_bug_is_planted(name, monkeypatch):
    bit, kind = PLANTED[name]
    monkeypatch.setattr(cell_reports, "OneBit", bit)
    assert leaks(kind) == (name != "nothing")


def test_piecewise_reports_reveal_no_more_than_they_may_either(monkeypatch):
    assert not leaks(how="piecewise")
    monkeypatch.setattr(cell_reports, "Piecewise", lambda epsilon, bound: Piecewise(4 * epsilon, bound))
    assert leaks(how="piecewise")


def test_k_reports_together_reveal_k_times_as_much_and_charging_one_of_them_is_found():
    """Two reports: within 2·ε₀ of each other, and beyond 1·ε₀, so that charging k cells once would be wrong."""
    assert not leaks(k=2, total=2 * EPSILON)
    assert leaks(k=2, epsilon=2.0, total=2.0)
    assert leaks(Reused, k=2, total=2 * EPSILON)


# -- what they add up to ---------------------------------------------------------------------------------------------


def estimates(randomizer, numbers, rounds, n, gain=1.0):
    """Estimates of the mean from n reports each, of devices that all have the gradient `numbers`."""
    stream = derive(7, "mean")
    for r in range(rounds):
        cells = stream.integers(M * F, size=n).astype(np.int32)
        outcomes = randomizer.draw(numbers.ravel()[cells], seeded("mean", r))
        reports = cells * np.int32(len(randomizer.values)) + outcomes
        yield gain * estimated(reports, (M, F), randomizer)


NUMBERS = np.array([[0.0, 0.3], [-1.0, 0.05], [2.5, -0.6]])


@pytest.mark.parametrize("kind", [OneBit, Piecewise])
@pytest.mark.parametrize("epsilon", [0.5, 2.5, math.inf])
def test_the_estimate_is_unbiased_and_its_variance_is_the_formulas(kind, epsilon):
    """400 estimates from n = 2,000 reports, six cells: means within 5σ, a false alarm in 300,000; variances within
    40 %, which is 5.6σ of a normal's."""
    randomizer, rounds, n = kind(epsilon, 1.0), 400, 2000
    found = np.stack(list(estimates(randomizer, NUMBERS, rounds, n)))
    expected = variance(NUMBERS, randomizer, n)
    error = np.abs(found.mean(axis=0) - np.clip(NUMBERS, -1, 1)) / np.sqrt(expected / rounds)
    assert error.max() < 5
    np.testing.assert_allclose(found.var(axis=0), expected, rtol=0.4)
    at_zero = math.sqrt(variance(np.zeros((M, F)), randomizer, n)[0, 0])
    assert spread(M * F, randomizer, n) == pytest.approx(at_zero)


def test_the_variance_of_one_bit_is_that_of_algorithm_1():
    """B² = ((e^ε + 1)/(e^ε − 1)·M·F)² with probability 1/(M·F), less the mean's square."""
    B = (math.exp(2.5) + 1) / (math.exp(2.5) - 1) * M * F
    expected = (B**2 / (M * F) - np.clip(NUMBERS, -1, 1) ** 2) / 100
    np.testing.assert_allclose(variance(NUMBERS, OneBit(2.5, 1.0), 100), expected, rtol=1e-12)


def test_a_forgotten_gain_is_noticed():
    randomizer, rounds, n = OneBit(2.5, 1.0), 400, 2000
    found = np.stack(list(estimates(randomizer, NUMBERS, rounds, n, gain=1 / randomizer.gain)))
    error = np.abs(found.mean(axis=0) - np.clip(NUMBERS, -1, 1)) / np.sqrt(variance(NUMBERS, randomizer, n) / rounds)
    assert error.max() > 5


def test_piecewise_needs_a_quarter_of_the_reports_at_the_papers_epsilon():
    one, several = (variance(np.zeros((50, 5)), kind(2.5, 1.0), 1000)[0, 0] for kind in (OneBit, Piecewise))
    assert several / one == pytest.approx(0.253, abs=0.002)


@pytest.mark.parametrize(("epsilon", "kind"), [(0.1, OneBit), (0.55, OneBit), (0.7, Piecewise), (math.inf, Piecewise)])
def test_by_default_the_better_of_both_reports(epsilon, kind):
    assert type(CellReports((M, F), ALPHA, 1).randomizer(epsilon)) is kind


@pytest.mark.parametrize("wrong", [-1, 2 * M * F, 2**31 - 1])
def test_forged_reports_are_refused(wrong):
    with pytest.raises(BadMessage, match="damaged or forged"):
        estimated(np.array([0, wrong], dtype=np.int32), (M, F), OneBit(1.0, 1.0))


def test_nobody_reports():
    assert not estimated(np.zeros(0, dtype=np.int32), (M, F), OneBit(1.0, 1.0)).any()


@pytest.mark.parametrize("case", [((0, 2), 1.0, 1), ((2**20, 64), 1.0, 1), ((3, 2), 1.0, 0), ((3, 2), math.inf, 1)])
def test_what_cannot_be_reported_is_refused(case):
    with pytest.raises(UsageError):
        CellReports(*case)
