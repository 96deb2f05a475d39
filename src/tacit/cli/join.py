"""`tacit join`: a site's service, and what it checks before it joins."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import typer
from rich.console import Console

from tacit.boundary.lock import exclusive
from tacit.cli.display import print_json, stoppable
from tacit.config import RunFile
from tacit.deploy.certificates import identity_text
from tacit.deploy.health import Health as HealthProbe
from tacit.deploy.kit import Kit
from tacit.deploy.logs import ServiceLog, one_line, quiet_engine
from tacit.deploy.policy import Policy
from tacit.deploy.preflight import preflight, wait_until_reachable
from tacit.deploy.service_status import Status
from tacit.deploy.site_data import NoRatings, RoleTable, Source
from tacit.deploy.site_run import Home
from tacit.deploy.site_service import Site, own_identity
from tacit.engine.cells import check_installed
from tacit.errors import UsageError
from tacit.federation.role import ROLE


@dataclass(frozen=True)
class Joining:
    """A site that is about to join: its kit, its state folder, its data and its rules."""

    kit: Kit
    folder: Path
    data: Source | RoleTable
    policy: Policy

    @property
    def ledgers(self) -> Path:
        return self.folder / "ledger"


def join(
    kit: Path,
    data: str | None,
    query: str | None,
    columns: list[str] | None,
    items: Path | None,
    feedback: str | None,
    duplicates: str | None,
    bad_rows: str | None,
    state: Path | None,
    check: bool,
    run: Path | None,
    max_epsilon: float | None,
    delta: float | None,
    days: float | None,
    unit: str,
    non_private: bool,
    share_metrics: bool,
    peers: Path | None,
    align_key: Path | None,
    identity: bool,
    insecure: bool,
    stay: bool,
    wait: float,
    health: int | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Take part in a federation's runs with this site's own data."""
    check_installed()
    own = Kit.read(kit)
    folder = state or Path(f"site-{own.name}")
    if identity:
        public = identity_text(own_identity(folder).public_key())
        typer.echo(json.dumps({own.name: public}) if as_json else f"{own.name} {public}")
        return
    if own.insecure and not insecure:
        raise UsageError(
            "This kit's keys were made with --insecure, so nothing would be encrypted; add --insecure here too to "
            "accept that, or ask for another kit."
        )
    file = None if run is None else RunFile.read(run)
    known_peers = None if peers is None else read_peers(peers)
    if ROLE.fullmatch(own.name):
        reading = {"--query": query, "--column": columns, "--items": items, "--feedback": feedback}
        reading |= {"--duplicates": duplicates, "--bad-rows": bad_rows, "--align-key": align_key}
        spending = {"--max-epsilon": max_epsilon, "--delta": delta, "--days": days, "--share-metrics": share_metrics}
        if unfit := [option for option, value in (reading | spending).items() if value]:
            raise UsageError(f"{unfit[0]} is for sites with ratings, and the kit is for {own.name}; leave it out.")
        items_table = RoleTable(None if data is None else Path(data))
        site = Joining(own, folder, items_table, Policy(file=file, peers=known_peers))
    else:
        if unit not in ("user", "rating"):
            raise UsageError(f'--unit is "user" or "rating", not "{unit}".')
        policy = Policy(
            max_epsilon=_positive(max_epsilon, "--max-epsilon"),
            delta=_positive(delta, "--delta"),
            days=days,
            unit=unit,
            non_private=non_private,
            file=file,
            peers=known_peers,
            shares_metrics=share_metrics,
            align_key=None if align_key is None else _secret(align_key),
        )
        source = _source(data, query, columns, items, (feedback, duplicates, bad_rows), file)
        site = Joining(own, folder, source, policy)
    if check:
        _check(site, as_json)
    else:
        _take_part(site, wait, stay, health, as_json, quiet)


def _source(
    data: str | None,
    query: str | None,
    columns: list[str] | None,
    items: Path | None,
    reading: tuple[str | None, str | None, str | None],
    file: RunFile | None,
) -> Source:
    """Where the site's ratings are; `reading` is feedback, duplicates and bad rows, by default as in the run file."""
    if data is None:
        raise UsageError("Name this site's ratings with --data: a file, a folder, or a database and --query.")
    default = ("explicit", "error", "error")
    if file is not None:
        default = (file.data.feedback, file.data.duplicates, file.data.bad_rows)
    chosen = (given or usual for given, usual in zip(reading, default, strict=True))
    return Source(data, query, _columns(columns or []), items, *chosen)


def _check(site: Joining, as_json: bool) -> None:
    """Check whether the site could join, print the findings, and exit with the code of the first that failed."""
    with TemporaryDirectory() as unread:  # a check writes nothing, not even a log
        quiet_engine(ServiceLog(Path(unread), site.kit.name))
        findings = preflight(site.kit, site.folder, site.data, site.policy)
    failed = next((finding.error for finding in findings if finding.error is not None), None)
    if as_json:
        listed = [{"what": f.what, "good": f.error is None, "found": one_line(f.found, 4000)} for f in findings]
        print_json({"good": failed is None, "findings": listed})
    else:
        console = Console(highlight=False, markup=False)
        for finding in findings:
            words = one_line(f"{'✗' if finding.error else '✓'} {finding.what}: {finding.found}", 4000)
            console.print(words, soft_wrap=True)
        console.print("Nothing was sent but a request for the offer." if failed is None else "Not ready to join.")
    if failed is not None:
        raise typer.Exit(failed.exit_code)


def _take_part(site: Joining, wait: float, stay: bool, health: int | None, as_json: bool, quiet: bool) -> None:
    name, folder = site.kit.name, site.folder
    site.kit.check()
    stopped = json.dumps({"state": str(folder)}) if as_json else None
    with stoppable("tacit: Stopped; join again with the same --state, and the run goes on.", 0, stopped):
        outcome = _serve(site, wait, stay, health, quiet)
    if as_json:
        print_json({"state": str(folder), **outcome})
    elif not quiet and isinstance(site.data, RoleTable):
        typer.echo(f"Done. What {name} answered, by digest: {folder / 'log.jsonl'}")
    elif not quiet and not site.ledgers.exists():
        typer.echo("Done. The run was NON-PRIVATE, so there is no ledger of what left.")
    elif not quiet:
        typer.echo(f"Done. What left this site: tacit ledger show {site.ledgers} --html left.html")


def _serve(site: Joining, wait: float, stay: bool, health: int | None, quiet: bool) -> dict[str, Any]:
    kit, folder, ledgers = site.kit, site.folder, site.ledgers

    def say(words: str) -> None:
        if not quiet:
            typer.echo(one_line(words, 4000), err=True)

    with (
        exclusive(folder, f"the state of {kit.name}", "name another --state"),
        exclusive(ledgers, "the ledgers", "name another --state") if ledgers.is_dir() else nullcontext(),
    ):
        # Data is checked before anyone learns that the site is there.
        if isinstance(site.data, RoleTable):
            site.data.check()
        elif site.data.ratings.dropped:
            typer.echo(f"{kit.name}: {site.data.ratings.dropped:,} rows were not ratings and are dropped.", err=True)
        log = ServiceLog(folder, kit.name)
        quiet_engine(log)
        log.info("starting", federation=kit.federation)
        with Status(folder, kit.name, kit.federation) as status:
            probe = HealthProbe(status, port=health) if health is not None else None
            if probe is not None:
                probe.start()
            try:
                at_health = "" if probe is None else f"; health at {probe.address}"
                say(f"{kit.name}: joining {kit.federation} at {kit.host}:{kit.port}; state in {folder}{at_health}")
                wait_until_reachable(kit, wait)
                data, items = (NoRatings(), site.data) if isinstance(site.data, RoleTable) else (site.data, None)
                home = Home(kit, folder, ledgers, own_identity(folder), data, site.policy, items)
                return Site(home, log, status, stays=stay, report=say).serve(wait)
            finally:
                if probe is not None:
                    probe.close()


def read_peers(path: Path) -> dict[str, str]:
    """The other parties' signing keys: a line each, name and key, as `tacit join --identity` prints them."""
    try:
        lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except OSError as error:
        raise UsageError(f'The file of --peers "{path}" cannot be read: {error.strerror}.') from None
    for number, words in enumerate(lines, start=1):
        if len(words) != 2 or len(words[1]) != 64 or set(words[1]) - set("0123456789abcdef"):
            raise UsageError(
                f'Line {number} of "{path}" is not a name and a key, as tacit join --identity prints them.'
            )
    return {words[0]: words[1] for words in lines}


def _secret(path: Path) -> bytes:
    try:
        return path.read_bytes().strip()
    except OSError as error:
        raise UsageError(f'The key of --align-key "{path}" cannot be read: {error.strerror}.') from None


def _columns(pairs: list[str]) -> dict[str, str] | None:
    named = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    if len(named) != len(pairs) or not named.keys() <= {"user", "item", "rating", "timestamp"}:
        raise UsageError('--column takes "user=NAME", "item=NAME", "rating=NAME" or "timestamp=NAME", one of each.')
    return named or None


def _positive(value: float | None, option: str) -> float | None:
    if value is not None and not value > 0:
        raise UsageError(f"{option} {value:g} is not possible; give a number above 0.")
    return value
