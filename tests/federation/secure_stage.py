"""Eight silos that run `secagg` in this process, a coordinator that can be stopped, and answers that are damaged."""

from dataclasses import replace

import numpy as np
import pytest

from tacit.boundary.ledger import START, next_head
from tacit.boundary.protection import Budget
from tacit.boundary.wire import decode, digest, encode
from tacit.config import AggregationSection, PrivacySection
from tacit.data.public_facts import PublicFacts
from tacit.data.synthetic import demo
from tacit.engine.inprocess import InProcess
from tacit.errors import PrivacyRefused
from tacit.federation import Facts, Transcript
from tacit.methods.bias import BIAS, BiasParameters
from tacit.partition import partition
from tacit.prepare.prepared import PreparedRun, Record
from tacit.testing.adversary import InMemory

SILOS, ITEMS, RETRIES = 8, 12, 3
DATA = demo(users=24, items=ITEMS, ratings=150)


class Stage:
    """Eight silos that can sum four times, of which two may drop out; the coordinator makes `retries` of its own."""

    def __init__(self, payloads=None, engine=lambda engine: engine, retries=0):
        divided = partition(DATA, into=SILOS)
        self.run = PreparedRun.of(
            BIAS,
            BiasParameters(),
            Facts.of(divided, 7),
            privacy=PrivacySection(epsilon=4.0, delta=1e-6),
            aggregation=AggregationSection(name="secagg", tolerate=0.25, collusion=0.1, retries=RETRIES),
            public=PublicFacts(24, ITEMS, DATA.scale, 150),
            run="run",
        )
        self.plan, self.facts = self.run.plan, self.run.facts
        self.names = tuple(member.name for member in self.facts.roster)
        budget = Budget(4.0, self.plan.delta)
        self.parties = {share.name: self.run.party(share, Record(InMemory(share.name), budget)) for share in divided}
        self.transcript, self.grid = Transcript(payloads), self.plan.terms.steps["contribute"].code
        self.engine = engine(InProcess(list(self.parties.values()), workers=1))
        self.federation = self.run.federation(self.engine, transcript=self.transcript)
        self.federation._retries = retries

    @property
    def rejected(self):
        return self.federation.rejected

    def ledger(self, name):
        return self.parties[name].gate.protection.ledger

    def charged(self, name):
        """Round and attempt of every contribution in a party's ledger."""
        return [(row.round, row.attempt) for row in self.ledger(name).rows() if row.step == "contribute"]

    def sum(self):
        """One more round's sum, in steps."""
        (total,) = [self.federation.sum("contribute") for _ in self.federation.rounds(1)]
        flat = np.concatenate([total["errors"], total["weights"]]).astype(np.float64)
        return total.contributors, flat / self.grid.rounding.step

    def sum_unless_void(self):
        (total,) = [self.federation.sum_unless_void("contribute") for _ in self.federation.rounds(1)]
        return total

    def finish(self):
        return self.federation.ask("finish", biases=np.zeros(ITEMS, dtype=np.float32))

    def assert_sum_of(self, names, added):
        """The next sum is that of exactly these parties."""
        contributors, total = self.sum()
        assert contributors == len(names)
        np.testing.assert_array_equal(total, sum(added[name] for name in names))

    def refuses(self, name, request, words):
        """The party refuses, records that, spends nothing, and its ledger still verifies."""
        ledger = self.ledger(name)
        before, rows = ledger.refusals()["number"], len(ledger.rows())
        with pytest.raises(PrivacyRefused, match=words) as refusal:
            self.parties[name].answer(request)
        known = ledger.refusals()
        assert known["number"] == before + 1
        told = known["told"][-1]
        assert (told["step"], told["round"], told["why"]) == (request.step, request.round, str(refusal.value))
        assert len(ledger.rows()) == rows
        ledger.verify()


class Halt(Exception):
    """The coordinator stops here."""


class Watched:
    """An engine that records its requests, and stops before one exchange."""

    def __init__(self, engine, halt):
        self.engine, self.halt, self.requests = engine, halt, {}

    def deliver(self, requests, attendance):
        name = next(iter(requests.values())).step.partition(":")[0]
        self.requests[name] = dict(requests)
        if name == self.halt:
            raise Halt
        return self.engine.deliver(requests, attendance)


def halted(before):
    """A stage whose sum has stopped before an exchange, and party-1's requests so far."""
    stage = Stage(engine=lambda engine: Watched(engine, before))
    with pytest.raises(Halt):
        stage.sum()
    return stage, {name: requests["party-1"] for name, requests in stage.engine.requests.items()}


def with_payload(request, changes, **envelope):
    return replace(request, body=encode({**decode(request.body), **changes}), **envelope)


def with_list(request, listed, **envelope):
    """The same request for another survivor list."""
    return with_payload(request, {"survivors": np.packbits(np.array(listed, dtype=bool))}, **envelope)


class Spoiled:
    """An engine that damages one answer of one party, once. With `forged` the party itself lies: its ledger's hashes
    fit what it sends, then and ever after."""

    def __init__(self, engine, party, exchange, spoil, forged=False):
        self.engine, self.party, self.exchange, self.spoil, self.forged = engine, party, exchange, spoil, forged
        self.head, self.done = START, False

    def deliver(self, requests, attendance):
        return [self._sent(answer, requests[answer.party]) for answer in self.engine.deliver(requests, attendance)]

    def _sent(self, answer, request):
        if answer.party != self.party or answer.status != "ok":
            return answer
        name = {"contribute": "sum"}.get(request.step, request.step.partition(":")[0])
        if name == self.exchange and not self.done:
            self.done, answer = True, replace(answer, body=self.spoil(answer.body))
        if self.forged:
            payload = digest(answer.body)
            self.head = next_head(self.head, answer.event, request.hash, payload)
            answer = replace(answer, payload=payload, head=self.head)
        return answer
