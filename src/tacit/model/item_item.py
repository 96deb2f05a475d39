"""`ItemItem`: items are ranked by weights between items (EASE, Steck 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np


@dataclass(frozen=True, eq=False)
class ItemItem:
    """Σ_i B_ij over the items i that a user took ranks the items j of the head; all others follow by their base.

    score_j = Σ_i B_ij + base_j in the head,   min over the head + base_j elsewhere

    A user's state is which items of the head they took, 0 or 1 each. It only ranks. Where somebody has some of the
    items alone (`of_items`), their columns of B are left, and all K rows.

    Attributes
    ----------
    head : (m,), 1 + an item's row of B for those of the head, and 0 for all others
    weights : B, (K, K), the head in the order of the catalogue
    base : (m,); not below 0 in the head, where it decides between equals, and below 0 elsewhere
    """

    head: np.ndarray
    weights: np.ndarray
    base: np.ndarray

    name: ClassVar[str] = "item-item"
    dtype: ClassVar[str] = "float32"
    arrays: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "head": ("items",),
        "weights": ("taken", "head"),
        "base": ("items",),
    }

    @property
    def width(self) -> int:
        return len(self.weights)

    def fold_in(self, indptr: np.ndarray, items: np.ndarray, values: np.ndarray) -> np.ndarray:
        rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        place = self.head[items].astype(np.int64)
        kept = place > 0
        x = np.zeros((len(indptr) - 1, self.width), dtype=np.float32)
        x[rows[kept], place[kept] - 1] = 1
        return x

    def rate(self, states: np.ndarray, users: np.ndarray, items: np.ndarray) -> None:
        return None

    def rank(self, states: np.ndarray, users: np.ndarray) -> np.ndarray:
        inside = self.head > 0
        within = states[users] @ self.weights + self.base[inside]
        scores = np.empty((len(users), len(inside)), dtype=np.float32)
        scores[:, inside] = within
        scores[:, ~inside] = within.min(axis=1, initial=0.0)[:, None] + self.base[~inside]
        return scores

    def of_items(self, columns: np.ndarray) -> ItemItem:
        """The same over some of the items, whatever others a user took."""
        here = self.head[columns]
        own = np.flatnonzero(self.head > 0).searchsorted(columns[here > 0])
        return ItemItem(here, self.weights[:, own], self.base[columns])
