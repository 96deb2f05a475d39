"""Aggregations: how several parties' contributions become one; one file each, with both sides."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from tacit.aggregation.base import Aggregation
from tacit.config import AggregationSection
from tacit.errors import UsageError, did_you_mean
from tacit.partition import Setting

__all__ = ["Aggregation", "find", "known", "made"]

_PLACES = {"plain": "plain:Plain", "ideal": "ideal:Ideal", "secagg": "secagg:SecAgg", "shuffle": "shuffle:Shuffle"}


@cache
def known() -> dict[str, type[Aggregation]]:
    """Aggregations by name."""
    found = {}
    for name, place in _PLACES.items():
        module, kind = place.split(":")
        found[name] = getattr(import_module(f"tacit.aggregation.{module}"), kind)
    return found


def find(name: str) -> type[Aggregation]:
    """The aggregation of that name."""
    if name not in known():
        raise UsageError(
            f'[aggregation] name = "{name[:100]}" is not available in this version.{did_you_mean(name, known())} '
            f"Known aggregations: {', '.join(known())}."
        )
    return known()[name]


def made(setting: Setting, parties: int, section: AggregationSection) -> Aggregation:
    """What a run file's [aggregation] asks for, among so many parties; refuses what cannot be."""
    return find(section.name).of(setting, parties, section)
