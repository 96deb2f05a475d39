"""The run folder: made once everything was found valid, filled at the end, finished when summary.json is there.

Every file is written beside its name and then renamed, so that no reader meets half a file; summary.json comes last.
Folders are mode 0700 and files 0600, also when they are copied elsewhere: per-user metrics are personal data.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tacit.config import RunFile
from tacit.errors import UsageError
from tacit.federation import Transcript
from tacit.model import Model
from tacit.report.words import redacted


class RunFolder:
    """One run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def make(cls, path: Path | None, method: str, file: RunFile) -> RunFolder:
        """The folder of a new run: `path` itself, or a new one under ./runs. A finished run is never overwritten."""
        if path is None:
            path = unused(Path("runs"), f"{datetime.now():%Y%m%d-%H%M%S}-{method}-seed{file.seed}")
        elif (path / "summary.json").exists():
            raise UsageError(
                f'"{path}" holds a finished run; name another folder with --out, '
                f"or print it with: tacit run {path / 'run.toml'} --resume {path}"
            )
        elif not cls(path).belongs_to(file):
            raise UsageError(f'"{path}" holds an unfinished run of another run file; name another folder with --out.')
        elif path.exists() and (not path.is_dir() or any(p.name not in _OURS for p in path.iterdir())):
            raise UsageError(f'"{path}" exists and is not a run folder; name another one with --out.')
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            for name in ("ledger", "transcript", "model"):
                (path / name).mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise UsageError(
                f'The run folder "{path}" cannot be made: {error.strerror}; name another one with --out.'
            ) from None
        path.chmod(0o700)
        folder = cls(path)
        folder._write("run.toml", _resolved(file).encode())
        return folder

    def belongs_to(self, file: RunFile) -> bool:
        """Whether this folder was made for that very run file, or is not there yet."""
        path = self.path / "run.toml"
        return not path.exists() or path.read_text(encoding="utf-8") == _resolved(file)

    @property
    def run_id(self) -> str:
        """What names this run in a ledger: drawn once, kept with the run, the same when it is resumed."""
        path = self.path / "transcript" / "run.id"
        if not path.exists():
            self._write("transcript/run.id", secrets.token_hex(16).encode())
        return path.read_text()

    @property
    def payloads(self) -> Path:
        """Where messages are kept when the run asks for them."""
        return self.path / "transcript" / "payloads"

    def finish(
        self,
        *,
        summary: Mapping[str, Any],
        about: Mapping[str, Any],
        metrics: pa.Table,
        transcript: Transcript,
        model: Model,
    ) -> None:
        """Write everything that the run left; the summary makes it a finished run."""
        from tacit.report.html import write_card, write_report

        self._write("about.json", _json(about))
        for name in ("metrics.parquet.part", "transcript/messages.parquet", "model/factors.npz", "model/model.json"):
            (self.path / name).touch(0o600)  # whoever writes it keeps the mode
        pq.write_table(metrics, self.path / "metrics.parquet.part", compression="zstd")
        os.replace(self.path / "metrics.parquet.part", self.path / "metrics.parquet")
        transcript.write(self.path / "transcript" / "messages.parquet")
        model.save(self.path / "model")
        self._write("summary.json", _json(summary))
        write_card(self.path)
        write_report(self.path)

    def _write(self, name: str, content: bytes) -> None:
        part = self.path / f"{name}.part"
        part.touch(0o600)
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, self.path / name)


_OURS = {
    "run.toml",
    "about.json",
    "metrics.parquet",
    "card.md",
    "report.html",
    "ledger",
    "transcript",
    "model",
    "sites",
    "status.json",
    "log.jsonl",
} | {f"{name}.part" for name in ("run.toml", "about.json", "summary.json", "card.md", "metrics.parquet", "report.html")}


def _resolved(file: RunFile) -> str:
    """The resolved run file as it is kept: without passwords."""
    return redacted(file.to_toml())


def unused(parent: Path, name: str) -> Path:
    """`name` under `parent`, with a number behind it where it is taken."""
    path, number = parent / name, 2
    while path.exists():
        path, number = parent / f"{name}-{number}", number + 1
    return path


def _json(table: Mapping[str, Any]) -> bytes:
    return (json.dumps(table, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
