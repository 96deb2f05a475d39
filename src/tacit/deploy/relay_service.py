"""The part of the proxy's service that carries messages between the coordinator and devices without reading them.

    POST /notices/TOPIC      the coordinator posts a message, once for all devices of its run
    POST /notices            the coordinator says which certificates may read it
    GET  /notices?after=N    a device reads the next message; the answer waits until there is one
    POST /letters/TOPIC      a device's letter to the coordinator; the answer waits for the coordinator's
    POST /letters            the coordinator's answer to the letter before, if any; it gets the next one

Messages and letters are signed by their senders, for their readers to check. They are in memory only.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from time import time_ns

import numpy as np
from aiohttp import web

from tacit.boundary.wire import Value, encode
from tacit.engine.board import Board, NoAnswer, Notice
from tacit.errors import BadMessage

#: Seconds for the body of one request, for the next message or letter, and for the coordinator's answer to a letter.
BODY, POLL, ANSWERED = 30.0, 20.0, 10.0
#: Bytes of one letter and of all of them.
MOST_LETTER, MOST_LETTERS = 2**20, 2**28


@dataclass
class _Letter:
    sender: str
    topic: str
    body: bytes
    answer: asyncio.Future[bytes]


class Relay:
    """The board and the open letters of one proxy."""

    def __init__(self) -> None:
        self._board = Board(time_ns())
        self._posted: dict[str, asyncio.Event] = defaultdict(asyncio.Event)  # by device: something new is for it
        self._letters: dict[int, _Letter] = {}  # by number, those without an answer
        self._waiting: list[int] = []  # those that the coordinator does not have yet
        self._written, self._number = asyncio.Event(), 0

    # -- the coordinator's messages ---------------------------------------------------------------------------

    async def post(self, request: web.Request) -> web.StreamResponse:
        self._board.post(request.match_info["topic"], await asyncio.wait_for(request.read(), BODY))
        return web.Response(status=204)

    async def address(self, request: web.Request) -> web.StreamResponse:
        table = json.loads(await asyncio.wait_for(request.read(), BODY))
        digest, devices = (table.get(name) for name in ("digest", "devices")) if isinstance(table, dict) else ("", None)
        if not isinstance(devices, list) or not all(type(one) is str and len(one) == 64 for one in devices):
            raise BadMessage("The list of certificates is not one; nothing was done.")
        self._board.address(str(digest), devices)
        for device in devices:
            if device in self._posted:
                self._posted[device].set()
        return web.Response(status=204)

    async def read(self, device: str, after: str) -> web.StreamResponse:
        """The next message for a device; an empty body while there is none."""
        number, notice = int(after), None
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL):
                while (notice := self._board.after(device, number)) is None:
                    self._posted[device].clear()
                    await self._posted[device].wait()
        return web.Response(body=b"" if notice is None else _notice(notice))

    # -- devices' letters -------------------------------------------------------------------------------------

    async def write(self, sender: str, request: web.Request) -> web.StreamResponse:
        """A device's letter, with the coordinator's answer; a newer one of the same topic takes its place."""
        if (request.content_length or MOST_LETTER + 1) > MOST_LETTER:
            raise BadMessage(f"A letter states its size, and has at most {MOST_LETTER:,} bytes; it was not read.")
        topic, body = request.match_info["topic"], await asyncio.wait_for(request.read(), BODY)
        for number, held in list(self._letters.items()):
            if (held.sender, held.topic) == (sender, topic):
                self._drop(number)
        if sum(len(held.body) for held in self._letters.values()) + len(body) > MOST_LETTERS:
            raise NoAnswer("There is no room for more letters now; send it again later.")
        self._number += 1
        number, letter = self._number, _Letter(sender, topic, body, asyncio.get_running_loop().create_future())
        self._letters[number] = letter
        self._waiting.append(number)
        self._written.set()
        try:
            return web.Response(body=await asyncio.wait_for(letter.answer, ANSWERED))
        except (TimeoutError, asyncio.CancelledError):
            raise NoAnswer("The coordinator does not answer now; send the letter again.") from None
        finally:
            self._drop(number)

    async def collect(self, request: web.Request) -> web.StreamResponse:
        """Take the answer to one letter, and hand over the next; without one after a while, the board's start alone."""
        body = await asyncio.wait_for(request.read(), BODY)
        letter = self._letters.get(int.from_bytes(body[:8], "little")) if body else None
        if letter is not None and not letter.answer.done():
            letter.answer.set_result(body[8:])
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL):
                while not self._waiting:
                    self._written.clear()
                    await self._written.wait()
        content: dict[str, Value] = {"board": str(self._board.first)}
        if self._waiting:
            number = self._waiting.pop(0)
            letter = self._letters[number]
            payload = np.frombuffer(letter.body, dtype=np.uint8)
            content |= {"number": number, "sender": letter.sender, "topic": letter.topic, "body": payload}
        return web.Response(body=encode(content))

    def _drop(self, number: int) -> None:
        letter = self._letters.pop(number, None)
        if letter is not None:
            letter.answer.cancel()
        with suppress(ValueError):
            self._waiting.remove(number)


def _notice(notice: Notice) -> bytes:
    payload = np.frombuffer(notice.message, dtype=np.uint8)
    return encode({"number": str(notice.number), "topic": notice.topic, "body": payload})
