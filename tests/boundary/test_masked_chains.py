"""Where means are masked, what is averaged leaves masked or not at all, whatever a coordinator skips."""

from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tacit.boundary.sealed import SEALED

from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import Budget
from tacit.boundary.wire import decode, encode
from tacit.config import RunFile
from tacit.data.synthetic import demo
from tacit.errors import PrivacyRefused
from tacit.federation import Facts
from tacit.federation.messages import Request
from tacit.methods import chosen
from tacit.methods.start import start_factors
from tacit.partition import partition
from tacit.prepare.file import plan
from tacit.prepare.prepared import PreparedRun, Record

SHORT = {"factors": 2, "rounds": 1, "local_steps": 2, "sampling": 1.0}
#: By name: the method, how data is divided, the averaged step, and the block that it takes.
AVERAGED = {
    "sgdmf, users divided": ({"name": "sgdmf", **SHORT}, "user", "improve", "items"),
    "sgdmf, items divided": ({"name": "sgdmf", **SHORT}, "item", "improve", "users"),
    "gradient-clipping": ({"name": "gradient-clipping", **SHORT}, "user", "improve", "items"),
    "objective-perturbation": ({"name": "objective-perturbation", "factors": 2}, "user", "solve", "items"),
}
EVERY = pytest.mark.parametrize("name", AVERAGED)
DATA = {"source": "demo", "users": 12, "items": 8, "ratings": 60}


@cache
def agreement(name, aggregation="secagg", seeded=True):
    """The run, and its parties' shares."""
    table, by, *_ = AVERAGED[name]
    file = RunFile.model_validate(
        {
            "data": DATA,
            "partition": {"by": by, "into": 3},
            "method": table,
            "privacy": {"epsilon": 4.0, "delta": 1e-4, "unit": "rating" if table["name"].startswith("obj") else "user"},
            "aggregation": {"name": aggregation},
            "engine": {"name": "flare", "seeded": seeded},
        }
    )
    method, parameters = chosen(file.method)
    shares = partition(demo(users=12, items=8, ratings=60), into=3, by=by)
    made = plan(file, method, parameters, shares.setting, 3)
    return PreparedRun.by_plan(method, Facts.of(shares, 7), made, run="run"), shares


@contextmanager
def a_party(folder, agreed, shares, masks=True):
    """The first party of a run, which makes masks unless the roster has a cohort in it."""
    if not masks:
        *others, last = agreed.facts.roster
        agreed = replace(agreed, facts=replace(agreed.facts, roster=(*others, replace(last, devices=2))))
    with closing(Ledger(folder / "party-1.sqlite", "party-1")) as ledger:
        budget = Budget(agreed.plan.terms.guarantee.epsilon + 1, agreed.plan.delta)
        yield agreed.party(shares[0], Record(ledger, budget)), ledger


def asked(agreed, name, step=None):
    """The coordinator's request for an averaged step, or for an exchange about it."""
    _table, _by, averaged, block = AVERAGED[name]
    rows = agreed.facts.items if block == "items" else agreed.facts.users
    payload = {block: start_factors(agreed.facts, rows, 2, block)}
    payload |= {"t": 0} if averaged == "improve" else {}
    whole = Request(agreed.method.name, agreed.bound, averaged, 1, 0, encode(payload))
    if step is None:
        return whole
    return Request(agreed.method.name, agreed.bound, f"{step}:{averaged}", 1, 0, encode({"context": whole.hash}))


@EVERY
@pytest.mark.parametrize("seeded", [True, False], ids=["simulated", "deployed"])
def test_without_an_exchange_of_keys_nothing_leaves_or_is_charged(tmp_path, name, seeded):
    agreed, shares = agreement(name, seeded=seeded)
    with a_party(tmp_path, agreed, shares) as (party, ledger):
        with pytest.raises(PrivacyRefused, match="under masks alone") as refusal:
            party.answer(asked(agreed, name))
        assert refusal.value.exit_code == 4
        assert ledger.rows() == []
        (told,) = ledger.refusals()["told"]
        assert (told["why"], told["step"]) == (str(refusal.value), AVERAGED[name][2])


@EVERY
def test_an_exchange_that_was_only_begun_is_not_enough(tmp_path, name):
    """Keys were advertised for this very request, and nobody's shares were taken in."""
    agreed, shares = agreement(name)
    with a_party(tmp_path, agreed, shares) as (party, ledger):
        party.answer(asked(agreed, name, "advertise"))
        with pytest.raises(PrivacyRefused, match="under masks alone"):
            party.answer(asked(agreed, name))
        assert [row.step.partition(":")[0] for row in ledger.rows()] == ["advertise"]
        assert ledger.refusals()["number"] == 1


@EVERY
def test_a_party_that_makes_no_masks_refuses_in_a_deployment_alone(tmp_path, name):
    """As where a roster is told that has cohorts in it, which are simulated: the run's terms say masked even so."""
    for seeded in (True, False):
        (folder := tmp_path / str(seeded)).mkdir()
        agreed, shares = agreement(name, seeded=seeded)
        with a_party(folder, agreed, shares, masks=False) as (party, ledger):
            if seeded:
                assert SEALED not in decode(party.answer(asked(agreed, name)).body)
            else:
                with pytest.raises(PrivacyRefused, match="a simulation may and a deployment may not"):
                    party.answer(asked(agreed, name))
            assert len(ledger.rows()) == seeded


@EVERY
def test_without_masks_in_the_terms_the_same_request_is_answered(tmp_path, name):
    agreed, shares = agreement(name, aggregation="plain")
    with a_party(tmp_path, agreed, shares) as (party, _ledger):
        (block,) = decode(party.answer(asked(agreed, name)).body).values()
        assert np.isfinite(block).all()


def test_what_is_in_no_mean_leaves_as_it_is(tmp_path):
    """The factors of a silo's own items are nobody else's: there is no mean to hide them in."""
    name = "sgdmf, items divided"
    agreed, shares = agreement(name)
    with a_party(tmp_path, agreed, shares) as (party, _ledger):
        users = start_factors(agreed.facts, agreed.facts.users, 2, "users")
        finish = replace(asked(agreed, name), step="finish", body=encode({"users": users}))
        assert decode(party.answer(finish).body).keys() == {"items"}


def test_a_sum_whose_exchange_was_only_begun_is_refused_like_a_mean(tmp_path, monkeypatch):
    """Before its noise is drawn, so that nothing is charged."""
    monkeypatch.setitem(AVERAGED, "bias", ({"name": "bias"}, "user", "contribute", None))
    agreed, shares = agreement("bias")
    contribute = Request("bias", agreed.bound, "contribute", 1, 0, encode({}))
    begin = replace(contribute, step="advertise:contribute", body=encode({"context": contribute.hash}))
    with a_party(tmp_path, agreed, shares) as (party, ledger):
        party.answer(begin)
        with pytest.raises(PrivacyRefused, match="under masks alone"):
            party.answer(contribute)
        assert [row.step for row in ledger.rows()] == ["advertise:contribute"]
