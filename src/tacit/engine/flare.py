"""Between organisations: the same messages as in one process, pushed to services elsewhere over FLARE's cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from tacit.boundary.release import Kind
from tacit.boundary.wire import reading
from tacit.engine.coordinator_channel import CoordinatorChannel
from tacit.engine.envelope import TimedRequest, read_answer
from tacit.errors import BadMessage, TacitError
from tacit.federation.dropout import Attendance
from tacit.federation.messages import MOST_WHY, Answer, Request


class Flare:
    """An engine over services elsewhere.

    Parameters
    ----------
    desk : where messages go out and replies come in
    names : whom there is to ask, in their order: the roster, and other roles behind it
    timeout : seconds for one step; whoever is late is left out of it
    """

    def __init__(self, desk: CoordinatorChannel, names: Sequence[str], timeout: float) -> None:
        self._desk, self._names, self._timeout = desk, tuple(names), timeout
        self._pool = ThreadPoolExecutor(max(1, len(self._names)), thread_name_prefix="tacit-ask")

    def deliver(self, requests: Mapping[str, Request], attendance: Attendance) -> list[Answer]:
        """Push each party its request and gather the answers, in roster order."""
        asked = [name for name in self._names if name in requests]
        jobs = [self._pool.submit(self._answer, name, requests[name], attendance) for name in asked]
        answers = [job.result() for job in jobs]
        failed = next((answer for answer in answers if isinstance(answer, TacitError)), None)
        if failed is not None:
            raise failed
        return [answer for answer in answers if isinstance(answer, Answer)]

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _answer(self, name: str, request: Request, attendance: Attendance) -> Answer | TacitError:
        if not attendance.receivers(name, 0):
            return Answer(name, "lost", Kind.PUBLIC)
        survivors = attendance.survivors(name)
        reply = self._desk.settle(
            name, "ask", request.hash, lambda left: TimedRequest(request, left, survivors).content(), self._timeout
        )
        if reply is None:
            return Answer(name, "late", Kind.PUBLIC)
        if isinstance(reply, TacitError):
            return reply
        try:
            with reading(name):
                answer = read_answer(reply)
                if type(answer.party) is not str or answer.party != name:
                    raise BadMessage(f"{name} answered in another's name; it was damaged or forged.")
                return answer
        except BadMessage as error:  # whether this ends the run is not decided here
            return Answer(name, "bad", Kind.PUBLIC, why=str(error)[:MOST_WHY])
