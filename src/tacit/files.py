"""Files written whole or not at all, for their owner alone (mode 0600)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(path: Path, durable: bool = True) -> Iterator[Path]:
    """A new file to write to, which takes the place of `path` at the end; after an error nothing has changed.

    `durable` makes sure that a power cut later cannot take the file back. One writer at a time.
    """
    new = path.with_name(f"{path.name}.part")
    new.unlink(missing_ok=True)  # what a kill left may have another mode, or lead elsewhere
    os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        yield new
        if durable:
            sync(new)
        os.replace(new, path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise
    if durable:
        sync(path.parent)


def write(path: Path, content: str | bytes, durable: bool = True) -> None:
    """Write a file whole or not at all."""
    with replacing(path, durable) as new:
        new.write_bytes(content.encode() if isinstance(content, str) else content)


def write_private(path: Path, content: str | bytes, durable: bool = True) -> None:
    """The same, in a folder that is made where there is none, for its owner alone too."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write(path, content, durable)


def sync(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
