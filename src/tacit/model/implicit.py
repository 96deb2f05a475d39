"""`Implicit`: factors of implicit feedback (Hu, Koren and Volinsky 2008)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np


@dataclass(frozen=True, eq=False)
class Implicit:
    """x·v_j ranks items by how likely a user takes them. It is not a rating.

    Every item counts: those that the user took as 1 with confidence 1 + α·r, all others as 0 with confidence 1.

        x = (VᵀV + α·Σ_j r_j·v_j·v_jᵀ + λI)⁻¹ Σ_j (1 + α·r_j)·v_j   over the items with r_j > 0

    Attributes
    ----------
    items : V, (m, k)
    confidence : α
    regularization : λ
    binary : whether every item in a history counts as r = 1, whatever its number
    """

    items: np.ndarray
    confidence: float = 40.0
    regularization: float = 1.0
    binary: bool = False

    name: ClassVar[str] = "implicit"
    dtype: ClassVar[str] = "float32"
    arrays: ClassVar[Mapping[str, tuple[str, ...]]] = {"items": ("items", "factors")}

    @property
    def width(self) -> int:
        return self.items.shape[1]

    def fold_in(self, indptr: np.ndarray, items: np.ndarray, values: np.ndarray) -> np.ndarray:
        from tacit.kernels.grams import least_squares

        taken = np.ones(len(values)) if self.binary else np.maximum(values, 0).astype(np.float64)
        V, more = self.items.astype(np.float64), self.confidence * taken
        targets = np.where(taken > 0, 1 + more, 0)
        precision = V.T @ V + self.regularization * np.eye(self.width)
        return least_squares(indptr, items, more, targets, self.items, precision)

    def rate(self, states: np.ndarray, users: np.ndarray, items: np.ndarray) -> None:
        return None

    def rank(self, states: np.ndarray, users: np.ndarray) -> np.ndarray:
        return states[users] @ self.items.T
