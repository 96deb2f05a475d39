"""What left a site, in words: what each release was, to whom it went, and what is known of the run that asked for it.

A ledger says all but two things. Whether a contribution was masked shows in the letters of the same round around it;
with whom a run was, and under which budget, stands in `runs.json` beside the ledger, where a site's service kept it.
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
from tacit.boundary.sealed_database import open_read_only
from tacit.errors import UsageError
from tacit.guarantee import Relation
from tacit.report.words import count, epsilon, listing, percent, plural

COORDINATOR = "the coordinator"
#: What is said in the course of a secure sum: what it is, and for whom.
_LETTERS = {
    "advertise": ("fresh public keys for one secure sum", "{coordinator}, who hands them to neighbouring sites"),
    "share": (
        "shares of its masks and of its spare noise",
        "neighbouring sites, through {coordinator}: each letter is sealed for one neighbour",
    ),
    "collect": ("whose letters arrived damaged", "{coordinator}"),
    "confirm": ("a signature under the list of those that stayed", "{coordinator}, who shows it to the others"),
    "sizes": ("how many users the site has; where all sites have the same users, also which items", "{coordinator}"),
    "first": ("the list of its users, blinded", "{coordinator}, who has it blinded by every other site"),
    "tags": ("the list of its users, as keyed hashes", "{coordinator}, who has no key to them"),
    "again": ("another site's blinded list, blinded once more", "{coordinator}"),
    "metrics": ("metrics of its own test ratings, which the site chose to tell", "{coordinator}"),
    "rows": ("the word that it knows its rows on the common list of users", "{coordinator}"),
    "unmask": ("what takes the masks off the sum of all, and off nothing else", "{coordinator}"),
}
_KINDS = {
    "chain": "the result of the site's own computation, noised in every step",
    "sum": "the site's contribution to a sum over all",
    "report": "randomised reports of single devices",
    "public": "a fact that no data went into, such as “done”",
    "disclose": "data as it is",
}


class RunNote(BaseModel):
    """What is known of one run beside the ledger; None where nobody wrote it down."""

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
    def whom(self) -> str:
        """The coordinator, by its name where that is known."""
        of = f" of {self.federation}" if self.federation else ""
        return f"{COORDINATOR}{of}" + (f" ({self.coordinator})" if self.coordinator else "")


def run_notes(ledger: Path) -> dict[str, RunNote]:
    """`runs.json` beside a ledger, by run; nothing where there is none."""
    path = ledger.with_name("runs.json")
    if not path.exists():
        return {}
    try:
        return TypeAdapter(dict[str, RunNote]).validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        why = error.strerror if isinstance(error, OSError) else error.errors(include_url=False)[0]["msg"]
        raise UsageError(f'"{path}" cannot be read as notes about runs ({why}); mend it, or move it away.') from None


@dataclass(frozen=True)
class FirstPage:
    """What a ledger's first page says: when it was begun, for which unit it counts, which budgets it was held to, and
    what was planned before its first release. Empty where it does not say so yet."""

    begun: str = ""
    unit: str = ""
    budgets: tuple[Budget, ...] = ()
    planned: tuple[events.Event, ...] = ()


def first_page(ledger: Path) -> FirstPage:
    """The first page of a ledger that was verified."""
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
class Group:
    """Releases of one run that are alike but for round and time; `places` are theirs among the ledger's rows."""

    run: str
    step: str
    kind: str
    event: str
    masked: bool
    places: list[int]


@dataclass(frozen=True)
class Left:
    """A verified ledger, with what all up to each row costs at `delta` as a fixed list, and what is known of its runs.

    `budgets` are those that its veto held it to, from its own first page.
    """

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
    def held(self) -> Budget | None:
        """The budget that holds, by the veto's word: the largest of those that all runs were held to.

        A ledger that does not say goes by the notes beside it. None where nothing is known of one of its runs, and
        where they were held to budgets at different δ, or for different periods: then none of these holds for all.
        """
        noted = [Budget(n.budget, n.delta or self.delta, n.days) for n in map(self.note, self.runs) if n.budget]
        known = self.budgets or (tuple(noted) if len(noted) == len(self.runs) else ())
        if len({(budget.delta, budget.days) for budget in known}) > 1:
            return None
        return max(known, key=lambda budget: budget.epsilon, default=None)

    @property
    def budget_in_words(self) -> str:
        """The budget that holds, and for what."""
        if self.held is None:
            return (
                "No budget is known to hold: the runs were held to budgets at different δ or for different periods, or "
                "nothing here says what to."
            )
        said = f"The budget that holds: ε = {self.held.epsilon:g} at δ = {self.held.delta:g}"
        if self.held.days is not None:
            return f"{said} in any {self.held.days:g} days, by this machine's clock; for the lifetime there is none."
        return f"{said}, whatever made anyone ask for the next run."

    @property
    def head(self) -> str:
        return self.rows[-1].head if self.rows else START

    @property
    def epsilon(self) -> float:
        return self.reached[-1] if self.reached else 0.0

    @property
    def bytes(self) -> int:
        return sum(weight(row) for row in self.rows)

    @property
    def rated(self) -> list[Row]:
        """The releases that ratings went into."""
        return [row for row in self.rows if not free(row)]

    @property
    def exposed(self) -> list[Row]:
        """Those of them that nothing protects."""
        return [row for row in self.rows if exposed(row)]

    @cached_property
    def runs(self) -> list[str]:
        """Every run, in the order of its first release."""
        return list(dict.fromkeys(row.run for row in self.rows))

    @property
    def latest(self) -> RunNote:
        """What is known of the latest run that anything is known of."""
        return next((self.notes[run] for run in reversed(self.runs) if run in self.notes), RunNote())

    @property
    def simulated(self) -> bool:
        return any(self.note(run).simulated for run in self.runs)

    @property
    def unknown(self) -> list[str]:
        """Runs of which nobody wrote down how their noise was drawn."""
        return [run for run in self.runs if self.note(run).guarantee is None]

    @property
    def recipients(self) -> str:
        """Whom the releases went to, in words."""
        return listing(dict.fromkeys(self.note(run).whom for run in self.runs)) or COORDINATOR

    @cached_property
    def masked(self) -> frozenset[int]:
        return masked(self.rows)

    def shared(self, row: Row) -> bool:
        """Whether a release's noise is on the sum of all. A masked chain has its own: no sum of chains is linear."""
        return row.kind == "sum" and row.number in self.masked

    def note(self, run: str) -> RunNote:
        return self.notes.get(run, RunNote())

    def groups(self, run: str) -> list[Group]:
        """A run's releases, like with like: those that cost first, then each in the order of its first release."""
        found: dict[tuple[str, str, str, bool], list[int]] = {}
        for place, row in enumerate(self.rows):
            if row.run == run:
                found.setdefault((row.step, row.kind, row.event, row.number in self.masked), []).append(place)
        groups = [Group(run, *key, places) for key, places in found.items()]
        return sorted(groups, key=lambda group: free(self.rows[group.places[0]]))


def weight(row: Row) -> int:
    """Bytes that left with a row, of all devices that it speaks for."""
    return row.size * row.contributors


def devices(row: Row) -> int | None:
    """How many devices of a cohort a row speaks for; None for a silo."""
    return row.contributors if row.present is not None or row.contributors > 1 else None


def free(row: Row) -> bool:
    """Whether a release costs nothing, since no rating went into it."""
    return isinstance(row.spent, events.Public) and not told(row)


def told(row: Row) -> bool:
    """Whether a release is metrics that the site chose to tell."""
    return isinstance(row.spent, events.Metrics)


def exposed(row: Row) -> bool:
    """Whether ratings went into a release and nothing protects it."""
    return told(row) or merge([row.spent]) is None


def masked(rows: Sequence[Row]) -> frozenset[int]:
    """The numbers of the releases that left under masks: letters of the same run, round and attempt are about them."""
    letters = {(row.run, row.round, row.attempt, row.step) for row in rows if row.step.startswith("collect:")}
    sent = (row for row in rows if not free(row))
    return frozenset(r.number for r in sent if (r.run, r.round, r.attempt, f"collect:{r.step}") in letters)


def what(row: Row) -> str:
    """What a release was."""
    letter = _letter(row)
    return _LETTERS[letter][0] if letter else _KINDS.get(row.kind, "a kind that this page does not know")


def to_whom(row: Row, under_masks: bool, coordinator: str = COORDINATOR) -> str:
    """Who got a release, and what of it can be read there."""
    if letter := _letter(row):
        return _LETTERS[letter][1].format(coordinator=coordinator)
    if under_masks:
        return f"{coordinator}, masked: it sees only the sum of all"
    if isinstance(row.spent, events.Shuffled):
        return f"a proxy, which mixes it with others' before {coordinator} sees it"
    return coordinator


def _letter(row: Row) -> str:
    """Which letter of a secure sum or of the roster a release is; empty where it is none, as whatever costs is."""
    name, colon, _of = row.step.partition(":")
    return name if colon and name in _LETTERS and isinstance(row.spent, events.Public) else ""


def mechanism(event: events.Event, unit: str = "", shared: bool = False) -> str:
    """What protects a release, in words; `shared` where the noise is on the sum of all, and each adds a share."""
    one = unit or "unit"
    most = f"× the most that one {one} can change"
    by = " on the sum of all, of which the site adds its share" if shared else ""
    match event:
        case events.Metrics():
            return "nothing: it depends on ratings and no ε covers it; the site chose to tell it (--share-metrics)"
        case events.Roster():
            return "who is on the roster, which is public by this guarantee: no ε covers it"
        case events.Public():
            return "no data in it, so it costs nothing"
        case events.Gaussian(multiplier, n):
            return f"{_answers(n)} with Gaussian noise: σ is {multiplier:.3g} {most}"
        case events.SampledGaussian(multiplier, rate, n):
            return f"{_answers(n)}{_sampled(rate, one)} with Gaussian noise: σ is {multiplier:.3g} {most}"
        case events.Skellam(variance, _l1, l2, n):
            noise = f"with Skellam noise{by}: σ is {_ratio(variance, l2)} {most}"
            return f"{_answers(n)} in whole numbers {noise}"
        case events.SampledSkellam(variance, _l1, l2, rate, n):
            noise = f"with Skellam noise{by}: σ is {_ratio(variance, l2)} {most}"
            return f"{_answers(n)} in whole numbers{_sampled(rate, one)} {noise}"
        case events.DiscreteGaussian(variance, l2, _dimensions, shares, n):
            noise = f"with discrete Gaussian noise{by}: σ is {_ratio(variance * shares, l2)} {most}"
            return f"{_answers(n)} in whole numbers {noise}"
        case events.Laplace(multiplier, n):
            return f"{_answers(n)} with Laplace noise: its scale is {multiplier:.3g} {most}"
        case events.Pure(e, name, n):
            return f"{_answers(n)} by {name}, ε = {epsilon(e)} each by its own proof"
        case events.PerturbedObjective(multiplier, _curvature, n):
            solved = f"{plural(n, 'solution')} of a convex problem with a random linear term"
            return f"{solved}: σ is {multiplier:.3g} × the norm of one {one}'s gradient"
        case events.Shuffled(e, crowd, n):
            mixed = f"mixed among those of at least {plural(crowd, 'device')}"
            return f"{plural(n, 'randomised report')} of each device, ε = {epsilon(e)} by itself, {mixed}"
    return "no protection: nothing limits what it tells"


def _sampled(rate: float, unit: str) -> str:
    return f", each over a fresh, secret sample of {percent(rate)} of the {unit}s,"


def _answers(n: int) -> str:
    return "one answer" if n == 1 else f"{count(n)} answers"


def _ratio(variance: float, l2: float) -> str:
    return f"{math.sqrt(variance) / l2:.3g}" if l2 > 0 else "∞"


def parameters(event: str) -> str:
    """An event as the ledger keeps it, every digit, on one line."""
    table = json.loads(event)
    kind = table.pop("kind")
    return f"{kind}({', '.join(f'{name}={value}' for name, value in table.items())})"
