"""Parameters of `als`, and the rules that choose those that are not set."""

import math
from typing import Annotated, Self

from pydantic import Field

from tacit.data.public_facts import PublicFacts
from tacit.data.ratings import Feedback
from tacit.methods.context import Context
from tacit.methods.method import DEPENDS, Parameters

#: The largest rank that the rule chooses.
MOST = 30
#: Rank and sweeps for implicit feedback.
IMPLICIT_RANK, IMPLICIT_SWEEPS = 64, 15
#: The signal in units of noise from which on there is one more sweep; found on synthetic worlds.
WORTH = (40, 80, 320, 1280, 5120)


class ALSParameters(Parameters):
    """How large a model, and how long it is fitted; nothing has to be set.

    Parameters
    ----------
    factors : k; by default N // (n + m), from 1 to 30
    sweeps : how often users and items are fitted to each other; by default 25, and with [privacy] 0 to 5, by how far
        an item's sums stand out of the noise
    """

    factors: int | None = Field(default=None, ge=1, le=256)
    sweeps: Annotated[int, DEPENDS] = Field(default=25, ge=0, le=1000)

    @property
    def dimensions(self) -> dict[str, int]:
        k = self.factors or 0
        pairs, joint = (k + 2) * (k + 3) // 2, (2 * k + 4) * (2 * k + 5) // 2
        return {"factors": k + 2, "pairs": pairs, "free": k + 1, "user_features": k + 3, "joint": joint}

    def resolved(self, context: Context) -> Self:
        facts, update = context.facts, {}
        private = context.target is not None
        if self.factors is None:
            update["factors"] = rank(facts.ratings, facts.users, facts.items)
            if private:
                update["factors"] = min(update["factors"], 2 + min(facts.features, 4))
        if "sweeps" not in self.model_fields_set and private:
            update["sweeps"] = private_sweeps(context.mu, facts)
        return self.model_copy(update=update)


class EitherParameters(ALSParameters):
    """Parameters of `als`; nothing has to be set.

    Parameters
    ----------
    factors : k; by default N // (n + m), from 1 to 30, and 64 for implicit feedback
    sweeps : how often users and items are fitted to each other; by default 25, for implicit feedback 15, and with
        [privacy] 0 to 5, by how far an item's sums stand out of the noise
    confidence : α, how much more a taken item counts than any other; implicit feedback only
    regularization : λ; implicit feedback only, others learn their priors
    """

    confidence: float = Field(default=1.0, gt=0)
    regularization: float = Field(default=20.0, gt=0)

    @property
    def dimensions(self) -> dict[str, int]:
        k = self.factors or 0
        return {**super().dimensions, "rank": k, "triangle": k * (k + 1) // 2}

    def resolved(self, context: Context) -> Self:
        if context.facts.feedback is not Feedback.IMPLICIT:
            return super().resolved(context)
        sweeps = self.sweeps if "sweeps" in self.model_fields_set else IMPLICIT_SWEEPS
        return self.model_copy(update={"factors": self.factors or IMPLICIT_RANK, "sweeps": sweeps})


def private_sweeps(mu: float, facts: PublicFacts) -> int:
    """How many sweeps noise leaves worth doing: 0 to 5, by how far an item's sums stand out of it.

    Users' parts have length 1, so an item's sum is of the order Σ_u 1/√n_u, about √(N·n)/m, and the noise of order 1/μ.
    """
    signal = mu * math.sqrt(facts.ratings * facts.users) / facts.items
    return sum(signal >= worth for worth in WORTH)


def rank(ratings: int, users: int, items: int) -> int:
    """k = N // (n + m), from 1 to 30."""
    return min(max(ratings // max(users + items, 1), 1), MOST)
