"""`tacit ledger show`, `verify` and `export`: what parties released, what that cost, and whether the record is whole.

Nothing here changes a ledger, and no ledger is shown or exported before it was verified.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from tacit.boundary.filters import Filter
from tacit.boundary.ledger import START, Row
from tacit.boundary.protection import ACCOUNTED, event_in_words, total_epsilon
from tacit.cli.verified import DELTA, verified
from tacit.errors import TamperingFound, UsageError
from tacit.guarantee import Relation
from tacit.report.words import count, plural, size
from tacit.report.words import epsilon as rounded_up

#: Up to so many costly releases every cumulative ε is composed exactly; beyond, by a bound that is quick to compute.
EXACT = 40


# -- the commands ---------------------------------------------------------------------------------------------


def show(place: Path, delta: float | None, as_json: bool) -> None:
    """Every release of every ledger, with the ε that was reached by then."""
    run, ledgers = verified(place)
    if delta is not None and not 0 < delta < 1:
        raise UsageError(f"--delta {delta:g} is not possible; give a number between 0 and 1, such as 1e-6.")
    delta = delta if delta is not None else DELTA if run is None else run.delta
    relations = {ledger.relation for ledger in ledgers} or {ACCOUNTED}
    told = str(relations.pop()) if len(relations) == 1 else "as each ledger says"
    table: dict[str, Any] = {"private": bool(ledgers), "delta": delta, "relation": told, "ledgers": []}
    console = Console(highlight=False, markup=False)
    console.width = max(console.width, 150)  # a row stays on one line; a narrow terminal breaks it itself
    for ledger in ledgers:
        reached = cumulative(ledger.rows, delta, ledger.relation)
        if as_json:
            releases = [
                {**_row(row), "spent": event_in_words(row), "devices": _devices(row), "epsilon": _finite(epsilon)}
                for row, epsilon in zip(ledger.rows, reached, strict=True)
            ]
            lifetime = _finite(reached[-1] if reached else 0.0)
            table["ledgers"].append({**ledger.to_json(), "releases": releases, "epsilon": lifetime})
        else:
            console.print(f"{ledger.party} · {ledger.path}")
            console.print(_table(ledger.rows, reached))
            console.print(_lifetime(ledger.rows, reached, delta, ledger.relation), soft_wrap=True)
            for one in ledger.refused["told"]:
                where = f"round {one['round']}, {one['step']}"
                console.print(f"Refused {one['moment']}, {where}: {one['why']}", soft_wrap=True)
            console.print()
    if as_json:
        typer.echo(json.dumps(table, ensure_ascii=False, allow_nan=False))
    elif not ledgers:
        typer.echo(_non_private(place))


def verify(place: Path, head: str | None, as_json: bool) -> None:
    """Check chain, seals and state of every ledger, and with a run that everything that left is in them."""
    if head is not None and not re.fullmatch("[0-9a-f]{64}", head := head.strip().lower()):
        raise UsageError(
            f'--head "{head}" is not a head: it has 64 hexadecimal digits, as in the answer of ledger verify.'
        )
    run, ledgers = verified(place)
    if head is not None and not any(head == START or head in {row.head for row in ledger.rows} for ledger in ledgers):
        which = f'The ledger "{place}" of {ledgers[0].party}' if len(ledgers) == 1 else f'No ledger of "{place}"'
        holds = "does not hold" if len(ledgers) == 1 else "holds"
        raise TamperingFound(f"{which} {holds} the head {head}: rows were cut off, or an old ledger was put back.")
    if as_json:
        found = [{**ledger.to_json(), "messages": None if run is None else ledger.messages} for ledger in ledgers]
        typer.echo(json.dumps({"whole": True, "private": bool(ledgers), "ledgers": found}, ensure_ascii=False))
        return
    for ledger in ledgers:
        sent = "" if run is None else f", {plural(ledger.messages, 'message')} of the run found in it"
        refused = f", {plural(ledger.refusals, 'request')} refused" if ledger.refusals else ""
        typer.echo(
            f"{ledger.party}: {plural(len(ledger.rows), 'release')}, nothing changed{sent}{refused}; head {ledger.head}"
        )
    if not ledgers:
        typer.echo(_non_private(place))


def export(place: Path, out: Path | None, as_json: bool) -> None:
    """All rows, without the answers' bytes and without anything about a party's state."""
    if out is not None and out.suffix.lower() not in _WRITERS:
        raise UsageError(f'"{out}" should end in {", ".join(_WRITERS)}; the ending says how it is written.')
    if out is not None and out.exists():
        raise UsageError(f'"{out}" is there already; name another file, or remove it first.')
    _run, ledgers = verified(place)
    rows = [{"party": ledger.party, **_row(row)} for ledger in ledgers for row in ledger.rows]
    if not ledgers:
        typer.echo(_non_private(place), err=True)
    if out is not None and ledgers:
        try:
            part = out.with_name(out.name + ".part")
            _WRITERS[out.suffix.lower()](rows, part)
            part.replace(out)
        except OSError as error:
            raise UsageError(f'"{out}" cannot be written: {error.strerror}; name another place.') from None
    if as_json:
        told = {"rows": rows} if out is None else {"out": str(out), "rows": len(rows), "ledgers": len(ledgers)}
        typer.echo(json.dumps(told, ensure_ascii=False))
    elif out is None:
        for row in rows:
            typer.echo(json.dumps(row, ensure_ascii=False))
    elif ledgers:
        typer.echo(f"Wrote {plural(len(rows), 'release')} of {plural(len(ledgers), 'ledger')} to {out}.")


def cumulative(rows: Sequence[Row], delta: float, relation: Relation = ACCOUNTED) -> list[float]:
    """After each release, the ε reached so far; the last one is the ledger's.

    Releases cost no less together than some of them do, so the ledger's own ε bounds every earlier one. A long ledger's
    earlier values are the smaller of that and the reading of a privacy filter, which is no less than what holds.
    """
    if not rows:
        return []
    last = total_epsilon(rows, delta, relation)
    costly = [place for place, row in enumerate(rows) if row.kind != "public"]
    if len(costly) <= EXACT:
        return [min(last, total_epsilon(rows[: n + 1], delta, relation)) for n in range(len(rows) - 1)] + [last]
    reading, events = Filter(math.inf, delta, relation), [row.spent for row in rows]
    return [min(last, reading.spent(events[: n + 1])) for n in range(len(rows) - 1)] + [last]


# -- words ----------------------------------------------------------------------------------------------------


def _table(rows: Sequence[Row], reached: Sequence[float]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("no.", "when", "run", "round", "step", "kind", "spent", "bytes", "from", "ε so far", "head"):
        table.add_column(name, justify="right" if name in ("no.", "round", "bytes", "ε so far") else "left")
    for row, epsilon in zip(rows, reached, strict=True):
        devices = _devices(row)
        start = (str(row.number), row.moment, row.run[:8], str(row.round), row.step, row.kind, event_in_words(row))
        who = "1 party" if devices is None else plural(devices, "device")
        table.add_row(*start, count(row.size), who, rounded_up(epsilon), row.head[:12])
    return table


def _lifetime(rows: Sequence[Row], reached: Sequence[float], delta: float, relation: Relation) -> str:
    runs, sent = len({row.run for row in rows}), size(sum(row.size * row.contributors for row in rows))
    how = ", composed by a privacy filter, as for runs chosen one after another" if runs > 1 else ""
    total = rounded_up(reached[-1] if reached else 0.0)
    return (
        f"Over its lifetime: ε = {total} at δ = {delta:g} ({relation}){how}; {plural(len(rows), 'release')} in "
        f"{plural(runs, 'run')}, {sent}."
    )


def _non_private(place: Path) -> str:
    return f'The run "{place}" is NON-PRIVATE: no party kept a ledger.'


def _row(row: Row) -> dict[str, Any]:
    """A row for others' eyes: the hash of a party's state stays at home."""
    values = asdict(row)
    del values["state"]
    present = None if row.present is None else row.present.hex()
    return {**values, "event": json.loads(row.event), "present": present}


def _devices(row: Row) -> int | None:
    """How many devices of a cohort a row speaks for; None for a silo."""
    return row.contributors if row.present is not None or row.contributors > 1 else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


# -- files ----------------------------------------------------------------------------------------------------


def _flat(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "event": json.dumps(row["event"], sort_keys=True)} for row in rows]


def _names() -> list[str]:
    return ["party", *(field.name for field in fields(Row) if field.name != "state")]


def _jsonl(rows: Sequence[dict[str, Any]], path: Path) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def _csv(rows: Sequence[dict[str, Any]], path: Path) -> None:
    import csv

    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, _names())
        writer.writeheader()
        writer.writerows(_flat(rows))


def _parquet(rows: Sequence[dict[str, Any]], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    whole = {"number", "round", "attempt", "size", "contributors"}
    schema = pa.schema([(name, pa.int64() if name in whole else pa.string()) for name in _names()])
    pq.write_table(pa.Table.from_pylist(_flat(rows), schema), path, compression="zstd")


_WRITERS = {".jsonl": _jsonl, ".csv": _csv, ".parquet": _parquet}
