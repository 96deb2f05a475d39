"""A simulation: one method's conversation over parties in this process, and an experimenter who looks on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.boundary.ledger import Ledger, ledgers_in
from tacit.boundary.lock import alone
from tacit.boundary.protection import Budget, Protection, total_epsilon
from tacit.boundary.seals import Circle
from tacit.data.ratings import Ratings
from tacit.engine.agreement import Agreement
from tacit.engine.inprocess import InProcess
from tacit.engine.ledgers import Heads, charged_items, latest, not_older, opened, past_stays, people_of
from tacit.engine.log import CallLog
from tacit.engine.saved import SavedRun
from tacit.federation import Facts, Party, Transcript
from tacit.kernels.blas import one_blas_thread
from tacit.methods import Method, Parameters
from tacit.methods.plan import Plan
from tacit.model import Fitted, Model, Part, Predictor, assemble
from tacit.model.predictor import Overlay
from tacit.partition import Parties, Setting, Share
from tacit.rng import derive, stream_key

#: How many test ratings are looked at after every round; the final metrics use all of them.
GLANCE = 200_000


#: Hears what a run is doing beside its rounds and, where it is known, which part of that is done, a number up to 1.
Phase = Callable[[str, float | None], None]


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
    heads: Heads | None = None

    @contextmanager
    def over(self, parties: Parties) -> Iterator[None]:
        """While no other process uses the ledgers, once they were looked at as a whole: see `engine.ledgers`.

        `heads` are those of ledgers that are kept from run to run, and None for those of one run.
        """
        with alone(self.ledgers, "the ledgers", "name another folder with [privacy] ledger"):
            try:
                with opened(self.ledgers) as ledgers:
                    if self.heads is not None:
                        not_older(ledgers, self.heads)
                    past_stays(ledgers, parties, self.plan.terms.unit, self.run)
                if self.heads is not None:
                    self.heads.begin(None if self.log is None else self.log.path)
            except BaseException:
                if self.log is not None:
                    self.log.close()
                raise
            try:
                yield
            finally:
                if self.heads is not None:
                    with opened(self.ledgers) as ledgers:
                        self.heads.end(latest(ledgers, self.heads))

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

    def protect(self, share: Share, agreed: Agreement, circle: Circle | None) -> Protection | None:
        """One party's protection, with its own ledger, which is bound to the party's people."""
        ledger = Ledger(self.ledgers / f"{share.name}.sqlite", share.name)
        items = charged_items(share, agreed.facts.setting, self.plan.terms.unit)
        return agreed.protection(ledger, self.budget, people_of(share) + items, circle)


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
    saved: SavedRun | None = None,
    test: Ratings | None = None,
    watch: Callable[[Glance], None] | None = None,
) -> Trained:
    """Hold one method's conversation over `parties` in this process; without safeguards it goes on from `saved`."""
    plan, run = (None, "") if safeguards is None else (safeguards.plan, safeguards.run)
    agreed = Agreement.over(method, parameters, Facts.of(parties, seed), plan, run)
    sides = agreed.sides
    keys = _seeded_keys(agreed, seed)
    public = {name: key.public_key() for name, key in keys.items()}
    guarded = [
        None if safeguards is None else safeguards.protect(share, agreed, agreed.known(public, keys.get(share.name)))
        for share in parties
    ]
    members = tuple(agreed.party(share, guard) for share, guard in zip(parties, guarded, strict=True))
    transcript = Transcript(payloads)
    onlooker = _Onlooker(members, parties, transcript, announced(agreed.parameters), test, seed, watch, plan)
    if saved is not None:
        onlooker.seen(saved.restore({member.name: member.home for member in members}, onlooker.told))
    engine = InProcess(members, timeout=timeout)
    federation = agreed.federation(
        engine,
        circle=agreed.known(public),
        log=saved if safeguards is None else safeguards.log,
        stop_on_refusal=safeguards is not None and safeguards.stop_on_refusal,
        dropout=dropout,
        transcript=transcript,
        observer=onlooker,
    )
    began = perf_counter()
    try:
        with one_blas_thread():
            model = sides.coordinator(agreed.parameters, agreed.facts).run(federation)
        if saved is not None:
            saved.trained()
    finally:
        engine.close()
        for protection in guarded:
            if protection is not None:
                protection.ledger.close()
        if safeguards is not None and safeguards.log is not None:
            safeguards.log.close()
        if saved is not None:
            saved.close()
    return Trained(
        model=model,
        parties=members,
        facts=agreed.facts,
        transcript=transcript,
        predictor=onlooker.predictor(),
        before_fine_tuning=onlooker.before_fine_tuning(),
        rounds=federation.rounds_done,
        history=tuple(onlooker.history),
        seconds=perf_counter() - began,
        void=federation.void,
        rejected=dict(federation.rejected),
    )


def _seeded_keys(agreed: Agreement, seed: int) -> dict[str, Ed25519PrivateKey]:
    """Everybody's signing keys where survivors sign who stayed; derived from the seed, since this is a simulation."""
    if agreed.circle is None or not agreed.circle.shape.signed:
        return {}
    names = agreed.circle.names
    return {name: Ed25519PrivateKey.from_private_bytes(stream_key(seed, name, "identity")) for name in names}


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
        plan: Plan | None = None,
    ) -> None:
        self._plan = plan
        self.history: list[Glance] = []
        self._members, self._parties, self._transcript = members, parties, transcript
        self._rounds, self._watch = rounds, watch
        self._shared: Mapping[str, np.ndarray] = {}
        self._pairs = None if test is None else _glance_at(test, seed)
        self._before: dict[int, float | None] = {}

    def seen(self, rounds: list[Any]) -> None:
        """What was seen of rounds that are replayed now: parties are further by now, and would show something else."""
        self._before = dict(rounds)

    def told(self) -> list[Any]:
        """What was seen of rounds so far, for `seen`."""
        return [(glance.round, glance.mse) for glance in self.history]

    def __call__(self, round: int, shared: Mapping[str, np.ndarray]) -> None:
        self._shared = shared
        mse = self._before.pop(round, None)
        if mse is None and self._pairs is not None:
            users, items, values = self._pairs
            predictor = self.predictor()
            if predictor.rates:
                errors = predictor.predict(users, items) - values
                mse = float(np.mean(np.square(errors, dtype=np.float64)))
        spent = None if self._plan is None else self._plan.spent(self._transcript.asked)
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

    def _assembled(self, predictors: list[Fitted]) -> Predictor:
        parts = [Part(s.users, s.items, p) for s, p in zip(self._parties, predictors, strict=True)]
        vertical = self._parties.setting is Setting.VERTICAL
        return assemble(parts, self._parties.n_users, self._parties.n_items, by_item=vertical)


def _glance_at(test: Ratings, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    users, items, values = test.users, test.items, test.values
    if len(values) <= GLANCE:
        return users, items, values
    some = np.sort(derive(seed, "glance").choice(len(values), GLANCE, replace=False))
    return users[some], items[some], values[some]


def announced(parameters: Parameters) -> int:
    """How many rounds a method announces, for progress; 1 where it has no such parameter."""
    return int(getattr(parameters, "rounds", getattr(parameters, "epochs", 1)))


def glances(agreed: Agreement, see: Callable[[Glance], None]) -> Callable[[int, Transcript], float | None]:
    """What shows `see` every round: its number, the bytes up, and the ε of what was asked for by then, its result.

    The ε is this run's: what a site has spent over all its runs is in its own ledger.
    """
    rounds, plan = announced(agreed.parameters), agreed.plan

    def look(round: int, transcript: Transcript) -> float | None:
        spent = None if plan is None else plan.spent(transcript.asked)
        see(Glance(round, rounds, None, transcript.meter.bytes_up, spent))
        return spent

    return look


def with_newcomers(trained: Trained, support: Ratings | None, n_users: int) -> Predictor:
    """The trained predictor, with users who were held out of training folded in from their support ratings."""
    if support is None or not trained.model.form.width:
        return trained.predictor
    rows = np.flatnonzero(support.counts)
    theirs = support.select_users(rows)
    states = trained.model.fold_in(theirs.indptr, theirs.items, theirs.values)
    newcomers = Fitted(trained.model.form, states)
    return Overlay(trained.predictor, rows, newcomers, n_users)
