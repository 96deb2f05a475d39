"""The run folder: made once everything was found valid, filled at the end, finished when summary.json is there.

Files are written atomically, summary.json last. Folders have mode 0700 and files 0600: metrics per user are personal.
"""

from __future__ import annotations

import hashlib
import math
import re
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tacit import files
from tacit.boundary.lock import exclusive
from tacit.config import RunFile
from tacit.engine.call_log import CallLog
from tacit.errors import TamperingFound, UsageError
from tacit.federation import Transcript
from tacit.model import Model
from tacit.report.description import About, RunDescription, StatedGuarantee, Summary, redacted

#: The files whose hashes are sealed when a run ends: the sources of its report and card, and its model.
SEALED = (
    *("run.toml", "summary.json", "about.json", "metrics.parquet"),
    *("transcript/messages.parquet", "transcript/run.id", "transcript/roster.json"),
    *("model/model.json", "model/factors.npz"),
)


class RunFolder:
    """One run on disk; inside `with`, this process is the only one that writes there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._alone = ExitStack()

    def __enter__(self) -> RunFolder:
        self._alone.enter_context(exclusive(self.path, "the run", "name another folder with --out"))
        return self

    def __exit__(self, *_error: object) -> None:
        self._alone.close()

    @classmethod
    @contextmanager
    def make(cls, path: Path | None, method: str, file: RunFile) -> Iterator[RunFolder]:
        """The folder of a new run, locked: `path` itself, or a new one under ./runs. No finished run is overwritten."""
        if path is None:
            path = _taken(Path("runs"), f"{datetime.now():%Y%m%d-%H%M%S}-{method}-seed{file.seed}")
        cls(path)._check(file)
        with cls(path) as folder:
            folder._check(file)  # another process may have held it until now
            try:
                for name in ("ledger", "transcript", "model"):
                    (path / name).mkdir(exist_ok=True, mode=0o700)
            except OSError as error:
                raise _unmade(path, error) from None
            path.chmod(0o700)
            folder._write("run.toml", _resolved(file).encode())
            yield folder

    def _check(self, file: RunFile) -> None:
        """Refuse a folder that holds anything but an unfinished run of this file."""
        path = self.path
        if (path / "summary.json").exists():
            raise UsageError(
                f'"{path}" holds a finished run; name another folder with --out, '
                f"or print it with: tacit run {path / 'run.toml'} --resume {path}"
            )
        if not self.belongs_to(file):
            raise UsageError(f'"{path}" holds an unfinished run of another run file; name another folder with --out.')
        if path.exists() and (not path.is_dir() or any(p.name not in _OURS for p in path.iterdir())):
            raise UsageError(f'"{path}" exists and is not a run folder; name another one with --out.')

    def belongs_to(self, file: RunFile) -> bool:
        """Whether this folder was made for this run file, or does not exist yet."""
        path = self.path / "run.toml"
        return not path.exists() or path.read_bytes() == _resolved(file).encode()

    @property
    def run_id(self) -> str:
        """The run's name in ledgers: drawn once, and the same when the run is resumed."""
        path = self.path / "transcript" / "run.id"
        if not path.exists():
            self._write("transcript/run.id", secrets.token_hex(16).encode())
        return read_run_id(path)

    @property
    def payloads(self) -> Path:
        """Where messages are stored if the run file says so."""
        return self.path / "transcript" / "payloads"

    def finish(self, description: RunDescription, metrics: pa.Table, transcript: Transcript, model: Model) -> None:
        """Write all files of the run and seal them in the log; summary.json marks the run as finished."""
        from tacit.report.run_page import write_card, write_report

        self._write("about.json", description.about.to_bytes())
        for name in ("model/factors.npz", "model/model.json"):
            (self.path / name).touch(0o600)  # the mode stays when the file is written
        with files.replacing(self.path / "metrics.parquet") as new:
            pq.write_table(metrics, new, compression="zstd")
        transcript.write(self.path / "transcript" / "messages.parquet")
        model.save(self.path / "model")
        self._seal(description.summary)
        self._write("summary.json", description.summary.to_bytes())
        write_card(self.path)
        write_report(self.path)

    def _seal(self, summary: Summary) -> None:
        """Write the summary and the hash of every file of `SEALED` into the sealed log."""
        hashes = {}
        for name in SEALED:
            path = self.path / name
            if name == "summary.json":
                hashes[name] = hashlib.sha256(summary.to_bytes()).hexdigest()
            elif path.exists():
                files.sync(path)  # a power cut must not look like tampering
                hashes[name] = file_hash(path)
        log = CallLog(self.path / "transcript" / "log.sqlite")
        try:
            log.finish({"summary": summary.to_json(), "files": hashes})
        finally:
            log.close()

    def _write(self, name: str, content: bytes) -> None:
        files.write(self.path / name, content)


_FILES = {"run.toml", "about.json", "summary.json", "card.md", "metrics.parquet", "report.html"}
_OURS = (_FILES - {"summary.json"}) | {f"{name}.part" for name in _FILES}
_OURS |= {"lock", "ledger", "transcript", "model", "sites", "status.json", "log.jsonl"}


def file_hash(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_run_id(path: Path) -> str:
    """The name of a run in the ledgers."""
    found = path.read_bytes().strip()
    if not re.fullmatch(b"[0-9a-f]{32}", found):
        raise TamperingFound(f'"{path}" is damaged: it does not name a run; put it back.')
    return found.decode()


def _resolved(file: RunFile) -> str:
    """The resolved run file as it is stored: without passwords."""
    return redacted(file.to_toml())


def unused(parent: Path, name: str) -> Path:
    """`name` under `parent`, with a number appended if it exists."""
    path, number = parent / name, 2
    while path.exists():
        path, number = parent / f"{name}-{number}", number + 1
    return path


def _taken(parent: Path, name: str) -> Path:
    """A new folder with an unused name, also if two processes ask in the same second."""
    while True:
        path = unused(parent, name)
        try:
            path.mkdir(parents=True, mode=0o700)
            return path
        except FileExistsError:
            continue
        except OSError as error:
            raise _unmade(path, error) from None


def _unmade(path: Path, error: OSError) -> UsageError:
    return UsageError(f'The run folder "{path}" cannot be made: {error.strerror}; name another one with --out.')


PARTS = ("run.toml", "summary.json", "about.json", "metrics.parquet", "transcript/messages.parquet")
_METRICS = ("scope", "round", "user", "metric", "value")
_MESSAGES = ("call", "round", "step", "party", "direction", "bytes", "copies", "status")


@dataclass(frozen=True, eq=False)
class RunRecord:
    """One finished run; `run_text` is run.toml as written, without passwords."""

    folder: Path
    description: RunDescription
    run_text: str = field(repr=False)

    @classmethod
    def read(cls, folder: str | Path) -> RunRecord:
        """The run in `folder`, which must be finished."""
        folder = Path(folder)
        if not folder.is_dir():
            raise UsageError(f'There is no run folder "{folder}"; name one that tacit run has made, such as runs/….')
        missing = [part for part in PARTS if not (folder / part).is_file()]
        if "run.toml" in missing:
            raise UsageError(
                f'"{folder}" is not a run folder: it has no run.toml; name a folder that tacit run has made.'
            )
        if missing:
            raise UsageError(
                f'The run in "{folder}" is not finished: it has no {missing[0]}; '
                f"finish it with: tacit run {folder / 'run.toml'} --resume {folder}"
            )
        run_text = (folder / "run.toml").read_text(encoding="utf-8", errors="replace")
        return cls(folder, RunDescription.read(folder), redacted(run_text))

    @property
    def summary(self) -> Summary:
        return self.description.summary

    @property
    def about(self) -> About:
        return self.description.about

    @property
    def name(self) -> str:
        """The folder's name, without its path."""
        return self.folder.resolve().name

    @cached_property
    def run_file(self) -> RunFile:
        return RunFile.read(self.folder / "run.toml")

    @property
    def guarantee(self) -> StatedGuarantee | None:
        """The guarantee, where one holds; None means NON-PRIVATE."""
        stated = self.summary.guarantee
        return stated if stated is not None and stated.holds else None

    @property
    def repeatable(self) -> bool:
        """Whether the same run file gives the same digest: not where noise came from the operating system."""
        return self.guarantee is None or self.guarantee.simulated

    @cached_property
    def metrics(self) -> pa.Table:
        """metrics.parquet: scope, round, user, metric, value."""
        return _read_table(self.folder / "metrics.parquet", _METRICS)

    @cached_property
    def messages(self) -> pa.Table:
        """transcript/messages.parquet: one row per message, without digests."""
        return _read_table(self.folder / "transcript" / "messages.parquet", _MESSAGES)

    def scope_metrics(self, scope: str) -> list[str]:
        """The metrics that are stored per "round" or per "user"."""
        rows = self.metrics.filter(pc.equal(self.metrics["scope"], scope))
        return sorted(str(name) for name in pc.unique(rows["metric"]).to_pylist())

    def per_round(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Rounds (int64, increasing) and the metric after each (float64, NaN where unknown)."""
        rows = self._rows("round", metric)
        rounds = pc.fill_null(rows["round"], 0).to_numpy().astype(np.int64)
        order = np.argsort(rounds, kind="stable")
        return rounds[order], _numbers(rows["value"])[order]

    def per_user(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """User ids (text) and their values (float64, NaN where unknown), in the order of the file."""
        rows = self._rows("user", metric)
        return pc.fill_null(rows["user"], "").to_numpy(), _numbers(rows["value"])

    def _rows(self, scope: str, metric: str) -> pa.Table:
        table = self.metrics
        return table.filter(pc.and_(pc.equal(table["scope"], scope), pc.equal(table["metric"], metric)))


def _read_table(path: Path, columns: tuple[str, ...]) -> pa.Table:
    try:
        return pq.read_table(path, columns=list(columns)).select(list(columns))
    except (pa.ArrowException, KeyError, OSError) as error:
        problem = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(
            f'"{path}" is not the table that a run writes ({problem}); it should have the columns '
            f"{', '.join(columns)}: run again."
        ) from None


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    return pc.fill_null(pc.cast(column, pa.float64()), math.nan).to_numpy()
