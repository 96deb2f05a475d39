"""Signed messages between services, as bytes.

    signature, Ed25519, 64 bytes · a message in the wire format: "from", "to", "topic", "run" and its content

The signature is over the message's SHA-256, so that large payloads are hashed once. Certificates protect the channel;
a signature is made with a key that only its sender ever had.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Set
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tacit.boundary.release import Kind
from tacit.boundary.wire import Array, Value, decode, encode, reading
from tacit.engine.cells import COORDINATOR
from tacit.errors import BadMessage, DataError, PeerFailed, PrivacyRefused, TacitError, TamperingFound, UngatedRelease
from tacit.federation.messages import MOST_WORDS, Answer, Request

SIGNATURE = 64
_CONTEXT = b"tacit envelope 1"
#: The keys of an address in a message.
_ADDRESS = ("from", "to", "topic", "run")


@dataclass(frozen=True)
class Address:
    """Who sends a message to whom, about what, in which run."""

    sender: str
    to: str
    topic: str
    run: str = ""

    @property
    def words(self) -> dict[str, Value]:
        return dict(zip(_ADDRESS, (self.sender, self.to, self.topic, self.run), strict=True))


def sign_message(address: Address, content: Mapping[str, Value], key: Ed25519PrivateKey) -> bytes:
    """A signed message."""
    message = encode({**address.words, **content})
    return key.sign(_signed(message)) + message


def open_message(message: bytes, key: Ed25519PublicKey, sender: str, to: str, topic: str) -> tuple[str, dict[str, Any]]:
    """The run and the content of a message whose signature, sender, addressee and topic are as expected."""
    body = message[SIGNATURE:]
    try:
        key.verify(message[:SIGNATURE], _signed(body))
    except InvalidSignature:
        raise BadMessage(f"A message in the name of {sender} was not signed by it; it was damaged or forged.") from None
    with reading(sender):
        content = decode(body)
    found = tuple(content.pop(word, None) for word in _ADDRESS)
    if not all(type(word) is str for word in found) or found[:3] != (sender, to, topic):
        raise BadMessage(f"A message of {sender} is for another party or another topic; it was sent here by mistake.")
    return str(found[3]), content


def unverified(message: bytes) -> dict[str, Any]:
    """The content of a message whose sender is not known yet: who it claims to be."""
    return decode(message[SIGNATURE:])


def _signed(message: bytes) -> bytes:
    return _CONTEXT + hashlib.sha256(message).digest()


@dataclass(frozen=True)
class TimedRequest:
    """One request, and the seconds that are left for it.

    `survivors` are those devices of a simulated cohort whose answers arrive; only a simulation may name them.
    """

    request: Request
    seconds: float
    survivors: Array | None = None

    def content(self) -> dict[str, Value]:
        words = {name: value for name, value in asdict(self.request).items() if name != "body"}
        present = {} if self.survivors is None else {"survivors": self.survivors.astype(np.uint8)}
        return {**words, "seconds": float(self.seconds), "body": _array(self.request.body), **present}

    @classmethod
    @reading(COORDINATOR)
    def of(cls, content: Mapping[str, Any]) -> Self:
        """The request in a message; `Request.check` validates the type of every part before any is used."""
        names = {field.name for field in fields(Request)}
        _exactly(content, {*names, "seconds"}, {"survivors"})
        request = Request(**{name: content[name] for name in names - {"body"}}, body=_bytes(content["body"]))
        request.check()
        seconds, survivors = content["seconds"], content.get("survivors")
        if type(seconds) not in (int, float) or not 0 <= seconds < 1e9:
            raise BadMessage("A request's time limit is not a number of seconds; it was damaged or forged.")
        if survivors is not None and not (isinstance(survivors, np.ndarray) and survivors.dtype == np.uint8):
            raise BadMessage("A request's list of survivors is not one; it was damaged or forged.")
        return cls(request, float(seconds), None if survivors is None else survivors.astype(bool))


def answer_content(answer: Answer) -> dict[str, Value]:
    """An answer as a message's content."""
    words = {name: value for name, value in asdict(answer).items() if name != "body"}
    return {**words, "kind": str(answer.kind), "body": _array(answer.body)}


def failure_content(error: TacitError, reveal: bool) -> dict[str, Value]:
    """An error as a message's content: its kind, and its sentence if that may be revealed."""
    known = next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _ERRORS), "PeerFailed")
    return {"error": known, "why": str(error)[:MOST_WORDS] if reveal else ""}


def read_answer(content: Mapping[str, Any]) -> Answer:
    """The answer in a message; `Answer.check` validates the types of its parts."""
    names = {field.name for field in fields(Answer)}
    _exactly(content, names)
    try:
        kind = Kind(str(content["kind"]))
    except ValueError:
        raise BadMessage("An answer is of an unknown kind; it was damaged or forged.") from None
    words = {name: content[name] for name in names - {"body", "kind"}}
    return Answer(**words, kind=kind, body=_bytes(content["body"]))


def read_failure(content: Mapping[str, Any], party: str) -> TacitError | None:
    """The error that a reply reports; None where it reports none."""
    if "error" not in content:
        return None
    _exactly(content, {"error", "why"})
    kind, why = _ERRORS.get(str(content["error"]), PeerFailed), str(content["why"])[: MOST_WORDS - 100]
    if why.isprintable() and why:
        return kind(why if party in why else f"{party} reports: {why}")
    here = kind if issubclass(kind, PeerFailed | PrivacyRefused) else PeerFailed  # not about data here
    return here(f"{party} did not answer ({kind.__name__}); see its own terminal.")


_ERRORS: dict[str, type[TacitError]] = {
    kind.__name__: kind for kind in (PeerFailed, BadMessage, PrivacyRefused, UngatedRelease, TamperingFound, DataError)
}


def _exactly(content: Mapping[str, Any], names: Set[str], others: Set[str] = frozenset()) -> None:
    if not names <= content.keys() <= names | others:
        raise BadMessage("A message does not have the agreed parts; it was damaged or forged.")


def _array(body: bytes) -> Array:
    return np.frombuffer(body, dtype=np.uint8)


def _bytes(value: object) -> bytes:
    if not isinstance(value, np.ndarray) or value.dtype != np.uint8 or value.ndim != 1:
        raise BadMessage("A message's payload is not bytes; it was damaged or forged.")
    return value.tobytes()
