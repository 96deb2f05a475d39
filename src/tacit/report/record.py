"""`RunRecord`: a finished run, read back from its folder and checked. Tables are read on first use."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tacit.config import RunFile
from tacit.errors import UsageError
from tacit.report.description import About, RunDescription, StatedGuarantee, Summary
from tacit.report.words import redacted

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
