"""Rounds of private training on devices, in MovieLens 10M's shape: seconds, peak memory, and bytes a device sends.

All devices are one cohort: each fits its own factors, draws what it sends, rounds it to whole numbers, and the sum gets
the noise of the survivors' shares. The limit is the devices' own fit alone, which a round without privacy needs, too.
Traffic is what the protocol would carry for each device, beside m·p·b/8 bytes, the contribution alone.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.common.fresh import Memory, call
from benchmarks.common.result import Result
from benchmarks.common.shapes import ML_10M
from tacit.config import RunFile
from tacit.federation import Facts
from tacit.methods import chosen
from tacit.partition import partition
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.run_file import plan
from tacit.prepare.simulate import train
from tacit.prepare.simulated_ledgers import Records

ROUNDS, FACTORS = 3, 20
MOST_SECONDS, MOST_MEGABYTES, MOST_TRAFFIC = 5.0, 2000.0, 2.0


def measure() -> list[Result]:
    """Seconds, megabytes and bytes."""
    Memory()
    results = []
    for send in ("rating", "record"):
        told = call("devices", "rounds", send)
        what = f"a round of {ML_10M.users:,} devices × {ML_10M.items:,} items × {FACTORS} factors, a {send} each"
        results += [
            Result(what, told["seconds"], "s", "the devices' own fit", told["fit"], most=MOST_SECONDS),
            Result(
                "· peak memory", told["peak"] / 1e6, "MB", "the ratings", told["ratings"] / 1e6, most=MOST_MEGABYTES
            ),
            Result(
                f"· up a device, {told['bits']} bits a cell",
                told["up"] / 1e3,
                "kB",
                "m·p·b/8",
                told["cells"] * told["bits"] / 8e3,
                most_ratio=MOST_TRAFFIC,
            ),
        ]
    return results


def rounds(send: str) -> dict[str, Any]:
    """What one round takes, on average over a few."""
    ratings = ML_10M.made()
    table = {
        "data": {"source": "demo", "users": ML_10M.users, "items": ML_10M.items, "ratings": ML_10M.ratings},
        "partition": {"by": "device"},
        "method": {"name": "sgdmf", "factors": FACTORS, "rounds": ROUNDS, "send": send},
        "privacy": {"epsilon": 4.0, "delta": 1e-7},
        "aggregation": {"name": "secagg"},
    }
    file = RunFile.model_validate(table)
    method, parameters = chosen(file.method)
    made = plan(file, method, parameters)
    parties = partition(ratings, by="device")
    size = ratings.indptr.nbytes + ratings.items.nbytes + ratings.values.nbytes
    del ratings
    small = partition(ML_10M._replace(users=200, ratings=4000).made(), by="device")
    _trained(method, made, small, file, {"users": 200})  # compiles
    memory = Memory()
    memory.mark()
    before, moments = memory.now, [perf_counter()]
    trained = _trained(method, made, parties, file, None, lambda _glance: moments.append(perf_counter()))
    peak = memory.peak - before
    (party,) = trained.parties
    began = perf_counter()
    party._fitted(trained.model.item_factors)
    fit = perf_counter() - began
    grid = made.terms.steps["contribute"].code
    up = trained.transcript.meter.bytes_up / ML_10M.users / ROUNDS
    return {
        "seconds": float(np.mean(np.diff(moments[-ROUNDS:]))),
        "fit": fit,
        "peak": peak,
        "ratings": size,
        "bits": grid.bits,
        "cells": ML_10M.items * FACTORS,
        "up": up,
    }


def _trained(method: Any, made: Any, parties: Any, file: RunFile, sizes: Any, watch: Any = None) -> Any:
    """One conversation, with ledgers on disk; `sizes` replaces the declared ones for a small example."""
    if sizes is not None:
        small = RunFile.model_validate({**file.model_dump(exclude_none=True), "data": {"source": "demo", **sizes}})
        small = small.model_copy(
            update={"data": small.data.model_copy(update={"items": ML_10M.items, "ratings": 4000})}
        )
        made = plan(small, *chosen(small.method))
    with tempfile.TemporaryDirectory() as folder:
        run = PreparedRun.by_plan(method, Facts.of(parties, 7), made, run="run")
        return train(run, parties, records=Records.unlimited(run, Path(folder)), watch=watch)
