"""A site's verified ledger, with what is known of its runs: the data of the site report and of `tacit ledger show`.

A ledger holds all but two things. Whether a contribution was masked follows from the exchanges of the same round; the
federation and the budget of a run are in `runs.json` next to the ledger, where the site's service wrote them.
Below are one release's words: what it was, who received it, and what protects it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from tacit.boundary import events
from tacit.boundary.events import merge
from tacit.boundary.ledger import START, Row
from tacit.boundary.protection import Budget
from tacit.boundary.report_costs import local_epsilon
from tacit.boundary.sealed_database import open_read_only
from tacit.errors import UsageError
from tacit.guarantee import Relation
from tacit.report.words import count, epsilon, listing, percent, plural


class RunNote(BaseModel):
    """What the site's service wrote down about one run; None where it did not."""

    model_config = ConfigDict(frozen=True)

    federation: str | None = None
    coordinator: str | None = None
    budget: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    delta: float | None = Field(default=None, gt=0, lt=1)
    days: float | None = Field(default=None, gt=0)
    guarantee: str | None = None
    parties: int | None = Field(default=None, ge=1)

    @property
    def simulated(self) -> bool:
        return self.guarantee is not None and "SIMULATED" in self.guarantee

    @property
    def recipient(self) -> str:
        """The coordinator, by name if that is known."""
        of = f" of {self.federation}" if self.federation else ""
        return f"{COORDINATOR}{of}" + (f" ({self.coordinator})" if self.coordinator else "")


def run_notes(ledger: Path) -> dict[str, RunNote]:
    """`runs.json` next to a ledger, by run; empty if there is no such file."""
    path = ledger.with_name("runs.json")
    if not path.exists():
        return {}
    try:
        return TypeAdapter(dict[str, RunNote]).validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        why = error.strerror if isinstance(error, OSError) else error.errors(include_url=False)[0]["msg"]
        raise UsageError(f'"{path}" cannot be read as notes about runs ({why}); repair it, or move it away.') from None


@dataclass(frozen=True)
class FirstPage:
    """A ledger's first page: when it was begun, its unit, its budgets, and the events planned before its first release.

    Empty where the ledger does not state it yet.
    """

    begun: str = ""
    unit: str = ""
    budgets: tuple[Budget, ...] = ()
    planned: tuple[events.Event, ...] = ()


def first_page(ledger: Path) -> FirstPage:
    """The first page of a verified ledger."""
    database = open_read_only(ledger)
    try:
        about = dict(database.execute("select name, value from about").fetchall())
    finally:
        database.close()
    return FirstPage(
        str(about.get("begun", "")),
        str(about.get("unit", "")).partition(", ")[0],
        tuple(Budget(*one) for one in json.loads(about.get("budgets", "[]"))),
        tuple(map(events.from_json, json.loads(about.get("first", "[]")))),
    )


@dataclass(frozen=True)
class SiteLedger:
    """A verified ledger, the ε reached with each row at `delta` as a fixed list, and the notes about its runs."""

    party: str
    path: Path
    rows: Sequence[Row]
    reached: Sequence[float]
    delta: float
    relation: Relation
    unit: str = ""
    begun: str = ""
    refused: Mapping[str, Any] = field(default_factory=lambda: {"number": 0, "told": []})
    notes: Mapping[str, RunNote] = field(default_factory=dict)
    budgets: tuple[Budget, ...] = ()

    @property
    def budget(self) -> Budget | None:
        """The budget that holds: the largest of those that all runs were limited to, by the ledger or else the notes.

        None where nothing is known of one of the runs, or where budgets differ in δ or in their period.
        """
        noted = [Budget(n.budget, n.delta or self.delta, n.days) for n in map(self.note, self.runs) if n.budget]
        known = self.budgets or (tuple(noted) if len(noted) == len(self.runs) else ())
        if len({(budget.delta, budget.days) for budget in known}) > 1:
            return None
        return max(known, key=lambda budget: budget.epsilon, default=None)

    @property
    def lifetime_budget(self) -> Budget | None:
        return None if self.budget is None or self.budget.days is not None else self.budget

    @property
    def budget_in_words(self) -> str:
        if self.budget is None:
            return (
                "No budget is known to hold: the runs had budgets at different δ or for different periods, or their "
                "budgets are not recorded."
            )
        holds = f"The budget that holds: ε = {self.budget.epsilon:g} at δ = {self.budget.delta:g}"
        if self.budget.days is not None:
            return f"{holds} in any {self.budget.days:g} days, by this machine's clock; the lifetime has no budget."
        return f"{holds}, whatever the reason for each further run."

    @property
    def local(self) -> float | None:
        """The ε of all randomised reports by themselves, with δ = 0; None where there are none."""
        return local_epsilon(row.spent for row in self.rows)

    @property
    def local_in_words(self) -> str:
        if self.local is None:
            return ""
        return f"The reports among them have a local ε of {epsilon(self.local)} by themselves, against anyone. "

    @property
    def head(self) -> str:
        return self.rows[-1].head if self.rows else START

    @property
    def epsilon(self) -> float:
        return self.reached[-1] if self.reached else 0.0

    @property
    def bytes(self) -> int:
        return sum(map(total_bytes, self.rows))

    @property
    def from_ratings(self) -> list[Row]:
        return [row for row in self.rows if not is_free(row)]

    @property
    def unprotected(self) -> list[Row]:
        return [row for row in self.rows if is_unprotected(row)]

    @property
    def shares_metrics(self) -> bool:
        return any(map(is_metrics, self.rows))

    @cached_property
    def runs(self) -> list[str]:
        """Every run, in the order of its first release."""
        return list(dict.fromkeys(row.run for row in self.rows))

    @property
    def simulated(self) -> bool:
        return any(self.note(run).simulated for run in self.runs)

    @property
    def unknown_noise(self) -> list[str]:
        """Runs without a record of how their noise was drawn."""
        return [run for run in self.runs if self.note(run).guarantee is None]

    @property
    def recipients(self) -> str:
        return listing(dict.fromkeys(self.note(run).recipient for run in self.runs)) or COORDINATOR

    @cached_property
    def masked(self) -> frozenset[int]:
        return masked_numbers(self.rows)

    def recipient(self, row: Row) -> str:
        return recipient(row, row.number in self.masked, self.note(row.run).recipient)

    def shares_noise(self, row: Row) -> bool:
        """Whether a release's noise is on the sum of all. A masked chain has its own: no sum of chains is linear."""
        return row.kind == "sum" and row.number in self.masked

    def note(self, run: str) -> RunNote:
        return self.notes.get(run, RunNote())


COORDINATOR = "the coordinator"
#: The messages of a secure sum and of the roster, by the first part of their step: what each is, and for whom.
_EXCHANGES = {
    "advertise": ("fresh public keys for one secure sum", "{coordinator}, who passes them to neighbouring sites"),
    "share": (
        "shares of its masks and of its spare noise",
        "neighbouring sites, through {coordinator}: each message is encrypted for one neighbour",
    ),
    "collect": ("which neighbours' messages arrived damaged", "{coordinator}"),
    "confirm": ("a signature on the list of sites that stayed", "{coordinator}, who shows it to the others"),
    "sizes": ("how many users the site has; where all sites have the same users, also which items", "{coordinator}"),
    "first": ("the list of its users, blinded", "{coordinator}, who has it blinded by every other site"),
    "tags": ("the list of its users, as keyed hashes", "{coordinator}, who has no key to them"),
    "again": ("another site's blinded list, blinded once more", "{coordinator}"),
    "metrics": ("metrics of its own test ratings, which the site chose to share", "{coordinator}"),
    "rows": ("a confirmation that it knows its rows on the common list of users", "{coordinator}"),
    "unmask": ("what removes the masks from the total, and from nothing else", "{coordinator}"),
}
_KINDS = {
    "chain": "the result of the site's own computation, with noise added in every step",
    "sum": "the site's contribution to a sum over all sites",
    "report": "randomised reports of single devices",
    "public": "a fact that is not computed from data, such as “done”",
    "disclose": "data without any change",
}


def total_bytes(row: Row) -> int:
    """Bytes that left with a row, of all devices in it."""
    return row.size * row.contributors


def device_count(row: Row) -> int | None:
    """How many devices of a cohort a row stands for; None for a silo."""
    return row.contributors if row.present is not None or row.contributors > 1 else None


def is_free(row: Row) -> bool:
    """Whether a release costs nothing, because it was not computed from ratings."""
    return isinstance(row.spent, events.Public) and not is_metrics(row)


def is_metrics(row: Row) -> bool:
    """Whether a release is metrics that the site chose to share."""
    return isinstance(row.spent, events.Metrics)


def is_unprotected(row: Row) -> bool:
    """Whether a release was computed from ratings and nothing protects it."""
    return is_metrics(row) or merge([row.spent]) is None


def masked_numbers(rows: Sequence[Row]) -> frozenset[int]:
    """The numbers of the releases that left under masks: those of a secure sum in the same run, round and attempt."""
    sums = {(row.run, row.round, row.attempt, row.step) for row in rows if row.step.startswith("collect:")}
    sent = (row for row in rows if not is_free(row))
    return frozenset(r.number for r in sent if (r.run, r.round, r.attempt, f"collect:{r.step}") in sums)


def what_left(row: Row) -> str:
    """What a release was."""
    exchange = _exchange(row)
    return _EXCHANGES[exchange][0] if exchange else _KINDS.get(row.kind, "a kind that this page does not know")


def recipient(row: Row, masked: bool, coordinator: str = COORDINATOR) -> str:
    """Who received a release, and what they can read of it."""
    if exchange := _exchange(row):
        return _EXCHANGES[exchange][1].format(coordinator=coordinator)
    if masked:
        return f"{coordinator}, masked: it sees only the sum of all"
    if isinstance(row.spent, events.Shuffled):
        return f"a proxy, which mixes it with others' before {coordinator} sees it"
    return coordinator


def _exchange(row: Row) -> str:
    """Which message of a secure sum or of the roster a release is; empty for others and for anything that costs."""
    name, colon, _of = row.step.partition(":")
    return name if colon and name in _EXCHANGES and isinstance(row.spent, events.Public) else ""


def mechanism(event: events.Event, unit: str = "", shared: bool = False) -> str:
    """What protects a release; `shared` if all sites together add the noise to the sum, each a share."""
    one = unit or "unit"
    most = f"× the most that one {one} can change"
    by = " on the sum of all, of which the site adds its share" if shared else ""
    match event:
        case events.Metrics():
            return "nothing: computed from ratings, and no ε covers it; the site chose to share it (--share-metrics)"
        case events.Roster():
            return "being on the roster is public under this guarantee: no ε covers it"
        case events.Public():
            return "not computed from data, so it costs nothing"
        case events.Gaussian(multiplier, n):
            return f"{_answers(n)} with Gaussian noise: σ is {multiplier:.3g} {most}"
        case events.SampledGaussian(multiplier, rate, n):
            return f"{_answers(n)}{_sampled(rate, one)} with Gaussian noise: σ is {multiplier:.3g} {most}"
        case events.Skellam(variance, _l1, l2, n):
            return f"{_answers(n)} as integers with Skellam noise{by}: σ is {_ratio(variance, l2)} {most}"
        case events.SampledSkellam(variance, _l1, l2, rate, n):
            noise = f"with Skellam noise{by}: σ is {_ratio(variance, l2)} {most}"
            return f"{_answers(n)} as integers{_sampled(rate, one)} {noise}"
        case events.DiscreteGaussian(variance, l2, _dimensions, shares, n):
            noise = f"with discrete Gaussian noise{by}: σ is {_ratio(variance * shares, l2)} {most}"
            return f"{_answers(n)} as integers {noise}"
        case events.Laplace(multiplier, n):
            return f"{_answers(n)} with Laplace noise: its scale is {multiplier:.3g} {most}"
        case events.Pure(e, name, n):
            together = f", {epsilon(n * e)} together" if n > 1 else ""
            return f"{_answers(n)} by {name}, ε = {epsilon(e)} each by its own proof{together}"
        case events.PerturbedObjective(multiplier, _curvature, n):
            solved = f"{plural(n, 'solution')} of a convex problem with a random linear term"
            return f"{solved}: σ is {multiplier:.3g} × the norm of one {one}'s gradient"
        case events.Shuffled(e, crowd, n):
            mixed = f"mixed among those of at least {plural(crowd, 'device')}"
            together = f" and {epsilon(n * e)} together" if n > 1 else ""
            return f"{plural(n, 'randomised report')} of each device, ε = {epsilon(e)} by itself{together}, {mixed}"
    return "no protection: nothing limits what it reveals"


def _sampled(rate: float, unit: str) -> str:
    return f", each over a fresh, secret sample of {percent(rate)} of the {unit}s,"


def _answers(n: int) -> str:
    return "one answer" if n == 1 else f"{count(n)} answers"


def _ratio(variance: float, l2: float) -> str:
    return f"{math.sqrt(variance) / l2:.3g}" if l2 > 0 else "∞"


def event_text(event: str, exact: bool = False) -> str:
    """A recorded event on one line, as in Gaussian(count=2, multiplier=0.63); `exact` with every digit."""
    table = json.loads(event)
    kind = table.pop("kind")
    values = (f"{k}={v:g}" if isinstance(v, float) and not exact else f"{k}={v}" for k, v in table.items())
    return f"{kind}({', '.join(values)})"
