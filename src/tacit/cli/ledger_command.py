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

from tacit import files
from tacit.boundary.account import prefix_costs
from tacit.boundary.ledger import START, Row
from tacit.boundary.protection import ACCOUNTED
from tacit.cli.display import print_json
from tacit.cli.verified_ledgers import DELTA, Checked, Run, verified
from tacit.errors import TamperingFound, UsageError
from tacit.report.description import StatedGuarantee
from tacit.report.guarantee_words import one_line
from tacit.report.site_ledger import RunNote, SiteLedger, device_count, event_text, first_page, run_notes
from tacit.report.words import count, epsilon_so_far, listing, plural, size

ENDINGS = (".jsonl", ".csv", ".parquet")


def show(place: Path, delta: float | None, as_json: bool, html: Path | None) -> None:
    """Print every release, what it spent, to whom it went, and the ε reached by then."""
    if delta is not None and not 0 < delta < 1:
        raise UsageError(f"--delta {delta:g} is not possible; give a number between 0 and 1, such as 1e-6.")
    if html is not None and html.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f'"{html}" should end in .html.')
    run, ledgers = verified(place)
    if html is not None and len(ledgers) != 1:
        one = f', such as "{ledgers[0].path}"' if ledgers else ""
        found = f'"{place}" holds {plural(len(ledgers), "ledger")}' if ledgers else _non_private(place)[:-1]
        raise UsageError(f"{found}, and a page is about one site; name one ledger{one}, or leave --html out.")
    found_ledgers = [_site_ledger(ledger, run, delta) for ledger in ledgers]
    page = _page(found_ledgers[0], html) if html is not None else None
    if as_json:
        relations = {ledger.relation for ledger in found_ledgers} or {ACCOUNTED}
        table: dict[str, Any] = {
            "private": bool(ledgers),
            "delta": found_ledgers[0].delta if ledgers else delta or DELTA,
            "relation": str(relations.pop()) if len(relations) == 1 else "as each ledger says",
            "ledgers": [_as_json(*both) for both in zip(ledgers, found_ledgers, strict=True)],
        }
        print_json(table if page is None else {**table, "page": str(page)})
    elif page is not None:
        typer.echo(f"Wrote what left {ledgers[0].party} to {page}. {_lifetime(found_ledgers[0])}")
    elif not ledgers:
        typer.echo(_non_private(place))
    else:
        for ledger in found_ledgers:
            _print(ledger)


def verify(place: Path, head: str | None, as_json: bool) -> None:
    """Check that no ledger was changed, cut short or replaced, and that it holds all that left in a run."""
    if head is not None and not re.fullmatch("[0-9a-f]{64}", head := head.strip().lower()):
        raise UsageError(
            f'--head "{head}" is not a head: it has 64 hexadecimal digits, as in the answer of ledger verify.'
        )
    if head is None and (place / "run.toml").exists() and Run(place).elsewhere:
        Run(place).check_record()
        if as_json:
            print_json({"whole": True, "private": Run(place).private, "ledgers": []})
        else:
            typer.echo(
                f'The run "{place}" was between sites, and what is sealed in its folder is unchanged. Each site stores '
                "its own ledger; verify it there, as in: tacit ledger verify site-party-1/ledger"
            )
        return
    run, ledgers = verified(place)
    if head is not None and not any(head == START or head in {row.head for row in ledger.rows} for ledger in ledgers):
        which = f'The ledger "{place}" of {ledgers[0].party}' if len(ledgers) == 1 else f'No ledger of "{place}"'
        holds = "does not hold" if len(ledgers) == 1 else "holds"
        raise TamperingFound(f"{which} {holds} the head {head}: rows were cut off, or an old ledger was put back.")
    if as_json:
        found = [{**ledger.to_json(), "messages": None if run is None else ledger.messages} for ledger in ledgers]
        print_json({"whole": True, "private": bool(ledgers), "ledgers": found})
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
    """Write all rows, without the answers' bytes and without anything about a party's state."""
    if out is not None and out.suffix.lower() not in ENDINGS:
        raise UsageError(f'"{out}" should end in {", ".join(ENDINGS)}; the ending chooses the format.')
    if out is not None and out.exists():
        raise UsageError(f'"{out}" already exists; name another file, or remove it first.')
    _run, ledgers = verified(place)
    rows = [{"party": ledger.party, **_row(row)} for ledger in ledgers for row in ledger.rows]
    if not ledgers:
        typer.echo(_non_private(place), err=True)
    if out is not None and ledgers:
        try:
            with files.replacing(out) as part:
                _write(rows, part, out.suffix.lower())
        except OSError as error:
            raise UsageError(f'"{out}" cannot be written: {error.strerror}; name another place.') from None
    if as_json:
        print_json({"rows": rows} if out is None else {"out": str(out), "rows": len(rows), "ledgers": len(ledgers)})
    elif out is None:
        for row in rows:
            typer.echo(json.dumps(row, ensure_ascii=False))
    elif ledgers:
        typer.echo(f"Wrote {plural(len(rows), 'release')} of {plural(len(ledgers), 'ledger')} to {out}.")


def _write(rows: Sequence[dict[str, Any]], path: Path, ending: str) -> None:
    if ending == ".jsonl":
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        return
    import pyarrow as pa
    from pyarrow import csv, parquet

    names = ["party", *(field.name for field in fields(Row) if field.name != "state")]
    integers = {"number", "round", "attempt", "size", "contributors"}
    schema = pa.schema([(name, pa.int64() if name in integers else pa.string()) for name in names])
    flat = [{**row, "event": json.dumps(row["event"], sort_keys=True)} for row in rows]
    table = pa.Table.from_pylist(flat, schema)
    if ending == ".csv":
        csv.write_csv(table, path)
    else:
        parquet.write_table(table, path, compression="zstd")


def _site_ledger(ledger: Checked, run: Run | None, delta: float | None) -> SiteLedger:
    """A verified ledger with the notes about its runs; ε at `delta`, or else at that of its latest known run."""
    page = first_page(ledger.path)
    notes = {**_from_run(run or _around(ledger.path)), **run_notes(ledger.path)}
    noted = (notes[row.run].delta for row in reversed(ledger.rows) if row.run in notes)
    delta = delta or (run.delta if run is not None else next(filter(None, noted), DELTA))
    reached = prefix_costs([row.spent for row in ledger.rows], delta, ledger.relation, page.planned)
    return SiteLedger(
        *(ledger.party, ledger.path, ledger.rows, reached, delta, ledger.relation, page.unit, page.begun),
        *(ledger.refused, notes, page.budgets),
    )


def _around(path: Path) -> Run | None:
    folder = path.absolute().parent.parent
    return Run(folder) if path.absolute().parent.name == "ledger" and (folder / "run.toml").exists() else None


def _from_run(run: Run | None) -> dict[str, RunNote]:
    if run is None or not run.run_id or run.file.privacy is None:
        return {}
    privacy, guarantee = run.file.privacy, None
    if run.summary is not None and run.guarantee is not None:
        try:
            stated = StatedGuarantee.model_validate(run.guarantee)
        except ValueError:
            raise TamperingFound(f'"{run.folder / "summary.json"}" is damaged: its guarantee is not valid.') from None
        guarantee = one_line(stated, str(run.summary.get("setting")))
    budget = privacy.budget or privacy.epsilon
    return {run.run_id: RunNote(budget=budget, delta=run.delta, days=privacy.period, guarantee=guarantee)}


def _page(ledger: SiteLedger, path: Path) -> Path:
    from tacit import __version__
    from tacit.report.site_report import write_site_report

    return write_site_report(ledger, path, datetime.now(UTC).isoformat(timespec="seconds"), __version__)


def _as_json(checked: Checked, ledger: SiteLedger) -> dict[str, Any]:
    releases = [
        {
            **_row(row),
            "spent": event_text(row.event),
            "to": ledger.recipient(row),
            "devices": device_count(row),
            "epsilon": _finite(epsilon),
        }
        for row, epsilon in zip(ledger.rows, ledger.reached, strict=True)
    ]
    reading, budget = _finite(ledger.epsilon), ledger.budget
    held = None if budget is None or math.isinf(budget.epsilon) else asdict(budget)
    local = {} if ledger.local is None else {"local_epsilon": ledger.local}
    table = {**checked.to_json(), **local, "delta": ledger.delta, "releases": releases, "epsilon": reading}
    return {**table, "reading": reading, "budget": held}


def _print(ledger: SiteLedger) -> None:
    console = Console(highlight=False, markup=False)
    console.width = max(console.width, 150)  # a row stays on one line; a narrow terminal wraps it itself
    console.print(f"{ledger.party} · {ledger.path}")
    console.print(_table(ledger.rows, ledger.reached))
    console.print(_lifetime(ledger), soft_wrap=True)
    steps: dict[str, dict[str, None]] = {}
    for row in ledger.rows:
        steps.setdefault(ledger.recipient(row), {})[row.step] = None
    for recipient, sent in steps.items():
        console.print(f"To {recipient}: {listing(sent)}", soft_wrap=True)
    for one in ledger.refused["told"]:
        console.print(f"Refused {one['moment']}, round {one['round']}, {one['step']}: {one['why']}", soft_wrap=True)
    console.print()


def _table(rows: Sequence[Row], reached: Sequence[float]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("no.", "when", "run", "round", "step", "kind", "spent", "bytes", "from", "ε so far", "head"):
        table.add_column(name, justify="right" if name in ("no.", "round", "bytes", "ε so far") else "left")
    for row, epsilon in zip(rows, reached, strict=True):
        many = device_count(row)
        start = (str(row.number), row.moment, row.run[:8], str(row.round), row.step, row.kind, event_text(row.event))
        sender = "1 party" if many is None else plural(many, "device")
        table.add_row(*start, count(row.size), sender, epsilon_so_far(epsilon), row.head[:12])
    return table


def _lifetime(ledger: SiteLedger) -> str:
    return (
        f"Over its lifetime, {plural(len(ledger.rows), 'release')} in {plural(len(ledger.runs), 'run')}, "
        f"{size(ledger.bytes)}. The reading for the fixed list of releases: ε = {epsilon_so_far(ledger.epsilon)} at "
        f"δ = {ledger.delta:g} ({ledger.relation}). {ledger.local_in_words}{ledger.budget_in_words}"
    )


def _non_private(place: Path) -> str:
    return f'The run "{place}" is NON-PRIVATE: it has no ledgers.'


def _row(row: Row) -> dict[str, Any]:
    """A row for others to read: without the hash of the party's state."""
    values = asdict(row)
    del values["state"]
    present = None if row.present is None else row.present.hex()
    return {**values, "event": json.loads(row.event), "present": present}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
