"""How much of the budget goes to what users choose, and over how many items: from public quantities alone."""

from __future__ import annotations

from typing import Any

from tacit.errors import UsageError
from tacit.guarantee import Unit
from tacit.methods.co_occurrence import head_size
from tacit.methods.context import Context

#: Parts of the whole budget for pairs of items and for the vote, where there are any.
PARTS = {"together_share": 0.2, "vote_share": 0.02}


def choice_budget(parameters: Any, context: Context) -> dict[str, Any]:
    """`head` and both parts, relative to 1 for all others together; all 0 where nothing is asked of them.

    Pairs are left out where they could not outweigh their noise (`head_size`); then no vote is needed either.
    """
    given = [name for name in ("head", *PARTS) if getattr(parameters, name)]
    if parameters.objective != "ranking":
        if given:
            raise UsageError(f'[method] {given[0]} is for objective = "ranking"; set that too, or leave it out.')
        return {"head": 0, **dict.fromkeys(PARTS, 0.0)}
    if context.unit is Unit.RATING:
        raise UsageError(
            'objective = "ranking" is for unit = "user": which items occur together moves with each of a user\'s '
            "ratings, so per rating auto ranks by counts and tastes, which cost nothing more; leave objective out."
        )
    rest = 1 - sum(PARTS.values())
    shares = {
        name: part / rest if getattr(parameters, name) is None else getattr(parameters, name)
        for name, part in PARTS.items()
    }
    head = head_size(context, PARTS["together_share"]) if parameters.head is None else parameters.head
    head = min(head, context.facts.items)
    if not (head and all(shares.values())):
        return {"head": 0, **dict.fromkeys(PARTS, 0.0)}
    return {"head": head, **shares}


def head_sizes(head: int | None) -> dict[str, int]:
    """What the names in the shapes of messages about the head stand for."""
    k = head or 0
    return {"head": k, "head pairs": k * (k + 1) // 2}
