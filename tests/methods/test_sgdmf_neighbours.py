"""Private SGDMF on neighbouring ratings: answers move by at most what their noise covers, and nothing else moves."""

from dataclasses import replace

import numpy as np
import pytest
import sgdmf_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdmf_cases import CASES, USERS, Case, everybody, extreme_records, neighbour_of
from sgdmf_checks import (
    check_composition,
    check_empty,
    check_neighbours,
    check_noise,
    check_projected,
    check_public_quantities,
    check_sampling,
)
from sgdmf_talks import PINS, converse, wild

from tacit.boundary import Gate
from tacit.boundary import clipped_gradients as gradients
from tacit.boundary.clipped_gradients import EmbeddingGradient
from tacit.boundary.mechanisms import Gaussian
from tacit.errors import BadMessage, DataError
from tacit.federation import Facts
from tacit.guarantee import Relation
from tacit.methods.sgdmf.update_rule import UpdateRule
from tacit.prepare import prepared

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
def test_step_sizes_and_weights_are_no_function_of_the_ratings(name):
    check_public_quantities(CASES[name])


@EVERY
def test_an_empty_record_adds_exactly_nothing(name):
    check_empty(CASES[name])
    check_empty(everybody(CASES[name]))


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


# -- bugs that would make a stated ε false, planted one at a time ------------------------------------------------------


HOME, NOISED = CASES["horizontal, user, pretrained"], CASES["horizontal, rating, noised"]
VERTICAL, PER_RATING = CASES["vertical, user"], CASES["vertical, rating"]


def received_factors_are_not_projected(patch):
    patch.setattr(UpdateRule, "project", lambda self, parameters, received, span: received.copy())


def ratings_are_counted(patch):
    """|Ω| as it is, not as it was declared."""
    real = prepared.replace
    patch.setattr(prepared, "replace", lambda facts, ratings=0, **others: real(facts, **others))


def silos_weigh_what_they_hold(patch):
    real = Facts.of.__func__

    def of(cls, parties, seed):
        held = {share.name: 1 + share.ratings.n_ratings for share in parties}
        patch.setattr(Facts, "weight", lambda self, name: held[name] / sum(held.values()))
        return real(cls, parties, seed)

    patch.setattr(Facts, "of", classmethod(of))


def theta_for_items_rows(patch):
    """θ where √θ does: not false, but more noise than the rule book has."""
    stated = staticmethod(lambda size, kept, blocks: 2 * size**1.5 * kept)
    patch.setattr(EmbeddingGradient, "_of_ratings", stated)


def more_are_drawn_than_is_stated(patch):
    real = gradients.sample_users
    patch.setattr(gradients, "sample_users", lambda indptr, rate, *given: real(indptr, min(1, 1.5 * rate), *given))


def users_are_drawn_where_ratings_are_stated(patch):
    patch.setattr(gradients, "sample_ratings", gradients.sample_users)


def only_rows_that_were_touched_are_noised(patch):
    real = Gaussian.noised

    def sparing(self, blocks, source):
        noised = real(self, blocks, source)
        for name, block in blocks.items():
            quiet = np.setdiff1d(np.arange(block.n), block.rows)
            noised[name][quiet] = 0
        return noised

    patch.setattr(Gaussian, "noised", sparing)


def steps_share_their_noise(patch):
    real = Gate._source
    patch.setattr(Gate, "_source", lambda self, purpose, *number: real(self, purpose, *[0] * len(number)))


def half_sampled(case: Case) -> None:
    check_sampling(replace(case, sampling=0.5))


#: What is planted, the check that must fail, and on which case; test_privacy_contracts plants what moves neighbours.
PLANTED = {
    "received factors not projected": (received_factors_are_not_projected, check_projected, everybody(HOME)),
    "received factors not projected, vertical": (
        received_factors_are_not_projected,
        check_projected,
        everybody(VERTICAL),
    ),
    "|Ω| counted": (ratings_are_counted, check_public_quantities, everybody(HOME)),
    "|Ω| counted, vertical": (ratings_are_counted, check_public_quantities, everybody(VERTICAL)),
    "weights from counts": (silos_weigh_what_they_hold, check_public_quantities, everybody(HOME)),
    "θ for items' rows": (theta_for_items_rows, check_noise, everybody(HOME)),
    "sampling stated too low": (more_are_drawn_than_is_stated, half_sampled, HOME),
    "users drawn for ratings": (users_are_drawn_where_ratings_are_stated, half_sampled, PER_RATING),
    "users drawn for ratings, noised": (users_are_drawn_where_ratings_are_stated, half_sampled, NOISED),
    "untouched rows not noised": (only_rows_that_were_touched_are_noised, check_noise, everybody(HOME)),
    "noise used twice": (steps_share_their_noise, check_noise, everybody(VERTICAL)),
}


@pytest.fixture(autouse=True)
def _plans_are_made_anew():
    sgdmf_cases._plan.cache_clear()
    yield
    sgdmf_cases._plan.cache_clear()


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_noticed(name, monkeypatch):
    """The check holds, and with the bug it does not."""
    plant, check, case = PLANTED[name]
    check(case)
    plant(monkeypatch)
    sgdmf_cases._plan.cache_clear()
    with pytest.raises(AssertionError):
        check(case)
