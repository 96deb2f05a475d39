"""The coordinator's service: lets sites in, offers them a run, and holds the conversation with those that accept."""

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
from tacit.deploy.admission import Admission
from tacit.deploy.align import align_sites, rows_content
from tacit.deploy.certificates import common_name, fingerprint
from tacit.deploy.handshake import LATER
from tacit.deploy.invitations import OWN
from tacit.deploy.keyring import Keyring
from tacit.deploy.logs import ServiceLog, one_line
from tacit.deploy.offer import Offer, SiteSizes, facts_content
from tacit.deploy.service_status import PeerState, State, Status
from tacit.engine.cells import COORDINATOR, LARGEST, Bounds, Cell
from tacit.engine.coordinator_channel import TAKEN, Content, CoordinatorChannel
from tacit.engine.envelope import open_message
from tacit.engine.flare import Flare
from tacit.errors import BadMessage, PeerFailed, PrivacyRefused, TacitError
from tacit.federation import Transcript
from tacit.federation.calls import Log as CallLog
from tacit.federation.role import ROLE
from tacit.model import Model
from tacit.prepare.prepared import Keys, PreparedRun

#: Seconds for a site to look at an offer and its data, to say goodbye, and for one step where the run does not say.
CHECKING, PARTING, STEP = 1800.0, 60.0, 600.0
#: Bytes of a message from somebody who is not in yet: a hello has about 2,000.
FIRST = 2**16
#: Seconds between two looks at who is there, and characters of a sentence about somebody.
LOOK, LONGEST = 1.0, 1000


@dataclass(frozen=True, eq=False)
class RunResult:
    """What a conversation with services elsewhere leaves."""

    model: Model
    transcript: Transcript
    shared: Mapping[str, Array]
    rounds: int
    seconds: float
    void: int
    rejected: Mapping[str, str]


class Coordinator:
    """The service of one run.

    Parameters
    ----------
    keyring : the federation's
    run : the run's own name
    listen : the address to listen at; the keyring's own host where it is None
    tell : gets a sentence about what is waited for, and about who came
    """

    def __init__(
        self,
        keyring: Keyring,
        run: str,
        log: ServiceLog,
        status: Status,
        listen: str | None = None,
        tell: Callable[[str], None] = lambda _words: None,
    ) -> None:
        self.keyring, self.run, self._own = keyring, run, f"{listen or keyring.host}:{keyring.port}"
        self._tell: Callable[[str], None] = lambda words: tell(one_line(words, LONGEST))  # some are a peer's
        self._log, self._status = log, status
        credentials = None if keyring.insecure else keyring.credentials()
        place, bounds = (listen or keyring.host, keyring.port), Bounds(self._most, self._admit)
        self._cell = Cell(COORDINATOR, *place, credentials, self._receive, bounds)
        self.desk = CoordinatorChannel(self._cell, keyring.identity, run)
        self._lobby = Admission(keyring, log, status, self._tell)
        self.refused: dict[str, str] = {}  # who refused the run, and what it said
        self._looking: dict[str, tuple[str, Future[Any]]] = {}  # by name, to which start of it the run was offered
        self.offers = 0  # how often the run was offered: once more whenever somebody refused
        self._pool = ThreadPoolExecutor(64, thread_name_prefix="tacit-desk")
        self._over, self._closed = False, threading.Event()
        self._eye = threading.Thread(target=self._look_around, name="tacit-eye", daemon=True)

    def open(self) -> None:
        try:
            self._cell.start()
        except PeerFailed:
            raise
        except Exception as error:
            raise PeerFailed(f"The coordinator cannot listen at port {self.keyring.port}: {error}.") from None
        self._eye.start()

    def turn_to(self, run: str) -> None:
        """Serve another run, with whoever is there."""
        self.run, before, self._over, self._looking = run, self.desk, False, {}
        self.desk = CoordinatorChannel(self._cell, self.keyring.identity, run)
        self.desk.know(before)

    def close(self) -> None:
        """Wait for nobody any more; whoever is there finds that the coordinator is away."""
        if not self._over:
            self._log.info("stopping", run=self.run)
        self._closed.set()
        self.desk.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._cell.stop()

    # -- before the run ----------------------------------------------------------------------------------------------

    def show(self, offer: Offer) -> None:
        """What a site that only looks is shown: the offer, as it will be made."""
        self._lobby.shown = offer.content()

    def gather(self, names: tuple[str, ...], seconds: float, offer: Offer | None = None) -> None:
        """Wait until everybody has said hello.

        With an `offer` everybody who comes is offered the run at once: a site that must refuse it, since its budget
        does not cover it, says so when it looks and does not wait for the others.
        """
        self._status.set(state=State.WAITING, run=self.run, peers=self._peers(list(names)))
        found = f"{self.keyring.host}:{self.keyring.port}"
        where = self._own if found == self._own else f"{self._own}, which sites look for at {found}"
        self._tell(f"Listening at {where}; waiting for {', '.join(names)} to join, {seconds:,.0f} seconds at most.")
        deadline = monotonic() + seconds
        while missing := self.desk.wait_for(names, max(0.0, min(LOOK, deadline - monotonic()))):
            if offer is not None:
                self._offer(offer, [name for name in names if name not in missing])
            invited = names
            with suppress(*OWN):  # looked up again in a second
                invited = self.keyring.invited
            if ended := [name for name in names if name not in invited]:
                raise PeerFailed(
                    f"{', '.join(ended)} was waited for, and its invitation has ended meanwhile; start again, and the "
                    "run is offered to whoever is invited then."
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
            replies = {name: self._looking[name][1].result() for name in offer.everybody}
            self._looking = {}  # whoever is left is offered another run, without those that refused
            refused = {name: reply for name, reply in replies.items() if isinstance(reply, TacitError)}
            late = [name for name, reply in replies.items() if reply is None]
            for name, error in refused.items():
                self._hear(name, error)
            staying = tuple(name for name in offer.roster if name not in refused)
            if late:
                raise PeerFailed(f"{late[0]} did not answer the offer in time; its own log says what it does.")
            first = first or next(iter(refused.values()), None)
            failed = next((error for error in refused.values() if not isinstance(error, PrivacyRefused)), None)
            failed = failed or next((refused[role] for role in offer.roles if role in refused), None)
            if failed is not None:  # no rule of its own, but something to be mended there; or a role, that is needed
                raise failed
            if first is not None and refused and (stop_on_refusal or len(staying) < 2):  # nobody learns alone
                raise first
            if not refused:
                self.desk.first("offer", offer.hash, _same(offer.everybody, offer.content()))
                return offer, {name: SiteSizes.of(replies[name], name) for name in offer.roster}
            offer = replace(offer, roster=staying)
            self._possible(offer, first)

    def _offer(self, offer: Offer, names: Iterable[str]) -> None:
        """Offer the run to whoever of them it was not offered yet since its service started; note who has refused."""
        for name in names:
            start, job = self._looking.get(name, ("", None))
            now = self.desk.start_of(name)
            if job is None or (job.done() and now != start):
                self.refused.pop(name, None)
                said = partial(_said, offer.content())
                asked = self._pool.submit(self.desk.settle, name, "offer", offer.hash, said, CHECKING)
                self._looking[name] = now, asked
            elif job.done() and isinstance(refusal := job.result(), TacitError):
                self._hear(name, refusal)

    def _hear(self, name: str, refusal: TacitError) -> None:
        """Note, once, that somebody refused the run."""
        if name not in self.refused:
            self.refused[name] = str(refusal)
            self._log.warning("refused", peer=name, error=type(refusal).__name__)
            self._status.set(peers={name: PeerState.REFUSED})
            self._tell(str(refusal))

    def _possible(self, offer: Offer, refusal: TacitError | None) -> None:
        """Raise the refusal that left too few, where a run without whoever refused cannot be."""
        try:
            if offer.file.privacy is not None and offer.items is not None:
                offer.planned(len(offer.items), len(offer.roster))
        except TacitError as error:
            raise PrivacyRefused(f"{refusal} Without it: {error}") from None

    def align(self, offer: Offer, told: Mapping[str, SiteSizes], kept: Path) -> dict[str, SiteSizes]:
        """Let sites that hold the same users agree on one list of rows; what they have then."""

        def say(name: str, about: str, content: Mapping[str, Value]) -> Mapping[str, Any]:
            return self._must(name, "align", about, content)

        sizes = {name: site.users for name, site in told.items()}
        count, rows = align_sites(offer, sizes, say, kept)
        about = hashlib.sha256(f"rows|{offer.hash}".encode()).hexdigest()
        said = {name: partial(_said, rows_content(count, rows[name])) for name in offer.roster}
        for name, content in said.items():
            self._must(name, "align", about, content(CHECKING))
        self.desk.first("align", about, said)
        return {name: replace(site, users=count) for name, site in told.items()}

    def identities(self, names: Iterable[str]) -> dict[str, str]:
        """By name, the public signing keys of those that are in, as text."""
        known = self._lobby.identities
        if ended := [name for name in names if name not in known]:
            raise PeerFailed(f"{ended[0]} was let in and is not any more; start again, and the run is offered anew.")
        return {name: known[name] for name in names}

    def begin(self, offer: Offer, prepared: PreparedRun, heads: Mapping[str, str] | None = None) -> None:
        """Tell everybody what was agreed on; each reckons it anew and says what it found.

        `heads` are the last ones of earlier runs, by name: a site whose ledger does not hold its own refuses.
        """
        identities = self.identities(offer.everybody)
        content: dict[str, Value] = {**facts_content(prepared.facts), "identities": json.dumps(identities)}
        before = {name: {"head": head} for name, head in (heads or {}).items()}
        about = hashlib.sha256(f"begin|{offer.hash}|{json.dumps([identities, before])}".encode()).hexdigest()
        said = {name: partial(_said, {**content, **before.get(name, {})}) for name in offer.everybody}
        bound = hashlib.sha256(prepared.bound.encode()).hexdigest()
        for name, reply in self._all("begin", about, said, CHECKING).items():
            if isinstance(reply, TacitError):
                raise reply
            if reply is None or str(reply.get("bound")) != bound:
                raise PeerFailed(
                    f"{name} did not begin, or reckons other terms than the coordinator; compare versions."
                )
        self.desk.first("begin", about, said)
        self._status.set(state=State.SERVING, peers=dict.fromkeys(offer.everybody, PeerState.CONNECTED))
        self._log.info("serving", run=self.run, parties=len(offer.roster))

    # -- the run -----------------------------------------------------------------------------------------------------

    def conduct(
        self,
        prepared: PreparedRun,
        timeout: float | None,
        transcript: Transcript,
        calls: CallLog | None,
        watch: Callable[[int, int, Transcript], float | None],
    ) -> RunResult:
        """Hold a prepared run's conversation; `timeout` is in seconds, for one step."""
        names = [member.name for member in (*prepared.facts.roster, *prepared.facts.roles)]
        latest: dict[str, Array] = {}
        if prepared.privacy is not None:
            self._status.set(budget=prepared.privacy.budget or prepared.privacy.epsilon)

        def look(round: int, rounds: int, shared: Mapping[str, Array]) -> None:
            latest.update(shared)
            meter = transcript.meter
            spent = watch(round, rounds, transcript)
            self._status.set(round=round, epsilon=spent, bytes_up=meter.bytes_up, bytes_down=meter.bytes_down)

        keys = Keys({name: self._lobby.key(name) for name in names})
        began, engine = perf_counter(), Flare(self.desk, names, timeout or STEP)
        federation = prepared.federation(engine, keys=keys, log=calls, transcript=transcript, observer=look)
        try:
            model = prepared.coordinate(federation)
        finally:
            engine.close()
            if prepared.private:  # what came after the last round counts too
                self._status.set(epsilon=prepared.spent(transcript.requests_by_step))
        seconds = perf_counter() - began
        told = (seconds, federation.void, dict(federation.rejected))
        return RunResult(model, transcript, latest, federation.rounds_done, *told)

    def end(self, names: tuple[str, ...], words: Mapping[str, Any], shared: Mapping[str, Array]) -> dict[str, Any]:
        """Tell everybody that the run is done, with what all may have; what they reply."""
        self._over = True
        blocks = {f"shared/{name}": _travels(block) for name, block in shared.items()}
        content: dict[str, Value] = {"words": json.dumps(dict(words)), **blocks}
        replies = self._all("end", f"end|{self.run}", _same(names, content), PARTING)
        return {name: reply for name, reply in replies.items() if isinstance(reply, dict)}

    def done(self) -> None:
        """Say that the run is over."""
        self._status.set(state=State.DONE, message="")
        self._log.info("done", run=self.run)

    def give_up(self, names: tuple[str, ...], error: TacitError) -> None:
        """Tell whoever is there that the run has failed, and why if that is not about this machine's own files."""
        self._over = True
        abroad = isinstance(error, PeerFailed | PrivacyRefused)
        why = str(error)[:400] if abroad else f"it failed ({type(error).__name__}); its own terminal says why."
        self._log.error("failed", run=self.run)
        self._part([name for name, here in self.desk.present().items() if here and name in names], why)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _all(self, topic: str, about: str, said: Mapping[str, Content], seconds: float) -> dict[str, Any]:
        jobs = {
            name: self._pool.submit(self.desk.settle, name, topic, about, content, seconds)
            for name, content in said.items()
        }
        return {name: job.result() for name, job in jobs.items()}

    def _must(self, name: str, topic: str, about: str, content: Mapping[str, Value]) -> Mapping[str, Any]:
        """One site's reply, without which there is no run."""
        reply = self.desk.settle(name, topic, about, partial(_said, content), CHECKING)
        if isinstance(reply, TacitError):
            raise reply
        if reply is None:
            raise PeerFailed(f"{name} did not answer in time before the run began; its own log says what it does.")
        found: Mapping[str, Any] = reply
        return found

    def _part(self, names: Iterable[str], why: str) -> None:
        content: dict[str, Value] = {"why": why}
        self._all("end", f"end|{self.run}|{why}", _same(names, content), 5.0)

    def _peers(self, names: list[str]) -> dict[str, PeerState]:
        here = self.desk.present()
        return {name: PeerState.CONNECTED if here.get(name) else PeerState.ABSENT for name in names}

    def _look_around(self) -> None:
        """Notice who goes away, who comes back and whose invitation ends, also while nobody answers."""
        while not self._closed.wait(LOOK):
            with suppress(TacitError):  # a keyring that is being put right
                if not self._over:
                    self._lobby.look_around(self.desk, self.refused)

    def _admit(self, certificate: bytes) -> str | None:
        """Why a connection with this certificate is refused, before anything is read from it; None lets it in."""
        shown = x509.load_pem_x509_certificate(certificate)
        return self.keyring.status_of(common_name(shown), fingerprint(shown))

    def _most(self, sender: str, topic: str) -> int:
        """Bytes that a message may have: only somebody who is in has much to say."""
        if topic == "reply" and sender in self._lobby.identities:
            return LARGEST
        return FIRST

    def _receive(self, sender: str, topic: str, body: bytes) -> bytes:
        if topic == "hello":
            try:
                reply, start = self._lobby.hello(sender, body)
            except OWN as error:  # nothing is known against the sender, so what it was asked is still waited for
                self._log.warning("failed", peer=sender[:60], error=type(error).__name__)
                return LATER
            if start is None:
                self.desk.gone(sender)
            else:
                self.desk.hello(sender, start)
            return reply
        if topic == "look":
            return self._lobby.looked(sender, body, self.run)
        if topic != "reply":
            raise BadMessage(f"{sender} has nothing to say about {topic[:20]}.")
        try:
            key = self._lobby.key(sender)
        except PeerFailed:
            self.desk.gone(sender)
            raise
        run, content = open_message(body, key, sender, COORDINATOR, "reply")
        about = str(content.pop("about", ""))
        if run == self.run:
            self.desk.replied(sender, about, content)
        return TAKEN


def _same(names: Iterable[str], content: Mapping[str, Value]) -> dict[str, Content]:
    """The same to everybody, however much time is left."""
    return dict.fromkeys(names, partial(_said, content))


def _said(content: Mapping[str, Value], _left: float) -> Mapping[str, Value]:
    return content


def _travels(block: Any) -> Array:
    array = np.asarray(block)
    return array.astype(np.uint8) if array.dtype == bool else array
