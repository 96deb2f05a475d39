"""Aggregations: how several parties' contributions become one; one file each, with both sides."""

from functools import cache

from tacit.aggregation.aggregation import Aggregation
from tacit.config import AggregationSection
from tacit.partition import Setting
from tacit.registry import Registry

__all__ = ["Aggregation", "find", "known", "made"]

#: Those that Tacit brings, as pyproject.toml lists them.
OWN = ("plain", "ideal", "secagg", "shuffle")


@cache
def known() -> Registry[type[Aggregation]]:
    """Aggregations by name: those of Tacit, and those of other installed packages."""
    return Registry("tacit.aggregations", "aggregation", type, OWN)


def find(name: str) -> type[Aggregation]:
    """The aggregation of that name."""
    return known().find(name)


def made(setting: Setting, parties: int, section: AggregationSection) -> Aggregation:
    """What a run file's [aggregation] asks for, among so many parties; refuses what cannot be."""
    return find(section.name).of(setting, parties, section)
