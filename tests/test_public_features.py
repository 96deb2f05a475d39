"""[public] features in a run file: on both engines, on the card, in the plan; refused where nothing describes items."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tacit.cli import app
from tacit.config import RunFile
from tacit.data.load import load
from tacit.engine.checkpoint import made_of
from tacit.experiment import prepare, run
from tacit.partition import partition
from tacit.report.guarantee_words import assumed_public

PRIVATE, BOTH = {"epsilon": 4.0, "delta": 1e-4}, ["genres", "year"]
CARD = "Assumed public: the list of 40 items and their attributes genres, year."


def run_file(**sections) -> RunFile:
    base = {
        "data": {"users": 60, "items": 40, "ratings": 600},
        "public": {"features": BOTH},
        "partition": {"into": 2},
        "method": {"name": "bias"},
        "evaluate": {"floor": False},
    }
    return RunFile.model_validate({**base, **sections})


def card(folder: Path) -> str:
    return (folder / "card.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("privacy", "features", "words"),
    [(None, BOTH, CARD), (PRIVATE, BOTH, CARD), (PRIVATE, [], "Assumed public: the list of 40 items."), (None, [], "")],
)
def test_the_card_says_what_is_assumed_public(tmp_path, privacy, features, words):
    run(run_file(privacy=privacy, public={"features": features}), tmp_path / "run")
    assert words in card(tmp_path / "run")
    assert ("Assumed public" in card(tmp_path / "run")) is bool(words)
    assert json.loads((tmp_path / "run" / "about.json").read_text())["data"]["features"] == features


@pytest.mark.parametrize("name", ["tags", "Tags:text", "reviews", "user_tags", "keywords"])
def test_authors_of_tags_are_said_not_to_be_protected(name):
    assert assumed_public(9, ["genres", name]).endswith(
        f"genres, {name}. Tags and reviews are written by users, and their authors, who may be users of this run, "
        "are not protected."
    )
    assert "authors" not in assumed_public(9, ["genres", "year"])


def test_processes_of_their_own_agree_with_one_process(tmp_path):
    here = run(run_file(privacy=PRIVATE), tmp_path / "here")
    engine = {"name": "flare", "seeded": True}
    apart = run(run_file(privacy=PRIVATE, engine=engine), tmp_path / "apart")
    assert here["digest"] == apart["digest"]
    assert CARD in card(tmp_path / "apart")


def test_features_do_not_change_a_method_that_uses_none():
    plain, featured = prepare(run_file(public={})), prepare(run_file())
    assert (plain.train.values == featured.train.values).all()
    assert (plain.parties.catalogue.width, featured.parties.catalogue.columns) == (0, ("genres", "year"))


def test_a_saved_run_is_not_gone_on_with_under_another_catalogue():
    def saved(features):
        return made_of("", partition(load("demo", users=20, items=30, ratings=200, features=features), into=2))

    assert saved(["year"]) == saved(["year"]) != saved(["genres"])


def test_a_plan_knows_the_width(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(run_file(privacy=PRIVATE).to_toml())
    told = CliRunner().invoke(app, ["plan", str(path), "--json"])
    plan = json.loads(told.stdout)
    assert plan["features"] == prepare(run_file()).parties.catalogue.width
    assert CARD in plan["notes"]


@pytest.mark.parametrize(
    ("features", "words"),
    [('["colour"]', 'no column "colour"'), ('["year", "year"]', "every column once"), ('"year"', "features")],
)
@pytest.mark.parametrize("privacy", ["", "[privacy]\nepsilon = 4.0\n"], ids=["non-private", "private"])
def test_features_that_there_are_not_are_a_mistake_of_the_run_file(tmp_path, features, words, privacy):
    path = tmp_path / "run.toml"
    path.write_text(
        f'[data]\nusers = 60\nitems = 40\n[public]\nfeatures = {features}\n[method]\nname = "bias"\n{privacy}'
    )
    told = CliRunner().invoke(app, ["run", str(path), "--out", str(tmp_path / "out")])
    assert told.exit_code == 2
    assert words in told.output
    assert not (tmp_path / "out").exists()


def test_features_of_items_that_nothing_describes_are_a_mistake_of_the_run_file(tmp_path):
    (tmp_path / "ratings.csv").write_text("user,item,rating\n" + "".join(f"u{k},{k % 5},3\n" for k in range(30)))
    path = tmp_path / "run.toml"
    path.write_text(f'[data]\nsource = "{tmp_path}/ratings.csv"\n[public]\nfeatures = ["year"]\n')
    told = CliRunner().invoke(app, ["run", str(path), "--out", str(tmp_path / "out")])
    assert told.exit_code == 2
    assert "nothing describes the items" in told.output
