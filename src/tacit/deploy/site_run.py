"""A site's part in one run, from the offer to the end: what it accepts, says of itself, answers, and keeps.

Only code that is installed here runs here: an offer names a method, steps and parameters. What leaves does so through
the party's gate, after its ledger has it on disk. Whatever is kept is enough to go on after the service was killed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Protocol

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tacit import files
from tacit.boundary.base_gate import record_public
from tacit.boundary.events import Metrics, Public, Roster
from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import Budget, BudgetSpent, Protection
from tacit.boundary.wire import Array, Value, encode
from tacit.data.catalogue import Catalogue
from tacit.data.vocabulary import Vocabulary
from tacit.deploy import site_files
from tacit.deploy.align import SiteAlignment
from tacit.deploy.certificates import identity_text
from tacit.deploy.kit import Kit
from tacit.deploy.offer import Offer, read_facts
from tacit.deploy.policy import Policy
from tacit.deploy.site_data import SiteData
from tacit.engine.envelope import TimedRequest
from tacit.engine.serve import Memory, checking_file, serve_request
from tacit.errors import BadMessage
from tacit.federation import Party, Peer
from tacit.federation.messages import Answer
from tacit.kernels.blas import one_blas_thread
from tacit.partition import Setting
from tacit.prepare.plan import Plan
from tacit.prepare.prepared import Keys, PreparedRun, Record

#: Seconds between two reckonings of what was spent, which are for the eye: the ledger has every release.
RECKONING = 10.0
#: How folders begin that hold a copy of the ledger while an offer is looked at.
LOOK = ".look-"
#: What leaves before a run begins.
ROSTER = Roster()


class Data(Protocol):
    """Where a site's ratings come from."""

    def held(self, offer: Offer, name: str, folder: Path) -> SiteData: ...

    def unfit(self, held: SiteData, offer: Offer) -> str: ...


class RoleItems(Protocol):
    """What a role has of its own, where there are no ratings."""

    def catalogue(
        self, items: Vocabulary, run: str, folder: Path, columns: Sequence[str] | None = None
    ) -> Catalogue | None: ...


@dataclass(frozen=True)
class Home:
    """What a site is whatever the run: its kit, its folders, its own signing key, its ratings and its rules.

    A role has no ratings; `brings` is what it has instead.
    """

    kit: Kit
    folder: Path
    ledgers: Path
    identity: Ed25519PrivateKey
    data: Data
    policy: Policy
    brings: RoleItems | None = None

    @property
    def name(self) -> str:
        return self.kit.name

    @property
    def ledger(self) -> Path:
        return self.ledgers / f"{self.name}.sqlite"


class SiteRun:
    """One site's part in one run.

    Attributes
    ----------
    offer : what was offered
    party : who answers, once the run has begun
    """

    def __init__(self, home: Home, run: str, content: Mapping[str, Any]) -> None:
        """Looks at an offer; raises where the site's rules, its data or its ledger's budget do not cover it."""
        self._home, self.offer = home, Offer.of(run, content)
        home.policy.check(self.offer, home.name)
        self._held = home.data.held(self.offer, home.name, home.folder)
        self._sizes = self._held.told(self.offer)
        if self.offer.setting is Setting.VERTICAL:
            self._held = self._aligning.recalled(self._held)
        if not home.policy.local:
            _swept(home.ledgers)
            try:
                check_budget(home.policy, self.offer, self._held, home.ledger, home.name)
            except BudgetSpent as refusal:
                self._refused(str(refusal))
                raise
        self.party: Party | None = None
        self._prepared: PreparedRun | None = None
        self._ledger: Ledger | None = None
        self._memory = Memory(home.folder / "memory.tct", run)
        self._reckoned = monotonic()

    @property
    def private(self) -> bool:
        return self.offer.file.privacy is not None

    @property
    def unfit(self) -> str:
        """Which of the site's ratings this run leaves out or clips, for this site's own eyes; empty for none."""
        return self._home.data.unfit(self._held, self.offer)

    def sizes(self) -> dict[str, Value]:
        """What the site says of itself when it accepts."""
        return self._recorded("sizes:roster", self._sizes.content())

    def align(self, content: Mapping[str, Any]) -> dict[str, Value]:
        """One stage of agreeing on a common list of users, whose ids stay here."""
        reply, self._held = self._aligning.reply(content, self._held)
        return self._recorded(f"{content['stage']}:roster", reply)

    def begin(self, content: dict[str, Any]) -> dict[str, Value]:
        """Makes this site's party from what everybody agreed on; what was promised, by this site's own reckoning."""
        home, offer = self._home, self.offer
        identities, head = read_identities(content.pop("identities", "{}")), content.pop("head", None)
        facts = read_facts(offer, content)
        if offer.items is None and offer.setting is not Setting.VERTICAL:  # now all know what there is to rate
            self._held = home.data.held(replace(offer, catalogue=facts.catalogue), home.name, home.folder)
        mine, share = facts.member(home.name), self._held.share
        if (mine.users, mine.items, mine.devices) != (share.ratings.n_users, share.ratings.n_items, share.devices):
            raise BadMessage(f"The coordinator's list does not say of {home.name} what it said of itself.")
        if not np.array_equal(mine.columns, facts.item_ids.rows(share.ratings.item_ids.ids)):
            raise BadMessage(f"The coordinator's list does not give {home.name} the items that it holds.")
        self.leave()
        prepared, record = offer.prepared(facts), None
        keys = Keys(self._others(prepared, identities), home.identity)
        if prepared.private:
            home.policy.allow(offer.file, prepared.plan, len(self._held.people))
            self._ledger = Ledger(home.ledger, home.name)
            if head is not None:  # one that left in an earlier run, as the coordinator kept it
                self._ledger.verify(str(head))
            budget = home.policy.budget(offer.file, prepared.plan, self._ledger)
            record = Record(self._ledger, budget, self._held.people)
        party = prepared.party(share, record, keys)
        if party.gate.protection is not None:
            self._note(party.gate.protection)
        self.party, self._prepared = party, prepared
        if self._ledger is None:
            self._memory.recall(self.party.home)
        return {"bound": hashlib.sha256(prepared.bound.encode()).hexdigest()}

    def answer(self, ask: TimedRequest) -> Answer:
        """Answers one request, or repeats what was answered before."""
        memory = self._memory if self._ledger is None else None
        return answer_request(self.party, self._prepared, ask, memory, self._home.policy.local)

    def spent(self, now: bool = False) -> dict[str, float]:
        """What the site's ledger has reached, of which budget; reckoned `now`, or else only once in a while."""
        protection = None if self.party is None else self.party.gate.protection
        if protection is None or (not now and monotonic() < self._reckoned + RECKONING):
            return {}
        self._reckoned = monotonic()
        return {"epsilon": protection.reading(), "budget": protection.budget.epsilon}

    def keep(self, shared: Mapping[str, Array]) -> dict[str, Value]:
        """Keeps what the site predicts with from now on, and its own metrics, which it tells only if it may.

        The coordinator says what is shared, so a model that does not fit this site is not kept, and not judged.
        """
        from tacit.evaluate.evaluation import evaluate_as_configured

        if self.party is None or self._prepared is None:
            return {}
        folder, file, seen = self._home.folder / "home", self.offer.file, self._held.share.ratings
        found = [self.party.at_home(**shared), self.party.before_fine_tuning(**shared)]
        predictors = [predictor for predictor in found if predictor is not None]
        if not all(site_files.fits(predictor, seen.n_users, seen.n_items) for predictor in predictors):
            raise BadMessage("The model at the end of the run does not fit this site, and was not kept.")
        shutil.rmtree(folder, ignore_errors=True)
        for name, predictor in zip(("predictor", "before"), predictors, strict=False):
            site_files.write_predictor(folder / f"{name}.tct", predictor)
        site_files.write_seen(folder / "seen.tct", seen)
        stamp = self._prepared.guarantee
        site_files.write_model(folder / "model", predictors[-1], seen, self.offer.file.method["name"], str(stamp))
        test = self._held.test
        if test is None or not test.n_ratings:
            return {}
        judged = evaluate_as_configured(predictors[0], test, seen, file.evaluate, file.seed)
        people = int(np.sum(test.counts > 0))
        told = json.dumps({"metrics": judged.metrics, "users": people, "ratings": test.n_ratings})
        files.write_private(folder / "metrics.json", told)
        return self._shared_metrics(told) if self._home.policy.shares_metrics else {}

    def leave(self) -> None:
        """Lets go of the ledger."""
        if self._ledger is not None:
            self._ledger.close()
        self._ledger, self.party = None, None

    # -- inside ------------------------------------------------------------------------------------------------------

    @property
    def _aligning(self) -> SiteAlignment:
        return SiteAlignment(self.offer, self._home.name, self._home.folder, self._home.policy.align_key)

    def _others(self, prepared: PreparedRun, identities: Mapping[str, str]) -> dict[str, Ed25519PublicKey]:
        """Everybody's signing keys, where survivors sign who stayed, or where this site knows whom it works with."""
        home = self._home
        if not prepared.signed and home.policy.peers is None:
            return {}
        others = tuple(member.name for member in prepared.facts.roster if member.name != home.name)
        known = {**home.policy.known(identities, others), home.name: identity_text(home.identity.public_key())}
        return {name: Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)) for name, key in known.items()}

    def _shared_metrics(self, told: str) -> dict[str, Value]:
        """The site's metrics, if it may tell them: once a run, and of a run in which it released something."""
        if self._ledger is None:
            return {"metrics": told}
        mine = [row for row in self._ledger.rows() if row.run == self.offer.run]
        once = not any(isinstance(row.spent, Metrics) for row in mine)
        if not once or all(isinstance(row.spent, Public) for row in mine):
            return {}
        return self._recorded("metrics:own", {"metrics": told}, Metrics())

    def _recorded(self, step: str, content: dict[str, Value], event: Public = ROSTER) -> dict[str, Value]:
        """What leaves before the run begins or after it has ended stands in the ledger too, before it leaves."""
        home, offer = self._home, self.offer
        if not self.private or home.policy.local:
            return content
        body = encode(content)
        request = hashlib.sha256(f"{offer.hash}|{step}".encode() + body).hexdigest()
        ledger = Ledger(home.ledger, home.name)
        try:
            record_public(ledger, offer.run, step, request, event, body)
        finally:
            ledger.close()
        return content

    def _refused(self, why: str) -> None:
        """That an offer was refused for the budget stands in the ledger, as a release that was refused does."""
        ledger = Ledger(self._home.ledger, self._home.name)
        try:
            ledger.refuse(self.offer.run, 0, "offer", self.offer.hash, why)
        finally:
            ledger.close()

    def _note(self, protection: Protection) -> None:
        """Beside the ledger: with whom each run was, and what was promised; for whoever reads the ledger later."""
        home = self._home
        if home.policy.local:  # the experimenter's run folder says all that
            return
        path = home.ledgers / "runs.json"
        with checking_file(path):
            known = dict(json.loads(path.read_bytes())) if path.exists() else {}
        budget = protection.budget
        known[protection.run] = {
            "federation": home.kit.federation,
            "coordinator": f"{home.kit.host}:{home.kit.port}",
            "budget": budget.epsilon,
            "delta": budget.delta,
            "days": budget.days,
            "guarantee": home.policy.stated(protection.terms.guarantee, self.offer),
        }
        if protection.terms.parties > 1:
            known[protection.run]["parties"] = protection.terms.parties
        files.write_private(path, json.dumps(known, indent=2, ensure_ascii=False).encode())


def answer_request(
    peer: Peer | None, prepared: PreparedRun | None, ask: TimedRequest, memory: Memory | None, local: bool
) -> Answer:
    """The answer to one request under the terms that were agreed on; without a ledger, `memory` has the latest."""
    request = ask.request
    if peer is None or prepared is None:
        raise BadMessage("A request came before its run had begun.")
    if (request.method, request.parameters) != (prepared.method.name, prepared.bound):
        raise BadMessage("A request is made under other terms than those that were agreed on; nothing was done.")
    if ask.survivors is not None and not local:
        raise BadMessage("A request names survivors of a simulation, and this site is none; nothing was done.")
    answer = None if memory is None else memory.answered(request.hash)
    if answer is None:
        with one_blas_thread():  # sites may share a machine
            answer = serve_request(peer, request, ask.survivors)
        if memory is not None:
            memory.keep(request.hash, answer, peer.home)
    return answer


def read_identities(told: object) -> dict[str, str]:
    """Everybody's public signing keys, as the coordinator tells them."""
    try:
        found = json.loads(str(told))
        return {str(name): str(key) for name, key in found.items()}
    except (ValueError, AttributeError, RecursionError):
        raise BadMessage("The coordinator's list of signing keys cannot be read; it was damaged or forged.") from None


def _swept(folder: Path) -> None:
    """Remove copies of the ledger that a service which was killed while it looked at an offer has left."""
    for left in folder.glob(f"{LOOK}*"):
        if time.time() - left.stat().st_mtime > 60:  # a younger one may be somebody's look of this moment
            shutil.rmtree(left, ignore_errors=True)


def check_budget(policy: Policy, offer: Offer, held: SiteData, path: Path, name: str) -> tuple[Plan, Budget] | None:
    """What the offered run would release, by this site's own reckoning, and of which budget; None for NON-PRIVATE.

    Raises where the site's rules or its ledger's budget do not cover it.
    """
    items = held.share.ratings.n_items if offer.items is None else len(offer.items)
    made = offer.planned(items, len(offer.roster))
    if made is None:
        return None
    policy.allow(offer.file, made, len(held.people))
    here = path.parent if path.exists() else None  # a copy stays where its owner put the ledger, and its key
    with TemporaryDirectory(prefix=LOOK, dir=here) as elsewhere:  # a ledger is begun by a run, not by a look at one
        for part in path.parent.glob(f"{path.stem}.*"):
            shutil.copy2(part, elsewhere)
        ledger = Ledger(Path(elsewhere) / path.name, name)
        try:
            budget = policy.budget(offer.file, made, ledger)
            Protection(made.terms, ledger, budget, offer.run, held.people).check_budget()
        finally:
            ledger.close()
    return made, budget
