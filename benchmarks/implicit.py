"""One epoch of `implicit` over 50,000 devices and 5,000 items, as a sum and as reports, and its kernel beside its twin.

An epoch solves all users' factors, makes what leaves, and adds it up: everything but messages and ledger. Reports are
100 cells of each device by the mechanism that the paper's ε₀ of 2.5 gets, shuffled and estimated from.
"""

from __future__ import annotations

import resource
from functools import partial
from typing import Any

import numpy as np

from benchmarks.common.result import Result
from benchmarks.common.stopwatch import best_of
from tacit.boundary.cell_reports import CellReports, estimated
from tacit.boundary.item_gradients import ItemGradients
from tacit.boundary.randomness import Seeded
from tacit.data.ratings import Ratings
from tacit.data.synthetic import synthesize
from tacit.kernels.confidence import cell_gradients, cell_gradients_numpy
from tacit.methods.implicit.coordinator import descended
from tacit.methods.implicit.parameters import ImplicitParameters
from tacit.methods.implicit.party import form
from tacit.rng import derive, stream_key

USERS, ITEMS, FACTORS, RATINGS = 50_000, 5_000, 5, 5_000_000
REPORTS, EPSILON = 100, 2.5
#: What an epoch may take, in seconds, and the process at its peak, in megabytes.
MOST_SECONDS, MOST_MEGABYTES = 3.0, 2_000.0


def measure() -> list[Result]:
    """Seconds of an epoch, and megabytes of the process at its peak."""
    ratings = synthesize(USERS, ITEMS, RATINGS, feedback="implicit").ratings
    epoch = Epoch(ratings)
    seconds = best_of({"sums": epoch.summed, "reports": epoch.reported}, 3)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    what = f"{USERS:,} devices, {ITEMS:,} items, {FACTORS} factors"
    found = [
        Result(f"one epoch of {name}, {what}", seconds[name], "s", "target", MOST_SECONDS, most_ratio=1.0)
        for name in ("sums", "reports")
    ]
    found.append(Result("the process at its peak", peak, "MB", "target", MOST_MEGABYTES, most_ratio=1.0))
    few, x = ratings.select_users(np.arange(200)), epoch.states()[:200]
    cells = derive(7, "cells").integers(ITEMS * FACTORS, size=200 * REPORTS, dtype=np.int32)
    given = (few.indptr, few.items, few.values, x, epoch.items, 1.0, np.arange(200), cells)
    beside = best_of({"ours": partial(cell_gradients, *given), "twin": partial(cell_gradients_numpy, *given)}, 3)
    found.append(Result("100 cells of 200 devices", beside["ours"], "s", "NumPy twin", beside["twin"]))
    return found


class Epoch:
    """From item factors to the next, at public sizes."""

    def __init__(self, ratings: Ratings) -> None:
        self.ratings, self.parameters = ratings, ImplicitParameters(factors=FACTORS)
        self.items = (0.01 * derive(7, "V").standard_normal((ITEMS, FACTORS))).astype(np.float32)

    def states(self) -> Any:
        """Users' factors."""
        r = self.ratings
        return form(self.parameters, self.items).fold_in(r.indptr, r.items, r.values)

    def summed(self) -> None:
        query = ItemGradients(self.parameters.confidence)
        sums = query.over(self.ratings, self.states(), self.items).exact({}, derive(7, "unused"))
        descended(self.items, sums["items"] / USERS, 0.0, 0.01, self.parameters.steps)

    def reported(self) -> None:
        query = CellReports((ITEMS, FACTORS), self.parameters.confidence, REPORTS)
        answering, stream = query.over(self.ratings, self.states(), self.items), derive(7, "reports")
        made = answering.reports(stream, Seeded(stream_key(7, "coins")), EPSILON)["report"]
        mixed = made[stream.permutation(len(made))]
        mean = estimated(mixed, query.shape, query.randomizer(EPSILON))
        descended(self.items, mean, 0.0, 0.01, self.parameters.steps)
