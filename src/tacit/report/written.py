"""What a run folder's JSON says, in checked form: summary.json and about.json.

Keys that a report has no use for are passed over, and what an older run did not write has a value that says so.
"""

from __future__ import annotations

import math
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tacit.report.words import plural, short


class Written(BaseModel):
    """A value read back from a run folder; keys that a report has no use for are passed over."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class StatedGuarantee(Written):
    """What a run states about privacy. Every word is required; further ones (h, c, …) are printed."""

    model_config = ConfigDict(extra="allow", frozen=True)

    epsilon: float | None
    delta: float
    unit: str
    relation: str
    model: str
    against: str | list[str]
    simulated: bool
    claimed_epsilon: float | None = None

    @property
    def holds(self) -> bool:
        """False where nothing is promised: no ε, an infinite one, or a trust model of "none"."""
        return self.epsilon is not None and math.isfinite(self.epsilon) and self.model != "none"

    @property
    def further(self) -> dict[str, Any]:
        """What else was stated."""
        return dict(self.model_extra or {})


class Summary(Written):
    """summary.json, the contract of `tacit run --json`."""

    run: str = ""
    method: str
    setting: str
    metrics: dict[str, float | None]
    intervals: dict[str, tuple[float | None, float | None]] = Field(default_factory=dict)
    guarantee: StatedGuarantee | None
    rounds: int
    bytes_up: int
    bytes_down: int
    seconds: float
    digest: str
    metrics_shared: dict[str, float | None] = Field(default_factory=dict)
    metrics_of: str = ""
    void: int = 0


class AboutData(Written):
    """What was learned from; `ratings_in_words` where their number is no plain count of what was learned from."""

    name: str
    users: int
    items: int
    ratings: int
    ratings_in_words: str = ""
    scale: Any = None
    feedback: str = ""
    features: list[str] = Field(default_factory=list)
    density: float | None = None
    notes: list[str] = Field(default_factory=list)

    @property
    def rated(self) -> str:
        """How many ratings there are, in words."""
        return self.ratings_in_words or plural(self.ratings, "rating")

    @property
    def sizes(self) -> str:
        """Users, items and ratings."""
        return f"{plural(self.users, 'user')}, {plural(self.items, 'item')}, {self.rated}"


class AboutParty(Written):
    name: str
    label: str | None = None
    users: int = 0
    items: int = 0
    ratings: int = 0
    devices: int = 0

    @property
    def title(self) -> str:
        """Its label and its name, or the one that there is."""
        return f"{self.label} ({self.name})" if self.label and self.label != self.name else self.name


class AboutPartition(Written):
    description: str = ""
    parties: list[AboutParty] = Field(default_factory=list)


class AboutMethod(Written):
    name: str
    title: str = ""
    parameters: dict[str, Any] = Field(default_factory=dict)
    what: str = ""


class Crossing(Written):
    """One kind of payload that may cross, in words; `kind` is chain, sum, report, public or disclose."""

    step: str
    kind: str
    to: str = "the coordinator"
    what: str = ""


class Beside(Written):
    """One thing that sites told "before" the run or "after" it; bytes are those of all sites."""

    step: str
    when: str
    kind: str
    what: str = ""
    answers: int = 0
    bytes: int = 0


class AboutPaired(Written):
    """A run compared with its floor user by user: run − floor."""

    users: int
    difference: float
    interval: tuple[float, float] | None = None


class AboutFloor(Written):
    """What `bias` reached on the same parties at the same guarantee; `missing` says why there are no metrics."""

    method: str
    metrics: dict[str, float | None] = Field(default_factory=dict)
    intervals: dict[str, tuple[float | None, float | None]] = Field(default_factory=dict)
    guarantee: StatedGuarantee | None = None
    user_means: dict[str, float | None] = Field(default_factory=dict)
    paired: dict[str, AboutPaired] = Field(default_factory=dict)
    missing: str = ""

    @property
    def name(self) -> str:
        """The method's name, as short as names are."""
        return short(self.method, 40)


class AboutReference(Written):
    """What the run stands beside, without any guarantee; `missing` says why there are no metrics."""

    name: str
    what: str = ""
    metrics: dict[str, float | None] = Field(default_factory=dict)
    intervals: dict[str, tuple[float | None, float | None]] = Field(default_factory=dict)
    missing: str = ""


class AboutNoise(Written):
    """One private step: how often it is asked for, what noise an answer got, and the forecast size of its signal."""

    step: str
    releases: int
    answers: int
    sampling: float
    sensitivity: float
    sigma: float
    cells: int
    signal: float
    signal_to_noise: float


class About(Written):
    """about.json: the run in words, for people."""

    tacit: str = ""
    python: str = ""
    numpy: str = ""
    created: str = ""
    data: AboutData
    split: str = ""
    partition: AboutPartition = AboutPartition()
    method: AboutMethod
    crossings: list[Crossing] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    floor: AboutFloor | None = None
    references: list[AboutReference] = Field(default_factory=list)
    steps_noise: list[AboutNoise] = Field(default_factory=list)
    sealing: list[str] = Field(default_factory=list)
    hidden: str = ""
    deployed: bool = False
    beside: list[Beside] = Field(default_factory=list)

    def told(self, when: str) -> int:
        """Bytes that left the parties "before" or "after" the run."""
        return sum(row.bytes for row in self.beside if row.when == when)
