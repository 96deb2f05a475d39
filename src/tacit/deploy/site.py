"""A site's service: checks what is offered, answers what is asked, and keeps what is its own.

Only code that is installed here runs here: an offer names a method, steps and parameters. What leaves does so through
the party's gate, after its ledger has it on disk. Whatever the service kept is enough to go on after it was killed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tacit.boundary.door import EMPTY_HOME
from tacit.boundary.events import Public
from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import BudgetSpent, Protection
from tacit.boundary.release import Kind
from tacit.boundary.wire import Array, Value, encode
from tacit.deploy import kept
from tacit.deploy.align import Aligning
from tacit.deploy.certificates import identity_text, key_text, read_identity
from tacit.deploy.files import write_private
from tacit.deploy.hello import hello
from tacit.deploy.kit import Kit
from tacit.deploy.logs import Log
from tacit.deploy.policy import Policy
from tacit.deploy.source import Held
from tacit.deploy.status import State, Status
from tacit.deploy.terms import Offer, facts_from
from tacit.engine.agreement import Agreement
from tacit.engine.envelope import Ask, answer_content
from tacit.engine.serve import served
from tacit.engine.window import BEAT, Window
from tacit.errors import BadMessage, PeerFailed, PrivacyRefused, TacitError, UsageError
from tacit.federation import Party
from tacit.federation.messages import Answer
from tacit.methods.plan import Plan
from tacit.methods.runfile import check, plan
from tacit.partition import Setting


class Data(Protocol):
    """Where a site's ratings come from."""

    def held(self, offer: Offer, name: str, folder: Path) -> Held: ...


@dataclass
class Part:
    """A site's part in the run at hand."""

    offer: Offer
    held: Held
    agreed: Agreement
    party: Party
    ledger: Ledger | None
    memory: kept.Memory


class Site:
    """One site's service.

    Parameters
    ----------
    kit : from whoever runs the federation
    folder : where the site keeps its signing key, ledger, memory and what it learned
    data, policy : its ratings, and its rules
    ledgers : the folder of its ledger; within `folder` by default
    stays : whether it waits for further runs when one has ended
    """

    def __init__(
        self,
        kit: Kit,
        folder: Path,
        data: Data,
        policy: Policy,
        log: Log,
        status: Status,
        ledgers: Path | None = None,
        stays: bool = False,
    ) -> None:
        self.kit, self.folder, self.policy, self.stays = kit, folder, policy, stays
        self.ledgers = ledgers or folder / "ledger"
        self._data, self._log, self._status = data, log, status
        self.identity = own_identity(folder)
        self._offer: tuple[Offer, Held] | None = None
        self._part: Part | None = None
        self._run = ""
        self._ended = threading.Event()
        self._failure: TacitError | None = None
        self._trouble: TacitError | None = None  # what this site itself raised last
        self.outcome: dict[str, Any] = {}

    def serve(self, wait: float = 3600.0, alive: Any = None) -> dict[str, Any]:
        """Take part until a run has ended; how it ended. Raises what the site refused, or what the coordinator said.

        `wait` is how many seconds the coordinator may be away; `alive` says whether to go on at all.
        """
        coordinator = Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.kit.coordinator))
        credentials = None if self.kit.insecure else self.kit.unpack(self.folder / "tls")
        place = (self.kit.name, self.kit.host, self.kit.port, credentials)
        window = Window(*place, self.identity, coordinator, self._handle, self._tells, self._reject, self._replied)
        window.open()
        try:
            self._greet(window, wait, alive)
        finally:
            window.close()
            self._leave()
        if self._failure is not None:
            raise self._failure
        return self.outcome

    # -- inside ------------------------------------------------------------------------------------------------------

    def _greet(self, window: Window, wait: float, alive: Any) -> None:
        """Say hello again and again, until the run has ended."""
        heard, there = monotonic(), False
        while not self._ended.is_set() and (alive is None or alive()):
            reply = window.say("hello", hello(self.kit, self.identity, window.start), timeout=5.0)
            if reply is None:
                if there:
                    self._log.warning("absent", peer="coordinator")
                    self._status.set(state=State.PAUSED, message="The coordinator is away; waiting for it.")
                there = False
                if monotonic() - heard > wait:
                    raise PeerFailed(
                        f"The coordinator at {self.kit.host}:{self.kit.port} was not there for {wait:,.0f} seconds; "
                        "what left is in the ledger: join again when it is back, and the run goes on."
                    )
            else:
                heard = monotonic()
                _refused(reply)
                if not there:
                    self._log.info("connected", peer="coordinator")
                    self._status.set(state=State.SERVING if self._part else State.WAITING, message="")
                there = True
            self._ended.wait(BEAT if there else 0.2)

    def _replied(self, topic: str) -> None:
        """What was said has been taken: the run's end, or that it was refused, ends the service."""
        if not self.stays and (topic == "end" or self._failure is not None):
            self._ended.set()

    def _reject(self, error: TacitError) -> None:
        self._log.warning("refused", peer="coordinator", error=type(error).__name__)

    def _tells(self) -> bool:
        """Whether the reasons of errors may leave: they may quote data, so with privacy they stay at home."""
        offer = self._offer[0] if self._offer is not None else None
        return self.policy.local or (offer is not None and offer.file.privacy is None)

    def _handle(self, topic: str, run: str, content: dict[str, Any]) -> Mapping[str, Value]:
        try:
            if topic == "offer":
                return self._offered(run, content)
            if topic == "align":
                return self._align(run, content)
            if topic == "begin":
                return self._begun(run, content)
            if topic == "ask":
                return self._asked(run, content)
            return self._end(run, content)
        except TacitError as error:
            self._log.error("refused" if isinstance(error, PrivacyRefused) else "failed", error=type(error).__name__)
            self._status.set(message=str(error)[:400])
            self._trouble = error
            raise

    def _offered(self, run: str, content: dict[str, Any]) -> Mapping[str, Value]:
        """Look at an offer: refuse it, or say what this site brings."""
        self._status.set(state=State.CHECKING, run=run)
        self._run = run
        try:
            offer = Offer.of(run, content)
            self.policy.check(offer, self.kit.name)
            held = self._data.held(offer, self.kit.name, self.folder)
            sizes = held.told(offer)
            if offer.setting is Setting.VERTICAL:
                held = Aligning(offer, self.kit.name, self.folder).recalled(held)
            if not self.policy.local:
                affordable(self.policy, offer, held, self._ledger_path, self.kit.name)
        except TacitError as error:
            self._refuse(error)
            raise _outward(error, self.kit.name, self.policy.local) from error
        self._leave()
        self._offer = offer, held
        self._log.info("checking", run=run, parties=len(offer.roster))
        return self._recorded(offer, "sizes", sizes.content())

    def _align(self, run: str, content: dict[str, Any]) -> Mapping[str, Value]:
        """One stage of agreeing on a common list of users, whose ids stay here."""
        if self._offer is None or self._offer[0].run != run:
            raise BadMessage("Users are to be aligned for a run that this site was not offered.")
        offer, held = self._offer
        reply, held = Aligning(offer, self.kit.name, self.folder, self.policy.align_key).reply(content, held)
        self._offer = offer, held
        return self._recorded(offer, f"align {content.get('stage')}", reply)

    def _recorded(self, offer: Offer, step: str, content: dict[str, Value]) -> dict[str, Value]:
        """What leaves before the run begins stands in the ledger too, as a public fact, before it leaves."""
        if offer.file.privacy is None or self.policy.local:
            return content
        body = encode(content)
        request = hashlib.sha256(f"{offer.hash}|{step}".encode() + body).hexdigest()
        ledger = Ledger(self._ledger_path, self.kit.name)
        try:
            if ledger.answered(request) is None:
                ledger.record(
                    run=offer.run,
                    round=0,
                    step=step,
                    attempt=0,
                    kind=str(Kind.PUBLIC),
                    request=request,
                    event=Public(),
                    body=body,
                    sealed=False,
                    contributors=1,
                    present=None,
                    state=EMPTY_HOME,
                )
        finally:
            ledger.close()
        return content

    def _begun(self, run: str, content: dict[str, Any]) -> Mapping[str, Value]:
        """Make this site's party, from what everybody agreed on."""
        if self._offer is None or self._offer[0].run != run:
            raise BadMessage("A run begins that this site was not offered.")
        offer, held = self._offer
        identities = json.loads(str(content.pop("identities", "{}")))
        facts = facts_from(offer, content)
        if offer.items is None and offer.setting is not Setting.VERTICAL:  # now all know what there is to rate
            held = self._data.held(replace(offer, items=facts.item_ids), self.kit.name, self.folder)
        mine, ratings = facts.member(self.kit.name), held.share.ratings
        if (mine.users, mine.items, mine.devices) != (ratings.n_users, ratings.n_items, held.share.devices):
            raise BadMessage(f"The coordinator's list does not say of {self.kit.name} what it said of itself.")
        self._leave()
        agreed = offer.agreement(facts)
        ledger, protection = None, None
        if agreed.plan is not None:
            self.policy.allow(agreed.plan)
            ledger = Ledger(self._ledger_path, self.kit.name)
            protection = agreed.protection(
                ledger, self.policy.budget(offer.file, agreed.plan), held.people, self._circle(agreed, identities)
            )
            self._note(agreed, protection)
        party = agreed.party(held.share, protection)
        memory = kept.Memory(self.folder / "memory.tct", run)
        if ledger is None:
            memory.recall(party.home)
        self._part = Part(offer, held, agreed, party, ledger, memory)
        self._status.set(state=State.SERVING, message="")
        self._log.info("serving", run=run, parties=len(facts.roster))
        return {"bound": hashlib.sha256(agreed.bound.encode()).hexdigest()}

    def _circle(self, agreed: Agreement, identities: Mapping[str, str]) -> Any:
        """Who makes masks with whom, with the others' signing keys where lists are signed."""
        if agreed.circle is None or not agreed.circle.shape.signed:
            return agreed.circle
        others = tuple(name for name in agreed.circle.names if name != self.kit.name)
        known = {**self.policy.known(identities, others), self.kit.name: identity_text(self.identity.public_key())}
        keys = {name: Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)) for name, key in known.items()}
        return agreed.known(keys, self.identity)

    def _asked(self, run: str, content: dict[str, Any]) -> Mapping[str, Value]:
        """Answer one request."""
        part, ask = self._part, Ask.of(content)
        if part is None or part.agreed.run not in ("", run) or part.offer.run != run:
            raise BadMessage("A request belongs to a run that this site is not in.")
        request = ask.request
        if (request.method, request.parameters) != (part.agreed.method.name, part.agreed.bound):
            raise BadMessage("A request is made under other terms than those that were agreed on; nothing was done.")
        if ask.survivors is not None and not self.policy.local:
            raise BadMessage("A request names survivors of a simulation, and this site is none; nothing was done.")
        answer = part.memory.answered(request.hash)
        if answer is None:
            answer = served(part.party, request, ask.survivors)
            if part.ledger is None:
                part.memory.keep(request.hash, answer, part.party.home)
        self._log.info("answered", step=request.step, round=request.round, bytes=len(answer.body))
        self._status.set(round=request.round, step=request.step, **_spent(part, answer))
        return answer_content(self._outward(answer))

    def _outward(self, answer: Answer) -> Answer:
        """What a site's ledger holds is its own business: that its budget is spent is told, and not what it reached."""
        if answer.status != "refused" or self.policy.local:
            return answer
        return replace(answer, why=f"{answer.party} refuses: its budget does not cover this release.")

    def _end(self, run: str, content: dict[str, Any]) -> Mapping[str, Value]:
        """The run is over: keep what was learned, look at how good it is here, and say so only if that was allowed."""
        if run != self._run:
            raise BadMessage("A run ends that this site is not in.")
        part, reply = self._part, dict[str, Value]()
        why, words = str(content.pop("why", "")), json.loads(str(content.pop("words", "{}")))
        if part is not None and part.offer.run == run and not why:
            shared = {name.removeprefix("shared/"): value for name, value in content.items()}
            reply = self._keep(part, shared)
        self.outcome = {"run": run, **words}
        if why:
            said = PeerFailed(f"The coordinator ended the run: {why[:400]}")
            self._failure = self._failure or self._trouble or said
        self._status.set(state=State.FAILED if why else State.DONE, message=why)
        self._log.info("done", run=run)
        return {"ended": True, **reply}

    def _keep(self, part: Part, shared: Mapping[str, Array]) -> dict[str, Value]:
        """What the site predicts with from now on, and its own metrics."""
        folder = self.folder / "home"
        shutil.rmtree(folder, ignore_errors=True)
        predictor = part.party.at_home(**shared)
        kept.write_predictor(folder / "predictor.tct", predictor)
        before = part.party.before_fine_tuning(**shared)
        if before is not None:
            kept.write_predictor(folder / "before.tct", before)
        if part.held.test is None:
            return {}
        from tacit.evaluate import evaluate

        judged = part.offer.file.evaluate
        test, seen = part.held.test, part.held.share.ratings
        found = evaluate(
            predictor,
            test,
            seen=seen,
            k=judged.k,
            negatives=judged.negatives,
            relevance=judged.relevance,
            seed=part.offer.file.seed,
        )
        told = json.dumps({"metrics": found.metrics, "users": int(np.sum(test.counts > 0)), "ratings": test.n_ratings})
        write_private(folder / "metrics.json", told.encode())
        return {"metrics": told} if self.policy.shares_metrics else {}

    @property
    def _ledger_path(self) -> Path:
        return self.ledgers / f"{self.kit.name}.sqlite"

    def _note(self, agreed: Agreement, protection: Protection | None) -> None:
        """Beside the ledger: with whom each run was, and what was promised; for whoever reads the ledger later."""
        if self.policy.local:  # the experimenter's run folder says all that
            return
        path = self.ledgers / "runs.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        assert protection is not None
        budget = protection.budget
        known[agreed.run] = {
            "federation": self.kit.federation,
            "coordinator": f"{self.kit.host}:{self.kit.port}",
            "budget": budget.epsilon,
            "delta": budget.delta,
            "guarantee": str(protection.terms.guarantee),
        }
        write_private(path, json.dumps(known, indent=2, ensure_ascii=False).encode())

    def _refuse(self, error: TacitError) -> None:
        """A refused offer ends the service, once the coordinator knows."""
        self._failure = None if self.stays else error
        refused = isinstance(error, PrivacyRefused)
        self._status.set(state=State.REFUSED if refused else State.FAILED, message=str(error)[:400])

    def _leave(self) -> None:
        if self._part is not None and self._part.ledger is not None:
            self._part.ledger.close()
        self._part = None


def affordable(policy: Policy, offer: Offer, held: Held, path: Path, name: str) -> Plan | None:
    """What the offered run would release, by this site's own reckoning; None for NON-PRIVATE.

    Raises where the site's rules or its ledger's budget do not cover it.
    """
    if offer.file.privacy is None:
        return None
    public = offer.public(held.share.ratings.n_items if offer.items is None else len(offer.items))
    method, parameters = check(offer.file, public)
    made = plan(offer.file, method, parameters, offer.setting, len(offer.roster), public)
    policy.allow(made)
    ledger = Ledger(path, name)
    try:
        budget = policy.budget(offer.file, made)
        Protection(made.terms, ledger, budget, offer.run, offer.file.seed, held.people).afford()
    finally:
        ledger.close()
    return made


def own_identity(folder: Path) -> Ed25519PrivateKey:
    """The site's signing key: made here at the first join, kept here, never sent."""
    path = folder / "identity.key"
    if not path.exists():
        write_private(path, key_text(Ed25519PrivateKey.generate()).encode())
    return read_identity(path.read_text())


def _spent(part: Part, answer: Answer) -> dict[str, float]:
    """What the site's ledger has reached, once an answer cost something."""
    protection = part.party.gate.protection
    if protection is None or answer.kind is Kind.PUBLIC:
        return {}
    return {"epsilon": protection.lifetime(), "budget": protection.budget.epsilon}


def _outward(error: TacitError, name: str, local: bool) -> TacitError:
    """What the coordinator is told of why an offer was refused: rules, never data, and no other run's spending."""
    if local:
        return error
    if isinstance(error, BudgetSpent):
        return PrivacyRefused(f"{name} refuses: its budget does not cover this run.")
    if isinstance(error, (PrivacyRefused, UsageError)):
        return PrivacyRefused(f"{name} refuses: {error}")
    return PeerFailed(f"{name} cannot take part ({type(error).__name__}); its own log says why.")


def _refused(reply: bytes) -> None:
    """Raise what the coordinator said to a hello, unless that was welcome."""
    try:
        said = json.loads(reply)
        kind, why = str(said.get("error", "")), str(said.get("why", ""))
    except (ValueError, AttributeError):
        raise BadMessage("What the coordinator says to a hello cannot be read; is it a coordinator at all?") from None
    if kind:
        raise PeerFailed(f"The coordinator does not let this site in: {why[:400]}")
