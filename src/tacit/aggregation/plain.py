"""`plain`: the coordinator sees every contribution, so each party adds all of the noise itself."""

from dataclasses import dataclass

from tacit.aggregation.aggregation import Aggregation


@dataclass(frozen=True)
class Plain(Aggregation):
    """The sum of visible contributions. No guarantee beyond theirs: each carries its party's own noise."""
