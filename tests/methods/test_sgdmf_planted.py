"""Bugs that would make a stated ε false, planted one at a time: for each there is a check that fails."""

import math
from dataclasses import replace

import numpy as np
import pytest
import sgdmf_cases
from sgdmf_cases import CASES, Case, everybody
from sgdmf_checks import (
    check_attained,
    check_duplicates,
    check_lies,
    check_neighbours,
    check_noise,
    check_own_factors,
    check_projected,
    check_public_quantities,
    check_sampling,
    worst,
)

from tacit.boundary import Gate
from tacit.boundary import clipped_gradients as gradients
from tacit.boundary.clipped_gradients import EmbeddingGradient, GradientSum
from tacit.boundary.clipped_sums import finite
from tacit.boundary.mechanisms import Gaussian
from tacit.boundary.query import Rows
from tacit.federation import Facts
from tacit.methods.sgdmf.horizontal import HorizontalSilo
from tacit.methods.sgdmf.update_rule import UpdateRule
from tacit.prepare import prepared

HOME, NOISED, REPLACED, VERTICAL, PER_RATING = (
    CASES[name]
    for name in (
        "horizontal, user, pretrained",
        "horizontal, rating, noised",
        "horizontal, rating, pretrained",
        "vertical, user",
        "vertical, rating",
    )
)


# -- sensitivity ------------------------------------------------------------------------------------------------------


def factor_two_is_missing(patch):
    real = EmbeddingGradient._of_ratings
    patch.setattr(EmbeddingGradient, "_of_ratings", staticmethod(lambda *given: real(*given) / 2))


def theta(users: float, items: float):
    """θ to other powers than 2 for users and 1 for items, under the root."""

    def plant(patch):
        def of_ratings(size, kept, blocks):
            squares = sum({"users": kept**users, "items": kept**items}[name] for name in blocks)
            return 2 * size * math.sqrt(size * squares)

        patch.setattr(EmbeddingGradient, "_of_ratings", staticmethod(of_ratings))

    return plant


def trimming_is_ignored(patch):
    patch.setattr(gradients, "trim", lambda part, *given: part)


def duplicates_are_kept(patch):
    patch.setattr(gradients, "check_ratings", lambda *given: None)


# -- what comes from others -------------------------------------------------------------------------------------------


def received_factors_are_not_projected(patch):
    patch.setattr(UpdateRule, "project", lambda self, parameters, received, span: received.copy())


def nobody_projects(patch):
    received_factors_are_not_projected(patch)
    patch.setattr(EmbeddingGradient, "clipped", lambda self, x, rows: np.clip(finite(x[rows]), -1e18, 1e18))


def negative_entries_stay(patch):
    """Rows are scaled to √R, but keep their signs: |u·v − r| reaches 2R."""

    def scaled(self, x, rows):
        x = np.clip(finite(x[rows]), -1e18, 1e18)
        return x / np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True) / math.sqrt(self.scale.span))

    received_factors_are_not_projected(patch)
    patch.setattr(EmbeddingGradient, "clipped", scaled)


def users_share_their_factors(patch):
    real = HorizontalSilo._fitted

    def shared(self, *given):
        users = real(self, *given)
        users[:] = users[0]
        return users

    patch.setattr(HorizontalSilo, "_fitted", shared)


# -- realised counts --------------------------------------------------------------------------------------------------


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


def answers_are_divided_by_what_was_sampled(patch):
    """An expected count over the realised one, so that sizes stay as they are on average."""
    real = GradientSum.exact

    def mean(self, state, stream):
        answer = real(self, state, stream)
        rows = max(1, len(answer["items"].rows))
        return {name: Rows(b.n, b.rows, b.values * self.ratings.n_items / rows) for name, b in answer.items()}

    patch.setattr(GradientSum, "exact", mean)


# -- samples and noise ------------------------------------------------------------------------------------------------


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


# -- each of them -----------------------------------------------------------------------------------------------------


def lies(case: Case) -> None:
    for seed in range(4):
        check_lies(everybody(case), seed)


def neighbours(case: Case) -> None:
    records, near, how = worst(case)
    check_neighbours(case, records, near, **how)


def sampling(case: Case) -> None:
    check_sampling(replace(case, sampling=0.5))


#: What is planted, the check that must fail, and on which case.
PLANTED = {
    "factor 2 missing": (factor_two_is_missing, check_attained, everybody(VERTICAL)),
    "factor 2 missing, users at home": (factor_two_is_missing, check_attained, everybody(HOME)),
    "factor 2 missing, per rating": (factor_two_is_missing, check_attained, everybody(PER_RATING)),
    "√θ for users' rows": (theta(users=1, items=1), check_attained, everybody(VERTICAL)),
    "θ for items' rows": (theta(users=2, items=2), check_attained, everybody(HOME)),
    "θ for items' rows, as noise": (theta(users=2, items=2), check_noise, everybody(HOME)),
    "trimming ignored": (trimming_is_ignored, check_attained, everybody(HOME)),
    "trimming ignored, vertical": (trimming_is_ignored, check_attained, everybody(VERTICAL)),
    "duplicates kept": (duplicates_are_kept, check_duplicates, everybody(HOME)),
    "received factors not projected": (received_factors_are_not_projected, check_projected, everybody(HOME)),
    "received factors not projected, vertical": (
        received_factors_are_not_projected,
        check_projected,
        everybody(VERTICAL),
    ),
    "projected nowhere": (nobody_projects, lies, HOME),
    "projected nowhere, vertical": (nobody_projects, lies, VERTICAL),
    "negative factors": (negative_entries_stay, lies, PER_RATING),
    "users share factors": (users_share_their_factors, check_own_factors, everybody(HOME)),
    "|Ω| counted": (ratings_are_counted, check_public_quantities, everybody(HOME)),
    "|Ω| counted, vertical": (ratings_are_counted, check_public_quantities, everybody(VERTICAL)),
    "weights from counts": (silos_weigh_what_they_hold, check_public_quantities, everybody(HOME)),
    "divided by what was sampled": (answers_are_divided_by_what_was_sampled, neighbours, everybody(HOME)),
    "sampling stated too low": (more_are_drawn_than_is_stated, sampling, HOME),
    "users drawn for ratings": (users_are_drawn_where_ratings_are_stated, sampling, PER_RATING),
    "users drawn for ratings, noised": (users_are_drawn_where_ratings_are_stated, sampling, NOISED),
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
