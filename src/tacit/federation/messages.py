"""Requests and answers, and the schemas that both are checked against before use."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np

from tacit.boundary.query import cells_of
from tacit.boundary.release import Kind, Release
from tacit.boundary.wire import Array, Value, all_finite, digest
from tacit.errors import BadMessage, UsageError

#: The largest byte string in a message: shares for, or of, every neighbour.
MOST_BYTES = 2**20
#: The longest text of an envelope, and one more than its largest number: what SQLite and a screen can hold.
MOST_WORDS, MOST_WHY, MOST = 4096, 500, 2**31
_PARTY = re.compile("party-[1-9][0-9]{0,8}")
_SHA = re.compile("(?:[0-9a-f]{64})?")


class Field(Protocol):
    """One value of a message."""

    def problem(self, value: Value, dimensions: Mapping[str, int]) -> str | None:
        """What is wrong with `value`, in words, or None."""


class Floats:
    """A float32 array of finite numbers; its shape is given by names that both sides know, such as "items"."""

    dtype: np.dtype[Any] = np.dtype("<f4")

    def __init__(self, *shape: str | int) -> None:
        self.shape = shape

    def problem(self, value: Value, dimensions: Mapping[str, int]) -> str | None:
        if not isinstance(value, np.ndarray) or value.dtype != self.dtype:
            return f"is not a {self.dtype.name} array"
        wanted = tuple(dimensions.get(s, -1) if isinstance(s, str) else s for s in self.shape)
        if len(wanted) != value.ndim or any(w not in (-1, s) for w, s in zip(wanted, value.shape, strict=True)):
            return f"has the shape {value.shape} where {wanted} is agreed"
        if value.dtype.kind == "f" and not all_finite(value):
            return "holds numbers that are not finite"
        return None


class Ints(Floats):
    """An int32 array."""

    dtype = np.dtype("<i4")


class Integer:
    """One integer in a range."""

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    def problem(self, value: Value, dimensions: Mapping[str, int]) -> str | None:
        if type(value) is not int or not self.low <= value <= self.high:
            return f"is {str(value)[:40]!r} where an integer from {self.low} to {self.high} is agreed"
        return None


class Choice:
    """One of a few plain values."""

    def __init__(self, *values: object) -> None:
        self.values = values

    def problem(self, value: Value, dimensions: Mapping[str, int]) -> str | None:
        if isinstance(value, np.ndarray) or not any(type(v) is type(value) and v == value for v in self.values):
            return f"is {str(value)[:40]!r} where one of {self.values} is agreed"
        return None


class Hash:
    """A SHA-256, in hexadecimal."""

    def problem(self, value: Value, dimensions: Mapping[str, int]) -> str | None:
        return None if type(value) is str and len(value) == 64 and _SHA.fullmatch(value) else "is not a SHA-256"


class Bytes:
    """A string of bytes, of a size from 1 to `most`."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self.most = most

    def problem(self, value: Value, dimensions: Mapping[str, int]) -> str | None:
        if not isinstance(value, np.ndarray) or value.dtype != np.uint8 or value.ndim != 1:
            return "is not a string of bytes"
        fits = 1 <= value.size <= self.most
        return None if fits else f"has {value.size:,} bytes where at most {self.most:,} are agreed"


class PackedParties:
    """One bit for each party of the roster, in its order, packed into bytes."""

    def problem(self, value: Value, dimensions: Mapping[str, int]) -> str | None:
        size = -(-dimensions["roster"] // 8)
        if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.shape == (size,):
            beyond = np.unpackbits(value)[dimensions["roster"] :].any()
            return "has a bit beyond the roster" if beyond else None
        return "is not one bit for each party of the roster"


class Schema:
    """The names and fields of one payload: all of them, and no other."""

    def __init__(self, **fields: Field) -> None:
        self.fields = fields

    def check(self, payload: Mapping[str, Value], dimensions: Mapping[str, int], who: str, step: str) -> None:
        """Raise `BadMessage` with the sender's name unless the payload is as agreed."""
        for name in self.fields.keys() - payload.keys():
            raise BadMessage(f'"{name}" is missing in what {who} sent for step "{step}".')
        for name, value in payload.items():
            field = self.fields.get(name)
            wrong = "is not part of it" if field is None else field.problem(value, dimensions)
            if wrong:
                raise BadMessage(f'In what {who} sent for step "{step}", "{name}" {wrong}.')

    def shapes(self, dimensions: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """The shape of every block, where all of them are arrays of agreed shapes."""
        arrays = {name: field for name, field in self.fields.items() if isinstance(field, Floats)}
        for name, field in arrays.items():
            for size in field.shape:
                if isinstance(size, str) and size not in dimensions:
                    raise UsageError(
                        f'The block "{name}" has a dimension "{size}", which is unknown; known here: '
                        f"{', '.join(dimensions)}. Name it in the parameters' `dimensions`."
                    )
        return {
            name: tuple(dimensions[s] if isinstance(s, str) else s for s in field.shape)
            for name, field in arrays.items()
        }

    def blocks(self, dimensions: Mapping[str, int]) -> dict[str, tuple[str, tuple[int, ...]]]:
        """By name, the type of every array's numbers and the shape of one of its entries."""
        arrays = {name: field for name, field in self.fields.items() if isinstance(field, Floats)}
        entries = Schema(**{name: Floats(*field.shape[1:]) for name, field in arrays.items()}).shapes(dimensions)
        return {name: (field.dtype.str, entries[name]) for name, field in arrays.items()}

    def cells(self, dimensions: Mapping[str, int]) -> int:
        """How many numbers there are in all blocks together."""
        return cells_of(self.shapes(dimensions))


class BytesByParty(Schema):
    """Some fields, and any number of byte strings under the names of parties."""

    def check(self, payload: Mapping[str, Value], dimensions: Mapping[str, int], who: str, step: str) -> None:
        parties = {name: Bytes() for name in payload if _PARTY.fullmatch(name)}
        Schema(**self.fields, **parties).check(payload, dimensions, who, step)


DONE = Schema(done=Choice(True))


@dataclass(frozen=True)
class Step:
    """One named thing that a party can be asked to do; `what` describes the answer for the privacy card."""

    name: str
    kind: Kind
    takes: Schema
    gives: Schema
    what: str


@dataclass(frozen=True)
class Exchange:
    """Messages of a sum besides the contributions: keys, shares, what unmasks it. They carry no data.

    An exchange about step "contribute" is requested as "advertise:contribute".
    """

    takes: Schema
    gives: Schema
    what: str

    def about(self, name: str, step: str) -> Step:
        """This exchange about a step, as a public step."""
        return Step(f"{name}:{step}", Kind.PUBLIC, self.takes, self.gives, self.what)


def exchange_step(name: str, steps: Mapping[str, Step], exchanges: Mapping[str, Exchange]) -> Step | None:
    """The step that a name such as "advertise:contribute" stands for, if there is such an exchange and step."""
    exchange, _colon, of = name.partition(":")
    return exchanges[exchange].about(exchange, of) if exchange in exchanges and of in steps else None


def pack_parties(names: Collection[str], roster: Sequence[str]) -> Array:
    """Which of the roster are among `names`: one bit each, packed; uint8."""
    return np.packbits(np.array([name in names for name in roster], dtype=bool))


def named_parties(packed: Array, roster: Sequence[str]) -> list[str]:
    """The names that `pack_parties` packed."""
    bits = np.unpackbits(packed, count=len(roster))
    return [name for name, bit in zip(roster, bits, strict=True) if bit]


Function = TypeVar("Function", bound=Callable[..., Any])


def step(kind: Kind, *, takes: Schema, gives: Schema = DONE, what: str) -> Callable[[Function], Function]:
    """Mark a party's method as a step that a coordinator can request."""

    def mark(function: Function) -> Function:
        function.__dict__["tacit_step"] = Step(function.__name__, kind, takes, gives, what)
        return function

    return mark


@dataclass(frozen=True)
class Request:
    """A coordinator's request.

    The hash covers method, parameters, step, round, attempt and payload, and nothing that differs between engines or
    re-sends: private streams derive from it, so no other request gets the same noise.
    """

    method: str
    parameters: str
    step: str
    round: int
    attempt: int
    body: bytes

    def check(self) -> None:
        """Raise `BadMessage` unless every part has its type and size, before any of them is used."""
        words = all(_word(part, MOST_WORDS) for part in (self.method, self.parameters, self.step))
        if not words or not _number(self.round) or not _number(self.attempt) or type(self.body) is not bytes:
            raise BadMessage("A request's envelope is not as agreed; it was damaged or forged.")

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the payload, in hexadecimal, computed once."""
        return digest(self.body)

    @cached_property
    def hash(self) -> str:
        sha = hashlib.sha256()
        for part in (self.method, self.parameters, self.step, str(self.round), str(self.attempt), self.digest):
            sha.update(len(part.encode()).to_bytes(4, "little") + part.encode())
        return sha.hexdigest()


@dataclass(frozen=True)
class Answer:
    """One party's answer, or why there is none: `status` is "ok", "lost", "late", "refused", or "bad" if unreadable."""

    party: str
    status: str
    kind: Kind
    body: bytes = b""
    contributors: int = 0
    event: str = ""
    payload: str = ""
    head: str = ""
    why: str = ""

    @classmethod
    def of(cls, release: Release) -> Answer:
        """A release as an answer; within this process its bytes are not hashed a second time."""
        recorded = (release.event, release.payload, release.head)
        answer = cls(release.party, "ok", release.kind, release.body, release.contributors, *recorded)
        if release.digest:
            vars(answer)["digest"] = release.digest
        return answer

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the payload, in hexadecimal, computed here; `payload` is the digest that the sender states."""
        return digest(self.body)

    def check(self, devices: Mapping[str, int]) -> None:
        """Raise `BadMessage` unless every part has its type and size; `devices` has the size of each cohort."""
        fine = (
            _word(self.party, MOST_WORDS)
            and self.party in devices
            and type(self.status) is str
            and self.status in ("ok", "lost", "late", "refused", "bad")
            and type(self.kind) is Kind
            and type(self.body) is bytes
            and _number(self.contributors)
            and self.contributors <= max(1, devices[self.party])
            and _word(self.event, MOST_WORDS)
            and all(type(sha) is str and _SHA.fullmatch(sha) for sha in (self.payload, self.head))
            and _word(self.why, MOST_WHY)
        )
        if not fine:
            who = self.party if type(self.party) is str and self.party in devices else "an unknown sender"
            raise BadMessage(f"The envelope of an answer of {who} is not as agreed; it was damaged or forged.")


def _word(value: object, most: int) -> bool:
    return type(value) is str and len(value) <= most and value.isprintable()


def _number(value: object) -> bool:
    return type(value) is int and 0 <= value < MOST
