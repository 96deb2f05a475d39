"""A site's service: says hello, takes what the coordinator says, and sees to it with the site's part in the run."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tacit import files
from tacit.boundary.protection import BudgetSpent
from tacit.boundary.wire import Value
from tacit.deploy.certificates import key_text, read_identity
from tacit.deploy.handshake import LATER, hello_content
from tacit.deploy.logs import ServiceLog
from tacit.deploy.offer import Offer
from tacit.deploy.role_run import RoleRun
from tacit.deploy.service_status import State, Status, ending_message
from tacit.deploy.site_run import Home, SiteRun
from tacit.engine.envelope import TimedRequest, answer_content, failure_content
from tacit.engine.serve import checking_file
from tacit.engine.site_channel import BEAT, SiteChannel
from tacit.errors import BadMessage, PeerFailed, PrivacyRefused, TacitError, UsageError
from tacit.federation.messages import Answer
from tacit.federation.role import ROLE


class Site:
    """One site's service.

    Parameters
    ----------
    home : what the site is whatever the run
    stays : whether it waits for further runs when one has ended
    tell : gets a sentence for people at this site alone; it may depend on ratings, so it is in no log and no status
    """

    def __init__(
        self,
        home: Home,
        log: ServiceLog,
        status: Status,
        stays: bool = False,
        tell: Callable[[str], None] = lambda _words: None,
    ) -> None:
        self._home, self._log, self._status, self._stays, self._tell = home, log, status, stays, tell
        self._over, self._role = False, ROLE.fullmatch(home.name) is not None
        self._run, self._part = "", None  # type: str, SiteRun | RoleRun | None
        self._ended = threading.Event()
        self._failure: TacitError | None = None  # what ends the service
        self._trouble: TacitError | None = None  # what this site itself raised last
        self._rule: TacitError | None = None  # the rule that the latest offer broke, as it may be told
        self._outcome: dict[str, Any] = {}
        self._up = self._down = 0  # bytes of this run's answers and requests

    def serve(self, wait: float = 3600.0, alive: Callable[[], bool] = lambda: True) -> dict[str, Any]:
        """Take part until a run has ended; how it ended. Raises what the site refused, or what the coordinator said.

        `wait` is how many seconds the coordinator may be away; `alive` says whether to go on at all.
        """
        kit = self._home.kit
        if not self._home.policy.local:
            check_one_ledger(self._home.ledgers, kit.name)
        coordinator = Ed25519PublicKey.from_public_bytes(bytes.fromhex(kit.coordinator))
        credentials = None if kit.insecure else kit.unpack(self._home.folder / "tls")
        place = (kit.name, kit.host, kit.port, credentials)
        window = SiteChannel(*place, self._home.identity, coordinator, self._handle, self._reject, self._replied)
        window.open()
        try:
            self._greet(window, wait, alive)
        except KeyboardInterrupt as stop:
            self._status.set(state=State.STOPPED, message=ending_message(stop))
            raise
        finally:
            window.close()
            self._leave()
        if self._failure is not None:
            raise self._failure
        return self._outcome

    # -- inside ------------------------------------------------------------------------------------------------------

    def _greet(self, window: SiteChannel, wait: float, alive: Callable[[], bool]) -> None:
        """Say hello again and again, until the run has ended."""
        kit, heard, there = self._home.kit, monotonic(), False
        while not self._ended.is_set() and alive():
            reply = window.say("hello", hello_content(kit, self._home.identity, window.start), timeout=5.0)
            if reply is None and window.refused is not None:
                raise _not_let_in(window.refused)
            if reply is None or reply == LATER:
                if there:
                    self._log.warning("absent", peer="coordinator")
                if there and self._part is not None:
                    self._status.set(state=State.PAUSED, message="The coordinator is away; waiting for it.")
                there = False
                if monotonic() - heard > wait:
                    raise PeerFailed(
                        f"The coordinator at {kit.host}:{kit.port} was not there for {wait:,.0f} seconds; what left is "
                        "in the ledger: join again when it is back, and the run goes on."
                    )
            else:
                heard = monotonic()
                _let_in(reply)
                if not there:
                    self._log.info("connected", peer="coordinator")
                    begun = self._part is not None and self._part.party is not None
                    self._status.set(state=State.SERVING if begun else State.WAITING, message="")
                there = True
            self._ended.wait(BEAT if there else 0.2)

    def _replied(self, _topic: str) -> None:
        """What was said has been taken: the run's end, or that it was refused, ends the service."""
        if self._failure is not None or (self._over and not self._stays):
            self._ended.set()

    def _reject(self, error: TacitError) -> None:
        self._log.warning("refused", peer="coordinator", error=type(error).__name__)

    def _handle(self, topic: str, run: str, content: dict[str, Any]) -> Mapping[str, Value]:
        """See to one message; an error becomes a reply that tells no more than may leave."""
        try:
            reply = self._seen_to(topic, run, content)
            self._trouble = None
            return reply
        except TacitError as error:
            self._trouble = error
            self._log.error("refused" if isinstance(error, PrivacyRefused) else "failed", error=type(error).__name__)
            self._status.set(message=ending_message(error))
            if topic == "offer":
                return failure_content(self._rule or _outward(error, self._home), tell=True)
            unprotected = self._part is not None and not self._part.private
            told = self._home.policy.local or (unprotected and error is not self._failure)
            return failure_content(_abroad(error, self._home) if told else error, tell=told)

    def _seen_to(self, topic: str, run: str, content: dict[str, Any]) -> Mapping[str, Value]:
        """See to one message, if the disk holds out; if not, nothing has left, and the service ends."""
        try:
            return self._offered(run, content) if topic == "offer" else self._told(topic, run, content)
        except OSError as error:
            self._failure = TacitError(
                f'The disk of "{self._home.folder}" failed {self._home.name} ({error.strerror}), so the answer has not '
                "left; make room and join again."
            )
            self._status.set(state=State.FAILED)
            raise self._failure from None

    def _told(self, topic: str, run: str, content: dict[str, Any]) -> Mapping[str, Value]:
        if run != self._run and not (topic == "end" and not self._run):
            raise BadMessage("A message belongs to a run that this site is not in; nothing was done.")
        if topic == "end":
            return self._end(content)
        if self._part is None:
            raise BadMessage("A message belongs to a run that this site has not accepted; nothing was done.")
        if topic == "align":
            return self._part.align(content)
        return self._begin(self._part, content) if topic == "begin" else self._asked(self._part, content)

    def _offered(self, run: str, content: dict[str, Any]) -> Mapping[str, Value]:
        """Look at an offer: refuse it, which ends the service, or say what this site brings."""
        self._leave()
        self._run, self._up, self._down = run, 0, 0
        self._status.set(state=State.CHECKING, run=run)
        self._rule = None
        try:
            self._ruled(Offer.of(run, content))
            self._part = (RoleRun if self._role else SiteRun)(self._home, run, content)
        except TacitError as error:
            self._failure = None if self._stays else error
            self._status.set(state=State.REFUSED if isinstance(error, PrivacyRefused) else State.FAILED)
            raise
        self._log.info("checking", run=run, parties=len(self._part.offer.roster))
        if unfit := self._part.unfit:
            self._tell(unfit)
        self._status.set(state=State.WAITING, message="The run is accepted; waiting for the others.")
        return self._part.sizes()

    def _ruled(self, offer: Offer) -> None:
        """Hold an offer to this site's rules, which may be told, before its data or its ledger is looked at."""
        try:
            self._home.policy.check(offer, self._home.name)
        except (PrivacyRefused, UsageError) as error:
            self._rule = PrivacyRefused(f"{self._home.name} refuses: {error}")
            raise

    def _begin(self, part: SiteRun | RoleRun, content: dict[str, Any]) -> Mapping[str, Value]:
        reply = part.begin(content)
        self._status.set(state=State.SERVING, message="", **part.spent(now=True))
        self._log.info("serving", run=self._run, parties=len(part.offer.roster))
        return reply

    def _asked(self, part: SiteRun | RoleRun, content: dict[str, Any]) -> Mapping[str, Value]:
        ask = TimedRequest.of(content)
        answer, request = part.answer(ask), ask.request
        told = {"digest": answer.digest} if self._role else {}  # a party's ledger has it
        self._log.info("answered", step=request.step, round=request.round, bytes=len(answer.body), **told)
        self._up, self._down = self._up + len(answer.body), self._down + len(request.body)
        carried = {"bytes_up": self._up, "bytes_down": self._down}
        self._status.set(round=request.round, step=request.step, **carried, **part.spent())
        return answer_content(_discreet(answer) if not self._home.policy.local else answer)

    def _end(self, content: dict[str, Any]) -> Mapping[str, Value]:
        """The run is over: keep what was learned, or why nothing was."""
        why, words = _printable(content.pop("why", "")), _words(content.pop("words", "{}"))
        reply: dict[str, Value] = {}
        if why:
            said = PeerFailed(f"The coordinator ended the run: {why[:400]}")
            self._failure = None if self._stays else self._failure or self._trouble or said
        elif self._part is not None:
            self._status.set(**self._part.spent(now=True))
            reply = self._kept(self._part, {name.removeprefix("shared/"): value for name, value in content.items()})
        self._outcome = {"digest": str(words.get("digest"))[:64], "run": self._run}
        self._status.set(**self._afterwards(why if self._trouble is None else why and ending_message(self._trouble)))
        self._log.info("done", **({"run": self._run} if self._run else {}))
        self._over = True
        self._leave()
        return {"ended": True, **reply}

    def _afterwards(self, why: str) -> dict[str, Any]:
        """What a service that has ended a run says of itself; one that stays waits for the next."""
        if self._stays and not self._home.policy.local:
            ended = f"The run before has failed: {why}" if why else "The run before is done."
            return {"state": State.WAITING, "message": ended}
        return {"state": State.FAILED if why else State.DONE, "message": why}

    def _kept(self, part: SiteRun | RoleRun, shared: Mapping[str, Any]) -> dict[str, Value]:
        """Keep what was learned; what goes wrong is nobody's business, since the coordinator chose what is shared."""
        try:
            return part.keep(shared)
        except Exception as error:
            self._log.error("failed", error=type(error).__name__)
            return {}

    def _leave(self) -> None:
        if self._part is not None:
            self._part.leave()
        self._part = None


def check_one_ledger(folder: Path, name: str) -> None:
    """Refuse a folder with another name's ledger: under a new name a budget would begin anew."""
    other = next((path.stem for path in folder.glob("*.sqlite") if path.stem != name), None)
    if other is not None:
        raise PrivacyRefused(
            f'"{folder}" holds the ledger of {other}, and the kit is for {name}: a budget goes on under one name only; '
            f"ask for a kit for {other}, or name another --state for other data."
        )


def own_identity(folder: Path) -> Ed25519PrivateKey:
    """The site's signing key: made here at the first join, kept here, never sent."""
    path = folder / "identity.key"
    try:
        if not path.exists():
            files.write_private(path, key_text(Ed25519PrivateKey.generate()))
        with checking_file(path):
            return read_identity(path.read_text())
    except OSError as error:
        raise UsageError(f'The key "{path}" cannot be kept there: {error.strerror}; name another --state.') from None


def _printable(said: object) -> str:
    """A peer's words, if they can be shown on a terminal."""
    words = str(said)[:400]
    return words if words.isprintable() else "(its words cannot be shown)"


def _words(said: object) -> dict[str, Any]:
    try:
        found = json.loads(str(said))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _discreet(answer: Answer) -> Answer:
    """What a site's ledger holds is its own business: that its budget is spent is told, and not what it reached."""
    if answer.status != "refused":
        return answer
    return replace(answer, why=f"{answer.party} refuses: its budget does not cover this release.")


def _outward(error: TacitError, home: Home) -> TacitError:
    """What the coordinator is told of why an offer was refused: nothing of data, disks or other runs."""
    if home.policy.local:
        return error
    if isinstance(error, BudgetSpent):
        return PrivacyRefused(f"{home.name} refuses: its budget does not cover this run.")
    if isinstance(error, PrivacyRefused):
        return PrivacyRefused(f"{home.name} refuses; its own terminal says why.")
    return PeerFailed(f"{home.name} cannot take part ({type(error).__name__}); its own terminal says why.")


def _abroad(error: TacitError, home: Home) -> TacitError:
    """What is wrong with a site's own data or records names its files: for the coordinator it is a site that failed."""
    known = home.policy.local or isinstance(error, PeerFailed | PrivacyRefused)
    if known:
        return error
    return PeerFailed(f"{home.name} failed ({type(error).__name__}); its own terminal says why.")


def _let_in(reply: bytes) -> None:
    """Raise what the coordinator said to a hello, unless that was welcome."""
    try:
        said = json.loads(reply)
        kind, why = str(said.get("error", "")), str(said.get("why", ""))
    except (ValueError, AttributeError, RecursionError):
        raise BadMessage("What the coordinator says to a hello cannot be read; is it a coordinator at all?") from None
    if kind:
        raise _not_let_in(why)


def _not_let_in(why: str) -> PeerFailed:
    return PeerFailed(f"The coordinator does not let this site in: {_printable(why)}")
