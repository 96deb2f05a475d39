"""What a method is: two sides of one conversation, its parameters, and where it can be held."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from tacit.boundary.spec import Spec
from tacit.config import Frozen
from tacit.data.ratings import Feedback
from tacit.errors import UsageError
from tacit.federation import Facts, Federation, Party, Role
from tacit.methods.context import Context
from tacit.model import Model
from tacit.partition import Setting

#: Marks a parameter whose default depends on the run although one is written: `rounds: Annotated[int, DEPENDS] = 100`.
#: An estimator's default is None then, so that a value given by a user differs from one left out.
DEPENDS = "its default depends on the run"


class Parameters(Frozen):
    """A method's parameters; frozen, checked, and bound into every request by their hash."""

    @property
    def dimensions(self) -> dict[str, int]:
        """What names in the shapes of this method's messages stand for."""
        return {}

    def resolved(self, context: Context) -> Self:
        """The same with no default left open; refuses what cannot be in that context."""
        return self

    @property
    def hash(self) -> str:
        """SHA-256 of the parameters, in hexadecimal."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


class Coordinator(Protocol):
    """The coordinator's side."""

    def run(self, federation: Federation) -> Model:
        """Hold the conversation; returns what everybody may have."""


#: What a method releases in one setting, each access stated once; from resolved parameters and public quantities.
Specs = Callable[[Any, Context], Sequence[Spec]]


def nothing(parameters: Any, context: Context) -> Sequence[Spec]:
    """The specs of a method whose steps look at no data, or hand it out as it is."""
    return ()


@dataclass(frozen=True)
class Sides:
    """Who talks to whom in one setting, and what is released there; `roles` are asked by their names."""

    coordinator: Callable[[Any, Facts], Coordinator]
    party: type[Party]
    specs: Specs = nothing
    roles: Mapping[str, type[Role]] = field(default_factory=dict)


@dataclass(frozen=True)
class Method:
    """One method: a name, a line for reports, its parameters, and its two sides in each setting that it knows.

    `guaranteed` says whether it can carry a guarantee at all. `claim` is a paper's own formula: given parameters and
    context, noise over sensitivity, to be used by accounting = "paper" alone; None where the paper has none for them.
    """

    name: str
    title: str
    what: str
    parameters: type[Parameters]
    sides: Mapping[Setting, Sides]
    feedback: frozenset[Feedback] = field(default_factory=lambda: frozenset(Feedback))
    guaranteed: bool = True
    claim: Callable[[Any, Context], float | None] | None = None

    def sides_in(self, setting: Setting, feedback: Feedback | None = None) -> Sides:
        """The two sides in a setting, or one sentence that says why there are none."""
        if feedback is not None and feedback not in self.feedback:
            able = ", ".join(sorted(self.feedback))
            raise UsageError(
                f"{self.name} learns from {able} feedback, and the data is {feedback}; choose another method, "
                'such as "popularity", or set [data] feedback.'
            )
        if setting not in self.sides:
            able = ", ".join(self.sides)
            raise UsageError(f"{self.name} runs in the {able} setting, and [partition] makes a {setting} one.")
        return self.sides[setting]
