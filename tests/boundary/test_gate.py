"""The gate: what it does to what passes, and what it does not let pass."""

import math

import numpy as np
import pytest

from tacit.boundary import Gate, Unbounded
from tacit.boundary.wire import decode
from tacit.errors import BadMessage, PrivacyRefused
from tacit.guarantee import NON_PRIVATE, Relation, Unit


@pytest.fixture
def gate():
    gate = Gate("party-1", 7, {})
    with gate.serving("s", 1, 0, "request"):
        yield gate


def add(state, gradient, step):
    return {**state, "x": state["x"] + gradient["x"] + step}


def test_a_chain_alternates_query_and_update_and_lets_out_what_is_named(gate):
    query = Unbounded(lambda state, stream: {"x": 2 * state["x"]})
    state = {"x": np.ones(2, dtype=np.float32), "secret": np.zeros(3, dtype=np.float32)}
    release = gate.chain(query, add, state, steps=3, lets_out=("x",))
    payload = decode(release.body)
    assert payload.keys() == {"x"}
    np.testing.assert_array_equal(payload["x"], [32, 32])  # x ← 3x + step: 3, 10, 32
    np.testing.assert_array_equal(gate.home["x"], payload["x"])
    assert "secret" in gate.home


def test_a_chain_leaves_its_callers_state_alone(gate):
    state = {"x": np.ones(2, dtype=np.float32)}
    gate.chain(Unbounded(lambda s, r: {"x": s["x"]}), add, state, steps=2, lets_out=("x",))
    np.testing.assert_array_equal(state["x"], [1, 1])


def test_every_step_of_a_chain_has_a_stream_of_its_own(gate):
    draws = []
    query = Unbounded(lambda s, r: {"x": np.float32(draws.append(r.random()) or 0) * np.ones(1, np.float32)})
    gate.chain(query, add, {"x": np.zeros(1, dtype=np.float32)}, steps=5, lets_out=("x",))
    assert len(set(draws)) == 5


def test_a_release_is_bytes_that_nobody_can_change(gate):
    array = np.ones(3, dtype=np.float32)
    release = gate.sum(Unbounded(lambda s, r: {"x": array}))
    array[:] = 9
    np.testing.assert_array_equal(decode(release.body)["x"], [1, 1, 1])
    with pytest.raises(AttributeError):
        release.body = b""
    assert release.guarantee is NON_PRIVATE


def test_one_release_per_request(gate):
    gate.public("done")
    with pytest.raises(PrivacyRefused, match="two releases"):
        gate.disclose(x=1)


@pytest.mark.parametrize(("fact", "value"), [("loss", True), ("done", False), ("done", 1), ("done", 0.5), ("", True)])
def test_only_agreed_facts_are_public(gate, fact, value):
    with pytest.raises(PrivacyRefused, match="public fact"):
        gate.public(fact, value)


def test_outside_a_request_nothing_leaves_and_nothing_is_drawn():
    gate = Gate("party-1", 7, {})
    for use in (lambda: gate.public("done"), lambda: gate.stream("x"), lambda: gate.disclose(x=1)):
        with pytest.raises(PrivacyRefused, match="outside a request"):
            use()


def test_what_cannot_travel_is_refused(gate):
    with pytest.raises(BadMessage, match="does not travel"):
        gate.disclose(x=np.array([object()]))


@pytest.mark.parametrize("unit", Unit)
@pytest.mark.parametrize("relation", Relation)
def test_a_query_that_bounds_nothing_claims_nothing(unit, relation):
    assert math.isinf(Unbounded(lambda s, r: {}).sensitivity(unit, relation))
