"""A prepared run: what it binds, who makes masks with whom, and what a party may hand to its engine."""

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import Budget, BudgetSpent
from tacit.boundary.release import Kind
from tacit.boundary.wire import encode
from tacit.config import RunFile
from tacit.data.synthetic import demo
from tacit.engine.serve import serve_request
from tacit.errors import BadMessage, PeerFailed, PrivacyRefused, UngatedRelease, UsageError
from tacit.federation import Facts
from tacit.federation.facts import Member
from tacit.federation.messages import Request
from tacit.partition import partition
from tacit.prepare.prepared import Keys, PreparedRun, Record
from tacit.prepare.run_file import prepared
from tacit.secure.secagg_protocol import VoidRound

PARTIES = partition(demo(users=30, items=12, ratings=300), into=3)
BUDGET = Budget(4.0, 1e-6)
DATA = {"source": "demo", "users": 30, "items": 12, "ratings": 300}


def agreed(parties=PARTIES, seed=7, run="run-1", private=True, method=None, **sections) -> PreparedRun:
    privacy = {"privacy": {"epsilon": 4.0, "delta": 1e-6}} if private else {}
    table = {"data": DATA, "partition": {"into": 3}, "method": method or {"name": "bias"}, **privacy, **sections}
    return prepared(RunFile.model_validate(table), Facts.of(parties, seed), run=run)


PRIVATE, FREE = agreed(), agreed(private=False)
SEALED = agreed(aggregation={"name": "secagg"})


# -- prepared runs ---------------------------------------------------------------------------------------------------


def test_a_plan_brings_its_parameters_noise_and_declared_ratings():
    assert PRIVATE.facts.ratings == PRIVATE.plan.context.facts.ratings
    assert PRIVATE.plan.sigma()["contribute"] > 0
    assert PRIVATE.facts.unit == "user"
    assert PRIVATE.parameters == PRIVATE.plan.parameters
    assert FREE.facts.ratings == PARTIES.n_ratings
    assert not FREE.plan.sigma()


def test_a_private_simulation_knows_the_declared_number_of_ratings_and_not_its_own():
    declared = agreed(public={"ratings": 250})
    assert declared.facts.ratings == declared.plan.context.facts.ratings == 250 != PARTIES.n_ratings


def test_what_every_request_binds_differs_with_anything_that_protects():
    others = [
        agreed(privacy={"epsilon": 3.0, "delta": 1e-6}),
        agreed(privacy={"epsilon": 4.0, "delta": 1e-7}),
        agreed(privacy={"epsilon": 4.0, "delta": 1e-6, "unit": "rating"}),
        agreed(seed=8),
        agreed(method={"name": "bias", "count_weight": 2.0}),
        agreed(engine={"seeded": False}),
        SEALED,
        FREE,
    ]
    assert len({made.bound for made in (PRIVATE, *others)}) == 1 + len(others)
    assert agreed().bound == PRIVATE.bound


def test_what_every_request_binds_differs_with_how_much_is_asked_and_how_loud_noise_is():
    plan, step = PRIVATE.plan, PRIVATE.plan.terms.steps["contribute"]
    oftener = replace(plan.terms, steps={"contribute": replace(step, spec=replace(step.spec, releases=2))})
    louder = replace(plan.terms, steps={"contribute": replace(step, multiplier=0.1)})
    for other in (oftener, louder):
        assert replace(PRIVATE, plan=replace(plan, terms=other)).bound != PRIVATE.bound


def test_whoever_makes_masks_is_who_was_planned_for(tmp_path):
    assert [run.sealed for run in (PRIVATE, FREE, SEALED)] == [(), (), ("contribute",)]
    fewer = replace(SEALED, facts=replace(SEALED.facts, roster=SEALED.facts.roster[:2]))
    for run, begins in ((SEALED, True), (fewer, False)):
        with closing(Ledger(tmp_path / f"{begins}.sqlite", "party-1")) as ledger:
            party = run.party(PARTIES[0], Record(ledger, BUDGET))
            asked = request(run, "advertise:contribute", context=request(run, "contribute").hash)
            if begins:
                assert serve_request(party, asked).status == "ok"
            else:
                with pytest.raises(PrivacyRefused, match="planned for 3 parties, and 2 take part"):
                    serve_request(party, asked)


def test_signing_keys_are_the_peers_only_where_survivors_sign(tmp_path):
    key = Ed25519PrivateKey.from_private_bytes(b"1" * 32)
    keys = Keys({name: key.public_key() for name in PARTIES.names}, key)
    signed = agreed(aggregation={"name": "secagg", "signed": True})
    assert [made.signed for made in (FREE, PRIVATE, SEALED, signed)] == [False, False, False, True]
    with closing(Ledger(tmp_path / "party-1.sqlite", "party-1")) as ledger:
        made = [run.party(PARTIES[0], Record(ledger, BUDGET), keys) for run in (PRIVATE, SEALED, signed)]
    none, sealed, known = (party.gate._peers for party in made)
    for peers in (none, sealed, known):
        assert (peers.run, peers.names) == ("run-1", ("party-1", "party-2", "party-3"))
    assert (none.identity, sealed.identity) == (None, None)
    assert not none.identities
    assert not sealed.identities
    assert (known.identity, known.identities) == (key, keys.public)


def test_a_party_is_protected_in_a_private_run_alone_and_needs_its_record_there(tmp_path):
    with closing(Ledger(tmp_path / "party-1.sqlite", "party-1")) as ledger:
        record = Record(ledger, BUDGET, ("ann",))
        assert FREE.party(PARTIES[0], record).gate.protection is None
        guard = PRIVATE.party(PARTIES[0], record).gate.protection
    assert guard.terms is PRIVATE.plan.terms
    assert guard.run == "run-1"
    with pytest.raises(UsageError, match="party-1 takes part in a private run and has no ledger"):
        PRIVATE.party(PARTIES[0])


def test_other_roles_are_known_by_name_and_have_no_weight_in_a_mean():
    facts = replace(FREE.facts, roles=(Member("catalogue", 0, 12, np.arange(12)),))
    assert facts.member("catalogue").items == 12
    assert facts.member("party-2").users == 10
    assert sum(facts.weight(member.name) for member in facts.roster) == pytest.approx(1.0)
    assert facts.first_user("party-3") == 20
    with pytest.raises(PeerFailed, match="not on the roster"):
        facts.member("proxy")
    with pytest.raises(PeerFailed, match="not on the roster"):
        FREE.facts.member("catalogue")


# -- serving ------------------------------------------------------------------------------------------------------


def request(made: PreparedRun, step: str, round: int = 1, **payload) -> Request:
    return Request(made.method.name, made.bound, step, round, 0, encode(payload))


@pytest.fixture
def party(tmp_path):
    ledger = Ledger(tmp_path / "party-1.sqlite", "party-1")
    yield PRIVATE.party(PARTIES[0], Record(ledger, BUDGET))
    ledger.close()


def test_an_answer_carries_what_was_recorded(party):
    answer = serve_request(party, request(PRIVATE, "contribute"))
    (row,) = party.gate.protection.ledger.rows()
    assert (answer.party, answer.status, answer.kind) == ("party-1", "ok", Kind.SUM)
    assert (answer.event, answer.payload, answer.head) == (row.event, row.payload, row.head)
    assert answer.digest == row.payload


def test_a_spent_budget_is_an_answer_and_other_refusals_are_raised(tmp_path):
    ledger = Ledger(tmp_path / "party-1.sqlite", "party-1")
    poor = PRIVATE.party(PARTIES[0], Record(ledger, Budget(1.0, 1e-6)))
    answer = serve_request(poor, request(PRIVATE, "contribute"))
    assert (answer.status, answer.body, answer.head) == ("refused", b"", "")
    assert ledger.rows() == []
    with pytest.raises(BadMessage, match="not a step"):
        serve_request(poor, request(PRIVATE, "nosuch"))
    ledger.close()


def raises(error):
    def answer(*_anything):
        raise error

    return answer


def test_what_fails_tells_of_data_only_where_nothing_is_protected(party, monkeypatch):
    free = FREE.party(PARTIES[0])
    for one in (party, free):
        monkeypatch.setattr(one, "answer", raises(KeyError("user ann")))
    with pytest.raises(PeerFailed) as hidden:
        serve_request(party, request(PRIVATE, "contribute"))
    assert "KeyError" in str(hidden.value)
    assert "ann" not in str(hidden.value)
    with pytest.raises(PeerFailed, match="ann"):
        serve_request(free, request(FREE, "contribute"))


def test_whoever_heard_too_few_is_lost_and_not_failed(party, monkeypatch):
    monkeypatch.setattr(party, "answer", raises(VoidRound("too few")))
    assert serve_request(party, request(PRIVATE, "contribute")).status == "lost"
    monkeypatch.setattr(party, "answer", raises(BudgetSpent("spent")))
    assert serve_request(party, request(PRIVATE, "contribute")).why == "spent"
    monkeypatch.setattr(party, "answer", raises(PrivacyRefused("no")))
    with pytest.raises(PrivacyRefused, match="no"):
        serve_request(party, request(PRIVATE, "contribute"))


def test_what_no_gate_made_is_not_handed_on(party, monkeypatch):
    """Planted: a party that answers around its gate, with something, or with a release of another's making."""
    other = FREE.party(PARTIES[1])
    release = other.answer(request(FREE, "contribute"))
    for forged in (b"bytes", None, release):
        monkeypatch.setattr(party, "answer", lambda *_anything, forged=forged: forged)
        with pytest.raises(UngatedRelease, match="not made by its gate"):
            serve_request(party, request(PRIVATE, "contribute"))
