"""A run: a run file in, a run folder out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from tacit.boundary.protection import Budget
from tacit.boundary.release import Kind
from tacit.config import RunFile
from tacit.data.public import public_facts
from tacit.data.ratings import Ratings
from tacit.engine.log import CallLog
from tacit.engine.simulate import Glance, Safeguards, Trained, train, with_newcomers
from tacit.errors import DataError, PrivacyRefused, UsageError
from tacit.federation import Facts, Step, Transcript
from tacit.federation.exchanges import exchanges_about
from tacit.guarantee import NON_PRIVATE
from tacit.methods import Method, Parameters, chosen
from tacit.methods.asked import Situation
from tacit.methods.plan import Plan, affordable, make_plan
from tacit.partition import Parties, Setting
from tacit.report.folder import RunFolder

#: How sums can be made here.
AGGREGATIONS = ("plain", "ideal", "secagg", "shuffle")


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


def check(file: RunFile) -> tuple[Method, Parameters]:
    """Everything that can be refused before data is touched."""
    method, parameters = chosen(file.method)
    aggregation = file.aggregation.name
    if aggregation not in AGGREGATIONS:
        able = ", ".join(f'"{name}"' for name in AGGREGATIONS)
        raise UsageError(f'[aggregation] name = "{aggregation}" is not available in this version; use one of {able}.')
    if aggregation != "plain" and file.privacy is None:
        raise UsageError(
            f'[aggregation] name = "{aggregation}" carries the noise of a private sum, and a sum without noise '
            "protects nobody from whoever sees it; add [privacy]."
        )
    if file.aggregation.signed and aggregation != "secagg":
        raise UsageError(
            f'[aggregation] signed = true is for "secagg", whose survivors sign who stayed; "{aggregation}" has none.'
        )
    if file.engine.name != "inprocess":
        raise UsageError(f'[engine] name = "{file.engine.name}" is not available in this version; use "inprocess".')
    if file.engine.seeded is False and file.privacy is None:
        raise UsageError("[engine] seeded = false needs [privacy]: a run without noise draws everything from its seed.")
    if file.engine.seeded is False and aggregation in ("ideal", "shuffle"):
        raise PrivacyRefused(
            f'[engine] seeded = false asks for noise that holds outside a simulation, and "{aggregation}" exists in '
            'simulations only; use "secagg" or "plain".'
        )
    if file.engine.seeded is False and file.aggregation.signed:
        raise PrivacyRefused(
            "[aggregation] signed = true takes the parties' signing keys from the seed here, so it is for simulations; "
            "leave out signed, or [engine] seeded = false."
        )
    if file.privacy is not None:
        affordable(plan(file, method, parameters), file.privacy)
    return method, parameters


def plan(
    file: RunFile, method: Method, parameters: Parameters, setting: Setting | None = None, parties: int | None = None
) -> Plan:
    """What a private run will ask, add and cost, from public facts alone."""
    if file.privacy is None:
        raise UsageError("The run file has no [privacy] section, so there is nothing to plan; the run is NON-PRIVATE.")
    facts, by = public_facts(file.data, file.public), file.partition.by
    guessed = {"item": Setting.VERTICAL, "genre": Setting.VERTICAL, "device": Setting.DEVICE}
    setting = setting or guessed.get(by, Setting.HORIZONTAL)
    if setting not in method.sides:
        raise UsageError(f"{method.name} runs in the {', '.join(method.sides)} setting, and [partition] is {setting}.")
    parties = parties or (facts.users if setting is Setting.DEVICE else file.partition.into or 10)
    situation = Situation.of(setting, parties, file.aggregation)
    seeded = file.engine.seeded is not False
    made = make_plan(method.name, method.schedule, parameters, file.privacy, facts, situation, seeded)
    _fits(file.aggregation.name, method, made)
    return made


def _fits(aggregation: str, method: Method, made: Plan) -> None:
    """Refuse an aggregation that has nothing to do in this run."""
    setting = made.situation.setting
    steps = method.sides_for(setting, private=True).party.steps
    if aggregation == "shuffle" and not all(noisy.reported for noisy in made.noisy):
        raise PrivacyRefused(
            f'[aggregation] name = "shuffle" mixes single reports, and {method.name} sends none in the {setting} '
            'setting; use "secagg" or "plain".'
        )
    if aggregation == "ideal" and any(steps[noisy.step].kind is not Kind.SUM for noisy in made.noisy):
        raise PrivacyRefused(
            f'[aggregation] name = "ideal" hides contributions to a sum, and {method.name} has no sum to protect in '
            f'the {setting} setting: every party adds noise of its own; use "plain".'
        )


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
    )


def prepare(file: RunFile) -> Prepared:
    """Check the run file, then load, split and partition the data."""
    from tacit.data.load import load
    from tacit.data.split import split
    from tacit.partition import partition
    from tacit.report.about import about_data

    method, parameters = check(file)
    data, public = file.data, file.public
    declared = None if file.privacy is None else public_facts(data, public)
    ratings = load(
        data.source,
        feedback=data.feedback,
        columns=data.columns or None,
        duplicates=data.duplicates,
        query=data.query,
        scale=public.scale if declared is None else (declared.scale.low, declared.scale.high),
        user_table=data.user_table,
        item_table=data.item_table,
        catalogue=public.catalogue,
        users=data.users,
        items=data.items,
        ratings=data.ratings,
        seed=file.seed,
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
    if file.engine.seeded is False and any(share.devices > 1 for share in parties):
        raise PrivacyRefused(
            "[engine] seeded = false asks for noise that holds outside a simulation, and a cohort simulates many "
            f"devices at once; let each be a party, with [partition] into = {parties.n_users}, or leave it out."
        )
    planned = None if file.privacy is None else plan(file, method, parameters, parties.setting, count)
    if planned is None:
        parameters = parameters.resolved(None, Situation(parties.setting, count, sealed=False))
    else:
        parameters = planned.parameters
    return Prepared(
        file, method, parameters, described, training, parts.test, parts.support, parts.description, parties, planned
    )


def _absences(transcript: Transcript, parties: int) -> list[str]:
    """Who did not take part all the time, for the report."""
    words = {
        "refused": "refused, their budget being spent",
        "lost": "dropped out at times",
        "late": "were late at times",
    }
    notes = []
    for status, what in words.items():
        missing = {entry.party for entry in transcript.entries if entry.status == status}
        if missing:
            notes.append(f"{len(missing)} of {parties} parties {what}.")
    return notes


def _crossing(prepared: Prepared) -> dict[str, Step]:
    """What can cross: the method's steps that this run asks for, and what a secure sum of them takes."""
    steps = dict(prepared.method.sides_for(prepared.parties.setting, prepared.plan is not None).party.steps)
    if prepared.plan is None:
        return steps
    asked, here = prepared.plan.terms.schedule, prepared.plan.situation
    steps = {name: step for name, step in steps.items() if step.kind is Kind.PUBLIC or name in asked}
    if here.shares is not None:
        simulated = any(share.devices > 1 for share in prepared.parties)
        for name in asked:
            steps |= exchanges_about(name, steps, here.signed, simulated)
    return steps


def _sealing(prepared: Prepared) -> list[str]:
    """How sums are sealed, in words."""
    from tacit.report.sealing import sentences

    told = None if prepared.plan is None else prepared.plan.sealing()
    return [] if told is None else sentences(told, prepared.parties.setting is Setting.DEVICE)


def _void(trained: Trained, rounds: int) -> list[str]:
    """How many sums came to nothing, for the report."""
    if not trained.void:
        return []
    some = "One sum was" if trained.void == 1 else f"{trained.void:,} sums were"
    many = "All sums were" if trained.void >= rounds else some
    return [f"{many} void, since too few stayed: nothing was learned in such a round, and what left in it is charged."]


def run(file: RunFile, out: Path | None = None, watch: Callable[[Glance], None] | None = None) -> dict[str, Any]:
    """One run, whole: prepares, trains, evaluates, and fills the run folder. Returns the summary."""
    from tacit.evaluate import evaluate
    from tacit.evaluate.floor import bias_floor
    from tacit.report.about import about, metrics_table

    began = perf_counter()
    prepared = prepare(file)
    folder = RunFolder.make(out, prepared.method.name, file)
    guards = None if prepared.plan is None else safeguards(file, prepared.plan, folder)
    trained = train(
        prepared.method,
        prepared.parameters,
        prepared.parties,
        seed=file.seed,
        dropout=file.aggregation.dropout,
        timeout=file.engine.timeout,
        payloads=folder.payloads if file.engine.transcript == "full" else None,
        safeguards=guards,
        test=prepared.test,
        watch=watch,
    )
    lifetimes = () if guards is None else guards.lifetime_notes()
    warnings = () if prepared.plan is None else prepared.plan.warnings
    promise = NON_PRIVATE if prepared.plan is None else prepared.plan.terms.guarantee
    evaluated = partial(
        evaluate,
        test=prepared.test,
        seen=prepared.train,
        k=file.evaluate.k,
        negatives=file.evaluate.negatives,
        relevance=file.evaluate.relevance,
        seed=file.seed,
    )
    evaluation = evaluated(with_newcomers(trained, prepared.support, prepared.test.n_users))
    shared = {}
    if trained.before_fine_tuning is not None:
        shared = {"metrics_shared": evaluated(trained.before_fine_tuning).metrics}
    summary: dict[str, Any] = {
        "run": str(folder.path),
        "method": prepared.method.name,
        "setting": str(prepared.parties.setting),
        "metrics": evaluation.metrics,
        **shared,
        **({"void": trained.void} if trained.void else {}),
        "intervals": {name: list(interval) for name, interval in evaluation.intervals.items()},
        "guarantee": promise.to_json(),
        "rounds": trained.rounds,
        "bytes_up": trained.transcript.meter.bytes_up,
        "bytes_down": trained.transcript.meter.bytes_down,
        "seconds": round(perf_counter() - began, 3),
        "digest": trained.transcript.digest,
    }
    folder.finish(
        summary=summary,
        about=about(
            prepared.data,
            prepared.split,
            prepared.parties,
            prepared.method,
            prepared.parameters,
            _crossing(prepared),
            notes=[
                *warnings,
                *evaluation.notes,
                *lifetimes,
                *_absences(trained.transcript, len(prepared.parties)),
                *_void(trained, trained.rounds),
                *(f"Left out of a secure sum, {party}: {why}" for party, why in trained.rejected.items()),
            ],
            sealed=prepared.plan is not None and prepared.plan.situation.sealed,
            floor=bias_floor(prepared, evaluation),
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
    return summary
