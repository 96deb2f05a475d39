"""Files that only their owner may read, written whole or not at all; and how many a service may have open."""

from __future__ import annotations

import os
import resource
import tempfile
from contextlib import suppress
from pathlib import Path


def write_private(path: Path, content: str | bytes) -> None:
    """Write a file that only its owner reads (0600), durably: all of it is there afterwards, or nothing has changed."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, part = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # made with mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def raise_descriptor_limit() -> None:
    """Let this process open as many files and connections as the system allows it: the usual 1,024 are soon used up."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 2**16 if hard == resource.RLIM_INFINITY else hard
    with suppress(OSError, ValueError):  # a system that allows less than it says
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
