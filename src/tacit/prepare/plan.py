"""The plan of a run: what will be released, how much noise it needs, and what it will cost. No data is touched.

Everything here is made from a method's specs, the context and the aggregation; without privacy there is a plan too,
which adds nothing and promises nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tacit.aggregation import Aggregation
from tacit.aggregation.plain import Plain
from tacit.boundary.account import epsilon as epsilon_of
from tacit.boundary.account import epsilon_after
from tacit.boundary.calibrate import multiplier as calibrated
from tacit.boundary.code import AVERAGED, Code, Fixed, Floats, Grid
from tacit.boundary.events import Event, NonPrivate
from tacit.boundary.query import Mechanism, cells_of
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec, StepTerms, Terms, costliest, event_of, times
from tacit.errors import PrivacyRefused, UsageError
from tacit.guarantee import NON_PRIVATE, Guarantee, NoGuarantee, Relation, Unit
from tacit.methods import Method, Parameters
from tacit.methods.context import Context
from tacit.partition import Setting
from tacit.secure.quantize import WRAP, Rounding, bits_for

#: What a guarantee rests on where releases of several parties compose: the coordinator says how many there are.
ROSTER_REPORTED = "if the coordinator reports the roster truthfully"

#: What whoever asked should know where single ratings are counted as whole records.
AS_REPLACED = (
    "What a user adds is computed from all of her ratings, so one rating can change all of it: per rating this is the "
    'replace case of the unit user, and costs more than unit = "user"; protect users, or use a method that bounds '
    "single ratings."
)


@dataclass(frozen=True)
class Plan:
    """Everything that is decided before the first release; `parameters` are the method's, with no default left open.

    `multiplier` is z where all steps have the same, else what their shares multiply.
    """

    parameters: Any
    context: Context
    how: Aggregation
    terms: Terms
    multiplier: float = 0.0
    warnings: tuple[str, ...] = ()

    @property
    def delta(self) -> float:
        """δ of the guarantee; 0 for NON-PRIVATE."""
        return 0.0 if self.context.target is None else self.context.target.delta

    @property
    def rounds(self) -> int:
        """How many rounds the releases take, where each round has one of each step."""
        return max((terms.spec.releases for terms in self.terms.steps.values()), default=1)

    def sigma(self) -> dict[str, float]:
        """By step, the standard deviation of the noise that one answer, or one hidden sum, must have."""
        return {name: terms.sigma for name, terms in self.terms.steps.items()} if self.terms.private else {}

    def signal_to_noise(self) -> dict[str, float]:
        """By step, the forecast size of a cell over its noise, once all parties' contributions are added."""
        ratios = {}
        for name, terms in self.terms.steps.items():
            if terms.retried:
                noise = self.how.noise(terms.sigma, self.context.parties)
            else:
                noise = terms.sigma * math.sqrt(self.mixed(terms))
            ratios[name] = terms.spec.signal / noise if noise else math.inf
        return ratios

    def mixed(self, terms: StepTerms) -> int:
        """How many parties' noise one cell carries in the end."""
        return 1 if terms.kind is Kind.CHAIN and not terms.spec.mean else self.context.parties

    def loudness(self) -> list[dict[str, Any]]:
        """By step, what is asked and how loud its noise is, for plans and reports."""
        ratio = self.signal_to_noise()
        return [
            {
                "step": name,
                "releases": self.terms.releases[name],
                "answers": terms.spec.answers,
                "sampling": terms.query.sampling,
                "sensitivity": terms.sensitivity,
                "multiplier": terms.multiplier,
                "sigma": terms.sigma,
                "cells": terms.cells,
                "signal": terms.spec.signal,
                "signal_to_noise": ratio[name],
            }
            for name, terms in self.terms.steps.items()
        ]

    def sealing(self) -> dict[str, Any] | None:
        """How sums are hidden, for plans and cards; None where nothing is."""
        told = self.how.described()
        if told is None:
            return None
        grids = {name: terms.code.bits for name, terms in self.terms.steps.items() if terms.retried}
        return {**told, "bits": grids, "wrap": WRAP, "noised": self.terms.private}

    def alone(self) -> float | None:
        """ε of one party's own share of the noise, were all others to collude; None where its noise is its own."""
        part = self.how.alone
        if part is None or not self.terms.private or not any(t.retried for t in self.terms.steps.values()):
            return None
        events = [
            times(_event(t, t.multiplier * (part if t.retried else 1), self.how), t.spec.releases)
            for t in self.terms.steps.values()
        ]
        again = [_event(t, t.multiplier * part, self.how) for t in self.terms.steps.values() if t.retried]
        return float(epsilon_of([*events, *costliest(again, self.terms.retries)], self.delta, self.terms.relation))

    def spent(self, asked: Mapping[str, int]) -> float:
        """ε of the releases that were asked for so far, by step, whatever became of them; never too low.

        A party makes no more releases of a step than were planned, so that further requests cost nothing.
        """
        if not isinstance(self.terms.guarantee, Guarantee):
            return math.inf
        most = self.terms.releases
        planned = [(terms.event, most[name]) for name, terms in self.terms.steps.items()]
        made = [min(asked.get(name, 0), count) for name, count in most.items()]
        return min(epsilon_after(planned, made, self.delta, self.terms.relation), self.terms.guarantee.epsilon)

    def epsilon_of_one(self) -> dict[str, float]:
        """By step, what one answer alone would cost."""
        ones = {
            name: event_of(t.query, t.multiplier, 1, t.code, self.how.crowd) for name, t in self.terms.steps.items()
        }
        return {step: float(epsilon_of([event], self.delta, self.terms.relation)) for step, event in ones.items()}


def make_plan(
    method: Method, parameters: Parameters, context: Context, how: Aggregation, *, seeded: bool, paper: bool = False
) -> Plan:
    """Calibrate the noise for everything that the method states; refuse what cannot be kept.

    With `paper` the noise is by the paper's own formulas, and the guarantee says what truly holds beside it.
    """
    if context.target is not None and not method.guaranteed:
        raise _no_guarantee(method)
    sides = method.sides_in(context.setting)
    parameters = parameters.resolved(context)
    specs = _stated(method, parameters, context)
    shapes = _shapes(method, parameters, context, specs)
    steps = sides.party.steps
    averaged = {spec.step: (steps[spec.step].kind, spec.mean) for spec in specs}
    how.check(method.name, averaged)
    if context.target is None:
        bare = {spec.step: _bare(spec, steps[spec.step].kind, shapes, context, how) for spec in specs}
        disclosed = [step.name for step in steps.values() if step.kind is Kind.DISCLOSE]
        terms = Terms(NoGuarantee(_hidden(bare, how, disclosed)), bare, retries=how.retries)
        return Plan(parameters, context, how, terms)
    if not specs:
        raise _no_guarantee(method)
    target, counted = context.target, [spec.query.counted(context.target.unit) for spec in specs]
    unit, relation = next((pair for pair in counted if pair[1] is Relation.REPLACE), counted[0])
    if relation is not Relation.REPLACE and len(set(counted)) > 1:
        raise PrivacyRefused(
            f"The steps of {method.name} are counted for different units; let all of its queries bound the same one."
        )

    def at(x: float, *, bits: bool = False) -> Terms:
        made = {
            spec.step: _step(spec, steps[spec.step].kind, x, unit, shapes[spec.step], context, how, seeded, bits)
            for spec in specs
        }
        return Terms(NON_PRIVATE, made, unit, relation, how.retries if any(t.retried for t in made.values()) else 0)

    claimed = None
    if paper:
        formula = None if method.claim is None else method.claim(parameters, context)
        if formula is None:
            raise PrivacyRefused(
                f'There is no paper\'s accounting for "{method.name}" here ({context.setting}, per {target.unit}); '
                'use accounting = "sound".'
            )
        x, claimed = formula, target.epsilon
    else:
        x = float(calibrated(lambda z: at(z).events, target.epsilon, target.delta, relation))
    terms = at(x, bits=True)
    reached = float(epsilon_of(terms.events, target.delta, relation))
    promise = _promise(reached, claimed, terms, context, how, seeded)
    warnings = (AS_REPLACED,) if relation is Relation.REPLACE and target.unit is Unit.RATING else ()
    return Plan(parameters, context, how, replace(terms, guarantee=promise), x, warnings)


def _no_guarantee(method: Method) -> PrivacyRefused:
    return PrivacyRefused(
        f'The method "{method.name}" carries no guarantee in this version, so [privacy] cannot be kept; '
        'remove that section to run it NON-PRIVATE, or choose "sgdmf" or "bias".'
    )


def _stated(method: Method, parameters: Parameters, context: Context) -> list[Spec]:
    """A method's specs, found fit to be planned."""
    sides = method.sides_in(context.setting)
    specs = list(sides.specs(parameters, context))
    shares = [spec.share for spec in specs if spec.share is not None]
    named = [spec.step for spec in specs]
    for spec in specs:
        wrong = None
        if spec.step not in sides.party.steps:
            wrong = f"its party has no such step, but {', '.join(sides.party.steps)}"
        elif named.count(spec.step) > 1:
            wrong = "it is there twice"
        else:
            wrong = _unfit(spec, sides.party.steps[spec.step].kind)
        if wrong is not None:
            raise UsageError(f'{method.name} states a release of "{spec.step}", and {wrong}.')
    if shares and (len(shares) < len(specs) or not all(share > 0 for share in shares) or not sum(shares) <= 1 + 1e-9):
        raise UsageError(
            f"The specs of {method.name} share the budget as "
            f"{', '.join(f'{spec.step}: {spec.share}' for spec in specs)}; give every one of them a share above 0, all "
            "together at most 1, or none of them."
        )
    return specs


def _unfit(spec: Spec, kind: Kind) -> str | None:
    """Why a step of that kind cannot make such releases: what is accounted for would not be what the gate does."""
    mechanism, answers = spec.query.mechanism, spec.answers
    whole = all(isinstance(number, int) and not isinstance(number, bool) for number in (spec.releases, answers))
    if not whole or spec.releases < 0 or answers < 0:
        return "its releases and answers have to be integers of 0 or more"
    if kind not in (Kind.SUM, Kind.CHAIN, Kind.REPORT):
        return f"a {kind} step asks no query"
    if (kind is Kind.REPORT) != (mechanism is Mechanism.RESPONSE):
        return f"a {kind} step cannot be noised as {mechanism}: reports are randomised responses, and nothing else is"
    if mechanism is Mechanism.PERTURBED and kind is not Kind.CHAIN:
        return f"noise inside an objective is for a chain, and this is a {kind}"
    if kind is Kind.SUM and answers != 1:
        return f"a sum has one answer, and not {answers}"
    if answers == 0 and (kind is Kind.REPORT or mechanism is Mechanism.PERTURBED):
        return "it has no answer, and would release one all the same"
    return None


def _shapes(
    method: Method, parameters: Parameters, context: Context, specs: Sequence[Spec]
) -> dict[str, dict[str, tuple[int, ...]]]:
    """By step, the shapes of what one party releases, if all parties are of the same size."""
    facts, divided = context.facts, context.setting is Setting.VERTICAL
    sizes = {
        "users": facts.users if divided else math.ceil(facts.users / context.parties),
        "items": math.ceil(facts.items / context.parties) if divided else facts.items,
        "features": facts.features,
        "any": 1,
        **parameters.dimensions,
    }
    steps = method.sides_in(context.setting).party.steps
    return {spec.step: steps[spec.step].gives.shapes(sizes) for spec in specs}


def _bare(
    spec: Spec, kind: Kind, shapes: Mapping[str, Mapping[str, tuple[int, ...]]], context: Context, how: Aggregation
) -> StepTerms:
    """A step without noise: hidden, where the aggregation does that, in fixed point."""
    sealed, code = how.hidden(kind, spec.mean), Floats()
    chosen: Code = code
    if sealed and kind is Kind.SUM:
        chosen = Fixed.of(spec.query.largest or 0.0, context.facts.users)
    elif sealed and kind is Kind.CHAIN:
        chosen = AVERAGED
    cells = cells_of(shapes[spec.step])
    return StepTerms(spec, kind, 0.0, math.inf, NonPrivate(), chosen, sealed, cells=cells)


def _step(
    spec: Spec,
    kind: Kind,
    x: float,
    unit: Unit,
    shapes: Mapping[str, tuple[int, ...]],
    context: Context,
    how: Aggregation,
    seeded: bool,
    bits: bool,
) -> StepTerms:
    """A step's terms where noise is x by its share; `bits` only where they are wanted, since they take time."""
    query, sealed = spec.query, how.hidden(kind, spec.mean)
    sensitivity = query.sensitivity(unit, Relation.ZERO_OUT)
    if not 0 < sensitivity < math.inf:
        raise PrivacyRefused(
            f'Step "{spec.step}" has no bound on what one {unit} can change, so it carries no guarantee; trim or clip '
            "what it asks, declare the scale, or leave [privacy] out."
        )
    everywhere = context.parties if context.setting is Setting.VERTICAL and unit is Unit.USER else 1
    count = spec.releases * spec.answers * everywhere
    z = x * _weight(query.mechanism, count, spec.share)
    code: Code = AVERAGED if sealed and kind is Kind.CHAIN else Floats(z * sensitivity)
    if kind is Kind.SUM and (sealed or not seeded):
        code = _grid(spec, sensitivity, z, shapes, context, how, sealed, bits)
    if sealed and kind is Kind.SUM and everywhere > 1:
        raise PrivacyRefused(
            "A user is in several parties here, and a sum that carries one noise as a whole is not accounted for that; "
            'use [aggregation] name = "plain", where every party adds noise of its own.'
        )
    cells = cells_of(shapes)
    bare = StepTerms(spec, kind, z, sensitivity, NonPrivate(), code, sealed, everywhere, cells)
    return replace(bare, event=_event(bare, z, how))


def _event(terms: StepTerms, multiplier: float, how: Aggregation) -> Event:
    """What one release costs one unit over all parties that it is in, at that multiplier."""
    code = replace(terms.code, multiplier=multiplier) if isinstance(terms.code, Grid) else terms.code
    return event_of(terms.query, multiplier, terms.spec.answers * terms.parties, code, how.crowd)


def _weight(mechanism: Mechanism, count: int, share: float | None) -> float:
    """How much more noise than one answer at share 1 has: its variance by the ratio, or 1/ε for randomised reports."""
    if share is None:
        return 1.0
    ratio = max(1, count) / share
    return ratio if mechanism is Mechanism.RESPONSE else math.sqrt(ratio)


def _grid(
    spec: Spec,
    sensitivity: float,
    z: float,
    shapes: Mapping[str, tuple[int, ...]],
    context: Context,
    how: Aggregation,
    sealed: bool,
    bits: bool,
) -> Grid:
    """The integers of a sum: as fine as rounding needs, as wide as everybody's contributions and noise do."""
    clip = spec.query.clip
    if clip is None:
        raise PrivacyRefused(
            f'Step "{spec.step}" exposes no per-user contributions, so it cannot be summed in integers, as under '
            '"secagg" and in every deployment.'
        )
    if sensitivity < clip * (1 - 1e-9):
        raise PrivacyRefused(
            f'Step "{spec.step}" lets one user add up to {clip:g} and states a sensitivity of {sensitivity:g}, which '
            "would be too little noise; mend the query."
        )
    rounding = Rounding.fine(clip, spec.query.touched(shapes))
    grid = Grid(rounding, sensitivity / clip, z, 64)
    if not bits:
        return grid
    cells = cells_of(shapes)
    largest = how.largest(grid.variance) if sealed else 2 * grid.variance
    return replace(grid, bits=bits_for(context.facts.users, rounding, largest, cells))


def _promise(
    reached: float, claimed: float | None, terms: Terms, context: Context, how: Aggregation, seeded: bool
) -> Guarantee:
    """What holds after all releases, with the trust of the weakest of them."""
    assert context.target is not None
    shared = any(t.sealed and t.kind is not Kind.CHAIN for t in terms.steps.values())  # the weakest of all steps
    trust, against = (how if shared else Plain(context.setting, context.parties)).trust()
    if not seeded and any(t.parties > 1 for t in terms.steps.values()):
        against = f"{against}, {ROSTER_REPORTED}"
    unit = context.target.unit
    per_silo = unit is Unit.USER and context.setting is Setting.HORIZONTAL
    return Guarantee(reached, context.target.delta, unit, terms.relation, trust, against, seeded, per_silo, claimed)


def _hidden(steps: Mapping[str, StepTerms], how: Aggregation, disclosed: Sequence[str]) -> str:
    """What an aggregation hides of a run without noise, and from whom; empty for nothing.

    Where something leaves as it is beside, only the hidden steps are named.
    """
    hidden = [name for name, terms in steps.items() if terms.sealed]
    if not hidden:
        return ""
    every = len(hidden) == len(steps) and not disclosed
    what = "single contributions" if every else f"single contributions to {' and '.join(hidden)}"
    return f"{what} are hidden from {how.trust()[1]}"


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
