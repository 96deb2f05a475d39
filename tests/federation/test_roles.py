"""Roles beside the parties, in one process: asked by name, without ratings, remembered, and never counted."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from tacit import aggregation as aggregations
from tacit.aggregation.plain import Plain
from tacit.boundary import Gate, RoleGate
from tacit.boundary.release import Kind
from tacit.boundary.wire import encode
from tacit.cli import app
from tacit.config import AggregationSection, PrivacySection, RunFile
from tacit.data.catalogue import Catalogue
from tacit.data.synthetic import demo
from tacit.engine.call_log import CallLog
from tacit.engine.checkpoint import SavedRun
from tacit.engine.inprocess import InProcess
from tacit.errors import BadMessage, PeerFailed, PrivacyRefused, UngatedRelease, UsageError
from tacit.experiment import run
from tacit.federation import Facts, Federation, Floats, Request, Role, Schema, step
from tacit.federation.calls import Total
from tacit.federation.messages import Bytes, Exchange
from tacit.methods import known
from tacit.partition import Setting, partition
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.simulate import train
from tacit.prepare.simulated_ledgers import Records
from tacit.testing.method_contract import MethodContract
from tacit.testing.role_method import WEIGHED, WeighedParameters, WeighedParty, WeighingCatalogue

PRIVACY = PrivacySection(epsilon=4.0, delta=1e-4)


@pytest.fixture(autouse=True, scope="module")
def installed():
    known()[WEIGHED.name] = WEIGHED
    yield
    del known()[WEIGHED.name]


class TestWeighedMeans(MethodContract):
    """A method with a role does all that every method must."""

    name = WEIGHED.name
    parameters: ClassVar[dict[str, Any]] = {"rounds": 2}
    seeded = False

    def pytest_generate_tests(self, metafunc):
        """The method is known only while its tests run."""
        if "setting" in metafunc.fixturenames:
            metafunc.parametrize("setting", list(WEIGHED.sides))


@pytest.fixture
def parties():
    return partition(demo(users=40, items=25, ratings=500), into=3)


def prepared(parties, method=WEIGHED, **options):
    return PreparedRun.of(method, WeighedParameters(), Facts.of(parties, 7), **options)


def with_role(role, name="catalogue", **sides):
    """The method with another role."""
    found = WEIGHED.sides[Setting.HORIZONTAL]
    return replace(WEIGHED, sides={Setting.HORIZONTAL: replace(found, roles={name: role}, **sides)})


def spoken(made, parties, **options):
    """A federation in one process over a run's parties and roles, and the roles."""
    roles = [made.role(name) for name in made.roles]
    members = [made.party(share) for share in parties]
    return made.federation(InProcess([*members, *roles], **options)), roles


def brought(parties):
    ids = parties.catalogue.ids
    return {"catalogue": Catalogue(ids, pa.table({"year": np.arange(len(ids), dtype=np.float32)}), ("year",))}


def test_a_role_is_asked_by_name_and_keeps_its_state_at_home(parties):
    federation, (role,) = spoken(prepared(parties), parties)
    ones = np.ones(25, dtype=np.float32)
    first = federation.ask("weigh", to="catalogue", items=ones, t=0)
    second = federation.ask("weigh", to="catalogue", items=ones, t=1)
    assert list(first) == ["catalogue"]
    assert (first["catalogue"]["asked"], second["catalogue"]["asked"]) == (1, 2)
    np.testing.assert_array_equal(second["catalogue"]["items"], 2 * ones)
    assert int(role.home["asked"]) == 2
    assert list(federation.ask("finish", items=np.zeros(25, dtype=np.float32))) == list(parties.names)


def test_a_role_uses_what_it_brought(parties):
    plain, weighed = train(prepared(parties), parties), train(prepared(parties), parties, brought=brought(parties))
    assert plain.transcript.digest != weighed.transcript.digest
    again = train(prepared(parties), parties, brought=brought(parties))
    assert again.transcript.digest == weighed.transcript.digest


def test_roles_are_public_facts_and_never_counted_as_parties(parties):
    made = prepared(parties, privacy=PRIVACY)
    assert [role.name for role in made.facts.roles] == ["catalogue"]
    assert [member.name for member in made.facts.roster] == list(parties.names)
    assert (made.facts.users, made.plan.context.parties, made.facts.weight("catalogue")) == (40, 3, 0.0)
    assert sum(made.facts.weight(name) for name in parties.names) == pytest.approx(1)
    without = replace(WEIGHED, sides={Setting.HORIZONTAL: replace(made.sides, roles={})})
    assert prepared(parties, without, privacy=PRIVACY).plan.terms == made.plan.terms


def test_a_role_in_a_private_run_spends_nothing_and_keeps_no_ledger(parties, tmp_path):
    made = prepared(parties, privacy=PRIVACY).named("run")
    trained = train(made, parties, records=Records.of(made, tmp_path / "ledger"))
    assert sorted(path.stem for path in (tmp_path / "ledger").glob("*.sqlite")) == list(parties.names)
    told = [e for e in trained.transcript.entries if e.party == "catalogue" and e.direction == "up"]
    assert [(e.kind, e.status, e.head) for e in told] == [("public", "ok", "")] * 3
    assert made.spent(trained.transcript.requests_by_step) == pytest.approx(made.guarantee.epsilon, rel=0.05)


class Teller(WeighedParty):
    """A party that would tell its ratings as a role tells what it knows."""

    @step(Kind.PUBLIC, takes=Schema(), gives=Schema(items=Floats("any")), what="nothing: it is refused")
    def gossip(self):
        return self.gate.send(items=self.ratings.values)


@pytest.mark.parametrize("privacy", [None, PRIVACY])
def test_a_party_with_ratings_has_no_such_way_out(parties, tmp_path, privacy):
    sides = replace(WEIGHED.sides[Setting.HORIZONTAL], party=Teller)
    made = prepared(parties, replace(WEIGHED, sides={Setting.HORIZONTAL: sides}), privacy=privacy)
    records = Records.of(made, tmp_path)
    party = made.party(parties[0], None if records is None else records.of_party(parties[0]))
    with pytest.raises(PrivacyRefused, match=r"party-1 has ratings, and gate\.send is for roles"):
        party.answer(Request(WEIGHED.name, made.bound, "gossip", 0, 0, encode({})))
    with pytest.raises(PrivacyRefused, match="party-1 has ratings"):
        WeighedParty(parties[0], made.parameters, made.facts, RoleGate("party-1", 7, {}))


def test_a_role_s_gate_has_none_of_a_party_s_ways():
    for way in ("sum", "chain", "report", "disclose", "noise"):
        assert hasattr(Gate, way)
        assert not hasattr(RoleGate, way)


class Careless(Role):
    """A role with a step for each thing that can go wrong."""

    @step(Kind.PUBLIC, takes=Schema(), gives=Schema(items=Floats("items")), what="nothing: another shape than agreed")
    def misshapen(self):
        return self.gate.send(items=np.ones(3, dtype=np.float32))

    @step(Kind.PUBLIC, takes=Schema(), gives=Schema(items=Floats("items")), what="nothing: it goes round the gate")
    def raw(self):
        return {"items": np.ones(25, dtype=np.float32)}

    @step(Kind.PUBLIC, takes=Schema(), gives=Schema(items=Floats("items")), what="nothing: it tells twice")
    def twice(self):
        self.gate.send(items=np.ones(25, dtype=np.float32))
        return self.gate.send(items=np.ones(25, dtype=np.float32))

    @step(Kind.PUBLIC, takes=Schema(), what="nothing: it fails")
    def crash(self):
        raise ZeroDivisionError("planted")

    @step(Kind.PUBLIC, takes=Schema(), what="nothing: it is far too slow")
    def slow(self):
        import time

        time.sleep(0.5)
        return self.gate.send(done=True)


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("misshapen", BadMessage, "catalogue"),
        ("raw", UngatedRelease, r"catalogue.*gate\.send"),
        ("twice", PrivacyRefused, "two releases"),
        ("crash", PeerFailed, 'catalogue failed in step "crash".*planted'),
        ("slow", PeerFailed, r'catalogue did not answer step "slow".*\[engine\] timeout'),
    ],
)
def test_what_a_role_does_wrong_is_refused_by_its_name(parties, name, error, words):
    patience = {"timeout": 0.05} if name == "slow" else {}
    federation, _roles = spoken(prepared(parties, with_role(Careless)), parties, **patience)
    with pytest.raises(error, match=words):
        federation.ask(name, to="catalogue")
    assert federation.transcript.meter.bytes_up == 0


def test_a_role_is_asked_for_its_own_steps_alone_and_a_party_for_none_of_them(parties):
    federation, _roles = spoken(prepared(parties), parties)
    zeros = np.zeros(25, dtype=np.float32)
    with pytest.raises(UsageError, match='no "proxy" to ask in this run; its roles are catalogue'):
        federation.ask("weigh", to="proxy", items=zeros, t=0)
    with pytest.raises(BadMessage, match='catalogue was asked for "finish"'):
        federation.ask("finish", to="catalogue", items=zeros)
    with pytest.raises(BadMessage, match='party-1 was asked for "weigh"'):
        federation.ask("weigh", items=zeros, t=0)


class Clashing(Role):
    @step(Kind.PUBLIC, takes=Schema(), what="a step of the same name as the parties'")
    def finish(self):
        return self.gate.send(done=True)


def test_steps_of_one_name_and_names_that_cannot_be_invited_are_refused(parties):
    with pytest.raises(UsageError, match='role "catalogue" has a step "finish"'):
        spoken(prepared(parties, with_role(Clashing)), parties)
    with pytest.raises(UsageError, match='cannot be called "party-9"'):
        prepared(parties, with_role(WeighingCatalogue, "party-9"))


class Cut(Exception):
    """The process was killed."""


def killed_after(calls, log):
    """A log that is cut off after so many calls."""
    kept, keep = [], log.keep

    def counted(*call):
        if len(kept) == calls:
            raise Cut
        kept.append(call)
        keep(*call)

    log.keep = counted
    return log


@pytest.mark.parametrize("calls", range(1, 7))
def test_a_private_run_that_is_resumed_asks_a_role_nothing_twice(parties, tmp_path, monkeypatch, calls):
    made = prepared(parties, privacy=PRIVACY).named("run")
    whole = train(made, parties, records=Records.of(made, tmp_path / "whole", CallLog(tmp_path / "a" / "log.sqlite")))
    place, served = tmp_path / "b" / "log.sqlite", []
    weigh = WeighingCatalogue.weigh

    def counted(self, items, t):
        served.append(t)
        return weigh(self, items, t)

    counted.tacit_step = weigh.tacit_step
    monkeypatch.setattr(WeighingCatalogue, "weigh", counted)
    with pytest.raises(Cut):
        train(made, parties, records=Records.of(made, tmp_path / "cut", killed_after(calls, CallLog(place))))
    resumed = train(made, parties, records=Records.of(made, tmp_path / "cut", CallLog(place)))
    assert served == [0, 1, 2]
    assert resumed.transcript.digest == whole.transcript.digest
    np.testing.assert_array_equal(resumed.model.form.order, whole.model.form.order)


def test_a_run_without_privacy_goes_on_with_what_the_role_had_at_home(parties, tmp_path, monkeypatch):
    monkeypatch.setattr("tacit.engine.checkpoint.EVERY", 0.0)
    made = prepared(parties)
    whole = train(made, parties)
    with pytest.raises(Cut):
        train(made, parties, saved=killed_after(4, SavedRun(tmp_path / "saved.sqlite", "made")))
    resumed = train(made, parties, saved=SavedRun(tmp_path / "saved.sqlite", "made"))
    assert resumed.transcript.digest == whole.transcript.digest


class Witness(Role):
    """An aggregation's role without steps of its own: the aggregation answers for it."""


@dataclass(frozen=True)
class Witnessed(Plain):
    """As plain, but a decrypter is told of every sum before it is used."""

    name: ClassVar[str] = "witnessed"
    roles: ClassVar = {"decrypter-1": Witness}
    exchanges: ClassVar = {"witness": Exchange(Schema(sum=Bytes(8)), Schema(seen=Bytes(8)), "what a witness saw")}

    def answer(self, exchange, payload, endpoint):
        assert endpoint.party == "decrypter-1"
        before = endpoint.load("count")
        count = 1 + (0 if before is None else int(before))
        endpoint.save("count", np.asarray(count))
        return {"seen": np.full(1, count, dtype=np.uint8)}

    def add(self, call) -> Total | None:
        opened = super().add(call)
        said = call.exchange("witness", {"decrypter-1": {"sum": np.zeros(1, dtype=np.uint8)}})
        return None if "decrypter-1" not in said else replace(opened, contributors=int(said["decrypter-1"]["seen"][0]))


@pytest.fixture
def witnessed():
    aggregations.known()["witnessed"] = Witnessed
    yield
    del aggregations.known()["witnessed"]


def test_an_aggregation_reaches_its_own_role_which_keeps_its_state(parties, witnessed):
    made = prepared(parties, aggregation=AggregationSection(name="witnessed"))
    assert list(made.roles) == ["catalogue", "decrypter-1"]
    federation, roles = spoken(made, parties)
    assert isinstance(federation, Federation)
    assert [federation.sum("deviations").contributors for _t in federation.rounds(3)] == [1, 2, 3]
    assert int(roles[1].home["count"]) == 3
    asked = [e.party for e in federation.transcript.entries if e.step == "witness:deviations" and e.direction == "up"]
    assert asked == ["decrypter-1"] * 3


def test_a_run_with_a_role_verifies_though_the_role_has_no_ledger(tmp_path):
    data = {"source": "demo", "users": 40, "items": 25, "ratings": 500}
    privacy, method = {"epsilon": 4.0, "delta": 1e-4}, {"name": WEIGHED.name, "rounds": 2}
    file = {"data": data, "partition": {"into": 3}, "method": method, "privacy": privacy}
    run(RunFile.model_validate(file), tmp_path / "run")
    verified = CliRunner().invoke(app, ["ledger", "verify", str(tmp_path / "run")])
    assert verified.exit_code == 0, verified.output
    assert "sent by catalogue, a role without ratings" in (tmp_path / "run" / "about.json").read_text()
