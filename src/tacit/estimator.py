"""Estimators with scikit-learn's manners: constructors only store, `fit` returns self, learned state ends in `_`."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from tacit.config import checked
from tacit.data.ratings import Ratings
from tacit.errors import UsageError
from tacit.guarantee import NON_PRIVATE, NoGuarantee
from tacit.methods import find
from tacit.model import Model, Predictor
from tacit.model.model import best
from tacit.partition import Parties


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
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.get_params().items())})"

    def fit(self, parties: Parties) -> Self:
        """Learn from parties that `tacit.partition` made."""
        from tacit.engine.simulate import train

        if not isinstance(parties, Parties):
            raise UsageError(
                f"fit takes parties, and got a {type(parties).__name__}; "
                "make them with tacit.partition(ratings, into=10)."
            )
        method = find(self.method)
        table = {k: v for k, v in self.get_params().items() if k != "seed" and v is not None}
        parameters = checked(method.parameters, table, where=type(self).__name__)
        trained = train(method, parameters, parties, seed=self.seed)
        self.model_: Model = trained.model
        self.predictor_: Predictor = trained.predictor
        self.parties_ = parties
        self.history_ = trained.history
        self.transcript_ = trained.transcript
        self.guarantee_: NoGuarantee = NON_PRIVATE
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
        columns = np.array([parties.item_ids.row(item) for item in items], dtype=np.int64)
        return self.predictor_.predict(np.full(len(columns), row), columns)

    def recommend(self, user: Any, n: int = 10) -> list[tuple[Any, float]]:
        """The n best items that a known user has not rated: (id, prediction), best first.

        For somebody new use `model_.recommend({item: rating, …})`.
        """
        parties = self._fitted()
        row = parties.user_ids.row(user)
        scores = np.asarray(self.predictor_.scores(np.array([row])))[0]
        return best(scores, parties.item_ids, self._seen(row), n)

    def save(self, folder: str | Path) -> Path:
        """Write the shared model; `tacit.Model.load` reads it. Users' own factors stay with their parties."""
        self._fitted()
        return self.model_.save(folder)

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
    rounds : T, messages to and from every party
    local_steps : T', steps between two messages
    sampling : the probability that a user takes part in a step
    rate : the first step's size; default a rule from public quantities
    regularization : weight decay of the first step
    seed : of everything

    Guarantee
    ---------
    None: NON-PRIVATE. The shared factors that cross are functions of ratings, without noise.

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
        rounds: int = 100,
        local_steps: int = 10,
        sampling: float = 0.1,
        rate: float | None = None,
        regularization: float = 0.0,
        seed: int = 7,
    ) -> None:
        self.factors = factors
        self.rounds = rounds
        self.local_steps = local_steps
        self.sampling = sampling
        self.rate = rate
        self.regularization = regularization
        self.seed = seed


class _Descent(Estimator):
    def __init__(
        self,
        *,
        factors: int = 20,
        epochs: int = 40,
        rate: float = 0.32,
        regularization: float = 0.0125,
        seed: int = 7,
    ) -> None:
        self.factors = factors
        self.epochs = epochs
        self.rate = rate
        self.regularization = regularization
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
