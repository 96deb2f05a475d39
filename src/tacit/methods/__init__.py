"""Methods: the mathematics of one paper each, written once, knowing neither engine nor aggregation."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Mapping, MutableMapping
from functools import cache
from importlib import import_module
from typing import Any

from tacit.config import checked
from tacit.errors import UsageError, did_you_mean
from tacit.methods.base import Coordinator, Method, Parameters, Sides

__all__ = ["Coordinator", "Method", "Parameters", "Sides", "chosen", "find", "known"]


#: Where each method is: a name is looked up without importing the others.
_PLACES = {
    "sgdmf": "sgdmf:SGDMF",
    "gradient-clipping": "baselines.clipping:GRADIENT_CLIPPING",
    "dp-sgld": "baselines.sgld:SGLD",
    "objective-perturbation": "baselines.objective:OBJECTIVE",
    "synsgd": "baselines.synchronous:SYNCHRONOUS",
    "gd-dr": "baselines.reduced:REDUCED",
    "local-private": "baselines.alone:ALONE",
    "bias": "bias:BIAS",
    "central": "baselines.central:CENTRAL",
    "local": "baselines.local:LOCAL",
    "global-mean": "baselines.means:GLOBAL_MEAN",
    "item-mean": "baselines.means:ITEM_MEAN",
    "popularity": "baselines.means:POPULARITY",
    "random": "baselines.random:RANDOM",
}


class _Methods(UserDict[str, Any]):
    """Methods by name, each imported when it is first asked for."""

    def __getitem__(self, name: str) -> Method:
        found = self.data[name]
        if isinstance(found, str):
            module, attribute = found.split(":")
            self.data[name] = found = getattr(import_module(f"tacit.methods.{module}"), attribute)
        method: Method = found
        return method


@cache
def known() -> MutableMapping[str, Method]:
    """All methods by name."""
    return _Methods(_PLACES)


def find(name: str) -> Method:
    """The method of that name."""
    methods = known()
    if name not in methods:
        raise UsageError(
            f'There is no method "{name[:100]}".{did_you_mean(name, methods)} Known methods: {", ".join(methods)}.'
        )
    return methods[name]


def chosen(table: Mapping[str, Any], where: str = "the run file") -> tuple[Method, Parameters]:
    """The method that a [method] table names, and its parameters, checked before data is touched."""
    table = dict(table)
    misspelt = [key for key in table if did_you_mean(key, ["name"]) and key != "name"]
    if "name" not in table:
        hint = f' "{misspelt[0]}" is not a known key; did you mean "name"?' if misspelt else ' Add name = "sgdmf".'
        raise UsageError(f"In {where}, [method] has no name.{hint}")
    method = find(str(table.pop("name")))
    return method, checked(method.parameters, table, where=f"[method] of {where}")
