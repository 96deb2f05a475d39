"""Estimators with scikit-learn's manners: constructors only store, `fit` returns self, learned state ends in `_`.

With `privacy=DP(…)` a fit is a simulated private run: its guarantee is `guarantee_`, stamped SIMULATED.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Self
from uuid import uuid4

import numpy as np

from tacit.config import AggregationSection, PrivacySection, checked
from tacit.data.ratings import Ratings
from tacit.errors import UsageError, check_integer, check_type, with_article
from tacit.guarantee import Guarantee, NoGuarantee
from tacit.methods import find
from tacit.model import Model, Predictor
from tacit.model.model import best, item_rows
from tacit.partition import Parties


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

        `ratings` is a public estimate of how many ratings there are, by default 50 per user. With privacy, step sizes
        depend on it, and the guarantee does not.
        """
        from tacit.federation import Facts
        from tacit.prepare.prepared import PreparedRun, declared_facts
        from tacit.prepare.simulate import train
        from tacit.prepare.simulated_ledgers import Records

        if not isinstance(parties, Parties):
            raise UsageError(
                f"fit takes parties, and got {with_article(type(parties).__name__)}; "
                "make them with tacit.partition(ratings, into=10)."
            )
        method = find(self.method)
        aside = ("seed", "privacy", "aggregation")
        usual = {name: parameter.default for name, parameter in inspect.signature(type(self)).parameters.items()}
        given = {k: v for k, v in self.get_params().items() if k not in aside and v is not None}
        table = {k: v for k, v in given.items() if v != usual.get(k)}  # a default is what a run file leaves out
        parameters = checked(method.parameters, table, where=type(self).__name__)
        privacy: DP | None = getattr(self, "privacy", None)
        check_type(privacy, DP | None, f"{type(self).__name__}'s privacy", "tacit.DP(epsilon=…), or None")
        if ratings is not None:
            check_integer("ratings", ratings)
        wanted = self._aggregation()
        if wanted.signed and wanted.name != "secagg":
            raise UsageError(f'aggregation: signed = True is for "secagg", and this is "{wanted.name}".')
        facts = Facts.of(parties, self.seed)
        public, run = None if privacy is None else declared_facts(facts, ratings), uuid4().hex
        prepared = PreparedRun.of(
            method, parameters, facts, privacy=privacy, aggregation=wanted, public=public, run=run
        )
        with TemporaryDirectory() as folder:  # for ledgers that are not kept
            records = Records.of(prepared, Path(folder))
            with nullcontext() if records is None else records.over(prepared, parties):
                trained = train(prepared, parties, records=records)
        promise = prepared.guarantee
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
        """The ratings that one user would give some items, by id; made where the user's party is. float32.

        `user` is the id of a known user, or the history of a new one: {item: rating, …}.
        """
        parties = self._fitted()
        if not self.predictor_.rates:
            name = with_article(type(self).__name__)
            raise UsageError(f"{name[:1].upper()}{name[1:]} predicts no ratings, it only ranks; ask it to recommend.")
        if isinstance(user, Mapping):
            return self.model_.predict(user, items)
        row = parties.user_ids.row(user)
        columns = item_rows(parties.item_ids, items)
        return self.predictor_.predict(np.full(len(columns), row), columns)

    def recommend(self, user: Any, n: int = 10) -> list[tuple[Any, float]]:
        """The n best items that a user has not rated: (id, score), best first.

        `user` is the id of a known user, or the history of a new one: {item: rating, …}.
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
        """Columns of the whole that a user has rated, over all parties that hold some of the user's ratings."""
        seen: list[np.ndarray] = []
        for share in self.parties_:
            place = np.searchsorted(share.users, row)
            if place < len(share.users) and share.users[place] == row:
                seen.append(share.items[share.ratings.row(int(place))[0]])
        return np.concatenate(seen) if seen else np.empty(0, dtype=np.int64)
