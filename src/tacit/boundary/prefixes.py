"""What each prefix of a list of releases costs: a function of the prefix alone, never too low, and quick.

Plain Gaussians have a closed form. Everything else goes by losses or Rényi orders, at some tens of milliseconds each;
so counts are rounded *up* to five binary digits, in units of the smallest release of their kind. Up to 31 alike ones
that changes nothing; beyond, it adds at most 1/16 to a count, about 3 % to ε, and of n prefixes only some 16·log₂(n)
are computed. A prefix of the first schedule costs at most what all of that costs, which is known exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tacit.boundary import compose
from tacit.boundary.events import Event
from tacit.boundary.spending import Noised, merge
from tacit.guarantee import Relation

#: Binary digits of a rounded count, and the width of the grid of losses: four times that of a plan, 0.1 % more.
DIGITS, COARSE = 5, 4.0


def prefix_costs(events: Sequence[Event], delta: float, relation: Relation, first: Iterable[Event] = ()) -> list[float]:
    """ε at δ after each event, of everything up to it as a fixed list; `first` was planned before all of them.

    Formal guarantee: each is at least the ε of its prefix, none is less than the one before it, and none depends on
    what comes after it.
    """
    planned = merge(first) or ()
    limit, cost = _counts(planned), compose.epsilon(planned, delta, relation)
    together: tuple[Noised, ...] = ()
    units: dict[Noised, int] = {}
    reached, now = [], 0.0
    for event in events:
        part = merge([event])
        if part is None:
            now = math.inf
        elif part and now < math.inf:
            together = merge((*together, *part)) or ()
            for kind, count in _counts(part).items():
                units[kind] = min(count, units.get(kind, count))
            at_most = _at_most(together, units, delta, relation)
            if all(count <= limit.get(kind, 0) for kind, count in _counts(together).items()):
                at_most = min(at_most, cost)
            now = max(now, at_most)
        reached.append(now)
    return reached


def _at_most(together: tuple[Noised, ...], units: dict[Noised, int], delta: float, relation: Relation) -> float:
    if compose.plain_mu(together, relation) is not None:
        return compose.epsilon(together, delta, relation)
    rounded = tuple(replace(event, count=_up(event.count, units[replace(event, count=1)])) for event in together)
    return compose.epsilon(rounded, delta, relation, COARSE)


def _up(count: int, unit: int) -> int:
    """The count, in units, with at most so many binary digits, rounded up."""
    whole = -(-count // unit)
    step = 1 << max(0, whole.bit_length() - DIGITS)
    return count if step == 1 else -(-whole // step) * step * unit


def _counts(events: Iterable[Noised]) -> dict[Noised, int]:
    return {replace(event, count=1): event.count for event in events}
