"""A prepared run: everything that is fixed before the first message, and what each side is built from.

It is the only place that resolves parameters, plans the noise, binds the terms into requests and builds parties and
federation. Simulations, deployments, estimators, the floor and the contract suites all begin with one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import Budget, Protection
from tacit.boundary.seals import Circle
from tacit.config import AggregationSection, PrivacySection
from tacit.data.public import PublicFacts
from tacit.engine.ledgers import charged_items
from tacit.errors import UsageError
from tacit.federation import Facts, Federation, Party, Transcript
from tacit.federation.coordinator import Observer
from tacit.federation.line import Engine, Log
from tacit.guarantee import NON_PRIVATE, Guarantee, NoGuarantee
from tacit.methods import Method, Parameters, chosen
from tacit.methods.base import Sides
from tacit.methods.plan import Plan, affordable
from tacit.model import Model
from tacit.partition import Share
from tacit.prepare.planned import check_aggregation, check_cohorts, declared, has_sums, planned, resolved


@dataclass(frozen=True)
class Keys:
    """Signing keys, for sums whose survivors sign who stayed: everybody's public ones, and at a party its own."""

    public: Mapping[str, Ed25519PublicKey] = field(default_factory=dict)
    own: Ed25519PrivateKey | None = None


@dataclass(frozen=True)
class Record:
    """Where one party records what it releases, what it may spend, and the people that its ledger speaks for."""

    ledger: Ledger
    budget: Budget
    people: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class PreparedRun:
    """One run, before its first message.

    Attributes
    ----------
    method, parameters : what is learned and how, with no default left open
    facts : what everyone may know, with what the plan declares
    plan : what a private run will ask, add and cost; None for NON-PRIVATE
    privacy, aggregation : what was asked for, as in a run file
    seeded : whether private draws come from the seed
    run : the run's own name, in ledgers and signatures
    """

    method: Method
    parameters: Parameters
    facts: Facts
    plan: Plan | None = None
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
    ) -> Self:
        """The run of a method among the parties that `facts` lists; refuses what cannot be kept.

        `public` is what the plan rests on; without it, what `facts` declare.
        """
        aggregation = aggregation or AggregationSection()
        check_aggregation(aggregation, privacy, seeded)
        method.sides_in(facts)
        count = parties_in(facts)
        if privacy is None:
            parameters = resolved(parameters, facts.setting, count)
            return cls(method, parameters, facts, aggregation=aggregation, seeded=seeded, run=run)
        check_cohorts(facts, seeded)
        public = public or declared(facts)
        made = planned(method, parameters, facts.setting, count, public, privacy, aggregation, seeded)
        affordable(made, privacy)
        return cls.by_plan(method, facts, made, privacy=privacy, aggregation=aggregation, seeded=seeded, run=run)

    @classmethod
    def by_plan(cls, method: Method, facts: Facts, plan: Plan, **others: Any) -> Self:
        """The run of a plan that is there already, which brings its own parameters and what it declares."""
        told = replace(facts, ratings=plan.facts.ratings, unit=plan.terms.guarantee.unit, noise=plan.sigma())
        return cls(method, plan.parameters, told, plan, **others)

    def named(self, run: str) -> Self:
        """The same under a name."""
        return replace(self, run=run)

    def beside(self, name: str) -> Self:
        """Another method with the same facts and the same promise, soundly accounted: what a run is compared with.

        Where a run asked for a paper's formulas, this one gets the ε that truly holds. Where the run's aggregation
        would protect nothing of the method's, every party's noise is its own.
        """
        method, parameters = chosen({"name": name})
        run, plain = f"{self.run}-{name}", self.aggregation.model_copy(update={"name": "plain", "signed": False})
        if self.plan is None or self.privacy is None:
            return self.of(method, parameters, self.facts, aggregation=self.aggregation, seeded=self.seeded, run=run)
        stated = self.plan.terms.guarantee
        truly = stated.claimed_epsilon is not None and math.isfinite(stated.epsilon)
        epsilon = stated.epsilon if truly else self.privacy.epsilon
        same: dict[str, Any] = {
            "privacy": PrivacySection(epsilon=epsilon, delta=stated.delta, unit=self.privacy.unit),
            "public": self.plan.facts,
            "seeded": self.seeded,
            "run": run,
        }
        alone = self.of(method, parameters, self.facts, aggregation=plain, **same)
        if self.aggregation.name in ("ideal", "secagg") and alone.plan is not None and has_sums(alone.plan):
            return self.of(method, parameters, self.facts, aggregation=self.aggregation, **same)
        return alone

    # -- what is promised, and what it takes --------------------------------------------------------------------------

    @property
    def private(self) -> bool:
        """Whether something is promised about what leaves a party."""
        return self.plan is not None

    @property
    def guarantee(self) -> Guarantee | NoGuarantee:
        """What is promised."""
        return NON_PRIVATE if self.plan is None else self.plan.terms.guarantee

    @property
    def warnings(self) -> tuple[str, ...]:
        """What whoever asked for the run should know."""
        return () if self.plan is None else self.plan.warnings

    @property
    def sealed(self) -> bool:
        """Whether nobody sees a single contribution to a sum."""
        return self.plan is not None and self.plan.situation.sealed

    def loudness(self) -> list[dict[str, Any]] | None:
        """By step, what is asked and how loud its noise is; None for NON-PRIVATE."""
        return None if self.plan is None else self.plan.loudness()

    def sealing(self) -> dict[str, Any] | None:
        """How sums are sealed; None where nothing is masked."""
        return None if self.plan is None else self.plan.sealing()

    def spent(self, asked: Mapping[str, int]) -> float | None:
        """ε of the releases that were asked for so far, by step; None for NON-PRIVATE."""
        return None if self.plan is None else self.plan.spent(asked)

    @property
    def rounds(self) -> int:
        """How many rounds the method announces, for progress; 1 where it has no such parameter."""
        return int(getattr(self.parameters, "rounds", getattr(self.parameters, "epochs", 1)))

    @cached_property
    def bound(self) -> str:
        """What every request binds beside its own content: the parameters, and what is promised."""
        if self.plan is None:
            return self.parameters.hash
        terms = self.plan.terms
        promise = f"|{terms.guarantee.to_json()}|{terms.multiplier!r}|{dict(terms.schedule)}|{dict(terms.grids)}"
        return f"{self.parameters.hash}{promise}|{self.facts.seed}"

    # -- both sides ---------------------------------------------------------------------------------------------------

    @cached_property
    def sides(self) -> Sides:
        return self.method.sides_in(self.facts)

    @cached_property
    def circle(self) -> Circle | None:
        """Who makes masks with whom, where each party of the roster is one; a cohort of devices is simulated."""
        if self.plan is None:
            return None
        shares, situation = self.plan.situation.shares, self.plan.situation
        if shares is None or any(member.devices > 1 for member in self.facts.roster):
            return None
        shape, names = situation.shape, tuple(member.name for member in self.facts.roster)
        if shape is None or shape.parties != len(names):
            raise UsageError(
                f"The noise was planned for {shares.parties:,} parties, and {len(names):,} take part; plan anew."
            )
        return Circle(self.run, names, shape, shares)

    @property
    def signed(self) -> bool:
        """Whether survivors of a sum sign who stayed, so that both sides need keys."""
        return self.circle is not None and self.circle.shape.signed

    def _circle(self, keys: Keys | None) -> Circle | None:
        """The circle with everybody's signing keys, where survivors sign who stayed."""
        if self.circle is None or not self.signed:
            return self.circle
        keys = keys or Keys()
        return replace(self.circle, identity=keys.own, identities=dict(keys.public))

    def party(self, share: Share, record: Record | None = None, keys: Keys | None = None) -> Party:
        """One party of the run; a private one needs its record."""
        protection = None
        if self.plan is not None:
            if record is None:
                raise UsageError(f"{share.name} takes part in a private run and has no ledger; give it one.")
            terms, units = self.plan.terms, charged_items(share, self.facts.setting, self.plan.terms.unit)
            people = (*record.people, *units)
            circle = self._circle(keys)
            protection = Protection(terms, record.ledger, record.budget, self.run, self.facts.seed, people, circle)
        return self.method.make_party(share, self.parameters, self.facts, protection)

    def federation(
        self,
        engine: Engine,
        *,
        keys: Keys | None = None,
        log: Log | None = None,
        transcript: Transcript | None = None,
        observer: Observer | None = None,
    ) -> Federation:
        """The parties, as the run's coordinator sees them."""
        private: dict[str, Any] = {}
        if self.plan is not None:
            here = self.plan.situation
            private = {
                "aggregation": here.aggregation,
                "sigma": self.plan.sigma(),
                "grids": self.plan.terms.grids,
                "circle": self._circle(keys),
                "retries": here.retries,
                "traffic": here.traffic,
                "crowd": here.fewest_reports,
            }
        return Federation(
            engine,
            self.facts,
            self.sides.party.steps,
            method=self.method.name,
            parameters=self.bound,
            dimensions=self.parameters.dimensions,
            log=log,
            stop_on_refusal=self.privacy is not None and self.privacy.on_refusal == "stop",
            dropout=self.aggregation.dropout,
            transcript=transcript,
            observer=observer,
            **private,
        )

    def coordinate(self, federation: Federation) -> Model:
        """Hold the method's conversation, from the coordinator's side."""
        return self.sides.coordinator(self.parameters, self.facts).run(federation)


def parties_in(facts: Facts) -> int:
    """How many parties there are, devices of a cohort counted one by one."""
    return sum(max(1, member.devices) for member in facts.roster)
