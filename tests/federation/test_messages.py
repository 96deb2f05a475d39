"""Schemas refuse whatever was not agreed, in one sentence that names the sender; a transcript keeps what was sent."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.boundary.wire import digest, encode
from tacit.errors import BadMessage
from tacit.federation import Choice, Floats, Integer, Request, Schema
from tacit.federation.messages import Ints
from tacit.federation.transcript import Entry, Transcript

SIZES = {"items": 3, "factors": 2}
SCHEMA = Schema(items=Floats("items", "factors"), t=Integer(0, 9), mode=Choice("a", True))
GOOD = {"items": np.zeros((3, 2), dtype=np.float32), "t": 4, "mode": "a"}


def complaint(**changes) -> str:
    payload = {k: v for k, v in {**GOOD, **changes}.items() if v is not ...}
    with pytest.raises(BadMessage) as refusal:
        SCHEMA.check(payload, SIZES, "party-9", "improve")
    return str(refusal.value)


def test_what_was_agreed_passes():
    assert SCHEMA.check(GOOD, SIZES, "party-9", "improve") is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"t": ...}, '"t" is missing'),
        ({"extra": 1}, '"extra" is not part of it'),
        ({"t": 10}, "integer from 0 to 9"),
        ({"t": 4.0}, "integer"),
        ({"t": True}, "integer"),
        ({"mode": 1}, "one of"),
        ({"mode": np.zeros(1, dtype=np.float32)}, "one of"),
        ({"items": np.zeros((3, 2))}, "float32 array"),
        ({"items": np.zeros((3, 2), dtype=np.int32)}, "float32 array"),
        ({"items": np.zeros((2, 3), dtype=np.float32)}, "shape (2, 3) where (3, 2)"),
        ({"items": np.full((3, 2), np.nan, dtype=np.float32)}, "not finite"),
    ],
)
def test_what_was_not_agreed_is_refused_by_name(changes, words):
    sentence = complaint(**changes)
    assert words in sentence
    assert "improve" in sentence
    assert "party-9" in sentence
    assert "\n" not in sentence


def test_a_long_value_is_not_repeated_whole():
    assert len(complaint(t="x" * 10_000)) < 300


def test_a_size_that_nobody_declared_is_free_and_the_others_are_not():
    schema = Schema(rows=Ints("any", "factors"))
    schema.check({"rows": np.zeros((7, 2), dtype=np.int32)}, SIZES, "party-1", "s")
    with pytest.raises(BadMessage):
        schema.check({"rows": np.zeros((7, 3), dtype=np.int32)}, SIZES, "party-1", "s")


REQUEST = {"method": "m", "parameters": "p", "step": "s", "round": 1, "attempt": 0, "body": b"x"}


@pytest.mark.parametrize(
    "change",
    [{"method": "n"}, {"parameters": "q"}, {"step": "t"}, {"round": 2}, {"attempt": 1}, {"body": b"y"}],
)
def test_every_part_of_a_request_is_in_its_hash(change):
    assert Request(**REQUEST).hash != Request(**{**REQUEST, **change}).hash
    assert Request(**REQUEST).hash == Request(**REQUEST).hash


@given(st.text(max_size=5), st.text(max_size=5), st.text(max_size=5), st.text(max_size=5))
def test_parts_of_a_request_do_not_run_into_each_other(a, b, c, d):
    first = Request(a, b, "s", 0, 0, b"").hash
    second = Request(c, d, "s", 0, 0, b"").hash
    assert (first == second) == ((a, b) == (c, d))


BODY = encode({"x": 1})


def talk(order=("party-1", "party-2"), status="ok", round=1, step="s", body=BODY, payloads=None) -> Transcript:
    transcript = Transcript(payloads)
    for party in order:
        transcript.record(Entry(0, round, step, party, "down", "sum", len(body), 1, digest(body), "ok"), body)
    for party in order:
        transcript.record(Entry(0, round, step, party, "up", "sum", len(body), 1, digest(body), status), body)
    return transcript


def test_the_digest_covers_round_step_party_and_payload():
    first = talk().digest
    assert first == talk().digest
    others = [talk(round=2), talk(step="t"), talk(order=("party-2", "party-1")), talk(body=encode({"x": 2}))]
    assert len({first, *(other.digest for other in others)}) == 5


def test_the_digest_leaves_out_what_was_lost():
    transcript = talk()
    before = transcript.digest
    transcript.record(Entry(1, 2, "s", "party-1", "up", "sum", 0, 0, "", "late"))
    assert transcript.digest == before


def test_bytes_count_once_per_copy():
    transcript = Transcript()
    transcript.record(Entry(0, 1, "s", "party-1", "down", "sum", 70_000 * len(BODY), 70_000, digest(BODY), "ok"), BODY)
    assert transcript.meter.bytes_down == 70_000 * len(BODY)
    assert transcript.meter.down["party-1"] == transcript.entries[0].bytes


def test_payloads_are_kept_only_on_request(tmp_path):
    talk(payloads=tmp_path / "full")
    names = sorted(path.name for path in (tmp_path / "full").iterdir())
    assert names == ["000000-down-all.tct", "000000-up-party-1.tct", "000000-up-party-2.tct"]
    assert (tmp_path / "full" / names[1]).read_bytes() == BODY


@pytest.mark.parametrize("order", [(), ("party-1",)])
def test_it_is_written_as_one_table(tmp_path, order):
    talk(order).write(tmp_path / "messages.parquet")
    table = pq.read_table(tmp_path / "messages.parquet")
    assert len(table) == 2 * len(order)
    assert table.column_names[:5] == ["call", "round", "step", "party", "direction"]
