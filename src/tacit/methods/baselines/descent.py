"""Plain stochastic gradient descent over all ratings of one holder. Shared by `central`, `local` and fine-tuning."""

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
from pydantic import Field

from tacit.data.ratings import Scale
from tacit.federation import Facts
from tacit.kernels.embed import embed
from tacit.kernels.sgd import sgd_epoch
from tacit.methods.factors import FactorParameters, linear_decay, start_factors

#: How much of a random start a flat one keeps; found on synthetic data.
FLAT = 0.3


class DescentParameters(FactorParameters):
    """Parameters of plain SGD.

    Parameters
    ----------
    factors : p
    epochs : passes over the ratings
    rate : the first step's size, for a scale with a span of 1; it decays linearly over the first 80 % of the passes
    regularization : weight decay per rating, for a scale with a span of 1
    start : "random", or "flat": every row nearly the same, so that the first passes learn levels, and tastes only where
        ratings show them; better for users with few ratings
    """

    epochs: int = Field(default=40, ge=1, le=10_000)
    rate: float = Field(default=0.32, gt=0)
    regularization: float = Field(default=0.0125, ge=0)
    start: Literal["random", "flat"] = "random"


def started(parameters: DescentParameters, facts: Facts, rows: int, *purpose: str) -> np.ndarray:
    """A block of factors at its start, as the parameters choose it; (rows, factors) float32."""
    random = start_factors(facts, rows, parameters.factors, *purpose)
    if parameters.start == "random":
        return random
    flat = FLAT * random
    flat[:, 0] = math.sqrt(0.6 * facts.scale.span)
    return embed(flat, facts.scale.span)


def descend(
    columns: tuple[np.ndarray, np.ndarray, np.ndarray],
    scale: Scale,
    start: tuple[np.ndarray, np.ndarray],
    parameters: DescentParameters,
    stream: np.random.Generator,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """U and V after each epoch over (users, items, values), in place from `start`.

    Error and factors both grow with the span R: rate/R and regularization·R make the same path on every scale.
    """
    (u, v), span = start, scale.span
    regularization = parameters.regularization * span
    for rate in parameters.rate * linear_decay(parameters.epochs, last=0.05) / span:
        order = stream.permutation(len(columns[0]))
        sgd_epoch(*columns, scale.low, order, u, v, rate, regularization, span)
        yield u, v
