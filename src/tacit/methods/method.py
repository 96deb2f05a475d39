"""What a method is: the two sides of a protocol, its parameters, and the settings in which it runs."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tacit.boundary.query import Mechanism
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec
from tacit.config import Frozen
from tacit.data.ratings import Feedback
from tacit.errors import UsageError
from tacit.federation import Facts, Federation, Party, Role
from tacit.methods.context import Context
from tacit.model import Model
from tacit.partition import Setting

#: What a method learns from that predicts ratings.
RATED = frozenset({Feedback.EXPLICIT, Feedback.COUNT})
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


class Coordinator:
    """The coordinator's side: subclasses define `run`."""

    def __init__(self, parameters: Any, facts: Facts) -> None:
        self.parameters, self.facts = parameters, facts

    def run(self, federation: Federation) -> Model:
        """Run the protocol; returns the shared model."""
        raise NotImplementedError(f"{type(self).__name__} must define run(federation).")


#: What a method releases in one setting, each access stated once; from resolved parameters and public quantities.
Specs = Callable[[Any, Context], Sequence[Spec]]


def nothing(parameters: Any, context: Context) -> Sequence[Spec]:
    """The specs of a method whose steps look at no data, or hand it out as it is."""
    return ()


@dataclass(frozen=True)
class Forecast:
    """How a run goes, for plans; nothing rests on it.

    Attributes
    ----------
    rounds : how many there are; by default as many as the most releases of a step
    public : the steps without data that are asked, once each; by default all of them
    sizes : what further names in the shapes of messages stand for
    notes : sentences on what the method does not do at this size and guarantee, and what to do about it
    """

    rounds: int | None = None
    public: Sequence[str] | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    notes: Sequence[str] = ()


def as_specified(parameters: Any, context: Context) -> Forecast:
    """The forecast of a method whose every round has one release of each step."""
    return Forecast()


@dataclass(frozen=True)
class Sides:
    """Who talks to whom in one setting, what is released there, and how long that takes.

    `roles` are asked by their names.
    """

    coordinator: Callable[[Any, Facts], Any]
    party: type[Party]
    specs: Specs = nothing
    roles: Mapping[str, type[Role]] = field(default_factory=dict)
    forecast: Callable[[Any, Context], Forecast] = as_specified


@dataclass(frozen=True)
class Method:
    """One method: a name, a line for reports, its parameters, and its two sides in each setting that it knows.

    `implicit` are its two sides where feedback is implicit, if these are others. `guaranteed` says whether it can carry
    a guarantee at all. `claim` is a paper's own formula: given parameters and context, noise over sensitivity, to be
    used by accounting = "paper" alone; None where the paper has none for them.
    `without_privacy` are the methods, by feedback, that run under its name where there is no guarantee to pay for.
    """

    name: str
    title: str
    what: str
    parameters: type[Parameters]
    sides: Mapping[Setting, Sides]
    implicit: Mapping[Setting, Sides] = field(default_factory=dict)
    feedback: frozenset[Feedback] = field(default_factory=lambda: frozenset(Feedback))
    guaranteed: bool = True
    claim: Callable[[Any, Context], float | None] | None = None
    without_privacy: Mapping[Feedback, "Method"] = field(default_factory=dict)

    def run_with(self, parameters: Parameters, feedback: Feedback, private: bool) -> "tuple[Method, Parameters]":
        """What runs under this name, and its parameters: these, unless another method runs instead."""
        if private or feedback not in self.without_privacy:
            return self, parameters
        instead = self.without_privacy[feedback]
        return instead, instead.parameters()

    def sides_in(self, setting: Setting, feedback: Feedback | None = None) -> Sides:
        """The two sides in a setting, or one sentence that says why there are none."""
        if feedback is not None and feedback not in self.feedback:
            able = ", ".join(sorted(self.feedback))
            raise UsageError(
                f"{self.name} learns from {able} feedback, and the data is {feedback}; choose another method, "
                'such as "popularity", or set [data] feedback.'
            )
        sides = self.sides_for(feedback)
        if setting not in sides:
            raise self.wrong_setting(setting, feedback)
        return sides[setting]

    def wrong_setting(self, setting: Setting, feedback: Feedback | None = None) -> UsageError:
        """The refusal of a setting that it does not know, with what to do."""
        sides = self.sides_for(feedback)
        of = " of implicit feedback" * (sides is self.implicit)
        if setting is Setting.VERTICAL:
            others = "" if of else ', or choose "bias" or "sgdmf", or "als" without [privacy]'
            return UsageError(
                f"{self.name}{of} needs parties that hold different users, and [partition] divides the items; divide "
                f'users ([partition] by = "user"){others}.'
            )
        ways = {Setting.HORIZONTAL: "user", Setting.VERTICAL: "item", Setting.DEVICE: "device"}
        able = " or ".join(f'"{ways[one]}"' for one in sides)
        return UsageError(
            f"{self.name} does not run in the {setting} setting{of}; set [partition] by = {able}, or choose "
            "another method."
        )

    def sides_for(self, feedback: Feedback | None) -> Mapping[Setting, Sides]:
        """By setting, the two sides for that kind of feedback."""
        return self.implicit if feedback is Feedback.IMPLICIT and self.implicit else self.sides

    def stated(self, parameters: Any, context: Context) -> list[Spec]:
        """What the method releases in that context, each found fit to be planned."""
        sides = self.sides_in(context.setting, context.facts.feedback)
        specs = list(sides.specs(parameters, context))
        named = [spec.step for spec in specs]
        for spec in specs:
            if spec.step not in sides.party.steps:
                wrong = f"its party has no such step, but {', '.join(sides.party.steps)}"
            elif named.count(spec.step) > 1:
                wrong = "it is there twice"
            else:
                wrong = _unfit(spec, sides.party.steps[spec.step].kind)
            if wrong:
                raise UsageError(f'{self.name} states a release of "{spec.step}", and {wrong}.')
        shares = [spec.share for spec in specs if spec.share is not None]
        too_many = len(shares) < len(specs) or not sum(shares) <= 1 + 1e-9
        if shares and (too_many or not all(share > 0 for share in shares)):
            raise UsageError(
                f"The specs of {self.name} share the budget as "
                f"{', '.join(f'{spec.step}: {spec.share}' for spec in specs)}; give every one of them a share above 0, "
                "all together at most 1, or none of them."
            )
        return specs


def _unfit(spec: Spec, kind: Kind) -> str:
    """Why a step of that kind cannot make such releases, since the gate would not do what is accounted for; or ""."""
    mechanism, answers = spec.query.mechanism, spec.answers
    integers = all(isinstance(number, int) and not isinstance(number, bool) for number in (spec.releases, answers))
    if not integers or spec.releases < 0 or answers < 0:
        return "its releases and answers have to be integers of 0 or more"
    if kind not in (Kind.SUM, Kind.CHAIN, Kind.REPORT):
        return f"a {kind} step asks no query"
    if (kind is Kind.REPORT) != (mechanism is Mechanism.RESPONSE):
        return f"a {kind} step cannot be noised as {mechanism}: reports are randomised responses, and nothing else is"
    if mechanism is Mechanism.PERTURBED and kind is not Kind.CHAIN:
        return f"noise inside an objective is for a chain, and this is a {kind}"
    if kind is Kind.SUM and answers != 1:
        return f"a sum has one answer, and not {answers}"
    if kind is Kind.REPORT and answers != spec.query.reports:
        return f"one unit is in {spec.query.reports} reports at once, and {answers} are accounted for"
    if answers == 0 and mechanism is Mechanism.PERTURBED:
        return "it has no answer, and would release one all the same"
    return ""
