"""The gate: what it does to what passes, what it does not let pass, and that noise that was drawn is charged, once."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from stated import gate_of, grid_of, nothing_promised, promise, step_terms

from tacit.boundary import Gate
from tacit.boundary.events import Gaussian, NonPrivate, Pure, Skellam
from tacit.boundary.ledger import Ledger
from tacit.boundary.query import Mechanism, Query, Unbounded
from tacit.boundary.release import Kind
from tacit.boundary.spec import Terms
from tacit.boundary.wire import decode
from tacit.errors import BadMessage, PrivacyRefused
from tacit.guarantee import NON_PRIVATE
from tacit.secure.quantize import Contributions


def chained(answers):
    """A gate without protection, in the middle of a request for a chain of so many answers."""
    gate = Gate("party-1", 7, {}, terms=nothing_promised(kind=Kind.CHAIN, answers=answers))
    return gate, gate.serving("tell", 1, 0, "request")


@pytest.fixture
def gate():
    gate = Gate("party-1", 7, {}, terms=nothing_promised())
    with gate.serving("tell", 1, 0, "request"):
        yield gate


def add(state, gradient, step):
    return {**state, "x": state["x"] + gradient["x"] + step}


def test_a_chain_alternates_query_and_update_and_lets_out_what_is_named():
    gate, request = chained(3)
    state = {"x": np.ones(2, dtype=np.float32), "secret": np.zeros(3, dtype=np.float32)}
    with request:
        release = gate.chain(lambda s, stream: {"x": 2 * s["x"]}, update=add, state=state, release=("x",))
    payload = decode(release.body)
    assert payload.keys() == {"x"}
    np.testing.assert_array_equal(payload["x"], [32, 32])  # x ← 3x + step: 3, 10, 32
    np.testing.assert_array_equal(gate.home["x"], payload["x"])
    assert "secret" in gate.home
    np.testing.assert_array_equal(state["x"], [1, 1])  # the caller's own


def test_every_step_of_a_chain_has_a_stream_of_its_own():
    draws = []
    gate, request = chained(5)

    def drawn(state, stream):
        draws.append(stream.random())
        return {"x": np.zeros(1, np.float32)}

    with request:
        gate.chain(drawn, update=add, state={"x": np.zeros(1, dtype=np.float32)}, release=("x",))
    assert len(set(draws)) == 5


def test_without_a_ledger_too_what_is_hidden_is_released_as_often_as_was_planned():
    """Two sums over different parties, subtracted, show one party; the count stays at home with what is private."""
    hidden = step_terms(Unbounded(), 0, Kind.CHAIN, sealed=True, mean=True, releases=2, event=NonPrivate())
    gate = Gate("party-1", 7, {}, terms=Terms(NON_PRIVATE, {"tell": hidden}))
    for number in (1, 2):
        with gate.serving("tell", number, 0, f"request {number}"):
            gate.chain(lambda s, stream: {"x": np.ones(2, dtype=np.float32)})
    with gate.serving("tell", 3, 0, "request 3"), pytest.raises(PrivacyRefused, match="and 2 were planned"):
        gate.chain(lambda s, stream: {"x": np.ones(2, dtype=np.float32)})


def test_one_request_gets_one_release_and_every_request_draws_of_its_own(gate):
    gate.sum(lambda s, stream: {"x": np.ones(2, dtype=np.float32)})
    with pytest.raises(PrivacyRefused, match="two releases for one request"):
        gate.sum(lambda s, stream: {"x": np.ones(2, dtype=np.float32)})
    draws = []
    for request in ("one", "other"):
        with gate.serving("tell", 1, 0, request):
            draws.append(gate.stream("sample", 0).random())
    assert draws[0] != draws[1]


def test_a_chain_without_an_update_lets_out_what_was_noised():
    gate, request = chained(1)
    with request:
        release = gate.chain(lambda s, r: {"x": np.arange(3, dtype=np.float32)})
    np.testing.assert_array_equal(decode(release.body)["x"], [0, 1, 2])


@pytest.mark.parametrize("way", ["chain", "report"])
def test_a_step_ends_in_what_its_spec_says(gate, way):
    with pytest.raises(PrivacyRefused, match="states no such release"):
        getattr(gate, way)(lambda s, r: {"x": np.ones(1, np.float32)})


def test_what_nobody_stated_does_not_leave_either_without_a_guarantee():
    gate = Gate("party-1", 7, {})
    with gate.serving("tell", 1, 0, "request"), pytest.raises(PrivacyRefused, match="states no such release"):
        gate.sum(lambda s, r: {"x": np.ones(1, np.float32)})


def test_a_release_is_bytes_that_nobody_can_change(gate):
    array = np.ones(3, dtype=np.float32)
    release = gate.sum(lambda s, r: {"x": array})
    array[:] = 9
    np.testing.assert_array_equal(decode(release.body)["x"], [1, 1, 1])
    with pytest.raises(AttributeError):
        release.body = b""
    assert release.guarantee is NON_PRIVATE


@pytest.mark.parametrize(("fact", "value"), [("loss", True), ("done", False), ("done", 1), ("done", 0.5), ("", True)])
def test_only_agreed_facts_are_public(gate, fact, value):
    with pytest.raises(PrivacyRefused, match="public fact"):
        gate.public(fact, value)


def test_outside_a_request_nothing_leaves_and_nothing_is_drawn():
    gate = Gate("party-1", 7, {})
    for use in (lambda: gate.public("done"), lambda: gate.stream("x"), lambda: gate.disclose(x=1)):
        with pytest.raises(PrivacyRefused, match="outside a request"):
            use()


Z, CELLS = 5.0, 3


class Planted(Exception):
    """What fails, and when: an update, an agreement."""


@dataclass(frozen=True)
class Ones(Query):
    """One user's ones, by any mechanism: a sum, a problem, a report."""

    mechanism: Mechanism = Mechanism.NORMAL

    @property
    def clip(self):
        return math.sqrt(CELLS)

    def sensitivity(self, unit, relation):
        return math.sqrt(CELLS)

    def over(self, present=None):
        return Answered()


class Answered:
    """Everything that can be asked of one user's ones."""

    def exact(self, state, stream):
        return {"x": np.ones(CELLS)}

    __call__ = exact

    def chunks(self, state, stream):
        yield Contributions(np.array([0, CELLS]), np.arange(CELLS), np.ones(CELLS), CELLS)

    def reports(self, stream, coins, epsilon):
        return {"bit": np.zeros(1, dtype=np.int32)}

    def blank(self):
        return {"x": np.zeros(CELLS)}

    def minimisers(self, linear, multiplier, stream):
        return {"x": linear["x"].astype(np.float32)}


def broken_update(state, noised, step):
    raise Planted


def moved(state, noised, step):
    return {"x": noised["x"].astype(np.float32)}


WHOLE = grid_of(Ones(), CELLS, Z)
CHAIN = step_terms(Ones(), Z, Kind.CHAIN, releases=2, answers=2)
#: By name: how something leaves, what it costs, and the step's terms.
WAYS = {
    "chain": (lambda gate: gate.chain(update=moved, release=("x",)), Gaussian(Z, 2), CHAIN),
    "solve": (
        lambda gate: gate.chain(),
        Gaussian(Z, 1),
        step_terms(Ones(Mechanism.PERTURBED), Z, Kind.CHAIN, releases=2, event=Gaussian(Z, 1)),
    ),
    "sum": (lambda gate: gate.sum(), Gaussian(Z, 1), step_terms(Ones(), Z, releases=2)),
    "sum of whole numbers": (
        lambda gate: gate.sum(),
        WHOLE.event(1.0, 1),
        step_terms(Ones(), Z, releases=2, code=WHOLE),
    ),
    "report": (
        lambda gate: gate.report(),
        Pure(0.5, "randomised reports"),
        step_terms(Ones(Mechanism.RESPONSE), 2.0, Kind.REPORT, releases=2),
    ),
}
EVERY = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "party-1.sqlite", "party-1")
    yield ledger
    ledger.close()


def held(ledger, terms):
    return gate_of(ledger, promise(terms), budget=40.0, run="run")


def disagree(kind, payload):
    raise BadMessage("planted")


@EVERY
def test_noise_whose_release_is_not_as_agreed_is_charged(ledger, way):
    leave, event, terms = WAYS[way]
    gate = held(ledger, terms)
    with pytest.raises(BadMessage, match="planted"), gate.serving("tell", 1, 0, "ab" * 32, check=disagree):
        leave(gate)
    assert [row.spent for row in ledger.rows()] == [event]
    assert isinstance(event, (Gaussian, Skellam, Pure))


@EVERY
def test_a_release_that_leaves_is_charged_once(ledger, way):
    leave, event, terms = WAYS[way]
    gate = held(ledger, terms)
    with gate.serving("tell", 1, 0, "ab" * 32):
        assert gate.made(leave(gate))
    assert [row.spent for row in ledger.rows()] == [event]


def test_a_chain_whose_update_fails_is_charged_whole(ledger):
    gate = held(ledger, CHAIN)
    with pytest.raises(Planted), gate.serving("tell", 1, 0, "ab" * 32):
        gate.chain(update=broken_update, release=("x",))
    assert [row.spent for row in ledger.rows()] == [Gaussian(Z, 2)]


def test_what_is_owed_counts_towards_the_schedule(ledger):
    """Two releases were planned for; two that failed leave none."""
    gate = held(ledger, CHAIN)
    for round in (1, 2):
        with pytest.raises(Planted), gate.serving("tell", round, 0, f"{round:064}"):
            gate.chain(update=broken_update, release=("x",))
    with pytest.raises(Exception, match="the run's guarantee covers 2"), gate.serving("tell", 3, 0, f"{3:064}"):
        gate.chain(update=moved, release=("x",))
    assert len(ledger.rows()) == 2


def test_a_refusal_before_any_noise_costs_nothing(ledger):
    gate = held(ledger, CHAIN)
    with pytest.raises(PrivacyRefused, match="states no such release"), gate.serving("tell", 1, 0, "ab" * 32):
        gate.sum()
    gate.store_private("x", np.ones(CELLS))
    with pytest.raises(PrivacyRefused, match="stays at home"), gate.serving("tell", 1, 0, "ab" * 32):
        gate.chain(update=moved, release=("x",))
    assert ledger.rows() == []


@EVERY
def test_noise_that_nobody_owes_would_be_noticed(ledger, monkeypatch, way):
    """Planted: a gate that forgets what it drew; then a failure is free, and may be had until the noise pleases."""
    monkeypatch.setattr(Gate, "_charge_from_here", lambda self, kind, event: None)
    with pytest.raises(AssertionError):
        test_noise_whose_release_is_not_as_agreed_is_charged(ledger, way)
