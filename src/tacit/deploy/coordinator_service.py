"""The coordinator's service: admits sites, offers them a run, and conducts it with those that accept."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

import numpy as np
from cryptography import x509

from tacit.boundary.wire import Array, Value
from tacit.deploy.align import align_sites, rows_content
from tacit.deploy.certificates import common_name, fingerprint
from tacit.deploy.handshake import LATER, Admission
from tacit.deploy.keyring import OWN, Keyring
from tacit.deploy.logs import ServiceLog, one_line
from tacit.deploy.offer import Offer, SiteSizes, facts_content
from tacit.deploy.proxy_client import CoordinatorLine, Line
from tacit.deploy.relay_client import CoordinatorRelay
from tacit.deploy.service_status import PeerState, State, Status
from tacit.engine.cells import COORDINATOR, LARGEST, Bounds, Cell
from tacit.engine.coordinator_channel import TAKEN, Content, CoordinatorChannel, Flare
from tacit.engine.envelope import open_message
from tacit.errors import BadMessage, PeerFailed, PrivacyRefused, TacitError, UsageError
from tacit.federation import Transcript
from tacit.federation.calls import Log as CallLog
from tacit.federation.role import ROLE
from tacit.model import Model
from tacit.prepare.prepared import Keys, PreparedRun

#: Seconds for a site to check an offer and its data, to acknowledge the end, and for one step by default.
CHECKING, PARTING, STEP = 1800.0, 60.0, 600.0
#: Bytes of a message from a sender that is not admitted yet: a hello has about 2,000.
FIRST = 2**16
#: Seconds between two checks of who is present, and characters of a sentence about a peer.
LOOK, LONGEST = 1.0, 1000


@dataclass(frozen=True, eq=False)
class RunResult:
    """What a conducted run leaves at the coordinator."""

    model: Model
    transcript: Transcript
    shared: Mapping[str, Array]
    rounds: int
    seconds: float
    void: int
    rejected: Mapping[str, str]


class Coordinator:
    """The service of one run at a time.

    Parameters
    ----------
    keyring : the federation's
    run : the run's name
    listen : the address to listen at; the keyring's host where it is None
    report : gets a sentence about what is waited for, and about who joins or leaves
    relayed : whether devices may take part through the federation's proxy, besides sites that connect here
    """

    def __init__(
        self,
        keyring: Keyring,
        run: str,
        log: ServiceLog,
        status: Status,
        listen: str | None = None,
        report: Callable[[str], None] = lambda _sentence: None,
        relayed: bool = False,
    ) -> None:
        self.keyring, self.run, self._address = keyring, run, f"{listen or keyring.host}:{keyring.port}"
        self._report: Callable[[str], None] = lambda sentence: report(one_line(sentence, LONGEST))  # some are a peer's
        self._log, self._status = log, status
        credentials = None if keyring.insecure else keyring.credentials()
        place, bounds = (listen or keyring.host, keyring.port), Bounds(self._most, self._admit)
        self._cell = Cell(COORDINATOR, *place, credentials, self.receive, bounds)
        self._relay: CoordinatorRelay | None = None
        if relayed:
            receive = partial(self.receive, relayed=True)
            self._relay = CoordinatorRelay(self._line, self._fingerprints, receive, self._most)
        self.channel = CoordinatorChannel(self._cell, keyring.identity, run, self._relay)
        self.admission = Admission(keyring, log, status, self._report)
        self.refused: dict[str, str] = {}  # by party that refused the run, its sentence
        self._offered: dict[str, tuple[str, Future[Any]]] = {}  # by name, the start that was offered the run
        self.offers = 0  # how often the run was offered: once more after each refusal
        self._pool = ThreadPoolExecutor(64, thread_name_prefix="tacit-coordinator")
        self._over, self._closed = False, threading.Event()

    def open(self) -> None:
        try:
            self._cell.start()
        except PeerFailed:
            raise
        except Exception as error:
            raise PeerFailed(f"The coordinator cannot listen at port {self.keyring.port}: {error}.") from None
        if self._relay is not None:
            self._relay.open()
        threading.Thread(target=self._watch_presence, name="tacit-presence", daemon=True).start()

    def turn_to(self, run: str) -> None:
        """Serve another run with the services that are connected."""
        self.run, before, self._over, self._offered = run, self.channel, False, {}
        self.channel = CoordinatorChannel(self._cell, self.keyring.identity, run, self._relay)
        self.channel.adopt(before)

    def close(self) -> None:
        """Stop waiting and listening; sites find the coordinator absent."""
        if not self._over:
            self._log.info("stopping", run=self.run)
        self._closed.set()
        self.channel.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._relay is not None:
            self._relay.close()
        self._cell.stop()

    def gather(self, names: tuple[str, ...], seconds: float, offer: Offer | None = None) -> None:
        """Wait until all have joined.

        With an `offer` each is offered the run as soon as it joins: a site whose budget does not cover it refuses
        without waiting for the others.
        """
        here = self.channel.present()
        peers = {name: PeerState.CONNECTED if here.get(name) else PeerState.ABSENT for name in names}
        self._status.set(state=State.WAITING, run=self.run, peers=peers)
        found = f"{self.keyring.host}:{self.keyring.port}"
        where = self._address if found == self._address else f"{self._address}, which sites look for at {found}"
        self._report(f"Listening at {where}; waiting for {', '.join(names)} to join, {seconds:,.0f} seconds at most.")
        deadline = monotonic() + seconds
        while missing := self.channel.wait_for(names, max(0.0, min(LOOK, deadline - monotonic()))):
            if offer is not None:
                self._offer(offer, [name for name in names if name not in missing])
            invited = names
            with suppress(*OWN):  # read again in a second
                invited = self.keyring.invited
            if ended := [name for name in names if name not in invited]:
                raise PeerFailed(
                    f"The invitation of {', '.join(ended)} ended before it joined; start again, and the run is offered "
                    "to those that are invited then."
                )
            if monotonic() >= deadline:
                data = "" if ROLE.fullmatch(missing[0]) else " --data … "
                raise PeerFailed(
                    f"{', '.join(missing)} did not join within {seconds:,.0f} seconds; start it with: tacit join "
                    f"{missing[0]}.kit{data}, or wait longer with --wait."
                )

    def offered(self, offer: Offer, stop_on_refusal: bool) -> tuple[Offer, dict[str, SiteSizes]]:
        """Offer the run until all that are in it accept; a party that refuses is left out, or ends the run."""
        first: TacitError | None = None
        while True:
            self._status.set(state=State.CHECKING, run=self.run)
            self.offers += 1
            self._offer(offer, offer.everybody)
            replies = {name: self._offered[name][1].result() for name in offer.everybody}
            self._offered = {}  # the next offer is another one, without those that refused
            refused = {name: reply for name, reply in replies.items() if isinstance(reply, TacitError)}
            for name, error in refused.items():
                self._record_refusal(name, error)
            if late := [name for name, reply in replies.items() if reply is None]:
                raise PeerFailed(f"{late[0]} did not answer the offer in time; see its log.")
            if not refused:
                self.channel.introduce("offer", offer.hash, _same(offer.everybody, offer.content()))
                return offer, {name: SiteSizes.of(replies[name], name) for name in offer.roster}
            staying = tuple(name for name in offer.roster if name not in refused)
            first = first or next(iter(refused.values()))
            # An error other than a refusal must be fixed at the site, and no run can do without its roles.
            failed = next((error for error in refused.values() if not isinstance(error, PrivacyRefused)), None)
            failed = failed or next((refused[role] for role in offer.roles if role in refused), None)
            if failed is not None:
                raise failed
            if stop_on_refusal or len(staying) < 2:  # one party cannot learn alone
                raise first
            offer = replace(offer, roster=staying)
            self._check_possible(offer, first)

    def _offer(self, offer: Offer, names: Iterable[str]) -> None:
        """Offer the run to those whose current start has not been offered it; record who has refused."""
        for name in names:
            start, job = self._offered.get(name, ("", None))
            now = self.channel.start_of(name)
            if job is None or (job.done() and now != start):
                self.refused.pop(name, None)
                content = partial(_fixed, offer.content())
                pending = self._pool.submit(self.channel.request, name, "offer", offer.hash, content, CHECKING)
                self._offered[name] = now, pending
            elif job.done() and isinstance(refusal := job.result(), TacitError):
                self._record_refusal(name, refusal)

    def _record_refusal(self, name: str, refusal: TacitError) -> None:
        if name not in self.refused:
            self.refused[name] = str(refusal)
            self._log.warning("refused", peer=name, error=type(refusal).__name__)
            self._status.set(peers={name: PeerState.REFUSED})
            self._report(str(refusal))

    def _check_possible(self, offer: Offer, refusal: TacitError) -> None:
        """Raise the refusal that left too few, where the run is impossible without that party."""
        try:
            if offer.file.privacy is not None and offer.items is not None:
                offer.planned(len(offer.items), len(offer.roster))
        except TacitError as error:
            raise PrivacyRefused(f"{refusal} Without it: {error}") from None

    def align(self, offer: Offer, sizes: Mapping[str, SiteSizes], path: Path) -> dict[str, SiteSizes]:
        """Have sites with the same users agree on one list of rows, stored at `path`; their sizes after it."""

        def send(name: str, id: str, content: Mapping[str, Value]) -> Mapping[str, Any]:
            reply = self.channel.request(name, "align", id, partial(_fixed, content), CHECKING)
            if isinstance(reply, TacitError):
                raise reply
            if reply is None:
                raise PeerFailed(f"{name} did not answer in time before the run began; see its log.")
            found: Mapping[str, Any] = reply
            return found

        count, rows = align_sites(offer, {name: site.users for name, site in sizes.items()}, send, path)
        id = hashlib.sha256(f"rows|{offer.hash}".encode()).hexdigest()
        contents = {name: partial(_fixed, rows_content(count, rows[name])) for name in offer.roster}
        for name, content in contents.items():
            send(name, id, content(CHECKING))
        self.channel.introduce("align", id, contents)
        return {name: replace(site, users=count) for name, site in sizes.items()}

    def identities(self, names: Iterable[str]) -> dict[str, str]:
        """By name, the public signing keys of admitted services, as text."""
        known = self.admission.identities
        if ended := [name for name in names if name not in known]:
            raise PeerFailed(f"{ended[0]} is no longer admitted; start again, and the run is offered again.")
        return {name: known[name] for name in names}

    def begin(self, offer: Offer, prepared: PreparedRun, heads: Mapping[str, str] | None = None) -> None:
        """Send all services the agreed facts; each computes the terms itself and replies with their hash.

        `heads` are the last ledger heads of earlier runs, by name: a site whose ledger lacks its own refuses.
        """
        identities = self.identities(offer.everybody)
        content: dict[str, Value] = {**facts_content(prepared.facts), "identities": json.dumps(identities)}
        if prepared.proxied:
            content["proxy"] = self._proxy_content()
        known, devices = heads or {}, [name for name in offer.everybody if self.channel.relayed(name)]
        if theirs := {name: known[name] for name in devices if name in known}:  # one message for all devices
            content["heads"] = json.dumps(theirs)
        before = {name: {"head": head} for name, head in known.items() if name not in devices}
        everything = json.dumps([identities, before, content.get("heads", "")])
        id = hashlib.sha256(f"begin|{offer.hash}|{everything}".encode()).hexdigest()
        contents = {name: partial(_fixed, {**content, **before.get(name, {})}) for name in offer.everybody}
        bound = hashlib.sha256(prepared.bound.encode()).hexdigest()
        for name, reply in self._send_all("begin", id, contents, CHECKING).items():
            if isinstance(reply, TacitError):
                raise reply
            if reply is None or str(reply.get("bound")) != bound:
                raise PeerFailed(f"{name} did not begin, or computes other terms; compare its version with this one.")
        self.channel.introduce("begin", id, contents)
        self._status.set(state=State.SERVING, peers=dict.fromkeys(offer.everybody, PeerState.CONNECTED))
        self._log.info("serving", run=self.run, parties=len(offer.roster))

    def conduct(
        self,
        prepared: PreparedRun,
        timeout: float | None,
        transcript: Transcript,
        calls: CallLog | None,
        watch: Callable[[int, int, Transcript], float | None],
    ) -> RunResult:
        """Run the method's messages; `timeout` is in seconds, for one step."""
        names = [member.name for member in (*prepared.facts.roster, *prepared.facts.roles)]
        latest: dict[str, Array] = {}
        if prepared.privacy is not None:
            self._status.set(budget=prepared.privacy.budget or prepared.privacy.epsilon)

        def observe(round: int, rounds: int, shared: Mapping[str, Array]) -> None:
            latest.update(shared)
            meter = transcript.meter
            spent = watch(round, rounds, transcript)
            self._status.set(round=round, epsilon=spent, bytes_up=meter.bytes_up, bytes_down=meter.bytes_down)

        line = self._proxy_line() if prepared.proxied else None
        keys = Keys({name: self.admission.key(name) for name in names}, from_proxy=line)
        began, engine = perf_counter(), Flare(self.channel, names, timeout or STEP)
        federation = prepared.federation(engine, keys=keys, log=calls, transcript=transcript, observer=observe)
        try:
            model = prepared.coordinate(federation)
        finally:
            engine.close()
            if line is not None:
                line.close()
            if prepared.private:  # what came after the last round counts too
                self._status.set(epsilon=prepared.spent(transcript.requests_by_step))
        seconds, rejected = perf_counter() - began, dict(federation.rejected)
        return RunResult(model, transcript, latest, federation.rounds_done, seconds, federation.void, rejected)

    def _proxy_content(self) -> str:
        """Where devices reach the proxy, and the key to which they seal this run's reports."""
        (host, port), public = proxy_of(self.keyring), self.keyring.report_key(self.run).public_key()
        return json.dumps({"host": host, "port": port, "key": public.public_bytes_raw().hex()})

    def _proxy_line(self) -> CoordinatorLine:
        return CoordinatorLine(self._line(), self.keyring.report_key(self.run), self._fingerprints)

    def _line(self) -> Line:
        return Line(*proxy_of(self.keyring), self.keyring.credentials())

    def _fingerprints(self) -> dict[str, str]:
        """By name, the certificates that are valid now."""
        return {one.name: one.fingerprint for one in self.keyring.invitations if one.state == "valid"}

    def end(self, names: tuple[str, ...], words: Mapping[str, Any], shared: Mapping[str, Array]) -> dict[str, Any]:
        """Send all services the end of the run with the shared blocks; their replies."""
        self._over = True
        blocks = {f"shared/{name}": _sendable(block) for name, block in shared.items()}
        content: dict[str, Value] = {"words": json.dumps(dict(words)), **blocks}
        replies = self._send_all("end", f"end|{self.run}", _same(names, content), PARTING)
        return {name: reply for name, reply in replies.items() if isinstance(reply, dict)}

    def done(self) -> None:
        """Record that the run is over."""
        self._status.set(state=State.DONE, message="")
        self._log.info("done", run=self.run)

    def give_up(self, names: tuple[str, ...], error: TacitError) -> None:
        """Send present services that the run has failed, with the reason unless it is about this machine's files."""
        self._over = True
        public = isinstance(error, PeerFailed | PrivacyRefused)
        why = str(error)[:400] if public else f"it failed ({type(error).__name__}); see its own terminal."
        self._log.error("failed", run=self.run)
        present = [name for name, here in self.channel.present().items() if here and name in names]
        self._send_all("end", f"end|{self.run}|{why}", _same(present, {"why": why}), 5.0)

    def receive(self, sender: str, topic: str, body: bytes, relayed: bool = False) -> bytes:
        """Handle one message from a service, or a letter that the proxy relayed; what is sent back."""
        if topic == "hello":
            try:
                reply, start = self.admission.hello(sender, body)
            except OWN as error:  # the sender did nothing wrong, so its answer is still expected
                self._log.warning("failed", peer=sender[:60], error=type(error).__name__)
                return LATER
            if start is None:
                self.channel.disconnected(sender)
            else:
                self.channel.connected(sender, start, relayed)
            return reply
        if topic == "look":
            return self.admission.look(sender, body, self.run)
        if topic != "reply":
            raise BadMessage(f"{sender} sent a message with the unknown topic {topic[:20]}.")
        try:
            key = self.admission.key(sender)
        except PeerFailed:
            self.channel.disconnected(sender)
            raise
        run, content = open_message(body, key, sender, COORDINATOR, "reply")
        id = str(content.pop("about", ""))
        if run == self.run:
            self.channel.replied(sender, id, content)
        return TAKEN

    def _send_all(self, topic: str, id: str, contents: Mapping[str, Content], seconds: float) -> dict[str, Any]:
        jobs = {
            name: self._pool.submit(self.channel.request, name, topic, id, content, seconds)
            for name, content in contents.items()
        }
        return {name: job.result() for name, job in jobs.items()}

    def _watch_presence(self) -> None:
        while not self._closed.wait(LOOK):
            with suppress(TacitError):  # a keyring that is being repaired
                if not self._over:
                    self.admission.check_presence(self.channel, self.refused)

    def _admit(self, certificate: bytes) -> str | None:
        """Why a connection with this certificate is refused before anything is read from it; None admits it."""
        shown = x509.load_pem_x509_certificate(certificate)
        return self.keyring.status_of(common_name(shown), fingerprint(shown))

    def _most(self, sender: str, topic: str) -> int:
        """The largest message in bytes: only replies of admitted services may be large."""
        return LARGEST if topic == "reply" and sender in self.admission.identities else FIRST


def proxy_of(keyring: Keyring) -> tuple[str, int]:
    """Where the federation's proxy is."""
    if keyring.proxy is None:
        raise UsageError(
            f"The run's reports go through a proxy, and none is invited; write its kit with: tacit keys invite "
            f"{keyring.folder} --role proxy --at HOST:PORT"
        )
    return keyring.proxy


def _same(names: Iterable[str], content: Mapping[str, Value]) -> dict[str, Content]:
    return dict.fromkeys(names, partial(_fixed, content))


def _fixed(content: Mapping[str, Value], _left: float) -> Mapping[str, Value]:
    """Content that does not depend on the time left."""
    return content


def _sendable(block: Any) -> Array:
    array = np.asarray(block)
    return array.astype(np.uint8) if array.dtype == bool else array
