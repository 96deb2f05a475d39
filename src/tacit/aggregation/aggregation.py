"""How several parties' contributions become one: what every aggregation is, on a party's and the coordinator's side.

An aggregation is one frozen value, made from public quantities before a run. Methods know none: they state a sum, a
mean or reports, and the aggregation decides who sees what, whose noise a sum carries, and what has to be said for that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from tacit.boundary.code import in_blocks
from tacit.boundary.endpoint import PartySide
from tacit.boundary.release import Kind
from tacit.boundary.wire import Array, Value
from tacit.config import AggregationSection
from tacit.errors import BadMessage, PrivacyRefused
from tacit.federation.calls import Heard
from tacit.federation.conversation import Conversation, Opened
from tacit.federation.dropout import Attendance
from tacit.federation.facts import Member
from tacit.federation.messages import Step
from tacit.federation.role import Role
from tacit.guarantee import Trust
from tacit.partition import Setting
from tacit.rng import derive


@dataclass(frozen=True)
class Aggregation(PartySide):
    """Everything is seen by the coordinator, unless an aggregation hides it.

    Attributes
    ----------
    setting, parties : the run's; devices of a cohort are counted one by one
    seen : who sees what, in a few words for the card
    hides : the kinds of step of which nobody sees a single party's part
    only_simulated : whether it exists in simulations alone
    retries : how many void sums may be tried again, over the whole run
    fewest : how many contributors a sum needs; with fewer the round is void
    crowd : how many honest devices' reports a shuffle loses one among; 0 for none
    roles : further roles that it needs, by name
    """

    setting: Setting
    parties: int

    name: ClassVar[str] = "plain"
    seen: ClassVar[str] = "the coordinator sees every party's contribution"
    hides: ClassVar[frozenset[Kind]] = frozenset()
    only_simulated: ClassVar[bool] = False
    fewest: ClassVar[int] = 1
    crowd: ClassVar[int] = 0
    roles: ClassVar[Mapping[str, type[Role]]] = {}
    retries: ClassVar[int] = 0

    @classmethod
    def of(cls, setting: Setting, parties: int, section: AggregationSection) -> Self:
        """As a run file's [aggregation] has it; refuses what cannot be."""
        return cls(setting, parties)

    def for_roster(self, roster: tuple[Member, ...]) -> Aggregation:
        """The same for the parties at hand: a protocol that a cohort of devices does not run is simulated."""
        return self

    # -- what it means ----------------------------------------------------------------------------------------

    def check(self, method: str, steps: Mapping[str, tuple[Kind, bool]]) -> None:
        """Refuse a run in which it protects nothing; `steps` says of each its kind, and whether it is averaged."""

    def hidden(self, kind: Kind, mean: bool) -> bool:
        """Whether nobody sees a single party's part of such a step."""
        return kind in self.hides and (kind is not Kind.CHAIN or mean)

    def trust(self) -> tuple[Trust, str]:
        """Whom a run trusts whose every step it hides, and against whom that holds."""
        if self.setting is Setting.DEVICE:
            return Trust.LOCAL, "everyone"
        return Trust.SILO, "the coordinator and other silos"

    def noise(self, sigma: float, contributors: int) -> float:
        """The standard deviation on each cell of a sum, where a guarantee needs `sigma`: here everybody adds it."""
        return sigma * math.sqrt(contributors)

    def largest_variance(self, variance: float) -> float:
        """The largest variance that can be in a cell of what travels."""
        return 2 * variance

    @property
    def signs(self) -> bool:
        """Whether parties sign what they say, so that both sides need keys."""
        return False

    @property
    def noise_share(self) -> float | None:
        """What part of the noise one party adds, as a standard deviation, where it adds a share of it; else None."""
        return None

    def description(self) -> dict[str, Any] | None:
        """How sums are hidden, for plans and cards; None where nothing is."""
        return None

    def messages(self, step: Step, simulated: bool) -> dict[str, Step]:
        """What is said in the course of a sum of one step, for the card; `simulated` devices only count it."""
        said = [exchange.about(name, step.name) for name, exchange in self.exchanges.items()]
        return {exchange.name: exchange for exchange in said}

    @property
    def traffic(self) -> Any:
        """Bytes of one sum beside a contribution, to and from one party; None where there are none."""
        return None

    # -- the coordinator's side -------------------------------------------------------------------------------

    def add(self, conversation: Conversation) -> Opened | None:
        """The sum of contributions that the coordinator sees."""

        def left(heard: Heard, _there: Attendance) -> dict[str, Value]:
            answers = conversation.somebody(heard)
            blocks = exact_sum([terms.code.blocks(body, conversation.shapes) for _answer, body in answers])
            contributors = sum(answer.contributors for answer, _body in answers)
            return {"contributors": contributors, **{f"sum/{name}": block for name, block in blocks.items()}}

        terms = conversation.terms
        result = conversation.contributions(left)
        contributors = result.pop("contributors")
        return Opened({name.removeprefix("sum/"): block for name, block in result.items()}, contributors)

    def mean(self, conversation: Conversation) -> Array:
        """Σ weight·block over those that answered, their weights adding up to 1."""
        (name,) = conversation.shapes
        facts = conversation.facts

        def left(heard: Heard, _there: Attendance) -> dict[str, Value]:
            answers = conversation.somebody(heard)
            weights = np.array([facts.weight(answer.party) for answer, _body in answers])
            weights /= weights.sum()
            total = np.zeros(answers[0][1][name].shape, dtype=np.float64)
            weighted = np.empty_like(total)
            for weight, (_answer, body) in zip(weights, answers, strict=True):
                total += np.multiply(body[name], weight, out=weighted)
            return {"mean": total.astype(np.float32)}

        mean: Array = conversation.contributions(left, "mean")["mean"]
        return mean

    def gather(self, conversation: Conversation) -> dict[str, Any]:
        """Everybody's single reports together; the coordinator, who has seen whose they are, shuffles them."""
        return conversation.contributions(lambda heard, _there: shuffled(conversation, heard), "reports")


def shuffled(conversation: Conversation, heard: Heard) -> dict[str, Value]:
    """All reports of all parties, in an order that says nothing."""
    answers, request = conversation.somebody(heard), conversation.request
    together = {name: np.concatenate([body[name] for _answer, body in answers]) for name in answers[0][1]}
    sizes = {len(array) for array in together.values()}
    if len(sizes) > 1:
        raise BadMessage(
            f'The reports of step "{request.step}" are of unequal number; every array needs one entry a report.'
        )
    seed, calls = conversation.facts.seed, conversation.line.calls
    order = derive(seed, request.round, "shuffle", calls).permutation(sizes.pop() if sizes else 0)
    return {name: array[order] for name, array in together.items()}


def exact_sum(contributions: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Add in float64, in the order given, so that the result does not depend on who was faster."""
    totals = {name: np.zeros(block.shape, dtype=np.float64) for name, block in contributions[0].items()}
    for contribution in contributions:
        for name, total in totals.items():
            total += contribution[name]
    return totals


def colluding(fraction: float, parties: int) -> int:
    """How many of all parties may collude; at least one may."""
    return max(1, math.ceil(fraction * parties))


def nothing_to_hide(name: str, method: str, why: str, instead: str) -> PrivacyRefused:
    """The refusal of a run in which an aggregation protects nothing."""
    return PrivacyRefused(f'[aggregation] name = "{name}" {why}, and {method} has none here; use {instead}.')


def opened(conversation: Conversation, contributors: int, whole: Array) -> Opened:
    """A sum mod 2^bits as its blocks."""
    numbers = conversation.terms.code.numbers(whole)
    return Opened(in_blocks(numbers.astype(np.float32), conversation.shapes), contributors)


def colluders(count: int, setting: Setting) -> str:
    """Whoever may help the coordinator, in words."""
    one, many = ("device", "devices") if setting is Setting.DEVICE else ("party", "parties")
    return f"one colluding {one}" if count == 1 else f"{count:,} colluding {many}"
