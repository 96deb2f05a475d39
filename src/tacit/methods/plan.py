"""The plan of a private run: what will be asked, how much noise it needs, and what it will cost. No data is touched."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.boundary.account import epsilon as epsilon_of
from tacit.boundary.calibrate import multiplier as calibrated
from tacit.boundary.curves import epsilon_curve
from tacit.boundary.events import Event, Gaussian, SampledGaussian
from tacit.boundary.protection import Terms
from tacit.config import PrivacySection
from tacit.data.public import PublicFacts
from tacit.errors import PrivacyRefused, UsageError
from tacit.guarantee import Guarantee, Relation, Trust, Unit
from tacit.partition import Setting
from tacit.secure import IdealSum, Plain


@dataclass(frozen=True)
class Noisy:
    """One kind of noisy release that a method makes.

    Attributes
    ----------
    step : the step's name
    releases, answers : releases in the whole run, and noisy answers within each
    sampling : the rate of fresh, secret Poisson samples of users; 1 for none
    sensitivity : Δ of one answer, for the plan's unit under zero-out
    cells : numbers in one release
    signal : the forecast size of one cell, from public quantities
    """

    step: str
    releases: int
    answers: int
    sampling: float
    sensitivity: float
    cells: int
    signal: float

    def event(self, multiplier: float) -> Event:
        """What all its releases spend."""
        return self.event_of(multiplier, self.releases * self.answers)

    def event_of(self, multiplier: float, count: int) -> Event:
        """What `count` of its answers spend."""
        return SampledGaussian(multiplier, self.sampling, count) if self.sampling < 1 else Gaussian(multiplier, count)


@dataclass(frozen=True)
class Situation:
    """Where a plan is made: the setting and how sums are protected."""

    setting: Setting
    parties: int
    sealed: bool
    collusion: float = 0.0

    @property
    def colluding(self) -> int:
        """How many of all parties may collude."""
        return max(1, math.ceil(self.collusion * self.parties))


Schedule = Callable[[Any, PublicFacts, Unit, Situation], tuple[Noisy, ...]]


@dataclass(frozen=True)
class Plan:
    """Everything that is decided before the first release."""

    terms: Terms
    noisy: tuple[Noisy, ...]
    facts: PublicFacts
    situation: Situation
    delta: float
    warnings: tuple[str, ...]

    def sigma(self) -> dict[str, float]:
        """By step, the standard deviation of the noise on one answer."""
        return {noisy.step: self.terms.multiplier * noisy.sensitivity for noisy in self.noisy}

    def signal_to_noise(self) -> dict[str, float]:
        """By step, the forecast size of a cell over its noise, once all parties' contributions are added."""
        here = self.situation
        aggregation = IdealSum(here.colluding, 0) if here.sealed else Plain()
        sigma = self.sigma()
        return {n.step: n.signal / aggregation.noise(sigma[n.step], here.parties) for n in self.noisy}

    def curve(self) -> np.ndarray:
        """ε after each round, computed beforehand, for the live line; (rounds + 1,) float64, never too low."""
        z, rounds = self.terms.multiplier, max(n.releases for n in self.noisy)
        per_round = [n.event_of(z, math.ceil(n.releases / rounds) * n.answers) for n in self.noisy]
        return epsilon_curve(per_round, rounds, self.delta, self.terms.relation)

    def epsilon_of_one(self) -> dict[str, float]:
        """By step, what one answer alone would cost."""
        ones = {n.step: n.event_of(self.terms.multiplier, 1) for n in self.noisy}
        return {step: float(epsilon_of([event], self.delta, self.terms.relation)) for step, event in ones.items()}


def make_plan(
    method: str,
    schedule: Schedule | None,
    parameters: Any,
    privacy: PrivacySection,
    facts: PublicFacts,
    situation: Situation,
    seeded: bool,
) -> Plan:
    """Calibrate the noise for the whole schedule; refuse what cannot be kept."""
    if schedule is None:
        raise PrivacyRefused(
            f'The method "{method}" carries no guarantee in this version, so [privacy] cannot be kept; '
            'remove that section to run it NON-PRIVATE, or choose "bias".'
        )
    if privacy.accounting == "paper":
        raise PrivacyRefused(f'There is no paper\'s accounting for "{method}"; use accounting = "sound".')
    delta, warnings = checked_delta(privacy.delta, facts.users)
    unit, relation = Unit(privacy.unit), Relation.ZERO_OUT
    noisy = schedule(parameters, facts, unit, situation)
    z = float(calibrated(lambda m: [n.event(m) for n in noisy], privacy.epsilon, delta, relation))
    events = tuple(n.event(z) for n in noisy)
    reached = float(epsilon_of(events, delta, relation))
    trust, against = _trust(situation)
    per_silo = unit is Unit.USER and situation.setting is Setting.HORIZONTAL
    guarantee = Guarantee(reached, delta, unit, relation, trust, against, seeded, per_silo)
    counts = {n.step: n.releases for n in noisy}
    sensitivities = {n.step: n.sensitivity for n in noisy}
    terms = Terms(guarantee, z, counts, events, not situation.sealed, sensitivities)
    return Plan(terms, noisy, facts, situation, delta, warnings)


def checked_delta(delta: float | None, users: int) -> tuple[float, tuple[str, ...]]:
    """δ for n users: min(1e-6, 1/(100n)) by default; refused at 1/n, with a warning above 1/(10n)."""
    if delta is None:
        return min(1e-6, 1 / (100 * users)), ()
    if delta >= 1 / users:
        raise UsageError(
            f"[privacy] delta = {delta:g} is not below 1/users = {1 / users:.2g}: it would allow one of the "
            f"{users:,} users to be given away whole; use {min(1e-6, 1 / (100 * users)):.0e} or less."
        )
    if delta > 1 / (10 * users):
        return delta, (f"delta = {delta:g} is above 1/(10·users) = {1 / (10 * users):.2g}; a smaller one is better.",)
    return delta, ()


def _trust(situation: Situation) -> tuple[Trust, str]:
    if situation.sealed:
        count = situation.colluding
        who = "one colluding party" if count == 1 else f"{count} colluding parties"
        return Trust.DISTRIBUTED, f"the coordinator and {who}"
    if situation.setting is Setting.DEVICE:
        return Trust.LOCAL, "everyone"
    return Trust.SILO, "the coordinator and other silos"
