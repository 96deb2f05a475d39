"""What a coordinator makes of a run file before anybody joins, and of what sites told after."""

import json
import math

import pytest
from one_site import run_file

from tacit.deploy.deployment import for_sites, public_items, shared_metrics
from tacit.errors import PrivacyRefused, UsageError
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
