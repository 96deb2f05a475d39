"""One thread of BLAS each, for whoever computes in threads of their own.

OpenBLAS spreads every product over all cores. Where several parties, or several blocks of users, are at work in
threads already, these wait for each other: the products are small, and handing them out costs more than doing them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

_lock = threading.Lock()
_inside = 0
_limits: Any = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS computes with one thread in this process, until the last of those inside has left."""
    global _inside, _limits
    with _lock:
        if not _inside:
            _limits = _libraries("scipy.linalg" in sys.modules).limit(limits=1, user_api="blas")
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _limits.restore_original_limits()


@lru_cache(maxsize=2)
def _libraries(with_scipy: bool) -> Any:
    """The libraries of BLAS that are loaded; SciPy brings one of its own."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
