"""A simulation: one run over parties in this process, observed by an experimenter."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from time import perf_counter

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tacit.boundary.randomness import Seeded
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
from tacit.secure.proxy import InProcessProxy

#: How many test ratings are predicted after every round; the final metrics use all of them.
SAMPLE = 200_000


@dataclass(frozen=True, eq=False)
class Trained:
    """The result of a run: the shared model, the parties with what they store at home, and what crossed."""

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
    """Run a prepared run over `parties` in this process.

    A private run has `records`, and resumes from their log; one without privacy resumes from `saved`. `brought` is what
    other roles hold, by name.
    """
    own = _seeded_keys(prepared)
    public = {name: key.public_key() for name, key in own.items()}
    ledgers = [None if records is None else records.of_party(share) for share in parties]
    proxy = in_process_proxy(prepared)
    members = tuple(
        prepared.party(share, record, Keys(public, own.get(share.name), to_proxy=proxy))
        for share, record in zip(parties, ledgers, strict=True)
    )
    roles = tuple(
        prepared.role(name, (brought or {}).get(name), Keys(public, own.get(name))) for name in prepared.roles
    )
    transcript = Transcript(payloads)
    experimenter = _Experimenter(prepared, members, parties, transcript, test, watch)
    if saved is not None:
        homes = {peer.name: peer.home for peer in (*members, *roles)}
        experimenter.replayed = dict(saved.restore(homes, experimenter.measured))
    log = None if records is None else records.log
    memories = {} if log is None else {role.name: _restored(role, prepared.run, log) for role in roles}
    engine = InProcess((*members, *roles), timeout=timeout, memories=memories)
    federation = prepared.federation(
        engine,
        keys=Keys(public, from_proxy=proxy),
        log=saved if records is None else log,
        transcript=transcript,
        observer=experimenter,
    )
    began = perf_counter()
    try:
        with one_blas_thread():
            model = prepared.coordinate(federation)
        if saved is not None:
            saved.trained()
    finally:
        engine.close()
        opened = [record.ledger for record in ledgers if record is not None]
        for resource in (*opened, log, saved):
            if resource is not None:
                resource.close()
    return Trained(
        model=model,
        parties=members,
        facts=prepared.facts,
        transcript=transcript,
        predictor=experimenter.predictor(),
        before_fine_tuning=experimenter.before_fine_tuning(),
        rounds=federation.rounds_done,
        history=tuple(experimenter.history),
        seconds=perf_counter() - began,
        void=federation.void,
        rejected=dict(federation.rejected),
    )


def _restored(role: Role, run: str, log: CallLog) -> Memory:
    """Where a role without a ledger saves its latest answer, next to the run's log; restores what it had at home."""
    memory = Memory(log.path.with_name(f"{role.name}.tct"), run)
    memory.recall(role.home)
    return memory


def _seeded_keys(prepared: PreparedRun) -> dict[str, Ed25519PrivateKey]:
    """All signing keys where survivors sign who stayed; derived from the seed, since this is a simulation."""
    if not prepared.signed:
        return {}
    seed, names = prepared.facts.seed, [member.name for member in (*prepared.facts.roster, *prepared.facts.roles)]
    return {name: Ed25519PrivateKey.from_private_bytes(stream_key(seed, name, "identity")) for name in names}


def in_process_proxy(prepared: PreparedRun) -> InProcessProxy | None:
    """The proxy of a run in this process; seeded in a simulation, though how reports are sealed cannot be."""
    if not prepared.proxied:
        return None
    seed, run = prepared.facts.seed, prepared.run
    private_key = X25519PrivateKey.from_private_bytes(stream_key(seed, run, "report key"))
    if not prepared.seeded:
        return InProcessProxy(private_key, os.urandom)
    drawn = Seeded(stream_key(seed, "proxy"))
    return InProcessProxy(private_key, lambda size: drawn.words(-(-size // 8)).tobytes()[:size])


@dataclass(eq=False)
class _Experimenter:
    """Observes a simulation, with access to every party. A deployment has none.

    `replayed` are errors by round from before a run was cut short: parties have moved on, and would show others.
    """

    prepared: PreparedRun
    members: tuple[Party, ...]
    parties: Parties
    transcript: Transcript
    test: Ratings | None
    watch: Callable[[RoundProgress], None] | None
    history: list[RoundProgress] = field(default_factory=list)
    shared: Mapping[str, np.ndarray] = field(default_factory=dict)
    replayed: dict[int, float | None] = field(default_factory=dict)

    def measured(self) -> list[tuple[int, float | None]]:
        """The errors of the rounds so far, for `replayed`."""
        return [(progress.round, progress.mse) for progress in self.history]

    def __call__(self, round: int, rounds: int, shared: Mapping[str, np.ndarray]) -> None:
        self.shared = shared
        mse = self.replayed.pop(round, None)
        if mse is None and self.test is not None:
            mse = self._error()
        spent = self.prepared.spent(self.transcript.requests_by_step) if self.prepared.private else None
        self.history.append(RoundProgress(round, rounds, mse, self.transcript.meter.bytes_up, spent))
        if self.watch is not None:
            self.watch(self.history[-1])

    def _error(self) -> float | None:
        """The mean squared error on a sample of the test ratings; None for a method that only ranks."""
        predictor = self.predictor()
        if not predictor.rates:
            return None
        users, items, values = self._sample
        errors = predictor.predict(users, items) - values
        return float(np.mean(np.square(errors, dtype=np.float64)))

    @cached_property
    def _sample(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        assert self.test is not None
        users, items, values = self.test.users, self.test.items, self.test.values
        if len(values) <= SAMPLE:
            return users, items, values
        some = np.sort(derive(self.prepared.facts.seed, "glance").choice(len(values), SAMPLE, replace=False))
        return users[some], items[some], values[some]

    def predictor(self) -> Predictor:
        """All parties' predictions for their own rows and columns, as one."""
        return self._assembled([member.at_home(**self.shared) for member in self.members])

    def before_fine_tuning(self) -> Predictor | None:
        """The same before parties fine-tuned the shared part; None where they do not."""
        before = [member.before_fine_tuning(**self.shared) for member in self.members]
        known = [predictor for predictor in before if predictor is not None]
        return self._assembled(known) if len(known) == len(before) else None

    def _assembled(self, predictors: list[Fitted]) -> Predictor:
        parts = [Part(s.users, s.items, p) for s, p in zip(self.parties, predictors, strict=True)]
        vertical = self.parties.setting is Setting.VERTICAL
        return assemble(parts, self.parties.n_users, self.parties.n_items, by_item=vertical)


def with_newcomers(trained: Trained, support: Ratings | None, n_users: int) -> Predictor:
    """The trained predictor, with users who were not in training folded in from their support ratings."""
    if support is None or not trained.model.form.width:
        return trained.predictor
    rows = np.flatnonzero(support.counts)
    theirs = support.select_users(rows)
    states = trained.model.fold_in(theirs.indptr, theirs.items, theirs.values)
    return WithNewUsers(trained.predictor, rows, Fitted(trained.model.form, states), n_users)
