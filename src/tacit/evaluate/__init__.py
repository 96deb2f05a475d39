"""How good a model is, per user and with intervals; and whether one model beats another.

evaluate        every metric of one predictor on held-out ratings
quick_errors    the mean squared error alone, cheap enough for each round
compare_paired  two runs on the same users
"""

import sys
from types import ModuleType
from typing import Any

from tacit.evaluate.bootstrap import bootstrap_interval
from tacit.evaluate.evaluation import Evaluation, evaluate
from tacit.evaluate.metrics import METRICS, Metric, lower_is_better
from tacit.evaluate.paired import Paired, compare_paired
from tacit.evaluate.rating import quick_errors

__all__ = [
    "METRICS",
    "Metric",
    "lower_is_better",
    "Evaluation",
    "evaluate",
    "quick_errors",
    "bootstrap_interval",
    "Paired",
    "compare_paired",
]


class _Room(ModuleType):
    """This room is also a function: `tacit.evaluate(…)`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return evaluate(*args, **kwargs)


sys.modules[__name__].__class__ = _Room
