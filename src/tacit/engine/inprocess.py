"""Everything in one process: the parties are objects, and a message is a call.

Messages are the same bytes that would travel between sites. Streams are derived, so nothing depends on who is faster.
Kernels let go of the interpreter's lock, and with large blocks parties compute side by side, one a core. With small
ones their threads would only wait for each other's hold on the interpreter, and cool each other's caches: then one
computes at a time, while others wait for their ledgers' disks.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from contextlib import contextmanager, nullcontext
from time import monotonic

import numpy as np

from tacit.boundary import Release
from tacit.boundary.protection import BudgetSpent
from tacit.boundary.release import Kind
from tacit.errors import PeerFailed, TacitError, UngatedRelease
from tacit.federation.cohort import Attendance
from tacit.federation.messages import Answer, Request
from tacit.federation.party import Party

#: Bytes of a request from which parties compute side by side.
LARGE = 2_000_000
#: Threads that at least are there where parties wait for their ledgers' disks.
WAITING = 4


class InProcess:
    """An engine over party objects.

    Parameters
    ----------
    parties : in roster order
    timeout : seconds to wait for one step's answers, None for ever; a late party is left out of that step
    workers : threads, None for one per core
    """

    def __init__(self, parties: Sequence[Party], timeout: float | None = None, workers: int | None = None) -> None:
        self.parties = {party.name: party for party in parties}
        self._timeout = timeout
        protections = [party.gate.protection for party in parties if party.gate.protection is not None]
        usual = max(os.cpu_count() or 1, WAITING if protections else 1)
        self._workers, self._ledgers = min(workers or usual, len(self.parties)), bool(protections)
        self._turns = _Turns()
        for protection in protections:
            protection.ledger.aside = self._turns.aside
        self._locks = {name: threading.Lock() for name in self.parties}
        self._pool: ThreadPoolExecutor | None = None

    def deliver(self, request: Request, attendance: Attendance) -> list[Answer]:
        """Hand the request to every party and gather the answers, in roster order."""
        alone = self._workers == 1 or not (self._ledgers or len(request.body) >= LARGE)
        if alone and self._timeout is None:
            return [self._serve(party, request, attendance) for party in self.parties.values()]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(max(self._workers, 2), thread_name_prefix="tacit-party")
        waiting = {
            name: self._pool.submit(self._serve, party, request, attendance) for name, party in self.parties.items()
        }
        deadline = None if self._timeout is None else monotonic() + self._timeout
        return [self._gather(name, future, request, deadline) for name, future in waiting.items()]

    def close(self) -> None:
        """Let go of the threads, once the steps that still run are done: nobody's ledger is closed under them."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def _gather(self, name: str, future: Future[Answer], request: Request, deadline: float | None) -> Answer:
        try:
            return future.result(None if deadline is None else max(0.0, deadline - monotonic()))
        except Late:
            future.cancel()
            return Answer(name, "late", self.parties[name].steps[request.step].kind)

    def _serve(self, party: Party, request: Request, attendance: Attendance) -> Answer:
        listeners = attendance.listeners(party.name, party.member.devices)
        kind = party.steps[request.step].kind if request.step in party.steps else Kind.PUBLIC
        if not listeners:
            return Answer(party.name, "lost", kind)
        survivors = attendance.survivors(party.name)
        with self._locks[party.name], self._turns.taken(kind is Kind.CHAIN and len(request.body) < LARGE):
            try:
                release = party.answer(request, survivors if party.member.devices else None)
            except BudgetSpent as refusal:
                return Answer(party.name, "refused", kind, why=str(refusal))
            except TacitError:
                raise
            except Exception as error:
                raise PeerFailed(
                    f'{party.name} failed in step "{request.step}" of round {request.round}: '
                    f"{type(error).__name__}{'' if party.gate.protection else f': {error}'}."
                ) from error
        if type(release) is not Release or not party.gate.made(release):
            raise UngatedRelease(f"What {party.name} returned was not made by its gate; nothing was sent.")
        recorded = (release.event, release.payload, release.head)
        if survivors is not None and not np.any(survivors):
            return Answer(party.name, "lost", kind)
        return Answer(party.name, "ok", release.kind, release.body, release.contributors, *recorded)


class _Turns:
    """One thread computes at a time; who waits for a disk steps aside meanwhile."""

    def __init__(self) -> None:
        self._turn, self._mine = threading.Lock(), threading.local()

    @contextmanager
    def taken(self, wanted: bool) -> Iterator[None]:
        """This thread's turn, if turns are `wanted`."""
        with self._turn if wanted else nullcontext():
            self._mine.held = wanted
            try:
                yield
            finally:
                self._mine.held = False

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Somebody else's turn, if it is this thread's; afterwards it is again."""
        held = getattr(self._mine, "held", False)
        if held:
            self._turn.release()
        try:
            yield
        finally:
            if held:
                self._turn.acquire()
