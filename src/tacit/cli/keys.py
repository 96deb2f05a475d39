"""`tacit keys init`, `invite`, `revoke` and `show`: a federation's keys, and the kits that its sites are given.

Only `init` and `invite` make secrets: they go into files that their owner alone reads, and are never printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from tacit.cli.display import print_json
from tacit.deploy.certificates import identity_text
from tacit.deploy.keyring import Invitation, Keyring, check_name
from tacit.errors import UsageError
from tacit.report.words import MISSING, listing, moment, plural

#: As much of a fingerprint or a public key as people compare.
SHORT = 16
INSECURE = (
    "INSECURE: the channel has no TLS; anyone on the network can read and change what is sent, and pose as anyone."
)


def init(folder: Path, federation: str, host: str, port: int, days: int, insecure: bool, as_json: bool) -> None:
    """Make the keys of a new federation."""
    keyring = Keyring.make(folder, federation=federation, host=host, port=port, days=days, insecure=insecure)
    if as_json:
        print_json(_about(keyring))
        return
    typer.echo(f'Made the keys of the federation "{federation}" in {folder}; its coordinator is {host}, port {port}.')
    if insecure:
        typer.echo(INSECURE)
    typer.echo("Anyone who has this folder decides who takes part: keep it secret, and make a backup.")
    typer.echo(f"Next: tacit keys invite {folder} party-1 party-2 …")


def invite(
    folder: Path,
    names: list[str] | None,
    out: Path | None,
    days: int,
    as_json: bool,
    role: str | None = None,
    at: str | None = None,
    devices: bool = False,
) -> None:
    """Write a kit for every site named; one that was invited before gets a new certificate, and its old one ends."""
    keyring, place = Keyring.open(folder), Path() if out is None else out
    names = [*(names or []), *([] if role is None else [role])]
    address = None if at is None else _address(at)
    if (role == "proxy") != (at is not None):
        raise UsageError("A proxy is invited with the address at which it is reached: --role proxy --at HOST:PORT.")
    if devices and (unfit := [name for name in names if not name.startswith("party-")]):
        raise UsageError(f"--devices is for parties, and {unfit[0]} is not one; invite it by itself.")
    if not names:
        raise UsageError("No site was invited; name at least one, such as party-1.")
    if twice := [name for k, name in enumerate(names) if name in names[:k]]:
        raise UsageError(f"{twice[0]} is named twice; name every site once.")
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f'No kit can be written to "{place}": {error.strerror}; name another folder.') from None
    files = {name: place / f"{name}.kit" for name in names}
    for name, file in files.items():
        check_name(name)
        if file.exists():  # a new invitation would end the one in it
            raise UsageError(
                f'"{file}" already exists, so no site was invited; remove it first, or name another --out.'
            )
    had = set(keyring.invited)
    for name, file in files.items():
        keyring.invite(name, days=days, at=address if name == role else None, device=devices).write(file)
    made = [one for one in keyring.invitations if one.name in files]
    if as_json:
        kits = [{**_invitation(one), "kit": str(files[one.name]), "replaced": one.name in had} for one in made]
        print_json({"federation": keyring.federation, "invited": kits})
        return
    for one in made:
        instead = "; its earlier kit is no longer valid" if one.name in had else ""
        until, mark = moment(one.until.isoformat()), f"{one.fingerprint[:SHORT]}…"
        typer.echo(f"{files[one.name]}: for {one.name}, until {until}, certificate {mark}{instead}.")
    if keyring.insecure:
        typer.echo(INSECURE)
    typer.echo("Each kit is a secret of its site: send it over a secure channel, and keep no copy.")
    join = f"At the site: tacit join {made[0].name}.kit --data …"
    if role == "proxy":
        join = "At the proxy: tacit proxy proxy.kit"
    elif devices:
        join = f"On the device: python device.py {made[0].name}.kit --data …"
    typer.echo(join)


def revoke(folder: Path, name: str, as_json: bool) -> None:
    """End a site's invitation: the coordinator refuses its certificate from now on."""
    keyring = Keyring.open(folder)
    keyring.revoke(name)
    if as_json:
        ended = next(one for one in keyring.invitations if one.name == name)
        print_json({"federation": keyring.federation, **_invitation(ended)})
        return
    typer.echo(f"{name} is no longer invited: the coordinator refuses its certificate from now on.")
    typer.echo(f"To invite it again: tacit keys invite {folder} {name}")


def show(folder: Path, as_json: bool) -> None:
    """Print who is invited, until when, and which sites have connected."""
    keyring = Keyring.open(folder)
    every = keyring.invitations
    if as_json:
        print_json({**_about(keyring), "invitations": [_invitation(one) for one in every]})
        return
    typer.echo(f'The federation "{keyring.federation}", coordinator at {keyring.host}, port {keyring.port}.')
    typer.echo(f"The coordinator signs with {identity_text(keyring.identity.public_key())[:SHORT]}…")
    if keyring.insecure:
        typer.echo(INSECURE)
    if not every:
        typer.echo(f"No site is invited yet: tacit keys invite {folder} party-1 party-2 …")
        return
    console = Console(highlight=False, markup=False)
    console.width = max(console.width, 120)
    console.print(_table(every))
    reached = {"proxy"} if keyring.proxy is not None else set()  # it is connected to, and sends no hello
    waiting = [one.name for one in every if one.state == "valid" and one.identity is None and one.name not in reached]
    typer.echo(f"{plural(len(keyring.invited), 'site')} invited.")
    if waiting:
        typer.echo(f"Not connected yet: {listing(waiting)}.")


def _address(at: str) -> tuple[str, int]:
    host, colon, port = at.rpartition(":")
    if not colon or not port.isdigit():
        raise UsageError(f'--at takes HOST:PORT, such as proxy.example.org:8104, not "{at}".')
    return host, int(port)


def _table(every: Sequence[Invitation]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("name", "state", "until", "certificate", "signs with"):
        table.add_column(column, no_wrap=True)
    for one in every:
        signs = MISSING if one.identity is None else f"{one.identity[:SHORT]}…"
        table.add_row(one.name, one.state, moment(one.until.isoformat()), f"{one.fingerprint[:SHORT]}…", signs)
    return table


def _about(keyring: Keyring) -> dict[str, Any]:
    return {
        "folder": str(keyring.folder),
        "federation": keyring.federation,
        "host": keyring.host,
        "port": keyring.port,
        "insecure": keyring.insecure,
        "coordinator": identity_text(keyring.identity.public_key()),
    }


def _invitation(one: Invitation) -> dict[str, Any]:
    """One invitation for programs; nothing in it is secret."""
    return {
        "name": one.name,
        "state": one.state,
        "until": one.until.isoformat(),
        "fingerprint": one.fingerprint,
        "enrolled": one.identity is not None,
        "identity": one.identity,
    }
