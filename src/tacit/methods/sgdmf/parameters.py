"""SGDMF's parameters and those of its variants, and which defaults a run with or without privacy gives them."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from tacit.errors import PrivacyRefused, UsageError
from tacit.guarantee import Unit
from tacit.methods.context import Context
from tacit.methods.factors import FactorParameters
from tacit.methods.method import DEPENDS
from tacit.methods.sgdmf.update_rule import UpdateRule
from tacit.partition import Setting

#: With privacy: final item steps κ of a vertical run as a part of T·T′, and passes of a horizontal silo's fine-tuning.
#: Both were found on synthetic worlds: docs/explanation/sgdmf-private-rates.md.
FINAL, FINE_TUNING = 0.3, 20


class StepParameters(FactorParameters):
    """What every noisy descent over factors takes. What is `unused` in a setting does nothing there, and is refused.

    Parameters
    ----------
    factors : p, columns of both factor blocks
    rounds : T; 100, or 10 on devices with privacy
    sampling : η, the rate at which each step samples users, or ratings where these are the unit; 0.1, or 0.01 with
        privacy
    trim : θ, ratings of a user used in a step; with privacy per user 10 where a user is in one party, else 5, or 2
        where there are more than ten
    rate : γ, the first step's size for the mean gradient; default a rule from public quantities
    regularization : the first step's weight decay, once per row and step; it falls with the rate
    """

    method: ClassVar[str]
    rule: ClassVar[UpdateRule] = UpdateRule()
    unused: ClassVar[Mapping[Setting, tuple[str, ...]]] = {}

    rounds: Annotated[int, DEPENDS] = Field(default=100, ge=1, le=100_000)
    sampling: float | None = Field(default=None, gt=0, le=1)
    trim: int | None = Field(default=None, ge=1, le=1_000_000)
    rate: float | None = Field(default=None, gt=0)
    regularization: float = Field(default=0.0, ge=0)

    @property
    def from_biases(self) -> bool:
        """Whether item biases are released first, and factors start from them."""
        return False

    @property
    def eta(self) -> float:
        """η, once resolved."""
        if self.sampling is None:
            raise UsageError("sampling is still open; resolve the parameters first.")
        return self.sampling

    def resolved(self, context: Context) -> Self:
        return self._resolved(context)

    def _resolved(self, context: Context, *, by_rating: bool | None = None, **more: Any) -> Self:
        """With η, θ and `more` fixed; `by_rating` says that single ratings are the unit and bounded by themselves."""
        for name in self.unused.get(context.setting, ()):
            value, usual = getattr(self, name), type(self).model_fields[name].default
            if value not in (None, usual):
                raise UsageError(f"{name} = {value!r} does nothing in the {context.setting} setting; leave it out.")
        unit, trim = context.unit, self.trim
        bounded = unit is Unit.RATING if by_rating is None else by_rating
        if bounded and trim is not None:
            raise UsageError(f"trim = {trim} bounds what a user adds, and here the unit is a rating; leave trim out.")
        if unit is not None and not bounded and trim is None:
            silos = context.parties if context.setting is Setting.VERTICAL else 1
            trim = 10 if silos == 1 else 5 if silos <= 10 else 2
        sampling = self.sampling or (0.1 if unit is None else 0.01)
        return self.model_copy(update={"sampling": sampling, "trim": trim, **more})


class SiloParameters(StepParameters):
    """What a silo takes too: how a horizontal one treats its users' factors, and what it does at home.

    Parameters
    ----------
    users : how a horizontal silo treats its users' factors: "together" with the item factors, "pretrained" before the
        first round and fixed, or "noised" like the item factors although they never leave. Default "together"; with
        privacy per user "pretrained", per rating "noised"
    pretraining : steps of each user on their own factors before the first round
    fine_tuning : passes over its own ratings in which a horizontal silo improves both blocks for itself after the last
        round, never released; 20 with privacy, else 0
    """

    users: Literal["together", "pretrained", "noised"] | None = None
    pretraining: int = Field(default=30, ge=1, le=10_000)
    fine_tuning: int | None = Field(default=None, ge=0, le=10_000)

    def resolved(self, context: Context) -> Self:
        unit, private = context.unit, context.unit is not None
        users = self.users or {None: "together", Unit.USER: "pretrained", Unit.RATING: "noised"}[unit]
        if users == "noised" and unit is Unit.USER:
            raise PrivacyRefused(
                'users = "noised" is for unit = "rating"; per user, factors cost nothing while they stay at home: use '
                'users = "pretrained".'
            )
        tuning = FINE_TUNING if private else 0
        return self._resolved(
            context,
            by_rating=unit is Unit.RATING and users == "noised",
            users=users,
            fine_tuning=tuning if self.fine_tuning is None else self.fine_tuning,
        )


class LocalStepParameters(SiloParameters):
    """What silos take that make several steps between two messages.

    Parameters
    ----------
    local_steps : T', steps of a silo between two messages
    final_steps : κ, last steps of a vertical run on item factors alone; with privacy three tenths of T·T'
    """

    unused: ClassVar[Mapping[Setting, tuple[str, ...]]] = {
        Setting.HORIZONTAL: ("final_steps",),
        Setting.VERTICAL: ("users", "pretraining", "fine_tuning"),
    }

    local_steps: int = Field(default=10, ge=1, le=10_000)
    final_steps: int | None = Field(default=None, ge=0, le=100_000)

    @property
    def steps(self) -> int:
        """T·T'."""
        return self.rounds * self.local_steps

    @property
    def summed(self) -> bool:
        """Whether a horizontal step is a sum over silos: one local step, and users' factors that need no noise."""
        return self.local_steps == 1 and self.users != "noised"

    def resolved(self, context: Context) -> Self:
        if context.setting is not Setting.VERTICAL:
            return super().resolved(context)
        usual = 0 if context.unit is None else round(FINAL * self.steps)
        return self._resolved(context, final_steps=usual if self.final_steps is None else self.final_steps)


class SGDMFParameters(LocalStepParameters):
    """Parameters of SGDMF. Defaults follow from the setting and from what a run protects: see `resolved`.

        horizontal   U_k ← Π(U_k − γ (n_k/n) g_U)    V^(k) ← Π(V^(k) − γ g_V)          V ← Σ (n_k/n) V^(k)
        vertical     U^(k) ← Π(U^(k) − γ g_U)        V_k ← Π(V_k − γ (m_k/m) g_V)      U ← Σ (m_k/m) U^(k)

    Parameters
    ----------
    send : what a device adds to a sum: the gradient of one "rating", drawn afresh each round, that of its whole
        "record", clipped, or without privacy that of "all" its ratings as it is; default "all", with privacy "rating"
    start : where factors start: the "paper"'s random ones, or item biases from one sum, as `bias` makes it, for which
        eight tenths of the budget are spent

    Guarantee
    ---------
    Without privacy there is none: NON-PRIVATE. With it, the requested one, over everything that leaves a party.
    Per user a step moves item factors by at most √θ·2R^1.5 and both blocks by 2R^1.5·√(θ² + θ), per rating by 2R^1.5
    and 2√2·R^1.5; all T·T' steps compose, in the vertical setting over all parties. Proofs:
    `tacit.boundary.clipped_gradients`, `tacit.methods.sgdmf.horizontal` and `.vertical`.

    References
    ----------
    Li, Ding, Zhang, Li, Zhou: Federated Matrix Factorization with Privacy Guarantee. PVLDB 15(4), 2022.

    >>> import tacit
    >>> tacit.SGDMF(factors=4, rounds=3).fit(tacit.partition(tacit.load("demo"), into=3)).model_.item_factors.shape
    (500, 4)
    """

    method: ClassVar[str] = "sgdmf"
    unused: ClassVar[Mapping[Setting, tuple[str, ...]]] = {
        Setting.HORIZONTAL: ("final_steps", "send"),
        Setting.VERTICAL: ("users", "pretraining", "fine_tuning", "send"),
        Setting.DEVICE: ("local_steps", "sampling", "trim", "regularization", "users", "fine_tuning", "final_steps"),
    }

    send: Literal["all", "rating", "record"] | None = None
    start: Literal["paper", "bias"] = "paper"

    @property
    def from_biases(self) -> bool:
        return self.start == "bias"

    @model_serializer(mode="wrap")
    def _dumped(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without a start that is the paper's: such runs keep their hashes, and with them their noise."""
        fields: dict[str, Any] = dump(self)
        if fields.get("start") == "paper":
            del fields["start"]
        return fields

    def resolved(self, context: Context) -> Self:
        if self.from_biases and self.factors < 2:
            raise UsageError('start = "bias" needs a factor for levels and one for biases; set factors to 2 or more.')
        if context.setting is not Setting.DEVICE:
            return super().resolved(context)
        private = context.unit is not None
        if self.send == "all" and private:
            raise UsageError('send = "all" bounds nothing and is for runs without privacy; use "rating" or "record".')
        rounds = 10 if private and "rounds" not in self.model_fields_set else self.rounds
        send = self.send or ("rating" if private else "all")
        everybody = self.model_copy(update={"sampling": None}) if self.sampling == 1.0 else self
        settled = everybody._resolved(context, by_rating=False, rounds=rounds, send=send)
        return settled.model_copy(update={"sampling": 1.0, "trim": None})
