"""The ledger: a party's durable record of what it released and what that cost. It outlives runs.

One SQLite file per party, with a key file beside it. A release is one row, written together with the answer's bytes and
the party's state in one transaction that is synced *before* the bytes leave. So after a crash the budget is spent,
never forgotten, and the same request is answered with the same bytes.

Rows are chained: head_i = SHA-256(head_{i−1}, event, request hash, payload hash). The head travels with every answer,
so anyone who stored an earlier head finds a shortened or restored ledger. Everything else in a row, and the party's
state, is bound by a keyed hash that stays at home: a plain hash of private factors would itself be a release.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from pathlib import Path

from tacit.boundary.events import Event, Public, from_json, to_json
from tacit.boundary.ledger_file import FORMAT, LedgerFile, now
from tacit.boundary.sealed_database import DATABASE_ERRORS, database_error, half_created
from tacit.boundary.wire import digest
from tacit.errors import PrivacyRefused, TamperingFound

START = hashlib.sha256(FORMAT.encode()).hexdigest()


@dataclass(frozen=True)
class Row:
    """One recorded release; `present` are the devices of a cohort that took part, as packed bits."""

    number: int
    moment: str
    run: str
    round: int
    step: str
    attempt: int
    kind: str
    request: str
    event: str
    payload: str
    size: int
    contributors: int
    present: bytes | None
    state: str
    head: str

    @property
    def spent(self) -> Event:
        return _parsed(self.event)


#: The columns of a row, in their order.
_ROW = ", ".join(column.name for column in fields(Row))


def next_head(previous: str, event: str, request: str, payload: str) -> str:
    """The head after one more row; it can be checked from its parts, all of which have left anyway."""
    return hashlib.sha256("|".join((FORMAT, previous, event, request, payload)).encode()).hexdigest()


@lru_cache(maxsize=1024)
def _parsed(line: str) -> Event:
    return from_json(json.loads(line))


#: `json.dumps` would create it for every row.
_LINE = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def canonical(event: Event) -> str:
    """An event as one line of JSON."""
    return _LINE.encode(to_json(event))


class Ledger(LedgerFile):
    """One party's ledger, opened or created at `path`."""

    #: How many rows this object wrote; rows of other connections show in `version`.
    written = 0
    #: The state that was hashed last, and its keyed hash.
    _state: tuple[bytes | None, str] = (None, "")
    #: The count of other connections' commits at which `_recorded` was read.
    _read_at = -1

    def record(
        self,
        *,
        run: str,
        step: str,
        kind: str,
        request: str,
        event: Event,
        body: bytes,
        state: bytes,
        round: int = 0,
        attempt: int = 0,
        sealed: bool = False,
        contributors: int = 1,
        present: bytes | None = None,
        admit: Callable[[], None] | None = None,
    ) -> Row:
        """Write one release, durably, and return its row. Only then may the bytes leave.

        A `sealed` body is opened by the aggregation only; the chain then binds its keyed hash. `admit` has the last
        word: it is called when no other process can write any more, and what it raises undoes everything.
        """
        with self._transaction():
            if admit is not None:
                admit()
            number, head, was = self._latest()
            line, payload = canonical(event), self._seal(body) if sealed else digest(body)
            if state != self._state[0]:
                self._state = state, self._seal(state)
            values = (
                *(number + 1, now(), run, round, step, attempt, kind, request, line, payload),
                *(len(body), contributors, present, self._state[1], next_head(head, line, request, payload)),
            )
            self._database.execute("update releases set body = null where number = ?", (number,))
            marks = ", ".join("?" * (len(values) + 2))
            self._database.execute(
                f"insert into releases ({_ROW}, seal, body) values ({marks})", (*values, self._seal(*values), body)
            )
            if self._state[1] != was:
                self._database.execute("insert or replace into home values (1, ?)", (state,))
        self.written += 1
        self._recorded.update((request, (run, round, step, attempt)))
        return Row(*values)

    @property
    def version(self) -> tuple[int, int]:
        """Changes whenever another connection wrote, or this one changed a fact."""
        return int(self._database.execute("pragma data_version").fetchone()[0]), self._facts_changed

    def rows(self, after: int = 0) -> list[Row]:
        """Every release, or those after number `after`, oldest first."""
        query = f"select {_ROW} from releases where number > ? order by number"
        return [Row(*values) for values in self._database.execute(query, (after,))]

    @property
    def head(self) -> str:
        """The chain's head; `START` where nothing was released yet."""
        return self._latest()[1]

    def _latest(self) -> tuple[int, str, str]:
        """Number, head and the state's keyed hash of the latest row; 0, `START` and nothing before the first."""
        found = self._database.execute("select number, head, state from releases order by number desc limit 1")
        number, head, state = found.fetchone() or (0, START, "")
        return int(number), str(head), str(state)

    def events(self) -> list[Event]:
        """What was spent, oldest first."""
        return [row.spent for row in self.rows()]

    @property
    def charged(self) -> bool:
        """Whether anything was released that costs; free facts may leave before everything is settled."""
        return any(not isinstance(event, Public) for event in self.events())

    def first_schedule(self, planned: Sequence[Event] = ()) -> list[Event]:
        """What was planned before the first release that cost anything; `planned` becomes it where there was none."""
        lines = json.dumps([to_json(event) for event in planned], sort_keys=True)
        if planned and self._about().get("first") != lines and not self.charged:
            self._set_fact("first", lines)
        found = self._about().get("first")
        return [] if found is None else [from_json(table) for table in json.loads(found)]

    def note(self, name: str, value: str, otherwise: str) -> None:
        """Store a fact once, before anything is charged; another value later is refused, with `otherwise` as reason."""
        stored = self._about().get(name)
        if stored is None and not self.charged:
            self._set_fact(name, value)
        elif stored != value:
            raise PrivacyRefused(f'The ledger "{self.path}" {otherwise}; name another folder with [privacy] ledger.')

    def answered(self, request: str) -> tuple[Row, bytes | None] | None:
        """The latest row of a request that was answered before, with the answer's bytes if it is the latest of all."""
        if not self._has_row(request):
            return None
        query = f"select {_ROW}, body from releases where request = ? order by number desc limit 1"
        found = self._database.execute(query, (request,)).fetchone()
        return None if found is None else (Row(*found[:-1]), found[-1])

    def answered_otherwise(self, run: str, round: int, step: str, attempt: int, request: str) -> bool:
        """Whether the same step of the same round was answered for another request."""
        if not self._has_row((run, round, step, attempt)):
            return False
        query = "select 1 from releases where run = ? and round = ? and step = ? and attempt = ? and request != ?"
        return self._database.execute(query, (run, round, step, attempt, request)).fetchone() is not None

    @cached_property
    def _recorded(self) -> set[str | tuple[str, int, str, int]]:
        return set()

    def _has_row(self, key: str | tuple[str, int, str, int]) -> bool:
        """Whether a request, or a (run, round, step, attempt), has a row; read again once another connection wrote."""
        commits = self.version[0]  # read first: what is written after it is noticed next time
        if commits != self._read_at:
            for row in self.rows():
                self._recorded.update((row.request, (row.run, row.round, row.step, row.attempt)))
            self._read_at = commits
        return key in self._recorded

    def state(self) -> bytes | None:
        """The party's state after its latest release."""
        found = self._database.execute("select state from home").fetchone()
        return None if found is None else bytes(found[0])

    def body(self) -> bytes:
        """The bytes of the latest release."""
        found = self._database.execute("select body from releases order by number desc limit 1").fetchone()
        return b"" if found is None else bytes(found[0])

    def verify(self, head: str | None = None) -> int:
        """Check every row of every table; returns how many releases there are.

        `head` is one that travelled: it must be in the chain, or rows were cut off or an old ledger was put back.
        """
        try:
            return self._verified(head)
        except DATABASE_ERRORS as error:
            raise database_error(self.path, error) from None

    def _verified(self, head: str | None) -> int:
        self._check_facts()
        if not self._has_own_tables():
            raise TamperingFound(f'The ledger "{self.path}" was changed: its tables are not those of {FORMAT}.')
        before, rows, heads = START, self.rows(), {START}
        for place, row in enumerate(rows, start=1):
            if row.number != place:
                raise TamperingFound(f'In the ledger "{self.path}", release {place} is missing.')
            self._check_row(row, before, latest=place == len(rows))
            before = row.head
            heads.add(before)
        state = self.state()
        if (state is None) != (not rows) or (state is not None and rows[-1].state != self._seal(state)):
            raise TamperingFound(f'In the ledger "{self.path}", the state of {self.party} was changed.')
        if head is not None and head not in heads:
            raise TamperingFound(
                f'The ledger "{self.path}" does not hold a release that left {self.party}: '
                "rows were cut off, or an old ledger was put back."
            )
        return len(rows)

    def _check_row(self, row: Row, before: str, latest: bool) -> None:
        where = f'In the ledger "{self.path}"'
        query = "select seal, body from releases where number = ?"
        seal, body = self._database.execute(query, (row.number,)).fetchone()
        if row.head != next_head(before, row.event, row.request, row.payload):
            raise TamperingFound(f"{where}, release {row.number} was changed, or one before it was removed.")
        if seal != self._seal(*vars(row).values()):
            raise TamperingFound(f"{where}, release {row.number} was changed.")
        if (body is not None) != latest:
            raise TamperingFound(f"{where}, the stored bytes of release {row.number} are not as they should be.")
        if body is not None and row.payload not in (digest(body), self._seal(body)):
            raise TamperingFound(f"{where}, the bytes of release {row.number} were changed.")


def ledgers_in(folder: Path) -> Iterator[Path]:
    """The ledgers of a run folder or of a folder of ledgers; one whose creation was interrupted holds nothing yet."""
    inside = folder / "ledger" if (folder / "ledger").is_dir() else folder
    for path in sorted(inside.glob("*.sqlite"), key=lambda path: (len(path.name), path.name)):
        if not half_created(path):
            yield path
