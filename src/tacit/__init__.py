"""Train one recommender with others, without sharing ratings.

>>> import tacit
>>> ratings = tacit.load("demo")
>>> train, test = tacit.split(ratings, test=0.1, seed=7)
>>> silos = tacit.partition(train, into=4, by="user")
>>> model = tacit.SGDMF(factors=8, rounds=20, seed=7).fit(silos)
>>> model.guarantee_
NON-PRIVATE
>>> len(model.recommend("u42", n=10))
10

Names are imported when they are first used, so that the command line starts fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.data.load import load as load
    from tacit.data.ratings import Ratings as Ratings
    from tacit.data.split import split as split
    from tacit.estimator import ALS as ALS
    from tacit.estimator import DP as DP
    from tacit.estimator import EASE as EASE
    from tacit.estimator import SGDMF as SGDMF
    from tacit.estimator import Auto as Auto
    from tacit.estimator import Bias as Bias
    from tacit.estimator import Central as Central
    from tacit.estimator import GlobalMean as GlobalMean
    from tacit.estimator import Implicit as Implicit
    from tacit.estimator import ItemMean as ItemMean
    from tacit.estimator import Local as Local
    from tacit.estimator import Popularity as Popularity
    from tacit.estimator import Random as Random
    from tacit.estimator import estimator as estimator
    from tacit.estimator import fit as fit
    from tacit.evaluate import evaluate as evaluate
    from tacit.model import Model as Model
    from tacit.partition import partition as partition

__version__ = "0.1.0"

_HOMES = {
    "Ratings": "tacit.data.ratings",
    "load": "tacit.data.load",
    "split": "tacit.data.split",
    "Model": "tacit.model",
    **dict.fromkeys(
        (
            *("fit", "DP", "Auto", "ALS", "EASE", "Implicit", "SGDMF", "Bias"),
            *("Central", "Local", "GlobalMean", "ItemMean", "Popularity", "Random"),
        ),
        "tacit.estimator",
    ),
}
#: Rooms that are also functions: tacit.partition(…), tacit.evaluate(…) and tacit.estimator(…).
_ROOMS = ("partition", "evaluate", "estimator")

__all__ = ["load", "split", "fit", *_ROOMS, *(name for name in _HOMES if name not in ("load", "split", "fit"))]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"tacit.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
