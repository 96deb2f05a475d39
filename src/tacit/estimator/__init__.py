"""Estimators with scikit-learn's manners: constructors only store, `fit` returns self, learned state ends in `_`.

`tacit.estimator("gd-dr")` is the estimator of an installed method; Tacit's own have a name here, too, such as `SGDMF`.
Their signatures and descriptions come from the methods' parameters; `make stubs` writes them down for editors and mypy.
"""

import sys
from types import ModuleType
from typing import Any

from tacit.estimator.base import DP, Estimator
from tacit.estimator.fit import fit
from tacit.estimator.generate import class_name, estimator
from tacit.methods import known

__all__ = ["DP", "Estimator", "estimator", "fit"]


def __getattr__(name: str) -> Any:
    """The estimator class of that name, made when it is first used; pickle finds classes in this way, too."""
    if name[:1].isupper():
        for method in known():
            if class_name(method) == name:
                return estimator(method)
    raise AttributeError(f"module 'tacit.estimator' has no attribute {name!r}")


class _Room(ModuleType):
    """This package is also a function: `tacit.estimator("gd-dr")`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return estimator(*args, **kwargs)


sys.modules[__name__].__class__ = _Room
