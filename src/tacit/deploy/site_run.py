"""A site's part, or a role's, in one run, from the offer to the end.

Only code that is installed here runs here: an offer names a method, steps and parameters. Everything leaves through the
party's gate, after the ledger has it on disk. What is stored is enough to go on after a kill at any moment.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Mapping
from contextlib import closing
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
from tacit.deploy import site_files
from tacit.deploy.align import SiteAlignment
from tacit.deploy.certificates import identity_text, is_host
from tacit.deploy.kit import Kit
from tacit.deploy.offer import Offer, read_facts
from tacit.deploy.policy import Policy
from tacit.deploy.proxy_client import DeviceLine, Line
from tacit.deploy.site_data import RoleTable, SiteData
from tacit.engine.envelope import TimedRequest
from tacit.engine.serve import Memory, checking_file, serve_request
from tacit.errors import BadMessage, PrivacyRefused
from tacit.federation import Party, Peer, Role
from tacit.federation.messages import Answer
from tacit.kernels.blas import one_blas_thread
from tacit.partition import Setting
from tacit.prepare.plan import Plan
from tacit.prepare.prepared import Keys, PreparedRun, Record

#: Seconds between two computations of the ε spent, which is for display: the ledger has every release.
REFRESH = 10.0
#: Prefix of folders with a copy of the ledger while an offer is checked.
COPY = ".look-"


class Data(Protocol):
    """Where a site's ratings come from."""

    def for_run(self, offer: Offer, name: str, folder: Path) -> SiteData: ...

    def unfit(self, data: SiteData, offer: Offer) -> str: ...


@dataclass(frozen=True)
class Home:
    """What a site has in every run: its kit, folders, signing key, ratings and rules.

    A role has no ratings; `brings` is its table of items.
    """

    kit: Kit
    folder: Path
    ledgers: Path
    identity: Ed25519PrivateKey
    data: Data
    policy: Policy
    brings: RoleTable | None = None

    @property
    def name(self) -> str:
        return self.kit.name

    @property
    def ledger(self) -> Path:
        return self.ledgers / f"{self.name}.sqlite"


class SiteRun:
    """One site's part in one run: the offer, the site's data for it, and the party that answers once it has begun."""

    def __init__(self, home: Home, run: str, content: Mapping[str, Any]) -> None:
        """Check an offer; raises where the site's rules, its data or its ledger's budget do not cover it."""
        self._home, self.offer = home, Offer.of(run, content)
        home.policy.check(self.offer, home.name)
        self.data = home.data.for_run(self.offer, home.name, home.folder)
        self._sizes = self.data.sizes(self.offer)
        if self.offer.setting is Setting.VERTICAL:
            self.data = self._alignment.restored(self.data)
        if not home.policy.local:
            _remove_old_copies(home.ledgers)
            try:
                check_budget(home.policy, self.offer, self.data, home.ledger, home.name)
            except BudgetSpent as refusal:
                with closing(Ledger(home.ledger, home.name)) as ledger:
                    ledger.refuse(run, 0, "offer", self.offer.hash, str(refusal))
                raise
        self.party: Party | None = None
        self._prepared: PreparedRun | None = None
        self._ledger: Ledger | None = None
        self._line: DeviceLine | None = None
        self._memory = Memory(home.folder / "memory.tct", run)
        self._refreshed = monotonic()

    @property
    def private(self) -> bool:
        return self.offer.file.privacy is not None

    @property
    def unfit(self) -> str:
        """Which of the site's ratings this run leaves out or clips, for this site alone; empty for none."""
        return self._home.data.unfit(self.data, self.offer)

    def sizes(self) -> dict[str, Value]:
        """The sizes that the site sends when it accepts."""
        return self._recorded("sizes:roster", self._sizes.content())

    def align(self, content: Mapping[str, Any]) -> dict[str, Value]:
        """One stage of aligning users, whose ids stay here."""
        reply, self.data = self._alignment.reply(content, self.data)
        return self._recorded(f"{content['stage']}:roster", reply)

    def begin(self, content: dict[str, Any]) -> dict[str, Value]:
        """Make this site's party from the agreed facts; the hash of the terms, as this site computes them."""
        home, offer = self._home, self.offer
        identities, head = read_named(content.pop("identities", "{}"), "signing keys"), content.pop("head", None)
        head = read_named(content.pop("heads", "{}"), "ledger heads").get(home.name, head)  # one message to all devices
        proxy = content.pop("proxy", None)
        facts = read_facts(offer, content)
        if offer.items is None and offer.setting is not Setting.VERTICAL:  # the list of items is known only now
            self.data = home.data.for_run(replace(offer, catalogue=facts.catalogue), home.name, home.folder)
        mine, share = facts.member(home.name), self.data.share
        if (mine.users, mine.items, mine.devices) != (share.ratings.n_users, share.ratings.n_items, share.devices):
            raise BadMessage(f"The coordinator's list does not have the sizes that {home.name} sent.")
        if not np.array_equal(mine.columns, facts.item_ids.rows(share.ratings.item_ids.ids)):
            raise BadMessage(f"The coordinator's list does not have the items that {home.name} holds.")
        self.leave()
        prepared, record = offer.prepared(facts), None
        keys = Keys(self._others(prepared, identities), home.identity)
        if prepared.proxied:
            self._line = proxy_line(proxy, home.kit, home.folder)
            keys = replace(keys, to_proxy=self._line)
        if prepared.private:
            home.policy.check_plan(offer.file, prepared.plan, len(self.data.people))
            self._ledger = Ledger(home.ledger, home.name)
            if head is not None:  # of an earlier run, as the coordinator stored it
                self._ledger.verify(str(head))
            budget = home.policy.budget(offer.file, prepared.plan, self._ledger)
            record = Record(self._ledger, budget, self.data.people)
        party = prepared.party(share, record, keys)
        if party.gate.protection is not None:
            self._describe_run(party.gate.protection)
        self.party, self._prepared = party, prepared
        if self._ledger is None:
            self._memory.recall(self.party.home)
        return {"bound": hashlib.sha256(prepared.bound.encode()).hexdigest()}

    def answer(self, ask: TimedRequest) -> Answer:
        """Answer one request, or repeat the earlier answer."""
        memory = self._memory if self._ledger is None else None
        return answer_request(self.party, self._prepared, ask, memory, self._home.policy.local)

    def spent(self, now: bool = False) -> dict[str, float]:
        """The ε that the site's ledger has reached, and its budget; empty if it was computed moments ago."""
        protection = None if self.party is None else self.party.gate.protection
        if protection is None or (not now and monotonic() < self._refreshed + REFRESH):
            return {}
        self._refreshed = monotonic()
        return {"epsilon": protection.reading(), "budget": protection.budget.epsilon}

    def save(self, shared: Mapping[str, Array]) -> dict[str, Value]:
        """Save the site's predictor and its own metrics; the metrics, where the site shares them.

        The coordinator chooses what is shared, so a model that does not fit this site is neither saved nor evaluated.
        """
        from tacit.evaluate.evaluation import evaluate_as_configured

        if self.party is None or self._prepared is None:
            return {}
        folder, file, seen = self._home.folder / "home", self.offer.file, self.data.share.ratings
        both = [self.party.at_home(**shared), self.party.before_fine_tuning(**shared)]
        predictors = [predictor for predictor in both if predictor is not None]
        if not all(site_files.fits(predictor, seen.n_users, seen.n_items) for predictor in predictors):
            raise BadMessage("The model at the end of the run does not fit this site, and was not saved.")
        shutil.rmtree(folder, ignore_errors=True)
        for name, predictor in zip(("predictor", "before"), predictors, strict=False):
            site_files.write_predictor(folder / f"{name}.tct", predictor)
        site_files.write_seen(folder / "seen.tct", seen)
        stamp = self._prepared.guarantee
        site_files.write_model(folder / "model", predictors[-1], seen, self.offer.file.method["name"], str(stamp))
        test = self.data.test
        if test is None or not test.n_ratings:
            return {}
        found = evaluate_as_configured(predictors[0], test, seen, file.evaluate, file.seed)
        people = int(np.sum(test.counts > 0))
        metrics = json.dumps({"metrics": found.metrics, "users": people, "ratings": test.n_ratings})
        files.write_private(folder / "metrics.json", metrics)
        return self._shared_metrics(metrics) if self._home.policy.shares_metrics else {}

    def leave(self) -> None:
        """Close the ledger, and the connection to a proxy."""
        if self._line is not None:
            self._line.close()
            self._line = None
        if self._ledger is not None:
            self._ledger.close()
        self._ledger, self.party = None, None

    @property
    def _alignment(self) -> SiteAlignment:
        return SiteAlignment(self.offer, self._home.name, self._home.folder, self._home.policy.align_key)

    def _others(self, prepared: PreparedRun, identities: Mapping[str, str]) -> dict[str, Ed25519PublicKey]:
        """All parties' signing keys, where sums are signed, or where this site was given them (--peers)."""
        home = self._home
        if not prepared.signed and home.policy.peers is None:
            return {}
        others = tuple(member.name for member in prepared.facts.roster if member.name != home.name)
        known = {**home.policy.peer_keys(identities, others), home.name: identity_text(home.identity.public_key())}
        return {name: Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)) for name, key in known.items()}

    def _shared_metrics(self, metrics: str) -> dict[str, Value]:
        """The site's metrics, if they may leave: once a run, and of a run in which it released something."""
        if self._ledger is None:
            return {"metrics": metrics}
        mine = [row for row in self._ledger.rows() if row.run == self.offer.run]
        once = not any(isinstance(row.spent, Metrics) for row in mine)
        if not once or all(isinstance(row.spent, Public) for row in mine):
            return {}
        return self._recorded("metrics:own", {"metrics": metrics}, Metrics())

    def _recorded(self, step: str, content: dict[str, Value], event: Public = Roster()) -> dict[str, Value]:
        """Record what leaves before the run begins or after its end in the ledger too, before it leaves."""
        home, offer = self._home, self.offer
        if not self.private or home.policy.local:
            return content
        body = encode(content)
        request = hashlib.sha256(f"{offer.hash}|{step}".encode() + body).hexdigest()
        with closing(Ledger(home.ledger, home.name)) as ledger:
            record_public(ledger, offer.run, step, request, event, body)
        return content

    def _describe_run(self, protection: Protection) -> None:
        """Write next to the ledger with whom the run is, and its guarantee, for later readers of the ledger."""
        home = self._home
        if home.policy.local:  # the experimenter's run folder has all that
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
    """The answer to one request under the agreed terms; without a ledger, `memory` has the latest one."""
    request = ask.request
    if peer is None or prepared is None:
        raise BadMessage("A request came before its run had begun.")
    if (request.method, request.parameters) != (prepared.method.name, prepared.bound):
        raise BadMessage("A request is made under other terms than the agreed ones; nothing was done.")
    if ask.survivors is not None and not local:
        raise BadMessage("A request names survivors of a simulation, and this site is not one; nothing was done.")
    answer = None if memory is None else memory.answered(request.hash)
    if answer is None:
        with one_blas_thread():  # sites may share a machine
            answer = serve_request(peer, request, ask.survivors)
        if memory is not None:
            memory.save(request.hash, answer, peer.home)
    return answer


def proxy_line(said: object, kit: Kit, folder: Path) -> DeviceLine:
    """The way to the proxy that the coordinator named; its certificate says whether it is the federation's."""
    if kit.insecure:
        raise PrivacyRefused("The run's reports go through a proxy, which needs TLS; ask for a kit without --insecure.")
    try:
        table = json.loads(str(said))
        host, port, key = str(table["host"]), int(table["port"]), bytes.fromhex(table["key"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadMessage("Where the proxy is cannot be read; it was damaged or forged.") from None
    if not is_host(host) or not 0 < port < 2**16 or len(key) != 32:
        raise BadMessage("Where the proxy is, or the key of reports, is not valid; it was damaged or forged.")
    return DeviceLine(Line(host, port, kit.unpack(folder / "tls")), key)


def read_named(text: object, what: str) -> dict[str, str]:
    """What the coordinator reports of several parties, by name."""
    try:
        found = json.loads(str(text))
        return {str(name): str(key) for name, key in found.items()}
    except (ValueError, AttributeError, RecursionError):
        raise BadMessage(f"The coordinator's list of {what} cannot be read; it was damaged or forged.") from None


def _remove_old_copies(folder: Path) -> None:
    """Remove copies of the ledger of a service that was killed while it checked an offer."""
    for copy in folder.glob(f"{COPY}*"):
        if time.time() - copy.stat().st_mtime > 60:  # a younger one may be in use
            shutil.rmtree(copy, ignore_errors=True)


def check_budget(policy: Policy, offer: Offer, data: SiteData, path: Path, name: str) -> tuple[Plan, Budget] | None:
    """The offered run's plan, as this site computes it, and the budget for it; None for NON-PRIVATE.

    Raises where the site's rules or its ledger's budget do not cover it.
    """
    items = data.share.ratings.n_items if offer.items is None else len(offer.items)
    made = offer.planned(items, len(offer.roster))
    if made is None:
        return None
    policy.check_plan(offer.file, made, len(data.people))
    here = path.parent if path.exists() else None  # a copy stays where its owner put the ledger, and its key
    with TemporaryDirectory(prefix=COPY, dir=here) as elsewhere:  # only a run begins a ledger, not a check
        for part in path.parent.glob(f"{path.stem}.*"):
            shutil.copy2(part, elsewhere)
        with closing(Ledger(Path(elsewhere) / path.name, name)) as ledger:
            budget = policy.budget(offer.file, made, ledger)
            Protection(made.terms, ledger, budget, offer.run, data.people).check_budget()
    return made, budget


class RoleRun:
    """One role's part in one run: it has no ratings and no ledger, and answers by code that is installed here."""

    private = False  # no person's data is here, so that errors may be sent
    unfit = ""

    def __init__(self, home: Home, run: str, content: Mapping[str, Any]) -> None:
        """Check an offer; raises where it does not name this role, or the code installed here has no such role."""
        self._home, self.offer = home, Offer.of(run, content)
        home.policy.check(self.offer, home.name)
        self.party: Role | None = None
        self._prepared: PreparedRun | None = None
        self._memory = Memory(home.folder / "memory.tct", run)

    def sizes(self) -> dict[str, Value]:
        return {}

    def align(self, content: Mapping[str, Any]) -> dict[str, Value]:
        raise BadMessage(f"{self._home.name} has no users to align; nothing was done.")

    def begin(self, content: dict[str, Any]) -> dict[str, Value]:
        """Make the role from the agreed facts; the hash of the terms, as this service computes them."""
        home, offer = self._home, self.offer
        identities = read_named(content.pop("identities", "{}"), "signing keys")
        for word in ("head", "heads", "proxy"):
            content.pop(word, None)
        facts = read_facts(offer, content)
        prepared = offer.prepared(facts)
        wants = prepared.roles[home.name].own_columns(prepared.parameters)
        brought = None
        if home.brings is not None:
            brought = home.brings.catalogue(facts.item_ids, offer.run, home.folder, wants)
        role = prepared.role(home.name, brought, Keys(self._others(prepared, identities), home.identity))
        self._memory.recall(role.home)
        self.party, self._prepared = role, prepared
        return {"bound": hashlib.sha256(prepared.bound.encode()).hexdigest()}

    def answer(self, ask: TimedRequest) -> Answer:
        """Answer one request, or repeat the earlier answer."""
        return answer_request(self.party, self._prepared, ask, self._memory, self._home.policy.local)

    def spent(self, now: bool = False) -> dict[str, float]:
        return {}

    def save(self, shared: Mapping[str, Array]) -> dict[str, Value]:
        return {}

    def leave(self) -> None:
        self.party = None

    def _others(self, prepared: PreparedRun, identities: Mapping[str, str]) -> dict[str, Ed25519PublicKey]:
        """The parties' signing keys as their owners gave them; in an experiment, as the coordinator reports them."""
        home, names = self._home, tuple(member.name for member in prepared.facts.roster)
        if not home.policy.local and home.policy.peers is None:
            return {}
        known = {**home.policy.peer_keys(identities, names), home.name: identity_text(home.identity.public_key())}
        return {name: Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)) for name, key in known.items()}
