"""The gate: what it does to what passes, and what it does not let pass."""

import numpy as np
import pytest
from stated import nothing_promised

from tacit.boundary import Gate
from tacit.boundary.release import Kind
from tacit.boundary.wire import decode
from tacit.errors import PrivacyRefused
from tacit.guarantee import NON_PRIVATE


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
