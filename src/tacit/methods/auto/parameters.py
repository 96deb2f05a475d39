"""Parameters of `auto`, and the rule that divides the budget among its stages by μ and n alone."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from tacit.data.ratings import Feedback
from tacit.errors import UsageError
from tacit.guarantee import Unit
from tacit.methods.auto.choice_rule import choice_budget, head_sizes
from tacit.methods.context import Context
from tacit.methods.method import Parameters

#: At most so many principal directions of public features become tastes, and so many for one feature column; the larger
#: number where there are more than so many columns: tags, or text.
MOST_DIRECTIONS, PER_FEATURE, MOST_OF_TEXT, TEXT = 40, 8, 100, 100
#: Tastes that need no features: a constant, popularity, and the item's mean.
OWN_TASTES = 3
#: The strongest directions whose means are expected of a user's profile, and those that profiles are made of.
MOST_EXPECTED, MOST_PROFILED = 12, 8
#: How tastes vary is measured where there are at most this times μ·n of them: else noise hides it.
PER_PAIR = 0.025
#: The number of users at which the rule's constants were found.
REFERENCE_USERS = 6040

#: Parts of the budget for what is computed from a whole record.
OF_RECORDS = ("summary_share", "prior_share", "tastes_share", "residuals_share", "factors_share")

Share = Annotated[float | None, Field(ge=0, le=1)]


class AutoParameters(Parameters):
    """Parameters of `auto`; nothing has to be set.

    Without public features (`tacit.load(…, features=["genres"])`) a private model has little to tell users apart by, so
    that `recommend` gives close to the same list to everyone.

    Parameters
    ----------
    objective : "ranking", which also pays for how items occur together and for a vote whether that ranks better;
        "rating", which spends nothing on the ranking; or "liked", which ranks items by how much they are liked, too.
        Implicit feedback has ranking only
    directions : principal directions of the public features that become tastes
    corrections : directions of taste along which items get factors of their own
    head : K, of how many of the most popular items pairs are counted; by default as many as outweigh their noise
    summary_share : part of the budget for users' mean level, and how much a user's ratings vary. Parts are relative,
        together they are the whole budget, and those left out follow a rule in μ and n
    means_share : part for item means and counts; of implicit feedback, for counts
    prior_share : part for what is expected of a user by how much and what they rate
    tastes_share : part for how much tastes vary in each direction
    residuals_share : part for what tastes leave unexplained of each item's mean, twice
    factors_share : part for item factors beyond public features, twice
    together_share : part for how items occur together
    vote_share : part for the vote whether that ranks better
    """

    objective: Literal["rating", "ranking", "liked"] = "ranking"
    directions: int | None = Field(default=None, ge=0, le=200)
    corrections: int | None = Field(default=None, ge=0, le=32)
    head: int | None = Field(default=None, ge=0, le=2_000)
    summary_share: Share = None
    means_share: float | None = Field(default=None, gt=0, le=1)
    prior_share: Share = None
    tastes_share: Share = None
    residuals_share: Share = None
    factors_share: Share = None
    together_share: Share = None
    vote_share: Share = None

    @property
    def dimensions(self) -> dict[str, int]:
        k, q = OWN_TASTES + (self.directions or 0), self.corrections or 0
        e, p = min(k, MOST_EXPECTED), 2 + min(k, MOST_PROFILED)
        sizes = {"tastes": k, "corrections": q, "packed": -(-q // 4), "profile": k + 2, **head_sizes(self.head)}
        return {**sizes, "pairs": k * (k + 1) // 2, "expected": e, "profiled": p, "profile pairs": p * (p + 1) // 2}

    @property
    def shares(self) -> dict[str, float]:
        """By step, its part of the budget; without those that get none."""
        names = ("summary", "means", "prior", "tastes", "residuals", "factors", "together", "vote")
        parts = {name: getattr(self, f"{name}_share") or 0.0 for name in names}
        whole = sum(parts.values())
        return {name: part / whole for name, part in parts.items() if part > 0}

    def resolved(self, context: Context) -> AutoParameters:
        """With every default resolved. Per rating there is one release, of deviations from the scale's middle."""
        if context.facts.feedback is Feedback.IMPLICIT:
            return self._implicit(context)
        features, others = context.facts.features, [name for name in OF_RECORDS if getattr(self, name)]
        if context.unit is Unit.RATING and others:
            raise UsageError(
                f'[method] {others[0]} is for unit = "user": residuals after a user\'s own taste move with each of the '
                "user's ratings, so per rating auto releases item means alone; leave it out."
            )
        rule = budget(context)
        found = {name: rule[name] if value is None else value for name, value in self if name in rule}
        found["directions"] = self.directions if self.directions is not None else _directions(features)
        hidden = OWN_TASTES + found["directions"] > PER_PAIR * context.sum_mu * context.facts.users
        if hidden and self.tastes_share is None:
            found["residuals_share"] += found["tastes_share"] if self.residuals_share is None else 0.0
            found["tastes_share"] = 0.0
        found["corrections"] = min(found["corrections"], OWN_TASTES + found["directions"])
        if not found["factors_share"]:
            found["corrections"] = 0
        if not found["corrections"]:
            found["factors_share"] = 0.0
        return self.model_copy(update={**found, **choice_budget(self, context)})

    def _implicit(self, context: Context) -> AutoParameters:
        """Counts, and what the ranking asks beside them."""
        meant = [name for name in ("directions", "corrections", *OF_RECORDS) if getattr(self, name)]
        if meant or self.objective != "ranking":
            wrong = meant[0] if meant else f'objective = "{self.objective}"'
            raise UsageError(f"[method] {wrong} is about ratings, and feedback is implicit; leave it out.")
        none = {**dict.fromkeys(OF_RECORDS, 0.0), "directions": 0, "corrections": 0, "objective": "ranking"}
        means = 1.0 if self.means_share is None else self.means_share
        return self.model_copy(update={**none, "means_share": means, **choice_budget(self, context)})


def _directions(features: int) -> int:
    return MOST_OF_TEXT if features > TEXT else min(MOST_DIRECTIONS, PER_FEATURE * features)


def budget(context: Context) -> dict[str, float]:
    """The rule: shares of μ², and how many directions get corrections, by x = μ·n over that of 6,040 users.

    μ is that of a sum over all parties: where each adds its own noise there is less to learn from it.
    More than A and D pay from about x = .3 on: below, what they release is noise.
    """
    if context.unit is Unit.RATING:
        return {**dict.fromkeys(OF_RECORDS, 0.0), "means_share": 1.0, "corrections": 0}
    x = min(context.sum_mu * context.facts.users / REFERENCE_USERS, 10.0)
    factors = float(np.interp(x, [0.25, 0.45, 0.85, 1.5], [0.0, 0.25, 0.35, 0.5]))
    means = float(np.interp(x, [0.1, 0.25, 1.0, 1.5], [0.35, 0.3, 0.2, 0.15]))
    tastes = float(np.interp(x, [0.45, 1.5], [0.03, 0.05]))
    summary, prior = 0.01, 0.02
    return {
        "summary_share": summary,
        "means_share": means,
        "prior_share": prior,
        "tastes_share": tastes,
        "residuals_share": 1 - summary - prior - means - tastes - factors,
        "factors_share": factors if factors > 0.05 else 0.0,
        "corrections": 8 if x < 1.2 else 12,
    }
