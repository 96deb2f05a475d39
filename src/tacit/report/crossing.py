"""What can cross in a run: the method's steps that it asks for, and what a secure sum of them takes."""

from __future__ import annotations

from dataclasses import replace

from tacit.boundary.release import Kind
from tacit.federation import Step
from tacit.methods import Method
from tacit.prepare.plan import Plan


def crossing(method: Method, plan: Plan, simulated: bool) -> dict[str, Step]:
    """By name, what can cross; of `simulated` devices the exchanges of a hidden sum are only counted."""
    asked = plan.terms.steps
    told = (Kind.PUBLIC, Kind.DISCLOSE)
    sides = method.sides_in(plan.context.setting)
    every = sides.party.steps
    steps = {name: step for name, step in every.items() if step.kind in told or name in asked}
    for role, kind in {**sides.roles, **plan.how.roles}.items():
        for name, step in kind.steps.items():
            steps[name] = replace(step, what=f"told by {role}, a role without ratings: {step.what}")
    for name, terms in asked.items():
        if terms.sealed:
            steps |= plan.how.messages(every[name], simulated)
    return steps
