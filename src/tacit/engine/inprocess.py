"""The engine in one process: the parties are objects, and a message is a call.

Messages are the same bytes that would travel between sites. Parties work in a few threads, since kernels release the
interpreter's lock; where a chain's steps are short they take turns, and wait for their ledgers' disks together. Random
streams are derived, so nothing depends on the order of threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from contextlib import contextmanager, nullcontext
from time import monotonic

from tacit.boundary.release import Kind
from tacit.engine.serve import Memory, kind_of, serve_request
from tacit.federation.dropout import Attendance
from tacit.federation.messages import Answer, Request
from tacit.federation.peer import Peer

#: Bytes of a request from which a chain's steps are long enough for parties to compute side by side.
LARGE = 500_000
#: The fewest threads where parties have ledgers: most of them wait for disks.
WAITING = 4


class InProcess:
    """An engine over party objects.

    Parameters
    ----------
    parties : in roster order, and other roles after them
    timeout : seconds for one step's answers, None for ever; a late party is left out of that step
    workers : threads; None for one per core, or a few more where parties have ledgers
    memories : by name of a role, where its latest answer is saved for a run that is resumed
    """

    def __init__(
        self,
        parties: Sequence[Peer],
        timeout: float | None = None,
        workers: int | None = None,
        memories: Mapping[str, Memory] | None = None,
    ) -> None:
        self.parties = {party.name: party for party in parties}
        self._timeout, self._memories = timeout, dict(memories or {})
        ledgers = [party.gate.protection.ledger for party in parties if party.gate.protection is not None]
        usual = max(os.cpu_count() or 1, WAITING if ledgers else 1)
        self._workers, self._waits = min(workers or usual, len(self.parties)), bool(ledgers)
        self._turns = Turns()
        for ledger in ledgers:
            ledger.aside = self._turns.aside
        self._locks = {name: threading.Lock() for name in self.parties}
        self._pool: ThreadPoolExecutor | None = None

    def deliver(self, requests: Mapping[str, Request], attendance: Attendance) -> list[Answer]:
        """Give each party its request; the answers, in roster order."""
        called = {name: (self.parties[name], requests[name]) for name in self.parties if name in requests}
        none_waits = not self._waits and all(self._in_turns(request) for _party, request in called.values())
        if self._timeout is None and (self._workers == 1 or none_waits):
            return [self._serve(party, request, attendance) for party, request in called.values()]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(max(self._workers, 2), thread_name_prefix="tacit-party")
        waiting = {
            name: self._pool.submit(self._serve, party, request, attendance)
            for name, (party, request) in called.items()
        }
        deadline = None if self._timeout is None else monotonic() + self._timeout
        return [self._gather(name, future, requests[name], deadline) for name, future in waiting.items()]

    def close(self) -> None:
        """End the threads once their steps are done, so that no ledger is closed under them."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def _in_turns(self, request: Request) -> bool:
        """Whether one party at a time computes; not with a timeout, where one late party would delay the others."""
        steps = next(iter(self.parties.values())).steps
        short = request.step in steps and steps[request.step].kind is Kind.CHAIN and len(request.body) < LARGE
        return short and self._timeout is None

    def _gather(self, name: str, future: Future[Answer], request: Request, deadline: float | None) -> Answer:
        try:
            return future.result(None if deadline is None else max(0.0, deadline - monotonic()))
        except Late:
            future.cancel()
            return Answer(name, "late", kind_of(self.parties[name], request))

    def _serve(self, party: Peer, request: Request, attendance: Attendance) -> Answer:
        if not attendance.receivers(party.name, party.member.devices):
            return Answer(party.name, "lost", kind_of(party, request))
        turn = self._turns.taken() if self._in_turns(request) else nullcontext()
        with self._locks[party.name], turn:
            return self._remembered(party, request) or serve_request(party, request, attendance.survivors(party.name))

    def _remembered(self, party: Peer, request: Request) -> Answer | None:
        """A role's answer, saved before it leaves; None for a party."""
        memory = self._memories.get(party.name)
        if memory is None:
            return None
        answer = memory.answered(request.hash)
        if answer is None:
            answer = serve_request(party, request)
            memory.save(request.hash, answer, party.home)
        return answer


class Turns:
    """One thread computes at a time, and lets another go first while it waits for a disk.

    Where a kernel takes less than a millisecond, threads side by side gain nothing: they wake each other for the
    interpreter's lock more often than they work. Measured on two cores with the private steps of MovieLens 1M in ten
    silos, a tenth of a millisecond each: two threads need half as much CPU again as one, and finish no sooner.

    >>> turns = Turns()
    >>> with turns.taken(), turns.aside():
    ...     turns.free
    True
    """

    def __init__(self) -> None:
        self._turn, self._mine = threading.Lock(), threading.local()

    @property
    def free(self) -> bool:
        """Whether no thread has the turn."""
        return not self._turn.locked()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for the turn, and hold it."""
        with self._turn:
            self._mine.held = True
            try:
                yield
            finally:
                self._mine.held = False

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Give the turn to another thread, if this one has it, and take it back afterwards."""
        if not getattr(self._mine, "held", False):
            yield
            return
        self._turn.release()
        try:
            yield
        finally:
            self._turn.acquire()
