"""The run folder: made once everything was found valid, filled at the end, finished when summary.json is there.

Files are written atomically, summary.json last. Folders have mode 0700 and files 0600: metrics per user are personal.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tacit import files
from tacit.boundary.lock import exclusive
from tacit.config import RunFile
from tacit.engine.call_log import CallLog
from tacit.errors import TamperingFound, UsageError
from tacit.federation import Transcript
from tacit.model import Model
from tacit.report.description import RunDescription, Summary
from tacit.report.words import redacted

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
