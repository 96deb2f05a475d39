"""A simulation: one method's conversation over parties in this process, and an experimenter who looks on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.data.catalogue import Catalogue
from tacit.data.ratings import Ratings
from tacit.engine.call_log import CallLog
from tacit.engine.checkpoint import SavedRun
from tacit.engine.inprocess import InProcess
from tacit.engine.serve import Memory
from tacit.federation import Facts, Party, Role, Transcript
from tacit.kernels.blas import one_blas_thread
from tacit.model import Fitted, Model, Part, Predictor, assemble
from tacit.model.predictor import WithNewUsers
from tacit.partition import Parties, Setting
from tacit.prepare.prepared import Keys, PreparedRun
from tacit.prepare.progress import RoundProgress
from tacit.prepare.simulated_ledgers import Records
from tacit.rng import derive, stream_key

#: How many test ratings are looked at after every round; the final metrics use all of them.
GLANCE = 200_000


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
    history: tuple[RoundProgress, ...]
    seconds: float
    void: int = 0
    rejected: Mapping[str, str] = field(default_factory=dict)


def train(
    prepared: PreparedRun,
    parties: Parties,
    *,
    records: Records | None = None,
    saved: SavedRun | None = None,
    timeout: float | None = None,
    payloads: Path | None = None,
    test: Ratings | None = None,
    watch: Callable[[RoundProgress], None] | None = None,
    brought: Mapping[str, Catalogue] | None = None,
) -> Trained:
    """Hold a prepared run's conversation over `parties` in this process.

    A private run has `records`, and goes on from their log; one without privacy goes on from `saved`. `brought` is what
    other roles have of their own, by name.
    """
    own = _seeded_keys(prepared)
    public = {name: key.public_key() for name, key in own.items()}
    kept = [None if records is None else records.of_party(share) for share in parties]
    members = tuple(
        prepared.party(share, record, Keys(public, own.get(share.name)))
        for share, record in zip(parties, kept, strict=True)
    )
    roles = tuple(
        prepared.role(name, (brought or {}).get(name), Keys(public, own.get(name))) for name in prepared.roles
    )
    transcript = Transcript(payloads)
    onlooker = _Onlooker(prepared, members, parties, transcript, test, watch)
    if saved is not None:
        onlooker.seen(saved.restore({peer.name: peer.home for peer in (*members, *roles)}, onlooker.told))
    log = None if records is None else records.log
    memories = {} if log is None else {role.name: _remembered(role, prepared.run, log) for role in roles}
    engine = InProcess((*members, *roles), timeout=timeout, memories=memories)
    federation = prepared.federation(
        engine,
        keys=Keys(public),
        log=saved if records is None else log,
        transcript=transcript,
        observer=onlooker,
    )
    began = perf_counter()
    try:
        with one_blas_thread():
            model = prepared.coordinate(federation)
        if saved is not None:
            saved.trained()
    finally:
        engine.close()
        for record in kept:
            if record is not None:
                record.ledger.close()
        if log is not None:
            log.close()
        if saved is not None:
            saved.close()
    return Trained(
        model=model,
        parties=members,
        facts=prepared.facts,
        transcript=transcript,
        predictor=onlooker.predictor(),
        before_fine_tuning=onlooker.before_fine_tuning(),
        rounds=federation.rounds_done,
        history=tuple(onlooker.history),
        seconds=perf_counter() - began,
        void=federation.void,
        rejected=dict(federation.rejected),
    )


def _remembered(role: Role, run: str, log: CallLog) -> Memory:
    """Where a role without a ledger keeps its latest answer, beside the run's log; what it had at home is put back."""
    memory = Memory(log.path.with_name(f"{role.name}.tct"), run)
    memory.recall(role.home)
    return memory


def _seeded_keys(prepared: PreparedRun) -> dict[str, Ed25519PrivateKey]:
    """Everybody's signing keys where survivors sign who stayed; derived from the seed, since this is a simulation."""
    if not prepared.signed:
        return {}
    seed, names = prepared.facts.seed, [member.name for member in (*prepared.facts.roster, *prepared.facts.roles)]
    return {name: Ed25519PrivateKey.from_private_bytes(stream_key(seed, name, "identity")) for name in names}


class _Onlooker:
    """The experimenter of a simulation, who may look into every party. A deployment has none."""

    def __init__(
        self,
        prepared: PreparedRun,
        members: tuple[Party, ...],
        parties: Parties,
        transcript: Transcript,
        test: Ratings | None,
        watch: Callable[[RoundProgress], None] | None,
    ) -> None:
        self.history: list[RoundProgress] = []
        self._prepared, self._members, self._parties = prepared, members, parties
        self._transcript, self._watch = transcript, watch
        self._shared: Mapping[str, np.ndarray] = {}
        self._pairs = None if test is None else _glance_at(test, prepared.facts.seed)
        self._before: dict[int, float | None] = {}

    def seen(self, rounds: list[Any]) -> None:
        """What was seen of rounds that are replayed now: parties are further by now, and would show something else."""
        self._before = dict(rounds)

    def told(self) -> list[Any]:
        """What was seen of rounds so far, for `seen`."""
        return [(glance.round, glance.mse) for glance in self.history]

    def __call__(self, round: int, rounds: int, shared: Mapping[str, np.ndarray]) -> None:
        self._shared = shared
        mse = self._before.pop(round, None)
        if mse is None and self._pairs is not None:
            users, items, values = self._pairs
            predictor = self.predictor()
            if predictor.rates:
                errors = predictor.predict(users, items) - values
                mse = float(np.mean(np.square(errors, dtype=np.float64)))
        spent = self._prepared.spent(self._transcript.requests_by_step)
        self.history.append(RoundProgress(round, rounds, mse, self._transcript.meter.bytes_up, spent))
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


def with_newcomers(trained: Trained, support: Ratings | None, n_users: int) -> Predictor:
    """The trained predictor, with users who were held out of training folded in from their support ratings."""
    if support is None or not trained.model.form.width:
        return trained.predictor
    rows = np.flatnonzero(support.counts)
    theirs = support.select_users(rows)
    states = trained.model.fold_in(theirs.indptr, theirs.items, theirs.values)
    newcomers = Fitted(trained.model.form, states)
    return WithNewUsers(trained.predictor, rows, newcomers, n_users)
