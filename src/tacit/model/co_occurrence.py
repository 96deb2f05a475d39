"""`CoOccurrence`: popularity, a low-rank image of which items occur together, and tastes for public features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np


@dataclass(frozen=True, eq=False)
class CoOccurrence:
    """score_j = log max(f_j·Σ_i f_i, (c + 1)·floor_j) + weight·x_j·θ,   i over the items that the user took

    c is how many of these are in the head. θ says how far the user's items lie from what is popular, along features:

        θ = (n·C + I/prior)⁻¹ Σ_i x_i,   n the number of the user's items

    A user's state is (Σ f_i, c, θ). Without factors it ranks by popularity and tastes; without tastes too, it is the
    same for everyone. It only ranks.

    Attributes
    ----------
    head : (m,), 1 for the items of the head and 0 for all others
    factors : f, (m, r), 0 outside the head
    floor : (m,) above 0, from popularity
    tastes : x, (m, t), public features
    spread : C, (t, t), how x varies over popular items
    weight, prior : numbers above
    """

    head: np.ndarray
    factors: np.ndarray
    floor: np.ndarray
    tastes: np.ndarray
    spread: np.ndarray
    weight: float = 0.5
    prior: float = 0.3

    name: ClassVar[str] = "co-occurrence"
    dtype: ClassVar[str] = "float32"
    arrays: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "head": ("items",),
        "factors": ("items", "rank"),
        "floor": ("items",),
        "tastes": ("items", "features"),
        "spread": ("features", "features"),
    }

    @property
    def width(self) -> int:
        return self.factors.shape[1] + 1 + self.tastes.shape[1]

    def fold_in(self, indptr: np.ndarray, items: np.ndarray, values: np.ndarray) -> np.ndarray:
        each = np.column_stack([self.factors, self.head, self.tastes]).astype(np.float64)
        sums = added(indptr, each[items])
        r = self.factors.shape[1]
        sizes, axes = np.linalg.eigh(self.spread.astype(np.float64))
        n = np.diff(indptr)[:, None]
        sums[:, r + 1 :] = (sums[:, r + 1 :] @ axes / (n * np.maximum(sizes, 0) + 1 / self.prior)) @ axes.T
        return sums.astype(np.float32)

    def rate(self, states: np.ndarray, users: np.ndarray, items: np.ndarray) -> None:
        return None

    def rank(self, states: np.ndarray, users: np.ndarray) -> np.ndarray:
        r, mine = self.factors.shape[1], states[users]
        scores = np.maximum(mine[:, :r] @ self.factors.T, (mine[:, r : r + 1] + 1) * self.floor)
        np.log(scores, out=scores)
        scores += np.float32(self.weight) * (mine[:, r + 1 :] @ self.tastes.T)
        return scores


def added(indptr: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Sums of rows over compressed rows: (nnz, k) to (n, k), 0 for an empty one."""
    out = np.zeros((len(indptr) - 1, rows.shape[1]))
    some = np.flatnonzero(np.diff(indptr))
    if len(some):
        out[some] = np.add.reduceat(rows, indptr[some], axis=0)
    return out
