"""What several commands print and read: a run's progress line and result, one JSON object, a run file."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Timer
from time import monotonic
from types import FrameType
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from tacit.config import RunFile
from tacit.errors import TacitError
from tacit.prepare.progress import RoundProgress
from tacit.prepare.run_file import read
from tacit.report.floor_verdict import NON_PRIVATE, compared_metrics, contenders, remarks, verdict
from tacit.report.folder import RunRecord
from tacit.report.words import delta, epsilon, plural, seconds, size

#: Seconds between two lines where the progress line cannot be redrawn.
EVERY = 5.0
#: Seconds after which a phase gets its first line there.
LONG = 2.0


class Live:
    """One live line on stderr: round, metric, ε spent, bytes up, time left."""

    def __init__(self, console: Console, title: str, budget: float | None, bar: Progress | None = None) -> None:
        self._console, self._title, self._budget = console, title, budget
        self.bar = bar or Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[words]}"),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
        )
        self._task = self.bar.add_task(title, total=None, words="")
        self._printed = monotonic()
        self._doing, self._later = "", Timer(0, lambda: None)
        self._floor: Live | None = None

    def __call__(self, progress: RoundProgress) -> None:
        self._later.cancel()
        error = "" if progress.mse is None else f" · mse {progress.mse:.4f}"
        of = "" if self._budget is None else f" of {self._budget:g}"
        stamp = "NON-PRIVATE" if progress.epsilon is None else f"ε {progress.epsilon:.2f}{of}"
        words = f"round {progress.round}/{progress.rounds}{error} · {stamp} · {size(progress.bytes_up)} up"
        if self._console.is_terminal:
            if self._doing:
                self._restart("")
            self.bar.update(self._task, total=progress.rounds, completed=progress.round, words=words)
        elif monotonic() - self._printed > EVERY:
            self._print(words)

    def phase(self, doing: str, done: float | None = None) -> None:
        """Show what is being done besides rounds, and the fraction that is done, if known."""
        fresh = doing != self._doing
        if self._console.is_terminal:
            if fresh:
                self._restart(doing)
            if done is not None:
                self.bar.update(self._task, total=1.0, completed=done)
        elif fresh:
            self._later.cancel()
            self._doing = doing
            self._later = Timer(LONG, self._print, (f"{doing} …",))
            self._later.daemon = True
            self._later.start()
        elif done is not None and monotonic() - self._printed > EVERY:
            self._print(f"{doing}, {done:.0%}")

    def floor(self, title: str) -> Live:
        """A second line under this one for the floor, without a budget."""
        self._floor = Live(self._console, title, None, self.bar)
        return self._floor

    def done(self) -> None:
        """Cancel what is still to be printed."""
        self._later.cancel()
        if self._floor is not None:
            self._floor.done()

    def _restart(self, doing: str) -> None:
        """Start a new bar for a phase or for the rounds, so that the time left is its own."""
        self._doing = doing
        self.bar.remove_task(self._task)
        self._task = self.bar.add_task(self._title, total=None, words=doing)

    def _print(self, words: str) -> None:
        self._printed = monotonic()
        self._console.print(f"{self._title}: {words}", soft_wrap=True, markup=False)

    def say(self, words: str) -> None:
        """A line above the live one."""
        self._console.print(words, soft_wrap=True, markup=False)


@contextmanager
def live(title: str, quiet: bool, file: RunFile) -> Iterator[Live | None]:
    """The progress line of one run, removed when the run is done; None if `quiet`."""
    if quiet:
        yield None
        return
    console = Console(file=sys.stderr, highlight=False)
    line = Live(console, title, None if file.privacy is None else file.privacy.budget or file.privacy.epsilon)
    try:
        with line.bar if console.is_terminal else nullcontext():
            yield line
    finally:
        line.done()


def _record(summary: dict[str, Any]) -> RunRecord | None:
    try:
        return RunRecord.read(Path(summary["run"]))
    except TacitError:
        return None


def _print_comparison(record: RunRecord, console: Console) -> None:
    found, names = contenders(record), compared_metrics(record)
    if not found or not names:
        return
    table = Table("compared with", box=None, pad_edge=False)
    for name in names:
        table.add_column(name, justify="right")
        table.add_column("95 % interval", style="dim")
    table.add_column("guarantee")
    for one in found:
        name = f"{record.about.method.name}, this run" if one is found[0] else one.name
        cells = []
        for metric in names:
            value, interval = one.value(metric), one.interval(metric)
            cells += ["–" if value is None else f"{value:.4f}"]
            cells += ["" if interval is None or value is None else f"{interval[0]:.4f} … {interval[1]:.4f}"]
        table.add_row(escape(name), *cells, one.guarantee.partition(" per ")[0].partition(",")[0])
    console.print()
    console.print(table)
    if others := [one for one in found if one.guarantee == NON_PRIVATE]:
        console.print(f"{NON_PRIVATE}:", markup=False, style="dim")
    for one in others:
        why = f"{one.what}; {one.missing}" if one.missing else one.what
        console.print(f"  {one.name}: {why}", markup=False, style="dim")
    for remark in remarks(record):
        console.print(remark, markup=False)


def _stamp(summary: dict[str, Any], hidden: str) -> str:
    """The guarantee in one line, or NON-PRIVATE and what is hidden all the same."""
    guarantee = summary["guarantee"]
    if guarantee is None:
        return "[bold red]NON-PRIVATE[/bold red]" + (f" · {escape(hidden)}" if hidden else "")
    simulated = " · SIMULATED" if guarantee["simulated"] else ""
    silo = " and silo" if summary["setting"] == "horizontal" and guarantee["unit"] == "user" else ""
    bound = f"ε = {epsilon(guarantee['epsilon'])}, δ = {delta(guarantee['delta'])}"
    return f"[bold]{bound}[/bold] per {guarantee['unit']}{silo}, against {guarantee['against']}{simulated}"


def print_summary(summary: dict[str, Any], console: Console) -> None:
    """Print the result of one run."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for justify, style in (("left", ""), ("right", ""), ("left", "dim")):
        table.add_column(justify=justify, style=style)  # type: ignore[arg-type]
    for name, value in summary["metrics"].items():
        low, high = summary["intervals"].get(name, (None, None))
        table.add_row(name, f"{value:.4f}", "" if low is None else f"{low:.4f} … {high:.4f}")
    record = _record(summary)
    found = None if record is None else verdict(record)
    brief = ""
    if found is not None and found.brief:
        style = "bold yellow" if found.standing != "beats" else "bold"
        brief = f" · [{style}]{escape(found.brief)}[/{style}]"
    stamp = _stamp(summary, "" if record is None else record.about.hidden)
    console.print(f"[bold]{summary['method']}[/bold] · {summary['setting']} · {stamp}{brief}")
    console.print(table)
    if record is not None:
        _print_comparison(record, console)
    if found is not None:
        console.print(found.words, markup=False)
    if "metrics_of" in summary:
        console.print(f"Metrics are of {summary['metrics_of']}, on their own test ratings, and carry no guarantee.")
    elif not summary["metrics"]:
        console.print("Metrics stayed at the sites.")
    up, down = size(summary["bytes_up"]), size(summary["bytes_down"])
    console.print(f"{plural(summary['rounds'], 'round')} · {up} up, {down} down · {seconds(summary['seconds'])}")
    if summary.get("void"):
        void = plural(summary["void"], "sum")
        console.print(f"Void because too few parties stayed: {void}; what left counts against the budget.")
    console.print(f"Report: {Path(summary['run']) / 'report.html'}", soft_wrap=True)


def read_run_file(file: Path, changes: Sequence[str] | None, seed: int | None = None) -> RunFile:
    """The run file with `--set` and `--seed` applied; a note on stderr lists keys that this removed."""
    run_file, note = read(file, changes or [], seed)
    if note is not None:
        typer.echo(f"tacit: {note}", err=True)
    return run_file


def print_json(value: Any) -> None:
    """One JSON object on stdout."""
    typer.echo(json.dumps(value, ensure_ascii=False, allow_nan=False))


#: Seconds that a service has to finish after the first signal.
GRACE = 3.0


@contextmanager
def stoppable(sentence: str, code: int, out: str | None = None) -> Iterator[None]:
    """End the process soon after SIGTERM or Ctrl-C, with a sentence, an exit code and a line on stdout.

    The first signal raises `KeyboardInterrupt`; further ones are ignored. The engine's threads may wait for peers, so
    the process does not wait for threads, and for cleaning up only `GRACE` seconds.
    """

    def end() -> NoReturn:
        typer.echo(sentence, err=True)
        if out is not None:
            typer.echo(out)
        sys.stdout.flush()
        os._exit(code)

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for number in signals:
            signal.signal(number, signal.SIG_IGN)
        timer = Timer(GRACE, end)
        timer.daemon = True
        timer.start()
        raise KeyboardInterrupt

    signals = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, interrupt) for number in signals]
    try:
        yield
    except KeyboardInterrupt:
        end()
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
