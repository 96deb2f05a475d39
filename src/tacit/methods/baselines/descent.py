"""One holder of ratings, all of them at hand: plain stochastic gradient descent. Shared by `central` and `local`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pydantic import Field

from tacit.data.ratings import Scale
from tacit.kernels.sgd import sgd_epoch
from tacit.methods.base import Parameters
from tacit.methods.start import falling


class DescentParameters(Parameters):
    """Parameters of plain SGD.

    Parameters
    ----------
    factors : p
    epochs : passes over the ratings
    rate : the first step's size, for a scale with a span of 1; it falls linearly over the first 80 % of the passes
    regularization : weight decay per rating, for a scale with a span of 1
    """

    factors: int = Field(default=20, ge=1, le=1024)
    epochs: int = Field(default=40, ge=1, le=10_000)
    rate: float = Field(default=0.32, gt=0)
    regularization: float = Field(default=0.0125, ge=0)

    @property
    def dimensions(self) -> dict[str, int]:
        return {"factors": self.factors}


def descend(
    users: np.ndarray,
    items: np.ndarray,
    values: np.ndarray,
    scale: Scale,
    start: tuple[np.ndarray, np.ndarray],
    parameters: DescentParameters,
    stream: np.random.Generator,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """U and V after each epoch, in place from `start`.

    Error and factors both grow with the span R: rate/R and regularization·R make the same path on every scale.
    """
    u, v = start
    for epoch in range(parameters.epochs):
        rate = falling(parameters.rate, epoch, parameters.epochs, last=0.05) / scale.span
        order = stream.permutation(len(values))
        sgd_epoch(
            users,
            items,
            values,
            scale.low,
            order,
            u,
            v,
            rate,
            parameters.regularization * scale.span,
            scale.span,
        )
        yield u, v
