"""How kernels are compiled: without the GIL, and cached between runs wherever a folder can be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

Array = np.ndarray


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator as `numba.njit(**options)`, without the GIL and with a cache.

    Where neither the package's folder, nor NUMBA_CACHE_DIR, nor the user's cache can be written, numba refuses to
    compile with a cache; then every start compiles anew.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(cache=True, nogil=True, **options)(function)
        except RuntimeError:  # no place for a cache
            return numba.njit(nogil=True, **options)(function)

    return decorate
