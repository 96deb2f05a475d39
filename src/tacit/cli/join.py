"""`tacit join`: a site's service, and what it checks before it joins."""

from __future__ import annotations

import json
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import typer
from rich.console import Console

from tacit.cli.signals import stoppable
from tacit.config import RunFile
from tacit.errors import UsageError
from tacit.federation.role import ROLE


def join(
    kit: Path,
    data: str | None,
    query: str | None,
    columns: list[str],
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
    unit: str | None,
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
    """Join a federation with this site's own data, or look whether it could."""
    from tacit.engine.cells import check_installed

    check_installed()
    from tacit.deploy.certificates import identity_text
    from tacit.deploy.kit import Kit
    from tacit.deploy.policy import Policy
    from tacit.deploy.site_data import RoleTable, Source
    from tacit.deploy.site_service import own_identity

    own = Kit.read(kit)
    folder = state or Path(f"site-{own.name}")
    if identity:
        public = identity_text(own_identity(folder).public_key())
        typer.echo(json.dumps({own.name: public}) if as_json else f"{own.name} {public}")
        return
    if own.insecure and not insecure:
        raise UsageError(
            "This kit's keys were made with --insecure, so nothing would be encrypted; type --insecure here too if "
            "that is meant, or ask for another kit."
        )
    file = None if run is None else RunFile.read(run)
    if ROLE.fullmatch(own.name):
        given = {
            "--query": query,
            "--column": columns,
            "--items": items,
            "--feedback": feedback,
            "--duplicates": duplicates,
            "--bad-rows": bad_rows,
            "--max-epsilon": max_epsilon,
            "--delta": delta,
            "--days": days,
            "--share-metrics": share_metrics,
            "--align-key": align_key,
        }
        if unfit := [option for option, value in given.items() if value]:
            raise UsageError(f"{unfit[0]} is for sites with ratings, and the kit is for {own.name}; leave it out.")
        brings = RoleTable(None if data is None else Path(data))
        policy = Policy(file=file, peers=None if peers is None else read_peers(peers))
        _joined(own, folder, brings, policy, check, wait, stay, health, as_json, quiet)
        return
    if data is None:
        raise UsageError("Say where this site's ratings are, with --data: a file, a folder, or a database and --query.")
    read_as = feedback or ("explicit" if file is None else file.data.feedback)
    twice = duplicates or ("error" if file is None else file.data.duplicates)
    bad = bad_rows or ("error" if file is None else file.data.bad_rows)
    source = Source(data, query, _columns(columns), items, read_as, twice, bad)
    policy = Policy(
        max_epsilon=_positive(max_epsilon, "--max-epsilon"),
        delta=_positive(delta, "--delta"),
        days=days,
        unit=_unit(unit),
        non_private=non_private,
        file=file,
        peers=None if peers is None else read_peers(peers),
        shares_metrics=share_metrics,
        align_key=None if align_key is None else _secret(align_key),
    )
    _joined(own, folder, source, policy, check, wait, stay, health, as_json, quiet)


def _joined(
    own: Any,
    folder: Path,
    source: Any,
    policy: Any,
    check: bool,
    wait: float,
    stay: bool,
    health: int | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Look whether this site could join, or serve until a run has ended and say where what left is written."""
    if check:
        _checked(own, folder, source, policy, as_json)
        return
    own.check()
    stopped = json.dumps({"state": str(folder)}) if as_json else None
    with stoppable("tacit: Stopped; join again with the same --state, and the run goes on.", 0, stopped):
        outcome = _served(own, folder, source, policy, wait, stay, health, quiet)
    if as_json:
        typer.echo(json.dumps({"state": str(folder), **outcome}, ensure_ascii=False, allow_nan=False))
    elif not quiet and ROLE.fullmatch(own.name):
        typer.echo(f"Done. What {own.name} answered, by digest: {folder / 'log.jsonl'}")
    elif not quiet and not (folder / "ledger").exists():
        typer.echo("Done. The run was NON-PRIVATE, so there is no ledger of what left.")
    elif not quiet:
        typer.echo(f"Done. What left this site: tacit ledger show {folder / 'ledger'} --html left.html")


def _served(
    kit: Any, folder: Path, source: Any, policy: Any, wait: float, stay: bool, health: int | None, quiet: bool
) -> dict[str, Any]:
    """The service itself, until a run has ended."""
    from tacit.boundary.lock import exclusive
    from tacit.deploy.health import Health
    from tacit.deploy.logs import ServiceLog, quiet_engine
    from tacit.deploy.preflight import wait_until_reachable
    from tacit.deploy.service_status import Status
    from tacit.deploy.site_data import NoRatings
    from tacit.deploy.site_run import Home
    from tacit.deploy.site_service import Site, own_identity

    ledgers = folder / "ledger"
    with (
        exclusive(folder, f"the state of {kit.name}", "name another --state"),
        exclusive(ledgers, "the ledgers", "name another --state") if ledgers.is_dir() else nullcontext(),
    ):
        role = ROLE.fullmatch(kit.name) is not None
        if role:  # what is wrong with the data is found before anybody is told that the site is there
            source.check()
        elif source.ratings.dropped:
            typer.echo(f"{kit.name}: {source.ratings.dropped:,} rows were no ratings and are left out.", err=True)
        log = ServiceLog(folder, kit.name)
        quiet_engine(log)
        log.info("starting", federation=kit.federation)
        with Status(folder, kit.name, kit.federation) as status:
            probe = Health(status, port=health) if health is not None else None
            if probe is not None:
                probe.start()
            try:
                if not quiet:
                    where, told = f"{kit.host}:{kit.port}", "" if probe is None else f"; health at {probe.address}"
                    typer.echo(f"{kit.name}: joining {kit.federation} at {where}; state in {folder}{told}", err=True)
                wait_until_reachable(kit, wait)
                data, brings = (NoRatings(), source) if role else (source, None)
                home = Home(kit, folder, ledgers, own_identity(folder), data, policy, brings)
                return Site(home, log, status, stays=stay, report=partial(_said_here, quiet)).serve(wait)
            finally:
                if probe is not None:
                    probe.close()


def _said_here(quiet: bool, words: str) -> None:
    """A sentence on this site's own terminal."""
    from tacit.deploy.logs import one_line

    if not quiet:
        typer.echo(one_line(words, 4000), err=True)


def _checked(kit: Any, folder: Path, source: Any, policy: Any, as_json: bool) -> None:
    """Look, say what was found, and end with the first thing that will not do."""
    from tacit.deploy.logs import ServiceLog, one_line, quiet_engine
    from tacit.deploy.preflight import preflight

    with TemporaryDirectory() as unread:  # a look leaves nothing behind, not even a log
        quiet_engine(ServiceLog(Path(unread), kit.name))
        findings = preflight(kit, folder, source, policy)
    failed = next((finding.error for finding in findings if finding.error is not None), None)
    if as_json:
        listed = [{"what": f.what, "good": f.error is None, "found": one_line(f.found, 4000)} for f in findings]
        typer.echo(json.dumps({"good": failed is None, "findings": listed}, ensure_ascii=False))
    else:
        console = Console(highlight=False, markup=False)
        for finding in findings:
            words = one_line(f"{'✗' if finding.error else '✓'} {finding.what}: {finding.found}", 4000)
            console.print(words, soft_wrap=True)
        console.print("Nothing was sent but the question what is offered." if failed is None else "Not ready to join.")
    if failed is not None:
        raise typer.Exit(failed.exit_code)


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


def _unit(word: str | None) -> str | None:
    if word not in (None, "user", "rating"):
        raise UsageError(f'--unit is "user" or "rating", not "{word}".')
    return word


def _positive(value: float | None, option: str) -> float | None:
    if value is not None and not value > 0:
        raise UsageError(f"{option} {value:g} is not possible; give a number above 0.")
    return value
