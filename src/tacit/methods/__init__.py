"""Methods: the mathematics of one paper each, written once, knowing neither engine nor aggregation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from tacit.config import checked
from tacit.errors import UsageError, did_you_mean
from tacit.methods.base import Coordinator, Method, Parameters, Sides

__all__ = ["Coordinator", "Method", "Parameters", "Sides", "chosen", "find", "known"]


@cache
def known() -> Mapping[str, Method]:
    """All methods by name."""
    from tacit.methods.baselines.alone import ALONE
    from tacit.methods.baselines.bias import BIAS
    from tacit.methods.baselines.central import CENTRAL
    from tacit.methods.baselines.clipping import GRADIENT_CLIPPING
    from tacit.methods.baselines.local import LOCAL
    from tacit.methods.baselines.means import GLOBAL_MEAN, ITEM_MEAN, POPULARITY
    from tacit.methods.baselines.objective import OBJECTIVE
    from tacit.methods.baselines.random import RANDOM
    from tacit.methods.baselines.reduced import REDUCED
    from tacit.methods.baselines.sgld import SGLD
    from tacit.methods.baselines.synchronous import SYNCHRONOUS
    from tacit.methods.sgdmf import SGDMF

    others = (GRADIENT_CLIPPING, SGLD, OBJECTIVE, SYNCHRONOUS, REDUCED, ALONE)
    simple = (BIAS, CENTRAL, LOCAL, GLOBAL_MEAN, ITEM_MEAN, POPULARITY, RANDOM)
    return {method.name: method for method in (SGDMF, *others, *simple)}


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
