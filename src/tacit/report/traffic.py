"""Who sent what: the transcript added up by party, by step and by round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.report.description import AboutParty
from tacit.report.record import RunRecord


@dataclass(frozen=True)
class PartyTraffic:
    """Bytes that left a party (`up`) and that reached it (`down`).

    `devices` > 0 marks a cohort; `parties` > 1 marks several parties put together.
    """

    name: str
    title: str
    up: int
    down: int
    devices: int = 0
    parties: int = 1


@dataclass(frozen=True)
class StepTraffic:
    """One step's messages: how many went each way (copies counted), and their bytes."""

    step: str
    asked: int
    answered: int
    up: int
    down: int


@dataclass(frozen=True)
class RoundTraffic:
    """Bytes per round and step: rounds (r,) int64; up, down (r, s) float64; steps, the heaviest first."""

    rounds: np.ndarray
    steps: list[str]
    up: np.ndarray
    down: np.ndarray


def by_party(record: RunRecord) -> list[PartyTraffic]:
    """Every party on the roster or in the transcript, by bytes sent; equals keep the roster's order."""
    totals = _totals(record.messages, ["party"])
    totals.pop(("sum",), None)  # what the coordinator saw of sealed contributions; nobody sent it
    roster = {party.name: party for party in record.about.partition.parties}
    rows = []
    for name in [*roster, *sorted({key[0] for key in totals} - roster.keys())]:
        moved, known = totals.get((name,), {}), roster.get(name)
        rows.append(
            PartyTraffic(
                name,
                _title(known) if known else name,
                up=moved.get("up", (0, 0))[1],
                down=moved.get("down", (0, 0))[1],
                devices=known.devices if known else 0,
            )
        )
    return sorted(rows, key=lambda row: -row.up)


def _title(party: AboutParty) -> str:
    return party.label or party.name if party.devices else party.title


def largest(rows: Sequence[PartyTraffic], most: int = 20) -> tuple[list[PartyTraffic], PartyTraffic | None]:
    """The `most` that sent most, and all others as one."""
    if len(rows) <= most:
        return list(rows), None
    rest = rows[most:]
    up, down = sum(row.up for row in rest), sum(row.down for row in rest)
    devices = sum(row.devices for row in rest)
    return list(rows[:most]), PartyTraffic("", "", up, down, devices, len(rest))


def by_step(record: RunRecord) -> list[StepTraffic]:
    """Every step that was asked for, in the order in which they were first asked for."""
    table = record.messages
    totals = _totals(table, ["step"])
    first = table.group_by("step", use_threads=False).aggregate([("call", "min")])
    order = dict(zip(first["step"].to_pylist(), first["call_min"].to_pylist(), strict=True))
    rows = []
    for (step,), moved in sorted(totals.items(), key=lambda pair: (order[pair[0][0]] or 0, pair[0][0])):
        (answered, up), (asked, down) = moved.get("up", (0, 0)), moved.get("down", (0, 0))
        rows.append(StepTraffic(step, asked, answered, up, down))
    return rows


def by_round(record: RunRecord) -> RoundTraffic:
    """Bytes per round and step. Messages outside any round count as round 0."""
    totals = _totals(record.messages, ["round", "step"])
    rounds = np.array(sorted({key[0] for key in totals}), dtype=np.int64)
    weight: dict[str, int] = {}
    for (_, step), moved in totals.items():
        weight[step] = weight.get(step, 0) + sum(amount for _, amount in moved.values())
    steps = sorted(weight, key=lambda step: (-weight[step], step))
    up, down = np.zeros((2, len(rounds), len(steps)))
    row = {int(number): place for place, number in enumerate(rounds)}
    column = {step: place for place, step in enumerate(steps)}
    for (number, step), moved in totals.items():
        for direction, table in (("up", up), ("down", down)):
            table[row[number], column[step]] = moved.get(direction, (0, 0))[1]
    return RoundTraffic(rounds, steps, up, down)


def few_steps(moved: RoundTraffic, most: int) -> RoundTraffic:
    """At most so many steps; the lightest ones together as "other steps"."""
    if len(moved.steps) <= most:
        return moved
    k = most - 1
    up, down = (np.hstack([t[:, :k], t[:, k:].sum(axis=1, keepdims=True)]) for t in (moved.up, moved.down))
    return RoundTraffic(moved.rounds, [*moved.steps[:k], "other steps"], up, down)


def troubles(record: RunRecord) -> dict[str, int]:
    """How many messages did not arrive in time, by status ("lost", "late")."""
    table = record.messages
    table = table.filter(pc.not_equal(pc.fill_null(table["status"], "ok"), "ok"))
    found: dict[str, int] = {}
    for status, copies in zip(table["status"].to_pylist(), table["copies"].to_pylist(), strict=True):
        found[status] = found.get(status, 0) + max(copies or 0, 1)
    return dict(sorted(found.items()))


def transcript_totals(record: RunRecord, arrived_only: bool = False) -> tuple[int, int]:
    """Bytes up and down according to the transcript."""
    table = record.messages
    if arrived_only:
        table = table.filter(pc.equal(pc.fill_null(table["status"], "ok"), "ok"))
    moved = _totals(table, []).get((), {})
    return moved.get("up", (0, 0))[1], moved.get("down", (0, 0))[1]


def _totals(table: pa.Table, keys: list[str]) -> dict[tuple, dict[str, tuple[int, int]]]:
    """key → direction → (messages, bytes)."""
    if "round" in keys:
        place = table.schema.get_field_index("round")
        table = table.set_column(place, "round", pc.fill_null(table["round"], 0))
    grouped = table.group_by([*keys, "direction"], use_threads=False)
    summed = grouped.aggregate([("copies", "sum"), ("bytes", "sum")])
    columns = [summed[name].to_pylist() for name in [*keys, "direction", "copies_sum", "bytes_sum"]]
    result: dict[tuple, dict[str, tuple[int, int]]] = {}
    for *key, direction, copies, amount in zip(*columns, strict=True):
        result.setdefault(tuple(key), {})[direction] = (int(copies or 0), int(amount or 0))
    return result
