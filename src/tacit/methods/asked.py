"""What a method asks of its parties in a private run, and where: from public quantities alone, before any noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tacit.boundary.events import Event, Gaussian, Pure, SampledGaussian, Shuffled
from tacit.boundary.sealed import skellam_event
from tacit.config import AggregationSection
from tacit.data.public import PublicFacts
from tacit.guarantee import Relation, Unit
from tacit.partition import Setting
from tacit.secure import Aggregation, IdealSum, Plain, SecureSum
from tacit.secure.graph import Shape, choose
from tacit.secure.quantize import Rounding
from tacit.secure.shares import Shares, fewest_of
from tacit.secure.traffic import Traffic, overhead


@dataclass(frozen=True)
class Summed:
    """What a step that is a sum adds up.

    Attributes
    ----------
    clip : the norm that no piece exceeds: what one user adds, or one rating
    touched : how many cells of a piece may be other than 0
    pieces : how many can meet in one cell, over all parties
    """

    clip: float
    touched: int
    pieces: int

    @property
    def rounding(self) -> Rounding:
        return Rounding.fine(self.clip, self.touched)


@dataclass(frozen=True)
class Noisy:
    """One kind of noisy release that a method makes.

    Attributes
    ----------
    step : the step's name
    releases, answers : releases in the whole run, and noisy answers within each
    sampling : the rate of fresh, secret Poisson samples of the unit; 1 for none
    sensitivity : Δ of one answer, for the unit that is accounted for, under zero-out
    cells : numbers in one release
    signal : the forecast size of one cell of one answer, all parties' contributions added, from public quantities
    parties : in how many parties' releases one unit can be; all these compose
    mixed : how many parties' noise one cell carries in the end; None means that of all
    summed : what a step that is a sum adds up; None for a chain
    sealed : whether the sum as a whole carries the noise; set by the plan
    whole : whether a sum is made of whole numbers with exact noise: under a seal, and in every deployment; set likewise
    reported : whether the answers are single reports that devices randomise by themselves: ε₀ is 1 over the multiplier
    crowd : how many honest devices' reports a shuffle loses one among; 0 for no shuffle; set by the plan
    """

    step: str
    releases: int
    answers: int
    sampling: float
    sensitivity: float
    cells: int
    signal: float
    parties: int = 1
    mixed: int | None = None
    summed: Summed | None = None
    sealed: bool = False
    whole: bool = False
    reported: bool = False
    crowd: int = 0

    def event(self, multiplier: float, releases: int | None = None) -> Event:
        """What one unit's releases cost over all parties that it is in: all of them, or the first `releases`.

        Each of these parties adds noise of its own to its own releases, so that they compose: s parties are s times the
        events of one. A sealed sum is one release with one noise, which a unit in s parties moves s times as far; that
        is more than s events cost, and a plan refuses it.
        """
        made = self.releases if releases is None else releases
        return self.event_of(multiplier, made * self.answers * self.parties)

    def event_of(self, multiplier: float, count: int) -> Event:
        """What `count` of its answers spend, each of one party."""
        if self.reported:
            local = 1 / multiplier
            return Shuffled(local, self.crowd, count) if self.crowd else Pure(local, "randomised reports", count)
        if self.whole and self.summed is not None:
            rounding, times = self.summed.rounding, self.sensitivity / self.summed.clip
            return skellam_event(multiplier, times * rounding.l1, times * rounding.l2, self.sampling, count)
        return SampledGaussian(multiplier, self.sampling, count) if self.sampling < 1 else Gaussian(multiplier, count)


@dataclass(frozen=True)
class Situation:
    """Where a plan is made: the setting and how sums are protected.

    Attributes
    ----------
    sealed : whether nobody sees a single contribution to a sum
    collusion : the fraction of parties that may collude; at least one may
    tolerate : ω, the fraction that may drop out of a secure sum or a shuffle; None where an ideal sum is simulated
    signed : whether survivors sign who survived, against a coordinator that lies
    retries : how many void rounds may be tried again, over the whole run
    shuffled : whether reports go through a shuffler, which parts them from their senders
    """

    setting: Setting
    parties: int
    sealed: bool
    collusion: float = 0.0
    tolerate: float | None = None
    signed: bool = False
    retries: int = 0
    shuffled: bool = False

    @classmethod
    def of(cls, setting: Setting, parties: int, wanted: AggregationSection) -> Situation:
        """As a run file's [aggregation] has it."""
        return cls(
            setting,
            parties,
            sealed=wanted.name in ("ideal", "secagg"),
            collusion=wanted.collusion,
            tolerate=wanted.tolerate if wanted.name in ("secagg", "shuffle") else None,
            signed=wanted.signed and wanted.name == "secagg",
            retries=wanted.retries if wanted.name == "secagg" else 0,
            shuffled=wanted.name == "shuffle",
        )

    @property
    def colluding(self) -> int:
        """How many of all parties may collude."""
        return max(1, math.ceil(self.collusion * self.parties))

    @property
    def fewest_reports(self) -> int:
        """How many devices' reports a shuffler waits for; 0 where there is none."""
        return fewest_of(self.parties, self.tolerate or 0.0) if self.shuffled else 0

    @property
    def shares(self) -> Shares | None:
        """How noise is shared among the parties of a secure sum; None where there is none."""
        if not self.sealed or self.tolerate is None:
            return None
        return Shares.of(self.parties, self.tolerate, self.colluding)

    @property
    def shape(self) -> Shape | None:
        """Who masks with whom in a secure sum; None where there is none."""
        if self.shares is None or self.tolerate is None:
            return None
        return choose(self.parties, self.tolerate, self.colluding, self.signed)

    def check(self) -> None:
        """Refuse a secure sum that cannot be: too few parties, or too many that may drop out or collude."""
        if self.sealed and self.tolerate is not None:
            choose(self.parties, self.tolerate, self.colluding, self.signed)

    @property
    def traffic(self) -> Traffic | None:
        """What a secure sum costs one party, beside its contribution."""
        if self.shape is None or self.shares is None:
            return None
        return overhead(self.shape, self.shares.extras, self.shares.extras)

    @property
    def aggregation(self) -> Aggregation:
        """How contributions are added up."""
        if not self.sealed:
            return Plain()
        return IdealSum(self.colluding) if self.shares is None else SecureSum(self.shares)


@dataclass(frozen=True)
class Asked:
    """What a method asks of its parties in a private run.

    Attributes
    ----------
    noisy : its noisy releases
    accounted : the unit and relation that they are counted under, where these are stronger than what was asked for
    claim : z over sensitivity by a paper's own formulas, as a function of (ε, δ); None where there are none
    warnings : what whoever asked should know
    """

    noisy: tuple[Noisy, ...]
    accounted: tuple[Unit, Relation] | None = None
    claim: Callable[[float, float], float] | None = None
    warnings: tuple[str, ...] = ()


Schedule = Callable[[Any, PublicFacts, Unit, Situation], Asked]
