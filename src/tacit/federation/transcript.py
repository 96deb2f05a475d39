"""What the coordinator saw, in order: digests always, payloads if the run saves them."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from tacit import files


@dataclass(frozen=True)
class Entry:
    """One message; `bytes` are those of all `copies`; `head` is that of the sender's ledger."""

    call: int
    round: int
    step: str
    party: str
    direction: str
    kind: str
    bytes: int
    copies: int
    digest: str
    status: str
    head: str = ""

    @property
    def values(self) -> tuple[int | str, ...]:
        return tuple(vars(self).values())


class Meter:
    """Bytes of the wire format by party and direction; a cohort's message counts once per device."""

    def __init__(self) -> None:
        self.up: Counter[str] = Counter()
        self.down: Counter[str] = Counter()

    @property
    def bytes_up(self) -> int:
        return self.up.total()

    @property
    def bytes_down(self) -> int:
        return self.down.total()


class Transcript:
    """The coordinator's view of a run.

    Parameters
    ----------
    payloads : a folder for the messages themselves, or None to record digests only

    The run's digest covers round, step, party and payload of the method's messages in that order, and neither envelopes
    nor lost messages, keys, shares and masks, so that it is the same whichever engine carried them.
    """

    def __init__(self, payloads: Path | None = None) -> None:
        self.entries: list[Entry] = []
        self.meter = Meter()
        self._requests: dict[str, Counter[str]] = {}
        self._payloads = payloads
        self._digest = hashlib.sha256(b"tacit transcript 1")
        if payloads is not None:
            payloads.mkdir(parents=True, exist_ok=True)

    @property
    def digest(self) -> str:
        """SHA-256 over all messages so far, in hexadecimal."""
        return self._digest.hexdigest()

    @property
    def requests_by_step(self) -> dict[str, int]:
        """By step, the most requests that one party received, with every attempt at a sum counted."""
        return {step: max(counts.values()) for step, counts in self._requests.items()}

    def record(self, entry: Entry, body: bytes | None = None) -> None:
        """Add one message; `body` is saved if the run saves payloads, None for what the coordinator cannot see."""
        self._add(entry)
        if body is not None and self._payloads is not None:
            shared = entry.direction == "down" and entry.kind != "protocol"
            path = self._payloads / f"{entry.call:06d}-{entry.direction}-{'all' if shared else entry.party}.tct"
            if not path.exists():
                files.write(path, body, durable=False)

    def restore(self, entries: Iterable[Entry]) -> None:
        """Add messages of a run that is being resumed."""
        for entry in entries:
            self._add(entry)

    def _add(self, entry: Entry) -> None:
        self.entries.append(entry)
        if entry.direction == "down":
            self._requests.setdefault(entry.step, Counter())[entry.party] += 1
        if entry.bytes:
            sent = self.meter.down if entry.direction == "down" else self.meter.up
            sent[entry.party] += entry.bytes
        if entry.status == "ok" and entry.kind != "protocol":
            self._digest.update(f"{entry.round}|{entry.step}|{entry.party}|{entry.direction}|{entry.digest}\n".encode())

    def write(self, path: Path) -> None:
        """All entries as one Parquet table."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = list(zip(*(entry.values for entry in self.entries), strict=True)) or [()] * len(fields(Entry))
        types = [pa.int32(), pa.int32(), *[pa.string()] * 4, pa.int64(), pa.int64(), *[pa.string()] * 3]
        table = pa.table(
            {f.name: pa.array(column, kind) for f, column, kind in zip(fields(Entry), columns, types, strict=True)}
        )
        with files.replacing(path, durable=False) as new:
            pq.write_table(table, new, compression="zstd")
