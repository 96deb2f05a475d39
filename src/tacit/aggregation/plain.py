"""`plain`: the coordinator sees every contribution, so each party adds all of the noise itself."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.aggregation.aggregation import Aggregation


@dataclass(frozen=True)
class Plain(Aggregation):
    """The sum of what everybody sees.

    Guarantee
    ---------
    None of its own: what a party releases carries its own noise, and holds against everyone who sees it.
    """
