"""The noise that real secure sums leave: as much as was calibrated, whoever drops out and whoever subtracts its own.

Every sum goes through the real protocol, between parties in this process, and what was released less what was exact is
looked at cell by cell. Seeds are fixed, so that the chance of a false alarm, stated beside each test, was taken once.
"""

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from scipy import stats

from tacit.aggregation.ideal import HiddenSum
from tacit.aggregation.secagg import SecAgg
from tacit.boundary.mechanisms import Skellam
from tacit.boundary.protection import Budget
from tacit.boundary.randomness import Keyed, Seeded
from tacit.config import AggregationSection, PrivacySection
from tacit.data.public_facts import PublicFacts
from tacit.data.synthetic import demo
from tacit.engine.inprocess import InProcess
from tacit.federation import Facts
from tacit.federation.dropout import Attendance
from tacit.methods.bias import BIAS, BiasParameters
from tacit.partition import partition
from tacit.prepare.prepared import PreparedRun, Record
from tacit.rng import stream_key
from tacit.secure.noise_shares import NoiseShares
from tacit.testing.adversary import InMemory

SILOS, ITEMS, TOLERATE = 10, 10_000, 0.3
CELLS = 2 * ITEMS
#: Standard deviations of a sample variance of that many cells, and how many of them are allowed for: chance goes beyond
#: on one side once in 3.5 million times.
SPREAD, ALLOWED = math.sqrt(2 / CELLS), 5.0
DATA = demo(users=SILOS, items=ITEMS, ratings=200)


@dataclass
class Seen:
    """One sum: by party what it added before its noise, and its share; what was released; what was taken out."""

    exact: dict = field(default_factory=dict)
    kept: dict = field(default_factory=dict)
    released: np.ndarray = None
    taken: np.ndarray = None
    survivors: int = 0
    plan: object = None

    @property
    def grid(self):
        return self.plan.terms.steps["contribute"].code

    @property
    def shares(self):
        return self.plan.how.shares

    @property
    def noise(self):
        return self.released - sum(self.exact.values())


def attend(gone):
    """An attendance in which each of `gone`, a map from party to exchange, is away from that exchange on."""

    def over(facts, dropout, round, call, exchanges):
        there = []
        for at in range(exchanges):
            away = {name: np.array([at < last]) for name, last in gone.items()}
            there.append(Attendance(away, away))
        return there

    return over


def secure_sum(gone=None, by="user", seed=7, parties=SILOS):
    """One real sum of `bias`, with everything that an experimenter can see of it."""
    seen = Seen()
    divided = partition(DATA, into=parties if by == "user" else 1, by=by)
    run = PreparedRun.of(
        BIAS,
        BiasParameters(),
        Facts.of(divided, seed),
        privacy=PrivacySection(epsilon=1.0, delta=1e-6),
        aggregation=AggregationSection(name="secagg", tolerate=TOLERATE),
        public=PublicFacts(DATA.n_users, ITEMS, DATA.scale, 200),
        run="run",
    )
    assert sum(max(1, share.devices) for share in divided) == run.how.parties
    seen.plan, budget = run.plan, Budget(1.0, run.plan.delta)
    members = [run.party(share, Record(InMemory(share.name), budget)) for share in divided]
    contributed, excess_of = {}, SecAgg._excess

    def noted(kind):
        noised = kind.noised

        def note(self, exact, terms, endpoint):
            by_name = {party.name: party for party in members}
            contributed[endpoint.party] = exact, by_name[endpoint.party].gate._serving()
            return noised(self, exact, terms, endpoint)

        return note

    def excess(*args):
        seen.taken = excess_of(*args)
        return seen.taken

    federation = run.federation(InProcess(members, workers=1))
    with pytest.MonkeyPatch.context() as patched:
        for kind in (SecAgg, HiddenSum):
            patched.setattr(kind, "noised", noted(kind))
        patched.setattr(SecAgg, "_excess", excess)
        patched.setattr(Attendance, "over", attend(gone or {}))
        for _ in federation.rounds(1):
            total = federation.sum("contribute")
    flat = np.concatenate([total["errors"], total["weights"]]).astype(np.float64) / seen.grid.rounding.step
    seen.released, seen.survivors = np.rint(flat).astype(np.int64), total.contributors
    np.testing.assert_array_equal(seen.released, flat)  # the step is a power of two, so float32 lost nothing
    stayed = [party for party in members if (gone or {}).get(party.name, 5) >= 4]
    seen.exact = {party.name: contributed[party.name][0] for party in stayed}
    if by == "user":
        seen.kept = {party.name: kept_share(party, seen, contributed[party.name][1]) for party in stayed}
    return seen


def kept_share(party, seen, served):
    """What is left of one party's share, recomputed from its own streams, as only it can."""
    shares, variance, own = seen.shares, seen.grid.variance, party.gate
    source = Seeded(own._key("noise", served.round, served.step, 0, served.hash))
    share = Skellam(shares.base(variance)).sample(CELLS, source)
    for level, more in list(enumerate(shares.excess(variance)))[shares.spare(seen.survivors) :]:
        share = share + Skellam(more).sample(CELLS, Keyed(own._key("excess", level, served.hash)))
    return share


def spread_of(noise):
    """The sample variance, whose mean is known to be 0."""
    return float(np.mean(np.square(noise, dtype=np.float64)))


def too_small(noise, variance):
    """Whether noise is of less than this variance, beyond chance."""
    return spread_of(noise) < variance * (1 - ALLOWED * SPREAD)


#: By how many drop out: who, and before which exchange (advertise, share, collect, sum, unmask).
GONE = {0: {}, 1: {"party-6": 3}, 3: {"party-1": 1, "party-4": 2, "party-10": 3}}


@pytest.fixture(scope="module", params=GONE, ids=lambda k: f"{k} of {SILOS} gone")
def seen(request):
    return secure_sum(GONE[request.param])


def test_the_noise_on_the_sum_is_what_the_shares_leave(seen):
    """20,000 cells, both sides: a false alarm in about 1.7 million, for each of three numbers of survivors."""
    expected = seen.shares.remaining_variance(seen.grid.variance, seen.survivors)
    assert seen.survivors == len(seen.exact) == SILOS - len(GONE[SILOS - seen.survivors])
    assert abs(spread_of(seen.noise) / expected - 1) < ALLOWED * SPREAD
    assert abs(seen.noise.mean()) < ALLOWED * math.sqrt(expected / CELLS)


def test_the_noise_is_the_sum_of_the_survivors_kept_shares_to_the_last_bit(seen):
    np.testing.assert_array_equal(seen.noise, sum(seen.kept.values()))


def test_no_party_that_subtracts_its_own_share_is_left_with_too_little(seen):
    """Up to 10 one-sided comparisons: a false alarm in about 350,000."""
    assert [name for name, share in seen.kept.items() if too_small(seen.noise - share, seen.grid.variance)] == []


def test_shares_of_different_parties_are_independent(seen):
    """45 correlations at most, each beyond 5.5 standard deviations once in 26 million."""
    correlations = np.corrcoef(np.stack(list(seen.kept.values())))
    off = correlations[~np.eye(len(correlations), dtype=bool)]
    assert np.abs(off).max() < 5.5 / math.sqrt(CELLS)


def test_taking_out_one_piece_too_many_is_noticed(monkeypatch):
    """Planted bug: parties reveal the seeds of one more level than the survivors allow."""
    spare = NoiseShares.spare
    monkeypatch.setattr(NoiseShares, "spare", lambda self, n: min(self.extras, spare(self, n) + 1))
    few = secure_sum(GONE[3])
    assert too_small(few.noise - next(iter(few.kept.values())), few.grid.variance)


def test_shares_sized_without_colluders_are_noticed(monkeypatch):
    """Planted bug: c = 0. The sum has enough, but a party that subtracts its own share is left with too little."""
    monkeypatch.setattr(NoiseShares, "base", lambda self, v: v / self.parties)
    monkeypatch.setattr(NoiseShares, "excess", lambda self, v: tuple(1e-6 * v for _ in range(self.extras)))
    seen = secure_sum()
    assert any(too_small(seen.noise - share, seen.grid.variance) for share in seen.kept.values())


def test_taking_out_other_noise_than_was_added_is_noticed(monkeypatch):
    """Planted bug: the coordinator grows the spare noise from other seeds than the parties."""
    right = SecAgg._excess

    def wrong(self, revealed, *others):
        mixed = {name: {level: seed[::-1] for level, seed in seeds.items()} for name, seeds in revealed.items()}
        return right(self, mixed, *others)

    monkeypatch.setattr(SecAgg, "_excess", wrong)
    seen = secure_sum()
    assert spread_of(seen.noise) > seen.shares.remaining_variance(seen.grid.variance, SILOS) * (1 + ALLOWED * SPREAD)
    assert not np.array_equal(seen.noise, sum(seen.kept.values()))


@pytest.fixture(scope="module")
def cohort():
    """Ten devices in one cohort: their noise is drawn at once."""
    return secure_sum(by="device")


def test_a_cohort_has_the_distribution_of_single_shares(cohort, seen):
    """Kolmogorov and Smirnov over 2 × 20,000 cells, each divided by its standard deviation, false alarm 10⁻⁶; and both
    against the exact distribution, in 50 bins by chi-square, 10⁻⁶ each."""
    samples = []
    for one in (cohort, seen):
        variance = one.shares.remaining_variance(one.grid.variance, one.survivors)
        edges = stats.norm.ppf(np.linspace(0, 1, 51)[1:-1], scale=math.sqrt(variance)).round() + 0.5
        counts = np.bincount(np.searchsorted(edges, one.noise), minlength=50)
        below = np.concatenate([[0], stats.norm.cdf(edges, scale=math.sqrt(variance)), [1]])
        assert stats.chisquare(counts, CELLS * np.diff(below)).pvalue > 1e-6
        samples.append(one.noise / math.sqrt(variance))
    assert stats.ks_2samp(*samples).pvalue > 1e-6


def best_average(first, second):
    """The least variance of w·first + (1 − w)·second over all w: what whoever sees both can have."""
    a, b, both = spread_of(first), spread_of(second), float(np.mean(first * second))
    w = (b - both) / max(a + b - 2 * both, 1e-9)
    return spread_of(w * first + (1 - w) * second)


def test_replacing_noise_shows_the_sum_twice():
    """P0, Theorem 5, as it stands: shares of σ²/((1 − ω)n) at first; then those that stayed, here all, send −ξ + ξ'
    with ξ' of σ²/n. The coordinator has seen the sum under ξ and under ξ': averaged, σ²/(2 − ω) is left."""
    variance, size = 1e6, CELLS
    source = Seeded(stream_key(7, "replaced"))
    first = sum(Skellam(variance / ((1 - TOLERATE) * SILOS)).sample(size, source) for _ in range(SILOS))
    fresh = sum(Skellam(variance / SILOS).sample(size, source) for _ in range(SILOS))
    second = first + (fresh - first)
    assert not too_small(first, variance)
    assert not too_small(second, variance)
    assert best_average(first, second) < variance * (1 - ALLOWED * SPREAD)
    assert best_average(first, second) / variance == pytest.approx(1 / (2 - TOLERATE), rel=0.05)


def test_taking_noise_out_shows_it_once(seen):
    """Before and after the spare noise is taken out: no average of the two has less noise than the second alone."""
    after, before = seen.noise, seen.noise + seen.taken
    assert best_average(before, after) > seen.grid.variance * (1 - ALLOWED * SPREAD)
    assert best_average(before, after) >= spread_of(after) * (1 - 30 / CELLS)
    if seen.taken.any():
        assert abs(np.corrcoef(seen.taken, after)[0, 1]) < 5 / math.sqrt(CELLS)
