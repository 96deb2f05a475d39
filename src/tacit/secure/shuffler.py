"""The shuffler, as a state machine without I/O: it takes sealed reports of known devices and returns shuffled batches.

A batch is opened for one request with public terms, which cannot be changed. Each device on its list sends one message;
the machine splits messages into single reports. A batch that is asked for is closed: it comes out whole, in random
order, if enough devices are in it, or not at all. What came from whom, when and in which order is not in it.

Guarantee
---------
Conditional on the set of sealed reports, the order of a batch is uniform and independent of senders and arrival (up to
2⁻⁹⁵ for 100,000 reports, the probability that two of the 128-bit numbers which decide it are equal). A batch holds the
messages of at least `crowd` different devices, or it is refused. Whoever authenticates devices gives the names; the
machine believes them.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tacit.errors import BadMessage, PeerFailed, PrivacyRefused

Array = np.ndarray[Any, Any]

#: Limits, all public: reports in a message, bytes of a sealed report, devices of a batch, batches at a time, and bytes
#: of all of them.
MOST_REPORTS, MOST_LENGTH, MOST_DEVICES, MOST_BATCHES, MOST_BYTES = 4096, 1024, 1_000_000, 4, 2**31


class UnknownBatch(PeerFailed):
    """Nobody has opened this batch here, or it is gone: the proxy keeps nothing over a restart."""


class Closed(PeerFailed):
    """The batch was closed, so nothing more comes into it."""


class TooFew(PrivacyRefused):
    """Fewer devices than the crowd sent their reports, so nothing is forwarded."""


@dataclass(frozen=True)
class BatchTerms:
    """What is agreed about one batch; everybody may know it.

    Attributes
    ----------
    context : the hash of the request that the reports answer
    crowd : how many different devices must be in it
    length : bytes of one sealed report
    """

    context: str
    crowd: int
    length: int

    def check(self) -> None:
        """Raise `BadMessage` unless every term is possible."""
        fine = len(self.context) == 64 and not set(self.context) - set("0123456789abcdef")
        if not fine or not 1 <= self.crowd <= MOST_DEVICES or not 1 <= self.length <= MOST_LENGTH:
            raise BadMessage("The terms of a batch are not possible; it was not opened.")


@dataclass
class _Batch:
    """One batch: by device what it sent, until it is closed; then the shuffled reports, which name nobody."""

    terms: BatchTerms
    devices: frozenset[str]
    messages: dict[str, bytes] = field(default_factory=dict)
    shuffled: Array | None = None
    size: int = 0


class Shuffler:
    """All open batches; opening one too many drops the oldest.

    Parameters
    ----------
    randomness : so many random bytes: the operating system's, or a seeded stream's in a simulation
    least : the smallest crowd that it accepts, whatever the coordinator asks for
    """

    def __init__(self, randomness: Callable[[int], bytes], least: int = 1) -> None:
        self._randomness, self.least = randomness, least
        self._batches: dict[str, _Batch] = {}

    def open(self, terms: BatchTerms, devices: Collection[str]) -> None:
        """Open a batch for these devices; opening it again under the same terms changes nothing."""
        terms.check()
        if terms.crowd < self.least:
            raise PrivacyRefused(
                f"A batch of {terms.crowd:,} devices was asked for, and this proxy forwards none of fewer than "
                f"{self.least:,} (--crowd); nothing was opened."
            )
        if not terms.crowd <= len(devices) <= MOST_DEVICES:
            raise BadMessage(
                f"A batch of {terms.crowd:,} devices cannot come from {len(devices):,}; it was not opened."
            )
        known = self._batches.get(terms.context)
        if known is not None:
            if (known.terms, known.devices) != (terms, frozenset(devices)):
                raise PrivacyRefused("This batch was opened under other terms, which cannot be changed.")
            return
        while len(self._batches) >= MOST_BATCHES:  # its coordinator has left it behind
            del self._batches[next(iter(self._batches))]
        self._batches[terms.context] = _Batch(terms, frozenset(devices))

    def terms(self, device: str, context: str) -> BatchTerms:
        """What is agreed about a batch, for a device to check before it sends anything."""
        return self._for(device, context).terms

    def accept(self, device: str, context: str, message: bytes) -> int:
        """Take one device's sealed reports, all at once; how many they are. The same message again changes nothing."""
        batch = self._for(device, context)
        length, held = batch.terms.length, batch.messages.get(device)
        if batch.shuffled is not None:
            raise Closed("This batch is closed; nothing more was taken.")
        if not message or len(message) % length:
            raise BadMessage(f"A message of {len(message):,} bytes is no number of reports of {length} bytes each.")
        if len(message) > MOST_REPORTS * length:
            raise BadMessage(f"A message has {len(message) // length:,} reports where at most {MOST_REPORTS:,} may be.")
        if held is not None and held != message:
            raise BadMessage("This device has sent other reports for this batch; a device sends one message a batch.")
        if held is None and self.held + len(message) > MOST_BYTES:
            raise BadMessage("There is no room for more reports now; send them again later.")
        if held is None:
            batch.messages[device] = bytes(message)
            batch.size += len(message)
        return len(message) // length

    def close(self, context: str) -> Array:
        """All reports of a batch, shuffled, (n, length) uint8, the same at every call; nothing more comes into it."""
        batch = self._batch(context)
        if batch.shuffled is None:
            if len(batch.messages) < batch.terms.crowd:
                raise TooFew(
                    f"{len(batch.messages):,} devices sent their reports, and the proxy passes nothing on below "
                    f"{batch.terms.crowd:,}."
                )
            joined = np.frombuffer(b"".join(batch.messages.values()), dtype=np.uint8)
            rows = joined.reshape(-1, batch.terms.length)
            batch.shuffled = rows[random_order(len(rows), self._randomness)]
            batch.messages = {}
        return batch.shuffled

    def forget(self, context: str) -> None:
        """Drop a batch; an unknown one is none to drop."""
        self._batches.pop(context, None)

    @property
    def held(self) -> int:
        """Bytes of all reports."""
        return sum(batch.size for batch in self._batches.values())

    def _batch(self, context: str) -> _Batch:
        batch = self._batches.get(context)
        if batch is None:
            raise UnknownBatch("No such batch is open here; the proxy may have been started again.")
        return batch

    def _for(self, device: str, context: str) -> _Batch:
        batch = self._batch(context)
        if device not in batch.devices:
            raise BadMessage("This device is not on the batch's list; nothing was taken.")
        return batch


def random_order(n: int, randomness: Callable[[int], bytes]) -> Array:
    """A uniformly random order of n things, (n,): they are sorted by 128 random bits each."""
    drawn = np.frombuffer(randomness(16 * n), dtype=np.uint64).reshape(2, n)
    return np.lexsort(drawn)
