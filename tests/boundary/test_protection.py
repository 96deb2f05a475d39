"""The gate with a protection: what it adds, what it charges, what it refuses."""

import re
from collections import Counter

import numpy as np
import pytest
from privacy_loss import seeded
from stated import DELTA, deployed, gate_of, grid_of, promise, step_terms

from tacit.aggregation.ideal import Ideal
from tacit.boundary import Gate
from tacit.boundary import mechanisms as mechanism
from tacit.boundary.account import epsilon
from tacit.boundary.clipped_sums import Clipped
from tacit.boundary.code import SEALED, Floats
from tacit.boundary.events import Gaussian
from tacit.boundary.filters import Filter
from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import BudgetSpent, Protection, Tally, total_epsilon
from tacit.boundary.query import Unbounded
from tacit.boundary.release import Kind
from tacit.boundary.spec import Terms
from tacit.boundary.wire import decode
from tacit.errors import PrivacyRefused
from tacit.guarantee import Relation
from tacit.partition import Setting
from tacit.secure.masks import unpack

Z = 2.0
CELLS = 4000

#: Vectors of norm at most 1, and the whole numbers that a hidden sum of them is made of, spread over all cells.
QUERY = Clipped(("x",), 1.0)
GRID = grid_of(QUERY, CELLS, Z)
IDEAL = Ideal(Setting.HORIZONTAL, 4)


def promised(releases: int, kind=Kind.SUM, answers=1, own_noise=True, z=Z, **more) -> Terms:
    hidden = {} if own_noise else {"code": GRID, "sealed": True}
    return promise(step_terms(QUERY, z, kind, releases=releases, answers=answers, **hidden), **more)


def make(tmp_path, releases=3, own_noise=True, kind=Kind.SUM, answers=1, **options) -> Gate:
    how = None if own_noise else IDEAL
    return gate_of(tmp_path, promised(releases, kind, answers, own_noise), how=how, **options)


def one_user(cells=CELLS, value=0.0):
    """One user, whose vector is spread over all cells."""
    return {"x": np.full((1, cells), value)}, np.ones(1, dtype=np.int64)


def tell(gate, number=1, request=None, attempt=0, what=None, **options):
    terms = ("tell", number, attempt, request or f"request {number}")
    recorded = gate.repeated(*terms)
    if recorded is not None:
        return recorded
    with gate.serving(*terms):
        return gate.sum(*(what or one_user()), **options)


def moved(state, noised, step):
    return {**state, "x": state["x"] + noised["x"]}


def noise(release) -> np.ndarray:
    return decode(release.body)["x"]


#: Five standard deviations of the sample variance of 4,000 cells: a false alarm in about two million.
ALARM = 5 * np.sqrt(2 / CELLS)


def off(folder, way="sum", devices=0):
    """By how much the variance of a release's noise differs from what the terms state, in parts of it."""
    if way == "integers":
        release = tell(gate_of(folder, promise(step_terms(QUERY, Z, code=GRID))))
        return abs(np.var(GRID.numbers(unpack(decode(release.body)[SEALED], CELLS, GRID.bits))) / GRID.sigma**2 - 1)
    gate = make(folder, kind=Kind(way), devices=devices)
    with gate.serving("tell", 1, 0, "request"):
        release = (gate.sum if way == "sum" else gate.chain)(*one_user())
    assert gate.protection.ledger.events() == [Gaussian(Z)]
    return abs(np.var(noise(release)) / (max(1, devices) * Z**2) - 1)


@pytest.mark.parametrize(("way", "devices"), [("sum", 0), ("sum", 9), ("chain", 0), ("integers", 0)])
def test_noise_has_the_size_that_the_terms_state(tmp_path, monkeypatch, way, devices):
    """Planted where sums and chains get theirs, half of the noise is noticed."""
    assert off(tmp_path / "as it is", way, devices) < ALARM
    gaussian, skellam = mechanism.Gaussian.noised, mechanism.Skellam
    monkeypatch.setattr(
        mechanism.Gaussian, "noised", lambda self, x, s: gaussian(mechanism.Gaussian(self.sigma / 2), x, s)
    )
    monkeypatch.setattr(mechanism, "Skellam", lambda variance: skellam(variance / 4))
    assert off(tmp_path / "planted", way, devices) > ALARM


def test_every_contributor_adds_all_of_the_noise_where_each_has_its_own():
    """A cohort of nine devices: nine times the variance, within 5 % of 40,000 cells (7 standard deviations)."""
    grid = grid_of(Clipped(("x",), 1.0), 4, 2.0)
    for contributors in (1, 9):
        floats = Floats(2.0).noised({"x": np.zeros(40_000)}, contributors, seeded("floats"))["x"]
        assert floats.var() == pytest.approx(4.0 * contributors, rel=0.05)
        integers = grid.noised(np.zeros(40_000, dtype=np.int64), contributors, seeded("integers"))
        assert integers.var() == pytest.approx(grid.variance * contributors, rel=0.05)


def test_noise_of_half_the_sensitivity_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(Clipped, "sensitivity", lambda self, unit, relation: 0.5)
    assert off(tmp_path) > ALARM


def correlation(tmp_path):
    """The largest between two releases of one gate, and of two gates for different requests."""
    gate = make(tmp_path)
    draws = [noise(tell(gate, 1)), noise(tell(gate, 2)), noise(tell(make(tmp_path / "other"), request="another"))]
    return np.abs(np.corrcoef(draws) - np.eye(3)).max()


def test_every_release_has_fresh_noise(tmp_path, monkeypatch):
    assert correlation(tmp_path / "as it is") < 5 / np.sqrt(CELLS)
    monkeypatch.setattr("tacit.boundary.base_gate.stream_key", lambda *purpose: bytes(32))
    assert correlation(tmp_path / "planted") > 0.99


def test_cells_without_contributions_are_noised_too(tmp_path):
    nobody = {"x": np.zeros((0, 50))}, np.zeros(0, dtype=np.int64)
    assert np.all(noise(tell(make(tmp_path), what=nobody)) != 0)


def test_every_step_of_a_chain_is_noised(tmp_path):
    gate = make(tmp_path, kind=Kind.CHAIN, answers=3)
    with gate.serving("tell", 1, 0, "request"):
        release = gate.chain(*one_user(), update=moved, state={"x": np.zeros(CELLS, np.float32)}, release=("x",))
    assert abs(np.var(noise(release)) / (3 * Z**2) - 1) < 5 * np.sqrt(2 / CELLS)
    assert gate.protection.ledger.events() == [Gaussian(Z, 3)]


def test_where_the_aggregation_brings_the_noise_the_contribution_leaves_sealed(tmp_path):
    gate = make(tmp_path, own_noise=False)
    release = tell(gate, what=one_user(value=1.0))
    whole = GRID.numbers(unpack(decode(release.body)[SEALED], CELLS, GRID.bits))
    np.testing.assert_allclose(whole, 1 / np.sqrt(CELLS), atol=GRID.rounding.step)
    assert abs(whole.mean() * np.sqrt(CELLS) - 1) < 0.01
    from tacit.boundary.wire import digest

    assert release.payload != digest(release.body)


def test_the_same_request_gets_the_same_bytes_for_free_in_this_process_and_another(tmp_path):
    gate = make(tmp_path)
    first = tell(gate)
    for again in (gate, make(tmp_path)):
        assert (tell(again).body, tell(again).head) == (first.body, first.head)
        assert again.made(again._made)
    assert len(gate.protection.ledger.rows()) == 1


def test_another_request_for_the_same_round_is_refused_and_another_attempt_is_charged(tmp_path):
    gate = make(tmp_path)
    tell(gate, 1)
    with pytest.raises(PrivacyRefused, match="another request"):
        tell(gate, 1, request="other terms")
    assert len(gate.protection.ledger.rows()) == 1
    tell(gate, 1, request="attempt 1", attempt=1)
    assert len(gate.protection.ledger.rows()) == 2
    with pytest.raises(PrivacyRefused, match="stores only its digest"):
        tell(gate, 1)
    assert len(gate.protection.ledger.rows()) == 2


def test_a_release_is_in_the_ledger_before_it_is_made(tmp_path):
    gate = make(tmp_path)
    release = tell(gate)
    (row,) = gate.protection.ledger.rows()
    assert row.spent == Gaussian(Z)
    assert (row.head, row.event, row.payload) == (release.head, release.event, release.payload)
    assert str(release.guarantee).endswith("SIMULATED (seeded)")


def test_a_release_that_cannot_be_recorded_is_not_made(tmp_path, monkeypatch):
    gate = make(tmp_path)
    monkeypatch.setattr(Ledger, "record", lambda self, **kwargs: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        tell(gate)
    assert not gate.made(gate._made)


def test_another_deployed_run_of_the_same_file_is_charged_anew_and_meets_other_noise(tmp_path):
    """Requests of two runs of one file are the same bytes; only where noise is drawn may the second be answered."""
    one, other = (deployed(make(tmp_path, run=run)) for run in ("run-1", "run-2"))
    first, second = tell(one), tell(other)
    assert len(other.protection.ledger.rows()) == 2
    assert not np.any(noise(first) == noise(second))
    assert other.protection.reading() > 1.2 * epsilon([Gaussian(Z)], DELTA, Relation.ZERO_OUT)
    assert tell(other).body == second.body
    assert len(other.protection.ledger.rows()) == 2


def test_another_seeded_run_of_the_same_file_would_meet_the_same_noise_and_is_refused(tmp_path):
    tell(make(tmp_path, run="run-1"))
    gate = make(tmp_path, run="run-2")
    with pytest.raises(PrivacyRefused, match="another run of the same file and seed"):
        tell(gate)
    assert len(gate.protection.ledger.rows()) == 1


def improve(gate, number, release=("x",)):
    state = {"x": gate.home.get("x", np.zeros(CELLS, np.float32)), "y": np.arange(5, dtype=np.float32)}
    with gate.serving("tell", number, 0, f"request {number}"):
        return gate.chain(*one_user(), update=moved, state=state, release=release)


def test_a_block_that_left_is_kept_once_and_comes_back(tmp_path):
    gate = make(tmp_path, kind=Kind.CHAIN)
    improve(gate, 1)
    ledger, once = gate.protection.ledger, 4 * CELLS
    assert len(ledger.state()) < once / 2 < once <= len(ledger.body())
    again = make(tmp_path, kind=Kind.CHAIN)
    assert again.home.keys() == gate.home.keys() == {"x", "y"}
    for name, block in gate.home.items():
        np.testing.assert_array_equal(again.home[name], block)
        assert again.home[name].flags.writeable
    improve(again, 2)
    with again.serving("tell", 2, 0, "request 3"):
        again.public("done")
    np.testing.assert_array_equal(make(tmp_path, kind=Kind.CHAIN).home["x"], again.home["x"])
    assert again.protection.ledger.verify() == 3


def test_what_the_terms_do_not_state_is_refused(tmp_path):
    gate = make(tmp_path)
    with gate.serving("tell", 1, 0, "r"):
        with pytest.raises(PrivacyRefused, match="as it is"):
            gate.disclose(x=1)
        with pytest.raises(PrivacyRefused, match="no event accounts for"):
            gate._release(Kind.SUM, {"x": np.zeros(3)}, None)
        for leave in (gate.report, gate.chain):
            with pytest.raises(PrivacyRefused, match="states no such release"):
                leave(*one_user())
    with gate.serving("gossip", 1, 0, "r"), pytest.raises(PrivacyRefused, match="states no such release"):
        gate.sum(*one_user())
    with pytest.raises(PrivacyRefused, match="covers 0"):
        gate.protection.admit("gossip")
    assert gate.protection.ledger.rows() == []


def test_more_releases_than_the_guarantee_covers_are_refused_whichever_process_made_them(tmp_path):
    one, other = (make(tmp_path, releases=2) for _ in range(2))
    tell(one, 1)
    tell(other, 2)
    for gate in (one, other, make(tmp_path, releases=2)):
        with pytest.raises(PrivacyRefused, match="covers 2"):
            tell(gate, 3)
    assert len(one.protection.ledger.rows()) == 2


def test_a_run_over_the_budget_is_refused_before_its_first_release_even_a_public_one(tmp_path):
    gate = make(tmp_path, releases=3, budget=1.0)
    with pytest.raises(BudgetSpent, match="its budget is 1"):
        tell(gate)
    with gate.serving("ready", 1, 0, "request 1"), pytest.raises(BudgetSpent):
        gate.public("done")
    with gate.serving("advertise:tell", 1, 0, "request 2"), pytest.raises(BudgetSpent):
        gate.exchange("advertise", {"context": "00"})
    assert gate.protection.ledger.rows() == []


def test_a_query_that_bounds_nothing_leaves_under_no_guarantee(tmp_path):
    """Whatever the terms say: noise without a bound has no size, and a step cannot bring a query of its own."""
    gate = gate_of(tmp_path, promise(step_terms(Unbounded(), Z), stated=1.0))
    with pytest.raises(PrivacyRefused, match="protects no one"):
        tell(gate, what=(lambda s, r: {"x": np.zeros(3)},))


@pytest.mark.parametrize("budget", [0.5, 2.0, 4.0])
@pytest.mark.parametrize("runs", [1, 2])
def test_a_refusal_says_the_budget_that_would_do(tmp_path, budget, runs):
    """With what it names the run is let in, and with 2 % less it is not; a first run and one after another alike."""
    last = f"run-{runs}"
    if runs == 2:
        tell(make(tmp_path, budget=100.0, run="run-1"))

    def asked(budget):
        gate = make(tmp_path, budget=budget, run=last)
        gate.protection.check_budget()

    with pytest.raises(BudgetSpent) as refusal:
        asked(budget)
    needed = float(re.search(r"ε = ([\d.]+)", str(refusal.value)).group(1))
    asked(1.001 * needed)
    with pytest.raises(BudgetSpent):
        asked(0.98 * needed)


@pytest.mark.parametrize("room", [1.6, 20.0])
def test_everybody_reads_the_same_epsilon_and_it_is_within_the_budget(tmp_path, room):
    """A tight budget and a wide one: what a service says of itself is what a reader of its ledger finds."""
    one = promised(3).guarantee.epsilon
    for run in ("run-1", "run-2"):
        gate = make(tmp_path, budget=room * one, run=run)
        for number in (1, 2, 3):
            tell(gate, number, request=f"{run}, {number}")
    protection, rows = gate.protection, gate.protection.ledger.rows()
    assert one < protection.reading() <= room * one
    assert total_epsilon(rows, DELTA, budget=room * one) == pytest.approx(protection.reading())
    veto = Filter(room * one, DELTA, Relation.ZERO_OUT, promised(3).events).spent([row.spent for row in rows])
    assert protection.reading() <= min(veto, total_epsilon(rows, DELTA))
    assert protection.reading() < 2 * one


def test_releases_that_are_not_counted_are_noticed(tmp_path, monkeypatch):
    """Planted: the plan's number is never reached, and more leaves than the guarantee covers."""
    monkeypatch.setattr(Tally, "made", lambda self: Counter())
    gate = make(tmp_path, releases=2)
    for number in (1, 2):
        tell(gate, number)
    with pytest.raises(PrivacyRefused, match="more in step"):
        tell(gate, 3)
    monkeypatch.setattr(Protection, "_most", lambda self: Counter({Gaussian(Z): 99}))
    tell(gate, 3)
    promised_, rows = gate.protection.terms.guarantee, gate.protection.ledger.rows()
    assert total_epsilon(rows, DELTA) > promised_.epsilon


def test_sealed_sums_share_their_retries(tmp_path):
    """One retry for two sums: whichever takes it, the other gets none; and what they cost covers either."""
    one, other = (
        step_terms(QUERY, z, step=n, code=grid_of(QUERY, CELLS, z), sealed=True) for n, z in (("a", 2), ("b", 3))
    )
    terms = promise(one, other, retries=1)
    for first, second in (("a", "b"), ("b", "a")):
        gate = gate_of(tmp_path / first, terms, how=IDEAL)
        for step, attempt in ((first, 0), (first, 1), (second, 0)):
            with gate.serving(step, 1, attempt, f"{step} {attempt}"):
                gate.sum(*one_user())
        for step in (first, second):
            with gate.serving(step, 1, 2, f"{step} once more"), pytest.raises(PrivacyRefused, match="guarantee covers"):
                gate.sum(*one_user())
        rows = gate.protection.ledger.rows()
        assert len(rows) == 3
        assert epsilon([row.spent for row in rows], DELTA, Relation.ZERO_OUT) <= terms.guarantee.epsilon * (1 + 1e-9)


def test_a_veto_that_looks_away_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(Protection, "would_reach", lambda self: 0.0)
    gate = make(tmp_path, releases=3, budget=1.0)
    tell(gate)
    assert total_epsilon(gate.protection.ledger.rows(), DELTA) > 1.0
