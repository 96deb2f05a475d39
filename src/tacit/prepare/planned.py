"""The plan of a run, from public facts alone: the one place that asks for one, and what is refused before it.

`tacit plan`, a run file's check and a site that looks at an offer know no data yet; a prepared run is planned here too.
"""

from __future__ import annotations

from tacit.boundary.release import Kind
from tacit.config import AggregationSection, PrivacySection
from tacit.data.public import TYPICAL, PublicFacts
from tacit.errors import PrivacyRefused, UsageError
from tacit.federation import Facts
from tacit.methods import Method, Parameters
from tacit.methods.asked import Situation
from tacit.methods.plan import Plan, make_plan
from tacit.partition import Setting

#: How sums can be made here.
AGGREGATIONS = ("plain", "ideal", "secagg", "shuffle")


def resolved(parameters: Parameters, setting: Setting, parties: int) -> Parameters:
    """The parameters of a run without privacy, with no default left open."""
    return parameters.resolved(None, Situation(setting, parties, sealed=False))


def planned(
    method: Method,
    parameters: Parameters,
    setting: Setting,
    parties: int,
    public: PublicFacts,
    privacy: PrivacySection,
    aggregation: AggregationSection,
    seeded: bool,
) -> Plan:
    """What a private run will ask, add and cost; refuses an aggregation that has nothing to do in it."""
    situation = Situation.of(setting, parties, aggregation)
    made = make_plan(method.name, method.schedule, parameters, privacy, public, situation, seeded)
    steps = method.sides_for(setting, private=True).party.steps
    if aggregation.name == "shuffle" and not all(noisy.reported for noisy in made.noisy):
        raise PrivacyRefused(
            f'[aggregation] name = "shuffle" mixes single reports, and {method.name} sends none in the {setting} '
            'setting; use "secagg" or "plain".'
        )
    if aggregation.name == "ideal" and any(steps[noisy.step].kind is not Kind.SUM for noisy in made.noisy):
        raise PrivacyRefused(
            f'[aggregation] name = "ideal" hides contributions to a sum, and {method.name} has no sum to protect in '
            f'the {setting} setting: every party adds noise of its own; use "plain".'
        )
    return made


def has_sums(made: Plan) -> bool:
    """Whether every noisy release is a sum, which an aggregation could protect."""
    return all(noisy.summed is not None for noisy in made.noisy)


def check_aggregation(aggregation: AggregationSection, privacy: PrivacySection | None, seeded: bool) -> None:
    """Refuse an aggregation that cannot be, or cannot be here."""
    name = aggregation.name
    if name not in AGGREGATIONS:
        able = ", ".join(f'"{known}"' for known in AGGREGATIONS)
        raise UsageError(f'[aggregation] name = "{name}" is not available in this version; use one of {able}.')
    if name != "plain" and privacy is None:
        raise UsageError(
            f'[aggregation] name = "{name}" carries the noise of a private sum, and a sum without noise '
            "protects nobody from whoever sees it; add [privacy]."
        )
    if aggregation.signed and name != "secagg":
        raise UsageError(
            f'[aggregation] signed = true is for "secagg", whose survivors sign who stayed; "{name}" has none.'
        )
    if not seeded and name in ("ideal", "shuffle"):
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
    return PublicFacts(facts.users, facts.items, facts.scale, ratings or TYPICAL * facts.users)
