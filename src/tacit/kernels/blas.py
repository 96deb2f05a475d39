"""One BLAS thread, for code that runs in threads itself.

OpenBLAS spreads every product over all cores. Where several parties, or blocks of users, are computed in threads
already, these wait for each other: the products are small, and distributing them costs more than computing them.
"""

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

    The number belongs to the process: the first holder sets and restores it, nested or parallel ones change nothing.
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
    """The libraries of BLAS that are loaded; SciPy loads another one when it is first used."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
