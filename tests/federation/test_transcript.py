"""What a transcript keeps, and what its digest covers."""

import pyarrow.parquet as pq
import pytest

from tacit.boundary.wire import digest, encode
from tacit.federation.transcript import Entry, Transcript

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
