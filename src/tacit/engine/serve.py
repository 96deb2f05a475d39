"""How a party answers one request in every engine, and what a party without a ledger resumes from after a restart."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from tacit import files
from tacit.boundary import Release
from tacit.boundary.protection import BudgetSpent
from tacit.boundary.release import Kind
from tacit.boundary.wire import Array, Value, decode, encode
from tacit.errors import BadMessage, PeerFailed, TacitError, TamperingFound, UngatedRelease
from tacit.federation.messages import Answer, Request
from tacit.federation.peer import Peer
from tacit.model import forms
from tacit.secure.secagg_protocol import VoidRound


def kind_of(party: Peer, request: Request) -> Kind:
    """The kind of a request's answer; an unknown step has a public one."""
    step = party.step(request.step)
    return Kind.PUBLIC if step is None else step.kind


def serve_request(party: Peer, request: Request, survivors: Array | None = None) -> Answer:
    """One party's answer; `survivors` are those devices of a simulated cohort whose answers arrive.

    A spent budget is an answer too, recorded in the ledger; every other refusal and failure is raised.
    """
    kind = kind_of(party, request)
    try:
        release = party.answer(request, survivors if party.member.devices > 1 else None)
    except BudgetSpent as refusal:
        if (guard := party.gate.protection) is not None:
            guard.ledger.refuse(guard.run, request.round, request.step, request.hash, str(refusal))
        return Answer(party.name, "refused", kind, why=str(refusal))
    except VoidRound:  # too few neighbours answered, so it leaves this sum
        return Answer(party.name, "lost", kind)
    except TacitError:
        raise
    except Exception as error:
        raise PeerFailed(
            f'{party.name} failed in step "{request.step}" of round {request.round}: '
            f"{type(error).__name__}{'' if party.gate.protection else f': {error}'}."
        ) from error
    if type(release) is not Release or not party.gate.made(release):
        raise UngatedRelease(f"What {party.name} returned was not made by its gate; nothing was sent.")
    if survivors is not None and not np.any(survivors):
        return Answer(party.name, "lost", kind)
    return Answer.of(release)


@contextmanager
def checking_file(path: Path) -> Iterator[None]:
    """While one of this site's files is read: turn any decoding error into TamperingFound with the file's name."""
    try:
        yield
    except forms.NotInstalled:
        raise
    except (BadMessage, LookupError, TypeError, ValueError, AttributeError):
        raise TamperingFound(f'"{path}" was damaged or changed; restore it, or remove it to start over.') from None


class Memory:
    """The latest answer of a party or role without a ledger, and its home at that time; one file."""

    def __init__(self, path: Path, run: str) -> None:
        self._path, self._run = path, run
        self._latest: tuple[str, Answer] | None = None

    def recall(self, home: dict[str, Any]) -> None:
        """Restore the home, if this is the same run."""
        if not self._path.exists():
            return
        with checking_file(self._path):
            saved: dict[str, Any] = decode(self._path.read_bytes())
            words = json.loads(saved.pop("about"))
            if words.pop("run") != self._run:
                return
            request, kind = words.pop("request"), Kind(words.pop("kind"))
            self._latest = request, Answer(**words, kind=kind, body=saved.pop("body").tobytes())
        home.update({name.removeprefix("home/"): np.array(block) for name, block in saved.items()})

    def answered(self, request: str) -> Answer | None:
        """The latest answer, if it was to this request."""
        return self._latest[1] if self._latest is not None and self._latest[0] == request else None

    def save(self, request: str, answer: Answer, home: Mapping[str, Any]) -> None:
        """Write the answer and the home to disk before the answer leaves."""
        self._latest = request, answer
        words = {f.name: getattr(answer, f.name) for f in fields(Answer) if f.name != "body"}
        words |= {"kind": str(answer.kind), "run": self._run, "request": request}
        blocks: dict[str, Value] = {f"home/{name}": np.asarray(block) for name, block in home.items()}
        files.write_private(
            self._path,
            encode({"about": json.dumps(words), "body": np.frombuffer(answer.body, dtype=np.uint8), **blocks}),
        )
