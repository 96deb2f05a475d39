"""What `auto` releases: one bounded query for each stage, and its part of the budget."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tacit.boundary.clipped_sums import Clipped, Normalised
from tacit.boundary.deviations import Deviations
from tacit.boundary.normalised_rows import NormalisedRows
from tacit.boundary.query import Query
from tacit.boundary.spec import Spec
from tacit.guarantee import Unit
from tacit.methods.auto.choices import choice_specs
from tacit.methods.auto.parameters import OWN_TASTES, AutoParameters
from tacit.methods.context import Context

#: The weight, in a contribution, of the fact that an item was rated, next to how it was rated: in the first sum, and in
#: those of residuals, which are smaller. In quarters of the scale's span.
COUNTED, RESIDUAL_COUNTED = 0.7, 0.3
#: Limits of what one user adds to the summary, and to profiles and tastes; the weight of products of profiles there.
SUMMARY_LIMIT, PRIOR_LIMIT, PRODUCTS = 1.5, 6.0, 0.3
#: How often residuals, prior variances of tastes and factors are measured.
ROUNDS = 2


def tastes_limit(tastes: int) -> float:
    """The largest Frobenius norm of E[zzᵀ] − I that one user adds."""
    return math.sqrt(tastes)


def specs(parameters: AutoParameters, context: Context) -> Sequence[Spec]:
    """The releases of a run; forecasts are for |Ω|/n ratings of each user.

    Guarantee
    ---------
    `summary`, `prior` and `tastes` are sums of vectors that are clipped to a public length (`Clipped`), `means` and
    `residuals` of numbers, `factors` of vectors per item that are scaled to length 1 (`Normalised`, `NormalisedRows`).
    A user without ratings adds exactly 0 to each. Everything else that a contribution depends on, item weights, base,
    metric, prior and directions, is computed by the coordinator from noised sums and public facts. Where one rating is
    the unit there is one release, `Deviations`, which bounds a single rating; tastes stay at home and cost nothing.
    `choice_specs` says the same of the two releases for the ranking.
    """
    facts, shares = context.facts, parameters.shares
    each = max(facts.ratings / facts.users, 1.0)
    k, per_item = OWN_TASTES + (parameters.directions or 0), facts.ratings / facts.items
    if context.unit is Unit.RATING:
        only = Deviations(facts.scale, COUNTED * facts.scale.span / 4)
        return [Spec("means", only, share=1.0, signal=per_item * only.count_weight)]
    queries: dict[str, tuple[Query, int, float]] = {
        "summary": (Clipped(("summary",), SUMMARY_LIMIT), 1, 0.5 * facts.users),
        "means": (Normalised(("errors", "weights")), 1, per_item * COUNTED / math.sqrt(1.5 * each)),
        "prior": (Clipped(("cross", "pairs"), PRIOR_LIMIT), 1, 0.1 * facts.users),
        "tastes": (Clipped(("pairs",), tastes_limit(k)), ROUNDS, 0.1 * facts.users),
        "residuals": (Normalised(("errors", "weights")), ROUNDS, per_item * RESIDUAL_COUNTED / math.sqrt(0.8 * each)),
        "factors": (NormalisedRows("slopes"), ROUNDS, per_item * 0.1 / math.sqrt(each)),
    }
    stated = [
        Spec(step, query, releases=releases, share=shares[step], signal=signal)
        for step, (query, releases, signal) in queries.items()
        if step in shares
    ]
    return [*stated, *choice_specs(parameters, context)]
