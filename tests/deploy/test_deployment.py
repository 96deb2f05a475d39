"""What a coordinator makes of a run file, of what sites told it, and of the last head of every site's ledger."""

import hashlib
import json
import math
import shutil
import threading
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import pytest
from one_coordinator import NAMES, World
from one_site import Sites, offer_of, rows_of, run_file

from tacit.data.ratings import Feedback
from tacit.deploy.deployment import _ledger_heads, for_sites, public_items, shared_metrics
from tacit.deploy.offer import SiteSizes, facts_of
from tacit.deploy.policy import Policy
from tacit.engine.call_log import CallLog
from tacit.engine.ledger_folder import Heads
from tacit.errors import PrivacyRefused, TamperingFound, UsageError
from tacit.federation.calls import Logged
from tacit.prepare.run_file import seeded


def test_a_run_file_of_a_simulation_becomes_one_for_sites():
    made = for_sites(run_file(engine={"timeout": 3.0, "transcript": "full"}))
    assert (made.engine.name, made.engine.timeout, made.engine.transcript) == ("flare", 3.0, "full")
    assert not seeded(made)
    free = run_file(privacy=None, public={"scale": [1, 5]}, engine={"seeded": True})
    assert for_sites(free).privacy is None


@pytest.mark.parametrize(
    ("sections", "kind", "words"),
    [
        ({"engine": {"seeded": True}}, PrivacyRefused, "seeded"),
        ({"aggregation": {"dropout": 0.1}}, UsageError, "dropout"),
        ({"split": {"by": "temporal"}}, UsageError, "temporal"),
        ({"public": {"users": 48}}, UsageError, "scale"),
        ({"public": {"scale": [1, 5]}}, UsageError, "users"),
        ({"public": {}, "privacy": None}, UsageError, "scale"),
    ],
)
def test_what_only_a_simulation_may_ask_for_is_refused(sections, kind, words):
    with pytest.raises(kind, match=words):
        for_sites(run_file(**sections))


def test_with_privacy_items_come_from_a_public_list(tmp_path):
    (tmp_path / "items.csv").write_text("item\n3\n1\n2\n")
    public = {"scale": [1, 5], "users": 48, "catalogue": str(tmp_path / "items.csv")}
    assert public_items(run_file(public=public)).ids.ids.tolist() == [1, 2, 3]
    assert public_items(run_file(privacy=None, public=public)).ids.ids.tolist() == [1, 2, 3]
    assert public_items(run_file(privacy=None)) is None
    with pytest.raises(UsageError, match="catalogue"):
        public_items(run_file())


def told(ratings, users=3, **metrics):
    return {"ended": True, "metrics": json.dumps({"metrics": metrics, "users": users, "ratings": ratings})}


def test_errors_are_weighed_by_test_ratings_and_places_by_test_users_and_all_is_stamped():
    one, other = told(10, 1, mse=1.0, rank=0.5, mae=2.0), told(30, 4, mse=2.0, rank=1.0)
    metrics, (note,) = shared_metrics({"party-1": one, "party-2": other, "party-3": {"ended": True}}, 3)
    assert metrics == {"mse": 1.75, "rank": 0.9, "rmse": math.sqrt(1.75)}
    assert note.startswith("METRICS SHARED: 2 of 3 sites")
    assert "no guarantee" in note


IMPOSSIBLE = (told(0, mse=1.0), told(-3, mse=1.0), told(3, 0, mse=1.0), told(3, mse="x"))
NOT_FINITE = '{"metrics": {"mse": NaN}, "users": 3, "ratings": 3}'


@pytest.mark.parametrize("junk", ["junk", "[]", 7, "[" * 100_000, NOT_FINITE, *(one["metrics"] for one in IMPOSSIBLE)])
def test_metrics_that_are_none_are_left_out(junk):
    metrics, notes = shared_metrics({"party-1": {"metrics": junk}, "party-2": told(3, mse=4.0)}, 2)
    assert metrics == {"mse": 4.0, "rmse": 2.0}
    assert "party-1" in notes[0]


def test_without_anybody_s_metrics_there_are_none():
    metrics, (note,) = shared_metrics({"party-1": {"ended": True}}, 1)
    assert metrics == {}
    assert "stayed at the sites" in note


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


def test_every_site_is_told_its_own_head_and_no_other(tmp_path, monkeypatch):
    world, offer = World(tmp_path, monkeypatch), replace(OFFER, roster=NAMES)
    prepared = offer.prepared(facts_of(offer, dict.fromkeys(NAMES, SiteSizes(24, None)), Feedback.EXPLICIT))
    bound = hashlib.sha256(prepared.bound.encode()).hexdigest()
    for name in NAMES:
        world.hello(name)
    args = (offer, prepared, {"party-2": "its head"})
    beginning = threading.Thread(target=world.coordinator.begin, args=args)
    beginning.start()
    world.until(lambda: len(world.sent) == 2)
    for name, topic, content in world.sent:
        assert (topic, content.get("head")) == ("begin", "its head" if name == "party-2" else None)
        world.reply(name, about=content["about"], bound=bound)
    beginning.join(30)
    assert not beginning.is_alive()
    world.coordinator.close()


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
