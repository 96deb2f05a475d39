"""The site report, “What left this site”: one offline page from a verified ledger."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from tacit.boundary.ledger import Row
from tacit.boundary.protection import Budget
from tacit.report import guarantee_words, site_ledger
from tacit.report.bars import DOWN, UP, Bar, bars
from tacit.report.charts import Reference, Series, line_chart
from tacit.report.description import StatedGuarantee
from tacit.report.page import render, save
from tacit.report.site_ledger import SiteLedger, is_free, is_metrics, is_unprotected, total_bytes
from tacit.report.words import (
    count,
    decimals,
    epsilon,
    epsilon_so_far,
    listing,
    moment,
    plural,
    sentence,
    short,
    size,
    spelled,
)
from tacit.report.words import delta as small

#: Up to this many releases, all tables stand open.
OPEN = 40
#: Steps that are drawn, the largest first; the tables have all.
MOST_BARS = 16
#: The three kinds of releases.
UNPROTECTED = "Computed from ratings, without any protection"
NOISED = "Computed from ratings, with noise added, at a cost"
FREE = "Not computed from ratings, at no cost"
METRICS = (
    "The site chose to share metrics of its own test ratings (--share-metrics). They are computed from ratings and "
    "left without any protection: no noise is on them, and no ε covers what they reveal."
)


def write_site_report(ledger: SiteLedger, path: Path, made: str, version: str = "") -> Path:
    """Write the page atomically, readable by its owner only."""
    return save(path, site_page(ledger, made, version))


def site_page(ledger: SiteLedger, made: str, version: str = "") -> str:
    """The page as HTML; `made` is when the ledger was verified, as an ISO time."""
    party = short(ledger.party, 80)
    return render(
        "site_report.html",
        title=f"What left {party}",
        eyebrow=f"Tacit ledger · {party} · {moment(made)}",
        lede=_lede(ledger),
        version=version,
        made=made,
        ledger=ledger,
        stamps=list(_stamps(ledger)),
        cost=_cost(ledger),
        by_step=_by_step(ledger),
        step_bars=_step_bars(ledger),
        runs=[_run(ledger, run) for run in ledger.runs],
        unprotected_steps=_steps(ledger.unprotected),
        exposed_steps=_steps(row for row in ledger.unprotected if not is_metrics(row)),
        place=shlex.quote(str(ledger.path)),
        colours=(UP, DOWN),
        metrics_words=METRICS,
        words=site_ledger,
        utc=_utc,
        epsilon_so_far=epsilon_so_far,
        all_open=len(ledger.rows) <= OPEN,
    )


def _lede(ledger: SiteLedger) -> str:
    if not ledger.rows:
        since = f" since its ledger was begun, {moment(ledger.begun)}" if ledger.begun else ""
        return f"Nothing has left {ledger.party}{since}."
    since, total = moment(ledger.begun or ledger.rows[0].moment), len(ledger.rows)
    sent = f"Since {since}, {plural(total, 'release')} with {size(ledger.bytes)} left, to {ledger.recipients}."
    data, unprotected = len(ledger.from_ratings), len(ledger.unprotected)
    if not data:
        return f"{sent} None of it was computed from ratings."
    kinds = ((data - unprotected, "with noise added"), (unprotected, "without any protection"))
    parts = [f"{spelled(n)} {'was' if n == 1 else 'were'} computed from ratings, {how}" for n, how in kinds if n]
    if rest := total - data:
        parts.append(f"the other {'one was' if rest == 1 else f'{spelled(rest)} were'} not")
    return f"{sent} {sentence('; '.join(parts))}"


def _steps(rows: Iterable[Row]) -> str:
    return listing(dict.fromkeys(short(row.step, 60) for row in rows))


def _stamps(ledger: SiteLedger) -> Iterator[tuple[str, str, str]]:
    """Kind, title and words of each stamp: the total cost, and before it what limits its meaning."""
    if not math.isfinite(ledger.epsilon):
        yield "none", "NON-PRIVATE", "At least one release was not protected: no ε holds for what left this site."
        return
    if ledger.shares_metrics:
        yield "none", "METRICS SHARED", METRICS
    if all(is_free(row) or is_metrics(row) for row in ledger.rows):
        if not ledger.shares_metrics:
            free = "Keys, encrypted shares and “done” cost nothing."
            yield "holds", "ε = 0: nothing that left was computed from ratings", free
        return
    if ledger.simulated:
        yield "simulated", "SIMULATED", guarantee_words.SIMULATED.partition(": ")[2].capitalize()
    # The budget holds for runs that were chosen one after another; the reading only for a list fixed in advance.
    several = len(ledger.runs) > 1
    held = ledger.lifetime_budget if several else None
    promised, delta = (ledger.epsilon, ledger.delta) if held is None else (held.epsilon, held.delta)
    unsure = ledger.simulated or ledger.shares_metrics or ledger.unknown_noise or (several and held is None)
    unit = ledger.unit or "unit"
    title = f"ε = {epsilon(promised)} at δ = {small(delta)} · per {unit} · {ledger.relation}"
    stated = StatedGuarantee(
        epsilon=promised,
        delta=delta,
        unit=unit,
        relation=str(ledger.relation),
        model="silo",
        against="anyone who received what left",
        simulated=ledger.simulated,
    )
    yield "plain" if unsure else "holds", title, " ".join(_meaning(ledger, stated, several, held))


def _meaning(ledger: SiteLedger, stated: StatedGuarantee, several: bool, held: Budget | None) -> Iterator[str]:
    if ledger.shares_metrics:
        yield "For all but the metrics:"
    yield from guarantee_words.explained(stated)
    yield "That is for this site; what other sites release about the same person adds to it."
    if any(map(ledger.shares_noise, ledger.rows)):
        yield (
            "Sums left masked, and all sites share the noise on the total: for them this relies on the secure sum, and "
            "on as many honest sites as the run's guarantee names."
        )
    if several:
        reading = f"the reading for the fixed list of releases: ε = {epsilon(ledger.epsilon)} "
        reading += f"at δ = {small(ledger.delta)}"
        if held is None:
            yield f"This is {reading}. It would hold for runs that were all fixed in advance. {ledger.budget_in_words}"
        else:
            yield f"This is the budget that holds, whatever the reason for each further run; {reading}."
    if ledger.unknown_noise and not ledger.simulated:
        unknown = len(ledger.unknown_noise)
        which = "" if unknown == len(ledger.runs) else f" of {plural(unknown, 'run')}"
        yield f"There is no record of how the noise{which} was drawn: if from a seed, it is SIMULATED."


def _cost(ledger: SiteLedger) -> dict[str, Any] | None:
    costs = [place for place, row in enumerate(ledger.rows) if not is_free(row) and not is_metrics(row)]
    if not costs:
        return None
    reading = f"The first release from ratings took the site to ε = {epsilon(ledger.reached[costs[0]])}"
    only = ", and no other one cost any." if ledger.shares_metrics else ", and no other one was computed from them."
    reading += f", all {count(len(costs))} together to {epsilon(ledger.epsilon)}." if len(costs) > 1 else only
    budget = ledger.lifetime_budget
    drawing = line_chart(
        [Series("ε", np.arange(len(ledger.rows) + 1), np.array([0.0, *map(_rounded_up, ledger.reached)]))],
        label=f"Line chart of the ε reached after each release. {reading}",
        x_title="Release",
        y_title=f"ε reached, at δ = {small(ledger.delta)}",
        references=[] if budget is None else [Reference(f"budget {budget.epsilon:g}", budget.epsilon)],
        height=260.0,
    )
    return {"reading": reading, "drawing": drawing}


def _rounded_up(value: float) -> float:
    """ε rounded up to the digits that a chart prints, so that none is smaller than what holds."""
    tens = 10.0 ** decimals([value])
    return math.ceil(value * tens - 1e-9) / tens if math.isfinite(value) else value


def _by_step(ledger: SiteLedger) -> dict[str, list[tuple[str, str, str, int, int]]]:
    """By kind of release, each step once: step, what left, to whom, releases, bytes."""
    found: dict[tuple[str, str, str, str], list[int]] = {}
    for row in ledger.rows:
        heading = FREE if is_free(row) else UNPROTECTED if is_unprotected(row) else NOISED
        to_whom = site_ledger.recipient(row, row.number in ledger.masked)
        found.setdefault((heading, short(row.step, 60), site_ledger.what_left(row), to_whom), []).append(
            total_bytes(row)
        )
    tables: dict[str, list[tuple[str, str, str, int, int]]] = {UNPROTECTED: [], NOISED: [], FREE: []}
    for (heading, step, what, to_whom), sizes in found.items():
        tables[heading].append((step, what, to_whom, len(sizes), sum(sizes)))
    return {heading: rows for heading, rows in tables.items() if rows}


def _step_bars(ledger: SiteLedger) -> dict[str, Any]:
    sizes: dict[tuple[str, bool], int] = {}
    for row in ledger.rows:
        sizes[row.step, is_free(row)] = sizes.get((row.step, is_free(row)), 0) + total_bytes(row)
    free = sum(amount for (_step, costs_nothing), amount in sizes.items() if costs_nothing)
    unprotected = sum(map(total_bytes, ledger.unprotected))
    noised = ledger.bytes - free - unprotected
    parts = [f"{size(noised)} computed from ratings, with noise added"] if noised or not unprotected else []
    parts += [f"{size(unprotected)} computed from ratings, without any protection"] if unprotected else []
    reading = sentence("; ".join([*parts, f"{size(free)} not computed from ratings"]))
    largest = sorted(sizes.items(), key=lambda bar: -bar[1])[:MOST_BARS]
    rows = [Bar(step, [(amount, DOWN if costs_nothing else UP)]) for (step, costs_nothing), amount in largest]
    return {"reading": reading, "drawing": bars(rows, label=f"Bars of bytes by step. {reading}")}


def _run(ledger: SiteLedger, run: str) -> dict[str, Any]:
    """One run: what is known of it, and its releases, those that differ only in round and time in one group."""
    note = ledger.note(run)
    facts = {
        "Federation": note.federation,
        "Coordinator": note.coordinator,
        "Guarantee": note.guarantee,
        "Counted": f"over all {note.parties} parties that hold one user" if note.parties else None,
        "Budget then": None if note.budget is None else f"ε = {note.budget:g}",
    }
    found: dict[tuple[str, str, str, bool], list[int]] = {}
    for place, row in enumerate(ledger.rows):
        if row.run == run:
            found.setdefault((row.step, row.kind, row.event, row.number in ledger.masked), []).append(place)
    groups = sorted(found.values(), key=lambda places: is_free(ledger.rows[places[0]]))  # those that cost first
    return {
        "name": run,
        "facts": [(name, short(value, 600)) for name, value in facts.items() if value],
        "groups": [_group(ledger, places) for places in groups],
    }


def _group(ledger: SiteLedger, places: list[int]) -> dict[str, Any]:
    rows = [ledger.rows[place] for place in places]
    first, last = rows[0], rows[-1]
    rounds = f"round {first.round}" if first.round == last.round else f"rounds {first.round} to {last.round}"
    cost = "no cost" if is_free(first) else f"ε {epsilon(ledger.reached[places[-1]])} reached"
    cost = "no ε covers it" if is_metrics(first) else cost
    total = size(sum(map(total_bytes, rows)))
    return {
        "first": first,
        "summary": " · ".join([plural(len(rows), "release"), rounds, total, cost]),
        "cohort": any(site_ledger.device_count(row) is not None for row in rows),
        "rows": [(row, ledger.reached[place]) for place, row in zip(places, rows, strict=True)],
    }


def _utc(text: str) -> str:
    """An ISO time to the second, in UTC; anything else as it is."""
    try:
        return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    except ValueError:
        return text
