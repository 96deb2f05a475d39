"""The invitations of a federation: `federation.json` in the coordinator's keyring.

The record is read for every question, so that a revocation takes effect at once, and changed by one process at a time.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from tacit import files
from tacit.errors import TamperingFound, UsageError
from tacit.federation.role import ROLE

RECORD = "federation.json"
#: What a site may be called.
NAME = re.compile(f"party-[1-9][0-9]{{0,8}}|{ROLE.pattern}")
#: A fingerprint or a public signing key, hex.
SHA = "^[0-9a-f]{64}$"


class Unreadable(UsageError):
    """The keyring's files cannot be read or changed now."""


class Damaged(TamperingFound):
    """The keyring's files do not belong together."""


#: The coordinator's own problems, whose messages name its files: sites are only asked to try later.
OWN = (Unreadable, Damaged, OSError)


class Invitation(BaseModel):
    """One kit: its certificate (`fingerprint` and `serial`, hex), times, and the site's pinned signing key (hex)."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str = Field(pattern=f"^({NAME.pattern})$")
    fingerprint: str = Field(pattern=SHA)
    serial: str
    made: AwareDatetime
    until: AwareDatetime
    revoked: AwareDatetime | None = None
    replaced: AwareDatetime | None = None
    identity: str | None = Field(default=None, pattern=SHA)

    @property
    def state(self) -> Literal["valid", "expired", "revoked", "replaced"]:
        if self.revoked is not None:
            return "revoked"
        if self.replaced is not None:
            return "replaced"
        return "expired" if datetime.now(UTC) > self.until else "valid"


class Record(BaseModel):
    """A federation: where its coordinator is, and its invitations in order."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    format: Literal["tacit keyring 1"] = "tacit keyring 1"
    federation: str
    host: str
    port: int
    insecure: bool
    invitations: tuple[Invitation, ...] = ()

    def latest(self, name: str) -> Invitation | None:
        return next((one for one in reversed(self.invitations) if one.name == name), None)

    def noted(self, one: Invitation, **facts: object) -> Record:
        """The record with changes to one invitation."""
        known = one.model_copy(update=facts)
        return self.model_copy(update={"invitations": tuple(known if i is one else i for i in self.invitations)})

    def added(self, new: Invitation) -> Record:
        """The record with one more invitation, which replaces the site's earlier one."""
        old = self.latest(new.name)
        ended = self if old is None or old.revoked else self.noted(old, replaced=new.made)
        return self.model_copy(update={"invitations": (*ended.invitations, new)})


def change(folder: Path, how: Callable[[Record], Record]) -> None:
    """Read, change and write the record under a lock."""
    try:
        with os.fdopen(os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed
            record = read_record(folder)
            changed = how(record)
            if changed != record:
                files.write_private(folder / RECORD, changed.model_dump_json(indent=2) + "\n")
    except OSError as error:
        raise Unreadable(f'The keys in "{folder}" cannot be changed: {error.strerror}; their owner can.') from None


def read_record(folder: Path) -> Record:
    text = read_text(folder, RECORD)
    try:
        return Record.model_validate_json(text)
    except ValueError:
        raise damaged(folder / RECORD) from None


def read_text(folder: Path, name: str) -> str:
    try:
        return (folder / name).read_text(encoding="utf-8")
    except OSError as error:
        raise Unreadable(f'"{folder / name}" cannot be read: {error.strerror}; its owner can.') from None
    except UnicodeDecodeError:
        raise damaged(folder / name) from None


def damaged(place: Path) -> Damaged:
    return Damaged(f'"{place}" is damaged; restore the folder from your copy, or make new keys and invite anew.')
