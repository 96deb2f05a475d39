"""What every fitted thing can do: predict pairs, and score whole rows.

Rows and columns are those of the training ratings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np

from tacit.data.ratings import Ratings


class Predictor(Protocol):
    """Anything that predicts.

    `rates` is True where predictions lie on the rating scale, False where they only rank.
    """

    @property
    def rates(self) -> bool: ...

    def predict(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """The prediction for each pair (users[k], items[k]); shape (k,), float32."""

    def scores(self, users: np.ndarray) -> np.ndarray:
        """The prediction for every item, one row per user; shape (len(users), m), float32."""


@runtime_checkable
class Fitted(Protocol):
    """A fitted estimator: its predictor, and the ratings that it has seen."""

    @property
    def predictor_(self) -> Predictor: ...

    @property
    def seen_(self) -> Ratings: ...


@dataclass(frozen=True, eq=False)
class Factors:
    """low + u·v; users: (n, p), items: (m, p) float32. With `high`, cut to the scale, for unbounded factors."""

    low: float
    users: np.ndarray
    items: np.ndarray
    high: float | None = None
    rates: bool = True

    def predict(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        from tacit.kernels.predict import predict_pairs

        return self._cut(predict_pairs(self.users, self.items, users, items) + np.float32(self.low))

    def scores(self, users: np.ndarray) -> np.ndarray:
        return self._cut(self.users[users] @ self.items.T + np.float32(self.low))

    def _cut(self, predicted: np.ndarray) -> np.ndarray:
        return predicted if self.high is None else np.clip(predicted, self.low, self.high)


@dataclass(frozen=True, eq=False)
class ItemScores:
    """The same for every user; values: (m,) float32."""

    values: np.ndarray
    rates: bool = True

    def predict(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        return self.values[items]

    def scores(self, users: np.ndarray) -> np.ndarray:
        return np.broadcast_to(self.values, (len(users), len(self.values)))


@dataclass(frozen=True, eq=False)
class UserScores:
    """The same for every item; values: (n,) float32."""

    values: np.ndarray
    n_items: int
    rates: bool = True

    def predict(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        return self.values[users]

    def scores(self, users: np.ndarray) -> np.ndarray:
        return np.broadcast_to(self.values[users][:, None], (len(users), self.n_items))


@dataclass(frozen=True, eq=False)
class Biases:
    """A user's level plus an item's bias, on the scale; users: (n,), items: (m,) float32."""

    users: np.ndarray
    items: np.ndarray
    low: float
    high: float
    rates: bool = True

    def predict(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        return np.clip(self.users[users] + self.items[items], self.low, self.high)

    def scores(self, users: np.ndarray) -> np.ndarray:
        return np.clip(self.users[users][:, None] + self.items[None, :], self.low, self.high)


@dataclass(frozen=True, eq=False)
class RandomScores:
    """A number in [0, 1] per pair, a function of the keys of both ids alone; keys: (n,) and (m,) uint64."""

    user_keys: np.ndarray
    item_keys: np.ndarray
    rates: bool = False

    def predict(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        from tacit.rng import mix

        return mix(self.user_keys[users], self.item_keys[items]).astype(np.float32)

    def scores(self, users: np.ndarray) -> np.ndarray:
        from tacit.rng import mix

        return mix(self.user_keys[users][:, None], self.item_keys[None, :]).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Part:
    """One party's predictor, and the rows and columns of the whole that it speaks for."""

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
    """One predictor for the whole. Factor models over the same item factors become one factor model."""
    predictors = [part.predictor for part in parts]
    factors = [p for p in predictors if isinstance(p, Factors)]
    if len(factors) == len(parts) and not by_item and all(_same(p, factors[0]) for p in factors):
        users = np.zeros((n_users, factors[0].users.shape[1]), dtype=np.float32)
        for part, predictor in zip(parts, factors, strict=True):
            users[part.rows] = predictor.users
        return replace(factors[0], users=users)
    return Assembled(parts, n_users, n_items, by_item)


def _same(a: Factors, b: Factors) -> bool:
    """Whether two parties predict alike from the same item factors: one array, or copies of it."""
    alike = (a.low, a.high, a.rates) == (b.low, b.high, b.rates)
    return alike and (a.items is b.items or np.array_equal(a.items, b.items))


def _groups(owner: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """The positions of each distinct owner."""
    order = np.argsort(owner, kind="stable")
    numbers, starts = np.unique(owner[order], return_index=True)
    return list(zip(numbers.tolist(), np.split(order, starts)[1:], strict=True))


class Overlay:
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
