"""Find and verify the ledgers of a run or of a folder. Nothing is changed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from tacit.boundary.ledger import START, Ledger, Row, ledgers_in
from tacit.boundary.sealed_database import database_error, half_created
from tacit.config import RunFile
from tacit.engine.call_log import CallLog
from tacit.errors import TamperingFound, UsageError
from tacit.federation.role import ROLE
from tacit.federation.transcript import Entry, Transcript
from tacit.guarantee import Relation
from tacit.report.folder import SEALED, file_hash, read_run_id
from tacit.report.words import epsilon as rounded_up

#: If neither the run nor the command names a δ.
DELTA = 1e-6
#: How much the ε of a run's releases may exceed the stated one, relatively: rounding of the accountant.
ROUNDING = 1e-6


@dataclass(frozen=True)
class Run:
    """What a run folder states about its parties' ledgers."""

    folder: Path

    @cached_property
    def file(self) -> RunFile:
        try:
            return RunFile.read(self.folder / "run.toml")
        except UsageError:
            if (self.folder / "run.toml").exists():
                self.check_record()  # reports tampering if it was changed after the run
            raise

    @cached_property
    def guarantee(self) -> dict[str, Any] | None:
        return None if self.summary is None else self.summary.get("guarantee")

    @cached_property
    def summary(self) -> dict[str, Any] | None:
        path = self.folder / "summary.json"
        if not path.exists():
            return None
        with _whole(path):
            summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            guarantee = summary.get("guarantee") if isinstance(summary, dict) else ""
            if guarantee is not None and not 0 <= float(guarantee["delta"]) < 1:
                raise ValueError("its guarantee has no possible δ")
            return summary

    @cached_property
    def deployed(self) -> bool:
        """Whether its parties were sites elsewhere, which store their own ledgers."""
        return (self.folder / "transcript" / "roster.json").exists()

    @property
    def elsewhere(self) -> bool:
        """Whether all its ledgers are at the sites."""
        return self.deployed and self.ledgers == self.folder / "ledger"

    @cached_property
    def run_id(self) -> str:
        path = self.folder / "transcript" / "run.id"
        return read_run_id(path) if path.exists() else ""

    @cached_property
    def log(self) -> Path:
        return self.folder / "transcript" / "log.sqlite"

    @cached_property
    def logged(self) -> tuple[list[Entry], dict[str, Any] | None]:
        """The messages in the coordinator's log, whose seals are checked, and its record of how the run ended."""
        key = self.log.with_suffix(".key")
        if half_created(self.log) or not (self.log.exists() or key.exists()):
            return [], None
        if not self.log.exists():
            raise TamperingFound(f'The log "{self.log}" is gone, and its key is still there; put it back.')
        with closing(CallLog.open(self.log)) as log:
            return log.entries(), log.finished()

    def check_record(self) -> None:
        """Check a finished run's files and summary against the record that was sealed when it ended."""
        record = self.logged[1]
        if self.summary is None:
            return
        if record is None:
            raise TamperingFound(
                f'The log "{self.log}" has no record of how the run ended: it was removed, or the run was made by a '
                "version that did not seal its runs; run again."
            )
        stated, sealed = self.summary, record["summary"]
        wrong = sorted(key for key in {*stated, *sealed} if stated.get(key) != sealed.get(key))
        if "guarantee" in wrong and stated.get("guarantee") and sealed.get("guarantee"):
            wrong += sorted(k for k, v in sealed["guarantee"].items() if stated["guarantee"].get(k) != v)
        if wrong:
            raise TamperingFound(
                f'"{self.folder / "summary.json"}" was changed: it is not what was sealed when the run ended '
                f"({', '.join(wrong)})."
            )
        if added := [name for name in SEALED if name not in record["files"] and (self.folder / name).exists()]:
            raise TamperingFound(f'"{self.folder / added[0]}" was not there when the run ended; remove it.')
        for name, hash in record["files"].items():
            path = self.folder / name
            if not path.is_file():
                raise TamperingFound(f'"{path}" is gone; put it back.')
            if file_hash(path) != hash:
                raise TamperingFound(f'"{path}" was changed: it is not what was sealed when the run ended.')

    @cached_property
    def messages(self) -> list[Entry]:
        """Every message of the finished transcript and of the coordinator's log, once each."""
        finished = self.folder / "transcript" / "messages.parquet"
        entries: list[Entry] = []
        if finished.exists():
            entries = _transcript(finished)
            transcript = Transcript()
            transcript.restore(entries)
            if self.summary is not None and transcript.digest != self.summary.get("digest"):
                raise TamperingFound(f'"{finished}" was changed: its messages do not add up to the digest of the run.')
        elif self.summary is not None:
            raise TamperingFound(f'"{finished}" is gone: there is no other record of what left in this run.')
        entries += self.logged[0]
        return list(dict.fromkeys(entries))

    @cached_property
    def parties(self) -> list[str]:
        """The parties, which have ledgers; other roles have none."""
        named = {entry.party for entry in self.messages if entry.kind != "sum" or entry.copies}
        return sorted(name for name in named if not ROLE.fullmatch(name))

    @property
    def private(self) -> bool:
        return self.file.privacy is not None or bool(self.guarantee) or any(entry.head for entry in self.messages)

    @property
    def ledgers(self) -> Path:
        privacy = self.file.privacy
        return self.folder / "ledger" if privacy is None or privacy.ledger is None else Path(privacy.ledger)

    @property
    def delta(self) -> float:
        if self.guarantee is not None:
            return float(self.guarantee["delta"])
        return DELTA if self.file.privacy is None else self.file.privacy.delta or DELTA


@dataclass(frozen=True)
class Checked:
    """A verified ledger."""

    party: str
    path: Path
    rows: list[Row]
    messages: int
    relation: Relation
    refused: Mapping[str, Any] = field(default_factory=lambda: {"number": 0, "told": []})

    @property
    def refusals(self) -> int:
        return int(self.refused["number"])

    @property
    def head(self) -> str:
        return self.rows[-1].head if self.rows else START

    def to_json(self) -> dict[str, Any]:
        table = {"party": self.party, "path": str(self.path), "releases": len(self.rows), "head": self.head}
        return {**table, "refusals": self.refused}


def verified(place: Path) -> tuple[Run | None, list[Checked]]:
    """The run, if `place` is one, and its verified ledgers; the error names every ledger that was tampered with."""
    run = Run(place) if any((place / name).exists() for name in ("run.toml", "summary.json", "transcript")) else None
    if run is not None and not run.private and not list(ledgers_in(place / "ledger")):
        run.check_record()
        return run, []
    if run is not None and run.elsewhere:
        run.check_record()
    # Messages are read before the ledgers: of a run that is still going on, the ledgers then hold at least those.
    sent = [] if run is None else [entry for entry in run.messages if _left(entry)]
    checked, faults = [], []
    for path in _files(place, run):
        try:
            checked.append(_checked(path, run, sent))
        except TamperingFound as fault:
            faults.append(str(fault))
    if faults:
        raise TamperingFound(" ".join(faults))
    if run is not None:
        _within(run, checked)
        run.check_record()
    return run, checked


def check_finished(folder: Path) -> None:
    """Raise unless a finished run is as it was sealed, and states no less than those of its ledgers that are here."""
    run = Run(folder)
    away = run.ledgers != run.folder / "ledger" and not run.ledgers.is_dir()
    if run.elsewhere or away:
        run.check_record()
    else:
        verified(folder)


def _within(run: Run, ledgers: Sequence[Checked]) -> None:
    """Check that what the run released costs no more than its summary states."""
    from tacit.boundary.account import epsilon as epsilon_of

    for ledger in ledgers:
        spent = [row.spent for row in ledger.rows if run.run_id and row.run == run.run_id]
        reached = epsilon_of(spent, run.delta, ledger.relation) if spent else 0.0
        stated = None if run.guarantee is None else run.guarantee.get("epsilon")
        if run.summary is None or reached == 0:
            continue
        if not isinstance(stated, int | float) or not reached <= stated * (1 + ROUNDING):
            says = "no guarantee" if stated is None else f"ε = {stated}"
            raise TamperingFound(
                f'"{run.folder / "summary.json"}" states {says}, and by the ledger "{ledger.path}" the run released '
                f"what costs ε = {rounded_up(reached)} at δ = {run.delta:g}: one of the two was changed."
            )


def _left(entry: Entry) -> bool:
    """Whether a message left a party; the exchanges of simulated devices are only counted."""
    counted = entry.kind == "protocol" and entry.step.startswith("protocol:")
    return entry.direction == "up" and entry.status == "ok" and bool(entry.copies) and not counted


def _files(place: Path, run: Run | None) -> list[Path]:
    if place.is_file():
        return [place]
    inside = place / "ledger" if (place / "ledger").is_dir() else place  # a site's folder
    folder = inside if run is None else run.ledgers
    away = run is not None and folder != run.folder / "ledger"
    if not folder.is_dir() and (run is None or away):
        where = " The run stored its ledgers there, relative to where it was started." if away else ""
        raise UsageError(f'There is no "{folder}"; name a run folder, or a ledger (….sqlite).{where}')
    if run is not None and run.elsewhere:
        raise UsageError(
            f'The run "{run.folder}" was between sites, and each stores its own ledger; look there, as in: '
            "tacit ledger verify site-party-1/ledger"
        )
    # A key without a ledger shows that there was one.
    named = {path.with_suffix(".sqlite") for path in folder.glob("*.key")} | set(ledgers_in(folder))
    named = {path for path in named if not half_created(path)}
    if run is not None:
        theirs = {folder / f"{party}.sqlite" for party in run.parties}
        named = theirs if away and theirs else named | theirs
    if not named:
        raise UsageError(f'"{folder}" holds no ledger; name a run folder, or a ledger (….sqlite).')
    return sorted(named)


def _checked(path: Path, run: Run | None, sent: Sequence[Entry]) -> Checked:
    if not path.is_file():
        raise TamperingFound(f'The ledger "{path}" of {path.stem} is gone; put it back.')
    with _whole(path), closing(Ledger.open(path)) as ledger:
        ledger.verify()
        rows, relation, refused = ledger.rows(), ledger.relation, ledger.refusals()
    if run is None:
        return Checked(ledger.party, path, rows, 0, relation, refused)
    if ledger.party != path.stem:
        raise TamperingFound(f'The ledger "{path}" is that of {ledger.party}; the one of {path.stem} is gone.')
    by_head, mine = {row.head: row for row in rows}, [entry for entry in sent if entry.party == ledger.party]
    for entry in mine:
        where = f'what left {ledger.party} in step "{entry.step}" of round {entry.round}'
        row = by_head.get(entry.head)
        if row is None:
            raise TamperingFound(
                f'The ledger "{path}" does not hold {where}: rows were cut off, or an old ledger was put back.'
            )
        kind = "public" if entry.kind == "protocol" else entry.kind
        copies = 1 if kind == "report" else row.contributors  # a cohort's reports are one message
        sent_facts = (run.run_id, entry.round, entry.step, kind, entry.copies, entry.bytes, entry.digest or row.payload)
        recorded = (row.run, row.round, row.step, row.kind, copies, row.size * copies, row.payload)
        if sent_facts != recorded:
            raise TamperingFound(f'The ledger "{path}" and the transcript of the run differ about {where}.')
    return Checked(ledger.party, path, rows, len(mine), relation, refused)


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Report what cannot be read as damaged."""
    try:
        yield
    except (sqlite3.DatabaseError, ValueError, TypeError, KeyError) as error:
        if isinstance(error, UsageError):
            raise
        if path.name.endswith(".sqlite"):
            raise database_error(path, error) from None
        raise TamperingFound(f'"{path}" is damaged: {error}.') from None


def _transcript(path: Path) -> list[Entry]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise TamperingFound(f'"{path}" is damaged: {error}.') from None
    names = [field.name for field in fields(Entry) if field.name in table.column_names]
    with _whole(path):
        return [Entry(**values) for values in table.select(names).to_pylist()]
