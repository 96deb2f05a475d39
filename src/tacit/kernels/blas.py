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

_held = threading.Lock()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS computes with one thread, in all threads of this process; afterwards with as many as before.

    The number belongs to the process, so one holder sets it and the same one sets it back: whoever comes while it is
    held, from the same thread or another one, changes nothing.
    """
    if not _held.acquire(blocking=False):
        yield
        return
    try:
        with _libraries("scipy.linalg" in sys.modules).limit(limits=1, user_api="blas"):
            yield
    finally:
        _held.release()


@lru_cache(maxsize=2)
def _libraries(with_scipy: bool) -> Any:
    """The libraries of BLAS that are loaded; SciPy brings one of its own, from when it is first used."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
