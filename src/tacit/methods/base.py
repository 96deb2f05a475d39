"""What a method is: two sides of one conversation, its parameters, and where it can be held."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from tacit.boundary import Gate
from tacit.boundary.protection import Protection
from tacit.config import Frozen
from tacit.data.ratings import Feedback
from tacit.errors import UsageError
from tacit.federation import Facts, Federation, Party
from tacit.guarantee import Unit
from tacit.methods.asked import Schedule, Situation
from tacit.model import Model
from tacit.partition import Setting, Share

#: Marks a parameter whose default depends on the run although one is written: `rounds: Annotated[int, DEPENDS] = 100`.
#: An estimator's default is None then, so that a value given by a user differs from one left out.
DEPENDS = "its default depends on the run"


class Parameters(Frozen):
    """A method's parameters; frozen, checked, and bound into every request by their hash."""

    @property
    def dimensions(self) -> dict[str, int]:
        """What names in the shapes of this method's messages stand for."""
        return {}

    def resolved(self, unit: Unit | None, situation: Situation) -> Self:
        """The same with no default left open; `unit` is what the run protects, None for a run without privacy."""
        return self

    @property
    def hash(self) -> str:
        """SHA-256 of the parameters, in hexadecimal."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


class Coordinator(Protocol):
    """The coordinator's side."""

    def run(self, federation: Federation) -> Model:
        """Hold the conversation; returns what everybody may have."""


@dataclass(frozen=True)
class Sides:
    """Who talks to whom in one setting."""

    coordinator: Callable[[Any, Facts], Coordinator]
    party: type[Party]


@dataclass(frozen=True)
class Method:
    """One method: a name, a line for reports, its parameters, and its two sides in each setting that it knows.

    `schedule` says what noisy releases a private run makes; a method without one carries no guarantee. `private` are
    the sides of a private run, where these are others.
    """

    name: str
    title: str
    what: str
    parameters: type[Parameters]
    sides: Mapping[Setting, Sides]
    feedback: frozenset[Feedback] = field(default_factory=lambda: frozenset(Feedback))
    schedule: Schedule | None = None
    private: Mapping[Setting, Sides] = field(default_factory=dict)

    def sides_for(self, setting: Setting, private: bool) -> Sides:
        """The two sides in a setting that the method knows."""
        return self.private[setting] if private and setting in self.private else self.sides[setting]

    def sides_in(self, facts: Facts) -> Sides:
        """The two sides for a run with these facts, or one sentence that says why there are none."""
        if facts.feedback not in self.feedback:
            able = ", ".join(sorted(self.feedback))
            raise UsageError(
                f"{self.name} learns from {able} feedback, and the data is {facts.feedback}; choose another method, "
                'such as "popularity", or set [data] feedback.'
            )
        if facts.setting not in self.sides:
            able = ", ".join(self.sides)
            raise UsageError(f"{self.name} runs in the {able} setting, and [partition] makes a {facts.setting} one.")
        return self.sides_for(facts.setting, facts.unit is not None)

    def make_party(
        self, share: Share, parameters: Parameters, facts: Facts, protection: Protection | None = None
    ) -> Party:
        """One party of a run, with its own gate."""
        home: dict[str, object] = {}
        gate = Gate(share.name, facts.seed, home, share.devices, protection)
        return self.sides_in(facts).party(share, parameters, facts, gate)
