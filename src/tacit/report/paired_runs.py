"""Runs compared user by user: the first one against each other one, on the users that both were judged on."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tacit.evaluate.paired import Paired, compare_paired
from tacit.report import page
from tacit.report.glossary import meaning
from tacit.report.markup import Child, Markup, tag
from tacit.report.record import RunRecord
from tacit.report.words import INTERVAL, MISSING, count, decimals, metric, percent, short

_PERMUTATIONS = 2000


def user_by_user(records: Sequence[RunRecord], names: Sequence[str], name: str) -> Markup | None:
    """A table of the first run against the others, as on the terminal; None where no user was judged on two."""
    rows: list[tuple[Child, ...]] = []
    for place, record in enumerate(records[1:], start=1):
        result = compare_users(records[0], record, name, permutations=_PERMUTATIONS)
        if result is not None:
            rows.append((short(names[place], 60), *_cells(result)))
    if not rows:
        return None
    short_name = meaning(name).short
    text = f"The first run, “{names[0]}”, against each other one, by the {short_name} of every user judged on both. "
    text += "Means are over users: every user counts once. "
    text += "p is the chance of a difference this large if the two served users alike."
    head = ("Against", "Users", f"Difference in {short_name}", "p", "Better for", "Worse for")
    return page.section("User by user", tag("p", text), page.table(head, rows, numeric=range(1, len(head))))


def compare_users(
    first: RunRecord,
    second: RunRecord,
    name: str,
    permutations: int = 5000,
    names: tuple[str, str] | None = None,
) -> Paired | None:
    """Two runs, by their folders' names or `names`, by one metric of the users that both were judged on.

    None where there are fewer than two.
    """
    ids, values = first.per_user(name)
    other_ids, others = second.per_user(name)
    _shared, here, there = np.intersect1d(ids.astype(str), other_ids.astype(str), return_indices=True)
    a, b = values[here], others[there]
    both = np.isfinite(a) & np.isfinite(b)
    if both.sum() < 2:
        return None
    called = names or (first.name, second.name)
    return compare_paired(a[both], b[both], metric=name, names=called, permutations=permutations)


def _cells(result: Paired) -> tuple[Child, ...]:
    low, high = result.interval
    places = decimals([result.difference, low, high])
    difference = f"{'+' if result.difference > 0 else ''}{metric(result.difference, places)}"
    span = f"{metric(low, places)} to {metric(high, places)}" if math.isfinite(low) else MISSING
    return (
        count(result.users),
        tag("span", difference, tag("span", f"{INTERVAL}: {span}", class_="under")),
        "< 0.001" if result.p_value < 0.001 else f"{result.p_value:.3f}",
        percent(result.share_better),
        percent(result.share_worse),
    )
