"""How many files and connections a service may have open."""

from __future__ import annotations

import resource
from contextlib import suppress


def raise_descriptor_limit() -> None:
    """Let this process open as many files and connections as the system allows it: the usual 1,024 are soon used up."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 2**16 if hard == resource.RLIM_INFINITY else hard
    with suppress(OSError, ValueError):  # a system that allows less than it says
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
