"""A run: a run file in, a run folder out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from tacit.config import RunFile
from tacit.engine.call_log import CallLog
from tacit.engine.checkpoint import SavedRun, made_of
from tacit.evaluate.evaluation import Evaluation, evaluate_as_configured
from tacit.model import Predictor
from tacit.prepare.loaded import LoadedRun, prepare
from tacit.prepare.progress import Phase, ProgressLine, RoundProgress, ignore_phase
from tacit.prepare.simulate import Trained, train, with_newcomers
from tacit.prepare.simulated_ledgers import Records
from tacit.report.description import RunDescription
from tacit.report.folder import RunFolder

NO_FLOOR = "No floor was trained ([evaluate] floor = false), so this report cannot say whether the model beats bias."
LOCAL_PROCESSES = (
    "Every party ran as its own process on this machine (up --local), with the share of the data assigned to it; the "
    "experimenter computed the metrics from what the sites store."
)


@dataclass(frozen=True)
class Evaluated:
    """The final model's evaluation, and what it is compared with."""

    final: Evaluation
    before_fine_tuning: dict[str, float] = field(default_factory=dict)
    floor: dict[str, Any] | None = None
    references: list[dict[str, Any]] = field(default_factory=list)


def run(
    file: RunFile,
    out: Path | None = None,
    watch: Callable[[RoundProgress], None] | None = None,
    phase: Phase | None = None,
    floor_line: Callable[[str], ProgressLine] | None = None,
) -> dict[str, Any]:
    """Prepare, train, evaluate and compare one run, and write its folder. Returns the summary.

    `watch` is called after every round, `phase` with what else is being done. `floor_line` makes a separate progress
    line, by its title, for the floor; without it `phase` gets that too.
    """
    began, phase = perf_counter(), phase or ignore_phase
    prepared = prepare(file, phase)
    with RunFolder.make(out, prepared.run.method.name, file) as folder:
        if prepared.run.private or file.engine.name != "inprocess":  # ledgers and sites know a run by its name
            prepared = replace(prepared, run=prepared.run.named(folder.run_id))
        records = recorded(prepared, folder)
        with nullcontext() if records is None else records.over(prepared.run, prepared.parties):
            phase("training", None)
            saved = _saved(prepared, folder)
            ended = train_prepared(prepared, folder, records, saved, watch)
            lifetimes = () if records is None else records.lifetime_notes(prepared.run)
            evaluated = _evaluated(prepared, ended, phase)
            seconds = perf_counter() - began
            if file.evaluate.floor:
                evaluated = _compared(prepared, evaluated, phase, floor_line or partial(_PhaseLine, phase))
            phase("writing the report", None)
            description = _described(prepared, ended, evaluated, folder.path, seconds, lifetimes)
            _finish(folder, prepared, ended, evaluated, description)
            if saved is not None:
                saved.discard()
            return description.summary.to_json()


def recorded(prepared: LoadedRun, folder: RunFolder) -> Records | None:
    """The ledgers and the log of a private run, in its folder unless [privacy] names another; None for NON-PRIVATE."""
    return Records.of(prepared.run, folder.path / "ledger", _log(folder)) if prepared.run.private else None


def train_prepared(
    prepared: LoadedRun,
    folder: RunFolder,
    records: Records | None,
    saved: SavedRun | None,
    watch: Callable[[RoundProgress], None] | None,
) -> Trained:
    """Train in this process, or with every party in its own process."""
    file, parties = prepared.file, prepared.parties
    payloads = folder.payloads if file.engine.transcript == "full" else None
    if file.engine.name == "flare":
        from tacit.deploy.local_sites import train_on_sites

        ledgers = folder.path / "ledger" if records is None else records.folder
        calls = _log(folder) if records is None else records.log
        sites = folder.path / "sites"
        return train_on_sites(sites, ledgers, file, prepared.run, parties, calls=calls, payloads=payloads, watch=watch)
    timeout, test = file.engine.timeout, prepared.test
    return train(
        prepared.run,
        parties,
        records=records,
        saved=saved,
        timeout=timeout,
        payloads=payloads,
        test=test,
        watch=watch,
    )


def _log(folder: RunFolder) -> CallLog:
    return CallLog(folder.path / "transcript" / "log.sqlite")


def _saved(prepared: LoadedRun, folder: RunFolder) -> SavedRun | None:
    """The checkpoint that a run without privacy resumes from; others have their log, and ledgers or sites' folders."""
    if prepared.run.private or prepared.file.engine.name != "inprocess":
        return None
    made = made_of((folder.path / "run.toml").read_text(encoding="utf-8"), prepared.parties)
    return SavedRun(folder.path / "transcript" / "saved.sqlite", made)


def _evaluated(prepared: LoadedRun, ended: Trained, phase: Phase) -> Evaluated:
    final = with_newcomers(ended, prepared.support, prepared.test.n_users)
    models = {"evaluating": final, "evaluating before fine-tuning": ended.before_fine_tuning}
    found = []
    for doing, model in models.items():
        if model is not None:
            phase(doing, None)
            found.append(_evaluate(prepared, model, progress=partial(phase, doing)))
    return Evaluated(found[0], found[1].metrics if len(found) > 1 else {})


def _evaluate(
    prepared: LoadedRun, model: Predictor, ranking: bool | None = None, progress: Callable[[float], None] | None = None
) -> Evaluation:
    """Evaluate a model as the run file asks; `ranking` overrides whether items are ranked."""
    wanted, seed = prepared.file.evaluate, prepared.file.seed
    if ranking is not None:
        wanted = wanted.model_copy(update={"ranking": ranking})
    return evaluate_as_configured(model, prepared.test, prepared.train, wanted, seed, progress)


def _compared(
    prepared: LoadedRun, evaluated: Evaluated, phase: Phase, floor_line: Callable[[str], ProgressLine]
) -> Evaluated:
    """Train and evaluate what the run is compared with: `bias` at the same guarantee, and models without any."""
    from tacit.evaluate.references import bias_floor, references

    floor = bias_floor(prepared, evaluated.final, partial(floor_line, "bias, the floor"))
    phase("comparing with local, popularity and central", None)
    others = references(prepared, evaluated.final, partial(_evaluate, prepared))
    return replace(evaluated, floor=floor, references=others)


def _described(
    prepared: LoadedRun, ended: Trained, evaluated: Evaluated, folder: Path, seconds: float, lifetimes: tuple[str, ...]
) -> RunDescription:
    from tacit.report.describe import about_parties, describe

    file, final, dropped = prepared.file, evaluated.final, prepared.train.dropped
    return describe(
        prepared.run,
        ended,
        folder,
        seconds,
        summary={
            "metrics": final.metrics,
            "metrics_shared": evaluated.before_fine_tuning,
            "bad_rows": dropped,
            "intervals": final.intervals,
        },
        about={
            "data": prepared.about,
            "split": prepared.split,
            "partition": about_parties(prepared.parties),
            "floor": evaluated.floor,
            "references": evaluated.references,
        },
        notes=[
            *([] if file.evaluate.floor else [NO_FLOOR]),
            *([f'{dropped:,} rows were not ratings and were dropped: [data] bad_rows = "drop".'] if dropped else []),
            *final.notes,
            *lifetimes,
            *([LOCAL_PROCESSES] if file.engine.name == "flare" else []),
        ],
        simulated=any(share.devices > 1 for share in prepared.parties),
    )


def _finish(
    folder: RunFolder, prepared: LoadedRun, ended: Trained, evaluated: Evaluated, description: RunDescription
) -> None:
    from tacit.report.describe import metrics_table

    rounds = [(glance.round, glance.mse) for glance in ended.history if glance.mse is not None]
    metrics = metrics_table(rounds, evaluated.final, prepared.test.user_ids)
    model = replace(ended.model, stamp=str(prepared.run.guarantee))
    folder.finish(description, metrics, ended.transcript, model)


class _PhaseLine:
    """The floor's progress, reported as a phase of the run."""

    def __init__(self, phase: Phase, title: str) -> None:
        self._phase, self._title = phase, title

    def __call__(self, progress: RoundProgress) -> None:
        """Its rounds are too few to report."""

    def phase(self, doing: str, done: float | None = None) -> None:
        self._phase(f"{self._title}: {doing}", done)
