"""What somebody without a ledger goes on from: its latest answer, and what it had at home then."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from tacit import files
from tacit.boundary.release import Kind
from tacit.boundary.wire import Value, decode, encode
from tacit.errors import BadMessage, TamperingFound
from tacit.federation.messages import Answer
from tacit.model import forms


@contextmanager
def as_written(path: Path) -> Iterator[None]:
    """While a file of this site's own is read: one that is not as it was written is named in one sentence."""
    try:
        yield
    except forms.NotInstalled:
        raise
    except (BadMessage, LookupError, TypeError, ValueError, AttributeError):
        raise TamperingFound(
            f'"{path}" is not as it was written: it was damaged or changed; put it back, or remove it to start anew.'
        ) from None


class Memory:
    """The latest answer of a party or role that keeps no ledger, and what it had at home then; one file."""

    def __init__(self, path: Path, run: str) -> None:
        self._path, self._run = path, run
        self._latest: tuple[str, Answer] | None = None

    def recall(self, home: dict[str, Any]) -> None:
        """Put back what was at home, if this is the same run."""
        if not self._path.exists():
            return
        with as_written(self._path):
            saved: dict[str, Any] = decode(self._path.read_bytes())
            words = json.loads(saved.pop("about"))
            if words.pop("run") != self._run:
                return
            request, kind = words.pop("request"), Kind(words.pop("kind"))
            self._latest = request, Answer(**words, kind=kind, body=saved.pop("body").tobytes())
        home.update({name.removeprefix("home/"): np.array(block) for name, block in saved.items()})

    def answered(self, request: str) -> Answer | None:
        """The answer to the latest request, if this is that."""
        return self._latest[1] if self._latest is not None and self._latest[0] == request else None

    def keep(self, request: str, answer: Answer, home: Mapping[str, Any]) -> None:
        """Write the answer and what is at home down before the answer leaves."""
        self._latest = request, answer
        words = {f.name: getattr(answer, f.name) for f in fields(Answer) if f.name != "body"}
        words |= {"kind": str(answer.kind), "run": self._run, "request": request}
        blocks: dict[str, Value] = {f"home/{name}": np.asarray(block) for name, block in home.items()}
        files.write_private(
            self._path,
            encode({"about": json.dumps(words), "body": np.frombuffer(answer.body, dtype=np.uint8), **blocks}),
        )
