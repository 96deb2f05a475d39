"""A prepared run: everything that is fixed before the first message, and what both sides are built from.

Simulations, deployments, estimators, the floor and the contract suites all begin with one.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tacit import aggregation as aggregations
from tacit.aggregation import Aggregation
from tacit.boundary import Gate, RoleGate
from tacit.boundary.endpoint import Peers
from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import Budget, Protection
from tacit.config import AggregationSection, PrivacySection
from tacit.data.catalogue import Catalogue
from tacit.data.public_facts import TYPICAL_RATINGS, PublicFacts
from tacit.engine.ledger_folder import charged_items
from tacit.errors import PrivacyRefused, UsageError
from tacit.federation import Facts, Federation, Party, Role, Step, Transcript
from tacit.federation.calls import Engine, Log
from tacit.federation.coordinator import Observer
from tacit.federation.role import all_steps, combine_roles, role_members
from tacit.guarantee import Guarantee, NoGuarantee
from tacit.methods import Method, Parameters, chosen
from tacit.methods.method import Sides
from tacit.model import Model
from tacit.partition import Share
from tacit.prepare.plan import Plan, plan_run
from tacit.secure.proxy import CoordinatorEnd, DeviceEnd


@dataclass(frozen=True)
class Keys:
    """Signing keys, for sums whose survivors sign who stayed: all public ones, and at a party its own private one.

    `to_proxy` and `from_proxy` are a device's and the coordinator's way to the proxy, in a run that needs one.
    """

    public: Mapping[str, Ed25519PublicKey] = field(default_factory=dict)
    own: Ed25519PrivateKey | None = None
    to_proxy: DeviceEnd | None = None
    from_proxy: CoordinatorEnd | None = None


@dataclass(frozen=True)
class Record:
    """One party's ledger, its budget, and the people that the ledger is bound to."""

    ledger: Ledger
    budget: Budget
    people: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class PreparedRun:
    """One run, before its first message.

    Attributes
    ----------
    method, parameters : what is learned and how, with every default resolved
    facts : what everyone may know, with what the plan declares
    plan : what the run will release, with how much noise, and its cost
    privacy, aggregation : the requested sections of a run file
    seeded : whether private draws come from the seed
    run : the run's name in ledgers and signatures
    """

    method: Method
    parameters: Parameters
    facts: Facts
    plan: Plan
    privacy: PrivacySection | None = None
    aggregation: AggregationSection = field(default_factory=AggregationSection)
    seeded: bool = True
    run: str = ""

    @classmethod
    def of(
        cls,
        method: Method,
        parameters: Parameters,
        facts: Facts,
        *,
        privacy: PrivacySection | None = None,
        aggregation: AggregationSection | None = None,
        public: PublicFacts | None = None,
        seeded: bool = True,
        run: str = "",
        expected: Plan | None = None,
    ) -> Self:
        """The run of a method among the parties that `facts` lists; refuses what cannot be promised.

        `public` is what the plan rests on; without it, what `facts` declare. A plan that was `expected` for the same
        sections and public facts is reused, if there are as many parties.
        """
        aggregation = aggregation or AggregationSection()
        check_aggregation(aggregation, seeded)
        method, parameters = method.run_with(parameters, facts.feedback, privacy is not None)
        method.sides_in(facts.setting, facts.feedback)
        if privacy is None:
            public = public or counted_facts(facts)
        else:
            check_cohorts(facts, seeded)
            public = public or declared_facts(facts)
        made, among = expected, (public, facts.setting, parties_in(facts))
        if made is None or among != (made.context.facts, made.context.setting, made.context.parties):
            made = plan_run(method, parameters, facts.setting, among[2], public, privacy, aggregation, seeded)
            made.check_budget(privacy)
        return cls.by_plan(method, facts, made, privacy=privacy, aggregation=aggregation, seeded=seeded, run=run)

    @classmethod
    def by_plan(cls, method: Method, facts: Facts, plan: Plan, **others: Any) -> Self:
        """The run of an existing plan, with its parameters and declared facts."""
        roles = combine_roles(
            method.sides_in(facts.setting, facts.feedback).roles, plan.how.for_roster(facts.roster).roles
        )
        known = replace(
            facts, ratings=plan.context.facts.ratings, unit=plan.context.unit, roles=role_members(roles, facts)
        )
        return cls(method, plan.parameters, known, plan, **others)

    def named(self, run: str) -> Self:
        """The same under a name."""
        return replace(self, run=run)

    def comparison(self, name: str) -> Self:
        """Another method with the same facts and the same guarantee, soundly accounted, to compare the run with.

        Where the run uses a paper's formulas, this one gets the ε that truly holds. Where the run's aggregation would
        protect nothing of the method's, every party adds its own noise.
        """
        method, parameters = chosen({"name": name})
        run, plain = f"{self.run}-{name}", self.aggregation.model_copy(update={"name": "plain", "signed": False})
        same: dict[str, Any] = {"public": self.plan.context.facts, "seeded": self.seeded, "run": run}
        stated = self.plan.terms.guarantee
        if self.privacy is not None and isinstance(stated, Guarantee):
            truly = stated.claimed_epsilon is not None and math.isfinite(stated.epsilon)
            epsilon = stated.epsilon if truly else self.privacy.epsilon
            same["privacy"] = PrivacySection(epsilon=epsilon, delta=stated.delta, unit=self.privacy.unit)
        try:
            return self.of(method, parameters, self.facts, aggregation=self.aggregation, **same)
        except PrivacyRefused:
            return self.of(method, parameters, self.facts, aggregation=plain, **same)

    # -- what is promised, and what it takes --------------------------------------------------------------------------

    @cached_property
    def private(self) -> bool:
        """Whether something is promised about what leaves a party."""
        return self.plan.terms.private

    @property
    def guarantee(self) -> Guarantee | NoGuarantee:
        """What is promised."""
        return self.plan.terms.guarantee

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the person who starts the run should know."""
        return self.plan.warnings

    @property
    def sealed(self) -> tuple[str, ...]:
        """The steps of which no single party's contribution is seen."""
        return tuple(name for name, terms in self.plan.terms.steps.items() if terms.sealed)

    @property
    def hidden(self) -> str:
        """What is hidden of a run without privacy, and from whom."""
        return self.guarantee.hidden if isinstance(self.guarantee, NoGuarantee) else ""

    def noise_levels(self) -> list[dict[str, Any]] | None:
        """By step, what is released and how large its noise is; None for NON-PRIVATE."""
        return self.plan.noise_levels() if self.private else None

    def report_costs(self) -> list[dict[str, Any]]:
        """By step, what randomised reports cost; empty for NON-PRIVATE."""
        return self.plan.report_costs()

    def sealing(self) -> dict[str, Any] | None:
        """How sums are hidden; None where none are."""
        return self.plan.sealing()

    def spent(self, asked: Mapping[str, int]) -> float | None:
        """ε of the releases requested so far, by step; None for NON-PRIVATE."""
        return self.plan.spent(asked) if self.private else None

    @cached_property
    def bound(self) -> str:
        """A hash of the parameters and of all terms of the run, which every request contains.

        So a party answers only under the agreed terms, and private streams differ under other terms.
        """
        catalogue, terms = self.facts.catalogue, self.plan.terms
        stated = {
            "parameters": self.parameters.hash,
            "guarantee": str(terms.guarantee) if terms.guarantee.to_json() is None else terms.guarantee.to_json(),
            "steps": {n: plain(step if self.private else (step.sealed, step.code)) for n, step in terms.steps.items()},
            "counted": [str(terms.unit), str(terms.relation), terms.retries],
            "aggregation": [self.plan.how.name, plain(self.plan.how)],
            "features": catalogue.digest if catalogue.columns else "",
            "seed": self.facts.seed if self.private else None,
        }
        return hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()

    # -- both sides ---------------------------------------------------------------------------------------------------

    @cached_property
    def sides(self) -> Sides:
        return self.method.sides_in(self.facts.setting, self.facts.feedback)

    @cached_property
    def how(self) -> Aggregation:
        """The aggregation, for the parties at hand; a cohort of devices runs no protocol, and is simulated."""
        return self.plan.how.for_roster(self.facts.roster)

    @cached_property
    def roles(self) -> dict[str, type[Role]]:
        """The roles in addition to the parties, by name: the method's, and the aggregation's."""
        return combine_roles(self.sides.roles, self.how.roles)

    @cached_property
    def steps(self) -> dict[str, Step]:
        """The steps of parties and other roles."""
        return all_steps(self.sides.party.steps, self.roles)

    @cached_property
    def signed(self) -> bool:
        """Whether parties sign their messages in a hidden sum, so that both sides need keys."""
        return self.how.signs

    @cached_property
    def proxied(self) -> bool:
        """Whether contributions go through a proxy."""
        return self.how.through_proxy

    def _peers(self, keys: Keys | None) -> Peers:
        """All peers, with their signing keys where these are needed."""
        names = tuple(member.name for member in self.facts.roster)
        keys = keys or Keys()
        own, public = (keys.own, dict(keys.public)) if self.signed else (None, None)
        return Peers(self.run, names, own, public, keys.to_proxy, keys.from_proxy)

    def party(self, share: Share, record: Record | None = None, keys: Keys | None = None) -> Party:
        """One party of the run, with its own gate; in a private run it needs its record."""
        terms, protection = self.plan.terms, None
        if self.private:
            if record is None:
                raise UsageError(f"{share.name} takes part in a private run and has no ledger; give it one.")
            people = (*record.people, *charged_items(share, self.facts.setting, terms.unit))
            protection = Protection(terms, record.ledger, record.budget, self.run, people)
        gate = Gate(
            share.name,
            self.facts.seed,
            {},
            share.devices,
            protection,
            terms,
            self.how,
            self._peers(keys),
            self.facts.weight(share.name),
            self.facts.member(share.name).users,
        )
        return self.sides.party(share, self.parameters, self.facts, gate)

    def role(self, name: str, catalogue: Catalogue | None = None, keys: Keys | None = None) -> Role:
        """One role of the run, with its own gate; `catalogue` is what only it holds, and is no one's record."""
        if name not in self.roles:
            known = ", ".join(self.roles) or "none"
            raise UsageError(f'{self.method.name} has no role "{name}" in this run; its roles are: {known}.')
        gate = RoleGate(name, self.facts.seed, {}, self.plan.terms, self.how, self._peers(keys), self.seeded)
        return self.roles[name](name, self.parameters, self.facts, gate, catalogue, self.sides.party.steps)

    def federation(
        self,
        engine: Engine,
        *,
        keys: Keys | None = None,
        log: Log | None = None,
        transcript: Transcript | None = None,
        observer: Observer | None = None,
    ) -> Federation:
        """The parties and other roles, as the run's coordinator sees them."""
        return Federation(
            engine,
            self.facts,
            self.steps,
            terms=self.plan.terms,
            how=self.how,
            peers=self._peers(keys),
            method=self.method.name,
            parameters=self.bound,
            dimensions=self.parameters.dimensions,
            log=log,
            stop_on_refusal=self.privacy is not None and self.privacy.on_refusal == "stop",
            dropout=self.aggregation.dropout,
            transcript=transcript,
            observer=observer,
        )

    def coordinate(self, federation: Federation) -> Model:
        """Run the method's protocol, from the coordinator's side."""
        return self.sides.coordinator(self.parameters, self.facts).run(federation)


def plain(value: Any) -> Any:
    """A frozen value as names, text and numbers, the same on every side; 1 and 1.0 are one number."""
    if is_dataclass(value):
        parts = {part.name: plain(getattr(value, part.name)) for part in fields(value)}
        return [type(value).__name__, parts]
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if not isinstance(value, int | float):
        raise UsageError(
            f"What a method states contains a {type(value).__name__}, where only names, numbers and tuples of these "
            "may be; leave data and other objects out of queries and parameters."
        )
    return float(value) if float(value) == value else str(value)


def parties_in(facts: Facts) -> int:
    """How many parties there are, devices of a cohort counted one by one."""
    return sum(max(1, member.devices) for member in facts.roster)


def check_aggregation(aggregation: AggregationSection, seeded: bool) -> None:
    """Refuse an aggregation that does not exist, or not in this kind of run."""
    name = aggregation.name
    found = aggregations.find(name)
    if aggregation.signed and name != "secagg":
        raise UsageError(
            f'[aggregation] signed = true is for "secagg", whose survivors sign who stayed; "{name}" has none.'
        )
    if not seeded and found.only_simulated:
        raise PrivacyRefused(
            f'[engine] seeded = false asks for noise that holds outside a simulation, and "{name}" exists in '
            'simulations only; use "secagg" or "plain".'
        )


def check_cohorts(facts: Facts, seeded: bool) -> None:
    """Refuse a cohort where the noise has to hold outside a simulation."""
    if not seeded and any(member.devices > 1 for member in facts.roster):
        raise PrivacyRefused(
            "[engine] seeded = false asks for noise that holds outside a simulation, and a cohort simulates many "
            f"devices at once; let each be a party, with [partition] into = {facts.users}, or leave it out."
        )


def declared_facts(facts: Facts, ratings: int | None = None) -> PublicFacts:
    """The public facts of a run that declares none, but how many `ratings`; refuses what was read off those."""
    if not facts.scale.declared:
        raise UsageError(
            f"The scale {facts.scale} was read off the ratings, which would be a leak with privacy; declare it, "
            "as in tacit.load(…, scale=(1, 5))."
        )
    if not facts.item_ids.listed:
        raise UsageError(
            "The items are known from ratings alone, and a list of rated items would be a leak with privacy; name the "
            'catalogue, as in tacit.load(…, catalogue="items.csv").'
        )
    return counted_facts(facts, ratings or TYPICAL_RATINGS * facts.users)


def counted_facts(facts: Facts, ratings: int | None = None) -> PublicFacts:
    """What the parties' own sizes say; `ratings` replaces their number, where that may not be counted."""
    number = facts.ratings if ratings is None else ratings
    return PublicFacts(facts.users, facts.items, facts.scale, number, facts.catalogue.width, facts.feedback)
