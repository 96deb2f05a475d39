"""How much of the budget goes to what users choose, and over how many items: from public quantities alone."""

from __future__ import annotations

from typing import Any

from tacit.data.ratings import Feedback
from tacit.errors import UsageError
from tacit.guarantee import Unit
from tacit.methods.co_occurrence import head_size
from tacit.methods.context import Context

#: Parts of the whole budget for pairs of items and for the vote; and where only counts need the rest.
PARTS = {"together_share": 0.2, "vote_share": 0.02}
IMPLICIT_PARTS = {"together_share": 0.6, "vote_share": 0.02}


def choice_budget(parameters: Any, context: Context) -> dict[str, Any]:
    """`head` and both parts, relative to 1 for all others together; all 0 where nothing is asked of them.

    Pairs are left out where they could not outweigh their noise (`head_size`); then no vote is needed either.
    """
    implicit = context.facts.feedback is Feedback.IMPLICIT
    parts = IMPLICIT_PARTS if implicit else PARTS
    given = [name for name in ("head", *PARTS) if getattr(parameters, name)]
    none = {"head": 0, **dict.fromkeys(PARTS, 0.0)}
    asked = given or (not implicit and "objective" in parameters.model_fields_set)
    if context.unit is Unit.RATING and not asked:
        return none
    if not implicit and parameters.objective != "ranking":
        if given:
            raise UsageError(f'[method] {given[0]} is for objective = "ranking"; set that too, or leave it out.')
        return none
    if context.unit is Unit.RATING:
        what = f"[method] {given[0]}" if given else 'objective = "ranking"'
        raise UsageError(
            f'{what} is for unit = "user": which items occur together moves with each of a user\'s ratings, so per '
            "rating auto ranks by counts and tastes, which cost nothing more; leave it out."
        )
    rest = 1 - sum(parts.values())
    shares = {
        name: part / rest if getattr(parameters, name) is None else getattr(parameters, name)
        for name, part in parts.items()
    }
    head = head_size(context, parts["together_share"]) if parameters.head is None else parameters.head
    head = min(head, context.facts.items)
    if not (head and all(shares.values())):
        return none
    return {"head": head, **shares}


def head_sizes(head: int | None) -> dict[str, int]:
    """What the names in the shapes of messages about the head stand for."""
    k = head or 0
    return {"head": k, "head pairs": k * (k + 1) // 2}
