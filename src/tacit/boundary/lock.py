"""One process per folder: two that shared a run, its ledgers or a site's state would overwrite each other."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit.errors import PeerFailed, UsageError


@contextmanager
def exclusive(folder: Path, what: str, otherwise: str) -> Iterator[None]:
    """While this process is the only one that writes in `folder`; the kernel frees the lock when it dies.

    For messages, `what` is stored there ("the run"), and `otherwise` is an alternative ("name another folder").
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise UsageError(
            f'{what[:1].upper()}{what[1:]} cannot be stored in "{folder}": {error.strerror}; {otherwise}.'
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise PeerFailed(
            f'Another process is at work on {what} in "{folder}"; wait until it is done, or stop it, or {otherwise}.'
        ) from None
    try:
        yield
    finally:
        os.close(descriptor)
