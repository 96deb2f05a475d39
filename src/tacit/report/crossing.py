"""What can cross in a run: the method's steps that it asks for, and what a secure sum of them takes."""

from __future__ import annotations

from tacit.boundary.release import Kind
from tacit.federation import Step
from tacit.federation.exchanges import exchanges_about
from tacit.methods import Method
from tacit.prepare.plan import Plan
from tacit.partition import Setting


def crossing(method: Method, setting: Setting, plan: Plan | None, simulated: bool) -> dict[str, Step]:
    """By name, what can cross; of `simulated` devices the exchanges of a secure sum are only counted."""
    steps = dict(method.sides_for(setting, plan is not None).party.steps)
    if plan is None:
        return steps
    asked, here = plan.terms.schedule, plan.situation
    steps = {name: step for name, step in steps.items() if step.kind is Kind.PUBLIC or name in asked}
    if here.shares is not None:
        for name in asked:
            steps |= exchanges_about(name, steps, here.signed, simulated)
    return steps
