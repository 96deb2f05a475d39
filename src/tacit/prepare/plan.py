"""The plan of a run: what will be released, how much noise that needs, and what it will cost. No data is read.

A plan follows from a method's specs, public facts and the aggregation. Without privacy it adds no noise and promises
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from tacit import aggregation as aggregations
from tacit.aggregation import Aggregation
from tacit.aggregation.plain import Plain
from tacit.boundary.account import epsilon as epsilon_of
from tacit.boundary.account import epsilon_after
from tacit.boundary.calibrate import multiplier as calibrated
from tacit.boundary.code import AVERAGED, Code, Fixed, Floats, Grid
from tacit.boundary.events import Event, NonPrivate
from tacit.boundary.query import Mechanism, cells_of
from tacit.boundary.release import Kind
from tacit.boundary.report_costs import ReportCosts
from tacit.boundary.spec import Spec, StepTerms, Terms, costliest, event_of, times
from tacit.config import AggregationSection, PrivacySection
from tacit.data.public_facts import PublicFacts
from tacit.errors import PrivacyRefused, UsageError
from tacit.guarantee import NON_PRIVATE, Guarantee, NoGuarantee, Relation, Unit
from tacit.methods import Method, Parameters
from tacit.methods.context import Context, Target
from tacit.methods.method import Forecast
from tacit.partition import Setting
from tacit.secure.quantize import LOUDEST, WRAP, Rounding, bits_for

#: What a guarantee rests on where releases of several parties compose: the coordinator reports how many there are.
ROSTER_REPORTED = "if the coordinator reports the roster truthfully"

#: The warning where single ratings are accounted for as whole records.
AS_REPLACED = (
    "What a user adds is computed from all of their ratings, so one rating can change all of it: per rating this is "
    'the replace case of the unit user. It costs more than unit = "user" and protects less; protect users, or use a '
    "method that bounds single ratings."
)


@dataclass(frozen=True)
class Plan:
    """Everything that is decided before the first release; `parameters` are the method's, with every default resolved.

    `multiplier` is z where all steps have the same, else what their shares multiply.
    """

    parameters: Any
    context: Context
    how: Aggregation
    terms: Terms
    multiplier: float = 0.0
    warnings: tuple[str, ...] = ()
    forecast: Forecast = field(default_factory=Forecast)

    @property
    def delta(self) -> float:
        """δ of the guarantee; 0 for NON-PRIVATE."""
        return 0.0 if self.context.target is None else self.context.target.delta

    @property
    def rounds(self) -> int:
        """How many rounds the run takes."""
        if self.forecast.rounds is not None:
            return self.forecast.rounds
        return max((terms.spec.releases for terms in self.terms.steps.values()), default=1)

    def sizes(self) -> dict[str, int]:
        """What names in the shapes of messages stand for at one party, if all parties are of the same size."""
        return {**_sizes(self.parameters, self.context), **self.forecast.sizes}

    def sigma(self) -> dict[str, float]:
        """By step, the standard deviation of the noise on one answer, or on one hidden sum."""
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

    def noise_levels(self) -> list[dict[str, Any]]:
        """By step, what is released and how large its noise is, for plans and reports."""
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
        """How sums are hidden, for plans and cards; None where none are."""
        described = self.how.description()
        if described is None:
            return None
        bits = {name: terms.code.bits for name, terms in self.terms.steps.items() if terms.retried}
        return {**described, "bits": bits, "wrap": WRAP, "noised": self.terms.private}

    def collusion_epsilon(self) -> float | None:
        """ε of one party's own share of the noise, were all others to collude; None where no noise is shared."""
        part, steps = self.how.noise_share, self.terms.steps.values()
        if part is None or not self.terms.private or not any(t.retried for t in steps):
            return None
        events = [times(_event(t, t.multiplier * (part if t.retried else 1), self.how), t.spec.releases) for t in steps]
        again = [_event(t, t.multiplier * part, self.how) for t in steps if t.retried]
        return float(epsilon_of([*events, *costliest(again, self.terms.retries)], self.delta, self.terms.relation))

    def spent(self, asked: Mapping[str, int]) -> float:
        """ε of the releases requested so far, by step, whatever became of them; never too low.

        A party makes no more releases of a step than were planned, so further requests cost nothing.
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

    def report_costs(self) -> list[dict[str, Any]]:
        """By step, what randomised reports cost: each, those of a release and of the run by themselves, and at δ."""
        found = [(ReportCosts.of(terms), terms) for terms in self.terms.steps.values()]
        return [
            {
                **costs.to_json(),
                "epsilon_at_delta": float(
                    epsilon_of([times(terms.event, terms.spec.releases)], self.delta, self.terms.relation)
                ),
                "delta": self.delta,
            }
            for costs, terms in found
            if costs is not None
        ]

    def check_budget(self, privacy: PrivacySection | None) -> None:
        """Refuse a run that every party would refuse at its first step, since it exceeds even an empty ledger."""
        if privacy is None or (privacy.budget is None and privacy.accounting == "sound"):
            return
        budget = privacy.budget or privacy.epsilon
        spent = epsilon_of(self.terms.events, self.delta, self.terms.relation)
        if spent > budget * (1 + 1e-9):
            raise PrivacyRefused(
                f"This run takes every party to ε = {spent:.3f} at δ = {self.delta:g}, and its budget is {budget:g}: "
                "no step would be answered; raise the budget of [privacy], or ask for a smaller epsilon."
            )


def plan_run(
    method: Method,
    parameters: Parameters,
    setting: Setting,
    parties: int,
    public: PublicFacts,
    privacy: PrivacySection | None,
    aggregation: AggregationSection,
    seeded: bool,
) -> Plan:
    """The plan of a run as a run file's sections describe it; refuses what cannot be promised."""
    target: Target | None = None
    warnings: tuple[str, ...] = ()
    if privacy is not None:
        delta, warnings = checked_delta(privacy.delta, public.users)
        target = Target(privacy.epsilon, delta, Unit(privacy.unit))
    context, how = Context(public, setting, parties, target), aggregations.made(setting, parties, aggregation)
    paper = privacy is not None and privacy.accounting == "paper"
    made = make_plan(method, parameters, context, how, seeded=seeded, paper=paper)
    return replace(made, warnings=(*warnings, *made.warnings))


def make_plan(
    method: Method, parameters: Parameters, context: Context, how: Aggregation, *, seeded: bool, paper: bool = False
) -> Plan:
    """Calibrate the noise for everything that the method releases; refuse what cannot be promised.

    With `paper` the noise follows the paper's own formulas, and the guarantee also states what truly holds.
    """
    context = replace(context, noises=1 if Kind.SUM in how.hides else context.parties)
    target = context.target
    if target is not None and not method.guaranteed:
        raise _no_guarantee(method, context.setting, how)
    parameters = parameters.resolved(context)
    specs, sides = method.stated(parameters, context), method.sides_in(context.setting, context.facts.feedback)
    steps, sizes, forecast = sides.party.steps, _sizes(parameters, context), sides.forecast(parameters, context)
    how.check(method.name, {spec.step: (steps[spec.step].kind, spec.mean) for spec in specs})
    drafts = [
        _Draft(spec, steps[spec.step].kind, steps[spec.step].gives.shapes(sizes), context, how, seeded)
        for spec in specs
    ]
    if target is None:
        bare = {draft.spec.step: draft.without_noise() for draft in drafts}
        disclosed = [step.name for step in steps.values() if step.kind is Kind.DISCLOSE]
        terms = Terms(NoGuarantee(_hidden(bare, how, disclosed)), bare, retries=how.retries)
        return Plan(parameters, context, how, terms, forecast=forecast)
    if not specs:
        raise _no_guarantee(method, context.setting, how)
    unit, relation = _counted(method, specs, target.unit)
    drafts = [draft.bounded(unit) for draft in drafts]
    retries = how.retries if any(draft.retried for draft in drafts) else 0

    def at(x: float, *, bits: bool = False) -> Terms:
        noisy = {draft.spec.step: draft.with_noise(x, bits=bits) for draft in drafts}
        return Terms(NON_PRIVATE, noisy, unit, relation, retries)

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
    replaced = relation is Relation.REPLACE or any(_as_replaced(spec) for spec in specs)
    warnings = (AS_REPLACED,) if replaced and target.unit is Unit.RATING else ()
    return Plan(parameters, context, how, replace(terms, guarantee=promise), x, warnings, forecast)


@dataclass(frozen=True)
class _Draft:
    """The terms of one step while its noise is still open; `bounded` fills in how far one unit can move an answer."""

    spec: Spec
    kind: Kind
    shapes: Mapping[str, tuple[int, ...]]
    context: Context
    how: Aggregation
    seeded: bool
    sensitivity: float = math.inf
    parties: int = 1
    rounding: Rounding | None = None

    @cached_property
    def sealed(self) -> bool:
        return self.how.hidden(self.kind, self.spec.mean)

    @property
    def retried(self) -> bool:
        return self.sealed and self.kind is Kind.SUM

    def without_noise(self) -> StepTerms:
        """Hidden, where the aggregation does that, in fixed point."""
        code: Code = Floats()
        if self.sealed and self.kind is Kind.SUM:
            query = self.spec.query
            code = Fixed.of(query.largest or 0.0, self.context.facts.users, query.resolution)
        elif self.sealed and self.kind is Kind.CHAIN:
            code = AVERAGED
        cells = cells_of(self.shapes)
        return StepTerms(self.spec, self.kind, 0.0, math.inf, NonPrivate(), code, self.sealed, cells=cells)

    def bounded(self, unit: Unit) -> _Draft:
        """With the query's own sensitivity and, for a sum of integers, the grid; refuses what has no bound."""
        query, name = self.spec.query, self.spec.step
        sensitivity = query.sensitivity(unit, Relation.ZERO_OUT)
        if not 0 < sensitivity < math.inf:
            raise PrivacyRefused(
                f'Step "{name}" has no bound on what one {unit} can change, so it carries no guarantee; trim or clip '
                "what it asks, declare the scale, or leave [privacy] out."
            )
        vertical = self.context.setting is Setting.VERTICAL
        parties = self.context.parties if vertical and unit is Unit.USER else 1
        rounding = None
        if self.kind is Kind.SUM and (self.sealed or not self.seeded):
            clip = query.clip
            if clip is None:
                raise PrivacyRefused(
                    f'Step "{name}" exposes no per-user contributions, so it cannot be summed in integers, as under '
                    '"secagg" and in every deployment.'
                )
            if sensitivity < clip * (1 - 1e-9):
                raise PrivacyRefused(
                    f'Step "{name}" lets one user add up to {clip:g} and states a sensitivity of {sensitivity:g}, '
                    "which would be too little noise; correct the query."
                )
            rounding = Rounding.fine(clip, query.nonzero_coordinates(self.shapes))
        if self.retried and parties > 1:
            raise PrivacyRefused(
                "A user is in several parties here, and a sum that carries one noise as a whole is not accounted for "
                'that; use [aggregation] name = "plain", where every party adds its own noise.'
            )
        return replace(self, sensitivity=sensitivity, parties=parties, rounding=rounding)

    def with_noise(self, x: float, *, bits: bool) -> StepTerms:
        """The terms where noise is x by the step's share; `bits` computes a grid's width, which takes time."""
        spec, cells = self.spec, cells_of(self.shapes)
        z = x * _weight(spec.query.mechanism, spec.releases * spec.answers * self.parties, spec.share)
        code: Code = AVERAGED if self.sealed and self.kind is Kind.CHAIN else Floats(z * self.sensitivity)
        if self.rounding is not None:
            grid = Grid(self.rounding, self.sensitivity / self.rounding.clip, z, 64)
            largest = self.how.largest_variance(grid.variance) if self.sealed and bits else 2 * grid.variance
            users = self.context.facts.users
            if bits and largest > LOUDEST:
                raise self._too_loud()
            code = replace(grid, bits=bits_for(users, self.rounding, largest, cells)) if bits else grid
        event = event_of(spec.query, z, spec.answers * self.parties, code, self.how.crowd)
        return StepTerms(spec, self.kind, z, self.sensitivity, event, code, self.sealed, self.parties, cells)

    def _too_loud(self) -> PrivacyRefused:
        target = self.context.target
        asked = "The requested ε" if target is None else f"[privacy] epsilon = {target.epsilon:g}"
        return PrivacyRefused(
            f'{asked} is too small for {self.context.facts.users:,} users: the noise on "{self.spec.step}" would be '
            "larger than can be drawn exactly, and nothing could be learned from the sum. Ask for a larger epsilon, "
            "let more users take part, or, where a method has rounds, take fewer of them."
        )


def _no_guarantee(method: Method, setting: Setting, how: Aggregation) -> PrivacyRefused:
    private = "sgdmf" if setting is Setting.VERTICAL else "auto"
    wanted, changes = "that section", "--set privacy=none"
    if how.hides:  # many methods without a guarantee have no sums that it could hide
        wanted, changes = (
            f'that section and [aggregation] name = "{how.name}"',
            f"{changes} --set aggregation.name=plain",
        )
    return PrivacyRefused(
        f'The method "{method.name}" carries no guarantee in this version, so [privacy] cannot be kept; '
        f"leave out {wanted} to run it NON-PRIVATE ({changes}), or choose a private method, such as "
        f'"{private}".'
    )


def _sizes(parameters: Parameters, context: Context) -> dict[str, int]:
    """What names in the shapes of messages stand for at one party, if all parties are of the same size."""
    facts, vertical = context.facts, context.setting is Setting.VERTICAL
    items = math.ceil(facts.items / context.parties) if vertical else facts.items
    return {
        "users": facts.users if vertical else math.ceil(facts.users / context.parties),
        "items": items,
        "item_words": -(-items // 32),
        "features": facts.features,
        "any": 1,
        **parameters.dimensions,
    }


def _as_replaced(spec: Spec) -> bool:
    """Whether one rating may move more than emptying its user's whole record does."""
    of_rating, of_user = (spec.query.sensitivity(unit, Relation.ZERO_OUT) for unit in (Unit.RATING, Unit.USER))
    return of_rating > of_user * (1 + 1e-9)


def _counted(method: Method, specs: Sequence[Spec], unit: Unit) -> tuple[Unit, Relation]:
    """The unit and relation that all queries are accounted for under: replace, where one of them needs it."""
    pairs = [spec.query.counted(unit) for spec in specs]
    chosen = next((pair for pair in pairs if pair[1] is Relation.REPLACE), pairs[0])
    if chosen[1] is not Relation.REPLACE and len(set(pairs)) > 1:
        raise PrivacyRefused(
            f"The steps of {method.name} are counted for different units; let all of its queries bound the same one."
        )
    return chosen


def _event(terms: StepTerms, multiplier: float, how: Aggregation) -> Event:
    """What one release costs one unit, over all parties that it is in, at another multiplier."""
    code = replace(terms.code, multiplier=multiplier) if isinstance(terms.code, Grid) else terms.code
    return event_of(terms.query, multiplier, terms.spec.answers * terms.parties, code, how.crowd)


def _weight(mechanism: Mechanism, count: int, share: float | None) -> float:
    """How much more noise than one answer at share 1 has: its variance by the ratio, or 1/ε for randomised reports."""
    if share is None:
        return 1.0
    ratio = max(1, count) / share
    return ratio if mechanism is Mechanism.RESPONSE else math.sqrt(ratio)


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
    """What an aggregation hides of a run without noise, and from whom; empty for nothing."""
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
            f"{users:,} users to be exposed completely; use {min(1e-6, 1 / (100 * users)):.0e} or less."
        )
    if delta > 1 / (10 * users):
        return delta, (f"delta = {delta:g} is above 1/(10·users) = {1 / (10 * users):.2g}; a smaller one is better.",)
    return delta, ()
