"""A site's service: connects to the coordinator, and answers its messages with the site's part in the run."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tacit import files
from tacit.boundary.protection import BudgetSpent
from tacit.boundary.wire import Value
from tacit.deploy.certificates import key_text, read_identity
from tacit.deploy.handshake import LATER, hello_content
from tacit.deploy.logs import ServiceLog
from tacit.deploy.offer import Offer
from tacit.deploy.service_status import State, Status, ending_message
from tacit.deploy.site_run import Home, RoleRun, SiteRun
from tacit.engine.envelope import TimedRequest, answer_content, failure_content
from tacit.engine.serve import checking_file
from tacit.engine.site_channel import BEAT, Handlers, SiteChannel
from tacit.errors import BadMessage, PeerFailed, PrivacyRefused, TacitError, UsageError
from tacit.federation.role import ROLE


class Channel(Protocol):
    """A service's way to the coordinator: `SiteChannel`, or a device's through the proxy."""

    start: str

    @property
    def refused(self) -> str | None: ...

    def open(self) -> None: ...

    def close(self) -> None: ...

    def send(self, topic: str, content: Mapping[str, Value], timeout: float = ..., run: str = ...) -> bytes | None: ...


class Site:
    """One site's service.

    Parameters
    ----------
    home : what the site has in every run
    stays : whether it waits for further runs when one has ended
    report : gets a sentence for people at this site alone; it may depend on ratings, so it is in no log and no status
    connect : makes the way to the coordinator; a device has one through the proxy
    """

    def __init__(
        self,
        home: Home,
        log: ServiceLog,
        status: Status,
        stays: bool = False,
        report: Callable[[str], None] = lambda _sentence: None,
        connect: Callable[..., Channel] = SiteChannel,
    ) -> None:
        self._home, self._log, self._status, self._stays, self._report = home, log, status, stays, report
        self._connect = connect
        self._over, self._is_role = False, ROLE.fullmatch(home.name) is not None
        self._run, self._part = "", None  # type: str, SiteRun | RoleRun | None
        self._ended = threading.Event()
        self._failure: TacitError | None = None  # what ends the service
        self._own_error: TacitError | None = None  # what this site itself raised last
        self._broken_rule: TacitError | None = None  # the rule that the latest offer broke, which may be sent
        self._outcome: dict[str, Any] = {}
        self._up = self._down = 0  # bytes of this run's answers and requests

    def serve(self, wait: float = 3600.0, alive: Callable[[], bool] = lambda: True) -> dict[str, Any]:
        """Take part until a run has ended; how it ended. Raises what the site refused, or the coordinator's failure.

        `wait` is how many seconds the coordinator may be absent; `alive` returns whether to go on at all.
        """
        kit = self._home.kit
        if not self._home.policy.local:
            check_one_ledger(self._home.ledgers, kit.name)
        coordinator = Ed25519PublicKey.from_public_bytes(bytes.fromhex(kit.coordinator))
        credentials = None if kit.insecure else kit.unpack(self._home.folder / "tls")
        handlers = Handlers(self.handle, self._refused, self._replied)
        place = (kit.name, kit.host, kit.port, credentials)
        channel = self._connect(*place, self._home.identity, coordinator, handlers)
        channel.open()
        try:
            self.greet(channel, wait, alive)
        except KeyboardInterrupt as stop:
            self._status.set(state=State.STOPPED, message=ending_message(stop))
            raise
        finally:
            channel.close()
            self.leave()
        if self._failure is not None:
            raise self._failure
        return self._outcome

    def greet(self, channel: Channel, wait: float, alive: Callable[[], bool]) -> None:
        """Send a hello every few seconds, until the run has ended."""
        kit, heard, connected = self._home.kit, monotonic(), False
        while not self._ended.is_set() and alive():
            reply = channel.send("hello", hello_content(kit, self._home.identity, channel.start), timeout=5.0)
            if reply is None and channel.refused is not None:
                raise _not_admitted(channel.refused)
            if reply is None or reply == LATER:
                if connected:
                    self._log.warning("absent", peer="coordinator")
                    if self._part is not None:
                        self._status.set(state=State.PAUSED, message="The coordinator is absent; waiting for it.")
                connected = False
                if monotonic() - heard > wait:
                    raise PeerFailed(
                        f"The coordinator at {kit.host}:{kit.port} was absent for {wait:,.0f} seconds; all releases "
                        "are in the ledger: join again when it is back, and the run goes on."
                    )
            else:
                heard = monotonic()
                check_welcome(reply)
                if not connected:
                    self._log.info("connected", peer="coordinator")
                    begun = self._part is not None and self._part.party is not None
                    self._status.set(state=State.SERVING if begun else State.WAITING, message="")
                connected = True
            self._ended.wait(BEAT if connected else 0.2)

    def handle(self, topic: str, run: str, content: dict[str, Any]) -> Mapping[str, Value]:
        """Answer one message; an error becomes a reply that reveals no more than may leave."""
        local = self._home.policy.local
        try:
            reply = self._answered(topic, run, content)
            self._own_error = None
            return reply
        except TacitError as error:
            self._own_error = error
            self._log.error("refused" if isinstance(error, PrivacyRefused) else "failed", error=type(error).__name__)
            self._status.set(message=ending_message(error))
            if topic == "offer":
                return failure_content(self._broken_rule or self._public_refusal(error), reveal=True)
            unprotected = self._part is not None and not self._part.private
            reveal = local or (unprotected and error is not self._failure)
            if reveal and not local and not isinstance(error, PeerFailed | PrivacyRefused):
                # An error about the site's own data or records names its files.
                error = PeerFailed(f"{self._home.name} failed ({type(error).__name__}); see its own terminal.")
            return failure_content(error, reveal=reveal)

    def leave(self) -> None:
        """End the site's part in the run."""
        if self._part is not None:
            self._part.leave()
        self._part = None

    def _replied(self) -> None:
        """A reply was taken: the run's end, or a refusal, ends the service."""
        if self._failure is not None or (self._over and not self._stays):
            self._ended.set()

    def _refused(self, error: TacitError) -> None:
        self._log.warning("refused", peer="coordinator", error=type(error).__name__)

    def _answered(self, topic: str, run: str, content: dict[str, Any]) -> Mapping[str, Value]:
        """The reply to one message; where the disk fails, nothing has left, and the service ends."""
        try:
            if topic == "offer":
                return self._check_offer(run, content)
            if run != self._run and not (topic == "end" and not self._run):
                raise BadMessage("A message belongs to a run that this site is not in; nothing was done.")
            if topic == "end":
                return self._end(content)
            if self._part is None:
                raise BadMessage("A message belongs to a run that this site has not accepted; nothing was done.")
            if topic == "align":
                return self._part.align(content)
            return self._begin(self._part, content) if topic == "begin" else self._answer(self._part, content)
        except OSError as error:
            self._failure = TacitError(
                f'The disk of "{self._home.folder}" failed {self._home.name} ({error.strerror}), so the answer has not '
                "left; make room and join again."
            )
            self._status.set(state=State.FAILED)
            raise self._failure from None

    def _check_offer(self, run: str, content: dict[str, Any]) -> Mapping[str, Value]:
        """Refuse an offer, which ends the service, or reply with this site's sizes.

        The site's rules, which may be sent, are checked before its data or its ledger is read.
        """
        self.leave()
        self._run, self._up, self._down = run, 0, 0
        self._status.set(state=State.CHECKING, run=run)
        self._broken_rule = None
        try:
            offer = Offer.of(run, content)
            try:
                self._home.policy.check(offer, self._home.name)
            except (PrivacyRefused, UsageError) as error:
                self._broken_rule = PrivacyRefused(f"{self._home.name} refuses: {error}")
                raise
            self._part = (RoleRun if self._is_role else SiteRun)(self._home, run, content)
        except TacitError as error:
            self._failure = None if self._stays else error
            self._status.set(state=State.REFUSED if isinstance(error, PrivacyRefused) else State.FAILED)
            raise
        self._log.info("checking", run=run, parties=len(offer.roster))
        if unfit := self._part.unfit:
            self._report(unfit)
        self._status.set(state=State.WAITING, message="The run is accepted; waiting for the others.")
        return self._part.sizes()

    def _begin(self, part: SiteRun | RoleRun, content: dict[str, Any]) -> Mapping[str, Value]:
        reply = part.begin(content)
        self._status.set(state=State.SERVING, message="", **part.spent(now=True))
        self._log.info("serving", run=self._run, parties=len(part.offer.roster))
        return reply

    def _answer(self, part: SiteRun | RoleRun, content: dict[str, Any]) -> Mapping[str, Value]:
        timed = TimedRequest.of(content)
        answer, request = part.answer(timed), timed.request
        digest = {"digest": answer.digest} if self._is_role else {}  # a party's ledger has it
        self._log.info("answered", step=request.step, round=request.round, bytes=len(answer.body), **digest)
        self._up, self._down = self._up + len(answer.body), self._down + len(request.body)
        carried = {"bytes_up": self._up, "bytes_down": self._down}
        self._status.set(round=request.round, step=request.step, **carried, **part.spent())
        if answer.status == "refused" and not self._home.policy.local:  # what the ledger has reached stays here
            answer = replace(answer, why=f"{answer.party} refuses: its budget does not cover this release.")
        return answer_content(answer)

    def _end(self, content: dict[str, Any]) -> Mapping[str, Value]:
        """The run is over: save what was learned, or why nothing was."""
        why, words = _printable(content.pop("why", "")), _table(content.pop("words", "{}"), {})
        reply: dict[str, Value] = {}
        if why:
            ended = PeerFailed(f"The coordinator ended the run: {why[:400]}")
            self._failure = None if self._stays else self._failure or self._own_error or ended
        elif self._part is not None:
            self._status.set(**self._part.spent(now=True))
            try:
                reply = self._part.save({name.removeprefix("shared/"): value for name, value in content.items()})
            except Exception as error:  # the coordinator chose what is shared, and is not sent what went wrong
                self._log.error("failed", error=type(error).__name__)
        self._outcome = {"digest": str(words.get("digest"))[:64], "run": self._run}
        why = why if self._own_error is None else why and ending_message(self._own_error)
        if self._stays and not self._home.policy.local:
            ended_as = f"The run before has failed: {why}" if why else "The run before is done."
            self._status.set(state=State.WAITING, message=ended_as)
        else:
            self._status.set(state=State.FAILED if why else State.DONE, message=why)
        self._log.info("done", **({"run": self._run} if self._run else {}))
        self._over = True
        self.leave()
        return {"ended": True, **reply}

    def _public_refusal(self, error: TacitError) -> TacitError:
        """What the coordinator is sent of why an offer was refused: nothing of data, disks or other runs."""
        name = self._home.name
        if self._home.policy.local:
            return error
        if isinstance(error, BudgetSpent):
            return PrivacyRefused(f"{name} refuses: its budget does not cover this run.")
        if isinstance(error, PrivacyRefused):
            return PrivacyRefused(f"{name} refuses; see its own terminal.")
        return PeerFailed(f"{name} cannot take part ({type(error).__name__}); see its own terminal.")


def check_one_ledger(folder: Path, name: str) -> None:
    """Refuse a folder with another name's ledger: under a new name a budget would start from zero."""
    other = next((path.stem for path in folder.glob("*.sqlite") if path.stem != name), None)
    if other is not None:
        raise PrivacyRefused(
            f'"{folder}" holds the ledger of {other}, and the kit is for {name}: a budget goes on under one name only; '
            f"ask for a kit for {other}, or name another --state for other data."
        )


def own_identity(folder: Path) -> Ed25519PrivateKey:
    """The site's signing key: generated at the first join, stored here, never sent."""
    path = folder / "identity.key"
    try:
        if not path.exists():
            files.write_private(path, key_text(Ed25519PrivateKey.generate()))
        with checking_file(path):
            return read_identity(path.read_text())
    except OSError as error:
        raise UsageError(f'The key "{path}" cannot be stored: {error.strerror}; name another --state.') from None


def check_welcome(reply: bytes) -> None:
    """Raise the coordinator's refusal of a hello, if it is one."""
    found = _table(reply.decode(errors="replace"), None)
    if found is None:
        raise BadMessage("The reply to the hello cannot be read; is a coordinator there at all?")
    if found.get("error", ""):
        raise _not_admitted(str(found.get("why", "")))


def _not_admitted(why: str) -> PeerFailed:
    return PeerFailed(f"The coordinator does not admit this site: {_printable(why)}")


def _printable(text: object) -> str:
    """A peer's words, if they can be shown on a terminal."""
    words = str(text)[:400]
    return words if words.isprintable() else "(its words cannot be shown)"


def _table(text: object, otherwise: Any) -> Any:
    """A JSON object in a message; `otherwise` where it is something else."""
    try:
        found = json.loads(str(text))
    except (ValueError, RecursionError):
        return otherwise
    return found if isinstance(found, dict) else otherwise
