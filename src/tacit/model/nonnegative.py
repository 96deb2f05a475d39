"""`NonNegative`: bounded, non-negative factors, as SGDMF trains them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit.model.linear import flat_state


@dataclass(frozen=True, eq=False)
class NonNegative:
    """r̂_j = low + u·v_j, where u, v ≥ 0 and ‖u‖², ‖v‖² ≤ R (Π) keep it on the scale; R = high − low.

    A user's state is the u in Π that minimises Σ_j (r_j − low − u·v_j)² + regularization·‖u − prior‖² over the ratings.

    Attributes
    ----------
    low, high : the ratings' scale
    items : V, (m, p)
    regularization : how many ratings' worth the prior counts
    """

    low: float
    high: float
    items: np.ndarray
    regularization: float = 1.0

    name: ClassVar[str] = "non-negative"
    dtype: ClassVar[str] = "float32"
    arrays: ClassVar[Mapping[str, tuple[str, ...]]] = {"items": ("items", "factors")}

    @property
    def width(self) -> int:
        return self.items.shape[1]

    @property
    def prior(self) -> np.ndarray:
        """Factors of an unknown user: equal entries that predict the middle of the scale on average."""
        return flat_state(self.items, (self.high - self.low) / 2)

    def fold_in(self, indptr: np.ndarray, items: np.ndarray, values: np.ndarray) -> np.ndarray:
        from tacit.kernels.users import fold_in

        span = self.high - self.low
        return fold_in(indptr, items, values, self.low, self.items, self.prior, self.regularization, span)

    def rate(self, states: np.ndarray, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        from tacit.kernels.predict import predict_pairs

        return predict_pairs(states, self.items, users, items) + np.float32(self.low)

    def rank(self, states: np.ndarray, users: np.ndarray) -> np.ndarray:
        return states[users] @ self.items.T + np.float32(self.low)
