"""`tacit join --check`: checks the kit, the coordinator, the run and the data, without joining or sending any."""

from __future__ import annotations

import secrets
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tacit.boundary.wire import reading
from tacit.data.ratings import Ratings
from tacit.deploy.certificates import SKEW, identity_text, read_identity
from tacit.deploy.handshake import hello_content
from tacit.deploy.kit import Kit
from tacit.deploy.logs import one_line
from tacit.deploy.offer import Offer
from tacit.deploy.policy import Policy
from tacit.deploy.site_data import RoleTable, SiteData, Source
from tacit.deploy.site_run import check_budget
from tacit.engine.cells import COORDINATOR, Cell
from tacit.engine.envelope import Address, open_message, read_failure, sign_message
from tacit.errors import DataError, PeerFailed, TacitError
from tacit.partition import Setting
from tacit.prepare.plan import Plan
from tacit.report.guarantee_words import loss_warning
from tacit.report.words import listing, plural


@dataclass(frozen=True)
class Finding:
    """One check: what was checked, what was found, and the error if it failed."""

    what: str
    found: str
    error: TacitError | None = None


def preflight(kit: Kit, folder: Path, data: Source | RoleTable, policy: Policy, wait: float = 10.0) -> list[Finding]:
    """All checks before joining, in order; those that depend on a failed one are left out.

    A role has no ratings, and so no data or budget to check.
    """
    findings: list[Finding] = []

    def run_check(what: str, act: Callable[[], tuple[str, Any]]) -> Any:
        try:
            found, value = act()
            findings.append(Finding(what, found))
            return value
        except TacitError as error:
            findings.append(Finding(what, str(error), error))
            return None

    run_check("kit and certificate", lambda: (_kit(kit), True))
    if not kit.insecure:
        run_check("connection", lambda: (check_connection(kit, wait), True))
    else:
        findings.append(Finding("connection", "INSECURE: nothing will be encrypted (the keys were made so)."))
    offer: Offer | None = None
    what = "the offered run"
    if not any(finding.error for finding in findings):
        offer = run_check("coordinator, versions and clocks", lambda: fetch_offer(kit, folder, wait))
    if offer is None and policy.file is not None:
        what, offer = "the run file", run_check("run file", lambda: _own(policy))
    good = offer
    if good is not None:
        run_check("this site's rules", lambda: (_rules(policy, good, kit, what), True))
    if isinstance(data, RoleTable):
        run_check("data", lambda: (data.check(), True))
    elif good is None:
        run_check("data", lambda: (_read(data), True))
    else:
        found = run_check("data", lambda: _data(data, good, kit, folder))
        if found is not None and good.file.privacy is not None:
            run_check("privacy", lambda: _privacy(policy, good, found, kit, folder))
    return findings


def check_connection(kit: Kit, wait: float) -> str:
    """Open a connection under mutual TLS and close it again."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version, context.check_hostname = ssl.TLSVersion.TLSv1_2, False
    context.load_verify_locations(cadata=kit.ca)
    with TemporaryDirectory() as folder:
        paths = kit.unpack(Path(folder) / "tls")
        context.load_cert_chain(paths.certificate, paths.key)
    context.set_alpn_protocols(["h2"])
    where = f"{kit.host}:{kit.port}"
    try:
        with (
            socket.create_connection((kit.host, kit.port), timeout=wait) as raw,
            context.wrap_socket(raw, server_hostname=kit.host) as line,
        ):
            line.settimeout(wait)
            line.recv(1)  # a refused certificate is reported only here
            return f"TLS ({line.version()}) to {where}, both certificates are valid"
    except ssl.SSLCertVerificationError as error:
        raise PeerFailed(
            f"The certificate of the coordinator at {where} is not valid: {error.verify_message}; check this machine's "
            "clock, and whether the kit is of this federation."
        ) from None
    except ssl.SSLError as error:
        raise PeerFailed(
            f"The coordinator at {where} refuses this kit's certificate ({error.reason or 'TLS failed'}); ask "
            "for a new kit."
        ) from None
    except OSError as error:
        raise NotThere(
            f"There is no coordinator at {where} ({error.strerror or 'no answer'}); check host, port and firewall, and "
            "whether it is up."
        ) from None


class NotThere(PeerFailed):
    """Nothing listens at the coordinator's address yet."""


def wait_until_reachable(kit: Kit, wait: float) -> None:
    """Wait until the coordinator listens; an invalid certificate is raised at once."""
    deadline = monotonic() + wait
    while True:
        try:
            if not kit.insecure:
                check_connection(kit, 10.0)
            return
        except NotThere:
            if monotonic() > deadline:
                raise
            time.sleep(0.5)


def fetch_offer(kit: Kit, state: Path, wait: float) -> tuple[str, Offer]:
    """The coordinator's offer, without joining; checks clock, version and this site's signing key."""
    visitor, start = Ed25519PrivateKey.generate(), secrets.token_hex(8)
    with TemporaryDirectory() as folder:
        credentials = None if kit.insecure else kit.unpack(Path(folder) / "tls")
        cell = Cell(kit.name, kit.host, kit.port, credentials, lambda *_message: b"")
        cell.start()
        try:
            deadline, reply = monotonic() + wait, None
            while reply is None and cell.refused is None and monotonic() < deadline:
                message = sign_message(
                    Address(kit.name, COORDINATOR, "look"), hello_content(kit, visitor, start), visitor
                )
                reply = cell.send(COORDINATOR, "look", message, wait)
                time.sleep(0 if reply is not None else 0.1)
        finally:
            cell.stop()
    if cell.refused is not None:
        raise PeerFailed(one_line(cell.refused, 400))
    if reply is None:
        raise PeerFailed(f"The coordinator at {kit.host}:{kit.port} did not answer within {wait:g} seconds.")
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(kit.coordinator))
    run, content = open_message(reply, key, COORDINATOR, kit.name, "look")
    if (error := read_failure(content, COORDINATOR)) is not None:
        raise error
    with reading(COORDINATOR):
        away = float(content.pop("clock")) - time.time()
        content.pop("version")
        pinned, own = str(content.pop("pinned", "")), state / "identity.key"
    if pinned and (not own.exists() or identity_text(read_identity(own.read_text()).public_key()) != pinned):
        raise PeerFailed(
            f'The coordinator knows {kit.name} by another signing key than that in "{state}"; name the folder of its '
            "first join with --state, or ask for a new kit."
        )
    if abs(away) > SKEW.total_seconds():
        raise PeerFailed(f"The coordinator's clock is {abs(away) / 60:,.0f} minutes off; set both by a time server.")
    offer = Offer.of(run, content)
    return f"it is the kit's coordinator; tacit {version('tacit')} on both sides, clocks {abs(away):.1f} s apart", offer


def _kit(kit: Kit) -> str:
    kit.check()
    return f"{kit.name} of the federation {kit.federation}, certificate {kit.fingerprint[:16]}…"


def _own(policy: Policy) -> tuple[str, Offer]:
    from tacit.deploy.deployment import for_sites, public_items
    from tacit.deploy.offer import offered_file
    from tacit.prepare.run_file import roles_of, setting_of

    assert policy.file is not None
    file = for_sites(policy.file)
    if file.partition.into is None:
        raise PeerFailed("The coordinator is absent, and the run file has no [partition] into.")
    roster = tuple(f"party-{k}" for k in range(1, file.partition.into + 1))
    setting = setting_of(file)
    roles = roles_of(file, setting, len(roster))
    offer = Offer("", offered_file(file, file.public), roster, setting, public_items(file), roles=roles)
    return "the coordinator is absent, so the given run file is checked", offer


def _rules(policy: Policy, offer: Offer, kit: Kit, what: str) -> str:
    policy.check(offer, kit.name)
    words = f"{what} satisfies them ({offer.file.method.get('name')}, {plural(len(offer.roster), 'party')})"
    if offer.catalogue is not None and offer.catalogue.columns:
        words += f"; it uses the item attributes {listing(offer.catalogue.columns)}, which it treats as public"
    if policy.peers is None:
        return words
    others = tuple(name for name in offer.roster if name != kit.name)
    policy.peer_keys(policy.peers, others)  # the keys in use are not known yet, so only a missing one is found
    return f"{words}; --peers has a key for every other party, and they are compared when the run begins"


def _read(data: Source) -> str:
    ratings = data.ratings
    words = f"{_sizes(ratings)} on {ratings.scale}"
    listed = "" if data.listed is None else f", and {plural(len(data.listed), 'item')} in the file of --items"
    return f"{words}{listed}; whether they fit is checked once a run is offered, or with --run"


def _data(data: Source, offer: Offer, kit: Kit, folder: Path) -> tuple[str, SiteData]:
    found = data.for_run(offer, kit.name, folder)
    ratings = found.share.ratings
    if found.unfit:
        raise DataError(f"{data.unfit(found, offer)} A join goes on all the same, and reports it at this site only.")
    tested = 0 if found.test is None else found.test.n_ratings
    return f"{_sizes(ratings)} to learn from, {tested:,} held out; all on the list of items and on the scale", found


def _sizes(ratings: Ratings) -> str:
    return (
        f"{plural(ratings.n_users, 'user')} × {plural(ratings.n_items, 'item')}, {plural(ratings.n_ratings, 'rating')}"
    )


def _privacy(policy: Policy, offer: Offer, data: SiteData, kit: Kit, folder: Path) -> tuple[str, Plan]:
    found = check_budget(policy, offer, data, folder / "ledger" / f"{kit.name}.sqlite", kit.name)
    assert found is not None
    made, budget = found
    steps = ", ".join(f"{count} × {step}" for step, count in made.terms.releases.items())
    allowed = f"this site's budget is ε = {budget.epsilon:g} at δ = {budget.delta:g}"
    words, own = f"{policy.stated(made.terms.guarantee, offer)}; releases: {steps}; {allowed}", made.collusion_epsilon()
    if own is not None:
        words += f"; if all other parties collude with the coordinator, its own share of the noise gives ε = {own:.3g}"
    if (warning := loss_warning(made.sealing(), offer.setting is Setting.DEVICE)) is not None:
        words += f". WARNING: {warning}"
    return words, made
