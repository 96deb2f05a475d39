"""`tacit new`: its files are private, what they say is true, and --set can name another method."""

import json
import math
import re
from pathlib import Path
from typing import get_args

import pytest
from test_cli import refused, tacit

from tacit.cli.display import read_run_file
from tacit.cli.new import new
from tacit.config import RunFile
from tacit.deploy.coordinator_service import STEP
from tacit.errors import DataError, UsageError
from tacit.methods import chosen, find, known
from tacit.prepare.run_file import check, plan

SETTINGS = ("horizontal", "vertical", "device")


def written(folder, setting):
    assert tacit("new", f"{setting}.toml", "--setting", setting, cwd=folder).returncode == 0
    return folder / f"{setting}.toml"


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_methods_listed_are_those_of_the_setting(tmp_path, setting):
    text = written(tmp_path, setting).read_text(encoding="utf-8")
    listed = re.search(r'^name = "(?:auto|bias)" +((?:#.+\n +)*#.+)$', text, re.MULTILINE)[1]
    names = [name.strip(" #\n·") for name in re.split(r"·", listed)]
    assert names == [name for name, method in known().items() if setting in method.sides]


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_new_file_is_private_and_its_guarantee_holds_as_it_stands(tmp_path, setting):
    file = RunFile.read(written(tmp_path, setting))
    assert file.method["name"] == ("bias" if setting == "vertical" else "auto")
    assert plan(file, *check(file)).terms.guarantee.epsilon == pytest.approx(1, rel=1e-3)


def test_the_file_says_how_far_its_epsilon_shifts_odds(tmp_path):
    path = written(tmp_path, "horizontal")
    epsilon = RunFile.read(path).privacy.epsilon
    assert f"shift by at most e^{epsilon:g} = {math.exp(epsilon):.1f} ×" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("setting", ["horizontal", "device"])
def test_defaults_are_shown_as_they_are(tmp_path, setting):
    text = written(tmp_path, setting).read_text(encoding="utf-8")
    shown = re.search(r"^# objective = (\S+) .*: (.+)$", text, re.MULTILINE)
    objective = find("auto").parameters.model_fields["objective"]
    assert json.loads(shown[1]) == objective.default
    assert tuple(shown[2].split(" · ")) == get_args(objective.annotation)
    left_out = re.sub(r"^# (?=objective|delta|unit|tolerate|collusion|signed|retries)", "", text, flags=re.MULTILINE)
    (tmp_path / "all.toml").write_text(left_out, encoding="utf-8")
    with_all = RunFile.read(tmp_path / "all.toml")
    assert {"objective", "name"} <= set(with_all.method)
    file = RunFile.read(tmp_path / f"{setting}.toml")
    assert plan(with_all, *check(with_all)).terms == plan(file, *check(file)).terms


def test_a_section_that_is_set_to_none_is_left_out(tmp_path):
    path = written(tmp_path, "horizontal")
    file = read_run_file(path, ["privacy=none", "method.name=central", "aggregation = none"])
    assert file.privacy is None
    assert file.aggregation.name == "plain"
    assert file.method["name"] == "central"
    assert read_run_file(path, ["privacy=none", "privacy.epsilon=2"]).privacy.epsilon == 2
    refused(tacit("run", path, "--set", "method.name=central", cwd=tmp_path), 4, "--set privacy=none", '"auto"')


# -- public facts ------------------------------------------------------------------------------------------------------

BOOKS = "isbn,shelf,pages,title,publisher_id\n" + "".join(
    f"b{n},{'Crime|Drama' if n % 2 else 'Poetry'},{100 + n},Title {n},{n % 3}\n" for n in range(20)
)


def test_attributes_that_many_items_share_become_features_and_titles_and_ids_do_not(tmp_path):
    (tmp_path / "books.csv").write_text(BOOKS)
    new(tmp_path / "run.toml", "ratings.csv", tmp_path / "books.csv", "horizontal")
    file = RunFile.read(tmp_path / "run.toml")
    assert file.public.features == ("shelf", "pages")
    assert file.public.catalogue == str(tmp_path / "books.csv")
    assert "assumed public" in (tmp_path / "run.toml").read_text(encoding="utf-8")


def test_the_demo_s_features_are_there_and_one_s_own_data_need_not_be_yet(tmp_path, capsys):
    new(tmp_path / "demo.toml", "demo", None, "device")
    assert RunFile.read(tmp_path / "demo.toml").public.features == ("genres", "year")
    capsys.readouterr()
    new(tmp_path / "own.toml", "nowhere/ratings.csv", None, "horizontal")
    assert RunFile.read(tmp_path / "own.toml").public.features == ()
    assert "declare scale, users and catalogue in [public], and then: tacit plan" in capsys.readouterr().out
    refused(tacit("plan", "own.toml", cwd=tmp_path), 3, "nowhere/ratings.csv")
    with pytest.raises(DataError, match=r"nowhere\.csv"):
        new(tmp_path / "no.toml", "ratings.csv", Path("nowhere.csv"), "horizontal")


@pytest.mark.parametrize("setting", SETTINGS)
def test_what_holds_without_a_timeout_is_said_for_simulations_and_deployments(tmp_path, setting):
    path = written(tmp_path, setting)
    line = re.search(r"^# timeout = .*$", path.read_text(encoding="utf-8"), re.MULTILINE)[0]
    assert f"a deployment (tacit up) waits {STEP:g}, a simulation for ever" in line
    assert RunFile.read(path).engine.timeout is None


# -- --set method.name on a file for another method --------------------------------------------------------------------


@pytest.fixture
def run_file(tmp_path):
    (tmp_path / "run.toml").write_text('[method]\nname = "sgdmf"\nfactors = 20\nrounds = 100\nlocal_steps = 10\n')
    return tmp_path / "run.toml"


def test_the_other_method_s_keys_go_with_a_note(run_file, capsys):
    capsys.readouterr()
    file = read_run_file(run_file, ["method.name=bias"])
    assert file.method == {"name": "bias"}
    assert chosen(file.method)[0].name == "bias"
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "tacit: [method] is now bias, which has no factors, rounds, local_steps; these keys of sgdmf are ignored."
    ]


def test_keys_that_both_methods_know_stay(run_file, capsys):
    capsys.readouterr()
    file = read_run_file(run_file, ["method.name = gradient-clipping", "method.threshold=3"])
    assert file.method["rounds"] == 100
    assert file.method["threshold"] == 3
    assert capsys.readouterr().err == ""


def test_a_key_that_was_set_with_it_is_checked_all_the_same(run_file):
    file = read_run_file(run_file, ["method.name=bias", "method.factors=3"])
    with pytest.raises(UsageError, match="factors"):
        chosen(file.method)


@pytest.mark.parametrize("changes", [[], ["method.name=sgdmf"], ["method.rounds=5"]])
def test_a_misspelt_key_of_the_file_s_own_method_is_not_dropped(run_file, changes):
    run_file.write_text(run_file.read_text().replace("factors = 20", "factor = 20"))
    with pytest.raises(UsageError, match='Did you mean "factors"'):
        chosen(read_run_file(run_file, changes).method)


def test_a_set_of_counts_is_read_as_implicit_feedback_which_can_run_privately(tmp_path):
    assert tacit("new", "run.toml", "--source", "hetrec2011-lastfm-2k", cwd=tmp_path).returncode == 0
    file = RunFile.read(tmp_path / "run.toml")
    assert file.data.feedback == "implicit"
    assert plan(file, *check(file)).terms.guarantee.epsilon == pytest.approx(1, rel=1e-3)


def test_a_source_that_is_not_there_is_warned_about_and_the_file_is_written(tmp_path):
    answer = tacit("new", "run.toml", "--source", "absent.csv", cwd=tmp_path)
    assert answer.returncode == 0
    assert 'warning: There is no file or folder "absent.csv"' in answer.stderr
    assert (tmp_path / "run.toml").is_file()
