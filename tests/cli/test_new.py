"""`tacit new`: what its files say about methods and privacy is true, and --set can name another method."""

import re

import pytest
from test_cli import tacit

from tacit.cli.display import read_run_file
from tacit.cli.new import new
from tacit.config import RunFile
from tacit.deploy.coordinator_service import STEP
from tacit.errors import UsageError
from tacit.methods import chosen, known
from tacit.prepare.run_file import check, plan

SETTINGS = ("horizontal", "vertical", "device")


def written(folder, setting):
    assert tacit("new", f"{setting}.toml", "--setting", setting, cwd=folder).returncode == 0
    return folder / f"{setting}.toml"


def with_privacy(path, *further):
    """The file with its [privacy] section, and the further lines named, no longer commented out."""
    lines = path.read_text(encoding="utf-8").splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("# [privacy]"))
    section = range(start, next(n for n in range(start, len(lines)) if not lines[n]))
    for n, line in enumerate(lines):
        if (n in section and "ledger" not in line) or line.startswith(tuple(f"# {key} " for key in further)):
            lines[n] = line.removeprefix("# ")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return RunFile.read(path)


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_methods_listed_are_those_of_the_setting(tmp_path, setting):
    text = written(tmp_path, setting).read_text(encoding="utf-8")
    listed = re.search(r'^name = "sgdmf" +((?:#.+\n +)*#.+)$', text, re.MULTILINE)[1]
    names = [name.strip(" #\n·") for name in re.split(r"·", listed)]
    assert names == [name for name, method in known().items() if setting in method.sides]


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_privacy_section_holds_as_it_stands_once_the_marks_are_off(tmp_path, setting):
    file = with_privacy(written(tmp_path, setting))
    made = plan(file, *check(file))
    assert made.terms.guarantee.epsilon == pytest.approx(1, rel=1e-3)
    assert made.parameters.sampling == (1.0 if setting == "device" else 0.01)


@pytest.mark.parametrize(
    ("setting", "shown"), [("horizontal", ("trim", "fine_tuning")), ("vertical", ("trim", "final_steps"))]
)
def test_defaults_that_privacy_brings_are_shown_as_they_are(tmp_path, setting, shown):
    file = with_privacy(written(tmp_path, setting), *shown)
    left_out = file.model_copy(update={"method": {k: v for k, v in file.method.items() if k not in shown}})
    assert set(shown) <= set(file.method)
    assert plan(file, *chosen(file.method)).parameters == plan(left_out, *chosen(left_out.method)).parameters


@pytest.mark.parametrize("setting", SETTINGS)
def test_what_holds_without_a_timeout_is_said_for_simulations_and_deployments(tmp_path, setting):
    path = written(tmp_path, setting)
    line = re.search(r"^# timeout = .*$", path.read_text(encoding="utf-8"), re.MULTILINE)[0]
    assert f"a deployment (tacit up) waits {STEP:g}, a simulation for ever" in line
    assert RunFile.read(path).engine.timeout is None


# -- --set method.name on a file for another method --------------------------------------------------------------------


@pytest.fixture
def run_file(tmp_path):
    new(tmp_path / "run.toml", "demo", "horizontal")
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
