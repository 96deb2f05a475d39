"""How several parties' contributions become one: what every aggregation is, on a party's and the coordinator's side.

An aggregation is one frozen value, made from public quantities before a run. Methods state a sum, a mean or reports;
the aggregation decides who sees what, whose noise a sum carries, and which further messages that needs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from tacit.boundary.code import in_blocks
from tacit.boundary.endpoint import PartySide
from tacit.boundary.release import Kind
from tacit.boundary.wire import Array, Value
from tacit.config import AggregationSection
from tacit.errors import BadMessage, PrivacyRefused
from tacit.federation.calls import Answers, Call, Total, require
from tacit.federation.dropout import Attendance
from tacit.federation.facts import Member
from tacit.federation.messages import Step
from tacit.federation.role import Role
from tacit.guarantee import Trust
from tacit.partition import Setting
from tacit.rng import derive


@dataclass(frozen=True)
class Aggregation(PartySide):
    """The coordinator sees everything, unless an aggregation hides it.

    Attributes
    ----------
    setting, parties : the run's; devices of a cohort are counted one by one
    seen : who sees what, in a few words for the card
    hides : the kinds of step of which nobody sees a single party's part
    only_simulated : whether it exists in simulations alone
    retries : how many void sums may be tried again, over the whole run
    fewest : how many contributors a sum needs; with fewer the round is void
    crowd : how many honest devices' reports a shuffle hides one among; 0 for none
    roles : further roles that it needs, by name
    signs : whether parties sign their messages, so that both sides need keys
    through_proxy : whether contributions go through a proxy, which a run then needs
    noise_share : the part of σ that one party adds, where parties add shares of the noise; else None
    traffic : bytes of one sum besides a contribution, to and from one party; None where there are none
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
    signs: ClassVar[bool] = False
    through_proxy: ClassVar[bool] = False
    noise_share: ClassVar[float | None] = None
    traffic: ClassVar[Any] = None

    @classmethod
    def of(cls, setting: Setting, parties: int, section: AggregationSection) -> Self:
        """From a run file's [aggregation]; refuses what is not possible."""
        return cls(setting, parties)

    def for_roster(self, roster: tuple[Member, ...]) -> Aggregation:
        """The same for these parties: a protocol that a cohort of devices does not run is simulated."""
        return self

    # -- what it means ----------------------------------------------------------------------------------------

    def check(self, method: str, steps: Mapping[str, tuple[Kind, bool]]) -> None:
        """Refuse a run in which it protects nothing; `steps` has each step's kind, and whether it is averaged."""

    def hidden(self, kind: Kind, mean: bool) -> bool:
        """Whether nobody sees a single party's part of such a step."""
        return kind in self.hides and (kind is not Kind.CHAIN or mean)

    def trust(self) -> tuple[Trust, str]:
        """Whom a run trusts that hides every step, and against whom that holds."""
        if self.setting is Setting.DEVICE:
            return Trust.LOCAL, "everyone"
        return Trust.SILO, "the coordinator and other silos"

    def noise(self, sigma: float, contributors: int) -> float:
        """The standard deviation on each cell of a sum, where a guarantee needs `sigma`: here every party adds it."""
        return sigma * math.sqrt(contributors)

    def largest_variance(self, variance: float) -> float:
        """The largest variance that a cell of a message can have."""
        return 2 * variance

    def description(self) -> dict[str, Any] | None:
        """How sums are hidden, for plans and cards; None where nothing is."""
        return None

    def messages(self, step: Step, simulated: bool) -> dict[str, Step]:
        """The messages of a step's sum besides contributions, for the card; `simulated` devices only count them."""
        exchanges = [exchange.about(name, step.name) for name, exchange in self.exchanges.items()]
        return {exchange.name: exchange for exchange in exchanges}

    # -- the coordinator's side -------------------------------------------------------------------------------

    def add(self, call: Call) -> Total | None:
        """The sum of contributions that the coordinator sees; None where too few stayed."""

        def reduce(answers: Answers, _there: Attendance) -> dict[str, Value]:
            totals = {f"sum/{name}": np.zeros(shape) for name, shape in call.shapes.items()}
            for _answer, body in require(answers, call.request):  # in roster order, whichever came first
                for name, block in call.terms.code.blocks(body, call.shapes).items():
                    totals[f"sum/{name}"] += block
            return {"contributors": sum(answer.contributors for answer, _body in answers), **totals}

        result = call.contributions(reduce)
        contributors = result.pop("contributors")
        return Total({name.removeprefix("sum/"): block for name, block in result.items()}, contributors)

    def mean(self, call: Call) -> Array:
        """Σ weight·block over those that answered, their weights adding up to 1; for a step with one block."""
        (name,) = call.shapes

        def reduce(answers: Answers, _there: Attendance) -> dict[str, Value]:
            weights = np.array([call.facts.weight(answer.party) for answer, _body in require(answers, call.request)])
            weights /= weights.sum()
            total = np.zeros(answers[0][1][name].shape, dtype=np.float64)
            weighted = np.empty_like(total)
            for weight, (_answer, body) in zip(weights, answers, strict=True):
                total += np.multiply(body[name], weight, out=weighted)
            return {"mean": total.astype(np.float32)}

        mean: Array = call.contributions(reduce, "mean")["mean"]
        return mean

    def gather(self, call: Call) -> dict[str, Any]:
        """Everyone's single reports; the coordinator, who has seen whose they are, shuffles them."""
        return call.contributions(lambda answers, _there: shuffled(call, answers), "reports")


def shuffled(call: Call, answers: Answers) -> dict[str, Value]:
    """All reports of all parties, in random order."""
    require(answers, call.request)
    joined = {name: np.concatenate([body[name] for _answer, body in answers]) for name in answers[0][1]}
    sizes = {len(array) for array in joined.values()}
    if len(sizes) > 1:
        raise BadMessage(
            f'The arrays of reports of step "{call.request.step}" differ in length; each needs one entry a report.'
        )
    stream = derive(call.facts.seed, call.request.round, "shuffle", call.messenger.calls)
    order = stream.permutation(sizes.pop() if sizes else 0)
    return {name: array[order] for name, array in joined.items()}


def colluding(fraction: float, parties: int) -> int:
    """How many of all parties may collude; at least one may."""
    return max(1, math.ceil(fraction * parties))


def nothing_to_hide(name: str, method: str, why: str, instead: str = '"plain"') -> PrivacyRefused:
    """The refusal of a run in which an aggregation protects nothing."""
    return PrivacyRefused(f'[aggregation] name = "{name}" {why}, and {method} has none here; use {instead}.')


def decoded(call: Call, contributors: int, total: Array) -> Total:
    """A sum mod 2^bits as its blocks."""
    numbers = call.terms.code.numbers(total)
    return Total(in_blocks(numbers.astype(np.float32), call.shapes), contributors)


def colluders(count: int, setting: Setting) -> str:
    """Those who may help the coordinator, in words."""
    one, many = ("device", "devices") if setting is Setting.DEVICE else ("party", "parties")
    return f"one colluding {one}" if count == 1 else f"{count:,} colluding {many}"
