"""`tacit status`: what the services of a federation are doing, as far as this machine's folders show."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from tacit.cli.display import print_json
from tacit.deploy.service_status import FINAL, NAME, PeerState, State, Status
from tacit.errors import PeerFailed, PrivacyRefused, UsageError
from tacit.report.words import epsilon, listing, seconds

#: Where a service's folder may lie below the one that is named: itself, one of several, one of a run's sites.
_PLACES = (NAME, f"*/{NAME}", f"*/*/{NAME}")


def status(place: Path | None, as_json: bool) -> None:
    """Print what the coordinator and the sites are doing. Exit code 5: one died, failed or is absent; 4: refused."""
    services = _newest() if place is None else _under(place)
    for service in services:
        service["problems"] = [words for _code, words in _problems(service)]
    codes = {code for service in services for code, _words in _problems(service)}
    if as_json:
        print_json({"services": services})
    else:
        console = Console(highlight=False, markup=False, emoji=False)
        console.width = max(console.width, 120)  # a row stays on one line; a narrow terminal breaks it itself
        console.print(_table(services))
        for service in services:
            for words in service["problems"]:
                console.print(words, soft_wrap=True)
    if codes:
        raise typer.Exit(max(codes))


def _under(place: Path) -> list[dict[str, Any]]:
    """The services in and below a folder, the coordinator first."""
    found = {path.parent for pattern in _PLACES for path in place.glob(pattern)}
    if not found:
        there = "has no service in it" if place.is_dir() else "is not a folder"
        raise UsageError(f'"{place}" {there}; name a run folder, the folder of a site, or one that holds several.')
    return _ordered([{"folder": str(folder), **Status.read(folder)} for folder in found])


def _newest() -> list[dict[str, Any]]:
    """The newest run under ./runs and the sites beside it, if they belong to the federation that was active last."""
    here = Path()
    found = [
        _under(folder)
        for folder in (*here.glob("runs/*"), *here.glob("site-*"))
        if any(any(folder.glob(pattern)) for pattern in _PLACES)
    ]
    if not found:
        raise UsageError("No service has run in this folder, under ./runs or ./site-…; name its folder.")
    found.sort(key=lambda services: min(service["age"] for service in services))
    runs = [services for services in found if Path(services[0]["folder"]).is_relative_to("runs")]
    sites = [services for services in found if not Path(services[0]["folder"]).is_relative_to("runs")]
    federation = found[0][0]["federation"]
    return _ordered([s for services in (*runs[:1], *sites) for s in services if s["federation"] == federation])


def _ordered(services: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(services, key=lambda s: (s["role"] != "coordinator", len(s["role"]), s["role"], s["folder"]))


def _problems(service: dict[str, Any]) -> list[tuple[int, str]]:
    """What is wrong with a service: an exit code and one sentence each."""
    failed, refused = PeerFailed.exit_code, PrivacyRefused.exit_code
    who = "The coordinator" if service["role"] == "coordinator" else service["role"]
    why = f": {service['message'].rstrip('.')}." if service["message"] else f'; see its log in "{service["folder"]}".'
    if service["state"] == State.FAILED:
        return [(failed, f"{who} failed{why}")]
    if service["state"] == State.REFUSED:
        return [(refused, f"{who} refused{why}")]
    if service["state"] in FINAL:
        return []
    if service["alive"] is False:
        last = f"it last reported {seconds(service['age'])} ago, while {service['state']}"
        return [(failed, f"{who} stopped without reporting it: {last}; start it again to resume.")]
    found = []
    for state, code in ((PeerState.ABSENT, failed), (PeerState.REFUSED, refused)):
        names = [f"{name} (for {_since(peer)})" for name, peer in service["peers"].items() if peer["state"] == state]
        if names:
            verb = "misses" if state == PeerState.ABSENT else "was refused by"
            found.append((code, f"{who} {verb} {listing(names)}."))
    return found


def _table(services: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("role", "state", "run", "round", "ε of budget", "peers", "age", "alive"):
        table.add_column(name, justify="right" if name in ("round", "ε of budget", "age") else "left")
    lives = {True: "yes", False: "no", None: "ended"}
    for service in services:
        at = "–" if service["round"] is None else str(service["round"])
        row = (service["role"], service["state"], (service["run"] or "–")[:12], at, _spent(service), _peers(service))
        table.add_row(*row, seconds(service["age"]), lives[service["alive"]])
    return table


def _spent(service: dict[str, Any]) -> str:
    if service["epsilon"] is None:
        return "–"
    return epsilon(service["epsilon"]) + ("" if service["budget"] is None else f" of {service['budget']:g}")


def _peers(service: dict[str, Any]) -> str:
    states = [peer["state"] for peer in service["peers"].values()]
    return ", ".join(f"{states.count(state)} {state}" for state in PeerState if state in states) or "–"


def _since(peer: dict[str, str]) -> str:
    return seconds(max((datetime.now(UTC) - datetime.fromisoformat(peer["since"])).total_seconds(), 0.0))
