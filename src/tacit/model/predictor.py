"""Predictors: they rate pairs and score whole rows for ranking; several parties' are assembled into one.

Rows and columns are those of the training ratings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from tacit.data.ratings import Ratings
from tacit.model import forms
from tacit.model.forms import Form


class Predictor(Protocol):
    """Anything that predicts; `rates` is True where predictions lie on the rating scale, False if they only rank."""

    @property
    def rates(self) -> bool: ...

    def predict(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """The rating of each pair (users[k], items[k]); where `rates` is False, its score. (k,) float32."""

    def scores(self, users: np.ndarray) -> np.ndarray:
        """What every item is ranked by, one row per user; shape (len(users), m), float32."""


@runtime_checkable
class FittedEstimator(Protocol):
    """A fitted estimator: its predictor, and the ratings that it has seen."""

    @property
    def predictor_(self) -> Predictor: ...

    @property
    def seen_(self) -> Ratings: ...


@dataclass(frozen=True, eq=False)
class Fitted:
    """A form, and the state of every user; states: (n, k). Rows and columns are those of the training ratings."""

    form: Form
    states: np.ndarray

    @classmethod
    def same_for_all(cls, form: Form, users: int) -> Fitted:
        """A form without users' states, for that many users."""
        return cls(form, np.zeros((users, 0), dtype=form.dtype))

    @property
    def rates(self) -> bool:
        """Whether predictions lie on the rating scale, or only rank."""
        return forms.rates(self.form)

    def predict(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """The rating of each pair; where the form only ranks, the score that it ranks by. (k,) float32."""
        rated = self.form.rate(self.states, users, items)
        if rated is not None:
            return rated
        some, rows = np.unique(users, return_inverse=True)
        return self.form.rank(self.states, some)[rows, items]

    def scores(self, users: np.ndarray) -> np.ndarray:
        """What every item is ranked by, one row per user; (len(users), m) float32."""
        return self.form.rank(self.states, users)


@dataclass(frozen=True, eq=False)
class Part:
    """One party's predictor, and the rows and columns of the whole that it covers."""

    rows: np.ndarray
    columns: np.ndarray
    predictor: Predictor


class Assembled:
    """Many parties' predictors as one, for an experimenter who holds them all."""

    def __init__(self, parts: Sequence[Part], n_users: int, n_items: int, by_item: bool) -> None:
        self.rates = all(part.predictor.rates for part in parts)
        self._parts, self._by_item, self._n_items = parts, by_item, n_items
        self._owner = np.empty(n_items if by_item else n_users, dtype=np.int64)
        self._place = np.empty_like(self._owner)
        for number, part in enumerate(parts):
            mine = part.columns if by_item else part.rows
            self._owner[mine], self._place[mine] = number, np.arange(len(mine))

    def predict(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        split = items if self._by_item else users
        out = np.empty(len(users), dtype=np.float32)
        for number, at in _groups(self._owner[split]):
            place = self._place[split[at]]
            rows, columns = (users[at], place) if self._by_item else (place, items[at])
            out[at] = self._parts[number].predictor.predict(rows, columns)
        return out

    def scores(self, users: np.ndarray) -> np.ndarray:
        out = np.empty((len(users), self._n_items), dtype=np.float32)
        if self._by_item:
            for part in self._parts:
                out[:, part.columns] = part.predictor.scores(users)
        else:
            for number, at in _groups(self._owner[users]):
                out[at] = self._parts[number].predictor.scores(self._place[users[at]])
        return out


def assemble(parts: Sequence[Part], n_users: int, n_items: int, by_item: bool) -> Predictor:
    """One predictor for the whole; a `Fitted` one if all parties' are, with equal forms."""
    fitted = [part.predictor for part in parts if isinstance(part.predictor, Fitted)]
    if len(fitted) == len(parts) and not by_item and forms.same(*(p.form for p in fitted)):
        form = fitted[0].form
        states = np.zeros((n_users, form.width), dtype=form.dtype)
        for part, predictor in zip(parts, fitted, strict=True):
            states[part.rows] = predictor.states
        return Fitted(form, states)
    return Assembled(parts, n_users, n_items, by_item)


def _groups(owner: np.ndarray) -> list[tuple[int, np.ndarray]]:
    order = np.argsort(owner, kind="stable")
    numbers, starts = np.unique(owner[order], return_index=True)
    return list(zip(numbers.tolist(), np.split(order, starts)[1:], strict=True))


class WithNewUsers:
    """One predictor, but another one for some users: those who were folded in afterwards."""

    def __init__(self, base: Predictor, rows: np.ndarray, other: Predictor, n_users: int) -> None:
        self.rates = base.rates
        self._base, self._other = base, other
        self._place = np.full(n_users, -1, dtype=np.int64)
        self._place[rows] = np.arange(len(rows))

    def predict(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        out, place = np.array(self._base.predict(users, items)), self._place[users]
        mine = place >= 0
        out[mine] = self._other.predict(place[mine], items[mine])
        return out

    def scores(self, users: np.ndarray) -> np.ndarray:
        out, place = np.array(self._base.scores(users)), self._place[users]
        mine = place >= 0
        out[mine] = self._other.scores(place[mine])
        return out
