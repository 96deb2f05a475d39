"""A site's verified ledger, with what is known of its runs: the data of the site report and of `tacit ledger show`.

A ledger holds all but two things. Whether a contribution was masked follows from the exchanges of the same round; the
federation and the budget of a run are in `runs.json` next to the ledger, where the site's service wrote them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from tacit.boundary import events
from tacit.boundary.ledger import START, Row
from tacit.boundary.protection import Budget
from tacit.boundary.sealed_database import open_read_only
from tacit.errors import UsageError
from tacit.guarantee import Relation
from tacit.report.release_words import (
    COORDINATOR,
    is_free,
    is_metrics,
    is_unprotected,
    masked_numbers,
    recipient,
    total_bytes,
)
from tacit.report.words import listing


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
