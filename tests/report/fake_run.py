"""A small run folder, written by hand, for tests of what reads one."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

RUN = """seed = 7
[data]
source = "demo"
[split]
by = "random"
test = 0.1
[partition]
by = "{by}"
into = 2
[method]
name = "sgdmf"
rounds = 3
"""
SUMMARY = {
    "run": "runs/fake",
    "method": "sgdmf",
    "setting": "horizontal",
    "metrics": {"mse": 0.75512, "rmse": 0.86898, "ndcg@10": 0.31254},
    "intervals": {"mse": [0.7501, 0.7602], "ndcg@10": [0.3011, 0.3239]},
    "guarantee": None,
    "rounds": 3,
    "bytes_up": 6_600,
    "bytes_down": 6_000,
    "seconds": 41.26,
    "digest": "9f2c" * 16,
}
GUARANTEE = {
    "epsilon": 1.0,
    "delta": 1e-6,
    "unit": "user",
    "relation": "zero-out",
    "model": "silo",
    "against": "coordinator and other silos",
    "simulated": False,
}
ABOUT = {
    "tacit": "0.1.0",
    "python": "3.11.9",
    "numpy": "2.4.0",
    "created": "2026-03-14T10:22:05+00:00",
    "data": {
        "name": "demo",
        "users": 40,
        "items": 20,
        "ratings": 300,
        "scale": "1…5",
        "feedback": "explicit",
        "density": 0.375,
        "notes": ["made for tests"],
    },
    "split": "A random tenth is held out",
    "partition": {
        "description": "Users are divided at random among 2 silos",
        "parties": [
            {"name": "party-1", "label": "North", "users": 20, "items": 20, "ratings": 150, "devices": 0},
            {"name": "party-2", "label": "South", "users": 20, "items": 20, "ratings": 150, "devices": 0},
        ],
    },
    "method": {
        "name": "sgdmf",
        "title": "Federated matrix factorization",
        "parameters": {"factors": 20, "rate": 0.5, "trim": None, "shuffle": True},
        "what": "Each silo improves a copy of the item factors.",
    },
    "crossings": [
        {"step": "finish", "kind": "public", "to": "the coordinator", "what": "the word that it is done"},
        {"step": "improve", "kind": "chain", "to": "the coordinator", "what": "the silo's item factors"},
    ],
    "notes": ["A test rating of 4 or more counts as relevant"],
}
TEXT, NUMBER = pa.string(), pa.int64()
MESSAGES = {"call": pa.int32(), "round": pa.int32(), "step": TEXT, "party": TEXT, "direction": TEXT, "kind": TEXT}
MESSAGES |= {"bytes": NUMBER, "copies": NUMBER, "digest": TEXT, "status": TEXT}
METRICS = {"scope": TEXT, "round": pa.int32(), "user": TEXT, "metric": TEXT, "value": pa.float64()}


def three_rounds(parties: Sequence[str] = ("party-1", "party-2")) -> list[tuple[Any, ...]]:
    """improve in rounds 1 … 3: 1,000 bytes down and 1,100 up for each party; finish: nothing but envelopes."""
    rows: list[tuple[Any, ...]] = []
    for r in (1, 2, 3):
        for party in parties:
            rows.append((r, r, "improve", party, "down", "chain", 1000, 1, "aa", "ok"))
            rows.append((r, r, "improve", party, "up", "chain", 1100, 1, "bb", "ok"))
    for party in parties:
        rows.append((4, 3, "finish", party, "down", "public", 0, 1, "cc", "ok"))
        rows.append((4, 3, "finish", party, "up", "public", 0, 1, "dd", "ok"))
    return rows


def write_run(
    folder: Path,
    *,
    summary: Mapping[str, Any] | None = None,
    about: Mapping[str, Any] | None = None,
    rounds: Mapping[str, Sequence[float | None]] | None = None,
    users: Mapping[str, Any] | None = None,
    messages: Sequence[tuple[Any, ...]] | None = None,
    run: str = RUN.format(by="user"),
) -> Path:
    """A finished run in `folder`; what is given replaces what is usual, key by key."""
    (folder / "transcript").mkdir(parents=True)
    (folder / "run.toml").write_text(run, encoding="utf-8")
    (folder / "summary.json").write_text(json.dumps({**SUMMARY, **(summary or {})}), encoding="utf-8")
    (folder / "about.json").write_text(json.dumps({**ABOUT, **(about or {})}), encoding="utf-8")
    rounds = {"mse": [1.2, 0.9, 0.7601]} if rounds is None else rounds
    users = {"mse": np.linspace(0.2, 1.4, 40)} if users is None else users
    rows = [
        (scope, k + 1 if scope == "round" else None, f"u{k}" if scope == "user" else None, metric, value)
        for scope, columns in (("round", rounds), ("user", users))
        for metric, values in columns.items()
        for k, value in enumerate(values)
    ]
    pq.write_table(_table(METRICS, rows), folder / "metrics.parquet")
    sent = three_rounds() if messages is None else messages
    pq.write_table(_table(MESSAGES, sent), folder / "transcript" / "messages.parquet")
    return folder


def _table(types: Mapping[str, pa.DataType], rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(types)
    return pa.table({name: pa.array(column, kind) for (name, kind), column in zip(types.items(), columns, strict=True)})
