"""How a service ends that is asked to stop."""

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

#: Seconds that a service which was asked to stop has for letting go.
PARTING = 3.0


@contextmanager
def stoppable(sentence: str, code: int, out: str | None = None) -> Iterator[None]:
    """End the process soon after SIGTERM or Ctrl-C, with a sentence, an exit code and a line on stdout.

    The first signal is a `KeyboardInterrupt`, so that whoever is at work lets go; further ones change nothing. The
    engine has threads that wait for peers, so the process does not wait for threads, nor for ever for letting go.
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
        patience = Timer(PARTING, end)
        patience.daemon = True
        patience.start()
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
