"""How good a model is, per user and with intervals; and whether one model beats another.

evaluate        every metric of one predictor on held-out ratings
compare_paired  two runs on the same users
"""

import sys
from types import ModuleType
from typing import Any

from tacit.evaluate.evaluation import Evaluation, evaluate
from tacit.evaluate.metrics import METRICS, Metric, lower_is_better
from tacit.evaluate.paired import Paired, bootstrap_interval, compare_paired

__all__ = [
    "METRICS",
    "Metric",
    "lower_is_better",
    "Evaluation",
    "evaluate",
    "bootstrap_interval",
    "Paired",
    "compare_paired",
]


class _Callable(ModuleType):
    """This package is also a function: `tacit.evaluate(…)`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return evaluate(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
