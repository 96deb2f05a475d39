"""Secure sums between a coordinator and its parties: what is refused and recorded, what is tampered with, what is seen.

The protocol runs as it is, over parties in this process. Where a sum is compared to the last bit, noise is left out.
"""

import json
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from stated import InMemory

from tacit.aggregation.secagg import CountedSecAgg, SecAgg
from tacit.boundary.code import SEALED
from tacit.boundary.endpoint import Peers
from tacit.boundary.ledger import START, next_head
from tacit.boundary.protection import Budget, Protection
from tacit.boundary.wire import decode, digest, encode
from tacit.config import AggregationSection, PrivacySection
from tacit.data.public_facts import PublicFacts
from tacit.data.synthetic import demo
from tacit.engine.inprocess import InProcess
from tacit.errors import BadMessage, PeerFailed, PrivacyRefused, TamperingFound
from tacit.federation import Facts, Transcript
from tacit.federation.calls import Call
from tacit.federation.dropout import Attendance
from tacit.federation.messages import Request
from tacit.methods.bias import BIAS, BiasParameters
from tacit.partition import partition
from tacit.prepare.prepared import PreparedRun, Record
from tacit.secure.masks import pack

SILOS, ITEMS, RETRIES = 8, 12, 3
DATA = demo(users=24, items=ITEMS, ratings=150)
EXCHANGES = ("advertise", "share", "collect", "sum", "unmask")


class Stage:
    """Eight silos that can sum four times, of which two may drop out, and a coordinator that retries less often."""

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
        self.transcript = Transcript(payloads)
        self.grid = self.plan.terms.steps["contribute"].code
        self.federation = self.run.federation(
            engine(InProcess(list(self.parties.values()), workers=1)), transcript=self.transcript
        )
        self.federation._retries = retries

    @property
    def rejected(self):
        return self.federation.rejected

    def ledger(self, name):
        return self.parties[name].gate.protection.ledger

    def sum(self):
        """One more round's sum, in steps."""
        (total,) = [self.federation.sum("contribute") for _ in self.federation.rounds(1)]
        flat = np.concatenate([total["errors"], total["weights"]]).astype(np.float64)
        return total.contributors, flat / self.grid.rounding.step


@pytest.fixture
def exact(monkeypatch):
    """Noise is left out; by party, what it added to the sum last."""
    added = {}

    def noted(self, exact, terms, endpoint):
        added[endpoint.party] = exact
        return exact

    monkeypatch.setattr(SecAgg, "noised", noted)
    monkeypatch.setattr(SecAgg, "_excess", lambda self, revealed, talk: np.zeros(talk.size, dtype=np.int64))
    return added


def total_of(added, names):
    return sum(added[name] for name in names)


# -- drop-outs, void rounds, retries ------------------------------------------------------------------------------


def absent(monkeypatch, *rounds):
    """For one sum after another, who is gone from which exchange on."""
    queue = list(rounds)

    def over(facts, dropout, round, call, exchanges):
        gone = queue.pop(0) if queue else {}
        away = [{name: np.array([at < EXCHANGES.index(when)]) for name, when in gone.items()} for at in range(5)]
        return [Attendance(each, each) for each in away]

    monkeypatch.setattr(Attendance, "over", over)


def charged(stage, name):
    """How many contributions of a party are in its ledger."""
    return [(row.round, row.attempt) for row in stage.ledger(name).rows() if row.step == "contribute"]


@pytest.mark.parametrize(("first", "second"), [*zip(EXCHANGES, EXCHANGES, strict=True), *pairwise(EXCHANGES)])
def test_the_sum_is_that_of_the_survivors_whoever_leaves_when(exact, monkeypatch, first, second):
    absent(monkeypatch, {"party-2": first, "party-7": second})
    stage = Stage()
    contributors, total = stage.sum()
    left = {name for name, when in (("party-2", first), ("party-7", second)) if when != "unmask"}
    stayed = [name for name in stage.names if name not in left]
    assert contributors == len(stayed)
    np.testing.assert_array_equal(total, total_of(exact, stayed))
    assert stage.rejected == {}


def test_a_void_round_is_charged_and_the_next_attempt_is_fresh_and_charged_again(monkeypatch):
    absent(
        monkeypatch,
        dict.fromkeys(("party-1", "party-2", "party-3"), "unmask")
        | {"party-4": "sum", "party-5": "sum", "party-6": "sum"},
    )
    stage = Stage(retries=1)
    contributors, _total = stage.sum()
    assert contributors == SILOS
    assert charged(stage, "party-8") == [(1, 0), (1, 1)]
    assert charged(stage, "party-4") == [(1, 1)]
    sent = [row.payload for row in stage.ledger("party-8").rows() if row.step == "contribute"]
    assert len(set(sent)) == 2
    for name in stage.names:
        stage.ledger(name).verify()


def test_too_many_void_rounds_end_the_run_in_one_sentence(monkeypatch):
    gone = dict.fromkeys(("party-1", "party-2", "party-3"), "sum")
    absent(monkeypatch, gone, gone, gone)
    stage = Stage(retries=1)
    with pytest.raises(PeerFailed, match=r"Too few parties stayed .* what left is charged") as failed:
        stage.sum()
    assert "\n" not in str(failed.value)
    assert charged(stage, "party-8") == [(1, 0), (1, 1)]
    assert charged(stage, "party-1") == []


def test_a_void_round_can_be_passed_over(monkeypatch):
    absent(monkeypatch, dict.fromkeys(("party-1", "party-2", "party-3"), "sum"))
    stage = Stage()
    assert [stage.federation.sum_unless_void("contribute") for _ in stage.federation.rounds(1)] == [None]
    assert stage.sum()[0] == SILOS


def test_no_more_sums_than_were_planned_for():
    """One round and three retries were planned: a fifth sum is refused, whatever it is called."""
    stage = Stage()
    for _ in range(1 + RETRIES):
        stage.sum()
    with pytest.raises(PrivacyRefused, match="guarantee covers 4"):
        stage.sum()
    assert len(charged(stage, "party-1")) == 1 + RETRIES


# -- what a lying coordinator asks --------------------------------------------------------------------------------


class Halt(Exception):
    """The coordinator stops here, and goes on by hand."""


class Watched:
    """An engine that keeps what it was asked, and stops before one exchange."""

    def __init__(self, engine, halt=None):
        self.engine, self.halt, self.asked = engine, halt, {}

    def deliver(self, requests, attendance):
        name = next(iter(requests.values())).step.partition(":")[0]
        if name == self.halt:
            self.asked[name] = dict(requests)
            raise Halt
        self.asked[name] = dict(requests)
        return self.engine.deliver(requests, attendance)


def halted(before):
    """A stage whose sum has stopped before an exchange, and the requests so far."""
    stage = Stage(engine=lambda engine: Watched(engine, before))
    with pytest.raises(Halt):
        stage.sum()
    return stage, stage.federation._messenger.engine.asked


def with_list(request, marked, **changes):
    """The same request for another survivor list."""
    payload = {**decode(request.body), "survivors": np.packbits(np.array(marked, dtype=bool))}
    return replace(request, body=encode(payload), **changes)


def refused(stage, name, request, words):
    """The party refuses, says so in its ledger, spends nothing, and its ledger is still whole."""
    party, ledger = stage.parties[name], stage.ledger(name)
    before, rows = ledger.refusals()["number"], len(ledger.rows())
    with pytest.raises(PrivacyRefused, match=words) as refusal:
        party.answer(request)
    known = ledger.refusals()
    assert known["number"] == before + 1
    told = known["told"][-1]
    assert (told["step"], told["round"], told["why"]) == (request.step, request.round, str(refusal.value))
    assert len(ledger.rows()) == rows
    ledger.verify()


def test_another_request_for_the_same_rounds_vector_is_refused():
    stage, asked = halted("unmask")
    request = asked["contribute"]["party-1"]
    refused(stage, "party-1", replace(request, parameters="others"), "has answered .* for another request")
    same = stage.parties["party-1"]
    with pytest.raises(BadMessage, match="not part of it"):
        same.answer(replace(request, body=encode({"more": 1})))
    assert charged(stage, "party-1") == [(1, 0)]


def test_a_second_survivor_list_is_refused():
    """Under the same name, and as another round or attempt, where the party's own memory of the sum must notice."""
    stage, asked = halted("unmask")
    request = asked["unmask"]["party-1"]
    first = stage.parties["party-1"].answer(request)
    again = stage.parties["party-1"].answer(request)
    assert first.body == again.body
    another = [1] * 7 + [0]
    refused(stage, "party-1", with_list(request, another), "for another request")
    refused(stage, "party-1", with_list(request, another, round=2), "second survivor list|revealed other extras")
    refused(stage, "party-1", with_list(request, another, attempt=1), "second survivor list|revealed other extras")
    same_spare = [1] * 6 + [0, 1]
    refused(stage, "party-1", with_list(request, same_spare, round=3), "second survivor list|revealed other extras")
    assert stage.ledger("party-1").refusals()["number"] == 4


def test_a_second_survivor_list_of_the_same_length_is_refused():
    """It would reveal the same pieces of noise, so that the list alone tells."""
    stage, asked = halted("unmask")
    request = asked["unmask"]["party-1"]
    stage.parties["party-1"].answer(with_list(request, [1] * 7 + [0]))
    refused(stage, "party-1", with_list(request, [1] * 6 + [0, 1], round=2), "second survivor list")


@pytest.mark.parametrize("marked", [[1] * 5 + [0] * 3, [1] + [0] * 7, [0] * 8])
def test_a_survivor_list_below_the_fewest_is_refused(marked):
    stage, asked = halted("unmask")
    refused(stage, "party-1", with_list(asked["unmask"]["party-1"], marked), "fewer than the 6")
    stage.parties["party-1"].answer(asked["unmask"]["party-1"])  # the honest list is answered all the same


def test_a_survivor_list_without_oneself_is_refused():
    stage, asked = halted("unmask")
    refused(stage, "party-1", with_list(asked["unmask"]["party-1"], [0] + [1] * 7), "not on itself")


def test_other_keys_for_the_same_sum_are_refused():
    stage, asked = halted("collect")
    request = asked["share"]["party-1"]
    payload = decode(request.body)
    swapped = {**payload, "party-2": payload["party-3"]}
    refused(stage, "party-1", replace(request, body=encode(swapped)), "for another request")
    refused(stage, "party-1", replace(request, body=encode(swapped), round=2), "which it does once")


def test_an_exchange_about_a_sum_that_was_not_begun_is_refused():
    stage, asked = halted("unmask")
    request = asked["unmask"]["party-1"]
    other = {**decode(request.body), "context": "ab" * 32}
    refused(stage, "party-1", replace(request, body=encode(other), round=2), "did not begin")


def test_a_vector_without_an_exchange_of_keys_does_not_leave():
    stage = Stage()
    request = Request("bias", stage.run.bound, "contribute", 1, 0, encode({}))
    with pytest.raises(PrivacyRefused, match="none were agreed on for this request"):
        stage.parties["party-1"].answer(request)
    assert stage.ledger("party-1").rows() == []


def test_single_contributions_cannot_be_asked_for():
    stage = Stage()
    with pytest.raises(PrivacyRefused, match="ask for their sum"):
        stage.federation.ask("contribute")


def test_a_tampered_refusal_is_found():
    """Another reason, one forgotten, or none at all: the first page is sealed."""
    for change in (
        lambda known: known["told"][0].update(why="nothing"),
        lambda known: known["told"].clear(),
        lambda known: known.update(number=0),
    ):
        stage, asked = halted("unmask")
        refused(stage, "party-1", with_list(asked["unmask"]["party-1"], [1] + [0] * 7), "fewer than")
        ledger = stage.ledger("party-1")
        known = ledger.refusals()
        change(known)
        ledger._database.execute(
            "update about set value = ? where name = 'refusals'", (json.dumps(known, sort_keys=True),)
        )
        with pytest.raises(TamperingFound, match="first page"):
            ledger.verify()
    ledger._database.execute("delete from about where name = 'refusals'")
    with pytest.raises(TamperingFound, match="first page"):
        ledger.verify()


# -- answers that were tampered with ------------------------------------------------------------------------------


class Spoiled:
    """An engine that spoils what one party answers at one exchange, once. With `forged` the party itself lies: its
    ledger's hashes fit what it sends, then and ever after."""

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


def flipped(body):
    return body[:-1] + bytes([body[-1] ^ 1])


SPOILS = {
    "flipped": flipped,
    "truncated": lambda body: body[:-9],
    "empty": lambda body: b"",
    "longer": lambda body: body + b"x",
    "another": lambda body: encode({"done": True}),
}


@pytest.mark.parametrize(
    ("exchange", "spoil"),
    [(e, s) for e in EXCHANGES for s in SPOILS if s in ("flipped", "truncated") or e in ("share", "sum")],
)
def test_a_damaged_answer_is_left_out_under_its_name(exact, exchange, spoil):
    stage = Stage(engine=lambda engine: Spoiled(engine, "party-3", exchange, SPOILS[spoil]))
    contributors, total = stage.sum()
    stayed = [name for name in stage.names if name != "party-3" or exchange == "unmask"]
    assert contributors == len(stayed)
    np.testing.assert_array_equal(total, total_of(exact, stayed))
    assert set(stage.rejected) == {"party-3"}
    assert "party-3" in stage.rejected["party-3"]


@pytest.mark.parametrize("exchange", ["advertise", "share", "collect", "unmask"])
@pytest.mark.parametrize("spoil", ["truncated", "another"])
def test_a_malformed_answer_of_a_party_that_lies_is_left_out_under_its_name(exact, exchange, spoil):
    stage = Stage(engine=lambda engine: Spoiled(engine, "party-3", exchange, SPOILS[spoil], forged=True))
    contributors, total = stage.sum()
    stayed = [name for name in stage.names if name != "party-3" or exchange == "unmask"]
    assert contributors == len(stayed)
    np.testing.assert_array_equal(total, total_of(exact, stayed))
    assert set(stage.rejected) == {"party-3"}
    assert len(stage.federation.ask("finish", biases=np.zeros(ITEMS, dtype=np.float32))) == SILOS


def test_nobody_is_rejected_where_nobody_tampers(exact):
    stage = Stage()
    contributors, total = stage.sum()
    assert (contributors, stage.rejected) == (SILOS, {})
    np.testing.assert_array_equal(total, total_of(exact, stage.names))


# -- what the coordinator sees ------------------------------------------------------------------------------------


def test_the_transcript_holds_no_numbers_of_a_single_party(tmp_path):
    stage = Stage(payloads=tmp_path)
    stage.sum()
    stage.federation.ask("finish", biases=np.zeros(ITEMS, dtype=np.float32))
    kinds = {}
    for path in tmp_path.glob("*-up-*.tct"):
        call, _up, sender = path.stem.split("-", 2)
        for name, value in decode(path.read_bytes()).items():
            what = value.dtype.name if isinstance(value, np.ndarray) else type(value).__name__
            kinds.setdefault((int(call), "sum" if sender == "sum" else "party"), set()).add((name[:5], what))
    assert kinds == {
        (0, "party"): {("keys", "uint8")},
        (1, "party"): {("party", "uint8")},
        (2, "party"): {("rejec", "uint8")},
        (3, "party"): {("seale", "uint8")},
        (4, "party"): {("answe", "uint8")},
        (4, "sum"): {("error", "float32"), ("weigh", "float32")},
        (5, "party"): {("done", "bool")},
    }
    protocol = {e.step for e in stage.transcript.entries if e.kind == "protocol"}
    assert protocol == {f"{name}:contribute" for name in ("advertise", "share", "collect", "unmask")}


def test_the_digest_leaves_the_protocol_out_and_the_sum_in():
    """Keys and masks are fresh every time, and the noise is seeded: two runs have one digest."""
    stages = [Stage() for _ in range(2)]
    for stage in stages:
        stage.sum()
    masked = [stage.ledger("party-1").rows()[3].payload for stage in stages]
    assert masked[0] != masked[1]
    assert stages[0].transcript.digest == stages[1].transcript.digest


def test_masked_vectors_tell_nothing_of_the_plain_ones(exact, tmp_path):
    """Without noise and with it all the same: the bytes of eight parties' vectors differ from the plain ones in nearly
    all cells, and agree with them no more often than uniform ones would."""
    stage = Stage(payloads=tmp_path)
    stage.sum()
    width = stage.grid.bits // 8
    for name in stage.names:
        sealed = decode((tmp_path / f"000003-up-{name}.tct").read_bytes())["sealed"].reshape(-1, width)
        plain = (exact[name].astype("<i8").view(np.uint8).reshape(-1, 8))[:, :width]
        assert np.count_nonzero((sealed == plain).all(axis=1)) <= 1


# -- not so yet ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exchange", ["share", "collect", "sum", "unmask"])
def test_a_run_goes_on_after_an_answer_was_damaged_on_its_way(exchange):
    """`Line` keeps the head before the damaged answer, so the party's next answer, though genuine, "does not go on"."""
    stage = Stage(engine=lambda engine: Spoiled(engine, "party-3", exchange, flipped))
    stage.sum()
    assert len(stage.federation.ask("finish", biases=np.zeros(ITEMS, dtype=np.float32))) >= SILOS - 1
    assert stage.sum()[0] == SILOS


def test_a_round_that_is_void_before_any_vector_left_costs_nothing(monkeypatch):
    """Three of eight leave while shares are collected, and at most two may: no sum of this attempt can be opened."""
    absent(monkeypatch, dict.fromkeys(("party-1", "party-2", "party-3"), "collect"))
    stage = Stage()
    assert [stage.federation.sum_unless_void("contribute") for _ in stage.federation.rounds(1)] == [None]
    assert [charged(stage, name) for name in stage.names] == [[]] * SILOS


# -- a sum is begun once, and in order ------------------------------------------------------------------------------


def asked(stage, exchange, context, number, **payload):
    """One exchange, as a coordinator may ask for it in any round."""
    body = encode({"context": context, **payload})
    return stage.parties["party-1"].answer(Request("bias", "", f"{exchange}:contribute", number, 0, body))


def test_keys_for_a_sum_that_is_under_way_are_not_drawn_again():
    stage, context = Stage(), "ab" * 32
    asked(stage, "advertise", context, 1)
    with pytest.raises(PrivacyRefused, match="begins none twice"):
        asked(stage, "advertise", context, 2)
    assert "begins none twice" in stage.ledger("party-1").refusals()["told"][-1]["why"]


def test_keys_for_a_vector_that_left_are_not_drawn_again():
    stage = Stage()
    stage.sum()
    vector = next(row for row in stage.ledger("party-1").rows() if row.step == "contribute")
    asked(stage, "advertise", "cd" * 32, 7)  # another sum, so that the first is not the one under way
    with pytest.raises(PrivacyRefused, match="seals nothing twice"):
        asked(stage, "advertise", vector.request, 8)
    assert stage.ledger("party-1").refusals()["number"] == 1


def test_an_exchange_out_of_order_is_refused_and_recorded():
    stage, context = Stage(), "ef" * 32
    asked(stage, "advertise", context, 1)
    with pytest.raises(PrivacyRefused, match="refuses an exchange"):
        asked(stage, "unmask", context, 1, survivors=np.packbits(np.ones(SILOS, dtype=bool)))
    assert stage.ledger("party-1").refusals()["number"] == 1
    assert stage.ledger("party-1").verify()


def test_a_signed_or_masked_message_of_another_run_serves_nobody():
    """The run is part of what keys, shares and signatures are bound to."""
    stage = Stage()
    one, other = (stage.run.how._sum(Peers(run, stage.names), "ab" * 32, None) for run in ("run", "another"))
    assert one != other


# -- coins and noise -------------------------------------------------------------------------------------------------


def test_rounding_noise_and_requests_share_no_stream(monkeypatch):
    """Every stream's purpose is another: of rounding and of noise, and of each round's request."""
    purposes, real = [], Protection.source

    def noted(self, *purpose):
        purposes.append((self.ledger.party, *purpose))
        return real(self, *purpose)

    monkeypatch.setattr(Protection, "source", noted)
    stage = Stage()
    stage.sum()
    stage.sum()
    assert len(purposes) == len(set(purposes)) == 2 * 2 * SILOS
    hashes = {purpose[-1] for purpose in purposes}
    assert len(hashes) == 2  # the two rounds' requests
    assert {purpose[1] for purpose in purposes} == {"noise", "rounding"}


def test_the_noise_that_a_simulation_adds_is_bound_to_the_request():
    """Another attempt, payload or round meets other noise, though nothing else differs."""
    stage, size = Stage(), 24
    body = {SEALED: pack(np.zeros(size, dtype=np.uint32), 32)}

    class Messenger:
        calls = 0

        def call(self, key, request, compute):
            return dict(compute())

        def send(self, requests, *_):
            return [(SimpleNamespace(contributors=SILOS), body)]

        def count_protocol(self, *_):
            pass

    secagg = stage.run.how
    terms = replace(stage.plan.terms.steps["contribute"], code=replace(stage.grid, bits=32))
    counted = CountedSecAgg(secagg.setting, SILOS, secagg.tolerate, secagg.colluding)
    asked = [(1, 0, {}), (1, 1, {}), (1, 0, {"x": 1}), (2, 0, {})]
    totals = []
    for number, attempt, payload in asked:
        request = Request("bias", "", "contribute", number, attempt, encode(payload))
        talk = Call(Messenger(), request, terms, stage.facts, Peers("run", stage.names), {"x": (size,)})
        totals.append(tuple(counted.add(talk).blocks["x"].tolist()))
    assert len(set(totals)) == len(asked)
    assert all(any(total) for total in totals)


# -- letters that nobody can open ------------------------------------------------------------------------------------


def test_a_letter_that_a_party_cannot_open_is_told_by_its_senders_name(exact, monkeypatch):
    """party-2 writes nonsense to party-1, which only party-1 can notice: the sum goes on, with both."""
    real = SecAgg.answer

    def answer(self, exchange, payload, endpoint):
        answered = real(self, exchange, payload, endpoint)
        if exchange == "share" and endpoint.party == "party-2":
            answered["party-1"] = answered["party-1"] ^ np.uint8(1)
        return answered

    monkeypatch.setattr(SecAgg, "answer", answer)
    stage = Stage()
    contributors, total = stage.sum()
    assert contributors == SILOS
    assert_array_equal(np.rint(total), sum(exact.values()))
    assert list(stage.federation.rejected) == ["party-2"]
    assert "party-1 could not open the mail of party-2" in stage.federation.rejected["party-2"]
