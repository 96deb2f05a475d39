"""A run: a run file in, a run folder out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from tacit.config import RunFile
from tacit.data.ratings import Ratings
from tacit.engine.simulate import Glance, train, with_newcomers
from tacit.errors import PrivacyRefused, UsageError
from tacit.federation import Facts
from tacit.methods import Method, Parameters, chosen
from tacit.partition import Parties


@dataclass(frozen=True)
class Prepared:
    """A run file whose method, data, split and partition were found valid; nothing has been written yet."""

    file: RunFile
    method: Method
    parameters: Parameters
    data: dict[str, Any]
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
    if file.engine.seeded is False:
        raise UsageError("[engine] seeded = false needs [privacy]: a run without noise draws everything from its seed.")
    return method, parameters


def prepare(file: RunFile) -> Prepared:
    """Check the run file, then load, split and partition the data."""
    from tacit.data.load import load
    from tacit.data.split import split
    from tacit.partition import partition
    from tacit.report.about import about_data

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
    described = about_data(ratings)
    parts = split(ratings, by=file.split.by, test=file.split.test, seed=file.seed)
    del ratings  # the parts are copies, and so are the parties' shares: three of everything would be too many
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
        file, method, parameters, described, parts.train, parts.test, parts.support, parts.description, parties
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
        with_newcomers(trained, prepared.support, prepared.test.n_users),
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
            prepared.data,
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
            prepared.test.user_ids,
        ),
        transcript=trained.transcript,
        model=trained.model,
    )
    return summary
