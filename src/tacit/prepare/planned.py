"""The plan of a run, from public facts alone: the one place that asks for one, and what is refused before it.

`tacit plan`, a run file's check and a site that looks at an offer know no data yet; a prepared run is planned here too.
"""

from __future__ import annotations

from dataclasses import replace

from tacit import aggregation as aggregations
from tacit.boundary.account import epsilon as epsilon_of
from tacit.config import AggregationSection, PrivacySection
from tacit.data.public_facts import TYPICAL_RATINGS, PublicFacts
from tacit.errors import PrivacyRefused, UsageError
from tacit.federation import Facts
from tacit.guarantee import Unit
from tacit.methods import Method, Parameters
from tacit.methods.context import Context, Target
from tacit.partition import Setting
from tacit.prepare.plan import Plan, checked_delta, make_plan


def planned(
    method: Method,
    parameters: Parameters,
    setting: Setting,
    parties: int,
    public: PublicFacts,
    privacy: PrivacySection | None,
    aggregation: AggregationSection,
    seeded: bool,
) -> Plan:
    """What a run will ask, add and cost among so many parties; refuses what cannot be kept."""
    target: Target | None = None
    warnings: tuple[str, ...] = ()
    if privacy is not None:
        delta, warnings = checked_delta(privacy.delta, public.users)
        target = Target(privacy.epsilon, delta, Unit(privacy.unit))
    context = Context(public, setting, parties, target)
    how = aggregations.made(setting, parties, aggregation)
    paper = privacy is not None and privacy.accounting == "paper"
    made = make_plan(method, parameters, context, how, seeded=seeded, paper=paper)
    return replace(made, warnings=(*warnings, *made.warnings))


def affordable(made: Plan, privacy: PrivacySection | None) -> None:
    """Refuse a run that every party would refuse at its first step, since even an empty ledger cannot hold it."""
    if privacy is None or (privacy.budget is None and privacy.accounting == "sound"):
        return
    budget, terms = privacy.budget or privacy.epsilon, made.terms
    spent = epsilon_of(terms.events, made.delta, terms.relation)
    if spent > budget * (1 + 1e-9):
        raise PrivacyRefused(
            f"This run takes every party to ε = {spent:.3f} at δ = {made.delta:g}, and its budget is {budget:g}: no "
            "step would be answered; raise the budget of [privacy], or ask for a smaller epsilon."
        )


def check_aggregation(aggregation: AggregationSection, seeded: bool) -> None:
    """Refuse an aggregation that cannot be, or cannot be here."""
    name = aggregation.name
    found = aggregations.find(name)
    if aggregation.signed and name != "secagg":
        raise UsageError(
            f'[aggregation] signed = true is for "secagg", whose survivors sign who stayed; "{name}" has none.'
        )
    if not seeded and found.only_simulated:
        raise PrivacyRefused(
            f'[engine] seeded = false asks for noise that holds outside a simulation, and "{name}" exists in '
            'simulations only; use "secagg" or "plain".'
        )


def check_cohorts(facts: Facts, seeded: bool) -> None:
    """Refuse a cohort where the noise has to hold outside a simulation."""
    if not seeded and any(member.devices > 1 for member in facts.roster):
        raise PrivacyRefused(
            "[engine] seeded = false asks for noise that holds outside a simulation, and a cohort simulates many "
            f"devices at once; let each be a party, with [partition] into = {facts.users}, or leave it out."
        )


def declared(facts: Facts, ratings: int | None = None) -> PublicFacts:
    """The public facts of a run that brings none beside its data; refuses what was only read off the ratings.

    `ratings` is how many there are, as everyone may know it.
    """
    if not facts.scale.declared:
        raise UsageError(
            f"The scale {facts.scale} was read off the ratings, which would be a leak with privacy; declare it, "
            "as in tacit.load(…, scale=(1, 5))."
        )
    if not facts.item_ids.listed:
        raise UsageError(
            "The items are known from ratings alone, and a list of rated items would be a leak with privacy; name the "
            'catalogue, as in tacit.load(…, catalogue="items.csv").'
        )
    return counted(facts, ratings or TYPICAL_RATINGS * facts.users)


def counted(facts: Facts, ratings: int | None = None) -> PublicFacts:
    """What the parties' own sizes say; `ratings` takes the place of their number, where that may not be counted."""
    number = facts.ratings if ratings is None else ratings
    return PublicFacts(facts.users, facts.items, facts.scale, number, facts.catalogue.width)
