"""ε along the way: what has been spent after each step, for the line that people watch.

Formal guarantee
----------------
Entry t is an ε that holds for t steps, at that δ, as a schedule of t steps fixed beforehand: never below the
accountant's own, and equal to it at the last step. If somebody stops early *because of what the answers showed*, the
ε of the whole schedule holds, or a `Filter`'s; the number on the line does not.

ε is reckoned exactly at a few points and by Rényi, which is cheap, at many more. Between two points it is that of the
later one, since more steps never cost less; of the two bounds the smaller counts. A straight line between points would
be nicer to look at and too low: ε bends downwards in t.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tacit.boundary import compose, renyi, spending
from tacit.boundary.events import Event
from tacit.boundary.shuffling import Floats, Whole
from tacit.boundary.spending import Noised
from tacit.errors import UsageError
from tacit.guarantee import Relation

#: How many points cheap routes are reckoned at.
MANY = 512


def epsilon_curve(
    event_per_step: Event | Sequence[Event], steps: int, delta: float, relation: Relation, points: int = 12
) -> Floats:
    """ε after 0, 1, … `steps` steps that spend `event_per_step` each. Shape (steps + 1,), float64, never falling.

    `points` is how many of them an expensive route is asked for.
    """
    if steps < 0 or points < 1:
        raise UsageError(f"A curve of {steps} steps at {points} points is not possible; give at least 0 and 1.")
    together = spending.merge([event_per_step] if isinstance(event_per_step, Event) else event_per_step)
    curve = np.zeros(steps + 1)
    if together is None:
        curve[1:] = np.inf
    if not together or not steps:
        return curve
    relation = Relation(relation)
    many = _points(steps, MANY)
    if compose.discrete(together) or compose.plain_mu(together, relation) is not None:
        values = np.array([compose.epsilon(_times(together, int(t)), delta, relation) for t in many])
    else:
        values = _bounded(together, many, delta, relation)
        few = _points(steps, points)
        exact = [compose.epsilon(_times(together, int(t)), delta, relation, 10.0) for t in few[:-1]]
        exact.append(compose.epsilon(_times(together, steps), delta, relation))
        values = np.minimum(values, np.maximum.accumulate(exact)[np.searchsorted(few, many)])
    t = np.arange(1, steps + 1)
    curve[1:] = np.maximum.accumulate(values)[np.searchsorted(many, t)]
    curve[1:] = np.minimum(curve[1:], values[-1])
    return curve


def _bounded(events: tuple[Noised, ...], at: Whole, delta: float, relation: Relation) -> Floats:
    """By Rényi, at each number of steps."""
    if delta == 0:
        return np.array([t * spending.pure(events, relation) for t in at])
    costs = renyi.curve(events, relation, compose.FEW)
    return np.array([renyi.epsilon(t * costs, delta, compose.FEW) for t in at])


def _points(steps: int, most: int) -> Whole:
    """At most `most` numbers of steps, the last one included, in equal ratios as far as whole numbers go."""
    if steps <= most:
        return np.arange(1, steps + 1)
    return np.unique(np.ceil(np.geomspace(1, steps, most) - 1e-9).astype(np.int64))


def _times(events: tuple[Noised, ...], steps: int) -> tuple[Noised, ...]:
    return tuple(replace(event, count=event.count * steps) for event in events)
