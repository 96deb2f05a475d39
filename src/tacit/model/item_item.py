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

    A user's state is which items of the head they took, 0 or 1 each. It only ranks.

    Attributes
    ----------
    head : (m,), 1 for the items of the head and 0 for all others
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
        "weights": ("head", "head"),
        "base": ("items",),
    }

    @property
    def width(self) -> int:
        return len(self.weights)

    def fold_in(self, indptr: np.ndarray, items: np.ndarray, values: np.ndarray) -> np.ndarray:
        return indicators(self.head > 0, indptr, items)

    def rate(self, states: np.ndarray, users: np.ndarray, items: np.ndarray) -> None:
        return None

    def rank(self, states: np.ndarray, users: np.ndarray) -> np.ndarray:
        inside = self.head > 0
        within = states[users] @ self.weights + self.base[inside]
        scores = np.empty((len(users), len(inside)), dtype=np.float32)
        scores[:, inside] = within
        scores[:, ~inside] = within.min(axis=1, initial=0.0)[:, None] + self.base[~inside]
        return scores


def indicators(inside: np.ndarray, indptr: np.ndarray, items: np.ndarray) -> np.ndarray:
    """Which of some items each row has, 0 or 1; `inside` (m,) bool says which they are; (n, K) float32."""
    place = np.cumsum(inside) - 1
    kept = inside[items]
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))[kept]
    x = np.zeros((len(indptr) - 1, int(inside.sum())), dtype=np.float32)
    x[rows, place[items[kept]]] = 1
    return x
