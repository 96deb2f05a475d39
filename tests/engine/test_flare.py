"""The engine between organisations is held to the contract that every engine is."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.deploy.local_sites import free_port
from tacit.engine.cells import COORDINATOR, Cell
from tacit.engine.coordinator_channel import TAKEN, CoordinatorChannel, Flare
from tacit.engine.envelope import TimedRequest, answer_content, failure_content, open_message
from tacit.engine.serve import serve_request
from tacit.engine.site_channel import Handlers, SiteChannel
from tacit.errors import TacitError
from tacit.testing.engine_contract import EngineContract

RUN = "run"


class Loop:
    """The channels of one run in one process, over FLARE's cells."""

    def __init__(self, parties, timeout):
        self.parties = {party.name: party for party in parties}
        self.keys = {name: Ed25519PrivateKey.generate() for name in (*self.parties, COORDINATOR)}
        port = free_port()
        self.cell = Cell(COORDINATOR, "localhost", port, None, self.received)
        self.channel = CoordinatorChannel(self.cell, self.keys[COORDINATOR], RUN)
        self.cell.start()
        self.channels = [self.site_channel(name, port) for name in self.parties]
        self.engine = Flare(self.channel, list(self.parties), timeout or 30.0)

    def site_channel(self, name, port):
        def answer(topic, run, content):
            ask = TimedRequest.of(content)
            try:
                return answer_content(serve_request(self.parties[name], ask.request, ask.survivors))
            except TacitError as error:
                return failure_content(error, reveal=True)

        public = self.keys[COORDINATOR].public_key()
        place = (name, "localhost", port, None, self.keys[name], public)
        channel = SiteChannel(*place, Handlers(answer, lambda error: None, lambda: None))
        channel.open()
        self.channel.connected(name, channel.start)
        return channel

    def received(self, sender, topic, body):
        run, content = open_message(body, self.keys[sender].public_key(), sender, COORDINATOR, topic)
        assert run == RUN
        self.channel.replied(sender, content.pop("about"), content)
        return TAKEN

    def close(self):
        self.engine.close()
        for channel in self.channels:
            channel.close()
        self.cell.stop()


class TestFlare(EngineContract):
    @pytest.fixture(autouse=True)
    def loops(self):
        self.loop = None
        yield
        self.end()

    def end(self):
        if self.loop is not None:
            self.loop.close()

    def make(self, parties, timeout=None):
        self.end()
        self.loop = Loop(parties, timeout)
        return self.loop.engine
