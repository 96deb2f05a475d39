"""What is kept of a run: everything that crossed, what it cost, and what was promised."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tacit.boundary.ledger import Ledger, ledgers_in
from tacit.boundary.protection import Budget
from tacit.config import RunFile
from tacit.errors import TacitError
from tacit.prepare.loaded import prepare
from tacit.prepare.simulate import train
from tacit.prepare.simulated_ledgers import Records


def observed(file: RunFile) -> dict[str, Any]:
    """One run of the goldens, or that it is refused. What noise from the operating system changes is left out."""
    try:
        return _run(file)
    except TacitError as refusal:
        return {"refused": type(refusal).__name__}


def _run(file: RunFile) -> dict[str, Any]:
    prepared = prepare(file)
    run, plan = prepared.run.named("goldens"), prepared.run.plan
    with tempfile.TemporaryDirectory() as folder:
        records = Records(Path(folder), Budget(1e6, plan.delta)) if run.private else None
        trained = train(run, prepared.parties, records=records)
        events = {}
        for path in ledgers_in(Path(folder)):
            ledger = Ledger.open(path)
            events[ledger.party] = [f"{row.round} {row.step} {row.kind} {row.event}" for row in ledger.rows()]
            ledger.close()
    ratings, predicted = prepared.train, trained.predictor.predict(prepared.train.users, prepared.train.items)
    meter = trained.transcript.meter
    return {
        "digest": trained.transcript.digest if file.engine.seeded is not False else "",
        "rounds": trained.rounds,
        "void": trained.void,
        "predicted": [] if file.engine.seeded is False else _shape_of(predicted, ratings.values),
        "bytes": [meter.bytes_up, meter.bytes_down],
        "sigma": plan.sigma(),
        "guarantee": plan.terms.guarantee.to_json(),
        "events": _folded(events),
    }


def _shape_of(predicted: np.ndarray, values: np.ndarray) -> list[float]:
    """What is predicted at home, to four digits: enough to notice that it is something else."""
    wide = predicted.astype(np.float64)
    return [float(f"{x:.4g}") for x in (wide.mean(), wide.std(), np.mean((wide - values) ** 2))]


def arithmetic() -> str:
    """How this machine rounds: products of matrices and elementary functions differ between processors."""
    x = np.random.default_rng(7).standard_normal((97, 31))
    parts = [x.T @ x, x.astype(np.float32) @ x.T.astype(np.float32), np.exp(x), np.linalg.inv(x.T @ x)]
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def _folded(events: dict[str, list[str]]) -> dict[str, list[str]]:
    """By the parties that wrote them, so that sixty alike are there once."""
    by_rows: dict[tuple[str, ...], list[str]] = {}
    for party, rows in events.items():
        by_rows.setdefault(tuple(rows), []).append(party)
    return {" ".join(sorted(parties, key=lambda p: int(p.split("-")[1]))): list(r) for r, parties in by_rows.items()}
