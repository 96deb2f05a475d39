"""Private SGDMF on neighbouring ratings: answers move by at most what their noise covers, and nothing else moves."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdmf_cases import CASES, ITEMS, USERS, everybody, extreme_records, neighbour_of
from sgdmf_checks import (
    check_attained,
    check_composition,
    check_empty,
    check_lies,
    check_neighbours,
    check_noise,
    check_own_factors,
    check_projected,
    check_public_quantities,
    check_sampling,
    worst,
)
from sgdmf_talks import PINS, converse, to_corner, wild

from tacit.errors import BadMessage, DataError
from tacit.guarantee import Relation

EVERY = pytest.mark.parametrize("name", CASES)


# -- Δ ----------------------------------------------------------------------------------------------------------------


@EVERY
@given(
    seed=st.integers(0, 2**32),
    pin=st.sampled_from(sorted(PINS)),
    lies=st.booleans(),
    scale=st.sampled_from([(1, 5), (-10, 10)]),
)
@settings(deadline=None, max_examples=10)
def test_neighbours_answers_are_within_what_the_noise_covers(name, seed, pin, lies, scale):
    case = replace(CASES[name], scale=scale)
    records = extreme_records(seed, scale)
    near = neighbour_of(case, records, seed)
    check_neighbours(case, records, near, pin=PINS[pin], send=wild(seed, case.span) if lies else None)


@EVERY
def test_the_worst_neighbours_attain_it(name):
    """So no smaller noise would do; per rating, at factors fitted at home, they go beyond what zero-out would cover."""
    check_attained(everybody(CASES[name]))


@EVERY
def test_the_worst_neighbours_under_a_lying_coordinator_are_within_it(name):
    for seed in (1, 2):
        check_lies(everybody(CASES[name]), seed)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.users in ("pretrained", "together")])
def test_what_is_fitted_to_one_user_is_hers_alone(name):
    check_own_factors(everybody(CASES[name]))


@EVERY
def test_step_sizes_and_weights_are_no_function_of_the_ratings(name):
    check_public_quantities(CASES[name])


@EVERY
def test_an_empty_record_adds_exactly_nothing(name):
    check_empty(CASES[name])
    check_empty(everybody(CASES[name]))


@pytest.mark.parametrize("name", ["horizontal, user, pretrained", "vertical, user"])
def test_an_item_that_one_user_rated_is_not_seen_without_her(name):
    """Its row is exactly 0 once her record is empty; with her ratings it is not."""
    case, lonely = everybody(CASES[name]), ITEMS - 1
    others = [[(j, 4.0) for j in range(lonely)]] * (USERS - 1)
    shown = {}
    for record in ([(lonely, 5.0)], []):
        heard = converse(case, [record, *others], pin=to_corner)
        columns = {member.name: np.asarray(member.columns) == lonely for member in heard.trained.facts.roster}
        rows = [answer.exact["items"][columns[party]] for (party, *_), answer in heard.answers.items()]
        shown[len(record)] = any(row.tobytes() != bytes(row.nbytes) for row in rows)
    assert shown == {1: True, 0: False}


def test_theta_is_exact():
    """With θ ratings or fewer none is dropped, with more exactly θ count: her gradients touch that many rows."""
    case = everybody(CASES["horizontal, user, pretrained"])
    for rated, touched in ((1, 1), (2, 2), (3, 3), (4, 3), (ITEMS, 3)):
        records = [[(j, 5.0) for j in range(rated)], *[[] for _ in range(USERS - 1)]]
        heard = converse(case, records, send=lambda step, t, rows: np.full((rows, 3), 0.1 if step == "improve" else 1))
        counts = {np.count_nonzero(answer.exact["items"].any(axis=1)) for answer in heard.answers.values()}
        assert counts == {0, touched}  # the silo without her, and hers


# -- noise, samples, cost ---------------------------------------------------------------------------------------------


@EVERY
def test_every_cell_of_every_answer_has_the_rule_books_noise(name):
    check_noise(CASES[name])
    plan = CASES[name].plan()
    assert plan.terms.relation is (Relation.REPLACE if CASES[name].replaced else Relation.ZERO_OUT)
    for step, terms in plan.terms.steps.items():
        assert terms.sensitivity == pytest.approx(CASES[name].sensitivity(step))


@EVERY
def test_samples_are_drawn_at_the_rate_that_is_recorded(name):
    check_sampling(replace(CASES[name], sampling=0.5))


@EVERY
def test_what_left_of_one_unit_composes_to_what_was_promised(name):
    check_composition(CASES[name])


# -- what may come in -------------------------------------------------------------------------------------------------


@EVERY
def test_whatever_is_sent_is_projected_before_use(name):
    check_projected(CASES[name])


@EVERY
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_a_number_is_refused_by_schema(name, bad):
    def send(step, t, rows):
        sent = np.ones((rows, 3))
        sent[0, 0] = bad
        return sent

    with pytest.raises(BadMessage, match="not finite"):
        converse(CASES[name], [[(0, 5.0)]] * USERS, send=send)


@EVERY
def test_one_user_may_rate_an_item_once(name):
    with pytest.raises(DataError, match="rate an item once"):
        converse(CASES[name], [[(0, 5.0), (0, 5.0)], *[[] for _ in range(USERS - 1)]])


@EVERY
def test_ratings_off_the_scale_move_no_further(name):
    """Values that no loader lets through, NaN included."""
    case = everybody(CASES[name])
    records, near, how = worst(case)
    for value in (1e30, np.nan):
        poisoned, gone = ([(j, value) for j, _ in record] for record in (records[0], near[0]))
        check_neighbours(case, [poisoned, *records[1:]], [gone, *near[1:]], **how)
