"""The engine between organisations: the same messages as in one process, sent to services over FLARE's cells."""

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
    """An engine over services: `names` are the parties in order and other roles after them; `timeout` is per step."""

    def __init__(self, channel: CoordinatorChannel, names: Sequence[str], timeout: float) -> None:
        self._channel, self._names, self._timeout = channel, tuple(names), timeout
        self._pool = ThreadPoolExecutor(max(1, len(self._names)), thread_name_prefix="tacit-ask")

    def deliver(self, requests: Mapping[str, Request], attendance: Attendance) -> list[Answer]:
        """Send each party its request; the answers, in roster order."""
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
        reply = self._channel.request(
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
                    raise BadMessage(f"{name} answered in another name; the answer was damaged or forged.")
                return answer
        except BadMessage as error:  # the federation decides whether this ends the run
            return Answer(name, "bad", Kind.PUBLIC, why=str(error)[:MOST_WHY])
