"""A run: a run file in, a run folder out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from tacit.config import RunFile
from tacit.engine.call_log import CallLog
from tacit.engine.checkpoint import SavedRun, made_of
from tacit.model import Predictor
from tacit.partition import Setting
from tacit.prepare.loaded import LoadedRun, prepare
from tacit.prepare.progress import Phase, ProgressLine, RoundProgress, ignore_phase
from tacit.prepare.simulate import Trained, train, with_newcomers
from tacit.prepare.simulated_ledgers import Records
from tacit.report.folder import RunFolder

#: What a report says where no floor was trained.
NO_FLOOR = "No floor was trained ([evaluate] floor = false), so nothing here says whether this beats bias."


def _sealing(prepared: LoadedRun) -> list[str]:
    """How sums are sealed, in words."""
    from tacit.report.sealing import sentences

    told = prepared.run.sealing()
    return [] if told is None else sentences(told, prepared.parties.setting is Setting.DEVICE)


def _trained(
    prepared: LoadedRun,
    folder: RunFolder,
    records: Records | None,
    saved: SavedRun | None,
    watch: Callable[[RoundProgress], None] | None,
) -> Trained:
    """The conversation, in this process or with every party in one of its own."""
    file = prepared.file
    payloads = folder.payloads if file.engine.transcript == "full" else None
    if file.engine.name == "flare":
        from tacit.deploy.local_sites import train_on_sites

        ledgers = folder.path / "ledger" if records is None else records.folder
        calls = _log(folder) if records is None else records.log
        run, parties = prepared.run, prepared.parties
        return train_on_sites(
            folder.path / "sites", ledgers, file, run, parties, calls=calls, payloads=payloads, watch=watch
        )
    return train(
        prepared.run,
        prepared.parties,
        records=records,
        saved=saved,
        timeout=file.engine.timeout,
        payloads=payloads,
        test=prepared.test,
        watch=watch,
    )


def _log(folder: RunFolder) -> CallLog:
    return CallLog(folder.path / "transcript" / "log.sqlite")


def _saved(prepared: LoadedRun, folder: RunFolder) -> SavedRun | None:
    """What a run without privacy goes on from; others have their log, and ledgers or sites' folders."""
    if prepared.run.private or prepared.file.engine.name != "inprocess":
        return None
    made = made_of((folder.path / "run.toml").read_text(encoding="utf-8"), prepared.parties)
    return SavedRun(folder.path / "transcript" / "saved.sqlite", made)


def _bad_rows(dropped: int) -> list[str]:
    """How many rows went, for card and report."""
    return [f'{dropped:,} rows were no ratings and were left out: [data] bad_rows = "drop".'] if dropped else []


def _apart(file: RunFile) -> list[str]:
    """That parties were processes of their own, for the report."""
    if file.engine.name != "flare":
        return []
    return [
        "Every party was a process of its own on this machine (up --local), on a share that was laid ready for it; the "
        "metrics are the experimenter's, from what the sites keep at home."
    ]


def run(
    file: RunFile,
    out: Path | None = None,
    watch: Callable[[RoundProgress], None] | None = None,
    phase: Phase | None = None,
    beside: Callable[[str], ProgressLine] | None = None,
) -> dict[str, Any]:
    """One run, whole: prepares, trains, evaluates, and fills the run folder. Returns the summary.

    `watch` sees every round; `phase` hears what else is being done. `beside` makes a line of its own, by its title, for
    what is trained beside the run; without it `phase` hears of that too.
    """
    began, phase = perf_counter(), phase or ignore_phase
    prepared = prepare(file, phase)
    with RunFolder.make(out, prepared.run.method.name, file) as folder:
        if prepared.run.private or file.engine.name != "inprocess":  # ledgers and sites know a run by its name
            prepared = replace(prepared, run=prepared.run.named(folder.run_id))
        records = recorded(prepared, folder)
        with nullcontext() if records is None else records.over(prepared.run, prepared.parties):
            return _run(prepared, folder, records, watch, phase, beside or partial(_Told, phase), began)


def recorded(prepared: LoadedRun, folder: RunFolder) -> Records | None:
    """The ledgers and the log of a private run, in its folder unless [privacy] names another; None for NON-PRIVATE."""
    return Records.of(prepared.run, folder.path / "ledger", _log(folder)) if prepared.run.private else None


class _Told:
    """A line that is told to whoever hears the phases of the run."""

    def __init__(self, phase: Phase, title: str) -> None:
        self._phase, self._title = phase, title

    def __call__(self, progress: RoundProgress) -> None:
        """Its rounds are few, and nobody wants to know."""

    def phase(self, doing: str, done: float | None = None) -> None:
        self._phase(f"{self._title}: {doing}", done)


def _judge(prepared: LoadedRun) -> Callable[..., Any]:
    """Judges a predictor as the run is judged, but for `ranking`."""
    from tacit.evaluate.evaluation import evaluate_as_configured

    def judged(predictor: Predictor, ranking: bool) -> Any:
        wanted = prepared.file.evaluate.model_copy(update={"ranking": ranking})
        return evaluate_as_configured(predictor, prepared.test, prepared.train, wanted, prepared.file.seed)

    return judged


def _run(
    prepared: LoadedRun,
    folder: RunFolder,
    records: Records | None,
    watch: Callable[[RoundProgress], None] | None,
    phase: Phase,
    beside: Callable[[str], ProgressLine],
    began: float,
) -> dict[str, Any]:
    """The run in its folder, which is nobody else's meanwhile."""
    from tacit.evaluate.evaluation import evaluate_as_configured
    from tacit.evaluate.floor import bias_floor
    from tacit.evaluate.references import references
    from tacit.report.about import about, about_parties, absences, metrics_table, void_sums
    from tacit.report.crossing import crossing

    file = prepared.file
    phase("training", None)
    saved = _saved(prepared, folder)
    trained = _trained(prepared, folder, records, saved, watch)
    lifetimes = () if records is None else records.lifetime_notes(prepared.run)
    made, promise = prepared.run, prepared.run.guarantee
    evaluated = partial(
        evaluate_as_configured, test=prepared.test, seen=prepared.train, wanted=file.evaluate, seed=file.seed
    )
    phase("evaluating", None)
    final = with_newcomers(trained, prepared.support, prepared.test.n_users)
    evaluation = evaluated(final, progress=partial(phase, "evaluating"))
    shared = {}
    if trained.before_fine_tuning is not None:
        phase("evaluating before fine-tuning", None)
        told = partial(phase, "evaluating before fine-tuning")
        shared = {"metrics_shared": evaluated(trained.before_fine_tuning, progress=told).metrics}
    summary: dict[str, Any] = {
        "run": str(folder.path),
        "method": made.method.name,
        "setting": str(prepared.parties.setting),
        "metrics": evaluation.metrics,
        **shared,
        **({"void": trained.void} if trained.void else {}),
        **({"bad_rows": prepared.train.dropped} if prepared.train.dropped else {}),
        "intervals": {name: list(interval) for name, interval in evaluation.intervals.items()},
        "guarantee": promise.to_json(),
        "rounds": trained.rounds,
        "bytes_up": trained.transcript.meter.bytes_up,
        "bytes_down": trained.transcript.meter.bytes_down,
        "seconds": round(perf_counter() - began, 3),
        "digest": trained.transcript.digest,
    }
    floor, others = None, []
    if file.evaluate.floor:
        floor = bias_floor(prepared, evaluation, partial(beside, "bias, the floor"))
        phase("comparing with local, popularity and central", None)
        others = references(prepared, evaluation, _judge(prepared))
    phase("writing the report", None)
    folder.finish(
        summary=summary,
        about=about(
            prepared.about,
            prepared.split,
            about_parties(prepared.parties),
            made.method,
            made.parameters,
            crossing(
                made.method,
                made.plan,
                simulated=any(share.devices > 1 for share in prepared.parties),
            ),
            notes=[
                *made.warnings,
                *([] if file.evaluate.floor else [NO_FLOOR]),
                *_bad_rows(prepared.train.dropped),
                *evaluation.notes,
                *lifetimes,
                *_apart(file),
                *absences(trained.transcript, len(prepared.parties)),
                *void_sums(trained.void, trained.rounds),
                *(f"Left out of a secure sum, {party}: {why}" for party, why in trained.rejected.items()),
            ],
            sealed=made.sealed,
            floor=floor,
            references=others,
            noise=made.noise_levels(),
            hidden=made.hidden,
            sealing=_sealing(prepared),
        ),
        metrics=metrics_table(
            [(g.round, g.mse) for g in trained.history if g.mse is not None],
            evaluation,
            prepared.test.user_ids,
        ),
        transcript=trained.transcript,
        model=replace(trained.model, stamp=str(promise)),
    )
    if saved is not None:
        saved.discard()
    return summary
