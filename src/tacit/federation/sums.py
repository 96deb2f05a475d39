"""Sums that nobody sees a single contribution to: by the parties' masks, or as a simulation of many devices."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tacit.boundary.sealed import SEALED, Grid
from tacit.boundary.seals import Circle, added_noise, excess_of, marked, unmarked
from tacit.boundary.source import Seeded
from tacit.boundary.wire import Array, Value, decode, encode
from tacit.errors import BadMessage
from tacit.federation.cohort import Attendance
from tacit.federation.facts import Facts
from tacit.federation.line import Line, View
from tacit.federation.messages import Request
from tacit.rng import stream_key
from tacit.secure import Aggregation
from tacit.secure.masks import pack, unpack, words
from tacit.secure.quantize import reduced, wrapped
from tacit.secure.secagg import Opener, VoidRound
from tacit.secure.traffic import Traffic


def simulated_total(
    line: Line,
    request: Request,
    grid: Grid,
    aggregation: Aggregation,
    facts: Facts,
    dropout: float,
    size: int,
    traffic: Traffic | None = None,
) -> tuple[int, Array] | None:
    """How many contributed, and their sum mod 2^bits with the noise that their shares would leave.

    None where too few stayed. Single contributions are seen by nobody but this function, which stands for the parties;
    `traffic` is what the protocol would cost each of them beside its contribution.
    """

    def compute() -> dict[str, Value]:
        attendance = Attendance.draw(facts, dropout, request.round, line.calls)
        everybody = dict.fromkeys((member.name for member in facts.roster), request)
        heard = line.exchange(everybody, attendance, View.HIDDEN, grid.bits)
        contributors = sum(answer.contributors for answer, _body in heard)
        if traffic is not None:
            line.count_protocol(request, traffic, attendance)
        if contributors < max(1, aggregation.fewest):
            return {"contributors": contributors}
        variance = (aggregation.noise(grid.sigma, contributors) / grid.rounding.step) ** 2
        purpose = ("sum noise", request.step, request.round, request.hash)
        total = added_noise(variance, size, Seeded(stream_key(facts.seed, *purpose)), grid.bits)
        for _answer, body in heard:
            total += unpack(body[SEALED], size, grid.bits)
        return {"contributors": contributors, "total": pack(reduced(total, grid.bits), grid.bits)}

    result = line.call(f"{request.round}/{request.step}/sum/{request.attempt}", request.hash, compute)
    if "total" not in result:
        return None
    return result["contributors"], unpack(result["total"], size, grid.bits)


class MaskedSums:
    """The coordinator's side of secure sums: five exchanges, each logged, so that a run can be resumed in between.

    Parameters
    ----------
    line : to the parties
    circle : who takes part, and under which terms

    What a party sends that is not as agreed is left out under its name, and the sum goes on without it; `rejected`
    tells whose and why.
    """

    def __init__(self, line: Line, circle: Circle, facts: Facts) -> None:
        self._line, self._circle, self._facts = line, circle, facts
        self.rejected: dict[str, str] = {}

    def noised_total(self, request: Request, grid: Grid, size: int, dropout: float) -> tuple[int, Array] | None:
        """How many stayed, and their sum mod 2^bits once spare noise is taken out; None where too few stayed."""
        try:
            survivors, total, revealed = self._opened(request, grid.bits, size, dropout)
        except VoidRound:
            return None
        excess = excess_of(revealed, grid, self._circle.shares, size)
        return len(survivors), reduced(total - wrapped(excess, grid.bits), grid.bits)

    def total(self, request: Request, bits: int, size: int) -> tuple[Sequence[str], Array]:
        """Who stayed, and the sum of what they sent, mod 2^bits."""
        survivors, total, _revealed = self._opened(request, bits, size, 0.0)
        return survivors, total

    def _opened(
        self, request: Request, bits: int, size: int, dropout: float
    ) -> tuple[Sequence[str], Array, Mapping[str, Mapping[int, bytes]]]:
        """One sum, opened; what did not fit is noted, whether or not the sum came about."""
        circle = self._circle
        opener = Opener(circle.names, circle.shape, circle.about(request.hash), circle.shares.extras, circle.identities)
        try:
            return self._told(opener, request, bits, size, dropout)
        finally:
            self.rejected.update(opener.rejected)

    def _told(
        self, opener: Opener, request: Request, bits: int, size: int, dropout: float
    ) -> tuple[Sequence[str], Array, Mapping[str, Mapping[int, bytes]]]:
        """The protocol, as Bonawitz et al. 2017 tell it."""
        circle, context = self._circle, {"context": request.hash}
        there = Attendance.over(self._facts, dropout, request.round, self._line.calls, exchanges=5)
        keys = self._say("advertise", request, {name: {**context} for name in circle.names}, there[0])
        sent = opener.keys({name: _bytes(body["keys"]) for name, body in keys.items()})
        letters = self._say("share", request, {n: {**context, **_letters(sent[n])} for n in sent}, there[1])
        mail = opener.mail({name: {to: _bytes(x) for to, x in body.items()} for name, body in letters.items()})
        ready = self._say("collect", request, {n: {**context, **_letters(mail[n])} for n in mail}, there[2])
        for party, body in ready.items():
            for sender in np.array(circle.names)[unmarked(body["rejected"], len(circle.names))]:
                self.rejected[str(sender)] = f"{party} could not open its letter of {sender}, which was damaged."
        if len(ready) < circle.shape.fewest:  # before any vector is asked for, and charged
            raise VoidRound(f"Only {len(ready)} of {len(circle.names)} parties could be masked with each other.")
        survivors, total = self._contributions(request, list(ready), bits, size, there[3])
        listed = opener.survivors(survivors)
        about: dict[str, Value] = {**context, "survivors": marked(listed, circle.names)}
        signatures: dict[str, Value] = {}
        if circle.shape.signed:
            confirmed = self._say("confirm", request, {name: {**about} for name in listed}, there[3])
            signatures = {name: body["signature"] for name, body in confirmed.items()}
        answers = self._say("unmask", request, {name: {**about, **signatures} for name in listed}, there[4])
        opened = opener.unmasked(total, {name: _bytes(body["answer"]) for name, body in answers.items()}, bits)
        return listed, opened.total, opened.extras

    def _say(
        self, exchange: str, request: Request, payloads: Mapping[str, Mapping[str, Value]], there: Attendance
    ) -> dict[str, dict[str, Any]]:
        """One exchange: to each its own payload; what came back, by party. Logged."""
        bodies = {name: encode(payload) for name, payload in payloads.items()}
        requests = {
            name: Request(
                request.method,
                request.parameters,
                f"{exchange}:{request.step}",
                request.round,
                request.attempt,
                body,
            )
            for name, body in bodies.items()
        }

        def compute() -> dict[str, Value]:
            heard = self._line.exchange(requests, there, rejected=self.rejected)
            return _gathered({answer.party: answer.body for answer, _body in heard}, self._circle.names)

        whole = hashlib.sha256("|".join(sorted(asked.hash for asked in requests.values())).encode()).hexdigest()
        result = self._line.call(f"{request.round}/{request.step}/{exchange}/{request.attempt}", whole, compute)
        return {party: decode(body) for party, body in _parted(result, self._circle.names).items()}

    def _contributions(
        self, request: Request, names: Sequence[str], bits: int, size: int, there: Attendance
    ) -> tuple[list[str], Array]:
        """Whose masked vectors arrived, and their sum: more of them is not needed, nor kept."""

        def compute() -> dict[str, Value]:
            heard = self._line.exchange(dict.fromkeys(names, request), there, View.MASKED, bits, rejected=self.rejected)
            total = np.zeros(size, dtype=words(bits))
            for _answer, body in heard:
                total += unpack(body[SEALED], size, bits)
            arrived = {answer.party for answer, _body in heard}
            return {"survivors": marked(arrived, self._circle.names), "total": pack(reduced(total, bits), bits)}

        key = f"{request.round}/{request.step}/sum/{request.attempt}"
        result = self._line.call(key, request.hash, compute)
        here = unmarked(result["survivors"], len(self._circle.names))
        survivors = [name for name, stayed in zip(self._circle.names, here, strict=True) if stayed]
        return survivors, unpack(result["total"], size, bits)


def _gathered(bodies: Mapping[str, bytes], roster: Sequence[str]) -> dict[str, Value]:
    """Many parties' answers as one result: who answered, how long, and all bytes; names would fill a header."""
    here = [name for name in roster if name in bodies]
    lengths = np.array([len(bodies[name]) for name in here], dtype=np.int64)
    together = np.frombuffer(b"".join(bodies[name] for name in here), dtype=np.uint8)
    return {"who": marked(here, roster), "lengths": lengths, "bodies": together}


def _parted(result: Mapping[str, Any], roster: Sequence[str]) -> dict[str, bytes]:
    """The answers that `_gathered` put together."""
    here = [name for name, there in zip(roster, unmarked(result["who"], len(roster)), strict=True) if there]
    ends = np.cumsum(result["lengths"])
    raw = result["bodies"].tobytes()
    return {name: raw[end - size : end] for name, size, end in zip(here, result["lengths"], ends, strict=True)}


def _letters(letters: Mapping[str, bytes]) -> dict[str, Value]:
    return {name: np.frombuffer(letter, dtype=np.uint8) for name, letter in letters.items()}


def _bytes(value: object) -> bytes:
    if not isinstance(value, np.ndarray):
        raise BadMessage("A letter of a secure sum is not a string of bytes.")
    return value.tobytes()
