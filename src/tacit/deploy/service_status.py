"""What a service is doing now, in one small file that its owner can read while it works.

`status.json` is written beside its name and then renamed, so that no reader meets half of it. It is a view, not a
record: what left a party stands in its ledger. A service that dies cannot say so; whoever reads the file sees it by
its process being gone, or by its silence. It holds nothing about any person.
"""

from __future__ import annotations

import json
import math
import os
import socket
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any

from tacit import files
from tacit.deploy.logs import one_line
from tacit.errors import DataError, PrivacyRefused, TacitError, UsageError, did_you_mean

NAME = "status.json"
#: Seconds: between two writes, between two signs of life while nothing changes, and of silence that mean death.
EVERY, BEAT, SILENCE = 0.2, 5.0, 30.0
#: Characters of a message, and of any other word.
LONGEST_MESSAGE, LONGEST_WORD = 400, 128


class State(StrEnum):
    """What a service is doing."""

    STARTING = "starting"
    WAITING = "waiting"
    CHECKING = "checking"
    SERVING = "serving"
    PAUSED = "paused"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"
    STOPPED = "stopped"


class PeerState(StrEnum):
    """How the coordinator knows a party."""

    CONNECTED = "connected"
    ABSENT = "absent"
    REFUSED = "refused"


#: States that nothing follows.
FINAL = frozenset({State.DONE, State.REFUSED, State.FAILED, State.STOPPED})
_WORDS, _COUNTS, _AMOUNTS = ("run", "step"), ("round", "bytes_up", "bytes_down"), ("epsilon", "budget")
_CHANGING = (*_WORDS, *_COUNTS, *_AMOUNTS, "state", "peers", "message")


class Status:
    """What the service `role` ("coordinator", or a party's name) of a federation is doing, kept in `folder`.

    As a context it gives a sign of life while its service is busy or waits, and says how the service ended if that
    was by an error:

        with Status(folder, "party-1", "hearts") as status:
            status.set(state="serving", round=3, step="improve", epsilon=0.4, budget=1.0)
    """

    def __init__(self, folder: Path, role: str, federation: str) -> None:
        self.folder = folder
        now = _now()
        self._table: dict[str, Any] = {
            "role": one_line(role, LONGEST_WORD),
            "federation": one_line(federation, LONGEST_WORD),
            **dict.fromkeys(("run", "round", "step", "epsilon", "budget")),
            "state": str(State.STARTING),
            "peers": {},
            "bytes_up": 0,
            "bytes_down": 0,
            "message": "",
            "version": version("tacit"),
            "pid": os.getpid(),
            "host": _host(),
            "started": now,
            "updated": now,
        }
        self._lock = threading.RLock()
        self._written, self._behind = -math.inf, True
        self._ended = threading.Event()
        self._heart: threading.Thread | None = None

    def set(self, **changes: object) -> None:
        """Change some of: state, run, round, step, peers, epsilon (spent), budget, bytes_up, bytes_down, message.

        `peers` (name → connected, absent or refused) changes those that it names; None empties any other field. The
        file follows at once when the state changes, else at most every 0.2 s. Called without changes it is a sign of
        life.
        """
        checked = {name: _checked(name, value) for name, value in changes.items()}
        with self._lock:
            now, before = _now(), self._table["state"]
            peers = dict(self._table["peers"])
            for name, state in checked.pop("peers", {}).items():
                if peers.get(name, {}).get("state") != state:
                    peers[name] = {"state": state, "since": now}
            self._table |= {**checked, "peers": peers, "updated": now}
            self._behind = True
            turned = self._table["state"] != before
            if turned or monotonic() - self._written >= EVERY:
                self._write(durable=turned)

    def now(self) -> dict[str, Any]:
        """What `read` would say if everything were written already."""
        with self._lock:
            return _judged(dict(self._table))

    def close(self) -> None:
        """Give no more signs of life, and leave the file as things stand."""
        self._ended.set()
        if self._heart is not None:
            self._heart.join()
            self._heart = None
        with self._lock:
            if self._behind:
                self._write(durable=True)

    def __enter__(self) -> Status:
        self.set()
        self._heart = threading.Thread(target=self._beat, name="tacit status", daemon=True)
        self._heart.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None and self.now()["state"] not in FINAL:
                stopped, refused = isinstance(error, KeyboardInterrupt), isinstance(error, PrivacyRefused)
                ended = State.STOPPED if stopped else State.REFUSED if refused else State.FAILED
                self.set(state=ended, message=ending_message(error))
        finally:
            self.close()

    @staticmethod
    def read(folder: Path) -> dict[str, Any]:
        """What the service of a folder said last, with `age` (seconds since) and `alive`.

        `alive` is false where a service died without saying so, and None where it said how it ended.
        """
        path = folder / NAME
        try:
            table = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise UsageError(f'"{folder}" has no {NAME}: no service has worked there; name another folder.') from None
        except OSError as error:
            raise UsageError(f'"{path}" cannot be read: {error.strerror}; its owner can.') from None
        except (ValueError, RecursionError):
            table = None
        try:
            return _judged(_genuine(table))
        except (ArithmeticError, KeyError, TypeError, ValueError, AttributeError, UsageError):
            raise UsageError(f'"{path}" is not what a service writes; remove it, or name another folder.') from None

    # -- inside -----------------------------------------------------------------------------------------------

    def _write(self, durable: bool) -> None:
        text = json.dumps(self._table, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        try:
            files.write_private(self.folder / NAME, text, durable)
            self._behind = False
        except OSError as error:
            if self._written == -math.inf:
                raise UsageError(
                    f'The status "{self.folder / NAME}" cannot be kept there: {error.strerror}; name another folder.'
                ) from None
            # A disk that filled up later costs a view, not the service: it is tried again, and readers see the silence.
        self._written = monotonic()

    def _beat(self) -> None:
        """Write what `set` held back, and a sign of life now and then."""
        while not self._ended.wait(EVERY):
            with self._lock:
                quiet = monotonic() - self._written
                if quiet >= BEAT or (self._behind and quiet >= EVERY):
                    self._table["updated"] = _now()
                    self._write(durable=False)


def _checked(name: str, value: object) -> Any:
    """A change as it is kept; what has no place in a status is refused."""
    if name not in _CHANGING:
        raise UsageError(
            f'A status has no "{name}" that changes; it has {", ".join(_CHANGING)}.{did_you_mean(name, _CHANGING)}'
        )
    if name == "state":
        return str(_member(State, value))
    if name == "peers":
        if not isinstance(value, Mapping):
            raise UsageError(f"The peers of a status map names to states, not a {type(value).__name__}.")
        return {one_line(peer, LONGEST_WORD): str(_member(PeerState, state)) for peer, state in value.items()}
    if name == "message":
        return one_line(value or "", LONGEST_MESSAGE)
    if value is None:
        return None
    if name in _WORDS and isinstance(value, str):
        return one_line(value, LONGEST_WORD)
    if name in _COUNTS and type(value) is int and value >= 0:
        return value
    if name in _AMOUNTS and isinstance(value, int | float) and math.isfinite(value) and value >= 0:
        return float(value)
    raise UsageError(f'A status cannot hold {value!r} as its "{name}"; give a finite value of its kind, or None.')


def _member(kind: type[StrEnum], value: object) -> StrEnum:
    try:
        return kind(str(value))
    except ValueError:
        raise UsageError(f'"{value}" is none of {", ".join(kind)}.{did_you_mean(str(value), kind)}') from None


def _genuine(table: Any) -> dict[str, Any]:
    """A table that was read, with nothing in it that `set` would not have kept."""
    peers = {
        name: {"state": _member(PeerState, peer["state"]).value, "since": _moment(peer["since"])}
        for name, peer in table["peers"].items()
    }
    kept = {name: _checked(name, table[name]) for name in _CHANGING if name != "peers"}
    fixed = {name: one_line(table[name], LONGEST_WORD) for name in ("role", "federation", "version", "host")}
    times = {name: _moment(table[name]) for name in ("started", "updated")}
    names = {one_line(name, LONGEST_WORD): peer for name, peer in peers.items()}
    return {**fixed, **kept, "peers": names, "pid": int(table["pid"]), **times}


def _judged(table: dict[str, Any]) -> dict[str, Any]:
    """The table with its age, and whether its service still lives."""
    age = max((datetime.now(UTC) - datetime.fromisoformat(table["updated"])).total_seconds(), 0.0)
    lives = age <= SILENCE and (table["host"] != _host() or _runs(table["pid"]))
    return {**table, "age": round(age, 3), "alive": None if table["state"] in FINAL else lives}


def _runs(pid: int) -> bool:
    """Whether a process of this machine is there; a number that was given away again is told by its silence."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # someone else's
        return True
    return True


def _host() -> str:
    """Where a process number means the same process: the machine, and on Linux the container."""
    try:
        numbers = os.readlink("/proc/self/ns/pid")
    except OSError:
        numbers = ""
    return one_line(f"{socket.gethostname()} {numbers}", LONGEST_WORD)


def ending_message(error: BaseException) -> str:
    """Why a service ended. Errors about data may quote it, those of others may say anything: they are only named."""
    if isinstance(error, KeyboardInterrupt):
        return "It was stopped, and goes on when it is started again."
    if isinstance(error, TacitError) and not isinstance(error, DataError):
        return str(error)
    return f"It was ended by {type(error).__name__}; what that is about stands where it was started."


def _moment(text: str) -> str:
    """A time that was read, as `_now` writes it."""
    return datetime.fromisoformat(text).isoformat(timespec="milliseconds")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
