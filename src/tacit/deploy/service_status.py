"""What a service is doing now: `status.json`, which its owner can read while the service works.

It is a view, not a record: what left a party is in its ledger. It holds nothing about any person. A service that dies
cannot report it; readers see that its process is gone, or that the file is no longer updated.
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
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from tacit import files
from tacit.deploy.logs import one_line
from tacit.errors import DataError, PrivacyRefused, TacitError, UsageError, did_you_mean

NAME = "status.json"
#: Seconds: between two writes, between two writes while nothing changes, and without a write that mean death.
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
    """What the coordinator knows of a party."""

    CONNECTED = "connected"
    ABSENT = "absent"
    REFUSED = "refused"


#: States that nothing follows.
FINAL = frozenset({State.DONE, State.REFUSED, State.FAILED, State.STOPPED})
_CHANGING = (
    *("run", "step", "round", "bytes_up", "bytes_down", "epsilon", "budget"),
    *("state", "peers", "message"),
)


def _moment(text: str) -> str:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time without its zone")
    return moment.isoformat(timespec="milliseconds")


_Word = Annotated[str, AfterValidator(lambda text: one_line(text, LONGEST_WORD))]
_Message = Annotated[str, AfterValidator(lambda text: one_line(text, LONGEST_MESSAGE))]
_Moment = Annotated[str, AfterValidator(_moment)]
_Count = Annotated[int, Field(strict=True, ge=0)]
_Amount = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]


class _Peer(BaseModel):
    state: PeerState
    since: _Moment


class _Record(BaseModel):
    """The content of the file."""

    role: _Word
    federation: _Word
    run: _Word | None = None
    round: _Count | None = None
    step: _Word | None = None
    epsilon: _Amount | None = None
    budget: _Amount | None = None
    state: State = State.STARTING
    peers: dict[_Word, _Peer] = {}
    bytes_up: _Count | None = 0
    bytes_down: _Count | None = 0
    message: _Message = ""
    version: _Word
    pid: Annotated[int, Field(strict=True)]
    host: _Word
    started: _Moment
    updated: _Moment

    def table(self) -> dict[str, Any]:
        """The record with its age in seconds, and whether its service lives (None where it reported how it ended)."""
        age = max((datetime.now(UTC) - datetime.fromisoformat(self.updated)).total_seconds(), 0.0)
        lives = age <= SILENCE and (self.host != _host() or _runs(self.pid))
        return {**self.model_dump(mode="json"), "age": round(age, 3), "alive": None if self.state in FINAL else lives}


class Status:
    """What the service `role` ("coordinator", or a party's name) of a federation is doing, written to `folder`.

    As a context it updates the file while its service is busy or waits, and reports an error that ended the service:

        with Status(folder, "party-1", "hearts") as status:
            status.set(state="serving", round=3, step="improve", epsilon=0.4, budget=1.0)
    """

    def __init__(self, folder: Path, role: str, federation: str) -> None:
        self.folder = folder
        here = {"version": version("tacit"), "pid": os.getpid(), "host": _host()}
        self._record = _Record(role=role, federation=federation, **here, started=_now(), updated=_now())
        self._lock = threading.RLock()
        self._written, self._behind = -math.inf, True
        self._ended = threading.Event()
        self._heart: threading.Thread | None = None

    def set(self, **changes: Any) -> None:
        """Change some of: state, run, round, step, peers, epsilon (spent), budget, bytes_up, bytes_down, message.

        `peers` (name → connected, absent or refused) changes those that it names. The file follows at once when the
        state changes, else at most every 0.2 s. Called without changes it only updates the time.
        """
        if unknown := [name for name in changes if name not in _CHANGING]:
            hint = did_you_mean(unknown[0], _CHANGING)
            raise UsageError(f'A status has no "{unknown[0]}" that changes; it has {", ".join(_CHANGING)}.{hint}')
        with self._lock:
            now, before = _now(), self._record
            peers = self._changed_peers(changes.pop("peers", {}), now)
            changes["message"] = changes.get("message", before.message) or ""
            try:
                self._record = _Record.model_validate(
                    {**before.model_dump(), **changes, "peers": peers, "updated": now}
                )
            except ValidationError as error:
                found = error.errors()[0]
                place = ".".join(map(str, found["loc"]))
                raise UsageError(f'A status cannot hold {found["input"]!r} as its "{place}": {found["msg"]}.') from None
            self._behind = True
            turned = self._record.state != before.state
            if turned or monotonic() - self._written >= EVERY:
                self._write(durable=turned)

    def _changed_peers(self, changes: object, now: str) -> dict[str, Any]:
        if not isinstance(changes, Mapping):
            raise UsageError(f"The peers of a status map names to states, not a {type(changes).__name__}.")
        peers: dict[str, Any] = {name: peer.model_dump() for name, peer in self._record.peers.items()}
        for name, state in changes.items():
            if name not in peers or peers[name]["state"] != state:
                peers[name] = {"state": state, "since": now}
        return peers

    def now(self) -> dict[str, Any]:
        """What `read` would return if everything were written already."""
        with self._lock:
            return self._record.table()

    def close(self) -> None:
        """Stop updating the file, and leave it as things are."""
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
            if error is not None and self._record.state not in FINAL:
                stopped, refused = isinstance(error, KeyboardInterrupt), isinstance(error, PrivacyRefused)
                ended = State.STOPPED if stopped else State.REFUSED if refused else State.FAILED
                self.set(state=ended, message=ending_message(error))
        finally:
            self.close()

    @staticmethod
    def read(folder: Path) -> dict[str, Any]:
        """The latest status in a folder, with `age` (seconds) and `alive` (false where a service died silently)."""
        path = folder / NAME
        try:
            return _Record.model_validate(json.loads(path.read_bytes())).table()
        except FileNotFoundError:
            raise UsageError(f'"{folder}" has no {NAME}: no service has worked there; name another folder.') from None
        except OSError as error:
            raise UsageError(f'"{path}" cannot be read: {error.strerror}; its owner can.') from None
        except (ArithmeticError, ValueError, RecursionError):  # a ValidationError is a ValueError
            raise UsageError(f'"{path}" is not what a service writes; remove it, or name another folder.') from None

    def _write(self, durable: bool) -> None:
        text = json.dumps(self._record.model_dump(mode="json"), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        try:
            files.write_private(self.folder / NAME, text, durable)
            self._behind = False
        except OSError as error:
            if self._written == -math.inf:
                raise UsageError(
                    f'The status "{self.folder / NAME}" cannot be written: {error.strerror}; name another folder.'
                ) from None
            # A disk that filled up later costs a view, not the service: the next write tries again.
        self._written = monotonic()

    def _beat(self) -> None:
        """Write what `set` delayed, and at least every `BEAT` seconds."""
        while not self._ended.wait(EVERY):
            with self._lock:
                quiet = monotonic() - self._written
                if quiet >= BEAT or (self._behind and quiet >= EVERY):
                    self._record = self._record.model_copy(update={"updated": _now()})
                    self._write(durable=False)


def _runs(pid: int) -> bool:
    """Whether a process of this machine exists; a number that is in use again is found by the file's age."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        return True
    return True


def _host() -> str:
    """Where a process number means the same process: the machine, and on Linux the container."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return one_line(f"{socket.gethostname()} {namespace}", LONGEST_WORD)


def ending_message(error: BaseException) -> str:
    """Why a service ended. Errors about data may quote it, and foreign ones may contain anything: only their kind."""
    if isinstance(error, KeyboardInterrupt):
        return "It was stopped, and goes on when it is started again."
    if isinstance(error, TacitError) and not isinstance(error, DataError):
        return str(error)
    return f"It was ended by {type(error).__name__}; the terminal where it was started has the details."


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
