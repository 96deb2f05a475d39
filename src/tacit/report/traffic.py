"""Who sent what: the transcript added up by party, by step and by round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.report.record import RunRecord


@dataclass(frozen=True)
class PartyTraffic:
    """Bytes that left a party (`up`) and that reached it (`down`).

    `devices` > 0 marks a cohort; `parties` > 1 marks several parties put together.
    """

    title: str
    up: int
    down: int
    devices: int = 0
    parties: int = 1


class StepTraffic(NamedTuple):
    """One step's answers (copies counted), and its bytes."""

    step: str
    answered: int
    up: int
    down: int


@dataclass(frozen=True)
class RoundTraffic:
    """Bytes per round and step: rounds (r,) int64; up, down (r, s) float64; steps, the largest first."""

    rounds: np.ndarray
    steps: list[str]
    up: np.ndarray
    down: np.ndarray


def by_party(record: RunRecord) -> list[PartyTraffic]:
    """Every party on the roster or in the transcript, by bytes sent; equals keep the roster's order."""
    sent = {party: (up, down) for party, _answers, up, down in _sums(record.messages, "party")}
    sent.pop("sum", None)  # what the coordinator saw of masked contributions; no party sent it
    rows = []
    for party in record.about.partition.parties:
        title = party.label or party.name if party.devices else party.title
        rows.append(PartyTraffic(title, *sent.pop(party.name, (0, 0)), devices=party.devices))
    rows += [PartyTraffic(name, *sent[name]) for name in sorted(sent)]
    return sorted(rows, key=lambda row: -row.up)


def largest(rows: Sequence[PartyTraffic], most: int = 20) -> tuple[list[PartyTraffic], PartyTraffic | None]:
    """The `most` that sent most, and all others as one."""
    if len(rows) <= most:
        return list(rows), None
    up, down, devices = (sum(getattr(row, key) for row in rows[most:]) for key in ("up", "down", "devices"))
    return list(rows[:most]), PartyTraffic("", up, down, devices, len(rows) - most)


def by_step(record: RunRecord) -> list[StepTraffic]:
    """Every step that was requested, in the order of the first requests."""
    first = record.messages.group_by("step", use_threads=False).aggregate([("call", "min")])
    order = dict(zip(first["step"].to_pylist(), first["call_min"].to_pylist(), strict=True))
    rows = [StepTraffic(*row) for row in _sums(record.messages, "step")]
    return sorted(rows, key=lambda row: (order[row.step] or 0, row.step))


def by_round(record: RunRecord) -> RoundTraffic:
    """Bytes per round and step. Messages outside any round count as round 0."""
    found = [
        (round_ or 0, step, up, down) for round_, step, _answers, up, down in _sums(record.messages, "round", "step")
    ]
    total: dict[str, int] = {}
    for _round, step, up, down in found:
        total[step] = total.get(step, 0) + up + down
    steps = sorted(total, key=lambda step: (-total[step], step))
    rounds = np.unique(np.array([row[0] for row in found], dtype=np.int64))
    ups, downs = np.zeros((2, len(rounds), len(steps)))
    for number, step, up, down in found:
        place = np.searchsorted(rounds, number), steps.index(step)
        ups[place] += up
        downs[place] += down
    return RoundTraffic(rounds, steps, ups, downs)


def few_steps(moved: RoundTraffic, most: int) -> RoundTraffic:
    """At most so many steps; the smallest ones together as "other steps"."""
    if len(moved.steps) <= most:
        return moved
    k = most - 1
    up, down = (np.hstack([t[:, :k], t[:, k:].sum(axis=1, keepdims=True)]) for t in (moved.up, moved.down))
    return RoundTraffic(moved.rounds, [*moved.steps[:k], "other steps"], up, down)


def troubles(record: RunRecord) -> dict[str, int]:
    """How many messages did not arrive in time, by status ("lost", "late")."""
    found: dict[str, int] = {}
    table = record.messages.filter(pc.not_equal(record.messages["status"], "ok"))
    for status, copies in zip(table["status"].to_pylist(), table["copies"].to_pylist(), strict=True):
        found[status] = found.get(status, 0) + max(copies or 0, 1)
    return dict(sorted(found.items()))


def transcript_totals(record: RunRecord, arrived_only: bool = False) -> tuple[int, int]:
    """Bytes up and down according to the transcript."""
    table = record.messages
    if arrived_only:
        table = table.filter(pc.equal(pc.fill_null(table["status"], "ok"), "ok"))
    rows = list(_sums(table, "step"))
    return sum(row[-2] for row in rows), sum(row[-1] for row in rows)


def _sums(table: pa.Table, *keys: str) -> zip:
    """Rows of keys, answers, bytes up and bytes down."""
    up, copies, size = pc.equal(table["direction"], "up"), *(pc.fill_null(table[key], 0) for key in ("copies", "bytes"))
    columns = {"answers": pc.if_else(up, copies, 0), "up": pc.if_else(up, size, 0), "down": pc.if_else(up, 0, size)}
    parts = pa.table({**{key: table[key] for key in keys}, **columns})
    summed = parts.group_by(list(keys), use_threads=False).aggregate([(name, "sum") for name in columns])
    names = [*keys, *(f"{name}_sum" for name in columns)]
    return zip(*(summed[name].to_pylist() for name in names), strict=True)
