"""`shuffle` in one process: the same sealing, proxy and opening as between machines, without sockets."""

import hashlib
import os
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tacit.aggregation.shuffle import CountedShuffle, Shuffle
from tacit.boundary.code import SEALED
from tacit.boundary.projected import ProjectedGradient
from tacit.boundary.protection import Budget
from tacit.boundary.wire import decode, encode
from tacit.config import AggregationSection, PrivacySection
from tacit.data.synthetic import demo
from tacit.engine.inprocess import InProcess
from tacit.errors import PeerFailed, PrivacyRefused
from tacit.federation import Facts, Transcript
from tacit.federation.messages import Request
from tacit.methods import chosen
from tacit.methods.baselines.gd_dr import even_start
from tacit.partition import Setting, partition
from tacit.prepare.prepared import Keys, PreparedRun, Record
from tacit.secure import proxy as ends
from tacit.secure.proxy import InProcessProxy
from tacit.secure.sealed_reports import seal
from tacit.secure.shuffler import BatchTerms, Shuffler
from tacit.testing.adversary import InMemory

DEVICES = 12
DATA = demo(users=DEVICES, items=10, ratings=80)
KEY = X25519PrivateKey.from_private_bytes(bytes(range(32)))


class Stage:
    """Twelve devices, each a party, their proxy and a coordinator; `reported` is what the devices randomised."""

    def __init__(self, monkeypatch=None, proxy=None, privacy=True, into=DEVICES, payloads=None):
        shares = partition(DATA, into=into, by="device")
        self.run = PreparedRun.of(
            *chosen({"name": "gd-dr", "factors": 2, "rounds": 2}),
            Facts.of(shares, 7),
            privacy=PrivacySection(epsilon=8.0, delta=1e-4) if privacy else None,
            aggregation=AggregationSection(name="shuffle", tolerate=0.25),
            run="run",
        )
        self.proxy = proxy or InProcessProxy(KEY, os.urandom)
        keys, self.ledgers = Keys(to_proxy=self.proxy, from_proxy=self.proxy), {}
        self.parties = {}
        for share in shares:
            record = None
            if privacy:
                self.ledgers[share.name] = InMemory(share.name)
                record = Record(self.ledgers[share.name], Budget(8.0, self.run.plan.delta))
            self.parties[share.name] = self.run.party(share, record, keys)
        self.transcript = Transcript(payloads)
        engine = InProcess(list(self.parties.values()), workers=1)
        self.federation = self.run.federation(engine, keys=keys, transcript=self.transcript)
        self.items = even_start(self.run.facts, 10, 2, "items")
        self.reported = []
        if monkeypatch is not None:
            real = ProjectedGradient.reports

            def noting(query, *how):
                made = real(query, *how)
                self.reported.append((int(made["coordinate"][0]), int(made["bit"][0])))
                return made

            monkeypatch.setattr(ProjectedGradient, "reports", noting)

    def reports(self):
        self.federation.rounds_done += 1
        got = self.federation.reports("report", items=self.items, t=0)
        return list(zip(got["coordinate"].tolist(), got["bit"].tolist(), strict=True))

    def request(self, step="report", **payload):
        body = encode(payload or {"items": self.items, "t": 0})
        return Request("gd-dr", self.run.bound, step, 1, 0, body)


def test_the_coordinator_gets_what_the_devices_randomised_and_nothing_else(monkeypatch):
    stage = Stage(monkeypatch)
    for _round in range(2):
        stage.reported.clear()
        assert sorted(stage.reports()) == sorted(stage.reported)
    assert stage.federation.rejected == {}
    assert stage.proxy._shuffler.held == 0  # what has arrived is forgotten


def test_what_a_device_sends_the_coordinator_is_a_receipt_that_no_sealed_report_can_be_matched_with(tmp_path):
    batches = []

    class Watched(InProcessProxy):
        def collect(self, context):
            batches.append(super().collect(context))
            return batches[-1]

    stage = Stage(proxy=Watched(KEY, os.urandom), payloads=tmp_path)
    stage.reports()
    bodies = [decode(path.read_bytes()) for path in tmp_path.glob("*-up-party-*")]
    receipts = {body[SEALED].tobytes() for body in bodies if SEALED in body}
    assert len(receipts) == DEVICES
    assert not receipts & {hashlib.sha256(row.tobytes()).digest() for row in batches[0]}
    for ledger in stage.ledgers.values():  # nor with what the ledger's head commits to
        (row, *_rest) = ledger.rows()
        sent = {hashlib.sha256(encode({SEALED: batch_row})).hexdigest() for batch_row in batches[0]}
        assert row.payload not in sent


def test_planted_a_receipt_without_salt_is_noticed(tmp_path, monkeypatch):
    from tacit.aggregation import shuffle

    bare = property(lambda waiting: hashlib.sha256(waiting.message).digest())
    monkeypatch.setattr(shuffle._Waiting, "receipt", bare)
    with pytest.raises(AssertionError):
        test_what_a_device_sends_the_coordinator_is_a_receipt_that_no_sealed_report_can_be_matched_with(tmp_path)


def test_a_receipt_binds_a_device_to_what_it_sealed():
    stage = Stage()
    stage.reports()
    party = stage.parties["party-3"]
    saved = np.asarray(party.home["sealing"]).tobytes()
    (row, *_rest) = stage.ledgers["party-3"].rows()
    opened = encode({SEALED: np.frombuffer(hashlib.sha256(saved[36:]).digest(), np.uint8)})
    assert row.payload == hashlib.sha256(opened).hexdigest()


# -- a proxy that is killed -----------------------------------------------------------------------------------------


class Restarting(InProcessProxy):
    """Loses everything, as a killed process does, before the messages of these numbers and before collecting some."""

    def __init__(self, before_messages=(), before_collecting=()):
        super().__init__(KEY, os.urandom)
        self.messages, self.collected, self.sent = 0, 0, []
        self._kills, self._late = before_messages, before_collecting

    def lose(self):
        self._shuffler = Shuffler(os.urandom)

    def send(self, device, planned, message):
        if self.messages in self._kills:
            self.lose()
        self.messages += 1
        self.sent.append((device, message))
        return super().send(device, planned, message)

    def collect(self, context):
        if self.collected in self._late:
            self.lose()
        self.collected += 1
        return super().collect(context)


@pytest.mark.parametrize(
    "kills", [{"before_messages": (5,)}, {"before_collecting": (0,)}, {"before_messages": (3, 15)}]
)
def test_a_proxy_that_is_killed_forwards_nothing_partial_and_nobody_is_counted_twice(monkeypatch, kills):
    proxy = Restarting(**kills)
    stage = Stage(monkeypatch, proxy)
    assert sorted(stage.reports()) == sorted(stage.reported)
    assert len(stage.reported) == DEVICES  # randomised once, whatever was sent again
    assert proxy.messages > DEVICES
    assert len({message for _device, message in proxy.sent}) == DEVICES  # the same bytes
    assert [row.kind for row in stage.ledgers["party-1"].rows()].count("report") == 1


def test_planted_a_device_that_seals_again_for_a_retry_is_noticed(monkeypatch):
    from tacit.aggregation import shuffle

    real = Shuffle.answer

    def sealing_again(self, exchange, payload, endpoint):
        waiting = shuffle._Waiting.restore(endpoint.load("sealing"), endpoint)
        fresh = seal(np.zeros((1, 8), np.uint8), KEY.public_key().public_bytes_raw(), b"")
        endpoint.save("sealing", replace(waiting, message=fresh.tobytes()).saved)
        return real(self, exchange, payload, endpoint)

    monkeypatch.setattr(Shuffle, "answer", sealing_again)
    with pytest.raises(AssertionError):
        test_a_proxy_that_is_killed_forwards_nothing_partial_and_nobody_is_counted_twice(
            monkeypatch, {"before_messages": (5,)}
        )


def test_a_proxy_that_never_stays_up_ends_the_run():
    stage = Stage(proxy=Restarting(before_collecting=range(100)))
    with pytest.raises(PeerFailed, match=r"lost the reports.*5 times over"):
        stage.reports()


# -- what is refused ------------------------------------------------------------------------------------------------


def test_a_device_sends_nothing_to_a_smaller_crowd_than_its_guarantee_counts_on():
    """A coordinator that lies to the proxy: each device asks the proxy itself."""

    class Lied(InProcessProxy):
        def open(self, terms, devices):
            return super().open(replace(terms, crowd=1), devices)

    stage = Stage(proxy=Lied(KEY, os.urandom))
    with pytest.raises(PrivacyRefused, match="reports of 1 devices, and the guarantee counts on 9"):
        stage.reports()
    assert stage.proxy._shuffler.held == 0


def test_planted_a_device_that_does_not_ask_is_noticed(monkeypatch):
    monkeypatch.setattr(ends, "check_terms", lambda _opened, _planned: None)
    with pytest.raises(pytest.fail.Exception):
        test_a_device_sends_nothing_to_a_smaller_crowd_than_its_guarantee_counts_on()


def test_nothing_is_handed_over_that_was_not_sealed_for_this_request_or_not_recorded():
    stage = Stage()
    party = stage.parties["party-1"]
    report = stage.request()
    send = stage.request("send:report", context=report.hash)
    with pytest.raises(PrivacyRefused, match="recorded no such release"):
        party.answer(send)
    stage.proxy.open(BatchTerms(report.hash, 9, 56), stage.parties)
    party.answer(report)
    assert decode(party.answer(send).body) == {"taken": True}
    other = replace(stage.request("send:report", context="ab" * 32), attempt=1)
    with pytest.raises(PrivacyRefused, match="recorded no such release"):
        party.answer(other)


def test_planted_reports_that_the_ledger_lacks_do_not_leave():
    """Sealed and stored, but the ledger's disk failed: the noise is charged, and the reports stay."""
    stage = Stage()
    party, report = stage.parties["party-1"], stage.request()
    stage.proxy.open(BatchTerms(report.hash, 9, 56), stage.parties)
    saved = np.frombuffer(bytes.fromhex(report.hash) + (56).to_bytes(4, "little") + bytes(32 + 56), np.uint8)
    party.gate.store_private("sealing", saved)
    with pytest.raises(PrivacyRefused, match="recorded no such release"):
        party.answer(stage.request("send:report", context=report.hash))
    assert stage.proxy._shuffler.held == 0


def test_without_a_ledger_too_only_what_was_sealed_for_the_request_is_handed_over():
    stage = Stage(privacy=False)
    party = stage.parties["party-1"]
    with pytest.raises(PrivacyRefused, match="has not sealed for this request"):
        party.answer(stage.request("send:report", context="ab" * 32))


def test_a_device_without_a_way_to_the_proxy_randomises_nothing(monkeypatch):
    stage = Stage(monkeypatch)
    party = stage.parties["party-1"]
    party.gate._peers = replace(party.gate._peers, to_proxy=None)
    with pytest.raises(PrivacyRefused, match="no way to a proxy"):
        party.answer(stage.request())
    assert stage.reported == []


def test_reports_for_another_key_are_left_out_and_said(monkeypatch):
    """Two devices seal to a key of their own; the others' reports arrive."""
    stage = Stage(monkeypatch)
    foreign = InProcessProxy(X25519PrivateKey.generate(), os.urandom)
    foreign._shuffler, foreign._lock = stage.proxy._shuffler, stage.proxy._lock
    for name in ("party-2", "party-5"):
        party = stage.parties[name]
        party.gate._peers = replace(party.gate._peers, to_proxy=foreign)
    assert len(stage.reports()) == DEVICES - 2
    assert stage.federation.rejected["proxy"].startswith("2 reports of step")


def test_too_few_devices_are_no_crowd():
    stage = Stage()
    stage.federation._dropout = 0.6
    with pytest.raises(PeerFailed, match="passes nothing on below 9"):
        stage.reports()


# -- simulated cohorts ----------------------------------------------------------------------------------------------


def test_a_cohort_is_counted_and_says_so():
    stage = Stage(into=2)
    assert isinstance(stage.run.how, CountedShuffle)
    assert len(stage.reports()) == DEVICES
    counted = [entry for entry in stage.transcript.entries if entry.step == "protocol:report"]
    assert sum(entry.bytes for entry in counted if entry.direction == "up") == DEVICES * 48
    about = stage.run.how.messages(stage.run.steps["report"], True)
    assert "counted, not run" in about["protocol:report"].what


def test_a_coordinator_that_calls_somebody_a_cohort_gets_no_plain_reports():
    """In a deployment the counted form is refused: nobody would shuffle what it sends."""
    stage = Stage(into=2)
    party = stage.parties["party-1"]
    party.gate._seeded = False
    with pytest.raises(PrivacyRefused, match="which only a simulation may do"):
        party.answer(stage.request())


def test_a_proxied_round_is_planned_with_the_honest_part_of_its_crowd():
    how = Shuffle.of(Setting.DEVICE, 100, AggregationSection(name="shuffle", tolerate=0.3, collusion=0.1))
    assert (how.passes, how.crowd) == (70, 60)
    assert "10 colluding devices and without the proxy's help" in how.trust()[1]
