"""Who holds what: ratings divided among parties."""

import sys
from types import ModuleType
from typing import Any

from tacit.partition.divide import partition
from tacit.partition.parties import Parties, Setting, Share

__all__ = ["partition", "Parties", "Share", "Setting"]


class _Callable(ModuleType):
    """This package is also a function: `tacit.partition(…)`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return partition(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
