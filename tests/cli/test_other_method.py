"""--set method.name on a file that was written for another method."""

import pytest

from tacit.cli.display import read_run_file
from tacit.cli.new import new
from tacit.errors import UsageError
from tacit.methods import chosen


@pytest.fixture
def written(tmp_path):
    new(tmp_path / "run.toml", "demo", "horizontal")
    return tmp_path / "run.toml"


def test_the_other_method_s_keys_go_with_a_note(written, capsys):
    capsys.readouterr()
    file = read_run_file(written, ["method.name=bias"])
    assert file.method == {"name": "bias"}
    assert chosen(file.method)[0].name == "bias"
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "tacit: [method] is now bias, which has no factors, rounds, local_steps: left out, being for sgdmf."
    ]


def test_keys_that_both_methods_know_stay(written, capsys):
    capsys.readouterr()
    file = read_run_file(written, ["method.name = gradient-clipping", "method.threshold=3"])
    assert file.method["rounds"] == 100
    assert file.method["threshold"] == 3
    assert capsys.readouterr().err == ""


def test_a_key_that_was_set_with_it_is_checked_all_the_same(written):
    file = read_run_file(written, ["method.name=bias", "method.factors=3"])
    with pytest.raises(UsageError, match="factors"):
        chosen(file.method)


@pytest.mark.parametrize("changes", [[], ["method.name=sgdmf"], ["method.rounds=5"]])
def test_a_misspelt_key_of_the_file_s_own_method_is_not_dropped(written, changes):
    written.write_text(written.read_text().replace("factors = 20", "factor = 20"))
    with pytest.raises(UsageError, match='Did you mean "factors"'):
        chosen(read_run_file(written, changes).method)
