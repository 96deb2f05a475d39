"""One service a folder: two that shared a site's state would answer for each other."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit.errors import UsageError


@contextmanager
def alone(folder: Path, name: str) -> Iterator[None]:
    """While this process is the only one that serves from `folder`; the kernel lets go when it dies."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise UsageError(
            f'Another process serves {name} from "{folder}" already; stop it, or name another --state.'
        ) from None
    try:
        yield
    finally:
        os.close(descriptor)
