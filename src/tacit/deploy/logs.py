"""What a service writes down about its own work: one JSON object a line, in `log.jsonl`, for its owner alone.

A log is copied to places where ratings may never go. So it is closed: events are words of a fixed vocabulary, and
fields are those below, with numbers and short words in them. User ids, item ids and ratings have no field, there is
no free text, and what does not fit is refused instead of written. Only the engine's own warnings carry a sentence,
cut short and on one line.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

from tacit.errors import UsageError, did_you_mean

NAME = "log.jsonl"
#: Bytes of one file, and how many older ones are kept beside it as log.jsonl.1 (the latest) to log.jsonl.3.
LARGEST, KEPT = 10_000_000, 3
#: Characters of a word, and of what the engine says.
LONGEST_WORD, LONGEST_MESSAGE = 128, 200

EVENTS = frozenset(
    {
        *("starting", "waiting", "checking", "serving", "paused", "resumed", "stopping", "done", "refused", "failed"),
        *("connected", "absent", "asked", "answered", "sent", "received", "repeated", "summed", "void", "engine"),
    }
)
FIELDS: dict[str, type[int] | type[float] | type[str]] = {
    **dict.fromkeys(("round", "rounds", "attempt", "parties", "bytes", "bytes_up", "bytes_down", "port", "code"), int),
    **dict.fromkeys(("seconds", "epsilon", "delta", "budget"), float),
    **dict.fromkeys(("run", "federation", "peer", "step", "state", "version", "digest", "head", "error"), str),
}
_EXPECTED = {int: "a whole number", float: "a number", str: f"a printable word of up to {LONGEST_WORD} characters"}
#: The loggers of those who carry messages.
ENGINE = ("nvflare", "grpc")


class ServiceLog:
    """One service's log. Lines of several threads never mix, and a full disk costs lines, not the service."""

    def __init__(self, folder: Path, role: str, echo: bool = False) -> None:
        _check("role", role, str)
        self.path, self.role, self.echo = folder / NAME, role, echo
        self._lock = threading.Lock()
        self._file, self._size, self._torn, self._lost = -1, 0, False, 0
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._open()
        except OSError as error:
            raise UsageError(
                f'The log "{self.path}" cannot be kept there: {error.strerror}; name another folder.'
            ) from None

    def info(self, event: str, **fields: float | str) -> None:
        """Something that was meant to happen."""
        self._tell("info", event, fields)

    def warning(self, event: str, **fields: float | str) -> None:
        """Something that the service can live with."""
        self._tell("warning", event, fields)

    def error(self, event: str, **fields: float | str) -> None:
        """Something that ends what the service was doing."""
        self._tell("error", event, fields)

    def engine(self, level: str, source: str, message: str) -> None:
        """What the engine said, on one line and cut short; never on the terminal."""
        said = {"source": one_line(source, LONGEST_WORD), "message": one_line(message, LONGEST_MESSAGE)}
        self._write({**self._start(level, "engine"), **said})

    def close(self) -> None:
        """Let go of the file; what is told afterwards is lost."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    # -- inside -----------------------------------------------------------------------------------------------

    def _tell(self, level: str, event: str, fields: dict[str, float | str]) -> None:
        if event not in EVENTS:
            raise UsageError(f'"{event}" is no event of a log; take one of its words.{did_you_mean(event, EVENTS)}')
        for name, value in fields.items():
            if name not in FIELDS:
                raise UsageError(
                    f'A log has no field "{name}", so that no personal data gets into it; '
                    f"take one of {', '.join(sorted(FIELDS))}."
                )
            _check(name, value, FIELDS[name])
        start = self._start(level, event)
        self._write({**start, **fields})
        if self.echo:
            words = " ".join(f"{name}={value}" for name, value in fields.items())
            sys.stderr.write(f"{start['time'][11:19]} {level} {self.role} {event} {words}".rstrip() + "\n")

    def _start(self, level: str, event: str) -> dict[str, str]:
        moment = datetime.now(UTC).isoformat(timespec="milliseconds")
        return {"time": moment, "level": level, "event": event, "role": self.role}

    def _write(self, line: dict[str, float | str] | dict[str, str]) -> None:
        with self._lock:
            if self._file < 0:
                return
            lost = {"lost": self._lost} if self._lost else {}
            content = (json.dumps({**line, **lost}, ensure_ascii=False, allow_nan=False) + "\n").encode()
            try:
                if self._size and self._size + len(content) > LARGEST:
                    self._rotate()
                content = b"\n" + content if self._torn else content
                written = os.write(self._file, content)
            except OSError:
                self._lost += 1
                return
            self._size += written
            self._torn = written < len(content)
            self._lost = self._lost + 1 if self._torn else 0

    def _open(self) -> None:
        """The file to append to; a line that a crash cut off stays a line of its own."""
        self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        os.fchmod(self._file, 0o600)
        self._size = os.fstat(self._file).st_size
        self._torn = self._size > 0 and os.pread(self._file, 1, self._size - 1) != b"\n"

    def _rotate(self) -> None:
        for number in range(KEPT, 0, -1):
            newer = self.path if number == 1 else self.path.with_name(f"{NAME}.{number - 1}")
            if newer.exists():
                os.replace(newer, self.path.with_name(f"{NAME}.{number}"))
        full = self._file
        self._open()
        os.close(full)


def _check(name: str, value: object, kind: type[int] | type[float] | type[str]) -> None:
    """Refuse a value that is not of its field's kind; it is not repeated, since it may be what nobody should read."""
    if kind is str:
        fits = isinstance(value, str) and 0 < len(value) <= LONGEST_WORD and value.isprintable()
    elif kind is int:
        fits = type(value) is int and abs(value) < 2**63
    else:
        fits = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not fits:
        raise UsageError(f'The log\'s field "{name}" holds {_EXPECTED[kind]}, not this {type(value).__name__}.')


def one_line(text: object, most: int) -> str:
    """The text on one line, without characters that cannot be seen, and no longer than `most`.

    >>> one_line("down\\nand \\x1b[31mred", 12)
    'down and [3…'
    """
    seen = " ".join("".join(c if c.isprintable() else " " for c in str(text)[: 4 * most]).split())
    return seen if len(seen) <= most else seen[: most - 1].rstrip() + "…"


# -- the engine's own words -----------------------------------------------------------------------------------


class _IntoLog(logging.Handler):
    """Hands warnings and errors of Python's `logging` to a log."""

    def __init__(self, log: ServiceLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except Exception:  # its words do not fit their template: an engine's slip is not worth a service
            message = str(record.msg)
        self._log.engine("error" if record.levelno >= logging.ERROR else "warning", record.name, message)


def quiet_engine(log: ServiceLog) -> None:
    """Keep what NVIDIA FLARE and gRPC say off the terminal; their warnings go into `log`.

    Call it before either is imported: gRPC's core, which writes to stderr by itself, looks once at its environment.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    for name in ENGINE:
        source = logging.getLogger(name)
        for handler in list(source.handlers):
            source.removeHandler(handler)
        source.addHandler(_IntoLog(log))
        source.setLevel(logging.WARNING)
        source.propagate = False
