"""The wire format: named arrays and plain values as bytes, without pickle.

    magic "TCT1" · header length, uint32 · header, JSON · padding to 8 · the arrays' bytes, each padded to 8

The header maps each name to a plain value, or to a dtype and a shape whose bytes follow in the header's order. Decoding
allocates nothing: arrays are read-only views of the message, and every byte must be accounted for, so a header cannot
promise more than was sent.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from tacit.errors import BadMessage, TacitError

Array = np.ndarray[Any, Any]
Value = Array | str | int | float | bool | None

MAGIC = b"TCT1"
MAX_HEADER = 64 * 1024
MAX_DIMENSIONS = 4
MAX_NAME = 200
MAX_SIZE = 2**40
DTYPES = {name: np.dtype(name) for name in ("<f4", "<f8", "<i4", "<i8", "<u4", "<u8", "|u1")}


def encode(payload: Mapping[str, Value]) -> bytes:
    """The message that carries `payload`."""
    header: dict[str, Any] = {}
    parts: list[bytes | memoryview] = [b""]
    for name, value in payload.items():
        _check_name(name)
        if isinstance(value, np.ndarray):
            if value.dtype.str not in DTYPES:
                raise BadMessage(
                    f'"{name}" has dtype {value.dtype}, which does not travel; use one of {", ".join(DTYPES)}.'
                )
            if value.ndim > MAX_DIMENSIONS:
                raise BadMessage(f'"{name}" has {value.ndim} dimensions; at most {MAX_DIMENSIONS} travel.')
            contiguous = np.ascontiguousarray(value)
            header[name] = {"dtype": contiguous.dtype.str, "shape": list(value.shape)}
            parts += [contiguous.data, _padding(contiguous.nbytes)]
        elif value is None or isinstance(value, (str, bool, int, float)):
            header[name] = value
        else:
            raise BadMessage(
                f'"{name}" is a {type(value).__name__}, which does not travel; send arrays, numbers or text.'
            )
    try:
        text = _WRITER.encode(header).encode()
    except ValueError:
        raise BadMessage("A number in the message is not finite; only finite numbers travel.") from None
    if len(text) > MAX_HEADER:
        raise BadMessage(f"A message's names and plain values take {len(text):,} bytes; at most {MAX_HEADER:,} travel.")
    start = MAGIC + len(text).to_bytes(4, "little") + text
    parts[0] = start + _padding(len(start))
    return b"".join(parts)


def decode(message: bytes) -> dict[str, Value]:
    """The payload of a message from a peer; `BadMessage` if it is not well-formed."""
    size = f"A message of {len(message):,} bytes"
    if len(message) < 8 or message[:4] != MAGIC:
        raise BadMessage(f"{size} does not start as one; it was cut off or is not Tacit's.")
    length = int.from_bytes(message[4:8], "little")
    if length > min(MAX_HEADER, len(message) - 8):
        raise BadMessage(f"{size} claims a header of {length:,}; it was cut off or forged.")
    try:
        header = _READER.decode(message[8 : 8 + length].decode("utf-8"))
    except (ValueError, RecursionError):
        raise _damaged("The message's header is not JSON") from None
    if not isinstance(header, dict):
        raise _damaged("The message's header is not a table of names")
    payload: dict[str, Value] = {}
    at = 8 + length + len(_padding(8 + length))
    if any(message[8 + length : at]) or at > len(message):
        raise _damaged("The message's header is followed by bytes that should be zero")
    for name, entry in header.items():
        _check_name(name)
        if isinstance(entry, dict):
            payload[name], at = _array(message, name, entry, at)
        elif isinstance(entry, list) or (isinstance(entry, float) and not math.isfinite(entry)):
            raise _damaged(f'"{name}" is neither an array nor a plain value')
        else:
            payload[name] = entry
    if at != len(message):
        raise _damaged(f"{size} has a header that accounts for {at:,}")
    return payload


@contextmanager
def reading(who: str) -> Iterator[None]:
    """While a peer's message is read: every error becomes one `BadMessage` that names the peer."""
    try:
        yield
    except BadMessage as error:
        if who in str(error):
            raise
        raise BadMessage(f"{who}: {error}") from None
    except TacitError:
        raise
    except (*_READING_ERRORS, MemoryError, RecursionError) as error:
        raise BadMessage(
            f"What {who} sent cannot be read ({type(error).__name__}); it was damaged or forged."
        ) from None


#: What a forged message can raise in code that reads it.
_READING_ERRORS = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)


def all_finite(x: Array) -> bool:
    """Whether every number is finite; a finite sum of squares proves it in one pass."""
    flat = x.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        return math.isfinite(flat.dot(flat)) or bool(np.isfinite(x).all())


def digest(message: bytes) -> str:
    """SHA-256 of a message, in hexadecimal."""
    return hashlib.sha256(message).hexdigest()


def _array(message: bytes, name: str, entry: dict[str, Any], at: int) -> tuple[Array, int]:
    dtype, shape = DTYPES.get(str(entry.get("dtype"))), entry.get("shape")
    known = entry.keys() == {"dtype", "shape"}
    if not known or dtype is None or not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS:
        raise _damaged(f'"{name}" is described as {str(entry)[:80]}, which is not an array')
    if not all(type(s) is int and 0 <= s < MAX_SIZE for s in shape):
        raise _damaged(f'"{name}" has the shape {str(shape)[:80]}, which is not one')
    if math.prod(max(1, s) for s in shape) >= MAX_SIZE:
        raise _damaged(f'"{name}" has the shape {str(shape)[:80]}, which is too large')
    size = math.prod(shape) * dtype.itemsize
    end, padding = at + size, len(_padding(size))
    if end > len(message):
        raise _damaged(f'"{name}" claims {size:,} bytes where {max(0, len(message) - at):,} are left')
    if message[end : end + padding] != bytes(padding):
        raise _damaged(f'"{name}" is followed by bytes that should be zero')
    array = np.frombuffer(message, dtype=dtype, count=math.prod(shape), offset=at).reshape(shape)
    return array, end + padding


def _damaged(what: str) -> BadMessage:
    return BadMessage(f"{what}; the message was damaged or forged.")


def _check_name(name: str) -> None:
    if not name.isprintable() or len(name) > MAX_NAME:
        raise BadMessage(
            f"A message names a value {name[:40]!r}; names are printable and at most {MAX_NAME} characters long."
        )


def _padding(length: int) -> bytes:
    return bytes(-length % 8)


def _refuse(constant: str) -> None:
    raise ValueError(constant)


# json.dumps and json.loads would create these for every message, at a tenth of a small message's cost.
_WRITER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_READER = json.JSONDecoder(parse_constant=_refuse)
