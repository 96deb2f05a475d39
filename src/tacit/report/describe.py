"""Describe a finished run: its summary, its data, parties and method, and what crossed, in plain words.

What sites send outside a run's own messages (sizes and lists before it, their own metrics after it) is not in digest
and summary, so that they equal those of a simulation. Bytes are as in the sites' ledgers.
"""

from __future__ import annotations

import math
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np
import pyarrow as pa
from pydantic import Field, ValidationError, field_validator

from tacit.boundary.release import Kind
from tacit.boundary.wire import Value, encode
from tacit.config import MOST_RATINGS, MOST_USERS, Frozen
from tacit.data.vocabulary import Vocabulary
from tacit.evaluate import Evaluation
from tacit.evaluate.metrics import METRICS
from tacit.federation import Step, Transcript
from tacit.partition import Parties, Setting
from tacit.prepare.prepared import PreparedRun
from tacit.report.description import About, RunDescription, Summary
from tacit.report.guarantee_words import report_sentences, secagg_sentences
from tacit.report.words import listing, plural
from tacit.secure.psi import SIZE

#: How many absent parties are listed by name.
MOST_ABSENT = 8
#: Who sees what of a step that is hidden.
HIDDEN = {
    Kind.SUM: "nobody; the coordinator sees the sum",
    Kind.CHAIN: "nobody; the coordinator sees the mean",
    Kind.REPORT: "the coordinator, mixed with all others",
}


class Ended(Protocol):
    """What every run leaves, simulated or deployed."""

    @property
    def transcript(self) -> Transcript: ...
    @property
    def rounds(self) -> int: ...
    @property
    def void(self) -> int: ...
    @property
    def rejected(self) -> Mapping[str, str]: ...


def describe(
    run: PreparedRun,
    ended: Ended,
    folder: Path,
    seconds: float,
    *,
    summary: Mapping[str, Any],
    about: Mapping[str, Any],
    notes: Sequence[str] = (),
    simulated: bool = False,
) -> RunDescription:
    """The description of a run that has ended.

    `summary` and `about` hold what only the caller knows: metrics, data, split, partition, comparisons. `simulated`
    says that one party stands for several devices.
    """
    meter, sealing, noise = ended.transcript.meter, run.sealing(), run.noise_levels()
    devices = run.facts.setting is Setting.DEVICE
    return RunDescription(
        summary=Summary(
            run=str(folder),
            method=run.method.name,
            setting=str(run.facts.setting),
            void=ended.void,
            guarantee=run.guarantee.to_json(),
            rounds=ended.rounds,
            bytes_up=meter.bytes_up,
            bytes_down=meter.bytes_down,
            seconds=round(seconds, 3),
            digest=ended.transcript.digest,
            **summary,
        ),
        about=About(
            tacit=version("tacit"),
            python=platform.python_version(),
            numpy=np.__version__,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            method={
                "name": run.method.name,
                "title": run.method.title,
                "what": run.method.what,
                "parameters": run.parameters.model_dump(exclude_none=True),
            },
            crossings=[
                {"step": step.name, "kind": str(step.kind), "to": _seen_by(step, run.sealed), "what": step.what}
                for step in crossing_steps(run, simulated).values()
            ],
            notes=[
                *run.warnings,
                *notes,
                *absences(ended.transcript, len(run.facts.roster)),
                *void_sums(ended.void, ended.rounds),
                *(f"Left out of a secure sum, {party}: {why}" for party, why in ended.rejected.items()),
            ],
            **({} if noise is None else {"steps_noise": noise}),
            sealing=[] if sealing is None else secagg_sentences(sealing, devices),
            reports=[sentence for costs in run.report_costs() for sentence in report_sentences(costs)],
            hidden=run.hidden,
            **about,
        ),
    )


def crossing_steps(run: PreparedRun, simulated: bool) -> dict[str, Step]:
    """By name, the steps whose answers can cross in a run, with those that a secure sum of them takes."""
    plan, requested = run.plan, run.plan.terms.steps
    sides = run.sides
    every = sides.party.steps
    open_kinds = (Kind.PUBLIC, Kind.DISCLOSE)
    steps = {name: step for name, step in every.items() if step.kind in open_kinds or name in requested}
    for role, kind in {**sides.roles, **plan.how.roles}.items():
        for name, step in kind.steps.items():
            steps[name] = replace(step, what=f"sent by {role}, a role without ratings: {step.what}")
    for name, terms in requested.items():
        if terms.sealed:
            steps |= plan.how.messages(every[name], simulated)
    return steps


def _seen_by(step: Step, sealed: Sequence[str]) -> str:
    return HIDDEN.get(step.kind, "the coordinator") if step.name in sealed else "the coordinator"


def about_parties(parties: Parties) -> dict[str, Any]:
    """The `partition` of about.json: who held what."""
    return {
        "description": parties.description,
        "parties": [
            {
                "name": share.name,
                "label": share.label,
                "users": len(share.users),
                "items": len(share.items),
                "ratings": share.ratings.n_ratings,
                "devices": share.devices,
            }
            for share in parties
        ],
    }


def absences(transcript: Transcript, parties: int) -> list[str]:
    """Which parties missed rounds, how many, and why."""
    reasons = {
        "refused": "refused, because their budget was spent",
        "lost": "dropped out at times",
        "late": "were late at times",
    }
    rounds, notes = len({entry.round for entry in transcript.entries} - {0}), []
    for status, reason in reasons.items():
        missed: dict[str, set[int]] = {}
        for entry in transcript.entries:
            if entry.status == status:
                missed.setdefault(entry.party, set()).add(entry.round)
        if missed:
            ranked = sorted(missed, key=lambda name: -len(missed[name]))
            named = [f"{name} {_rounds_missed(missed[name] - {0}, rounds)}" for name in ranked[:MOST_ABSENT]]
            if len(ranked) > MOST_ABSENT:
                named.append(f"{plural(len(ranked) - MOST_ABSENT, 'other')} less often")
            notes.append(f"{len(missed)} of {parties} parties {reason}: {listing(named)}.")
    return notes


def _rounds_missed(missed: set[int], rounds: int) -> str:
    if not missed:
        return "before the first round"
    first, last = min(missed), max(missed)
    which = f"round {first}" if first == last else f"{first} to {last}"
    if last - first >= len(missed):
        which = f"between {first} and {last}"
    return f"in {len(missed)} of {plural(rounds, 'round')} ({which})"


def void_sums(void: int, rounds: int) -> list[str]:
    """A note that some sums failed because too many parties dropped out."""
    if not void:
        return []
    many = f"{plural(void, 'sum')} in {plural(rounds, 'round')} {'was' if void == 1 else 'were'} void"
    return [
        f"{many} because too few parties stayed: nothing was learned from them, and what left for them counts against "
        "the budget."
    ]


def metrics_table(
    rounds: Sequence[tuple[int, float]], evaluation: Evaluation | None = None, user_ids: Vocabulary | None = None
) -> pa.Table:
    """metrics.parquet: the test MSE after each round, then every user's final values."""
    per_round = pa.table(
        {
            "scope": pa.array(["round"] * len(rounds), pa.string()),
            "round": pa.array([number for number, _mse in rounds], pa.int32()),
            "user": pa.nulls(len(rounds), pa.string()),
            "metric": pa.array(["mse"] * len(rounds), pa.string()),
            "value": pa.array([mse for _number, mse in rounds], pa.float64()),
        }
    )
    if evaluation is None or user_ids is None:
        return per_round
    return pa.concat_tables([per_round, evaluation.to_arrow(user_ids).cast(per_round.schema)])


_NAME = re.compile("[a-z0-9_]+(@[1-9][0-9]{0,5})?")


def sent_before(
    replies: Mapping[str, Mapping[str, Value]], users: Mapping[str, int], way: str | None = None, offers: int = 1
) -> list[dict[str, Any]]:
    """What sites sent before a run began.

    Parameters
    ----------
    replies : by site, what it reported about itself when it accepted
    users : by site, how many users it has
    way : how users were aligned, "psi" or "hashed"; None where sites hold different users
    offers : how often the run was offered: again after each refusal
    """
    items = any("items" in reply for reply in replies.values())
    counted = any(reply.get("ratings") for reply in replies.values())
    what = ["how many users it has", *(["how many ratings"] if counted else []), *(["which items"] if items else [])]
    again = ", once for each offer" if offers > 1 else ""
    sent = {"sizes:roster": (listing(what) + again, [len(encode(reply)) for reply in replies.values()] * offers)}
    lists = [len(encode({"list": np.zeros((n, SIZE), np.uint8)})) for n in users.values()]
    if way == "psi":
        sent["first:roster"] = ("the list of its users, blinded", lists)
        sent["again:roster"] = ("another site's blinded list, blinded once more", lists * (len(lists) - 1))
    elif way is not None:
        sent["tags:roster"] = ("the list of its users, as keyed hashes", lists)
    if way is not None:
        acknowledged = [len(encode({"aligned": True}))] * len(lists)
        sent["rows:roster"] = ("the acknowledgement that it has its rows of the common list", acknowledged)
    return [_row(step, "before", "roster", *content) for step, content in sent.items()]


def sent_after(replies: Mapping[str, Mapping[str, Value]]) -> list[dict[str, Any]]:
    """What sites sent after a run had ended: their own metrics, where they chose to."""
    sizes = [len(encode({"metrics": reply["metrics"]})) for reply in replies.values() if "metrics" in reply]
    what = "metrics of its own test ratings, without any noise, which the site chose to report"
    return [_row("metrics:own", "after", "metrics", what, sizes)] if sizes else []


def _row(step: str, when: str, kind: str, what: str, sizes: list[int]) -> dict[str, Any]:
    return {"step": step, "when": when, "kind": kind, "what": what, "answers": len(sizes), "bytes": sum(sizes)}


class SiteMetrics(Frozen):
    """The model's quality on one site's own test ratings."""

    metrics: dict[str, Annotated[float, Field(ge=0, le=1e15)]]
    users: int = Field(ge=1, le=MOST_USERS)
    ratings: int = Field(ge=1, le=MOST_RATINGS)

    @field_validator("metrics")
    @classmethod
    def _known(cls, found: dict[str, float]) -> dict[str, float]:
        if not all(name.partition("@")[0] in METRICS and _NAME.fullmatch(name) for name in found):
            raise ValueError("there is no such metric")
        return found


def site_metrics(replies: Mapping[str, Any]) -> dict[str, SiteMetrics | None]:
    """The metrics of every site that reported any; None where they are invalid."""
    found: dict[str, SiteMetrics | None] = {}
    for name, reply in replies.items():
        if "metrics" in reply:
            try:
                found[name] = SiteMetrics.model_validate_json(str(reply["metrics"]))
            except ValidationError:
                found[name] = None
    return found


def shared_metrics(replies: Mapping[str, Any], parties: int) -> tuple[dict[str, float], list[str]]:
    """The sites' metrics combined, and notes on which sites reported any; invalid ones are left out.

    Errors are weighted by test ratings, and ranking metrics by test users, as they are over all users together.
    """
    found = site_metrics(replies)
    notes = [f"The metrics that {name} reported are invalid and left out." for name, site in found.items() if not site]
    valid = [site for site in found.values() if site is not None]
    if not valid:
        return {}, [*notes, "Metrics stayed at the sites: no site chose to report its own."]
    metrics = {}
    for name in set.intersection(*(set(site.metrics) for site in valid)) - {"rmse"}:
        weights = [site.ratings if name in ("mse", "mae") else site.users for site in valid]
        metrics[name] = float(np.average([site.metrics[name] for site in valid], weights=weights))
    if "mse" in metrics:
        metrics["rmse"] = math.sqrt(metrics["mse"])
    notes.append(
        f"METRICS SHARED: {len(valid)} of {parties} sites chose to report the metrics of their own test ratings, which "
        f"depend on data and carry no guarantee; {'their mean is' if len(valid) > 1 else 'these are'} shown."
    )
    order = list(METRICS)
    return dict(sorted(metrics.items(), key=lambda one: (order.index(one[0].partition("@")[0]), one[0]))), notes
