"""SGDMF's parameters, and which defaults a run with or without privacy gives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from tacit.boundary.gradients import EmbeddingGradient, Gradient
from tacit.boundary.query import Query
from tacit.data.ratings import Ratings, Scale
from tacit.errors import UsageError
from tacit.federation import Facts
from tacit.guarantee import Relation, Unit
from tacit.kernels.embed import descend_and_embed, embed
from tacit.methods.asked import Situation
from tacit.methods.base import Parameters
from tacit.methods.sgdmf.gradient import At, factor_gradient
from tacit.model import Form, NonNegative
from tacit.partition import Setting

#: One step of factors, in place: (x, gradient, rate, decay).
Move = Callable[[np.ndarray, np.ndarray, float, float], np.ndarray]

#: Found on synthetic worlds, as are the next two: docs/explanation/sgdmf-private-rates.md.
DRIFT = 3.0
#: Final item steps κ of a private vertical run, as a part of T·T′.
FINAL = 0.3
#: Passes over its own ratings in which a silo of a private horizontal run fine-tunes.
FINE_TUNING = 20


class SGDMFParameters(Parameters):
    """Parameters of SGDMF. Those left out follow from the setting and from what a run protects: see `resolved`.

    Parameters
    ----------
    factors : p, columns of both factor blocks
    rounds : T; 100, or 10 on devices with privacy
    local_steps : T', steps between two messages; on a device, steps on its own factors before it contributes, and
        without effect with privacy, where these are fitted anew
    sampling : η, the rate at which each step samples users, or ratings where these are the unit; 0.1, or 0.01 with
        privacy
    trim : θ, ratings kept of a user in a step; with privacy per user 10 where she is in one party, else 5, or 2 where
        there are more than ten
    final_steps : κ, last steps of a vertical run on item factors alone; with privacy three tenths of T·T'
    rate : γ, the first step's size for the mean gradient; default a rule from public quantities
    regularization : the first step's weight decay, once per row and step; it falls with the rate
    users : how a horizontal silo treats its users' factors: "together" with the item factors, "pretrained" before the
        first round and fixed, or "noised" like the item factors although they never leave. Default "together"; with
        privacy per user "pretrained", per rating "noised"
    pretraining : steps of each user on her own factors before the first round
    fine_tuning : passes over its own ratings in which a horizontal silo improves both blocks for itself after the last
        round, never released; 20 with privacy, else 0
    send : what a device adds to a private sum: the gradient of one "rating", drawn anew each round, or that of its
        whole "record", clipped; default "rating"
    """

    method: ClassVar[str] = "sgdmf"

    factors: int = Field(default=20, ge=1, le=1024)
    rounds: int = Field(default=100, ge=1, le=100_000)
    local_steps: int = Field(default=10, ge=1, le=10_000)
    sampling: float | None = Field(default=None, gt=0, le=1)
    trim: int | None = Field(default=None, ge=1, le=1_000_000)
    final_steps: int | None = Field(default=None, ge=0, le=100_000)
    rate: float | None = Field(default=None, gt=0)
    regularization: float = Field(default=0.0, ge=0)
    users: Literal["together", "pretrained", "noised"] | None = None
    pretraining: int = Field(default=30, ge=1, le=10_000)
    fine_tuning: int | None = Field(default=None, ge=0, le=10_000)
    send: Literal["rating", "record"] | None = None

    @property
    def dimensions(self) -> dict[str, int]:
        return {"factors": self.factors}

    @property
    def steps(self) -> int:
        """T·T'."""
        return self.rounds * self.local_steps

    @property
    def summed(self) -> bool:
        """Whether a horizontal step is a sum over silos: one local step, and users' factors that need no noise."""
        return self.local_steps == 1 and self.users != "noised"

    @property
    def drift(self) -> float:
        """How far the noise of all steps may carry a factor's entry, in parts of √(R/p), where Π brings it back."""
        return DRIFT

    @property
    def eta(self) -> float:
        """η, once resolved."""
        if self.sampling is None:
            raise UsageError("sampling is still open; resolve the parameters first.")
        return self.sampling

    def resolved(self, unit: Unit | None, situation: Situation) -> Self:
        horizontal, vertical = situation.setting is Setting.HORIZONTAL, situation.setting is Setting.VERTICAL
        private = unit is not None
        if self.users is not None and not horizontal:
            raise UsageError(
                f'users = "{self.users}" is for the horizontal setting, and this one is {situation.setting}.'
            )
        if self.final_steps and not vertical:
            raise UsageError(f"final_steps = {self.final_steps} is for the vertical setting; leave it out.")
        if self.fine_tuning and not horizontal:
            raise UsageError(f"fine_tuning = {self.fine_tuning} is for the horizontal setting; leave it out.")
        private_device = private and situation.setting is Setting.DEVICE
        if self.send is not None and not private_device:
            raise UsageError(f'send = "{self.send}" is for private runs on devices; leave it out.')
        if private_device and (self.sampling not in (None, 1.0) or self.regularization):
            raise UsageError(
                "On devices with privacy all take part, since sampling them would amplify nothing, and nothing is "
                "regularized; leave sampling and regularization out."
            )
        usual = {None: "together", Unit.USER: "pretrained", Unit.RATING: "noised"}[unit]
        users = (self.users or usual) if horizontal else None
        per_rating = unit is Unit.RATING and (vertical or users == "noised")
        if per_rating and self.trim is not None:
            raise UsageError(
                f"trim = {self.trim} bounds what a user adds, and here the unit is a rating; leave trim out."
            )
        trim = self.trim
        if private_device and trim is not None:
            raise UsageError(f'trim = {trim} is for silos; a device sends one rating or its record: use "send".')
        if private and trim is None and not (per_rating or private_device):
            trim = 10 if situation.parties == 1 or not vertical else 5 if situation.parties <= 10 else 2
        final = round(FINAL * self.steps) if private and vertical else 0
        tuning = FINE_TUNING if private and horizontal else 0
        return self.model_copy(
            update={
                "rounds": 10 if private_device and "rounds" not in self.model_fields_set else self.rounds,
                "send": (self.send or "rating") if private_device else None,
                "sampling": self.sampling or (1.0 if private_device else 0.01 if private else 0.1),
                "trim": trim,
                "final_steps": final if self.final_steps is None else self.final_steps,
                "users": users,
                "fine_tuning": tuning if self.fine_tuning is None else self.fine_tuning,
            }
        )

    # -- embedding clipping: what `gradient-clipping` and `dp-sgld` replace -------------------------------------

    def gradient(
        self, ratings: Ratings, facts: Facts, blocks: Sequence[str], *, users_are_public: bool, at: At = None
    ) -> Query:
        """The query of one step. Without privacy and trimming it need bound nothing, and is faster."""
        if facts.unit is None and self.trim is None and at is None and len(blocks) == 2:
            return factor_gradient(ratings, self.eta)
        sampled = sampled_unit(facts.unit, users_are_public)
        return EmbeddingGradient(
            ratings, self.eta, self.trim, blocks, users_are_public=users_are_public, sampled=sampled, at=at
        )

    def sensitivity(self, span: float, unit: Unit, blocks: Sequence[str], *, users_are_public: bool) -> float:
        """Δ of `gradient` under zero-out, before there is data."""
        return self._bound(EmbeddingGradient, span, unit, blocks, users_are_public)

    def project(self, received: np.ndarray, span: float) -> np.ndarray:
        """Factors from a peer, as steps start from them: Π."""
        return embed(received, span)

    def mover(self, span: float, noise: float, stream: np.random.Generator) -> Move:
        """How factors move at a noised gradient: x ← Π((1 − decay)·x − rate·gradient), in place.

        `noise` is the σ that the gradient carries; `stream` is for a method that adds noise of its own.
        """
        return lambda x, gradient, rate, decay: descend_and_embed(x, gradient, rate, span, decay)

    def form(self, scale: Scale, items: np.ndarray) -> Form:
        """The model's form over item factors; Π keeps what it predicts on the scale."""
        return NonNegative(scale.low, scale.high, items)

    def _bound(
        self, query: type[Gradient], size: float, unit: Unit, blocks: Sequence[str], users_are_public: bool
    ) -> float:
        sampled = sampled_unit(unit, users_are_public)
        return query.bound(
            size,
            unit,
            Relation.ZERO_OUT,
            self.eta,
            self.trim,
            blocks,
            users_are_public=users_are_public,
            sampled=sampled,
        )


def sampled_unit(unit: Unit | None, users_are_public: bool) -> Unit:
    """What a step's sample is of: samples of users amplify no rating (see tacit.boundary.gradients)."""
    return Unit.RATING if unit is Unit.RATING and users_are_public else Unit.USER
