"""What everybody in a run has agreed on before its first message; each side makes its part of the run from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import Budget, Protection
from tacit.boundary.seals import Circle
from tacit.errors import UsageError
from tacit.federation import Facts, Federation, Party, Transcript
from tacit.federation.coordinator import Observer
from tacit.federation.line import Engine, Log
from tacit.methods import Method, Parameters
from tacit.methods.asked import Situation
from tacit.methods.base import Sides
from tacit.methods.plan import Plan
from tacit.partition import Share


@dataclass(frozen=True, eq=False)
class Agreement:
    """One run, before it starts.

    Attributes
    ----------
    method, parameters : what is learned and how, with no default left open
    facts : what everyone may know
    plan : what a private run will ask, add and cost; None for NON-PRIVATE
    run : the run's own name, in ledgers and signatures
    """

    method: Method
    parameters: Parameters
    facts: Facts
    plan: Plan | None = None
    run: str = ""

    @classmethod
    def over(
        cls, method: Method, parameters: Parameters, facts: Facts, plan: Plan | None = None, run: str = ""
    ) -> Self:
        """The agreement of a run among the parties that `facts` lists; a plan brings its own parameters."""
        if plan is None:
            situation = Situation(facts.setting, len(facts.roster), sealed=False)
            return cls(method, parameters.resolved(None, situation), facts, None, run)
        planned = replace(facts, ratings=plan.facts.ratings, unit=plan.terms.guarantee.unit, noise=plan.sigma())
        return cls(method, plan.parameters, planned, plan, run)

    @cached_property
    def sides(self) -> Sides:
        return self.method.sides_in(self.facts)

    @cached_property
    def bound(self) -> str:
        """What every request binds beside its own content: the parameters, and what is promised."""
        if self.plan is None:
            return self.parameters.hash
        terms = self.plan.terms
        promise = f"|{terms.guarantee.to_json()}|{terms.multiplier!r}|{dict(terms.schedule)}|{dict(terms.grids)}"
        return f"{self.parameters.hash}{promise}|{self.facts.seed}"

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

    def known(
        self, public: Mapping[str, Ed25519PublicKey] | None = None, own: Ed25519PrivateKey | None = None
    ) -> Circle | None:
        """The circle with everybody's signing keys, where survivors sign who stayed."""
        if self.circle is None or not self.circle.shape.signed:
            return self.circle
        return replace(self.circle, identity=own, identities=dict(public or {}))

    def protection(
        self, ledger: Ledger, budget: Budget, people: Sequence[str], circle: Circle | None
    ) -> Protection | None:
        """What guards one party's releases; None for NON-PRIVATE."""
        if self.plan is None:
            return None
        return Protection(self.plan.terms, ledger, budget, self.run, self.facts.seed, people, circle)

    def party(self, share: Share, protection: Protection | None) -> Party:
        """One party of the run."""
        return self.method.make_party(share, self.parameters, self.facts, protection)

    def federation(
        self,
        engine: Engine,
        *,
        circle: Circle | None = None,
        log: Log | None = None,
        stop_on_refusal: bool = False,
        dropout: float = 0.0,
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
                "circle": circle,
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
            stop_on_refusal=stop_on_refusal,
            dropout=dropout,
            transcript=transcript,
            observer=observer,
            **private,
        )
