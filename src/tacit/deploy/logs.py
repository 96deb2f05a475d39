"""The log of a service: one JSON object a line in `log.jsonl`, readable by its owner alone.

Logs are copied to places where ratings may never go. So events are words of a fixed vocabulary, fields are those below,
and what does not fit is refused instead of written: user ids, item ids, ratings and free text have no field. Only the
warnings of the libraries that carry messages contain a sentence, shortened to one line.
"""

from __future__ import annotations

import io
import json
import logging
import math
import os
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from tacit.errors import UsageError, did_you_mean

NAME = "log.jsonl"
#: Bytes of one file, and how many older ones are stored next to it as log.jsonl.1 (the latest) to log.jsonl.3.
LARGEST, KEPT = 10_000_000, 3
#: Characters of a word, and of a library's warning.
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
_EXPECTED = {int: "an integer", float: "a number", str: f"a printable word of up to {LONGEST_WORD} characters"}
#: The loggers of the libraries that carry messages.
ENGINE = ("nvflare", "grpc")


class ServiceLog:
    """One service's log. Lines of several threads never mix, and a full disk costs lines, not the service."""

    def __init__(self, folder: Path, role: str) -> None:
        _check("role", role, str)
        path = folder / NAME
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.handler = _OwnFile(path, maxBytes=LARGEST, backupCount=KEPT)
        except OSError as error:
            raise UsageError(f'The log "{path}" cannot be written: {error.strerror}; name another folder.') from None
        self.handler.setFormatter(_Lines(role))
        self._logger = logging.Logger("tacit service")
        self._logger.addHandler(self.handler)

    def info(self, event: str, **fields: float | str) -> None:
        """Something that was meant to happen."""
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: float | str) -> None:
        """Something that the service can live with."""
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, **fields: float | str) -> None:
        """Something that ends what the service was doing."""
        self._log(logging.ERROR, event, fields)

    def close(self) -> None:
        """Close the file; later events are dropped."""
        self.handler.close()

    def _log(self, level: int, event: str, fields: dict[str, float | str]) -> None:
        if event not in EVENTS:
            raise UsageError(f'"{event}" is not an event of a log; use one of its words.{did_you_mean(event, EVENTS)}')
        for name, value in fields.items():
            if name not in FIELDS:
                raise UsageError(
                    f'A log has no field "{name}", so that no personal data gets into it; '
                    f"use one of {', '.join(sorted(FIELDS))}."
                )
            _check(name, value, FIELDS[name])
        self._logger.log(level, event, extra={"fields": fields})


def quiet_engine(log: ServiceLog) -> None:
    """Keep messages of NVIDIA FLARE and gRPC off the terminal; their warnings go into `log`.

    Call it before either is imported: gRPC's core, which writes to stderr by itself, reads its environment once.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    for name in ENGINE:
        source = logging.getLogger(name)
        source.handlers[:] = [log.handler]
        source.setLevel(logging.WARNING)
        source.propagate = False


def one_line(text: object, most: int) -> str:
    """The text on one line, without unprintable characters, and no longer than `most`.

    >>> one_line("down\\nand \\x1b[31mred", 12)
    'down and [3…'
    """
    seen = " ".join("".join(c if c.isprintable() else " " for c in str(text)[: 4 * most]).split())
    return seen if len(seen) <= most else seen[: most - 1].rstrip() + "…"


class _Lines(logging.Formatter):
    """Formats a record as one JSON object; a library's record has its sentence in place of fields."""

    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] | None = getattr(record, "fields", None)
        event = "engine" if fields is None else record.msg
        if fields is None:
            try:
                message = record.getMessage()
            except Exception:  # its arguments do not fit its template
                message = str(record.msg)
            fields = {"source": one_line(record.name, LONGEST_WORD), "message": one_line(message, LONGEST_MESSAGE)}
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        level = "error" if record.levelno >= logging.ERROR else record.levelname.lower()
        line = {"time": time, "level": level, "event": event, "role": self._role, **fields}
        if lost := getattr(record, "lost", 0):
            line["lost"] = lost
        return json.dumps(line, ensure_ascii=False, allow_nan=False)


class _OwnFile(RotatingFileHandler):
    """A rotating file for its owner alone, which counts the lines that a full disk cost."""

    _lost, _done = 0, False

    def _open(self) -> io.TextIOWrapper:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.baseFilename, flags, 0o600)
        os.fchmod(descriptor, 0o600)
        return io.TextIOWrapper(io.FileIO(descriptor, "ab"), encoding="utf-8", write_through=True)

    def emit(self, record: logging.LogRecord) -> None:
        if self._done:
            return
        before = record.lost = self._lost
        super().emit(record)
        self._lost = 0 if self._lost == before else self._lost

    def shouldRollover(self, record: logging.LogRecord) -> int:
        if self.stream is not None:  # a line that a crash or a full disk cut off stays a line of its own
            descriptor = self.stream.fileno()
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                os.write(descriptor, b"\n")
        return super().shouldRollover(record)

    def handleError(self, record: logging.LogRecord) -> None:
        self._lost += 1

    def close(self) -> None:
        self._done = True
        super().close()

    def __del__(self) -> None:
        if getattr(self, "stream", None) is not None:  # None where it could not be opened
            self.close()


def _check(name: str, value: object, kind: type[int] | type[float] | type[str]) -> None:
    """Refuse a value that is not of its field's kind, without repeating it: it may be confidential."""
    if kind is str:
        fits = isinstance(value, str) and 0 < len(value) <= LONGEST_WORD and value.isprintable()
    elif kind is int:
        fits = type(value) is int and abs(value) < 2**63
    else:
        fits = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not fits:
        raise UsageError(f'The log\'s field "{name}" holds {_EXPECTED[kind]}, not this {type(value).__name__}.')
