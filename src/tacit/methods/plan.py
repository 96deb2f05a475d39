"""The plan of a private run: what will be asked, how much noise it needs, and what it will cost. No data is touched."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tacit.boundary.account import epsilon as epsilon_of
from tacit.boundary.calibrate import multiplier as calibrated
from tacit.boundary.curves import epsilon_after
from tacit.boundary.protection import Terms
from tacit.boundary.sealed import Grid
from tacit.config import PrivacySection
from tacit.data.public import PublicFacts
from tacit.errors import PrivacyRefused, UsageError
from tacit.guarantee import Guarantee, Relation, Trust, Unit
from tacit.methods.asked import Asked, Noisy, Schedule, Situation
from tacit.partition import Setting
from tacit.secure import Plain
from tacit.secure.quantize import WRAP, bits_for

#: What a guarantee rests on where releases of several parties compose: the coordinator says how many there are.
ROSTER_REPORTED = "if the coordinator reports the roster truthfully"


@dataclass(frozen=True)
class Plan:
    """Everything that is decided before the first release; `parameters` are the method's, with no default left open."""

    parameters: Any
    terms: Terms
    noisy: tuple[Noisy, ...]
    facts: PublicFacts
    situation: Situation
    delta: float
    warnings: tuple[str, ...]

    def sigma(self) -> dict[str, float]:
        """By step, the standard deviation of the noise that one answer, or one sealed sum, must have."""
        grids, z = self.terms.grids, self.terms.multiplier
        return {n.step: grids[n.step].sigma if n.step in grids else z * n.sensitivity for n in self.noisy}

    def signal_to_noise(self) -> dict[str, float]:
        """By step, the forecast size of a cell over its noise, once all parties' contributions are added."""
        here, plain, sigma = self.situation, Plain(), self.sigma()
        ratios = {}
        for n in self.noisy:
            aggregation = here.aggregation if n.sealed else plain
            ratios[n.step] = n.signal / aggregation.noise(sigma[n.step], n.mixed or here.parties)
        return ratios

    def loudness(self) -> list[dict[str, Any]]:
        """By step, what is asked and how loud its noise is, for plans and reports."""
        sigma, ratio = self.sigma(), self.signal_to_noise()
        return [
            {
                "step": n.step,
                "releases": n.releases,
                "answers": n.answers,
                "sampling": n.sampling,
                "sensitivity": n.sensitivity,
                "sigma": sigma[n.step],
                "cells": n.cells,
                "signal": n.signal,
                "signal_to_noise": ratio[n.step],
            }
            for n in self.noisy
        ]

    def sealing(self) -> dict[str, Any] | None:
        """How sums are sealed, for plans and cards; None where every party's noise is its own and nothing is masked."""
        here = self.situation
        if not here.sealed:
            return None
        told: dict[str, Any] = {
            "colluding": here.colluding,
            "bits": {step: grid.bits for step, grid in self.terms.grids.items()},
            "wrap": WRAP,
        }
        if here.shares is not None and here.shape is not None and here.traffic is not None:
            told |= {
                "honest": here.shares.honest,
                "fewest": here.shares.fewest,
                "levels": list(here.shares.levels),
                "neighbours": here.shape.degree,
                "threshold": here.shape.threshold,
                "signed": here.signed,
                "bytes_up_each": here.traffic.up,
                "bytes_down_each": here.traffic.down,
            }
        return told

    def alone(self) -> float | None:
        """ε of one party's own share of the noise, were all others to collude; None where its noise is its own."""
        here, z = self.situation, self.terms.multiplier
        if here.shares is None or not any(n.sealed for n in self.noisy):
            return None
        share = z / math.sqrt(max(1, here.parties - here.colluding))
        events = [n.event(share if n.sealed else z) for n in self.noisy]
        return float(epsilon_of(events, self.delta, self.terms.relation))

    def spent(self, asked: Mapping[str, int]) -> float:
        """ε of the releases that were asked for so far, by step, whatever became of them; never too low.

        A party makes no more releases of a step than were planned, so that further requests cost nothing.
        """
        planned = [(n.event(self.terms.multiplier, 1), n.releases) for n in self.noisy]
        made = [min(asked.get(n.step, 0), n.releases) for n in self.noisy]
        return min(epsilon_after(planned, made, self.delta, self.terms.relation), self.terms.guarantee.epsilon)

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
            'remove that section to run it NON-PRIVATE, or choose "sgdmf" or "bias".'
        )
    delta, warnings = checked_delta(privacy.delta, facts.users)
    situation.check()
    unit = Unit(privacy.unit)
    parameters = parameters.resolved(unit, situation)
    asked = _sealed(schedule(parameters, facts, unit, situation), situation, seeded)
    relation = Relation.ZERO_OUT if asked.accounted is None else asked.accounted[1]
    if privacy.accounting == "paper":
        if asked.claim is None:
            raise PrivacyRefused(
                f'There is no paper\'s accounting for "{method}" here ({situation.setting}, per {unit}); '
                'use accounting = "sound".'
            )
        z, claimed = asked.claim(privacy.epsilon, delta), privacy.epsilon
    else:
        z, claimed = _calibrated(asked.noisy, privacy.epsilon, delta, relation), None
    reached = float(epsilon_of([n.event(z) for n in asked.noisy], delta, relation))
    trust, against = _trust(situation, all(n.sealed for n in asked.noisy))
    if not seeded and any(n.parties > 1 for n in asked.noisy):
        against = f"{against}, {ROSTER_REPORTED}"
    per_silo = unit is Unit.USER and situation.setting is Setting.HORIZONTAL
    guarantee = Guarantee(reached, delta, unit, relation, trust, against, seeded, per_silo, claimed)
    terms = Terms(
        guarantee,
        z,
        schedule={n.step: n.releases for n in asked.noisy},
        events=tuple(n.event(z) for n in asked.noisy),
        sensitivities={n.step: n.sensitivity for n in asked.noisy},
        grids={n.step: _grid(n, z, situation) for n in asked.noisy if n.whole},
        reports={n.step: n.event_of(z, n.answers) for n in asked.noisy if n.reported},
        parties={n.step: n.parties for n in asked.noisy},
        accounted=asked.accounted,
        masked=situation.sealed,
    )
    return Plan(parameters, terms, asked.noisy, facts, situation, delta, (*warnings, *asked.warnings))


def _sealed(asked: Asked, situation: Situation, seeded: bool) -> Asked:
    """The same with sums sealed, where the aggregation does that, and with a release more for every retry.

    Under a seal, and wherever noise is not a simulation's, sums are of whole numbers.
    """
    crowd = max(1, situation.fewest_reports - situation.colluding) if situation.shuffled else 0
    noisy = tuple(
        replace(
            n,
            sealed=situation.sealed and n.summed is not None,
            whole=n.summed is not None and (situation.sealed or not seeded),
            crowd=crowd if n.reported else 0,
        )
        for n in asked.noisy
    )
    if any(n.sealed and n.parties > 1 for n in noisy):
        raise PrivacyRefused(
            "A user is in several parties here, and a sum that carries one noise as a whole is not accounted for that; "
            'use [aggregation] name = "plain", where every party adds noise of its own.'
        )
    more = {n.step: n.releases + situation.retries for n in noisy if n.sealed}
    return replace(asked, noisy=tuple(replace(n, releases=more.get(n.step, n.releases)) for n in noisy))


def _grid(noisy: Noisy, multiplier: float, situation: Situation) -> Grid:
    """The whole numbers of a sealed sum: as fine as rounding needs, as wide as everybody's pieces and noise do."""
    assert noisy.summed is not None
    shares, rounding = situation.shares, noisy.summed.rounding
    own = not noisy.sealed
    grid = Grid(rounding, noisy.sensitivity / noisy.summed.clip, multiplier, 64, None if own else shares, own)
    largest = grid.variance * (situation.colluding + 1) if shares is None else shares.largest(grid.variance)
    return replace(grid, bits=bits_for(noisy.summed.pieces, rounding, largest, noisy.cells))


def affordable(made: Plan, privacy: PrivacySection) -> None:
    """Refuse a run that every party would refuse at its first step, since even an empty ledger cannot hold it."""
    if privacy.budget is None and privacy.accounting == "sound":
        return
    budget, terms = privacy.budget or privacy.epsilon, made.terms
    spent = epsilon_of(terms.events, made.delta, terms.relation)
    if spent > budget * (1 + 1e-9):
        raise PrivacyRefused(
            f"This run takes every party to ε = {spent:.3f} at δ = {made.delta:g}, and its budget is {budget:g}: no "
            "step would be answered; raise the budget of [privacy], or ask for a smaller epsilon."
        )


def _calibrated(noisy: tuple[Noisy, ...], epsilon: float, delta: float, relation: Relation) -> float:
    return float(calibrated(lambda z: [n.event(z) for n in noisy], epsilon, delta, relation))


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


def _trust(situation: Situation, sealed: bool) -> tuple[Trust, str]:
    if sealed:
        count, shares = situation.colluding, situation.shares
        one, many = ("device", "devices") if situation.setting is Setting.DEVICE else ("party", "parties")
        who = f"one colluding {one}" if count == 1 else f"{count:,} colluding {many}"
        lying = ", who may lie about who stayed," if situation.signed else ""
        held = "" if shares is None else f", if {shares.honest:,} honest {many} stay"
        return Trust.DISTRIBUTED, f"the coordinator{lying} and {who}{held}"
    if situation.shuffled:
        who = "one colluding device" if situation.colluding == 1 else f"{situation.colluding:,} colluding devices"
        return Trust.SHUFFLED, f"whoever sees the shuffled reports, with {who}"
    if situation.setting is Setting.DEVICE:
        return Trust.LOCAL, "everyone"
    return Trust.SILO, "the coordinator and other silos"
