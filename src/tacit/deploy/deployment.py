"""A run between organisations, from the coordinator's side: a run file and a keyring in, a run folder out.

The coordinator holds no ratings. It knows the model's quality only where sites share their metrics.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit import aggregation as aggregations
from tacit import files
from tacit.config import EngineSection, RunFile
from tacit.data.catalogue import Catalogue, read_catalogue
from tacit.deploy.align import REVEALS
from tacit.deploy.coordinator_service import Coordinator, RunResult, proxy_of
from tacit.deploy.health import Health
from tacit.deploy.keyring import Keyring
from tacit.deploy.logs import ServiceLog, quiet_engine
from tacit.deploy.offer import Offer, SiteSizes, facts_among, offered_file
from tacit.deploy.service_status import Status
from tacit.engine.call_log import CallLog
from tacit.engine.cells import check_port_free
from tacit.engine.ledger_folder import Heads
from tacit.engine.serve import checking_file
from tacit.errors import PrivacyRefused, TacitError, UsageError
from tacit.federation import Transcript
from tacit.partition import Setting
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.progress import RoundProgress, progress_reporter
from tacit.prepare.run_file import check, roles_of, seeded, setting_of, stops
from tacit.report.describe import describe, metrics_table, sent_after, sent_before, shared_metrics, site_metrics
from tacit.report.folder import RunFolder
from tacit.report.words import count, plural

INSECURE = "INSECURE: nothing was encrypted on its way, since the keys were made with --insecure."


@dataclass(frozen=True)
class CoordinatorOptions:
    """Options of `tacit up`: seconds to wait for sites, the address to listen at, the port of the health page."""

    wait: float = 600.0
    listen: str | None = None
    health: int | None = None


@dataclass(frozen=True, eq=False)
class Finished:
    """A run that is over: what was prepared and conducted, and what sites reported before and after it.

    `accepted` is what sites reported of themselves when they accepted; `offers` is how often the run was offered.
    """

    prepared: PreparedRun
    done: RunResult
    accepted: Mapping[str, SiteSizes]
    replies: Mapping[str, Any]
    offers: int = 1


def up(
    file: RunFile,
    keyring: Keyring,
    out: Path | None,
    options: CoordinatorOptions,
    watch: Callable[[RoundProgress], None],
    report: Callable[[str], None],
) -> dict[str, Any]:
    """Wait for the invited sites, conduct the run with those that accept, and fill the run folder; the summary.

    `watch` is called every round, and `report` with a sentence about what is waited for.
    """
    file = for_sites(file)
    names = invited = tuple(name for name in keyring.invited if name.startswith("party-"))
    if out is not None and (stored := _roster(out)):
        names = tuple(name for name in stored if name in names)
    else:
        _enough(file, names)
    catalogue = public_items(file)
    method, _parameters = check(file)
    roles = _roles(file, names, keyring)
    if aggregations.find(file.aggregation.name).through_proxy:
        proxy_of(keyring)  # refuses where none is invited
    check_port_free(options.listen or keyring.host, keyring.port)
    with RunFolder.make(out, method.name, file) as folder:
        sent = offered_file(file, file.public)
        offer = Offer(folder.run_id, sent, names, setting_of(file), catalogue, roles=roles)
        held, refused = _serve(offer, file, keyring, folder, options, watch, report)
        offers = max(held.offers, 1 + (len(invited) > len(held.accepted)))  # also those before it was resumed
        return _written(folder, file, replace(held, offers=offers), refused, keyring)


def _serve(
    offer: Offer,
    file: RunFile,
    keyring: Keyring,
    folder: RunFolder,
    options: CoordinatorOptions,
    watch: Callable[[RoundProgress], None],
    report: Callable[[str], None],
) -> tuple[Finished, list[str]]:
    log = ServiceLog(folder.path, "coordinator")
    quiet_engine(log)
    with ExitStack() as stack:
        status = stack.enter_context(Status(folder.path, "coordinator", keyring.federation))
        relayed = aggregations.find(file.aggregation.name).through_proxy
        coordinator = Coordinator(keyring, folder.run_id, log, status, options.listen, report, relayed)
        stack.enter_context(closing(coordinator))
        calls = stack.enter_context(closing(CallLog(folder.path / "transcript" / "log.sqlite")))
        if options.health is not None:
            health = stack.enter_context(closing(Health(status, port=options.health)))
            health.start()
            report(f"Its health is at {health.address}.")
        coordinator.admission.offer = offer.content()
        coordinator.open()
        held = _conduct(coordinator, offer, file, options.wait, folder, calls, watch)
        coordinator.done()
        refused = [f"{name} did not take part: {why}" for name, why in coordinator.refused.items()]
        return replace(held, offers=coordinator.offers), refused


def for_sites(file: RunFile) -> RunFile:
    """The run file of a deployment; refuses what only a simulation may have."""
    engine = EngineSection.model_validate({**file.engine.model_dump(), "name": "flare"})
    data = file.data.model_copy(update={"source": "sites"})  # each site names its own
    file = file.model_copy(update={"engine": engine, "data": data})
    if file.privacy is not None and seeded(file):
        raise PrivacyRefused(
            "[engine] seeded = true draws noise that everyone with the run file can recompute, so every site would "
            "refuse it; leave it out, or try the run on this machine with: tacit up FILE --local N"
        )
    if file.aggregation.dropout:
        raise UsageError("[aggregation] dropout injects drop-outs, which is for simulations; leave it out.")
    if file.split.by in ("temporal", "cold-users"):
        raise UsageError(f'[split] by = "{file.split.by}" cannot be made by a single site; choose another one.')
    if file.public.scale is None or (file.privacy is not None and file.public.users is None):
        raise UsageError(
            "A deployment declares [public] scale, and with [privacy] users too, since no one place has all ratings; "
            "add them, as in scale = [1, 5] and users = 6040."
        )
    return file


def public_items(file: RunFile) -> Catalogue | None:
    """The public list of items; None for the union of the sites' items."""
    if file.public.catalogue is not None:
        return read_catalogue(file.public.catalogue, file.public.features)
    if file.public.features:
        raise UsageError(
            "[public] features needs a public table of items in a deployment; name it "
            'in [public], as in catalogue = "items.parquet".'
        )
    if file.privacy is not None:
        raise UsageError(
            "With [privacy], items come from a public list, since a list of what was rated would reveal it; name one "
            'in [public], as in catalogue = "items.csv".'
        )
    return None


def _roster(run: Path) -> tuple[str, ...]:
    """The parties of a run that is resumed; none where it had not begun."""
    path = run / "transcript" / "roster.json"
    if not path.exists():
        return ()
    with checking_file(path):
        return tuple(str(name) for name in list(json.loads(path.read_bytes())))


def _enough(file: RunFile, names: tuple[str, ...]) -> None:
    if not names:
        raise UsageError("No party is invited yet; write kits with: tacit keys invite KEYS party-1 party-2 …")
    if file.partition.into is not None and file.partition.into != len(names):
        raise UsageError(
            f"[partition] into = {file.partition.into}, and {len(names)} parties are invited; make them the same."
        )


def _roles(file: RunFile, names: tuple[str, ...], keyring: Keyring) -> tuple[str, ...]:
    roles = roles_of(file, setting_of(file), len(names))
    if missing := [name for name in roles if name not in keyring.invited]:
        raise UsageError(
            f"The run needs {missing[0]}, which is not invited; write a kit with: tacit keys invite {keyring.folder} "
            f"{' '.join(missing)}"
        )
    return roles


def _conduct(
    coordinator: Coordinator,
    offer: Offer,
    file: RunFile,
    wait: float,
    folder: RunFolder,
    calls: CallLog,
    watch: Callable[[RoundProgress], None],
) -> Finished:
    names = offer.everybody
    transcript = Transcript(folder.payloads if file.engine.transcript == "full" else None)
    try:
        coordinator.gather(names, wait, offer)
        offer, accepted = coordinator.offered(offer, stops(file))
        found: Mapping[str, SiteSizes] = accepted
        files.write_private(folder.path / "transcript" / "roster.json", json.dumps(offer.roster))
        if offer.setting is Setting.VERTICAL:
            found = coordinator.align(offer, accepted, folder.path / "transcript" / "aligned.tct")
        prepared = offer.prepared(facts_among(offer, found))
        with _ledger_heads(coordinator, offer, calls) as heads:
            coordinator.begin(offer, prepared, heads)
            done = coordinator.conduct(
                prepared, file.engine.timeout, transcript, calls, progress_reporter(prepared, watch)
            )
    except TacitError as error:
        coordinator.give_up(names, error)
        raise
    ended = coordinator.end(offer.everybody, {"digest": transcript.digest}, done.shared)
    replies = {name: reply for name, reply in ended.items() if name in offer.roster}
    return Finished(prepared, done, accepted, replies)


@contextmanager
def _ledger_heads(coordinator: Coordinator, offer: Offer, calls: CallLog) -> Iterator[dict[str, str]]:
    """The last heads of the sites' ledgers, by name, from earlier runs of these keys; this run's are stored.

    A ledger belongs to a signing key: both are in a site's state folder, and another site may join under an old name.
    """
    if offer.file.privacy is None:
        yield {}
        return
    heads, who = Heads(coordinator.keyring.folder / "heads.json"), coordinator.identities(offer.roster)
    known = heads.known()
    heads.begin(calls.path, who)
    try:
        yield {name: known[key] for name, key in who.items() if key in known}
    finally:
        heads.end()


def _written(folder: RunFolder, file: RunFile, held: Finished, refused: list[str], keyring: Keyring) -> dict[str, Any]:
    prepared, done, replies = held.prepared, held.done, held.replies
    facts = prepared.facts
    metrics, judged = shared_metrics(replies, len(facts.roster))
    sites = sum(site is not None for site in site_metrics(replies).values())
    whose = {"metrics_of": f"{sites} of {plural(len(facts.roster), 'site')}"} if metrics else {}
    description = describe(
        prepared,
        done,
        folder.path,
        done.seconds,
        summary={"metrics": metrics, **whose, "intervals": {}},
        about={
            "data": described(prepared, file),
            "split": f"Every site held out its own part, as [split] says: {file.split.by}.",
            "partition": sites_of(held, file, keyring.federation),
            "deployed": True,
            "beside": beside(held, file),
        },
        notes=[
            *([INSECURE] if keyring.insecure else []),
            *refused,
            *judged,
            *([REVEALS[file.partition.align]] if facts.setting is Setting.VERTICAL else []),
        ],
    )
    folder.finish(description, metrics_table([]), done.transcript, replace(done.model, stamp=str(prepared.guarantee)))
    return description.summary.to_json()


def beside(held: Finished, file: RunFile) -> list[dict[str, Any]]:
    """What sites reported outside the run's own messages."""
    contents = {name: site.content() for name, site in held.accepted.items()}
    users = {name: site.users for name, site in held.accepted.items()}
    way = file.partition.align if held.prepared.facts.setting is Setting.VERTICAL else None
    return [*sent_before(contents, users, way, held.offers), *sent_after(held.replies)]


def described(prepared: PreparedRun, file: RunFile) -> dict[str, Any]:
    """What about.json states about data that is never in one place: declared numbers, no counts and no density."""
    facts, declared = prepared.facts, file.public.ratings
    words, density, notes = "", None, []
    if file.privacy is not None:
        words = f"about {count(declared)} ratings declared" if declared else "an uncounted number of ratings"
        notes = ["the number of ratings is what the run file declares, for all who were invited"] if declared else []
    elif facts.setting is Setting.VERTICAL:
        words = f"{plural(facts.ratings, 'rating')} before users were aligned"
    else:
        density = facts.ratings / (facts.users * facts.items)
    return {
        "name": "the sites' own data",
        "users": facts.users,
        "items": facts.items,
        "ratings": facts.ratings,
        "ratings_in_words": words,
        "scale": str(facts.scale),
        "feedback": str(facts.feedback),
        "features": list(facts.catalogue.columns),
        "density": density,
        "notes": notes,
    }


def sites_of(held: Finished, file: RunFile, federation: str) -> dict[str, Any]:
    """What about.json says of who held what; in the vertical setting a site's own users, and not the common list's."""
    facts = held.prepared.facts
    listed = [
        {"name": m.name, "label": m.name, "users": held.accepted[m.name].users, "items": m.items, "devices": m.devices}
        for m in facts.roster
    ]
    description = f"{len(listed)} sites of the federation {federation}."
    if facts.setting is Setting.VERTICAL:
        whose = "users of all sites" if file.partition.keep == "shared" else "users of any site"
        description += f" The common list has {plural(facts.users, 'row')}, the {whose}; below are each site's own."
    return {"description": description, "parties": listed}
