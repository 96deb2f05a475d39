"""A run: a run file in, a run folder out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from tacit.boundary.protection import Budget
from tacit.config import RunFile
from tacit.data.public import public_facts
from tacit.data.ratings import Ratings
from tacit.engine.agreement import Agreement
from tacit.engine.ledgers import Heads
from tacit.engine.log import CallLog
from tacit.engine.saved import SavedRun, made_of
from tacit.engine.simulate import Glance, Phase, Safeguards, Trained, train, with_newcomers
from tacit.errors import DataError, PrivacyRefused, UsageError
from tacit.federation import Facts
from tacit.guarantee import NON_PRIVATE
from tacit.methods import Method, Parameters
from tacit.methods.asked import Situation
from tacit.methods.plan import Plan
from tacit.methods.runfile import check, plan, seeded, setting_in_data
from tacit.model import Predictor
from tacit.partition import Parties, Setting
from tacit.report.folder import RunFolder


@dataclass(frozen=True)
class Prepared:
    """A run file whose method, data, split and partition were found valid; nothing has been written yet."""

    file: RunFile
    method: Method
    parameters: Parameters
    data: dict[str, Any]
    train: Ratings
    test: Ratings
    support: Ratings | None
    split: str
    parties: Parties
    plan: Plan | None


def safeguards(file: RunFile, made: Plan, folder: RunFolder) -> Safeguards | None:
    """What guards a private run: ledgers, budget, log, aggregation."""
    if file.privacy is None:
        return None
    privacy = file.privacy
    return Safeguards(
        plan=made,
        run=folder.run_id,
        ledgers=Path(privacy.ledger) if privacy.ledger is not None else folder.path / "ledger",
        budget=Budget(privacy.budget or privacy.epsilon, made.delta, privacy.period),
        log=CallLog(folder.path / "transcript" / "log.sqlite"),
        stop_on_refusal=privacy.on_refusal == "stop",
        heads=None if privacy.ledger is None else Heads.beside(Path(privacy.ledger)),
    )


def _unheard(_words: str, _done: float | None = None) -> None:
    """Nobody wants to know."""


def prepare(file: RunFile, phase: Phase = _unheard) -> Prepared:
    """Check the run file, then load, split and partition the data."""
    from tacit.data.load import load
    from tacit.data.split import split
    from tacit.partition import partition
    from tacit.partition.divide import WAYS
    from tacit.report.about import about_data

    method, parameters = check(file, setting=setting_in_data(file))
    data, public = file.data, file.public
    declared = None if file.privacy is None else public_facts(data, public, file.seed)
    phase("reading data", None)
    ratings = load(
        data.source,
        feedback=data.feedback,
        columns=data.columns or None,
        duplicates=data.duplicates,
        bad_rows=data.bad_rows,
        query=data.query,
        scale=public.scale if declared is None else (declared.scale.low, declared.scale.high),
        user_table=data.user_table,
        item_table=data.item_table,
        catalogue=public.catalogue,
        features=public.features,
        users=data.users,
        items=data.items,
        ratings=data.ratings,
        seed=file.seed,
        attribute=None if file.partition.by in WAYS else file.partition.by,
        private=file.privacy is not None,
    )
    users = public.users if declared is None else declared.users
    if users is not None and users < ratings.n_users:
        raise UsageError(
            f"[public] users = {users:,} is fewer than the {ratings.n_users:,} users in the data; "
            "declare at least as many."
        )
    if declared is not None and not (ratings.item_ids.listed and ratings.n_items == declared.items):
        raise DataError(
            f'"{data.source}" gave {ratings.n_items:,} items where {declared.items:,} are public: with [privacy] ids '
            "may not come from ratings; put its list of items back, or name one with [public] catalogue."
        )
    described = about_data(ratings)
    phase("splitting and dividing the data", None)
    parts = split(ratings, by=file.split.by, test=file.split.test, seed=file.seed)
    del ratings  # the parts are copies, and so are the parties' shares: three of everything would be too many
    training = replace(parts.train, times=None)  # half of a rating's bytes, and of no use after the split
    division = file.partition
    parties = partition(
        training,
        into=division.into,
        by=division.by,
        size_skew=division.size_skew,
        taste_skew=division.taste_skew,
        seed=file.seed,
    )
    method.sides_in(Facts.of(parties, file.seed))
    count = sum(max(1, share.devices) for share in parties)
    if file.privacy is not None and not seeded(file) and any(share.devices > 1 for share in parties):
        raise PrivacyRefused(
            "[engine] seeded = false asks for noise that holds outside a simulation, and a cohort simulates many "
            f"devices at once; let each be a party, with [partition] into = {parties.n_users}, or leave it out."
        )
    if file.privacy is not None:
        phase("planning the noise", None)
    planned = None if file.privacy is None else plan(file, method, parameters, parties.setting, count)
    if planned is None:
        parameters = parameters.resolved(None, Situation(parties.setting, count, sealed=False))
    else:
        parameters = planned.parameters
    return Prepared(
        file, method, parameters, described, training, parts.test, parts.support, parts.description, parties, planned
    )


def _sealing(prepared: Prepared) -> list[str]:
    """How sums are sealed, in words."""
    from tacit.report.sealing import sentences

    told = None if prepared.plan is None else prepared.plan.sealing()
    return [] if told is None else sentences(told, prepared.parties.setting is Setting.DEVICE)


def _trained(
    prepared: Prepared,
    folder: RunFolder,
    guards: Safeguards | None,
    saved: SavedRun | None,
    watch: Callable[[Glance], None] | None,
) -> Trained:
    """The conversation, in this process or with every party in one of its own."""
    file = prepared.file
    payloads = folder.payloads if file.engine.transcript == "full" else None
    if file.engine.name == "flare":
        from tacit.deploy.local import train_apart

        agreed = Agreement.over(
            prepared.method, prepared.parameters, Facts.of(prepared.parties, file.seed), prepared.plan, folder.run_id
        )
        ledgers = folder.path / "ledger" if guards is None else guards.ledgers
        calls = CallLog(folder.path / "transcript" / "log.sqlite") if guards is None else guards.log
        return train_apart(
            folder.path / "sites", ledgers, file, agreed, prepared.parties, calls=calls, payloads=payloads, watch=watch
        )
    return train(
        prepared.method,
        prepared.parameters,
        prepared.parties,
        saved=saved,
        seed=file.seed,
        dropout=file.aggregation.dropout,
        timeout=file.engine.timeout,
        payloads=payloads,
        safeguards=guards,
        test=prepared.test,
        watch=watch,
    )


def _saved(prepared: Prepared, folder: RunFolder) -> SavedRun | None:
    """What a run without privacy goes on from; others have their log, and ledgers or sites' folders."""
    if prepared.plan is not None or prepared.file.engine.name != "inprocess":
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
    watch: Callable[[Glance], None] | None = None,
    phase: Phase | None = None,
) -> dict[str, Any]:
    """One run, whole: prepares, trains, evaluates, and fills the run folder. Returns the summary.

    `watch` sees every round; `phase` hears what else is being done.
    """
    began, phase = perf_counter(), phase or _unheard
    prepared = prepare(file, phase)
    with RunFolder.make(out, prepared.method.name, file) as folder:
        guards = None if prepared.plan is None else safeguards(file, prepared.plan, folder)
        with nullcontext() if guards is None else guards.over(prepared.parties):
            return _run(prepared, folder, guards, watch, phase, began)


def _judge(prepared: Prepared) -> Callable[..., Any]:
    """Judges a predictor as the run is judged, but for `ranking`."""
    from tacit.evaluate.evaluation import evaluate_as_asked

    def judged(predictor: Predictor, ranking: bool) -> Any:
        wanted = prepared.file.evaluate.model_copy(update={"ranking": ranking})
        return evaluate_as_asked(predictor, prepared.test, prepared.train, wanted, prepared.file.seed)

    return judged


def _run(
    prepared: Prepared,
    folder: RunFolder,
    guards: Safeguards | None,
    watch: Callable[[Glance], None] | None,
    phase: Phase,
    began: float,
) -> dict[str, Any]:
    """The run in its folder, which is nobody else's meanwhile."""
    from tacit.evaluate.evaluation import evaluate_as_asked
    from tacit.evaluate.floor import bias_floor
    from tacit.evaluate.references import references
    from tacit.report.about import about, about_parties, absences, metrics_table, void_sums
    from tacit.report.crossing import crossing

    file = prepared.file
    phase("training", None)
    saved = _saved(prepared, folder)
    trained = _trained(prepared, folder, guards, saved, watch)
    lifetimes = () if guards is None else guards.lifetime_notes()
    warnings = () if prepared.plan is None else prepared.plan.warnings
    promise = NON_PRIVATE if prepared.plan is None else prepared.plan.terms.guarantee
    evaluated = partial(
        evaluate_as_asked, test=prepared.test, seen=prepared.train, wanted=file.evaluate, seed=file.seed
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
        "method": prepared.method.name,
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
    floor, beside = None, []
    if file.evaluate.floor:
        floor = bias_floor(prepared, evaluation, phase)
        phase("comparing with local, popularity and central", None)
        beside = references(prepared, evaluation, _judge(prepared))
    phase("writing the report", None)
    folder.finish(
        summary=summary,
        about=about(
            prepared.data,
            prepared.split,
            about_parties(prepared.parties),
            prepared.method,
            prepared.parameters,
            crossing(
                prepared.method,
                prepared.parties.setting,
                prepared.plan,
                simulated=any(share.devices > 1 for share in prepared.parties),
            ),
            notes=[
                *warnings,
                *_bad_rows(prepared.train.dropped),
                *evaluation.notes,
                *lifetimes,
                *_apart(file),
                *absences(trained.transcript, len(prepared.parties)),
                *void_sums(trained.void, trained.rounds),
                *(f"Left out of a secure sum, {party}: {why}" for party, why in trained.rejected.items()),
            ],
            sealed=prepared.plan is not None and prepared.plan.situation.sealed,
            floor=floor,
            references=beside,
            noise=None if prepared.plan is None else prepared.plan.loudness(),
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
