"""What is said while a run is at work and when it ends: long phases on stderr, nothing where nobody wants it."""

import io
import json
from threading import Timer

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tacit.cli import app, display
from tacit.cli.display import Live, print_summary
from tacit.config import RunFile
from tacit.evaluate import positions
from tacit.experiment import run
from tacit.prepare.loaded import prepare
from tacit.prepare.progress import RoundProgress

SHAPE = {"data": {"users": 40, "items": 25}, "partition": {"into": 2}, "method": {"name": "sgdmf", "rounds": 2}}


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(display, "EVERY", 0.0)


class AtOnce(Timer):
    """What would be said later is said now, in the same thread."""

    def start(self):
        self.function(*self.args)


def line_on(terminal):
    return Live(Console(file=io.StringIO(), width=150, force_terminal=terminal), "bias", None)


def said(line):
    return line._console.file.getvalue()


def test_a_run_names_each_of_its_phases_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(positions, "CELLS", 25 * 5)
    heard = []
    file = RunFile.model_validate({**SHAPE, "method": {"name": "sgdmf", "rounds": 2, "fine_tuning": 1}})
    run(file, tmp_path / "run", phase=lambda doing, done: heard.append((doing, done)))
    assert list(dict.fromkeys(doing for doing, _done in heard)) == [
        "reading data",
        "splitting and dividing the data",
        "training",
        "evaluating",
        "evaluating before fine-tuning",
        "bias, the floor: training",
        "bias, the floor: evaluating",
        "comparing with local, popularity and central",
        "writing the report",
    ]
    for doing in ("evaluating", "evaluating before fine-tuning", "bias, the floor: evaluating"):
        parts = [done for what, done in heard if what == doing and done is not None]
        assert len(parts) > 5
        assert parts[-1] == 1.0


def test_a_plan_is_a_phase_of_its_own():
    heard = []
    prepare(
        RunFile.model_validate({**SHAPE, "method": {"name": "bias"}, "privacy": {"epsilon": 1.0}}),
        lambda doing, _done: heard.append(doing),
    )
    assert heard[-1] == "planning the noise"


def test_what_takes_long_gets_a_line_and_what_does_not_gets_none(monkeypatch):
    monkeypatch.setattr(display, "LONG", 3600.0)
    line = line_on(terminal=False)
    line.phase("reading data")
    line.done()
    assert said(line) == ""
    line.phase("evaluating")
    line.phase("evaluating", 0.25)
    line.done()
    assert said(line) == "bias: evaluating, 25%\n"
    monkeypatch.setattr(display, "LONG", 0.0)
    line.phase("training")
    line._later.join(60)
    assert said(line).endswith("\nbias: training …\n")


def test_the_bar_of_a_phase_starts_anew_and_rounds_follow_it():
    line = line_on(terminal=True)
    line.phase("evaluating")
    (task,) = line.bar.tasks
    assert (task.total, task.fields["words"]) == (None, "evaluating")
    line.phase("evaluating", 0.5)
    (task,) = line.bar.tasks
    assert (task.total, task.completed) == (1.0, 0.5)
    line(RoundProgress(1, 4, None, 10))
    (task,) = line.bar.tasks
    assert (task.total, task.completed) == (4, 1)
    assert task.fields["words"].startswith("round 1/4")


def test_the_floor_has_a_line_of_its_own_under_the_run_s_last_round():
    line = line_on(terminal=True)
    line(RoundProgress(4, 4, 0.5, 10, 1.0))
    floor = line.floor("bias, the floor")
    floor.phase("training")
    floor(RoundProgress(1, 1, 0.25, 20, 0.9))
    mine, its = line.bar.tasks
    assert (mine.description, its.description) == ("bias", "bias, the floor")
    assert "mse 0.5000" in mine.fields["words"]
    assert "mse 0.2500 · ε 0.90 · " in its.fields["words"]


def test_a_floor_that_takes_long_is_named_where_lines_cannot_be_redrawn(monkeypatch):
    monkeypatch.setattr(display, "Timer", AtOnce)
    line = line_on(terminal=False)
    line.floor("bias, the floor").phase("training")
    assert said(line) == "bias, the floor: training …\n"


def invoked(folder, *words, **sections):
    folder.mkdir(exist_ok=True)
    (folder / "run.toml").write_text(RunFile.model_validate({**SHAPE, **sections}).to_toml())
    return CliRunner().invoke(app, ["run", str(folder / "run.toml"), "--out", str(folder / "out"), *words])


def test_the_result_has_the_run_and_its_floor_under_each_other_unless_it_is_off(tmp_path):
    rows = [text.split("  ")[0] for text in invoked(tmp_path / "on").stdout.splitlines()]
    assert rows.index("bias, the floor") == rows.index("sgdmf, this run") + 1
    assert "the floor" not in invoked(tmp_path / "off", evaluate={"floor": False}).output
    keys = [set(json.loads((tmp_path / name / "out" / "summary.json").read_text())) for name in ("on", "off")]
    assert keys[0] == keys[1]


def test_stdout_is_one_object_while_phases_are_said_on_stderr(tmp_path, monkeypatch):
    monkeypatch.setattr(display, "Timer", AtOnce)
    done = invoked(tmp_path, "--json")
    assert set(json.loads(done.stdout)) >= {"metrics", "digest"}
    assert "sgdmf: writing the report …" in done.stderr


def test_quiet_says_nothing_and_a_run_that_goes_on_says_from_where(tmp_path, monkeypatch):
    monkeypatch.setattr(display, "Timer", AtOnce)
    done = invoked(tmp_path, "--json", "--quiet")
    assert done.stderr == ""
    first = json.loads(done.stdout)
    (tmp_path / "out" / "summary.json").unlink()
    again = invoked(tmp_path, "--json")
    assert "Resuming" in again.stderr
    assert json.loads(again.stdout)["digest"] == first["digest"]


SUMMARY = {"run": "r", "method": "bias", "setting": "horizontal", "metrics": {"mse": 0.9}, "intervals": {}}
SUMMARY |= {"guarantee": None, "rounds": 1, "bytes_up": 10, "bytes_down": 20, "seconds": 0.1}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"metrics_of": "1 of 3 sites"}, "Metrics are of 1 of 3 sites"),
        ({"metrics": {}}, "Metrics stayed at the sites"),
        ({"void": 2}, "Void because too few parties stayed: 2 sums"),
    ],
)
def test_what_is_special_about_a_run_is_said(changes, words):
    shown = []
    for summary in (SUMMARY, {**SUMMARY, **changes}):
        console = Console(file=io.StringIO(), width=150)
        print_summary(summary, console)
        shown.append(words in console.file.getvalue())
    assert shown == [False, True]
