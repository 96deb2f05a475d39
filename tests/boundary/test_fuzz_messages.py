"""100,000 forged requests and answers: each is rejected in one sentence, and costs no memory worth the name.

Half of them reach a private party as requests, half reach the coordinator as answers. Whatever is accepted must be what
the schema agreed on, checked here by other means; everything else must be one of Tacit's errors, on one line. The tests
at the end break a check on purpose, and the same forgeries then find it.
"""

import json
import math
import random
import tracemalloc

import numpy as np
import pytest
from forgeries import FORGERIES, damaged, forged
from stated import gate_of, nothing_promised, promise, step_terms

from tacit.aggregation.plain import Plain
from tacit.boundary.clipped_sums import Normalised
from tacit.boundary.events import Gaussian
from tacit.boundary.ledger import Ledger, canonical
from tacit.boundary.release import Kind, Release
from tacit.boundary.wire import MAGIC, decode, digest, encode
from tacit.data.synthetic import demo
from tacit.errors import TacitError
from tacit.federation import Answer, Facts, Federation, Request, peer
from tacit.federation import messages as schemas
from tacit.methods.bias import BiasParameters, BiasParty
from tacit.partition import Setting, partition

EACH, SEED, ITEMS = 20_000, 7, 12
LONGEST = 600  # characters of a sentence
PARTIES = partition(demo(users=20, items=ITEMS, ratings=60), into=2)
FACTS = Facts.of(PARTIES, SEED)
EVENT = canonical(Gaussian(2.0))
QUERY = Normalised(("errors", "weights"))
SAID = {"terms": nothing_promised(QUERY, step="contribute"), "how": Plain(Setting.HORIZONTAL, 2)}


F4 = np.zeros(ITEMS, np.float32)
SHAPES = [(2**39, 2**39), (2**40,), (2**31, 2**31, 0), (0,), (-1,), (1.5,), (), (1,) * 9, ("12",)]
DTYPES = ["|O", "<f8", "O", ">f4", "<U9", "", None, 3, "<M8[s]", "<f16"]
HEADERS = [
    *FORGERIES.values(),
    *(forged({n: {"dtype": "<f4", "shape": s}}) for n in ("biases", "errors") for s in SHAPES),
    *(forged({"biases": {"dtype": dtype, "shape": [ITEMS]}}, bytes(200)) for dtype in DTYPES),
    forged({f"n{i}": i for i in range(5000)}),
    b"\x80\x04K\x01.",
    b"PK\x03\x04",
]
BIASES = [1, None, "x" * 9000, True, F4[:-1], F4.astype("<f8"), F4.astype("<i4"), F4.reshape(3, 4),
          F4 + np.float32(np.nan), F4 - np.float32(np.inf)]  # fmt: skip
OTHERS = [{}, {"biases": F4, "more": 1}, {"Biases": F4}, {"errors": F4, "weights": F4[:3]}, {"errors": F4},
          {"self": F4}, {"errors": F4, "weights": F4, "done": True},
          {"errors": F4, "weights": F4 * np.float32(np.nan)}]  # fmt: skip
DONE = [False, 1, "True"]
PAYLOADS = [encode(p) for p in (*OTHERS, *({"biases": x} for x in BIASES), *({"done": x} for x in DONE))]
#: Values that no envelope has: impossible numbers, other types, texts that would fill a screen or control it.
ODD = [-1, 2**31, 2**63, 2**64, 10**40, True, 1.5, math.nan, math.inf, None, "1", b"1", [], {}, (1, 2), np.float32(1),
       "x" * 10**6, "a\nb", "\x1b[2J", "\ud800"]  # fmt: skip


def bent(draw: random.Random, good: bytes) -> bytes:
    """Bytes that are random, prepared, or a good message with something done to it."""
    way = draw.randrange(6)
    if way == 0:
        return draw.randbytes(draw.randrange(200))
    if way == 1:
        return MAGIC + draw.randbytes(draw.randrange(100))
    if way <= 3:
        return draw.choice(HEADERS)
    if way == 4:
        return draw.choice(PAYLOADS)
    return damaged(draw, good)


def complaint(error: BaseException, case: object) -> None:
    """An error must be one of ours, on one short line of printable text."""
    shown = f"{str(case)[:300]} gave {type(error).__name__}: {str(error)[:300]}"
    assert isinstance(error, TacitError), shown
    text = str(error)
    assert 0 < len(text) <= LONGEST, shown
    assert text.isprintable(), shown


def private_party(folder) -> BiasParty:
    terms = promise(step_terms(QUERY, 2.0, step="contribute"), stated=3.0)
    ledger = Ledger(folder / "party-1.sqlite", PARTIES[0].name)
    return BiasParty(PARTIES[0], BiasParameters(), FACTS, gate_of(ledger, terms, budget=9.0))


def forged_request(draw: random.Random) -> Request:
    step = "finish" if draw.random() < 0.8 else "contribute"
    parts = ["bias", "p", step, draw.randrange(30), 0, encode({"biases": F4} if step == "finish" else {})]
    if draw.random() < 0.8:
        parts[5] = bent(draw, parts[5])
    else:
        parts[draw.randrange(6)] = draw.choice(ODD)
    return Request(*parts)


def as_agreed(request: Request) -> bool:
    """Whether a request is one that may be served, by other means than the party's."""
    if type(request.round) is not int or type(request.attempt) is not int or min(request.round, request.attempt) < 0:
        return False
    payload = decode(request.body)
    if request.step == "contribute":
        return payload == {}
    x = payload["biases"]
    return (
        request.step == "finish"
        and list(payload) == ["biases"]
        and x.dtype == np.float32
        and x.shape == (ITEMS,)
        and bool(np.isfinite(x).all())
    )


def ask_party(party: BiasParty, number: int, seed: int = SEED) -> int:
    """Forged requests, one by one; how many were served."""
    draw, served = random.Random(seed), 0
    for _ in range(number):
        request = forged_request(draw)
        try:
            release = party.answer(request)
        except BaseException as error:
            complaint(error, request)
        else:
            served += 1
            assert type(release) is Release, request
            assert as_agreed(request), f"{str(request)[:300]} was served"
    return served


class Forger:
    """An engine whose parties send what they like."""

    def __init__(self) -> None:
        self.answers: object = []

    def deliver(self, requests, participants):
        return self.answers


GOOD = {
    "contribute": (Kind.SUM, encode({"errors": F4, "weights": F4})),
    "finish": (Kind.PUBLIC, encode({"done": True})),
}


def answer(step: str, sender: str, **changes) -> Answer:
    kind, body = GOOD[step]
    named = {"party": sender, "status": "ok", "kind": kind, "body": body, "contributors": 1}
    recorded = {"event": EVENT, "payload": digest(body), "head": "0" * 64}
    return Answer(**{**named, **recorded, **changes})


FIELDS = ("party", "status", "kind", "body", "contributors", "event", "payload", "head", "why")


def forged_answers(draw: random.Random, step: str) -> list:
    honest, changes = answer(step, "party-2"), {}
    if draw.random() < 0.6:
        body = bent(draw, GOOD[step][1])
        changes = {"body": body, "payload": digest(body)}
    elif draw.random() < 0.1:
        refused = [answer(step, "party-1", status="refused", why=draw.choice(ODD))]
        return draw.choice([[honest, honest], [None], [honest, object()], refused])
    else:
        value = draw.choice([*ODD, "party-2", "ok", "lost", "done", Kind.DISCLOSE, 2, 0, 10**6])
        changes = {draw.choice(FIELDS): value}
    return [answer(step, "party-1", **changes), honest]


def agreed_answers(step: str, answers: list) -> bool:
    """Whether answers may be used, by other means than the coordinator's: one per party, whole, well-formed."""
    arrived = [a for a in answers if a.status == "ok"]
    names = [a.party for a in answers]
    sizes = {"contribute": ("errors", "weights"), "finish": ("done",)}[step]
    return (
        len(set(names)) == len(names)
        and all(a.status in ("ok", "lost", "late", "refused") for a in answers)
        and all(type(a.contributors) is int and a.contributors in (0, 1) for a in answers)
        and all(type(x) is str and len(x) in (0, 64) for a in answers for x in (a.payload, a.head))
        and all(isinstance(a.kind, Kind) and sorted(decode(a.body)) == sorted(sizes) for a in arrived)
        and all(type(a.why) is str and len(a.why) <= LONGEST for a in answers)
    )


def hear_coordinator(number: int, seed: int = SEED) -> int:
    """Forged answers, one exchange after the other; how many exchanges were used."""
    draw, used, engine = random.Random(seed), 0, Forger()
    for place in range(number):
        if place % 500 == 0:  # a transcript grows with what it holds
            federation = Federation(engine, FACTS, BiasParty.steps, method="bias", **SAID)
        federation._messenger.heads.clear()
        step = "contribute" if draw.random() < 0.5 else "finish"
        engine.answers = forged_answers(draw, step)
        try:
            federation.sum(step) if step == "contribute" else federation.ask(step, biases=F4)
        except BaseException as error:
            complaint(error, engine.answers)
        else:
            used += 1
            assert agreed_answers(step, engine.answers), f"{str(engine.answers)[:300]} was used"
    return used


def test_forged_requests_are_rejected_in_one_sentence(tmp_path):
    party = private_party(tmp_path)
    served = ask_party(party, EACH)
    rows = party.gate.protection.ledger.rows()
    assert 0 < served < EACH / 5  # a few are good by chance, so that the way through is taken too
    assert [row.step for row in rows].count("contribute") <= 1
    assert len(rows) < 50
    assert party.gate.protection.ledger.verify() == len(rows)


def test_forged_answers_are_rejected_in_one_sentence():
    assert 0 < hear_coordinator(EACH) < EACH / 2


def test_no_single_forgery_costs_memory(tmp_path):
    """The largest forgery is a text of a megabyte, which is there already: what is allocated on the way is bounded."""
    party = private_party(tmp_path)
    ask_party(party, 300)
    tracemalloc.start()
    try:
        ask_party(party, 1500, seed=8)
        hear_coordinator(1500, seed=8)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 * 2**20


def found(search, *args) -> bool:
    try:
        search(*args)
    except AssertionError:
        return True
    return False


@pytest.fixture
def party(tmp_path):
    """A party that, as it is, no forgery breaks; so what a test then finds is what that test broke."""
    (tmp_path / "sound").mkdir()
    assert not found(ask_party, private_party(tmp_path / "sound"), 3000)
    assert not found(hear_coordinator, 3000)
    return private_party(tmp_path)


def crash(self, biases):
    raise KeyError("user 42")


def repeat(*args, **kwargs):
    raise TacitError("x" * 10**6)


finite = schemas.Floats.problem
#: By name: what is broken, by what, and who finds it.
BROKEN = {
    "no schema": ([(schemas.Schema, "check", lambda *args, **kwargs: None)], {ask_party, hear_coordinator}),
    "numbers that are not finite": (
        [(schemas.Floats, "problem", lambda *args: None if "finite" in str(finite(*args)) else finite(*args))],
        {ask_party},
    ),
    "a header that is trusted": ([(peer, "decode", lambda body: json.loads(body[8:].split(b"\0")[0]))], {ask_party}),
    "a step that crashes": ([(BiasParty, "finish", crash)], {ask_party}),
    "a sentence of a megabyte": ([(schemas.Schema, "check", repeat)], {ask_party}),
    "no check of envelopes": (
        [(Request, "check", lambda self: None), (Answer, "check", lambda self, devices: None)],
        {ask_party, hear_coordinator},
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_on_purpose_is_found(party, monkeypatch, name):
    changes, finders = BROKEN[name]
    for change in changes:
        monkeypatch.setattr(*change)
    assert ask_party not in finders or found(ask_party, party, 3000)
    assert hear_coordinator not in finders or found(hear_coordinator, 3000)
