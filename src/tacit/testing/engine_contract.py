"""What every engine must do, as tests to inherit."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from tacit.aggregation.plain import Plain
from tacit.boundary import Gate, Release
from tacit.boundary.query import Mechanism, Query, Unbounded
from tacit.boundary.randomness import Source
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec, Terms, unprotected
from tacit.data.synthetic import demo
from tacit.errors import BadMessage, PeerFailed, PrivacyRefused, UngatedRelease
from tacit.federation import Facts, Federation, Floats, Integer, Party, Schema, step
from tacit.federation.calls import Engine
from tacit.federation.facts import Member
from tacit.guarantee import Relation, Unit
from tacit.methods import Parameters
from tacit.model import Fitted, Linear
from tacit.partition import Parties, Share, partition

VECTOR = Schema(vector=Floats("items"))


@dataclass(frozen=True)
class Named(Query):
    """Two reports that name their sender, and hide nothing."""

    mechanism = Mechanism.RESPONSE

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        return math.inf

    def over(self, number: float, present: np.ndarray | None = None) -> Signed:
        return Signed(number)


@dataclass(frozen=True)
class Signed:
    """The reports of one party."""

    number: float

    def reports(self, stream: np.random.Generator, coins: Source, epsilon: float) -> dict[str, np.ndarray]:
        return {"code": np.array([self.number, self.number + 0.5], np.float32)}


class Prober(Party):
    """A party with one step for each thing that can go right or wrong."""

    def __init__(self, share: Share, parameters: Parameters, facts: Facts, gate: Gate) -> None:
        super().__init__(share, parameters, facts, gate)
        self.served = 0
        self.earlier: Release | None = None

    def at_home(self, **shared: Any) -> Fitted:
        lowest = np.full(self.member.items, self.facts.scale.low, dtype=np.float32)
        return Fitted.same_for_all(Linear.scores(lowest, self.facts.scale), self.member.users)

    def _counts(self, state: Any, stream: np.random.Generator) -> dict[str, np.ndarray]:
        self.served += 1
        ratings = self.ratings
        present = self.gate.present
        here = slice(None) if present is None else np.repeat(present, ratings.counts)
        return {"vector": np.bincount(ratings.items[here], minlength=ratings.n_items).astype(np.float32)}

    @step(Kind.SUM, takes=Schema(), gives=VECTOR, what="how often each item was rated")
    def counts(self) -> Release:
        self.earlier = self.gate.sum(self._counts)
        return self.earlier

    @step(Kind.CHAIN, takes=Schema(vector=Floats("items"), t=Integer(0, 9)), gives=VECTOR, what="a random walk")
    def walk(self, vector: np.ndarray, t: int) -> Release:
        return self.gate.chain(
            lambda state, stream: {"vector": stream.random(len(vector), dtype=np.float32)},
            update=lambda s, g, i: {"vector": s["vector"] + g["vector"]},
            state={"vector": vector},
            release=("vector",),
        )

    @step(Kind.REPORT, takes=Schema(), gives=Schema(code=Floats("any")), what="two numbers that name the party")
    def reports(self) -> Release:
        return self.gate.report(float(self.name.removeprefix("party-")))

    @step(Kind.PUBLIC, takes=Schema(), what="confirmation that it is there")
    def ready(self) -> Release:
        return self.gate.public("done")

    @step(Kind.PUBLIC, takes=Schema(), what="nothing: it is far too slow")
    def slow(self) -> Release:
        if self.name == "party-2":
            time.sleep(0.6)
        return self.gate.public("done")

    @step(Kind.PUBLIC, takes=Schema(), what="nothing: it fails")
    def crash(self) -> Release:
        raise ZeroDivisionError("planted")

    @step(Kind.SUM, takes=Schema(), gives=VECTOR, what="nothing: it goes round the gate")
    def raw(self) -> Any:
        return np.ones(self.member.items, dtype=np.float32)

    @step(Kind.SUM, takes=Schema(), gives=VECTOR, what="nothing: it forges a release")
    def forged(self) -> Any:
        genuine = self.gate.sum(self._counts)
        forgery = object.__new__(Release)
        for name in ("party", "kind", "body", "guarantee", "contributors", "event", "payload", "head"):
            object.__setattr__(forgery, name, getattr(genuine, name))
        return forgery

    @step(Kind.SUM, takes=Schema(), gives=VECTOR, what="nothing: it sends an earlier release again")
    def stale(self) -> Any:
        return self.earlier

    @step(Kind.SUM, takes=Schema(), gives=VECTOR, what="nothing: it makes two releases")
    def twice(self) -> Release:
        self.gate.sum(self._counts)
        return self.gate.sum(self._counts)

    @step(Kind.PUBLIC, takes=Schema(), what="nothing: it calls data a public fact")
    def gossip(self) -> Release:
        return self.gate.public("ratings", value=True)

    @step(Kind.SUM, takes=Schema(), gives=VECTOR, what="nothing: it sends what is not a number")
    def poison(self) -> Release:
        return self.gate.sum(lambda s, r: {"vector": np.full(self.member.items, np.nan, dtype=np.float32)})

    @step(Kind.SUM, takes=Schema(), gives=VECTOR, what="nothing: it sends another shape than agreed")
    def misshapen(self) -> Release:
        return self.gate.sum(lambda s, r: {"vector": np.ones(3, dtype=np.float32)})


def probed() -> Terms:
    """What the prober's steps release: nothing is promised, and nothing is hidden."""
    queries = {Kind.SUM: Unbounded(), Kind.CHAIN: Unbounded(), Kind.REPORT: Named()}
    private = {name: step.kind for name, step in Prober.steps.items() if step.kind in queries}
    answers = {"walk": 3}
    return unprotected({n: (Spec(n, queries[k], answers=answers.get(n, 1)), k) for n, k in private.items()})


class EngineContract:
    """Subclass it under a name that starts with Test and define `make`.

    class TestInProcess(EngineContract):
        def make(self, parties, timeout=None):
            return InProcess(parties, timeout)
    """

    def make(self, parties: Sequence[Party], timeout: float | None = None) -> Engine:
        raise NotImplementedError

    def federation(
        self, parties: Parties | None = None, timeout: float | None = None, seed: int = 7, **options: Any
    ) -> tuple[Federation, list[Prober]]:
        """Four silos of probers, or those of `parties`, and a coordinator's federation over them."""
        parties = parties or partition(demo(users=40, items=25, ratings=400), into=4)
        facts = Facts.of(parties, seed)
        return self._over(parties, facts, timeout, **options)

    def _over(
        self, shares: Iterable[Share], facts: Facts, timeout: float | None = None, **options: Any
    ) -> tuple[Federation, list[Prober]]:
        terms, seed = probed(), facts.seed
        members = [Prober(s, Parameters(), facts, Gate(s.name, seed, {}, s.devices, terms=terms)) for s in shares]
        how = Plain(facts.setting, len(members))
        engine = self.make(members, timeout)
        return Federation(engine, facts, Prober.steps, terms=terms, how=how, **options), members

    # -- what must work ---------------------------------------------------------------------------------------

    def test_everybody_is_asked_and_answers_in_roster_order(self) -> None:
        federation, _members = self.federation()
        assert list(federation.ask("ready")) == ["party-1", "party-2", "party-3", "party-4"]

    def test_a_sum_is_the_sum_of_what_the_parties_hold(self) -> None:
        ratings = demo(users=40, items=25, ratings=400)
        total = self.federation()[0].sum("counts")
        np.testing.assert_array_equal(total["vector"], ratings.item_counts)
        assert total.contributors == 4

    def test_a_cohort_is_one_call_and_counts_as_its_devices(self) -> None:
        ratings = demo(users=40, items=25, ratings=400)
        federation, (cohort,) = self.federation(partition(ratings, by="device"))
        total = federation.sum("counts")
        np.testing.assert_array_equal(total["vector"], ratings.item_counts)
        assert (total.contributors, cohort.served) == (40, 1)
        up, down = federation.transcript.meter.bytes_up, federation.transcript.meter.bytes_down
        assert up % 40 == 0
        assert down % 40 == 0

    def test_the_mean_weighs_parties_by_their_users(self) -> None:
        parties = partition(demo(users=40, items=25, ratings=400), into=3, size_skew=0.8)
        federation, members = self.federation(parties)
        start = np.zeros(25, dtype=np.float32)
        mean = federation.mean("walk", vector=start, t=0)
        kept = [member.home["vector"] for member in members]
        weights = [len(share.users) / 40 for share in parties]
        np.testing.assert_allclose(mean, sum(w * k for w, k in zip(weights, kept, strict=True)), rtol=1e-6)

    def test_reports_are_complete_and_parted_from_their_senders(self) -> None:
        codes = self.federation()[0].reports("reports")["code"]
        assert sorted(codes) == [1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5]
        assert list(codes) != sorted(codes)

    def test_the_same_seed_gives_the_same_digest_and_another_one_another(self) -> None:
        digests = []
        for seed in (7, 7, 8):
            federation, _members = self.federation(seed=seed)
            for t in federation.rounds(3):
                federation.mean("walk", vector=np.zeros(25, dtype=np.float32), t=t)
            digests.append(federation.transcript.digest)
        assert digests[0] == digests[1] != digests[2]

    def test_every_message_is_metered_with_its_real_bytes(self) -> None:
        federation, _members = self.federation()
        federation.sum("counts")
        entries = federation.transcript.entries
        assert [(e.direction, e.party) for e in entries] == [
            (d, f"party-{k}") for d in ("down", "up") for k in range(1, 5)
        ]
        assert all(e.bytes >= 25 * 4 for e in entries if e.direction == "up")
        assert federation.transcript.meter.bytes_up == sum(e.bytes for e in entries if e.direction == "up")

    def test_drop_outs_leave_sums_of_those_who_stayed(self) -> None:
        ratings = demo(users=300, items=25, ratings=3000)
        federation, _members = self.federation(partition(ratings, by="device"), dropout=0.3)
        counts = [(federation.sum("counts"), t)[0] for t in federation.rounds(5)]
        assert all(150 < c.contributors < 270 for c in counts)
        assert len({c.contributors for c in counts}) > 1
        assert all(c["vector"].sum() < ratings.n_ratings for c in counts)

    def test_silos_that_drop_out_are_back_later(self) -> None:
        federation, _members = self.federation(dropout=0.5)
        heard = []
        for _t in federation.rounds(12):
            try:
                heard.append(federation.sum("counts").contributors)
            except PeerFailed:
                heard.append(0)
        assert min(heard) < 4
        assert sum(heard) > 12
        assert {e.status for e in federation.transcript.entries} == {"ok", "lost"}

    def test_a_late_party_is_left_out(self) -> None:
        federation, _members = self.federation(timeout=0.2)
        assert sorted(federation.ask("slow")) == ["party-1", "party-3", "party-4"]
        assert [e.party for e in federation.transcript.entries if e.status == "late"] == ["party-2"]

    def test_one_party_or_another_role_can_be_asked_alone(self) -> None:
        parties = partition(demo(users=40, items=25, ratings=400), into=3)
        *shares, last = parties
        facts = Facts.of(replace(parties, shares=tuple(shares)), 7)
        facts = replace(facts, roles=(Member("catalogue", 0, 25, np.arange(25)),))
        homes = [*shares, replace(last, name="catalogue")]
        federation, _members = self._over(homes, facts)
        assert federation.ask("ready", to="catalogue") == {"catalogue": {"done": True}}
        assert federation.ask("ready", to="party-2") == {"party-2": {"done": True}}
        assert list(federation.ask("ready")) == ["party-1", "party-2"]
        assert federation.sum("counts").contributors == 2

    # -- what must be refused ---------------------------------------------------------------------------------

    @pytest.mark.parametrize("trick", ["raw", "forged"])
    def test_what_the_gate_did_not_make_never_crosses(self, trick: str) -> None:
        federation, _members = self.federation()
        with pytest.raises(UngatedRelease, match="nothing was sent"):
            federation.sum(trick)
        assert federation.transcript.meter.bytes_up == 0

    def test_an_earlier_release_does_not_cross_again(self) -> None:
        federation, _members = self.federation()
        federation.sum("counts")
        sent = federation.transcript.meter.bytes_up
        with pytest.raises(UngatedRelease):
            federation.sum("stale")
        assert federation.transcript.meter.bytes_up == sent

    def test_one_request_one_release(self) -> None:
        with pytest.raises(PrivacyRefused, match="two releases"):
            self.federation()[0].sum("twice")

    def test_data_is_no_public_fact(self) -> None:
        with pytest.raises(PrivacyRefused, match="public fact"):
            self.federation()[0].ask("gossip")

    @pytest.mark.parametrize("trick", ["poison", "misshapen"])
    def test_answers_against_the_schema_are_refused_with_the_partys_name(self, trick: str) -> None:
        with pytest.raises(BadMessage, match="party-1"):
            self.federation()[0].sum(trick)

    def test_requests_against_the_schema_are_refused(self) -> None:
        federation, members = self.federation()
        for vector, t in ((np.zeros(24), 0), (np.zeros(25), 10), (np.full(25, np.inf), 0)):
            with pytest.raises(BadMessage, match="coordinator"):
                federation.mean("walk", vector=vector.astype(np.float32), t=t)
        assert all("vector" not in member.home for member in members)

    def test_a_failing_party_is_named(self) -> None:
        with pytest.raises(PeerFailed, match=r"party-\d failed in step \"crash\".*planted"):
            self.federation()[0].ask("crash")

    def test_a_sum_cannot_be_read_as_a_chain(self) -> None:
        with pytest.raises(BadMessage, match="is a sum"):
            self.federation()[0].mean("counts")
