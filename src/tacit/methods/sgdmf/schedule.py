"""What a private SGDMF run asks of its parties, and how loud the noise will be: from public quantities alone."""

from __future__ import annotations

import math
from collections.abc import Callable

from tacit.boundary.calibrate import multiplier as calibrated
from tacit.boundary.events import Event, Gaussian, SampledGaussian
from tacit.boundary.gradients import EmbeddingGradient
from tacit.data.public import PublicFacts
from tacit.errors import PrivacyRefused
from tacit.guarantee import Relation, Unit
from tacit.methods.asked import Asked, Noisy, Situation, Summed
from tacit.methods.sgdmf.parameters import SGDMFParameters
from tacit.partition import Setting

BOTH, ITEMS = ("users", "items"), ("items",)


def schedule(parameters: SGDMFParameters, facts: PublicFacts, unit: Unit, situation: Situation) -> Asked:
    """The noisy releases in the setting at hand."""
    match situation.setting:
        case Setting.HORIZONTAL:
            return horizontal(parameters, facts, unit)
        case Setting.VERTICAL:
            return vertical(parameters, facts, unit, situation.parties)
        case _:
            return device(parameters, facts, unit)


def horizontal(parameters: SGDMFParameters, facts: PublicFacts, unit: Unit) -> Asked:
    """T releases of T' answers each, or where T' = 1 of T sums; a user or rating is in one silo."""
    noised, span = parameters.users == "noised", facts.scale.span
    if noised and unit is Unit.USER:
        raise PrivacyRefused(
            'users = "noised" is for unit = "rating"; per user her own factors cost nothing while they stay at home: '
            'use users = "pretrained".'
        )
    accounted: tuple[Unit, Relation] | None = None
    warnings: tuple[str, ...] = ()
    if unit is Unit.RATING and not noised:
        accounted = (Unit.USER, Relation.REPLACE)
        warnings = (_as_replaced(str(parameters.users), ', or use sgdmf with users = "noised"'),)
    of = Unit.USER if accounted else unit
    blocks = BOTH if noised else ITEMS
    sensitivity = parameters.sensitivity(span, of, blocks, users_are_public=noised)
    summed = Summed(sensitivity, (parameters.trim or 1) * parameters.factors, facts.users)
    improve = Noisy(
        step="contribute" if parameters.summed else "improve",
        releases=parameters.rounds,
        answers=parameters.local_steps,
        sampling=parameters.eta,
        sensitivity=sensitivity,
        cells=facts.items * parameters.factors,
        signal=typical_signal(parameters, facts, facts.items),
        summed=summed if parameters.summed else None,
    )
    claim = _proposition_3(parameters, facts) if unit is Unit.USER else None
    return Asked((improve,), accounted, claim, warnings)


def vertical(parameters: SGDMFParameters, facts: PublicFacts, unit: Unit, parties: int) -> Asked:
    """T releases of T' answers, then one of κ; a user is in all silos, a rating in one."""
    span, p, kappa = facts.scale.span, parameters.factors, parameters.final_steps or 0
    everywhere = parties if unit is Unit.USER else 1
    improve = Noisy(
        step="improve",
        releases=parameters.rounds,
        answers=parameters.local_steps,
        sampling=parameters.eta,
        sensitivity=parameters.sensitivity(span, unit, BOTH, users_are_public=True),
        cells=facts.users * p,
        signal=typical_signal(parameters, facts, facts.users, parties),
        parties=everywhere,
    )
    finish = Noisy(
        step="finish",
        releases=1,
        answers=kappa,
        sampling=parameters.eta,
        sensitivity=parameters.sensitivity(span, unit, ITEMS, users_are_public=True),
        cells=math.ceil(facts.items / parties) * p,
        signal=typical_signal(parameters, facts, facts.items, parties),
        parties=everywhere,
        mixed=1,
    )
    return Asked((improve, finish))


def device(parameters: SGDMFParameters, facts: PublicFacts, unit: Unit) -> Asked:
    """T sums of what each device adds; it is one user's, and who takes part is seen: nothing amplifies."""
    span, cells = facts.scale.span, facts.items * parameters.factors
    each, of_one = facts.ratings / facts.users, typical_signal(parameters, facts, facts.items)
    if parameters.send == "record":
        sensitivity, touched = span**1.5, cells
        signal = facts.users * each / facts.items * sensitivity / math.sqrt(max(1.0, each) * parameters.factors) / 2
    else:
        sensitivity = EmbeddingGradient.bound(span, Unit.USER, Relation.ZERO_OUT, 1.0, 1, ITEMS, users_are_public=False)
        touched, signal = parameters.factors, of_one / max(1.0, each)
    contribute = Noisy(
        step="contribute",
        releases=parameters.rounds,
        answers=1,
        sampling=1.0,
        sensitivity=sensitivity,
        cells=cells,
        signal=signal,
        summed=Summed(sensitivity, touched, facts.users),
    )
    if unit is Unit.USER:
        return Asked((contribute,))
    return Asked((contribute,), (Unit.USER, Relation.REPLACE), None, (_as_replaced("pretrained"),))


def _as_replaced(users: str, instead: str = "") -> str:
    return (
        f'Users\' factors are "{users}" on raw ratings, so one rating can change all its user adds: per rating this is '
        f'the replace case of the unit user, and costs more than unit = "user"; protect users{instead}.'
    )


def typical_signal(parameters: SGDMFParameters, facts: PublicFacts, rows: int, parties: int = 1) -> float:
    """The size of one cell of one step's gradient, over all silos: ratings looked at per row times what one adds.

    Looked at are those of sampled users, trimmed, or sampled ratings. One adds to a cell, typically, an error of R/4
    times a factor's entry as they start.
    """
    each, span = facts.ratings / facts.users / parties, facts.scale.span
    kept = each if parameters.trim is None else min(each, parameters.trim)
    looked_at = parameters.eta * facts.users * parties * kept
    return looked_at / rows * 2 * span / 4 * math.sqrt(0.6 * span / parameters.factors)


def _proposition_3(parameters: SGDMFParameters, facts: PublicFacts) -> Callable[[float, float], float]:
    """P0, Proposition 3, to the letter: z for T' sampled steps (not T·T'), times θ·2R^1.5 (not √θ·2R^1.5)."""
    theta, eta, local = parameters.trim or 1, parameters.eta, parameters.local_steps

    def events(z: float) -> list[Event]:
        return [SampledGaussian(z, eta, local) if eta < 1 else Gaussian(z, local)]

    of_one = parameters.sensitivity(facts.scale.span, Unit.USER, ITEMS, users_are_public=False) / math.sqrt(theta)
    stated, true = theta * of_one, math.sqrt(theta) * of_one

    def multiplier(epsilon: float, delta: float) -> float:
        return float(calibrated(events, epsilon, delta, Relation.ZERO_OUT)) * stated / true

    return multiplier
