"""One service a folder: two that shared a site's state would answer for each other."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit.errors import PrivacyRefused, UsageError


@contextmanager
def alone(folder: Path, name: str) -> Iterator[None]:
    """While this process is the only one that serves from `folder`; the kernel lets go when it dies."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise UsageError(
            f'The state of {name} cannot be kept in "{folder}": {error.strerror}; name another --state.'
        ) from None
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


def one_ledger(folder: Path, name: str) -> None:
    """Refuse a folder with another name's ledger: under a new name a budget would begin anew."""
    other = next((path.stem for path in folder.glob("*.sqlite") if path.stem != name), None)
    if other is not None:
        raise PrivacyRefused(
            f'"{folder}" holds the ledger of {other}, and the kit is for {name}: a budget goes on under one name only; '
            f"ask for a kit for {other}, or name another --state for other data."
        )
