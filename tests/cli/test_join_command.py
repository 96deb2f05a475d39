"""`tacit join`: what is refused before anything is read or sent, and what --check and --identity print."""

import json

import pytest
from typer.testing import CliRunner

from tacit.cli import app
from tacit.deploy.keyring import Keyring

RATINGS = "user,item,rating\na,1,5\na,2,3\nb,1,4\n"


@pytest.fixture(scope="module")
def keyring(tmp_path_factory) -> Keyring:
    return Keyring.make(tmp_path_factory.mktemp("keys") / "keys", federation="hearts", host="localhost", port=1)


@pytest.fixture
def kit(keyring, tmp_path):
    path = tmp_path / "party-1.kit"
    keyring.invite("party-1").write(path)
    (tmp_path / "ratings.csv").write_text(RATINGS)
    return path


def call(*words: object):
    return CliRunner().invoke(app, ["join", *map(str, words)])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ((), "--data"),
        (("--data", "ratings.csv", "--column", "person=who"), "--column"),
        (("--data", "ratings.csv", "--unit", "visit"), "--unit"),
        (("--data", "ratings.csv", "--max-epsilon", "0"), "--max-epsilon"),
        (("--data", "ratings.csv", "--delta", "-1"), "--delta"),
        (("--data", "ratings.csv", "--peers", "nowhere.txt"), "--peers"),
        (("--data", "ratings.csv", "--align-key", "nowhere.key"), "--align-key"),
    ],
)
def test_an_option_that_does_not_fit_is_named(kit, options, named):
    found = call(kit, *options, "--state", kit.parent / "state")
    assert found.exit_code == 2
    assert named in found.stderr
    assert not (kit.parent / "state").exists()


def test_a_line_of_peers_that_is_no_key_is_named(kit, tmp_path):
    (tmp_path / "peers.txt").write_text("party-2 " + "0" * 64 + "\nparty-3 short\n")
    found = call(kit, "--data", tmp_path / "ratings.csv", "--peers", tmp_path / "peers.txt")
    assert found.exit_code == 2
    assert "Line 2" in found.stderr


def test_a_role_without_ratings_takes_no_budget(keyring, tmp_path):
    keyring.invite("catalogue").write(tmp_path / "catalogue.kit")
    found = call(tmp_path / "catalogue.kit", "--max-epsilon", "1")
    assert found.exit_code == 2
    assert "--max-epsilon" in found.stderr


def test_the_identity_is_the_same_every_time(kit, tmp_path):
    first, again = (call(kit, "--identity", "--json", "--state", tmp_path / "state") for _ in range(2))
    assert first.exit_code == 0
    assert json.loads(first.stdout) == json.loads(again.stdout)
    assert len(json.loads(first.stdout)["party-1"]) == 64


@pytest.mark.parametrize("as_json", [True, False])
def test_a_check_reports_what_is_well_and_that_the_coordinator_is_away(kit, tmp_path, as_json):
    """Port 1 of this machine answers nobody."""
    found = call(kit, "--data", tmp_path / "ratings.csv", "--check", *(["--json"] if as_json else []))
    assert found.exit_code == 5
    if as_json:
        printed = json.loads(found.stdout)
        assert printed["good"] is False
        assert {finding["good"] for finding in printed["findings"]} == {True, False}
    else:
        assert "Not ready to join." in found.stdout
        assert "✓" in found.stdout
