"""How kernels are compiled: without the GIL, and cached between runs wherever a folder can be written."""

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np

Array = np.ndarray
Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(**options: Any) -> Callable[[Function], Function]:
    """A decorator as `numba.njit(**options)`, without the GIL and with a cache.

    Where neither the package's folder, nor NUMBA_CACHE_DIR, nor the user's cache can be written, numba refuses to
    compile with a cache; then every start compiles again.
    """

    def decorate(function: Function) -> Function:
        try:
            made: Function = numba.njit(cache=True, nogil=True, **options)(function)
        except RuntimeError:  # no place for a cache
            made = numba.njit(nogil=True, **options)(function)
        return made

    return decorate
