"""Estimators with scikit-learn's manners: constructors only store, `fit` returns self, learned state ends in `_`.

With `privacy=DP(…)` a fit is a simulated private run: its guarantee is `guarantee_`, stamped SIMULATED.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, Self
from uuid import uuid4

import numpy as np

from tacit.boundary.protection import Budget
from tacit.config import AggregationSection, PrivacySection, checked
from tacit.data.public import TYPICAL, PublicFacts
from tacit.data.ratings import Ratings
from tacit.errors import UsageError, check_integer, check_type
from tacit.guarantee import NON_PRIVATE, Guarantee, NoGuarantee
from tacit.methods import Method, Parameters, find
from tacit.methods.asked import Situation
from tacit.methods.plan import affordable, make_plan
from tacit.model import Model, Predictor
from tacit.model.model import best, item_rows
from tacit.partition import Parties

if TYPE_CHECKING:
    from tacit.engine.simulate import Safeguards


class DP(PrivacySection):
    """The guarantee that a fit is to give: (ε, δ) per user or rating.

    Parameters
    ----------
    epsilon, delta : the guarantee; δ is min(1e-6, 1/(100·users)) by default
    unit : "user" or "rating"
    others : accounting, on_refusal, ledger, budget and period, as in a run file's [privacy]

    >>> DP(epsilon=1, unit="usr")
    Traceback (most recent call last):
        ...
    tacit.errors.UsageError: In DP(…), unit = "usr" is not possible: input should be 'user' or 'rating'.
    """

    def __init__(self, epsilon: float, delta: float | None = None, unit: str = "user", **others: Any) -> None:
        table = {"epsilon": epsilon, "delta": delta, "unit": unit, **others}
        super().__init__(**checked(PrivacySection, table, where="DP(…)").model_dump())


@contextmanager
def guarded(
    method: Method,
    parameters: Parameters,
    privacy: DP,
    parties: Parties,
    ratings: int | None,
    aggregation: AggregationSection,
) -> Iterator[Safeguards]:
    """What guards a simulated private fit; its ledgers are kept where `privacy` says, or gone afterwards."""
    from tacit.engine.ledgers import Heads
    from tacit.engine.simulate import Safeguards

    if not parties.scale.declared:
        raise UsageError(
            f"The scale {parties.scale} was read off the ratings, which would be a leak with privacy; declare it, "
            "as in tacit.load(…, scale=(1, 5))."
        )
    if not parties.item_ids.listed:
        raise UsageError(
            "The items are known from ratings alone, and a list of rated items would be a leak with privacy; name the "
            'catalogue, as in tacit.load(…, catalogue="items.csv").'
        )
    typical, width = TYPICAL * parties.n_users, parties.catalogue.width
    facts = PublicFacts(parties.n_users, parties.n_items, parties.scale, ratings or typical, width)
    count = sum(max(1, share.devices) for share in parties)
    situation = Situation.of(parties.setting, count, aggregation)
    plan = make_plan(method.name, method.schedule, parameters, privacy, facts, situation, seeded=True)
    affordable(plan, privacy)
    with TemporaryDirectory() as folder:
        guards = Safeguards(
            plan=plan,
            run=uuid4().hex,
            ledgers=Path(privacy.ledger or folder),
            budget=Budget(privacy.budget or privacy.epsilon, plan.delta, privacy.period),
            stop_on_refusal=privacy.on_refusal == "stop",
            heads=None if privacy.ledger is None else Heads.beside(Path(privacy.ledger)),
        )
        with guards.over(parties):
            yield guards


class Estimator:
    """What every estimator can do.

    Attributes
    ----------
    model_ : Model, the shared part of what was learned
    predictor_ : Predictor over all parties' users, as an experimenter who holds them all sees it
    parties_ : the parties that took part
    guarantee_ : what is promised about everything that left a party
    history_ : one entry a round
    transcript_ : what crossed
    """

    method: ClassVar[str]

    seed: int

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters that the constructor took."""
        return {name: getattr(self, name) for name in list(inspect.signature(type(self).__init__).parameters)[1:]}

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters that the constructor takes."""
        for name, value in parameters.items():
            if name not in self.get_params():
                raise UsageError(
                    f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(self.get_params())}."
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        usual = {name: p.default for name, p in inspect.signature(type(self).__init__).parameters.items()}
        given = {name: value for name, value in self.get_params().items() if value != usual[name]}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in given.items())})"

    def fit(self, parties: Parties, ratings: int | None = None) -> Self:
        """Learn from parties that `tacit.partition` made.

        `ratings` is how many ratings there are as everyone may know it: with privacy only step sizes rest on it, and
        50 a user are taken where nobody says.
        """
        from tacit.engine.simulate import train

        if not isinstance(parties, Parties):
            raise UsageError(
                f"fit takes parties, and got a {type(parties).__name__}; "
                "make them with tacit.partition(ratings, into=10)."
            )
        method = find(self.method)
        aside = ("seed", "privacy", "aggregation")
        table = {k: v for k, v in self.get_params().items() if k not in aside and v is not None}
        parameters = checked(method.parameters, table, where=type(self).__name__)
        privacy: DP | None = getattr(self, "privacy", None)
        check_type(privacy, DP | None, f"{type(self).__name__}'s privacy", "tacit.DP(epsilon=…), or None")
        if ratings is not None:
            check_integer("ratings", ratings)
        wanted = self._aggregation()
        if wanted.signed and wanted.name != "secagg":
            raise UsageError(f'aggregation: signed = True is for "secagg", and this is "{wanted.name}".')
        if privacy is None and wanted.name != "plain":
            raise UsageError(
                f'aggregation = "{wanted.name}" carries the noise of a private sum; give privacy=tacit.DP(…), too.'
            )
        if privacy is None:
            trained = train(method, parameters, parties, seed=self.seed)
        else:
            with guarded(method, parameters, privacy, parties, ratings, wanted) as safeguards:
                trained = train(
                    method, parameters, parties, seed=self.seed, dropout=wanted.dropout, safeguards=safeguards
                )
        promise = NON_PRIVATE if privacy is None else safeguards.plan.terms.guarantee
        self.model_: Model = replace(trained.model, stamp=str(promise))
        self.predictor_: Predictor = trained.predictor
        self.parties_ = parties
        self.history_ = trained.history
        self.transcript_ = trained.transcript
        self.guarantee_: Guarantee | NoGuarantee = promise
        return self

    @property
    def seen_(self) -> Ratings:
        """All ratings that were learned from, put together again, as only an experimenter can."""
        parties = self._fitted()
        users = np.concatenate([share.users[share.ratings.users] for share in parties])
        items = np.concatenate([share.items[share.ratings.items] for share in parties])
        return Ratings.from_columns(
            parties.user_ids[users],
            parties.item_ids[items],
            np.concatenate([share.ratings.values for share in parties]),
            scale=parties.scale,
            user_ids=parties.user_ids,
            item_ids=parties.item_ids,
            feedback=parties.feedback,
        )

    def predict(self, user: Any, items: Sequence[Any]) -> np.ndarray:
        """Predictions of one known user for some items, by id; made where the user's party is. float32."""
        parties = self._fitted()
        row = parties.user_ids.row(user)
        columns = item_rows(parties.item_ids, items)
        return self.predictor_.predict(np.full(len(columns), row), columns)

    def recommend(self, user: Any, n: int = 10) -> list[tuple[Any, float]]:
        """The n best items that a user has not rated: (id, prediction), best first.

        `user` is the id of a known user, or the history of somebody new: {item: rating, …}.
        """
        parties = self._fitted()
        if isinstance(user, Mapping):
            return self.model_.recommend(user, n)
        if isinstance(user, Sequence | np.ndarray) and not isinstance(user, str):
            raise UsageError("recommend takes one user's id, or a history, {item: rating, …}; ask for one at a time.")
        row = parties.user_ids.row(user)
        scores = np.asarray(self.predictor_.scores(np.array([row])))[0]
        return best(scores, parties.item_ids, self._seen(row), n)

    def save(self, folder: str | Path) -> Path:
        """Write the shared model; `tacit.Model.load` reads it. Users' own factors stay with their parties."""
        self._fitted()
        return self.model_.save(folder)

    def _aggregation(self) -> AggregationSection:
        """How sums are made: a name, or a table as in a run file's [aggregation]."""
        given: str | Mapping[str, Any] = getattr(self, "aggregation", "plain")
        if not isinstance(given, str | Mapping):
            raise UsageError(f'aggregation = {given!r} is neither a name, such as "secagg", nor a table of options.')
        table = {"name": given} if isinstance(given, str) else dict(given)
        return checked(AggregationSection, table, where=f"{type(self).__name__}'s aggregation")

    def _fitted(self) -> Parties:
        if not hasattr(self, "parties_"):
            raise UsageError(f"This {type(self).__name__} has not learned anything yet; call fit(parties) first.")
        return self.parties_

    def _seen(self, row: int) -> np.ndarray:
        """Columns of the whole that a user has rated, over all parties that hold something of hers."""
        seen: list[np.ndarray] = []
        for share in self.parties_:
            place = np.searchsorted(share.users, row)
            if place < len(share.users) and share.users[place] == row:
                seen.append(share.items[share.ratings.row(int(place))[0]])
        return np.concatenate(seen) if seen else np.empty(0, dtype=np.int64)


class SGDMF(Estimator):
    """Federated matrix factorization by stochastic gradient descent with embedding clipping.

        horizontal   U_k ← Π(U_k − γ (n_k/n) g_U)    V^(k) ← Π(V^(k) − γ g_V)          V ← Σ (n_k/n) V^(k)
        vertical     U^(k) ← Π(U^(k) − γ g_U)        V_k ← Π(V_k − γ (m_k/m) g_V)      U ← Σ (m_k/m) U^(k)

    Parameters
    ----------
    factors : columns of both factor blocks
    rounds : T, messages to and from every party; 100 by default, or 10 on devices with privacy
    local_steps : T', steps between two messages
    sampling : η, the rate at which each step samples users, or ratings where these are the unit
    trim : θ, ratings kept of a user in a step
    final_steps : κ, last steps of a vertical fit on item factors alone
    rate : the first step's size; default a rule from public quantities
    regularization : weight decay of the first step
    users : how a horizontal silo treats users' factors: "together", "pretrained" or "noised"
    pretraining : steps of each user on her own factors before the first round
    fine_tuning : passes in which a horizontal silo improves both blocks for itself after the last round
    send : what a device adds to a private sum: the gradient of one "rating", or of its whole "record"
    privacy : DP(…), or None
    aggregation : with privacy, "plain", "ideal" or "secagg", or a table as in a run file's [aggregation]
    seed : of everything

    Guarantee
    ---------
    Without `privacy` none: NON-PRIVATE. With it, what it asks for, over everything that leaves a party in this fit.
    Per user a step moves item factors by at most √θ·2R^1.5 and both blocks by 2R^1.5·√(θ² + θ), per rating by 2R^1.5
    and 2√2·R^1.5; all T·T' steps compose, in the vertical setting over all parties. Proofs: `tacit.boundary.gradients`,
    `tacit.methods.sgdmf.horizontal` and `.vertical`.

    References
    ----------
    Li, Ding, Zhang, Li, Zhou: Federated Matrix Factorization with Privacy Guarantee. PVLDB 15(4), 2022.

    >>> import tacit
    >>> SGDMF(factors=4, rounds=3).fit(tacit.partition(tacit.load("demo"), into=3)).model_.item_factors.shape
    (500, 4)
    """

    method = "sgdmf"

    def __init__(
        self,
        *,
        factors: int = 20,
        rounds: int | None = None,
        local_steps: int = 10,
        sampling: float | None = None,
        trim: int | None = None,
        final_steps: int | None = None,
        rate: float | None = None,
        regularization: float = 0.0,
        users: str | None = None,
        pretraining: int = 30,
        fine_tuning: int | None = None,
        send: str | None = None,
        privacy: DP | None = None,
        aggregation: str | Mapping[str, Any] = "plain",
        seed: int = 7,
    ) -> None:
        self.factors = factors
        self.rounds = rounds
        self.local_steps = local_steps
        self.sampling = sampling
        self.trim = trim
        self.final_steps = final_steps
        self.rate = rate
        self.regularization = regularization
        self.users = users
        self.pretraining = pretraining
        self.fine_tuning = fine_tuning
        self.send = send
        self.privacy = privacy
        self.aggregation = aggregation
        self.seed = seed


class Bias(Estimator):
    """Item and user biases: noisy item means from one sum, and users' levels fitted at home. The floor of them all.

    Parameters
    ----------
    count_weight, shrinkage : as in the method `bias`
    privacy : DP(…), or None
    aggregation : with privacy, "plain", "ideal" or "secagg", or a table as in a run file's [aggregation]
    seed : of everything
    """

    method = "bias"

    def __init__(
        self,
        *,
        count_weight: float = 0.7,
        shrinkage: float = 5.0,
        privacy: DP | None = None,
        aggregation: str | Mapping[str, Any] = "plain",
        seed: int = 7,
    ) -> None:
        self.count_weight = count_weight
        self.shrinkage = shrinkage
        self.privacy = privacy
        self.aggregation = aggregation
        self.seed = seed


class _Descent(Estimator):
    def __init__(
        self,
        *,
        factors: int = 20,
        epochs: int = 40,
        rate: float = 0.32,
        regularization: float = 0.0125,
        start: str = "random",
        seed: int = 7,
    ) -> None:
        self.factors = factors
        self.epochs = epochs
        self.rate = rate
        self.regularization = regularization
        self.start = start
        self.seed = seed


class Central(_Descent):
    """All ratings in one place: what could be had without any protection. NON-PRIVATE by nature."""

    method = "central"


class Local(_Descent):
    """Every party alone: what it has without the others."""

    method = "local"


class _Simple(Estimator):
    def __init__(self, *, seed: int = 7) -> None:
        self.seed = seed


class GlobalMean(_Simple):
    """The mean of all ratings, for everyone."""

    method = "global-mean"


class ItemMean(Estimator):
    """Each item's mean rating, shrunk towards the mean of all."""

    method = "item-mean"

    def __init__(self, *, shrinkage: float = 5.0, seed: int = 7) -> None:
        self.shrinkage = shrinkage
        self.seed = seed


class Popularity(_Simple):
    """Items in the order of how often they were rated."""

    method = "popularity"


class Random(_Simple):
    """A random order of items for each user."""

    method = "random"
