"""The coordinator remembers the last head of every site's ledger, over runs; a site with an older ledger refuses."""

import hashlib
import shutil
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import pytest
from one_site import Sites, offer_of, rows_of, run_file

from tacit.deploy.coordinator_service import Coordinator
from tacit.deploy.deployment import _ledger_heads
from tacit.deploy.policy import Policy
from tacit.engine.call_log import CallLog
from tacit.engine.ledger_folder import Heads
from tacit.errors import TamperingFound
from tacit.federation.calls import Logged

OFFER = offer_of(run_file())
AGAIN = replace(OFFER, run="run-2", file=OFFER.file.model_copy(update={"seed": 8}))


@pytest.fixture
def restored(tmp_path):
    """Three sites after a run, each with the last head that left it; party-1 has put back its ledger from before."""
    policy = Policy(max_epsilon=9.0)
    sites = Sites(tmp_path, OFFER, policy)
    ledger = sites.homes["party-1"].ledgers
    shutil.copytree(ledger, tmp_path / "old")
    sites.begin().conduct()
    sites.leave()
    heads = {name: rows_of(home)[-1].head for name, home in sites.homes.items()}
    shutil.rmtree(ledger)
    shutil.copytree(tmp_path / "old", ledger)
    again = Sites(tmp_path, AGAIN, policy)
    yield again, heads
    again.leave()


def test_a_site_whose_ledger_is_older_than_what_left_it_refuses(restored):
    sites, heads = restored
    with pytest.raises(TamperingFound, match="an old ledger was put back"):
        sites.parts["party-1"].begin({**sites.begin_content, "head": heads["party-1"]})
    assert "bound" in sites.parts["party-2"].begin({**sites.begin_content, "head": heads["party-2"]})
    assert "bound" in sites.parts["party-1"].begin(sites.begin_content)  # nobody remembers


def test_every_site_is_told_its_own_head_and_no_other(restored):
    sites, _heads = restored
    said = {}
    bound = SimpleNamespace(bound="terms", facts=sites.begin().agreed.facts)

    def settle(_topic, _about, content, _seconds):
        said.update({name: one(0.0) for name, one in content.items()})
        return {name: {"bound": hashlib.sha256(b"terms").hexdigest()} for name in content}

    here = SimpleNamespace(
        identities=lambda names: dict.fromkeys(names, "key"),
        _send_all=settle,
        channel=SimpleNamespace(introduce=lambda *_what: None),
        _status=SimpleNamespace(set=lambda **_what: None),
        _log=SimpleNamespace(info=lambda *_what, **_more: None),
        run="run-2",
    )
    Coordinator.begin(here, sites.offer, bound, {"party-2": "its head"})
    assert {name: content.get("head") for name, content in said.items()} == {
        "party-1": None,
        "party-2": "its head",
        "party-3": None,
    }


def test_heads_are_kept_with_the_keys_under_the_sites_signing_keys(tmp_path):
    def coordinator(**keys):
        return SimpleNamespace(keyring=SimpleNamespace(folder=tmp_path), identities=lambda _names: keys)

    def held(run, who, heads):
        with closing(CallLog(tmp_path / f"{run}.sqlite")) as calls, _ledger_heads(who, OFFER, calls) as known:
            calls.keep("0", "request", Logged(b"", (), heads))
            return known

    first = coordinator(**{"party-1": "one", "party-2": "two"})
    assert held("first", first, {"party-1": "a", "party-2": "b"}) == {}
    other = coordinator(**{"party-1": "another site", "party-2": "two"})
    assert held("second", other, {"party-1": "c", "party-2": "d"}) == {"party-2": "b"}
    assert Heads(tmp_path / "heads.json").known() == {"one": "a", "another site": "c", "two": "d"}
    bare = replace(OFFER, file=run_file(privacy=None))
    with _ledger_heads(first, bare, None) as nothing:
        assert nothing == {}
