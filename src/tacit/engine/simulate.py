"""A simulation: one method's conversation over parties in this process, and an experimenter who looks on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.boundary.ledger import Ledger, ledgers_in
from tacit.boundary.protection import Budget, Protection, total_epsilon
from tacit.boundary.seals import Circle
from tacit.data.ratings import Ratings
from tacit.engine.inprocess import InProcess
from tacit.engine.log import CallLog
from tacit.errors import UsageError
from tacit.federation import Facts, Federation, Party, Transcript
from tacit.methods import Method, Parameters
from tacit.methods.asked import Situation
from tacit.methods.plan import Plan
from tacit.model import Factors, Model, Part, Predictor, assemble
from tacit.model.predictor import Overlay
from tacit.partition import Parties, Setting, Share
from tacit.rng import derive, stream_key

#: How many test ratings are looked at after every round; the final metrics use all of them.
GLANCE = 200_000


@dataclass(frozen=True)
class Glance:
    """What the experimenter sees after a round."""

    round: int
    rounds: int
    mse: float | None
    bytes_up: int
    epsilon: float | None = None


@dataclass(frozen=True)
class Safeguards:
    """What makes a run private and resumable: the plan, the parties' ledgers and budget, the log."""

    plan: Plan
    run: str
    ledgers: Path
    budget: Budget
    log: CallLog | None = None
    stop_on_refusal: bool = False

    @property
    def promise(self) -> str:
        """What every request binds beside the method's parameters."""
        terms = self.plan.terms
        return f"|{terms.guarantee.to_json()}|{terms.multiplier!r}|{dict(terms.schedule)}|{dict(terms.grids)}"

    def circle(self, facts: Facts) -> Circle | None:
        """Who makes masks with whom, where each party of the roster is one; a cohort of devices is simulated."""
        shares, situation = self.plan.situation.shares, self.plan.situation
        if shares is None or any(member.devices > 1 for member in facts.roster):
            return None
        shape, names = situation.shape, tuple(member.name for member in facts.roster)
        if shape is None or shape.parties != len(names):
            raise UsageError(
                f"The noise was planned for {shares.parties:,} parties, and {len(names):,} take part; plan anew."
            )
        return Circle(self.run, names, shape, shares)

    def lifetime_notes(self) -> tuple[str, ...]:
        """What the ledgers hold over all runs, where that is more than this one; a budget for a period forgets."""
        reached = 0.0
        for path in ledgers_in(self.ledgers):
            ledger = Ledger.open(path)
            if len({row.run for row in ledger.rows()}) > 1:
                reached = max(reached, total_epsilon(ledger.rows(), self.budget.delta, self.plan.terms.relation))
            ledger.close()
        words = f"Over the lifetime of the ledgers, all runs together: ε = {math.ceil(reached * 100) / 100:.2f} at most"
        return (f"{words}, at δ = {self.budget.delta:g}.",) if reached else ()

    def protect(self, share: Share, seed: int, circle: Circle | None) -> Protection:
        """One party's protection, with its own ledger, which is bound to the party's people."""
        ledger = Ledger(self.ledgers / f"{share.name}.sqlite", share.name)
        people = [str(user) for user in share.ratings.user_ids.ids]
        return Protection(
            self.plan.terms, ledger, self.budget, self.run, seed, people, _known(circle, share.name, seed)
        )


@dataclass(frozen=True, eq=False)
class Trained:
    """What a conversation leaves: the shared model, the parties with what they keep, and what crossed."""

    model: Model
    parties: tuple[Party, ...]
    facts: Facts
    transcript: Transcript
    predictor: Predictor
    before_fine_tuning: Predictor | None
    rounds: int
    history: tuple[Glance, ...]
    seconds: float
    void: int = 0
    rejected: Mapping[str, str] = field(default_factory=dict)


def train(
    method: Method,
    parameters: Parameters,
    parties: Parties,
    *,
    seed: int,
    dropout: float = 0.0,
    timeout: float | None = None,
    payloads: Path | None = None,
    safeguards: Safeguards | None = None,
    test: Ratings | None = None,
    watch: Callable[[Glance], None] | None = None,
) -> Trained:
    """Hold one method's conversation over `parties` in this process."""
    facts = Facts.of(parties, seed)
    if safeguards is None:
        parameters = parameters.resolved(None, Situation(parties.setting, len(parties), sealed=False))
    else:
        plan = safeguards.plan
        parameters, declared = plan.parameters, plan.facts.ratings
        facts = replace(facts, ratings=declared, unit=plan.terms.guarantee.unit, noise=plan.sigma())
    sides = method.sides_in(facts)
    promise = "" if safeguards is None else f"{safeguards.promise}|{seed}"
    circle = None if safeguards is None else safeguards.circle(facts)
    guarded = [None if safeguards is None else safeguards.protect(share, seed, circle) for share in parties]
    members = tuple(
        method.make_party(share, parameters, facts, protection)
        for share, protection in zip(parties, guarded, strict=True)
    )
    transcript = Transcript(payloads)
    curve = None if safeguards is None else safeguards.plan.curve()
    onlooker = _Onlooker(members, parties, transcript, _rounds(parameters), test, seed, watch, curve)
    engine = InProcess(members, timeout=timeout)
    federation = Federation(
        engine,
        facts,
        sides.party.steps,
        method=method.name,
        parameters=parameters.hash + promise,
        aggregation=None if safeguards is None else safeguards.plan.situation.aggregation,
        log=None if safeguards is None else safeguards.log,
        stop_on_refusal=safeguards is not None and safeguards.stop_on_refusal,
        sigma=None if safeguards is None else safeguards.plan.sigma(),
        grids=None if safeguards is None else safeguards.plan.terms.grids,
        circle=_known(circle, None, seed),
        retries=0 if safeguards is None else safeguards.plan.situation.retries,
        traffic=None if safeguards is None else safeguards.plan.situation.traffic,
        crowd=0 if safeguards is None else safeguards.plan.situation.fewest_reports,
        dimensions=parameters.dimensions,
        dropout=dropout,
        transcript=transcript,
        observer=onlooker,
    )
    began = perf_counter()
    try:
        model = sides.coordinator(parameters, facts).run(federation)
    finally:
        engine.close()
        for protection in guarded:
            if protection is not None:
                protection.ledger.close()
        if safeguards is not None and safeguards.log is not None:
            safeguards.log.close()
    return Trained(
        model=model,
        parties=members,
        facts=facts,
        transcript=transcript,
        predictor=onlooker.predictor(),
        before_fine_tuning=onlooker.before_fine_tuning(),
        rounds=federation.rounds_done,
        history=tuple(onlooker.history),
        seconds=perf_counter() - began,
        void=federation.void,
        rejected=dict(federation.rejected),
    )


def _known(circle: Circle | None, name: str | None, seed: int) -> Circle | None:
    """A circle with everybody's signing keys, as `name` has them; derived from the seed, since this is a simulation."""
    if circle is None or not circle.shape.signed:
        return circle
    private = {
        member: Ed25519PrivateKey.from_private_bytes(stream_key(seed, member, "identity")) for member in circle.names
    }
    public = {member: key.public_key() for member, key in private.items()}
    return replace(circle, identity=private.get(name or ""), identities=public)


class _Onlooker:
    """The experimenter of a simulation, who may look into every party. A deployment has none."""

    def __init__(
        self,
        members: tuple[Party, ...],
        parties: Parties,
        transcript: Transcript,
        rounds: int,
        test: Ratings | None,
        seed: int,
        watch: Callable[[Glance], None] | None,
        curve: np.ndarray | None = None,
    ) -> None:
        self._curve = curve
        self.history: list[Glance] = []
        self._members, self._parties, self._transcript = members, parties, transcript
        self._rounds, self._watch = rounds, watch
        self._shared: Mapping[str, np.ndarray] = {}
        self._pairs = None if test is None else _glance_at(test, seed)

    def __call__(self, round: int, shared: Mapping[str, np.ndarray]) -> None:
        self._shared = shared
        mse = None
        if self._pairs is not None:
            users, items, values = self._pairs
            predictor = self.predictor()
            if predictor.rates:
                errors = predictor.predict(users, items) - values
                mse = float(np.mean(np.square(errors, dtype=np.float64)))
        spent = None if self._curve is None else float(self._curve[min(round, len(self._curve) - 1)])
        self.history.append(Glance(round, self._rounds, mse, self._transcript.meter.bytes_up, spent))
        if self._watch is not None:
            self._watch(self.history[-1])

    def predictor(self) -> Predictor:
        """All parties' predictions for their own rows and columns, as one."""
        return self._assembled([member.at_home(**self._shared) for member in self._members])

    def before_fine_tuning(self) -> Predictor | None:
        """The same before parties improved the shared part for themselves; None where they do not."""
        before = [member.before_fine_tuning(**self._shared) for member in self._members]
        known = [predictor for predictor in before if predictor is not None]
        return self._assembled(known) if len(known) == len(before) else None

    def _assembled(self, predictors: list[Predictor]) -> Predictor:
        parts = [Part(s.users, s.items, p) for s, p in zip(self._parties, predictors, strict=True)]
        vertical = self._parties.setting is Setting.VERTICAL
        return assemble(parts, self._parties.n_users, self._parties.n_items, by_item=vertical)


def _glance_at(test: Ratings, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    users, items, values = test.users, test.items, test.values
    if len(values) <= GLANCE:
        return users, items, values
    some = np.sort(derive(seed, "glance").choice(len(values), GLANCE, replace=False))
    return users[some], items[some], values[some]


def _rounds(parameters: Parameters) -> int:
    """How many rounds a method announces, for progress; 1 where it has no such parameter."""
    return int(getattr(parameters, "rounds", getattr(parameters, "epochs", 1)))


def with_newcomers(trained: Trained, support: Ratings | None, n_users: int) -> Predictor:
    """The trained predictor, with users who were held out of training folded in from their support ratings."""
    if support is None or trained.model.item_factors is None:
        return trained.predictor
    rows = np.flatnonzero(support.counts)
    theirs = support.select_users(rows)
    factors = trained.model.fold_in(theirs.indptr, theirs.items, theirs.values)
    newcomers = Factors(trained.facts.scale.low, factors, trained.model.item_factors)
    return Overlay(trained.predictor, rows, newcomers, n_users)
