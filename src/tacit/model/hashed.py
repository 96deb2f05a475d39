"""`Hashed`: a random order of items for every user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit.rng import mix


@dataclass(frozen=True, eq=False)
class Hashed:
    """A number in [0, 1) per pair, a function of two keys; an item's is in `keys`, (m,) uint64, a user's is the state.

    A new user's is the sum of the keys of the rated items: the same history gives the same order.
    """

    keys: np.ndarray

    name: ClassVar[str] = "hashed"
    dtype: ClassVar[str] = "uint64"
    arrays: ClassVar[Mapping[str, tuple[str, ...]]] = {"keys": ("items",)}

    @property
    def width(self) -> int:
        return 1

    def fold_in(self, indptr: np.ndarray, items: np.ndarray, values: np.ndarray) -> np.ndarray:
        sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(self.keys[items], dtype=np.uint64)])
        return (sums[indptr[1:]] - sums[indptr[:-1]])[:, None]

    def rate(self, states: np.ndarray, users: np.ndarray, items: np.ndarray) -> None:
        return None

    def rank(self, states: np.ndarray, users: np.ndarray) -> np.ndarray:
        return mix(states[users], self.keys[None, :]).astype(np.float32)
