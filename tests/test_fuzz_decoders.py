"""Every decoder, of what peers send and of what users write, fed with odd values and mutations.

Only Tacit's own errors may come out, each one short printable line, within a second of CPU time; and where a peer sent
it, the line names the peer. The seeds below each ended in a traceback, or never, once.
"""

import json
import random
import tomllib
from datetime import UTC, datetime
from time import process_time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from one_site import DATA, NAMES, home_of, offer_of, run_file

from tacit.boundary.release import Kind
from tacit.boundary.wire import decode, digest, encode
from tacit.config import RunFile
from tacit.data.load import load
from tacit.data.ratings import Feedback
from tacit.data.synthetic import demo
from tacit.deploy import preflight
from tacit.deploy.align import _list
from tacit.deploy.certificates import read_key
from tacit.deploy.handshake import _proven, check_hello, hello_content
from tacit.deploy.invitations import RECORD, read_record
from tacit.deploy.keyring import Keyring
from tacit.deploy.kit import Kit, _sum
from tacit.deploy.offer import Offer, SiteSizes, facts_among, facts_content, facts_of, read_facts
from tacit.deploy.policy import Policy
from tacit.deploy.service_status import NAME as STATUS
from tacit.deploy.service_status import Status
from tacit.deploy.site_run import SiteRun, read_identities
from tacit.deploy.site_service import _table, check_welcome
from tacit.engine.call_log import CallLog
from tacit.engine.coordinator_channel import CoordinatorChannel
from tacit.engine.envelope import SIGNATURE, Address, TimedRequest, _signed, answer_content, open_message, sign_message
from tacit.engine.flare import Flare
from tacit.engine.site_channel import ANOTHER, TAKEN, Handlers, SiteChannel
from tacit.errors import BadMessage, PeerFailed, TacitError, UsageError
from tacit.federation import Answer, Facts, Request
from tacit.federation.calls import Logged
from tacit.federation.dropout import Attendance
from tacit.methods import chosen
from tacit.partition import partition
from tacit.prepare import PreparedRun
from tacit.prepare.run_file import check
from tacit.report.site_messages import sent_after, shared_metrics

KEY = Ed25519PrivateKey.from_private_bytes(b"1" * 32)
OFFER = offer_of(run_file())
FEATURED = offer_of(run_file(public={"scale": [1, 5], "users": 48, "features": ["genres", "year"]}))
VERTICAL = offer_of(run_file(partition={"by": "item", "into": 3}, privacy=None))
FACTS = Facts.of(partition(demo(users=20, items=12, ratings=60), into=2), 7)
PREPARED = PreparedRun.of(*chosen({"name": "bias"}), FACTS)
FLOATS = np.zeros(12, np.float32)

#: What can stand in a message, and what it is not meant to be.
ODD = [
    5,
    -1,
    0,
    True,
    None,
    1.5,
    1e308,
    2**31,
    2**63,
    10**40,
    10**400,
    "",
    "x",
    "party-1",
    "party-2",
    "Infinity",
    "[[Infinity]]",
    '[["party-1", 1e999, 16, 0]]',
    '{"a": ' * 4000,
    "[" * 4000,
    "9" * 5000,
    "x = " + "9" * 5000,
    ".".join("a" * 9000) + " = 1",
    "x" * 60_000,
    "a\nb",
    "\x1b[2J",
    "\ud800",
    np.zeros(0, np.uint8),
    np.zeros(1, np.uint8),
    np.zeros(3, np.int64) - 5,
    np.zeros((2, 2), np.float32),
    np.frombuffer(b"[1, 2.5]", np.uint8),
    np.frombuffer(b"[" * 4000, np.uint8),
    np.frombuffer(b'[1, "a", ' + b"9" * 5000 + b"]", np.uint8),
    np.frombuffer(b"[Infinity]", np.uint8),
    np.frombuffer(b'[["a", "b"], []]', np.uint8),
    np.frombuffer(f"[{10**400}]".encode(), np.uint8),
]


def one_sentence(act, who="", slow=1.0):
    """Do it: what it returns, or its error, which must be Tacit's own; and soon.

    An error about what a peer, `who`, has sent names the peer, on one line that any terminal can show.
    """
    began, found = process_time(), None
    try:
        found = act()
    except TacitError as error:
        found = error
        text = str(error)
        assert text
        assert who in text, text[:300]
        assert not who or (len(text) <= 5000 and text.isprintable()), repr(text[:300])
    assert process_time() - began < slow, f"took {process_time() - began:.1f} s of CPU"
    return found


def mutated(draw, content, odd=ODD):
    """A message's content with a value or two changed, gone, or added; texts and bytes may only be damaged."""
    content = dict(content)
    for _ in range(1 + draw.randrange(2)):
        name = draw.choice([*content, "more"])
        way = draw.random()
        if way < 0.1:
            content.pop(name, None)
        elif way < 0.35 and isinstance(content.get(name), str):
            content[name] = damaged(draw, content[name].encode()).decode(errors="ignore")
        elif way < 0.35 and isinstance(content.get(name), np.ndarray) and content[name].dtype == np.uint8:
            content[name] = np.frombuffer(damaged(draw, content[name].tobytes()), np.uint8)
        else:
            content[name] = draw.choice(odd)
    return content


def damaged(draw, body: bytes) -> bytes:
    """Bytes that were cut off, lengthened, put twice, or have bits turned."""
    way = draw.randrange(5)
    at = draw.randrange(len(body) + 1)
    if way == 0:
        return body[:at]
    if way == 1:
        return body[:at] + draw.randbytes(1 + draw.randrange(9)) + body[at:]
    if way == 2:
        return body[:at] + draw.choice([b"9" * 5000, b"-", b"e999", b'"', b"[", b"\n", b"=", b".a" * 3000]) + body[at:]
    if way == 3:
        return body + body[at:]
    turned = bytearray(body)
    for _ in range(min(len(body), 1 + draw.randrange(3))):
        turned[draw.randrange(len(body))] ^= 1 << draw.randrange(8)
    return bytes(turned)


def each(draw, content, number):
    """Every odd value in every place once, and then mutations at random."""
    for name in content:
        for value in ODD:
            yield {**content, name: value}
    for _ in range(number):
        yield mutated(draw, content)


@pytest.fixture
def draw():
    return random.Random(7)


# -- what sites send to the coordinator ---------------------------------------------------------------------------


def signed(body: bytes) -> bytes:
    return KEY.sign(_signed(body)) + body


def test_envelopes(draw):
    place = Address("party-1", "coordinator", "reply", "run-1")
    good = sign_message(place, {"about": "id", "done": True}, KEY)

    def read(message):
        return open_message(message, KEY.public_key(), "party-1", "coordinator", "reply")

    assert read(good) == ("run-1", {"about": "id", "done": True})
    for word in place.words:
        for value in ODD:
            if not isinstance(value, str) or value.isascii():
                message = signed(encode({**place.words, "about": "id", word: value}))
                one_sentence(lambda message=message: read(message), "party-1")
    for _ in range(500):
        body = damaged(draw, good[SIGNATURE:])
        one_sentence(lambda body=body: read(signed(body)), "party-1")
        one_sentence(lambda body=body: read(body), "party-1")


class Said:
    """A channel, or a cell, at which everybody says the same."""

    def __init__(self, content) -> None:
        self.content = content

    def request(self, *_asked):
        return self.content

    def deliver(self, _requests, _attendance):
        return self.content

    def send(self, name, _topic, message, _timeout):
        content = decode(message[SIGNATURE:])
        self.channel.replied(name, content["about"], dict(self.content))
        return TAKEN


ANSWERS = {
    "contribute": Answer("party-1", "ok", Kind.SUM, encode({"errors": FLOATS, "weights": FLOATS}), 1, "", "", ""),
    "finish": Answer("party-1", "ok", Kind.PUBLIC, encode({"done": True}), 1, "", "", ""),
}


def heard(step: str, content) -> object:
    """What the coordinator makes of one site's answer, from its content to the sum or the releases."""
    engine = Flare(Said(content), ["party-1"], 1.0)
    try:
        federation = PREPARED.federation(engine)
        federation._messenger.engine = Only(engine)
        return federation.sum(step) if step == "contribute" else federation.ask(step, biases=FLOATS)
    finally:
        engine.close()


class Only:
    """An engine that reaches the first party."""

    def __init__(self, engine) -> None:
        self.engine = engine

    def deliver(self, requests, attendance):
        return self.engine.deliver({"party-1": requests["party-1"]}, attendance)


@pytest.mark.parametrize("step", ANSWERS)
def test_answers(draw, step):
    good = answer_content(ANSWERS[step])
    assert not isinstance(one_sentence(lambda: heard(step, good)), TacitError)
    for content in each(draw, good, 150):
        body = content.get("body")
        if isinstance(body, np.ndarray):  # what its sender says of it is as right as it can be
            content = {**content, "payload": digest(body.tobytes())} if "payload" in content else content
        one_sentence(lambda content=content: heard(step, content), "party-1")


def test_a_bad_value_ends_the_run_with_the_name_of_its_sender():
    content = {**answer_content(ANSWERS["finish"]), "party": 5}
    error = one_sentence(lambda: heard("finish", content), "party-1")
    assert type(error) is BadMessage


@pytest.mark.parametrize("change", [{"party": 5}, {"status": np.zeros(2)}, {"kind": "x"}, {"head": 7}, {"body": "x"}])
def test_where_answers_may_be_left_out_a_bad_one_is_and_the_run_goes_on(change):
    """So it is in a secure sum; what is left out is noted under its sender's name."""
    engine, rejected = Flare(Said({**answer_content(ANSWERS["finish"]), **change}), ["party-1"], 1.0), {}
    line = PREPARED.federation(engine)._messenger
    request = Request("bias", PREPARED.bound, "finish", 1, 0, encode({"biases": FLOATS}))
    assert line.send({"party-1": request}, Attendance.full(), rejected=rejected) == []
    assert list(rejected) == ["party-1"]
    assert "party-1" in rejected["party-1"]
    engine.close()


def test_replies_that_tell_of_a_failure(draw):
    for content in each(draw, {"error": "PeerFailed", "why": "It is full."}, 100):
        cell = Said(content)
        cell.channel = channel = CoordinatorChannel(cell, KEY, "run-1")
        channel.connected("party-1", "a")
        if "error" in content:
            reply = channel.request("party-1", "ask", "id", lambda _left: {}, 5.0)
            assert isinstance(reply, TacitError)
            assert "party-1" in str(reply)
            assert str(reply).isprintable()


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz") / "keys"
    keyring = Keyring.make(folder, federation="hearts", host="localhost", port=8102)
    kit = keyring.invite("party-1")
    return keyring, kit


def test_hellos(draw, federation):
    keyring, kit = federation
    key, good = read_key(kit.key), hello_content(kit, KEY, "start-1", 1.8e9)

    def greet(words):
        words = dict(words)
        if "proof" in words and words["proof"] is good["proof"]:  # a site signs what it likes
            known = {"start": 0, "version": 0, "clock": 0, "identity": 0, **words}
            text = _proven("party-1", known).decode(errors="replace").encode(errors="replace")
            words["proof"] = np.frombuffer(key.sign(text, ec.ECDSA(SHA256())), np.uint8)
        message = sign_message(Address("party-1", "coordinator", "hello"), words, KEY)
        return check_hello(keyring, "party-1", message, "coordinator", now=1.8e9)

    assert greet(good)[0] == "start-1"
    for words in each(draw, good, 60):
        if all(not isinstance(value, str) or "\ud800" not in value for value in words.values()):
            one_sentence(lambda words=words: greet(words), "")
    for clock in (10**400, 10**18, -1e300, [1.0]):
        words = {**good, "clock": np.array(clock) if isinstance(clock, list) else clock}
        assert isinstance(one_sentence(lambda words=words: greet(words), "party-1"), TacitError)
    for _ in range(100):
        message = signed(damaged(draw, encode(good)))
        one_sentence(lambda message=message: check_hello(keyring, "party-1", message, "coordinator"), "party-1")


def test_what_sites_say_of_themselves(draw):
    good = SiteSizes(16, DATA.item_ids, 0, 0)
    others = {name: SiteSizes(16, DATA.item_ids) for name in NAMES[1:]}
    for offer in (OFFER, VERTICAL):
        for content in each(draw, good.content(), 150):
            found = one_sentence(lambda content=content: SiteSizes.of(content, "party-1"), "party-1")
            if isinstance(found, SiteSizes):
                one_sentence(lambda offer=offer, told=found: facts_among(offer, {"party-1": told, **others}))


def test_lists_of_tags(draw):
    good = {"list": np.arange(96, dtype=np.uint8).reshape(3, 32)}
    for content in each(draw, good, 50):
        one_sentence(lambda content=content: _list(content, "party-1", 3), "party-1")


def test_metrics_that_sites_tell(draw):
    good = json.dumps({"metrics": {"mse": 1.0, "ndcg@10": 0.3}, "users": 9, "ratings": 30})
    told = [*ODD, good.replace("1.0", "1e308"), good.replace("9", str(10**400)), good.replace("ndcg@10", "ndcg@<b>")]
    told += [damaged(draw, good.encode()).decode(errors="ignore") for _ in range(300)]
    for metrics in told:
        replies = {"party-1": {"metrics": metrics}, "party-2": {"metrics": good}}
        found, _notes = shared_metrics(replies, 2)
        json.dumps(found, allow_nan=False)
        if not isinstance(metrics, str) or "\ud800" not in metrics:
            sent_after(replies)


# -- what the coordinator sends to sites --------------------------------------------------------------------------


@pytest.mark.parametrize("offer", [OFFER, VERTICAL, FEATURED], ids=["horizontal", "vertical", "features"])
def test_offers(draw, offer):
    good = offer.content()
    assert Offer.of("run-1", good).hash == offer.hash
    for content in each(draw, good, 100):
        one_sentence(lambda content=content: Offer.of("run-1", content), "coordinator")


@pytest.mark.parametrize("offer", [OFFER, VERTICAL, FEATURED], ids=["horizontal", "vertical", "features"])
def test_facts(draw, offer):
    good = facts_content(facts_of(offer, {name: SiteSizes(16, DATA.item_ids) for name in NAMES}, Feedback.EXPLICIT))
    assert read_facts(offer, good).users in (16, 48)
    for content in each(draw, good, 300):
        one_sentence(lambda content=content: read_facts(offer, content), "coordinator")


def test_requests(draw):
    good = TimedRequest(Request("bias", "p", "finish", 1, 0, encode({"biases": FLOATS})), 5.0).content()
    for content in each(draw, good, 300):
        one_sentence(lambda content=content: TimedRequest.of(content), "coordinator")


def test_alignment(draw, tmp_path):
    part = SiteRun(home_of(tmp_path, policy=Policy(non_private=True)), "run-1", VERTICAL.content())
    count = len(part.data.people)
    part.align({"stage": "first"})
    again = {"stage": "again", "owner": "party-2", "list": np.arange(64, dtype=np.uint8).reshape(2, 32)}
    rows = {"stage": "rows", "count": count, "rows": np.arange(count, dtype=np.int64)}
    for good in (again, rows):
        for content in each(draw, good, 20):
            if not all(np.array_equal(content.get(name), value) for name, value in good.items()):
                one_sentence(lambda content=content: part.align(content), slow=2.0)


def test_words_of_the_coordinator(draw):
    good = json.dumps({"party-1": "0" * 64})
    for said in [*ODD, *(damaged(draw, good.encode()).decode(errors="ignore") for _ in range(200))]:
        one_sentence(lambda said=said: read_identities(said), "coordinator")
        assert isinstance(one_sentence(lambda said=said: _table(said, {})), dict)
        one_sentence(lambda said=said: check_welcome(str(said).encode(errors="ignore")), "coordinator")


def test_pushes(monkeypatch):
    monkeypatch.setattr("tacit.engine.site_channel.Cell", lambda *_terms: None)
    public, ignore = KEY.public_key(), lambda *_told: {}
    channel = SiteChannel("party-1", "localhost", 1, None, KEY, public, Handlers(ignore, ignore, ignore))
    for value in ODD:
        if not isinstance(value, str) or value.isascii():
            message = sign_message(
                Address("coordinator", "party-1", "ask", "run-1"), {"about": "id", "start": value}, KEY
            )
            assert one_sentence(lambda message=message: channel.receive("coordinator", "ask", message)) == ANOTHER


def test_looks(draw, federation, monkeypatch, tmp_path):
    _keyring, kit = federation
    good = {**OFFER.content(), "clock": 1.8e9, "version": "1", "pinned": ""}
    coordinator = Kit(**{**vars(kit), "coordinator": KEY.public_key().public_bytes_raw().hex(), "insecure": True})
    said = {}

    class Line:
        refused = None

        def __init__(self, *_terms) -> None: ...

        def start(self) -> None: ...

        def stop(self) -> None: ...

        def send(self, *_message):
            return sign_message(Address("coordinator", "party-1", "look", "run-1"), said, KEY)

    monkeypatch.setattr(preflight, "Cell", Line)
    monkeypatch.setattr(preflight, "hello_content", lambda *_terms: {})
    shown = [{**good, name: value} for name in ("clock", "version", "pinned") for value in ODD]
    for content in [*shown, *(mutated(draw, good) for _ in range(20))]:
        if all(not isinstance(value, str) or "\ud800" not in value for value in content.values()):
            said.clear()
            said.update(content)
            one_sentence(lambda: preflight.fetch_offer(coordinator, tmp_path, 1.0), "coordinator")


# -- what users write ---------------------------------------------------------------------------------------------

RUN = """\
seed = 7
[data]
source = "demo"
columns = {user = "uid"}
[public]
scale = [1, 5]
users = 48
[partition]
by = "user"
into = 3
[method]
name = "bias"
[privacy]
epsilon = 4.0
delta = 1e-6
[engine]
timeout = 5.0
[evaluate]
k = 10
"""
BIG = "9" * 5000
#: Each of them was a traceback, or did not end.
SEEDS = [
    f"seed = {BIG}",
    f"seed = 0x{'f' * 5000}",
    f"[method]\nname = 'bias'\nshrinkage = 0x{'f' * 5000}",
    "[privacy]\nepsilon = 1e308",
    "[privacy]\nepsilon = 1\nbudget = 1e308",
    "[engine]\ntimeout = 1e300",
    "[data]\nusers = 1000000000000000000",
    "[data]\nitems = 1000000000",
    "[public]\nusers = 1000000000000000000",
    "[public]\nscale = [-1e308, 1e308]",
    f"[public]\nfeatures = ['{'x' * 100_000}']",
    f"[public]\nfeatures = {[str(k) for k in range(9000)]}",
    f"[data]\nsource = '{'x' * 100_000}'",
    f"[public]\ncatalogue = '{'x' * 100_000}'",
    "[evaluate]\nk = 100000000000000000000",
    "[evaluate]\nnegatives = 100000000000000000000",
    "[partition]\ninto = 100000000000000000000",
    "[method]\nname = 'sgdmf'\ntrim = 100000000000000000000",
    ".".join("a" * 20_000) + " = 1",
    f"[{'.'.join('a' * 20_000)}]",
    f"x = {{y = '''a'''', {'.'.join('a' * 20_000)} = 1}}",
    f'x = {{y = """a"""", {".".join("a" * 20_000)} = 1}}',
    ". ".join(['"a"'] * 20_000) + " = 1",
    "a = " + "[" * 40_000,
    "a = " + "{a=" * 40_000,
    "a" * 900_000,
    '"' * 400_000,
    '"""\\' * 200_000,
    "[method]\n" + "\n".join(f"a{k} = 1" for k in range(9000)),
]


@pytest.mark.parametrize("text", SEEDS, ids=lambda text: text[:24])
def test_run_files_that_ended_badly(tmp_path, text):
    path = tmp_path / "run.toml"
    path.write_text(text)
    error = one_sentence(lambda: RunFile.read(path), "run")
    assert type(error) is UsageError or text.startswith("[method]")


def test_run_files(draw, tmp_path):
    path = tmp_path / "run.toml"

    def run(text):
        path.write_bytes(text)
        return check(RunFile.read(path))

    assert run(RUN.encode())
    for _ in range(400):
        text = damaged(draw, RUN.encode())
        one_sentence(lambda text=text: run(text), slow=3.0)  # a plan may be made


def test_an_ordinary_file_with_dots_in_its_texts_is_read(tmp_path):
    path = tmp_path / "run.toml"
    dots = ".".join(["a"] * 99)
    path.write_text(f"# {dots}\n[data]\nsource = \"{dots}\"\nquery = '''\nselect {dots}'''\n")
    assert RunFile.read(path).data.source == dots


@pytest.mark.parametrize("change", [f"seed={BIG}", f"{'.'.join('a' * 9000)}=1", "a=" + "[" * 9000, "seed=1979-05-27"])
def test_changes_of_a_run_file(tmp_path, change):
    path = tmp_path / "run.toml"
    path.write_text(RUN)
    assert type(one_sentence(lambda: RunFile.read(path, [change]))) is UsageError


def test_kits(draw, federation, tmp_path):
    path = tmp_path / "party-1.kit"
    federation[1].write(path)
    good = path.read_bytes()
    assert Kit.read(path) == federation[1]
    table = tomllib.loads(good.decode())
    seeds = [good.replace(b"8102", BIG.encode()), good.replace(b"8102", b"0x" + b"f" * 5000)]
    seeds += [good + b".".join([b"a"] * 20_000) + b" = 1\n", good + b"a = " + b"[" * 30_000]
    for name in table:  # whoever can change a kit can write another sum under it
        for value in (0, -1, 10**18, "", "x" * 9000, [], {}, True, "a\nb"):
            words = {key: v for key, v in {**table, name: value}.items() if key not in ("sha256", "format")}
            whole = {"format": table["format"], **words, "sha256": _sum(words)}
            seeds.append("\n".join(f"{k} = {_toml(v)}" for k, v in whole.items()).encode())
    for text in [*seeds, *(damaged(draw, good) for _ in range(300))]:
        path.write_bytes(text)
        one_sentence(lambda: Kit.read(path).check(datetime(2030, 1, 1, tzinfo=UTC)))


def _toml(value) -> str:
    return "{}" if value == {} else json.dumps(value)


def test_records_of_services(draw, federation, tmp_path):
    keyring, _kit = federation
    with Status(tmp_path, "party-1", "hearts"):
        good = (tmp_path / STATUS).read_bytes()
    seeds = [good.replace(b'"round": null', b'"round": ' + n) for n in (BIG.encode(), b"1e999", b"[]", b"NaN")]
    seeds += [good.replace(b'"pid": ', b'"pid": 9999999999999999999999999'), b"[" * 60_000]
    for text in [*seeds, *(damaged(draw, good) for _ in range(300))]:
        (tmp_path / STATUS).write_bytes(text)
        one_sentence(lambda: Status.read(tmp_path))
    record = (keyring.folder / RECORD).read_bytes()
    for text in [b"[" * 60_000, *(damaged(draw, record) for _ in range(200))]:
        (tmp_path / RECORD).write_bytes(text)
        one_sentence(lambda: read_record(tmp_path))


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parquet")
    rows = {"user": ["a", "b", "c", "d"] * 5, "item": list(range(20)), "rating": [1.0, 2.0, 3.0, 4.0] * 5}
    pq.write_table(pa.table(rows), folder / "good.parquet", compression="none")
    return folder


def test_parquet_files(draw, parquet):
    good, path = (parquet / "good.parquet").read_bytes(), parquet / "bad.parquet"
    for number in range(250):
        turned = bytearray(good)
        for _ in range(1 + draw.randrange(2)):  # the last third describes the rest
            turned[draw.randrange(len(good) * 2 // 3, len(good))] ^= 1 << draw.randrange(8)
        path.write_bytes(bytes(turned))
        one_sentence(lambda: load(path))
        if number % 5 == 0:
            one_sentence(lambda: load(parquet / "good.parquet", item_table=path))


def test_text_of_a_parquet_file_that_is_no_utf8(parquet):
    path = parquet / "text.parquet"
    text = pa.Array.from_buffers(pa.string(), 2, pa.array([b"\xff\xfe", b"a"], pa.binary()).buffers())
    pq.write_table(pa.table({"user": text, "item": [1, 2], "rating": [1.0, 2.0]}), path)
    assert isinstance(one_sentence(lambda: load(path), "text.parquet"), TacitError)


def test_csv_files(draw, tmp_path):
    good, path = b"user,item,rating,timestamp\n" + b"".join(b"u%d,%d,4.5,%d\n" % (k, k, k) for k in range(9)), "r.csv"
    for _ in range(150):
        (tmp_path / path).write_bytes(damaged(draw, good))
        one_sentence(lambda: load(tmp_path / path))


@pytest.mark.parametrize("source", ["x" * 100_000, "a/" + "x" * 300, "~nobody-here/x", "a\0b", "x" * 300 + ".db"])
def test_places_that_cannot_be(tmp_path, source):
    (tmp_path / "r.csv").write_text("user,item,rating\n1,1,1\n2,2,2\n")
    for act in (
        lambda: load(source),
        lambda: load(f"sqlite:{source}"),
        lambda: load(tmp_path / "r.csv", item_table=source),
        lambda: load(tmp_path / "r.csv", catalogue=source),
    ):
        assert isinstance(one_sentence(act), TacitError)


# -- a disk that is full ------------------------------------------------------------------------------------------


def test_a_full_disk_under_the_call_log_is_one_sentence(tmp_path):
    log = CallLog(tmp_path / "log.sqlite")
    log.keep("0/a", "r", Logged(b"x", (), {}))
    log._database.execute("pragma max_page_count = 1")
    error = one_sentence(lambda: log.keep("1/a", "r", Logged(b"x" * 10**6, (), {})), "log")
    assert type(error) is PeerFailed
    assert "full" in str(error)
    assert log.recall("1/a", "r") is None
    assert log.recall("0/a", "r") is not None
    log.close()
