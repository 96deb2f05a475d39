"""What a report needs to know beside the numbers: data, split, partition, method, and what crossed in plain words."""

from __future__ import annotations

import platform
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from tacit.boundary.release import Kind
from tacit.data.vocabulary import Vocabulary
from tacit.evaluate import Evaluation
from tacit.federation import Step, Transcript
from tacit.methods import Method, Parameters
from tacit.partition import Parties
from tacit.report.words import listing, plural

#: Parties that are named of those that were absent.
MOST_ABSENT = 8


def about_parties(parties: Parties) -> dict[str, Any]:
    """What about.json says of who held what."""
    return {
        "description": parties.description,
        "parties": [
            {
                "name": share.name,
                "label": share.label,
                "users": len(share.users),
                "items": len(share.items),
                "ratings": share.ratings.n_ratings,
                "devices": share.devices,
            }
            for share in parties
        ],
    }


def absences(transcript: Transcript, parties: int) -> list[str]:
    """Who did not take part all the time, and in how many rounds, for card and report."""
    words = {
        "refused": "refused, their budget being spent",
        "lost": "dropped out at times",
        "late": "were late at times",
    }
    rounds, notes = len({entry.round for entry in transcript.entries} - {0}), []
    for status, what in words.items():
        missing: dict[str, set[int]] = {}
        for entry in transcript.entries:
            if entry.status == status:
                missing.setdefault(entry.party, set()).add(entry.round)
        if missing:
            ranked = sorted(missing, key=lambda name: -len(missing[name]))
            told = [f"{name} {_places(missing[name] - {0}, rounds)}" for name in ranked[:MOST_ABSENT]]
            told += [f"{plural(len(ranked) - MOST_ABSENT, 'other')} less often"] if len(ranked) > MOST_ABSENT else []
            notes.append(f"{len(missing)} of {parties} parties {what}: {listing(told)}.")
    return notes


def _places(missed: set[int], rounds: int) -> str:
    """In how many rounds, and in which."""
    if not missed:
        return "before the first round"
    first, last = min(missed), max(missed)
    which = f"round {first}" if first == last else f"{first} to {last}"
    if last - first >= len(missed):
        which = f"between {first} and {last}"
    return f"in {len(missed)} of {plural(rounds, 'round')} ({which})"


def void_sums(void: int, rounds: int) -> list[str]:
    """That sums came to nothing, for card and report."""
    if not void:
        return []
    many = f"{plural(void, 'sum')} in {plural(rounds, 'round')} {'was' if void == 1 else 'were'} void"
    return [f"{many}, since too few stayed: nothing was learned from such a sum, and what left for it is charged."]


#: Who sees what of a step that is hidden.
HIDDEN = {
    Kind.SUM: "nobody; the coordinator sees the sum",
    Kind.CHAIN: "nobody; the coordinator sees the mean",
    Kind.REPORT: "the coordinator, mixed with all others",
}


def about(
    data: Mapping[str, Any],
    split: str,
    partition: Mapping[str, Any],
    method: Method,
    parameters: Parameters,
    steps: Mapping[str, Step],
    notes: Sequence[str] = (),
    sealed: Collection[str] = (),
    floor: Mapping[str, Any] | None = None,
    references: Sequence[Mapping[str, Any]] = (),
    noise: Sequence[Mapping[str, Any]] | None = None,
    sealing: Sequence[str] = (),
    deployed: bool = False,
    beside: Sequence[Mapping[str, Any]] = (),
    hidden: str = "",
) -> dict[str, Any]:
    """The contents of about.json; `data` is what `prepare.data.about` said, `partition` what `about_parties` did.

    `sealed` are the steps of which no single part was seen; `floor` is what `bias` reached at the same guarantee,
    `references` what others without any guarantee reached, `noise` what each private step's answers carry, and
    `sealing` says how sums were sealed. A run that has none of these says nothing of them. `deployed` is a run between
    organisations, which no experimenter looks into; `beside` is what was told there before the run and after it.
    `hidden` says of a run without privacy what nobody saw all the same.
    """
    from importlib.metadata import version

    def seen_by(step: Step) -> str:
        return HIDDEN.get(step.kind, "the coordinator") if step.name in sealed else "the coordinator"

    return {
        "tacit": version("tacit"),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "data": dict(data),
        "split": split,
        "partition": dict(partition),
        "method": {
            "name": method.name,
            "title": method.title,
            "what": method.what,
            "parameters": parameters.model_dump(exclude_none=True),
        },
        "crossings": [
            {"step": step.name, "kind": str(step.kind), "to": seen_by(step), "what": step.what}
            for step in steps.values()
        ],
        "notes": list(notes),
        **({} if floor is None else {"floor": dict(floor)}),
        **({"references": [dict(one) for one in references]} if references else {}),
        **({} if noise is None else {"steps_noise": [dict(step) for step in noise]}),
        **({"sealing": list(sealing)} if sealing else {}),
        **({"hidden": hidden} if hidden else {}),
        **({"deployed": True, "beside": [dict(row) for row in beside]} if deployed else {}),
    }


def metrics_table(
    rounds: Sequence[tuple[int, float]], evaluation: Evaluation | None = None, user_ids: Vocabulary | None = None
) -> pa.Table:
    """metrics.parquet: the test MSE after each round, then every user's final values."""
    per_round = pa.table(
        {
            "scope": pa.array(["round"] * len(rounds), pa.string()),
            "round": pa.array([number for number, _mse in rounds], pa.int32()),
            "user": pa.nulls(len(rounds), pa.string()),
            "metric": pa.array(["mse"] * len(rounds), pa.string()),
            "value": pa.array([mse for _number, mse in rounds], pa.float64()),
        }
    )
    if evaluation is None or user_ids is None:
        return per_round
    return pa.concat_tables([per_round, evaluation.to_arrow(user_ids).cast(per_round.schema)])
