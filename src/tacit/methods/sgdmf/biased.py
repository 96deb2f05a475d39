"""SGDMF's other start: item biases from one noised sum, as the method `bias` makes them, written as factors.

    low + u·v_j = level_u + b_j   with   v_j = (a, (b_j + R/2)/c, …),  u = (x_u, c, …),  a·x_u = level_u − low − R/2

The first factor carries a user's level and the second an item's bias; a = √R/2 and c = .8·√R keep both within Π for all
but the most extreme levels. Items' other factors start small: they say little until steps make them grow.
The release costs the part `SHARE` of the budget; what is computed from it is free.
"""

import math
from dataclasses import replace

import numpy as np

from tacit.boundary import Release
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec
from tacit.data.ratings import Scale
from tacit.errors import PrivacyRefused
from tacit.federation import Facts, Floats, Party, Schema, Total, step
from tacit.guarantee import Unit
from tacit.kernels.embed import embed
from tacit.methods.bias import BiasParameters, contribution, estimated
from tacit.methods.bias import specs as of_bias
from tacit.methods.context import Context
from tacit.rng import derive

#: The part of the budget that the start gets; T·T' steps share the rest.
SHARE = 0.8
#: How `bias` makes its sum and estimates from it.
BIAS = BiasParameters()
#: a and c in parts of √R, and the size of the other entries, of items and of users, in parts of √(R/p).
LEVEL, SLOPE = 0.5, 0.8
OTHERS, OTHERS_OF_USERS = 0.05, 0.3


class StartsFromBiases(Party):
    """A silo of users, or a cohort of devices, that can be asked for the sum that biases are estimated from."""

    @step(
        Kind.SUM,
        takes=Schema(),
        gives=Schema(errors=Floats("items"), weights=Floats("items")),
        what="what the method bias sums: per item, how far its ratings lie from the usual, and their weights",
    )
    def start(self) -> Release:
        return self.gate.sum(*contribution(self.ratings, BIAS, self.facts))


def released_items(facts: Facts, total: Total, factors: int) -> np.ndarray:
    """Item factors from the parties' noised sum; (m, p) float32."""
    return biased_items(facts, estimated(total.blocks, total.noise, BIAS, facts), factors)


def biased_items(facts: Facts, biases: np.ndarray, factors: int, *purpose: str) -> np.ndarray:
    """Item factors that say level + b_j; (m, p) float32."""
    R = facts.scale.span
    V = _others(facts, len(biases), factors, OTHERS, "items", *purpose)
    V[:, 0] = LEVEL * math.sqrt(R)
    V[:, 1] = (np.clip(biases, -R / 2, R / 2) + R / 2) / (SLOPE * math.sqrt(R))
    return embed(V, R)


def biased_users(facts: Facts, rows: int, factors: int, *purpose: str) -> np.ndarray:
    """Users' factors before they are fitted: a level a little above the middle of the scale; (rows, p) float32."""
    U = _others(facts, rows, factors, OTHERS_OF_USERS, "users", *purpose)
    U[:, :2] = level_user(facts.scale, factors)[:2]
    return embed(U, facts.scale.span)


def level_user(scale: Scale, factors: int) -> np.ndarray:
    """The factors of a user whose level is .6 of the scale; (p,) float32."""
    u, root = np.zeros(factors, dtype=np.float32), math.sqrt(scale.span)
    u[:2] = 0.1 * root / LEVEL, SLOPE * root
    return u


def with_start(context: Context, steps: list[Spec]) -> list[Spec]:
    """The specs of a run that starts from biases: theirs first; all answers of the steps have the same multiplier."""
    if context.unit is Unit.RATING and any(spec.query.counted(Unit.RATING)[0] is Unit.USER for spec in steps):
        raise PrivacyRefused(
            'start = "bias" bounds single ratings where unit = "rating", and the steps of this run move with a user\'s '
            'whole record; use unit = "user", which protects more at the same price, or leave start out.'
        )
    (release,) = of_bias(BIAS, context)
    answers = sum(spec.releases * max(1, spec.answers) for spec in steps)
    shares = [(1 - SHARE) * spec.releases * max(1, spec.answers) / answers for spec in steps]
    later = [replace(spec, share=share) for spec, share in zip(steps, shares, strict=True)]
    return [replace(release, step="start", share=SHARE), *later]


def _others(facts: Facts, rows: int, factors: int, size: float, *purpose: str) -> np.ndarray:
    uniform = derive(facts.seed, "start", "bias", *purpose).random((rows, factors), dtype=np.float32)
    return 2 * np.float32(size * math.sqrt(facts.scale.span / factors)) * uniform
