"""A run between organisations, from the coordinator's side: a run file and a keyring in, a run folder out.

The coordinator holds no ratings. What it can say of the model's quality is what sites chose to tell it; by default that
is nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import numpy as np
from pydantic import Field, ValidationError, field_validator

from tacit.config import EngineSection, Frozen, RunFile
from tacit.data.vocabulary import Vocabulary
from tacit.deploy.align import REVEALS
from tacit.deploy.coordinator import Conducted, Coordinator, facts_among, glances, stops
from tacit.deploy.files import write_private
from tacit.deploy.health import Health
from tacit.deploy.keys import Keyring
from tacit.deploy.logs import logger, quiet_engine
from tacit.deploy.source import items_of
from tacit.deploy.status import Status
from tacit.deploy.terms import Offer, offered_file
from tacit.engine.agreement import Agreement
from tacit.engine.cells import vacant
from tacit.engine.log import CallLog
from tacit.engine.simulate import Glance
from tacit.errors import PrivacyRefused, TacitError, UsageError
from tacit.evaluate.metrics import METRICS
from tacit.federation import Transcript
from tacit.guarantee import NON_PRIVATE
from tacit.methods.runfile import check, seeded, setting_of
from tacit.partition import Setting
from tacit.report.about import about, absences, metrics_table
from tacit.report.crossing import crossing
from tacit.report.folder import RunFolder
from tacit.report.sealing import sentences


@dataclass(frozen=True)
class Terms:
    """What `tacit up` was told beside the run file and the keys."""

    wait: float = 600.0
    listen: str | None = None
    health: int | None = None


def up(
    file: RunFile,
    keyring: Keyring,
    out: Path | None,
    terms: Terms,
    watch: Callable[[Glance], None],
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Wait for the invited sites, hold the run with those that accept, and fill the run folder. The summary.

    `watch` sees every round, and `tell` gets a sentence about what is waited for.
    """
    began = perf_counter()
    file = for_sites(file)
    names = tuple(name for name in keyring.invited if name.startswith("party-"))
    if out is not None and (kept := _roster(out)):
        names = tuple(name for name in kept if name in names)
    else:
        _enough(file, names)
    items = listed(file)
    method, _parameters = check(file)
    vacant(terms.listen or keyring.host, keyring.port)
    folder = RunFolder.make(out, method.name, file)
    log = logger(folder.path, "coordinator")
    quiet_engine(log)
    with Status(folder.path, "coordinator", keyring.federation) as status:
        health = Health(status, port=terms.health) if terms.health is not None else None
        coordinator = Coordinator(keyring, folder.run_id, log, status, terms.listen, tell)
        calls = CallLog(folder.path / "transcript" / "log.sqlite")
        try:
            if health is not None:
                health.start()
                tell(f"Its health is told at {health.address}.")
            offer = Offer(folder.run_id, offered_file(file, file.public), names, setting_of(file), items)
            coordinator.show(offer)
            coordinator.open()
            done, agreed, replies = _held(coordinator, offer, file, terms, folder, calls, watch)
            refused = [f"{name} did not take part: {why}" for name, why in coordinator.refused.items()]
            coordinator.done()
        finally:
            calls.close()
            coordinator.close()
            if health is not None:
                health.close()
    return _written(folder, file, agreed, done, replies, refused, keyring, perf_counter() - began)


def for_sites(file: RunFile) -> RunFile:
    """The run file of a deployment; refuses what only a simulation may ask for."""
    engine = EngineSection.model_validate({**file.engine.model_dump(), "name": "flare"})
    data = file.data.model_copy(update={"source": "sites"})  # each says at home where its own are
    file = file.model_copy(update={"engine": engine, "data": data})
    if file.privacy is not None and seeded(file):
        raise PrivacyRefused(
            "[engine] seeded = true draws noise that whoever holds the run file can recompute, so every site would "
            "refuse it; leave it out, or try the run on this machine with: tacit up FILE --local N"
        )
    if file.aggregation.dropout:
        raise UsageError("[aggregation] dropout injects drop-outs, which is for simulations; leave it out.")
    if file.split.by in ("temporal", "cold-users"):
        raise UsageError(f'[split] by = "{file.split.by}" cannot be made by a site for itself; choose another one.')
    if file.public.scale is None or (file.privacy is not None and file.public.users is None):
        raise UsageError(
            "A deployment declares [public] scale, and with [privacy] users too: no one place has all ratings to read "
            "them off; add them, as in scale = [1, 5] and users = 6040."
        )
    return file


def listed(file: RunFile) -> Vocabulary | None:
    """The public list of items; None where it is to be the union of what sites have."""
    if file.public.catalogue is not None:
        return items_of(file.public.catalogue)
    if file.privacy is not None:
        raise UsageError(
            "With [privacy], items come from a public list, since a list of what was rated would be a leak; name one "
            'in [public], as in catalogue = "items.csv".'
        )
    return None


def _roster(run: Path) -> tuple[str, ...]:
    """Who is in a run that is being resumed; nobody yet where it was not begun."""
    path = run / "transcript" / "roster.json"
    return tuple(json.loads(path.read_text())) if path.exists() else ()


def _enough(file: RunFile, names: tuple[str, ...]) -> None:
    if not names:
        raise UsageError("Nobody is invited yet; write kits with: tacit keys invite KEYS party-1 party-2 …")
    if file.partition.into is not None and file.partition.into != len(names):
        raise UsageError(
            f"[partition] into = {file.partition.into}, and {len(names)} parties are invited; make them the same."
        )


def _held(
    coordinator: Coordinator,
    offer: Offer,
    file: RunFile,
    terms: Terms,
    folder: RunFolder,
    calls: CallLog,
    watch: Callable[[Glance], None],
) -> tuple[Conducted, Agreement, Mapping[str, Any]]:
    names = offer.roster
    transcript = Transcript(folder.payloads if file.engine.transcript == "full" else None)
    try:
        coordinator.gather(names, terms.wait)
        offer, told = coordinator.offered(offer, stops(file))
        write_private(folder.path / "transcript" / "roster.json", json.dumps(offer.roster))
        if offer.setting is Setting.VERTICAL:
            told = coordinator.align(offer, told, folder.path / "transcript" / "aligned.tct")
        agreed = offer.agreement(facts_among(offer, told))
        coordinator.begin(offer, agreed)
        done = coordinator.conduct(agreed, file, transcript, calls, glances(agreed, watch))
    except TacitError as error:
        coordinator.give_up(names, str(error)[:400])
        raise
    replies = coordinator.end(offer.roster, {"digest": transcript.digest}, done.shared)
    return done, agreed, replies


def _written(
    folder: RunFolder,
    file: RunFile,
    agreed: Agreement,
    done: Conducted,
    replies: Mapping[str, Any],
    refused: list[str],
    keyring: Keyring,
    seconds: float,
) -> dict[str, Any]:
    """Fill the run folder with what the coordinator has seen."""
    plan, facts = agreed.plan, agreed.facts
    promise = NON_PRIVATE if plan is None else plan.terms.guarantee
    metrics, notes = shared_metrics(replies, len(facts.roster))
    notes += [REVEALS[file.partition.align]] if facts.setting is Setting.VERTICAL else []
    if keyring.insecure:
        notes.insert(0, "INSECURE: nothing was encrypted on its way, since the keys were made with --insecure.")
    summary: dict[str, Any] = {
        "run": str(folder.path),
        "method": agreed.method.name,
        "setting": str(facts.setting),
        "metrics": metrics,
        **({"void": done.void} if done.void else {}),
        "intervals": {},
        "guarantee": promise.to_json(),
        "rounds": done.rounds,
        "bytes_up": done.transcript.meter.bytes_up,
        "bytes_down": done.transcript.meter.bytes_down,
        "seconds": round(seconds, 3),
        "digest": done.transcript.digest,
    }
    told = None if plan is None else plan.sealing()
    folder.finish(
        summary=summary,
        about=about(
            _data(agreed, file),
            f"Every site held out its own part, as [split] says: {file.split.by}.",
            _parties(agreed, keyring),
            agreed.method,
            agreed.parameters,
            crossing(agreed.method, facts.setting, plan, simulated=False),
            notes=[
                *(() if plan is None else plan.warnings),
                *notes,
                *refused,
                *absences(done.transcript, len(facts.roster)),
                *(f"Left out of a secure sum, {party}: {why}" for party, why in done.rejected.items()),
            ],
            sealed=plan is not None and plan.situation.sealed,
            noise=None if plan is None else plan.loudness(),
            sealing=[] if told is None else sentences(told, False),
            deployed=True,
        ),
        metrics=metrics_table([]),
        transcript=done.transcript,
        model=replace(done.model, stamp=str(promise)),
    )
    return summary


def shared_metrics(replies: Mapping[str, Any], parties: int) -> tuple[dict[str, float], list[str]]:
    """What sites told of how good the model is for them, as one, and notes of who told; what cannot be is left out.

    Errors are weighed by test ratings, and places in lists by test users, as they are over all users together.
    """
    told, notes = {}, []
    for name, reply in replies.items():
        if "metrics" in reply:
            try:
                told[name] = SiteMetrics.model_validate_json(reply["metrics"])
            except ValidationError:
                notes.append(f"The metrics that {name} told are none, and were left out.")
    if not told:
        return {}, [*notes, "Metrics stayed at the sites: none of them chose to tell its own."]
    names = set.intersection(*(set(site.metrics) for site in told.values())) - {"rmse"}
    metrics = {}
    for name in sorted(names):
        weights = [site.ratings if name in ("mse", "mae") else site.users for site in told.values()]
        metrics[name] = float(np.average([site.metrics[name] for site in told.values()], weights=weights))
    if "mse" in metrics:
        metrics["rmse"] = math.sqrt(metrics["mse"])
    note = (
        f"METRICS SHARED: {len(told)} of {parties} sites chose to tell the metrics of their own test ratings, which "
        "depend on data and carry no guarantee; what is shown is their mean."
    )
    return metrics, [*notes, note]


class SiteMetrics(Frozen):
    """What one site tells of the model's quality on its own test ratings."""

    metrics: dict[str, Annotated[float, Field(ge=0)]]
    users: int = Field(ge=1)
    ratings: int = Field(ge=1)

    @field_validator("metrics")
    @classmethod
    def _known(cls, found: dict[str, float]) -> dict[str, float]:
        if not all(name.partition("@")[0] in METRICS for name in found):
            raise ValueError("there is no such metric")
        return found


def _data(agreed: Agreement, file: RunFile) -> dict[str, Any]:
    facts = agreed.facts
    return {
        "name": "the sites' own",
        "users": facts.users,
        "items": facts.items,
        "ratings": facts.ratings,
        "scale": str(facts.scale),
        "feedback": str(facts.feedback),
        "density": facts.ratings / (facts.users * facts.items),
        "notes": ["the number of ratings is as declared"] if file.privacy is not None else [],
    }


def _parties(agreed: Agreement, keyring: Keyring) -> dict[str, Any]:
    facts = agreed.facts
    listed = [
        {"name": m.name, "label": m.name, "users": m.users, "items": m.items, "ratings": 0, "devices": m.devices}
        for m in facts.roster
    ]
    return {"description": f"{len(listed)} sites of the federation {keyring.federation}.", "parties": listed}
