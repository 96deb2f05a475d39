"""A run: a run file in, a run folder out.

`train` holds one conversation over parties in this process; `run` wraps it in data, split, partition, evaluation and a
folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from tacit.config import RunFile
from tacit.data.ratings import Ratings
from tacit.engine import InProcess
from tacit.errors import PrivacyRefused, UsageError
from tacit.federation import Facts, Federation, Party, Transcript
from tacit.methods import Method, Parameters, chosen
from tacit.model import Factors, Model, Part, Predictor, assemble
from tacit.model.predictor import Overlay
from tacit.partition import Parties, Setting

#: How many test ratings are looked at after every round; the final metrics use all of them.
GLANCE = 200_000


@dataclass(frozen=True)
class Glance:
    """What the experimenter sees after a round."""

    round: int
    rounds: int
    mse: float | None
    bytes_up: int


@dataclass(frozen=True, eq=False)
class Trained:
    """What a conversation leaves: the shared model, the parties with what they keep, and what crossed."""

    model: Model
    parties: tuple[Party, ...]
    facts: Facts
    transcript: Transcript
    predictor: Predictor
    rounds: int
    history: tuple[Glance, ...]
    seconds: float


def train(
    method: Method,
    parameters: Parameters,
    parties: Parties,
    *,
    seed: int,
    dropout: float = 0.0,
    timeout: float | None = None,
    payloads: Path | None = None,
    test: Ratings | None = None,
    watch: Callable[[Glance], None] | None = None,
) -> Trained:
    """Hold one method's conversation over `parties` in this process."""
    facts = Facts.of(parties, seed)
    sides = method.sides_in(facts)
    members = tuple(method.make_party(share, parameters, facts) for share in parties)
    transcript = Transcript(payloads)
    onlooker = _Onlooker(members, parties, transcript, _rounds(parameters), test, seed, watch)
    engine = InProcess(members, timeout=timeout)
    federation = Federation(
        engine,
        facts,
        sides.party.steps,
        method=method.name,
        parameters=parameters.hash,
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
    return Trained(
        model=model,
        parties=members,
        facts=facts,
        transcript=transcript,
        predictor=onlooker.predictor(),
        rounds=federation.rounds_done,
        history=tuple(onlooker.history),
        seconds=perf_counter() - began,
    )


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
    ) -> None:
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
        self.history.append(Glance(round, self._rounds, mse, self._transcript.meter.bytes_up))
        if self._watch is not None:
            self._watch(self.history[-1])

    def predictor(self) -> Predictor:
        """All parties' predictions for their own rows and columns, as one."""
        parts = [
            Part(share.users, share.items, member.at_home(**self._shared))
            for share, member in zip(self._parties, self._members, strict=True)
        ]
        vertical = self._parties.setting is Setting.VERTICAL
        return assemble(parts, self._parties.n_users, self._parties.n_items, by_item=vertical)


def _glance_at(test: Ratings, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    from tacit.rng import derive

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


# -- a whole run ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prepared:
    """A run file whose method, data, split and partition were found valid; nothing has been written yet."""

    file: RunFile
    method: Method
    parameters: Parameters
    ratings: Ratings
    train: Ratings
    test: Ratings
    support: Ratings | None
    split: str
    parties: Parties


def check(file: RunFile) -> tuple[Method, Parameters]:
    """Everything that can be refused before data is touched."""
    method, parameters = chosen(file.method)
    if file.privacy is not None:
        raise PrivacyRefused(
            f'The method "{method.name}" carries no guarantee in this version, so [privacy] cannot be kept; '
            "remove that section to run it NON-PRIVATE."
        )
    if file.aggregation.name != "plain":
        raise UsageError(
            f'[aggregation] name = "{file.aggregation.name}" is not available in this version; use "plain".'
        )
    if file.engine.name != "inprocess":
        raise UsageError(f'[engine] name = "{file.engine.name}" is not available in this version; use "inprocess".')
    return method, parameters


def prepare(file: RunFile) -> Prepared:
    """Check the run file, then load, split and partition the data."""
    from tacit.data.load import load
    from tacit.data.split import split
    from tacit.partition import partition

    method, parameters = check(file)
    data, public = file.data, file.public
    ratings = load(
        data.source,
        feedback=data.feedback,
        columns=data.columns or None,
        duplicates=data.duplicates,
        query=data.query,
        scale=public.scale,
        user_table=data.user_table,
        item_table=data.item_table,
        catalogue=public.catalogue,
        users=data.users,
        items=data.items,
        ratings=data.ratings,
        seed=file.seed,
    )
    if public.users is not None and public.users < ratings.n_users:
        raise UsageError(
            f"[public] users = {public.users:,} is fewer than the {ratings.n_users:,} users in the data; "
            "declare at least as many."
        )
    parts = split(ratings, by=file.split.by, test=file.split.test, seed=file.seed)
    division = file.partition
    parties = partition(
        parts.train,
        into=division.into,
        by=division.by,
        size_skew=division.size_skew,
        taste_skew=division.taste_skew,
        seed=file.seed,
    )
    method.sides_in(Facts.of(parties, file.seed))
    return Prepared(
        file, method, parameters, ratings, parts.train, parts.test, parts.support, parts.description, parties
    )


def run(file: RunFile, out: Path | None = None, watch: Callable[[Glance], None] | None = None) -> dict[str, Any]:
    """One run, whole: prepares, trains, evaluates, and fills the run folder. Returns the summary."""
    from tacit.evaluate import evaluate
    from tacit.report.about import about, metrics_table
    from tacit.report.folder import RunFolder

    began = perf_counter()
    prepared = prepare(file)
    folder = RunFolder.make(out, prepared.method.name, file)
    trained = train(
        prepared.method,
        prepared.parameters,
        prepared.parties,
        seed=file.seed,
        dropout=file.aggregation.dropout,
        timeout=file.engine.timeout,
        payloads=folder.payloads if file.engine.transcript == "full" else None,
        test=prepared.test,
        watch=watch,
    )
    wanted = file.evaluate
    evaluation = evaluate(
        with_newcomers(trained, prepared.support, prepared.ratings.n_users),
        prepared.test,
        seen=prepared.train,
        k=wanted.k,
        negatives=wanted.negatives,
        relevance=wanted.relevance,
        seed=file.seed,
    )
    summary: dict[str, Any] = {
        "run": str(folder.path),
        "method": prepared.method.name,
        "setting": str(prepared.parties.setting),
        "metrics": evaluation.metrics,
        "intervals": {name: list(interval) for name, interval in evaluation.intervals.items()},
        "guarantee": None,
        "rounds": trained.rounds,
        "bytes_up": trained.transcript.meter.bytes_up,
        "bytes_down": trained.transcript.meter.bytes_down,
        "seconds": round(perf_counter() - began, 3),
        "digest": trained.transcript.digest,
    }
    folder.finish(
        summary=summary,
        about=about(
            prepared.ratings,
            prepared.split,
            prepared.parties,
            prepared.method,
            prepared.parameters,
            prepared.method.sides[prepared.parties.setting].party.steps,
            notes=evaluation.notes,
        ),
        metrics=metrics_table(
            [(g.round, g.mse) for g in trained.history if g.mse is not None],
            evaluation,
            prepared.ratings.user_ids,
        ),
        transcript=trained.transcript,
        model=trained.model,
    )
    return summary
