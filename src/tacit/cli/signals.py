"""How a service stops on SIGTERM or Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from types import FrameType
from typing import NoReturn

import typer

#: Seconds that a service has to finish after the first signal.
GRACE = 3.0


@contextmanager
def stoppable(sentence: str, code: int, out: str | None = None) -> Iterator[None]:
    """End the process soon after SIGTERM or Ctrl-C, with a sentence, an exit code and a line on stdout.

    The first signal raises `KeyboardInterrupt`; further ones are ignored. The engine's threads may wait for peers, so
    the process does not wait for threads, and for cleaning up only `GRACE` seconds.
    """

    def end() -> NoReturn:
        typer.echo(sentence, err=True)
        if out is not None:
            typer.echo(out)
        sys.stdout.flush()
        os._exit(code)

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for number in signals:
            signal.signal(number, signal.SIG_IGN)
        timer = Timer(GRACE, end)
        timer.daemon = True
        timer.start()
        raise KeyboardInterrupt

    signals = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, interrupt) for number in signals]
    try:
        yield
    except KeyboardInterrupt:
        end()
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
