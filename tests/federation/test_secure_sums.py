"""Secure sums between a coordinator and its parties: drop-outs, lies, damage, and what the coordinator sees.

The protocol runs as it is, over parties in this process. Where a sum is compared to the last bit, noise is left out.
"""

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from secure_stage import RETRIES, SILOS, Spoiled, Stage, halted, with_list, with_payload
from stated import gate_of, grid_of, promise, step_terms

from tacit.aggregation.ideal import HiddenSum
from tacit.aggregation.secagg import CountedSecAgg, SecAgg
from tacit.boundary.clipped_sums import Clipped
from tacit.boundary.code import SEALED
from tacit.boundary.endpoint import Peers
from tacit.boundary.wire import decode, encode
from tacit.config import RunFile
from tacit.errors import BadMessage, PeerFailed, PrivacyRefused, TacitError
from tacit.federation.calls import Call
from tacit.federation.dropout import Attendance
from tacit.federation.messages import Request
from tacit.prepare.loaded import prepare
from tacit.prepare.simulate import train
from tacit.prepare.simulated_ledgers import Records
from tacit.rng import stream_key
from tacit.secure.masks import pack

EXCHANGES = ("advertise", "share", "collect", "sum", "unmask")
THREE = ("party-1", "party-2", "party-3")


@pytest.fixture
def exact(monkeypatch):
    """Noise is left out; by party, what it added to the sum last."""
    added = {}

    def noted(self, exact, terms, endpoint):
        added[endpoint.party] = exact
        return exact

    monkeypatch.setattr(SecAgg, "noised", noted)
    monkeypatch.setattr(SecAgg, "_excess", lambda self, revealed, call: np.zeros(call.size, dtype=np.int64))
    return added


def absent(monkeypatch, *rounds):
    """For one sum after another, who is gone from which exchange on."""
    queue = list(rounds)

    def over(facts, dropout, round, call, exchanges):
        gone = queue.pop(0) if queue else {}
        away = [{name: np.array([at < EXCHANGES.index(when)]) for name, when in gone.items()} for at in range(5)]
        return [Attendance(each, each) for each in away]

    monkeypatch.setattr(Attendance, "over", over)


@pytest.mark.parametrize(("first", "second"), [*zip(EXCHANGES, EXCHANGES, strict=True), *pairwise(EXCHANGES)])
def test_the_sum_is_that_of_the_survivors_whoever_leaves_when(exact, monkeypatch, first, second):
    absent(monkeypatch, {"party-2": first, "party-7": second})
    stage = Stage()
    gone = {name for name, when in (("party-2", first), ("party-7", second)) if when != "unmask"}
    stage.assert_sum_of([name for name in stage.names if name not in gone], exact)
    assert stage.rejected == {}


def test_a_void_round_is_charged_and_the_next_attempt_is_fresh_and_charged_again(monkeypatch):
    absent(monkeypatch, dict.fromkeys(THREE, "unmask") | dict.fromkeys(("party-4", "party-5", "party-6"), "sum"))
    stage = Stage(retries=1)
    assert stage.sum()[0] == SILOS
    assert (stage.charged("party-8"), stage.charged("party-4")) == ([(1, 0), (1, 1)], [(1, 1)])
    assert len({row.payload for row in stage.ledger("party-8").rows() if row.step == "contribute"}) == 2
    for name in stage.names:
        stage.ledger(name).verify()


def test_too_many_void_rounds_end_the_run_in_one_sentence(monkeypatch):
    absent(monkeypatch, *[dict.fromkeys(THREE, "sum")] * 3)
    stage = Stage(retries=1)
    with pytest.raises(PeerFailed, match=r"Too few parties stayed .* what left is charged") as failed:
        stage.sum()
    assert "\n" not in str(failed.value)
    assert (stage.charged("party-8"), stage.charged("party-1")) == ([(1, 0), (1, 1)], [])


def test_a_void_round_can_be_passed_over_and_costs_nothing_before_a_vector_left(monkeypatch):
    absent(monkeypatch, dict.fromkeys(THREE, "collect"))
    stage = Stage()
    assert stage.sum_unless_void() is None
    assert [stage.charged(name) for name in stage.names] == [[]] * SILOS
    assert stage.sum()[0] == SILOS


def test_no_more_sums_than_were_planned_for():
    """One round and three retries were planned: a fifth sum is refused, whatever it is called."""
    stage = Stage()
    for _ in range(1 + RETRIES):
        stage.sum()
    with pytest.raises(PrivacyRefused, match="guarantee covers 4"):
        stage.sum()
    assert len(stage.charged("party-1")) == 1 + RETRIES


def test_another_request_for_the_same_rounds_vector_is_refused():
    stage, requests = halted("unmask")
    request = requests["contribute"]
    stage.refuses("party-1", replace(request, parameters="others"), "has answered .* for another request")
    with pytest.raises(BadMessage, match="not part of it"):
        stage.parties["party-1"].answer(replace(request, body=encode({"more": 1})))
    assert stage.charged("party-1") == [(1, 0)]


def test_a_second_survivor_list_is_refused_and_the_first_answered_again_with_the_same_bytes():
    """Under the same name, and as another round or attempt, where the party's own memory of the sum must notice."""
    stage, requests = halted("unmask")
    request, another = requests["unmask"], [1] * 7 + [0]
    first, again = (stage.parties["party-1"].answer(request) for _ in range(2))
    assert first.body == again.body
    stage.refuses("party-1", with_list(request, another), "for another request")
    for listed, envelope in ((another, {"round": 2}), (another, {"attempt": 1}), ([1] * 6 + [0, 1], {"round": 3})):
        stage.refuses("party-1", with_list(request, listed, **envelope), "second survivor list|revealed other extras")


@pytest.mark.parametrize(
    ("listed", "words"), [([1] * 5 + [0] * 3, "fewer than the 6"), ([0] + [1] * 7, "not on itself")]
)
def test_a_survivor_list_that_is_too_short_or_leaves_the_party_out_is_refused(listed, words):
    stage, requests = halted("unmask")
    stage.refuses("party-1", with_list(requests["unmask"], listed), words)
    stage.parties["party-1"].answer(requests["unmask"])  # the honest list is answered all the same


def test_other_keys_for_the_same_sum_are_refused():
    stage, requests = halted("collect")
    swapped = {"party-2": decode(requests["share"].body)["party-3"]}
    stage.refuses("party-1", with_payload(requests["share"], swapped), "for another request")
    stage.refuses("party-1", with_payload(requests["share"], swapped, round=2), "which it does once")


def test_a_vector_without_an_exchange_of_keys_does_not_leave():
    stage = Stage()
    with pytest.raises(PrivacyRefused, match="ask for their sum"):
        stage.federation.ask("contribute")
    request = Request("bias", stage.run.bound, "contribute", 1, 0, encode({}))
    with pytest.raises(PrivacyRefused, match="none were agreed on for this request"):
        stage.parties["party-1"].answer(request)
    assert stage.ledger("party-1").rows() == []


def test_a_sum_is_begun_once_and_in_order():
    """Neither another sum nor a later request makes a party draw keys again for one that it knows."""
    stage, everyone = Stage(), np.packbits(np.ones(SILOS, dtype=bool))
    stage.sum()

    def exchange(name, context, number, **payload):
        body = encode({"context": context, **payload})
        return Request("bias", "", f"{name}:contribute", number, 0, body)

    vector = next(row for row in stage.ledger("party-1").rows() if row.step == "contribute")
    stage.refuses("party-1", exchange("unmask", "ab" * 32, 6, survivors=everyone), "did not begin")
    stage.parties["party-1"].answer(exchange("advertise", "cd" * 32, 7))  # another sum is now the one under way
    stage.refuses("party-1", exchange("advertise", vector.request, 8), "seals nothing twice")
    stage.refuses("party-1", exchange("advertise", "cd" * 32, 9), "begins none twice")
    stage.refuses("party-1", exchange("unmask", "cd" * 32, 10, survivors=everyone), "refuses an exchange")


def test_a_secure_sum_is_bound_to_its_run():
    stage = Stage()
    one, other = (stage.run.how._sum(Peers(run, stage.names), "ab" * 32) for run in ("run", "another"))
    assert one.binding != other.binding


SPOILS = {
    "flipped": lambda body: body[:-1] + bytes([body[-1] ^ 1]),
    "truncated": lambda body: body[:-9],
    "empty": lambda body: b"",
    "longer": lambda body: body + b"x",
    "another": lambda body: encode({"done": True}),
}
DAMAGED = [(e, s, False) for e in EXCHANGES for s in SPOILS if s in ("flipped", "truncated") or e in ("share", "sum")]
FORGED = [(e, s, True) for e in EXCHANGES for s in ("truncated", "another") if e != "sum"]


@pytest.mark.parametrize(("exchange", "spoil", "forged"), [*DAMAGED, *FORGED])
def test_a_bad_answer_is_left_out_under_its_name_and_the_run_continues(exact, exchange, spoil, forged):
    """Damaged on its way, or sent malformed by a party whose ledger fits it."""
    stage = Stage(engine=lambda engine: Spoiled(engine, "party-3", exchange, SPOILS[spoil], forged))
    stage.assert_sum_of([name for name in stage.names if name != "party-3" or exchange == "unmask"], exact)
    assert set(stage.rejected) == {"party-3"}
    assert "party-3" in stage.rejected["party-3"]
    assert len(stage.finish()) >= SILOS - 1 + forged
    assert stage.sum()[0] == SILOS


def test_mail_that_a_party_cannot_open_is_reported_by_its_senders_name(exact, monkeypatch):
    """party-2 writes nonsense to party-1, which only party-1 can notice: the sum continues, with both."""
    real = SecAgg.answer

    def answer(self, exchange, payload, endpoint):
        answered = real(self, exchange, payload, endpoint)
        if exchange == "share" and endpoint.party == "party-2":
            answered["party-1"] = answered["party-1"] ^ np.uint8(1)
        return answered

    monkeypatch.setattr(SecAgg, "answer", answer)
    stage = Stage()
    stage.assert_sum_of(stage.names, exact)
    assert list(stage.rejected) == ["party-2"]
    assert "party-1 could not open the mail of party-2" in stage.rejected["party-2"]


def test_the_digest_leaves_the_protocol_out_and_the_sum_in():
    """Keys and masks are fresh every time, and the noise is seeded: two runs have one digest."""
    stages = [Stage() for _ in range(2)]
    for stage in stages:
        stage.sum()
    masked = [stage.ledger("party-1").rows()[3].payload for stage in stages]
    assert masked[0] != masked[1]
    assert stages[0].transcript.digest == stages[1].transcript.digest


def test_rounding_noise_and_requests_share_no_stream(monkeypatch):
    """Every stream's purpose is another: of rounding and of noise, and of each round's request."""
    purposes = []

    def noted(seed, party, *purpose):
        purposes.append((party, *purpose))
        return stream_key(seed, party, *purpose)

    monkeypatch.setattr("tacit.boundary.base_gate.stream_key", noted)
    stage = Stage()
    stage.sum()
    stage.sum()
    purposes = [purpose for purpose in purposes if purpose[1] in ("noise", "rounding")]
    assert len(purposes) == len(set(purposes)) == 2 * 2 * SILOS
    assert len({purpose[-1] for purpose in purposes}) == 2  # the two rounds' requests
    assert {purpose[1] for purpose in purposes} == {"noise", "rounding"}


def test_the_noise_that_a_simulation_adds_is_bound_to_the_request():
    """Another attempt, payload or round gets other noise, though nothing else differs."""
    stage, size = Stage(), 24
    body = {SEALED: pack(np.zeros(size, dtype=np.uint32), 32)}
    messenger = SimpleNamespace(
        calls=0,
        call=lambda key, request, compute: dict(compute()),
        send=lambda *_: [(SimpleNamespace(contributors=SILOS), body)],
        count_protocol=lambda *_: None,
    )
    secagg = stage.run.how
    terms = replace(stage.plan.terms.steps["contribute"], code=replace(stage.grid, bits=32))
    counted = CountedSecAgg(secagg.setting, SILOS, secagg.tolerate, secagg.colluding)
    totals = set()
    for number, attempt, payload in [(1, 0, {}), (1, 1, {}), (1, 0, {"x": 1}), (2, 0, {})]:
        request = Request("bias", "", "contribute", number, attempt, encode(payload))
        call = Call(messenger, request, terms, stage.facts, Peers("run", stage.names), {"x": (size,)})
        totals.add(tuple(counted.add(call).blocks["x"].tolist()))
    assert len(totals) == 4
    assert all(any(total) for total in totals)


def test_two_rounds_shares_have_nothing_in_common(monkeypatch):
    """Neither the piece that stays nor the seeds of those that may be revealed, for the same party and step."""
    stage, seen, noised = Stage(), [], SecAgg.noised

    def noted(self, exact, terms, endpoint):
        if endpoint.party == "party-1":
            words = endpoint.source("noise", 0).words(4).tolist()  # the piece that stays grows from these
            seen.append((words, self._party(endpoint).extras))
        return noised(self, exact, terms, endpoint)

    monkeypatch.setattr(SecAgg, "noised", noted)
    stage.sum()
    stage.sum()
    (first, extras), (second, others) = seen
    assert first != second
    assert extras
    assert not set(extras) & set(others)


def test_a_share_that_was_drawn_and_never_left_is_charged(monkeypatch):
    stage = Stage()

    def seal(self, vector, terms, endpoint):
        raise PrivacyRefused("planted")

    monkeypatch.setattr(SecAgg, "seal", seal)
    with pytest.raises(TacitError):
        stage.sum()
    charged = [row.spent for row in stage.ledger("party-1").rows() if row.step == "contribute"]
    assert charged == [stage.grid.event(1.0, 1)]


def test_ones_own_noise_on_whole_numbers_is_drawn_anew(tmp_path):
    query = Clipped(("x",), 1.0)
    terms = promise(step_terms(query, 4.0, releases=2, code=grid_of(query, 60, 4.0)))
    gate, bodies = gate_of(tmp_path, terms), []
    for round in (1, 2):
        with gate.serving("tell", round, 0, f"{round:064}"):
            nothing = {"x": np.zeros((1, 60))}, np.ones(1, dtype=np.int64)
            bodies.append(decode(gate.sum(*nothing).body)[SEALED])
    assert np.count_nonzero(bodies[0] != bodies[1]) > 30


def test_a_simulated_sums_noise_is_drawn_anew(tmp_path, monkeypatch):
    drawn, added = [], HiddenSum._shared_noise

    def noted(*given):
        drawn.append(added(*given))
        return drawn[-1].copy()

    monkeypatch.setattr(HiddenSum, "_shared_noise", noted)
    file = RunFile.model_validate(
        {
            "data": {"source": "demo", "users": 20, "items": 8, "ratings": 100},
            "partition": {"by": "device"},
            "method": {"name": "sgdmf", "factors": 2, "rounds": 2},
            "privacy": {"epsilon": 4.0, "delta": 1e-4},
            "aggregation": {"name": "ideal"},
        }
    )
    prepared = prepare(file)
    train(prepared.run, prepared.parties, records=Records.unlimited(prepared.run, tmp_path))
    first, second = drawn
    assert np.count_nonzero(first != second) > 8
