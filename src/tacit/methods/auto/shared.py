"""What all parties get: a number per item, and small matrices by which each makes item factors of public features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.data.catalogue import Catalogue
from tacit.data.ratings import Scale
from tacit.federation import Facts, Floats, Schema
from tacit.federation.messages import Ints
from tacit.methods.auto.features import crossed
from tacit.methods.co_occurrence import head_of
from tacit.methods.item_features import choice_features, labelled
from tacit.model.tastes import Tastes

TASTES = Schema(
    base=Floats("items"),
    popularity=Floats("items"),
    metric=Floats("basis", "tastes"),
    prior=Floats("profile", "tastes"),
    noise=Floats(1),
)
CORRECTED = Schema(**TASTES.fields, corrections=Ints("items", "packed"), axes=Floats("corrections", "tastes"))
FINAL = Schema(**CORRECTED.fields, pairs=Floats("head", "any"))


def unit_of(scale: Scale) -> float:
    """A quarter of the scale's span: everything in `auto` is computed in this unit, around the middle of the scale."""
    return scale.span / 4


def basis_features(catalogue: Catalogue) -> np.ndarray:
    """The public features that tastes are made of, (m, d) float64; the same on every site and at the coordinator."""
    return np.hstack([labelled(catalogue), crossed(catalogue)])


@dataclass(frozen=True, eq=False)
class Shared:
    """base_j + v_j·z in units of `unit_of`, with V = [1, popularity, base, features]·metric + corrections·axes.

    Attributes
    ----------
    base, popularity : (m,); popularity is the mean of log d
    metric : (3 + d, k)
    prior : B of `Tastes`, (2 + k, k)
    noise : (1,), s²
    corrections, axes : (m, q) and (q, k), item factors beyond what features say, or None; parties get corrections as
        bytes, four in an integer (`as_bytes`)
    pairs : (K, r), how the head's items occur together, or None
    """

    base: np.ndarray
    popularity: np.ndarray
    metric: np.ndarray
    prior: np.ndarray
    noise: np.ndarray
    corrections: np.ndarray | None = None
    axes: np.ndarray | None = None
    pairs: np.ndarray | None = None

    @property
    def payload(self) -> dict[str, np.ndarray]:
        """As it is sent."""
        sent = {name: x.astype(np.float32) for name, x in vars(self).items() if x is not None}
        if self.corrections is not None and self.axes is not None:
            sent["corrections"], scales = as_bytes(self.corrections)
            sent["axes"] = (scales[:, None] * self.axes).astype(np.float32)
        return sent

    def basis(self, features: np.ndarray) -> np.ndarray:
        """[1, popularity, base, features], (m, 3 + d) float64."""
        ones = np.ones(len(self.base))
        return np.column_stack([ones, self.popularity, self.base, features]).astype(np.float64)

    def factors(self, features: np.ndarray) -> np.ndarray:
        """V, (m, k) float64."""
        found = self.basis(features) @ self.metric.astype(np.float64)
        if self.corrections is not None and self.axes is not None:
            q, corrections = len(self.axes), self.corrections
            if corrections.dtype == np.int32:
                corrections = np.ascontiguousarray(corrections).view(np.int8).reshape(len(found), -1)[:, :q]
            found += corrections.astype(np.float64) @ self.axes.astype(np.float64)
        return found

    @property
    def variance(self) -> float:
        """s², within reason whoever sent it."""
        return float(np.clip(self.noise[0], 1e-3, 1e3))

    def form(self, facts: Facts, features: np.ndarray, liked: bool = False) -> Tastes:
        """The model in ratings."""
        scale, head, pairs = facts.scale, None, None
        unit, middle = unit_of(scale), scale.low + scale.span / 2
        if self.pairs is not None and self.pairs.shape[1]:
            rows = head_of(self.popularity, len(self.pairs))
            head, pairs = np.zeros(facts.items), np.zeros((facts.items, self.pairs.shape[1]))
            head[rows], pairs[rows] = 1, self.pairs
        # in ratings v is `unit` times as long, and so are the centroids that the prior is applied to
        prior = self.prior.astype(np.float64).copy()
        prior[2:] /= unit
        return Tastes(
            scale.low,
            scale.high,
            unit**2 * self.variance,
            (middle + unit * self.base).astype(np.float32),
            (unit * self.factors(features)).astype(np.float32),
            prior.astype(np.float32),
            self.popularity.astype(np.float32),
            choice_features(facts),
            None if head is None else head.astype(np.float32),
            None if pairs is None else pairs.astype(np.float32),
            liked,
        )


def as_bytes(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`x` (m, q) in steps of a 127th of each column's largest, as (m, ⌈q/4⌉) int32 of four bytes each; and the steps.

    Noise is far larger than such a step, and a device receives a quarter of what float32 would take.
    """
    m, q = x.shape
    steps = np.maximum(np.abs(x).max(axis=0, initial=0.0), 1e-12) / 127
    whole = np.zeros((m, 4 * -(-q // 4)), dtype=np.int8)
    whole[:, :q] = np.rint(x / steps)
    return whole.view("<i4").reshape(m, -1), steps
