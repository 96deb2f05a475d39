"""ε along the way: what has been spent after some of the planned releases, for the line that people watch.

Formal guarantee
----------------
The result is an ε that holds at that δ for the releases that were made, as a list fixed beforehand: never below the
accountant's own, and equal to it once all were made. If somebody stops early *because of what the answers showed*, the
ε of the whole schedule holds, or a `Filter`'s; the number on the line does not.

What is exact and cheap is computed as it is. Elsewhere ε is computed by Rényi, which is cheap, and exactly for counts
that are rounded up to a few per step, since more releases never cost less; of the two bounds the smaller counts. A
straight line between such points would be nicer to look at and too low: ε bends downwards in the number of releases.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tacit.boundary import compose, renyi, spending
from tacit.boundary.events import Event
from tacit.boundary.shuffle_amplification import Whole
from tacit.boundary.spending import Noised
from tacit.errors import UsageError
from tacit.guarantee import Relation

#: What is planned: what one release of a step spends, and how many there will be.
Planned = Sequence[tuple[Event, int]]


def epsilon_after(planned: Planned, made: Sequence[int], delta: float, relation: Relation, points: int = 12) -> float:
    """ε after `made[i]` releases of the i-th planned step.

    `points` is at how many counts of each step an expensive route is asked for; results are kept.
    """
    if (
        points < 1
        or len(made) != len(planned)
        or any(not 0 <= m <= n for m, (_one, n) in zip(made, planned, strict=True))
    ):
        raise UsageError(f"ε after {list(made)} releases of {[n for _one, n in planned]} is not possible.")
    now, relation = _spent(planned, made), Relation(relation)
    whole = _spent(planned, [n for _one, n in planned])
    if now is None:
        return math.inf
    if not now or whole is None:
        return compose.epsilon(now, delta, relation)
    most = compose.epsilon(whole, delta, relation)
    if delta == 0 or compose.discrete(whole) or compose.plain_mu(whole, relation) is not None:
        return min(compose.epsilon(now, delta, relation), most)
    ahead = _spent(planned, [_up(m, n, points) for m, (_one, n) in zip(made, planned, strict=True)])
    assert ahead is not None
    exact = most if ahead == whole else compose.epsilon(ahead, delta, relation, 10.0)
    bound = renyi.epsilon(renyi.curve(now, relation, compose.FEW), delta, compose.FEW)
    return min(bound, exact, most)


def _spent(planned: Planned, made: Sequence[int]) -> tuple[Noised, ...] | None:
    """What so many releases of each step spend; None if something left unprotected."""
    return spending.merge(
        replace(one, count=one.count * m) if isinstance(one, Noised) else one
        for m, (one, _n) in zip(made, planned, strict=True)
        if m
    )


def _up(made: int, most: int, points: int) -> int:
    """`made`, rounded up to one of at most `points` numbers up to `most`."""
    steps = _points(most, points)
    return int(steps[np.searchsorted(steps, made)]) if made else 0


def _points(steps: int, most: int) -> Whole:
    """At most `most` numbers of steps, the last one included, in equal ratios as far as whole numbers go."""
    if steps <= most:
        return np.arange(1, steps + 1)
    return np.unique(np.ceil(np.geomspace(1, steps, most) - 1e-9).astype(np.int64))
