"""`tacit ledger show`, `verify` and `export`: what parties released, what that cost, and whether the record is whole.

Nothing here changes a ledger, and no ledger is shown or exported before it was verified.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from tacit.boundary.account import prefix_costs
from tacit.boundary.ledger import START, Row
from tacit.boundary.protection import ACCOUNTED, event_in_words
from tacit.cli.verified_ledgers import DELTA, Checked, Run, verified
from tacit.errors import TamperingFound, UsageError
from tacit.report.description import StatedGuarantee
from tacit.report.guarantee_words import one_line
from tacit.report.left import Left, RunNote, devices, first_page, run_notes, to_whom
from tacit.report.words import count, epsilon_so_far, listing, plural, size

# -- the commands ---------------------------------------------------------------------------------------------


def show(place: Path, delta: float | None, as_json: bool, html: Path | None = None) -> None:
    """Every release of every ledger, to whom it went, and the ε that was reached by then; with `html`, as a page."""
    if delta is not None and not 0 < delta < 1:
        raise UsageError(f"--delta {delta:g} is not possible; give a number between 0 and 1, such as 1e-6.")
    if html is not None and html.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f'"{html}" should end in .html: it will be a page.')
    run, ledgers = verified(place)
    if html is not None and len(ledgers) != 1:
        raise UsageError(_one_site(place, ledgers))
    found = [_left(ledger, run, delta) for ledger in ledgers]
    relations = {left.relation for left in found} or {ACCOUNTED}
    table: dict[str, Any] = {
        "private": bool(ledgers),
        "delta": found[0].delta if found else delta or DELTA,
        "relation": str(relations.pop()) if len(relations) == 1 else "as each ledger says",
        "ledgers": [_as_json(ledger, left) for ledger, left in zip(ledgers, found, strict=True)] if as_json else [],
    }
    if html is not None:
        table["page"] = str(_page(found[0], html))
    if as_json:
        typer.echo(json.dumps(table, ensure_ascii=False, allow_nan=False))
    elif html is not None:
        typer.echo(f"Wrote what left {found[0].party} to {html}. {_lifetime(found[0])}")
    elif not ledgers:
        typer.echo(_non_private(place))
    else:
        _print(found)


def verify(place: Path, head: str | None, as_json: bool) -> None:
    """Check chain, seals and state of every ledger, and with a run that everything that left is in them."""
    if head is not None and not re.fullmatch("[0-9a-f]{64}", head := head.strip().lower()):
        raise UsageError(
            f'--head "{head}" is not a head: it has 64 hexadecimal digits, as in the answer of ledger verify.'
        )
    if head is None and (place / "run.toml").exists() and Run(place).elsewhere:
        Run(place).check_record()
        if as_json:
            typer.echo(json.dumps({"whole": True, "private": Run(place).private, "ledgers": []}))
        else:
            typer.echo(_at_sites(place))
        return
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


# -- what left a site -----------------------------------------------------------------------------------------


def _left(ledger: Checked, run: Run | None, delta: float | None) -> Left:
    """A verified ledger with what is known beside it, reckoned at `delta`, or else at that of its latest known run."""
    page = first_page(ledger.path)
    notes = {**_from_run(run or _around(ledger.path)), **run_notes(ledger.path)}
    noted = (notes[row.run].delta for row in reversed(ledger.rows) if row.run in notes)
    delta = delta or (run.delta if run is not None else next(filter(None, noted), DELTA))
    reached = prefix_costs([row.spent for row in ledger.rows], delta, ledger.relation, page.planned)
    return Left(
        *(ledger.party, ledger.path, ledger.rows, reached, delta, ledger.relation, page.unit, page.begun),
        *(ledger.refused, notes, page.budgets),
    )


def _around(path: Path) -> Run | None:
    """The run in whose folder a ledger lies, if it lies in one."""
    folder = path.absolute().parent.parent
    return Run(folder) if path.absolute().parent.name == "ledger" and (folder / "run.toml").exists() else None


def _from_run(run: Run | None) -> dict[str, RunNote]:
    """What a run's folder says about the run."""
    if run is None or not run.run_id or run.file.privacy is None:
        return {}
    privacy, guarantee = run.file.privacy, None
    if run.summary is not None and run.guarantee is not None:
        try:
            stated = StatedGuarantee.model_validate(run.guarantee)
        except ValueError:
            raise TamperingFound(f'"{run.folder / "summary.json"}" is damaged: its guarantee is none.') from None
        guarantee = one_line(stated, str(run.summary.get("setting")))
    budget = privacy.budget or privacy.epsilon
    return {run.run_id: RunNote(budget=budget, delta=run.delta, days=privacy.period, guarantee=guarantee)}


def _page(left: Left, path: Path) -> Path:
    from tacit import __version__
    from tacit.report.left_page import write_left

    return write_left(left, path, datetime.now(UTC).isoformat(timespec="seconds"), __version__)


def _one_site(place: Path, ledgers: Sequence[Checked]) -> str:
    if not ledgers:
        return f"{_non_private(place)[:-1]}, so that there is nothing to make a page of; leave --html out."
    return (
        f'"{place}" holds {plural(len(ledgers), "ledger")}, and a page is about one site; name its ledger, such as '
        f'"{ledgers[0].path}".'
    )


# -- words ----------------------------------------------------------------------------------------------------


def _as_json(ledger: Checked, left: Left) -> dict[str, Any]:
    releases = [
        {
            **_row(row),
            "spent": event_in_words(row),
            "to": to_whom(row, row.number in left.masked, left.note(row.run).whom),
            "devices": devices(row),
            "epsilon": _finite(epsilon),
        }
        for row, epsilon in zip(left.rows, left.reached, strict=True)
    ]
    told = {**ledger.to_json(), "delta": left.delta, "releases": releases, "epsilon": _finite(left.epsilon)}
    held = None if left.held is None or math.isinf(left.held.epsilon) else asdict(left.held)
    return {**told, "reading": told["epsilon"], "budget": held}


def _print(found: Sequence[Left]) -> None:
    console = Console(highlight=False, markup=False)
    console.width = max(console.width, 150)  # a row stays on one line; a narrow terminal breaks it itself
    for left in found:
        console.print(f"{left.party} · {left.path}")
        console.print(_table(left.rows, left.reached))
        console.print(_lifetime(left), soft_wrap=True)
        whom: dict[str, list[str]] = {}
        for row in left.rows:
            steps = whom.setdefault(to_whom(row, row.number in left.masked, left.note(row.run).whom), [])
            steps += [] if row.step in steps else [row.step]
        for who, steps in whom.items():
            console.print(f"To {who}: {listing(steps)}", soft_wrap=True)
        for one in left.refused["told"]:
            where = f"round {one['round']}, {one['step']}"
            console.print(f"Refused {one['moment']}, {where}: {one['why']}", soft_wrap=True)
        console.print()


def _table(rows: Sequence[Row], reached: Sequence[float]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("no.", "when", "run", "round", "step", "kind", "spent", "bytes", "from", "ε so far", "head"):
        table.add_column(name, justify="right" if name in ("no.", "round", "bytes", "ε so far") else "left")
    for row, epsilon in zip(rows, reached, strict=True):
        many = devices(row)
        start = (str(row.number), row.moment, row.run[:8], str(row.round), row.step, row.kind, event_in_words(row))
        who = "1 party" if many is None else plural(many, "device")
        table.add_row(*start, count(row.size), who, epsilon_so_far(epsilon), row.head[:12])
    return table


def _lifetime(left: Left) -> str:
    runs, rows = len(left.runs), len(left.rows)
    return (
        f"Over its lifetime, {plural(rows, 'release')} in {plural(runs, 'run')}, {size(left.bytes)}. "
        f"The reading for the fixed list of releases: ε = {epsilon_so_far(left.epsilon)} at δ = {left.delta:g} "
        f"({left.relation}). {left.budget_in_words}"
    )


def _non_private(place: Path) -> str:
    return f'The run "{place}" is NON-PRIVATE: no party kept a ledger.'


def _at_sites(place: Path) -> str:
    return (
        f'The run "{place}" was one between sites, and what is sealed in its folder is unchanged. Each site '
        "keeps its ledger itself; verify it there, as in: tacit ledger verify site-party-1/ledger"
    )


def _row(row: Row) -> dict[str, Any]:
    """A row for others' eyes: the hash of a party's state stays at home."""
    values = asdict(row)
    del values["state"]
    present = None if row.present is None else row.present.hex()
    return {**values, "event": json.loads(row.event), "present": present}


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
