"""Methods: the mathematics of one paper each, written once, knowing neither engine nor aggregation."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from tacit.config import checked
from tacit.errors import UsageError, did_you_mean
from tacit.methods.method import Coordinator, Method, Parameters, Sides
from tacit.registry import Registry

__all__ = ["Coordinator", "Method", "Parameters", "Sides", "chosen", "find", "known"]


#: Tacit's own methods in the order in which they are listed; pyproject.toml says where each is.
OWN = (
    "auto",
    "als",
    "ease",
    "implicit",
    "sgdmf",
    "gradient-clipping",
    "dp-sgld",
    "objective-perturbation",
    "am-dpsgd",
    "synsgd",
    "gd-dr",
    "local-private",
    "dpals",
    "dplcf",
    "bias",
    "central",
    "central-sgd",
    "local",
    "local-sgd",
    "global-mean",
    "item-mean",
    "popularity",
    "random",
)


@cache
def known() -> Registry[Method]:
    """All installed methods by name; a test adds its own with `known()[name] = method`."""
    return Registry("tacit.methods", "method", Method, OWN)


def find(name: str) -> Method:
    """The method of that name."""
    return known().find(name)


def chosen(table: Mapping[str, Any], where: str = "the run file") -> tuple[Method, Parameters]:
    """The method that a [method] table names, and its parameters, checked before any data is read."""
    table = dict(table)
    misspelt = [key for key in table if did_you_mean(key, ["name"]) and key != "name"]
    if "name" not in table:
        hint = f' "{misspelt[0]}" is not a known key; did you mean "name"?' if misspelt else ' Add name = "auto".'
        raise UsageError(f"In {where}, [method] has no name.{hint}")
    method = find(str(table.pop("name")))
    return method, checked(method.parameters, table, where=f"[method] of {where}")
