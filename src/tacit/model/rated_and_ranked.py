"""`RatedAndRanked`: `Bayesian` says what a user would rate, and `ItemItem` what to recommend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import ClassVar, TypeVar

import numpy as np

from tacit.model.bayesian import Bayesian
from tacit.model.item_item import ItemItem

Part = TypeVar("Part", Bayesian, ItemItem)


@dataclass(frozen=True, eq=False)
class RatedAndRanked:
    """Two questions, two answers: what would a user rate, and what will they take next?

    Ratings are those of `rates`, the form `Bayesian`, and items are ranked by `ranks`, the form `ItemItem`. A user's
    state is that of the first, then that of the second.

    Attributes
    ----------
    low, high, centre, noise, doubt, items, moments, coefficients, precision : those of `Bayesian`
    head, weights, base : those of `ItemItem`
    """

    low: float
    high: float
    centre: float
    noise: float
    doubt: float
    items: np.ndarray
    moments: np.ndarray
    coefficients: np.ndarray
    precision: np.ndarray
    head: np.ndarray
    weights: np.ndarray
    base: np.ndarray

    name: ClassVar[str] = "rated-and-ranked"
    dtype: ClassVar[str] = "float32"
    arrays: ClassVar[Mapping[str, tuple[str, ...]]] = {**Bayesian.arrays, **ItemItem.arrays}

    @classmethod
    def of(cls, rates: Bayesian, ranks: ItemItem) -> RatedAndRanked:
        """The form that rates by the one and ranks by the other."""
        return cls(**{f.name: getattr(part, f.name) for part in (rates, ranks) for f in fields(part)})

    @cached_property
    def rates(self) -> Bayesian:
        return self._part(Bayesian)

    @cached_property
    def ranks(self) -> ItemItem:
        return self._part(ItemItem)

    def _part(self, kind: type[Part]) -> Part:
        return kind(**{f.name: getattr(self, f.name) for f in fields(kind)})

    @property
    def width(self) -> int:
        return self.rates.width + self.ranks.width

    def fold_in(self, indptr: np.ndarray, items: np.ndarray, values: np.ndarray) -> np.ndarray:
        return np.hstack([part.fold_in(indptr, items, values) for part in (self.rates, self.ranks)])

    def rate(self, states: np.ndarray, users: np.ndarray, items: np.ndarray) -> np.ndarray | None:
        return self.rates.rate(np.ascontiguousarray(states[:, : self.rates.width]), users, items)

    def rank(self, states: np.ndarray, users: np.ndarray) -> np.ndarray:
        return self.ranks.rank(states[:, self.rates.width :], users)

    def of_items(self, columns: np.ndarray) -> RatedAndRanked:
        """The same over some of the items, whatever others a user took."""
        return self.of(self.rates.of_items(columns), self.ranks.of_items(columns))
