"""State that must never leave a party: pre-trained user factors, fine-tuned item factors, losses. The gate refuses it.

It is fitted to raw ratings and has no noise. Code releases it by mistake, mostly in one of four forms: the array, a
view of it, a copy in another shape or precision, or a block of a chain's state that no query noised. `PrivateState`
detects all four; copies are compared in simulations only, since a refusal that depends on a value reveals it. It cannot
detect a private array that was changed first: that the update of a chain is pure, and sees public and noised values
only, is the method's responsibility.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tacit.boundary.wire import Array


class PrivateState:
    """Private names in a party's `home`, and everything that was ever stored under them."""

    def __init__(self, home: Mapping[str, Any]) -> None:
        self._home = home
        self._earlier: dict[str, dict[int, set[bytes]]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._earlier)

    def mark(self, name: str) -> None:
        """From now on what is at home under this name is private; what was there before stays private."""
        digests = self._earlier.setdefault(name, {})
        if name in self._home and not _trivial(values := _values(self._home[name])):
            digests.setdefault(values.size, set()).add(_digest(values))

    def found_in(self, thing: object, by_value: bool = True) -> str | None:
        """The name of a private array that `thing` is, is a view of, equals, or contains; None if there is none.

        Without `by_value` a copy passes. What a peer sent may equal a private array because it was guessed, and a
        refusal would confirm the guess.
        """
        return next((name for array in _arrays(thing) if (name := self._of(array, by_value)) is not None), None)

    def _of(self, array: Array, by_value: bool) -> str | None:
        numbers = by_value and array.dtype.kind in "biuf"
        values = _values(array) if numbers else None
        plain = values is None or _trivial(values)
        for name, digests in self._earlier.items():
            secret = np.asarray(self._home[name]) if name in self._home else None
            if secret is not None and np.may_share_memory(array, secret):
                return name
            if values is None or plain:
                continue
            if secret is not None and secret.size == values.size and np.array_equal(_values(secret), values):
                return name
            if values.size in digests and _digest(values) in digests[values.size]:
                return name
        return None


def _arrays(thing: object) -> Iterator[Array]:
    if isinstance(thing, Mapping):
        for inside in thing.values():
            yield from _arrays(inside)
    elif isinstance(thing, (list, tuple, set, frozenset)) or (isinstance(thing, np.ndarray) and thing.dtype == object):
        for inside in thing:
            yield from _arrays(inside)
    elif isinstance(thing, (np.ndarray, np.generic, int, float)):
        yield np.asarray(thing)


def _values(array: Any) -> Array:
    """The numbers in an array, in the precision that travels: the same for every shape and type it may have."""
    with np.errstate(over="ignore"):
        return np.asarray(array).astype(np.float32, copy=False).ravel()


def _trivial(values: Array) -> bool:
    """Whether an array is empty or repeats one integer, as blank blocks do: equality then reveals nothing."""
    return values.size == 0 or bool(values[0] == np.rint(values[0]) and np.all(values == values[0]))


def _digest(values: Array) -> bytes:
    return hashlib.blake2b(values.data, digest_size=16).digest()
