"""Made-up ratings in the shapes of public sets, so that a benchmark needs no download."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from tacit.data.ratings import Ratings
from tacit.data.synthetic import synthesize


class Shape(NamedTuple):
    users: int
    items: int
    ratings: int

    def made(self) -> Ratings:
        """Ratings of this shape; always the same."""
        return synthesize(*self, seed=7).ratings


ML_1M = Shape(6_040, 3_706, 1_000_209)
ML_10M = Shape(69_878, 10_677, 10_000_054)


@cache
def like_ml_1m() -> Ratings:
    """Made once for all benchmarks that use it."""
    return ML_1M.made()
