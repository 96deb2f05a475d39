"""`Model`: the shared result of a fit: a form over items, with ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data.ratings import Scale
from tacit.data.vocabulary import Vocabulary
from tacit.errors import DataError, UsageError, check_integer, check_type
from tacit.model import forms
from tacit.model.forms import Form


@dataclass(frozen=True, eq=False)
class Model:
    """The shared result of a fit, for use with anyone's own ratings.

    `predict` returns ratings and `recommend` a ranking; a form may rank otherwise than by its ratings.

    Attributes
    ----------
    method : the method's name
    scale : the ratings' scale
    item_ids : Vocabulary, m ids
    form : the learned arrays over items, and how they rate and rank
    states : (n, k) in the order of the roster, where users' states are shared (the vertical setting), or None
    stamp : the guarantee in words, or NON-PRIVATE
    """

    method: str
    scale: Scale
    item_ids: Vocabulary
    form: Form
    states: np.ndarray | None = None
    stamp: str = "NON-PRIVATE"

    def __repr__(self) -> str:
        width = "" if self.item_factors is None else f", {self.item_factors.shape[1]} factors"
        return f"Model({self.method}: {len(self.item_ids):,} items{width}; {self.stamp})"

    @property
    def rates(self) -> bool:
        """Whether predictions lie on the scale, or only rank."""
        return forms.rates(self.form)

    @property
    def item_factors(self) -> np.ndarray | None:
        """V, (m, p) float32; None where the form has no factors."""
        factors = getattr(self.form, "items", None)
        return None if factors is None or not factors.shape[1] else factors

    @property
    def user_factors(self) -> np.ndarray | None:
        """U, (n, p) float32, where it is shared; else None."""
        return self.states

    def fold_in(self, indptr: np.ndarray, items: np.ndarray, values: np.ndarray) -> np.ndarray:
        """States of new users from their own ratings, in compressed rows; (n, k)."""
        return self.form.fold_in(
            np.asarray(indptr, dtype=np.int64), np.asarray(items, dtype=np.int32), np.asarray(values, dtype=np.float32)
        )

    def scores(self, history: Mapping[Any, float]) -> np.ndarray:
        """The score of every item, for a user with these ratings; (m,) float32."""
        return np.asarray(self.form.rank(self._state(history), np.zeros(1, dtype=np.int64)))[0]

    def predict(self, history: Mapping[Any, float], items: Sequence[Any]) -> np.ndarray:
        """Predicted ratings of some items, by id, for a user with this history; float32."""
        columns = item_rows(self.item_ids, items)
        rated = self.form.rate(self._state(history), np.zeros(len(columns), dtype=np.int64), columns)
        if rated is None:
            raise UsageError(f'A "{self.method}" model predicts no ratings, it only ranks; use recommend.')
        return rated

    def recommend(self, history: Mapping[Any, float], n: int = 10) -> list[tuple[Any, float]]:
        """The n best items that are not in the history: (id, score) pairs, best first."""
        seen, _values = self._history(history)
        return best(self.scores(history), self.item_ids, seen, n)

    def _state(self, history: Mapping[Any, float]) -> np.ndarray:
        rows, values = self._history(history)
        return self.fold_in(np.array([0, len(rows)]), rows, values)

    def _history(self, history: Mapping[Any, float]) -> tuple[np.ndarray, np.ndarray]:
        check_type(history, Mapping, "A shared model", "a user's history, {item: rating, …}, since it has no users")
        rows = np.array([self.item_ids.row(item) for item in history], dtype=np.int64)
        try:
            values = np.array([float(value) for value in history.values()])
        except (TypeError, ValueError):
            raise DataError("A rating in the history is not a number; correct it.") from None
        if not np.all((values >= self.scale.low) & (values <= self.scale.high)):
            raise DataError(f"A rating in the history is off the scale {self.scale}; correct it.")
        if len(np.unique(rows)) < len(rows):
            raise DataError("The history rates one item twice; remove one of the ratings.")
        order = np.argsort(rows)
        return rows[order], values[order].astype(np.float32)

    def save(self, folder: str | Path) -> Path:
        """Write model.json and factors.npz into a folder; no pickle."""
        from tacit.model.storage import write

        check_type(folder, str | PathLike, "save", "a folder's path")
        return write(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path) -> Model:
        """The model that `save`, `tacit run`, `tacit export` or a site wrote, by its folder."""
        from tacit.model.storage import read

        check_type(folder, str | PathLike, "Model.load", "a folder's path")
        return read(Path(folder))


def item_rows(item_ids: Vocabulary, items: Sequence[Any]) -> np.ndarray:
    """The columns of some items by id, (k,) int64; one id alone, or anything but a sequence, is refused."""
    if isinstance(items, str) or not isinstance(items, Sequence | np.ndarray):
        raise UsageError(f"predict takes a list of item ids, and got {items!r}; put it in brackets.")
    return np.array([item_ids.row(item) for item in items], dtype=np.int64)


def best(scores: np.ndarray, item_ids: Vocabulary, seen: np.ndarray, n: int) -> list[tuple[Any, float]]:
    """The n best items that were not seen, as (id, score), best first; equal scores in the order of their ids."""
    check_integer("n", n)
    allowed = np.ones(len(scores), dtype=bool)
    allowed[seen] = False
    candidates = np.flatnonzero(allowed)
    order = candidates[np.argsort(-scores[candidates], kind="stable")[:n]]
    return [(item_ids[j].item() if hasattr(item_ids[j], "item") else item_ids[j], float(scores[j])) for j in order]
