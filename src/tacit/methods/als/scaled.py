"""What a user says in a private sweep, before the boundary scales all of it to length 1.

About each of their items, E[x·xᵀ]/σ²_u and r·E[x]/σ²_u; about the priors, E[h·hᵀ] less that of an empty record, and
their error and weight. Upper triangles travel with off-diagonals times √2, at their Frobenius norm.
"""

import math

import numpy as np

from tacit.boundary.scaled_records import ScaledRecords
from tacit.boundary.wire import Array
from tacit.methods.als.statistics import UserStatistics, empty_joint

#: The part of a contribution's squared length that is about the priors.
PRIORS = 0.1
#: A user's weight is of this order: 1 over the length of what they say about items.
WEIGHT = 1 / 30
#: Users whose products are held in double precision at a time.
AT_ONCE = 256


def query(factors: int) -> ScaledRecords:
    """The sum of a private sweep. What users say about priors is cut to about its typical size."""
    return ScaledRecords(("joint", "errors"), PRIORS, 2 + factors / 2)


def said(statistics: UserStatistics) -> tuple[Array, Array, Array, dict[str, Array]]:
    """M, x, r and p of `ScaledRecords`, of every user."""
    found = statistics.found
    a, b = np.triu_indices(statistics.form.width)
    with np.errstate(all="ignore"):
        w = 1 / found.noise[:, None]
        moments = found.moments * np.where(a == b, np.float32(1), np.float32(math.sqrt(2))) * w.astype(np.float32)
        return moments, found.states * w, np.clip(statistics.v, -4, 4), about_priors(statistics)


def about_priors(s: UserStatistics) -> dict[str, Array]:
    """What every user says about priors, one row each."""
    h = np.concatenate([s.history.features, s.tastes], axis=1)
    a, b = np.triu_indices(h.shape[1])
    joint = np.empty((len(h), len(a)), dtype=np.float32)
    for some in (slice(at, at + AT_ONCE) for at in range(0, len(h), AT_ONCE)):
        one = h[some, a] * h[some, b] - empty_joint(s.form)[a, b]
        moments, states = (x[some].astype(np.float64) for x in (s.found.moments, s.found.states))
        one += _tastes_only(moments - _outer(states), s.form.width, h.shape[1])
        joint[some] = one * np.where(a == b, 1.0, math.sqrt(2))
    several = np.maximum(s.history.counts, 1)
    own = s.found.noise / np.maximum(np.linalg.norm(s.found.moments, axis=1), 1e-9)
    weight = np.minimum(own / np.sqrt(several) / WEIGHT, 3)
    errors = np.stack([np.ones(len(own)), s.found.errors / several / 2, 0 * own, weight], axis=1)
    return {"joint": joint, "errors": errors}


def _outer(x: Array) -> Array:
    a, b = np.triu_indices(x.shape[1])
    products: Array = x[:, a] * x[:, b]
    return products


def _tastes_only(triangles: Array, width: int, joint: int) -> Array:
    """Upper triangles of x's covariance, (n, …), as those of h = (f, z)'s, where z is x without its known 1."""
    places = np.full((width, width), -1)
    places[np.triu_indices(width)] = np.arange(triangles.shape[1])
    free = np.delete(np.arange(width), 1)
    whole = np.full((joint, joint), -1)
    whole[1 - width :, 1 - width :] = places[np.ix_(free, free)]
    chosen = whole[np.triu_indices(joint)]
    out: Array = np.where(chosen >= 0, triangles[:, np.maximum(chosen, 0)], 0.0)
    return out
