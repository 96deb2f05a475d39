"""The description of a run: summary.json for programs, about.json for people. One class writes and reads both.

Unknown keys are kept. A key that an older run did not write has a default here.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from tacit.errors import UsageError
from tacit.report.words import plural, short

Metrics = dict[str, float | None]
Intervals = dict[str, tuple[float | None, float | None]]


class Described(BaseModel):
    """A part of the description."""

    model_config = ConfigDict(extra="allow", frozen=True)


class StatedGuarantee(Described):
    """What a run states about privacy; further facts (h, c, …) are printed as they are."""

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


class File(Described):
    """One JSON file of a run folder; `OPTIONAL` keys are left out where there is nothing to state."""

    OPTIONAL: ClassVar[frozenset[str]] = frozenset()

    def to_json(self) -> dict[str, Any]:
        """The keys and values that go to disk."""
        table = self.model_dump(mode="json", exclude_unset=True)
        return {key: value for key, value in table.items() if value or key not in self.OPTIONAL}

    def to_bytes(self) -> bytes:
        return (json.dumps(self.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()

    @classmethod
    def read(cls, path: Path) -> Self:
        """The file at `path`, without passwords."""
        try:
            return cls.model_validate(_without_secrets(json.loads(path.read_text(encoding="utf-8"))))
        except ValidationError as error:
            first = error.errors()[0]
            problem = f"{'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg'][:1].lower()}{first['msg'][1:]}"
        except (ValueError, OSError) as error:
            problem = str(error)
        raise UsageError(f'"{path}" cannot be read ({problem}); run again with: tacit run {path.parent / "run.toml"}')


class Summary(File):
    """summary.json, the contract of `tacit run --json`."""

    OPTIONAL: ClassVar[frozenset[str]] = frozenset({"metrics_shared", "metrics_of", "void", "bad_rows"})

    run: str = ""
    method: str
    setting: str
    metrics: Metrics
    metrics_shared: Metrics = {}
    metrics_of: str = ""
    void: int = 0
    bad_rows: int = 0
    intervals: Intervals = {}
    guarantee: StatedGuarantee | None
    rounds: int
    bytes_up: int
    bytes_down: int
    seconds: float
    digest: str


class AboutData(Described):
    """What was learned from; `ratings_in_words` where their number is no plain count of what was learned from."""

    name: str
    users: int
    items: int
    ratings: int
    ratings_in_words: str = ""
    scale: Any = None
    feedback: str = ""
    features: list[str] = []
    density: float | None = None
    notes: list[str] = []

    @property
    def rated(self) -> str:
        """How many ratings there are, in words."""
        return self.ratings_in_words or plural(self.ratings, "rating")

    @property
    def sizes(self) -> str:
        """Users, items and ratings."""
        return f"{plural(self.users, 'user')}, {plural(self.items, 'item')}, {self.rated}"


class AboutParty(Described):
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


class AboutPartition(Described):
    description: str = ""
    parties: list[AboutParty] = []


class AboutMethod(Described):
    name: str
    title: str = ""
    parameters: dict[str, Any] = {}
    what: str = ""


class Crossing(Described):
    """One kind of payload that may cross, in words; `kind` is chain, sum, report, public or disclose."""

    step: str
    kind: str
    to: str = "the coordinator"
    what: str = ""


class Beside(Described):
    """One message that sites sent "before" the run or "after" it; bytes are those of all sites."""

    step: str
    when: str
    kind: str
    what: str = ""
    answers: int = 0
    bytes: int = 0


class AboutPaired(Described):
    """A run compared with its floor user by user: run − floor."""

    users: int
    difference: float
    interval: tuple[float, float] | None = None


class AboutFloor(Described):
    """What `bias` reached on the same parties at the same guarantee; `missing` says why there are no metrics."""

    method: str
    metrics: Metrics = {}
    intervals: Intervals = {}
    guarantee: StatedGuarantee | None = None
    user_means: Metrics = {}
    paired: dict[str, AboutPaired] = {}
    missing: str = ""

    @property
    def name(self) -> str:
        """The method's name, cut to a readable length."""
        return short(self.method, 40)


class AboutReference(Described):
    """A model that the run is compared with, without any guarantee; `missing` says why there are no metrics."""

    name: str
    what: str = ""
    metrics: Metrics = {}
    intervals: Intervals = {}
    missing: str = ""


class AboutNoise(Described):
    """One private step: its releases, their noise, and the forecast size of the signal."""

    step: str
    releases: int
    answers: int
    sampling: float
    sensitivity: float
    sigma: float
    cells: int
    signal: float
    signal_to_noise: float


class About(File):
    """about.json: the run in words."""

    OPTIONAL: ClassVar[frozenset[str]] = frozenset({"floor", "references", "sealing", "hidden", "reports"})

    tacit: str = ""
    python: str = ""
    numpy: str = ""
    created: str = ""
    data: AboutData
    split: str = ""
    partition: AboutPartition = AboutPartition()
    method: AboutMethod
    crossings: list[Crossing] = []
    notes: list[str] = []
    floor: AboutFloor | None = None
    references: list[AboutReference] = []
    steps_noise: list[AboutNoise] = []
    sealing: list[str] = []
    reports: list[str] = []
    hidden: str = ""
    deployed: bool = False
    beside: list[Beside] = []

    def bytes_sent(self, when: str) -> int:
        """Bytes that left the parties "before" or "after" the run."""
        return sum(row.bytes for row in self.beside if row.when == when)


class RunDescription(Described):
    """What a run folder states about its run, in figures and in words."""

    summary: Summary
    about: About

    @classmethod
    def read(cls, folder: Path) -> Self:
        return cls(summary=Summary.read(folder / "summary.json"), about=About.read(folder / "about.json"))


def redacted(text: str) -> str:
    """The text without the secrets that a database's address may carry.

    >>> redacted("postgresql://ann:s3cret@db/shop password=hunter2")
    'postgresql://…@db/shop password=…'
    """
    if "@" not in text and "=" not in text:  # quick for the many strings of a large run
        return text
    text = re.sub(r"(\b[a-z][a-z0-9+.-]*://)[^/\s\"'@]*@", r"\1…@", text, flags=re.IGNORECASE)
    return re.sub(r"(?i)\b(password|pwd|passwd|token|secret)(\s*=\s*)[^\s\"'&;]+", r"\1\2…", text)


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_secrets(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_secrets(inner) for inner in value]
    return redacted(value) if isinstance(value, str) else value
