"""The command line as a person meets it: real processes, exit codes, one JSON object, nothing half-written."""

import inspect
import json
import os
import subprocess
import sys
from contextlib import chdir
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tacit.cli import app
from tacit.cli.demo import price_of_privacy
from tacit.engine import cells

TACIT = Path(sys.executable).with_name("tacit")
RUN = """
[data]
source = "demo"
users = 60
items = 40
ratings = 900
[partition]
into = 3
[method]
name = "sgdmf"
factors = 4
rounds = 3
local_steps = 2
"""


@dataclass(frozen=True)
class Answered:
    returncode: int
    stdout: str
    stderr: str


def tacit(*args, cwd) -> Answered:
    """One command, in this process; `process` is the same with a process of its own."""
    with chdir(cwd):
        result = CliRunner().invoke(app, [str(a) for a in args], env={"TACIT_DATA": None})
    return Answered(result.exit_code, result.stdout, result.stderr)


def process(*args, cwd) -> Answered:
    env = {k: v for k, v in os.environ.items() if k != "TACIT_DATA"}
    done = subprocess.run([TACIT, *map(str, args)], capture_output=True, text=True, cwd=cwd, timeout=600, env=env)
    return Answered(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "run.toml").write_text(RUN)
    return tmp_path


def refused(answer, code: int, *words: str) -> None:
    assert answer.returncode == code, answer.stderr
    assert answer.stdout == ""
    assert "Traceback" not in answer.stderr
    assert all(word in answer.stderr for word in words), answer.stderr


def test_help_of_every_command_loads_nothing_heavy():
    code = (
        "import sys, typer; from typer.testing import CliRunner; from tacit.cli import app\n"
        "groups = {'': typer.main.get_command(app)}\n"
        "groups |= {name: one for name, one in groups[''].commands.items() if hasattr(one, 'commands')}\n"
        "lines = [[], *([group, name] if group else [name] for group in groups for name in groups[group].commands)]\n"
        "answers = [CliRunner().invoke(app, [*line, '--help']) for line in lines]\n"
        "assert len(answers) > 20 and all(answer.exit_code == 0 for answer in answers); print(answers[0].stdout)\n"
        "print([name for name in ('numpy', 'numba', 'pyarrow', 'duckdb', 'scipy') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(word in answer.stdout for word in ("demo", "new", "compare", "ledger", "doctor", "Exit codes"))
    assert answer.stdout.splitlines()[-1] == "[]"


def test_every_option_of_a_command_reaches_the_function_that_does_its_work():
    """Options and functions meet when a command is called, which no type checker sees."""
    commands = typer.main.get_command(app).commands
    lines = {name: (name, one) for name, one in commands.items() if not hasattr(one, "commands")}
    for group in ("ledger", "keys"):
        lines |= {f"{group} {name}": (group, one) for name, one in commands[group].commands.items()}
    for line, (module, command) in lines.items():
        module = {"plan": "plan_command", "ledger": "ledger_command", "report": "run"}.get(module, module)
        does = getattr(import_module(f"tacit.cli.{module}"), command.name)
        options = {parameter.name for parameter in command.params} - {"help"}
        assert options == set(inspect.signature(does).parameters), line


def test_json_is_one_object_and_nothing_else(folder):
    answer = process("run", "run.toml", "--json", "--out", "here", cwd=folder)
    assert answer.returncode == 0
    summary = json.loads(answer.stdout)
    keys = {"run", "method", "setting", "metrics", "intervals", "guarantee", "rounds", "bytes_up", "bytes_down"}
    keys |= {"seconds", "digest"}
    assert keys <= summary.keys()
    assert summary["run"] == "here"
    assert (folder / "here" / "report.html").is_file()


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ("privacy={epsilon=2, delta=1e-6, budget=1}", 4, ("ε = 2.000", "its budget is 1")),
        ("privacy={epsilon=2, delta=0.1}", 2, ("delta = 0.1", "1/users")),
        ("data={source='absent.csv'}", 3, ("absent.csv",)),
    ],
)
def test_a_process_that_is_refused_ends_in_one_sentence_and_its_code_and_leaves_no_folder(folder, change, code, words):
    answer = process("run", "run.toml", "--json", "--out", "here", "--set", change, cwd=folder)
    refused(answer, code, *words)
    assert len(answer.stderr.strip().split("\n\n")) == 1
    assert [path.name for path in folder.iterdir()] == ["run.toml"]


def test_a_person_sees_the_result_and_where_the_report_is(folder):
    answer = process("run", "run.toml", "--out", "here", "--quiet", cwd=folder)
    assert answer.returncode == 0
    assert answer.stderr == ""
    assert all(word in answer.stdout for word in ("NON-PRIVATE", "mse", "here/report.html"))


def test_set_and_seed_change_the_run(folder):
    answer = tacit("run", "run.toml", "--json", "--set", "method.rounds=2", "--seed", 8, "--out", "here", cwd=folder)
    assert json.loads(answer.stdout)["rounds"] == 2
    assert "seed = 8" in (folder / "here" / "run.toml").read_text()


def test_resume_starts_a_missing_run_and_prints_a_finished_one(folder):
    first = json.loads(tacit("run", "run.toml", "--json", "--resume", "here", cwd=folder).stdout)
    written = (folder / "here" / "summary.json").stat().st_mtime_ns
    second = json.loads(tacit("run", "run.toml", "--json", "--resume", "here", cwd=folder).stdout)
    assert first == second
    assert (folder / "here" / "summary.json").stat().st_mtime_ns == written
    refused(tacit("run", "run.toml", "--seed", 9, "--resume", "here", cwd=folder), 2, "another run file")


def test_new_writes_a_file_that_runs_and_never_overwrites(tmp_path):
    for setting in ("horizontal", "vertical", "device"):
        name = f"{setting}.toml"
        assert tacit("new", name, "--setting", setting, cwd=tmp_path).returncode == 0
        quick = ["--set", "data.users=100", "--set", "evaluate.floor=false"]
        answer = tacit("run", name, "--json", *quick, "--out", setting, cwd=tmp_path)
        summary = json.loads(answer.stdout)
        assert summary["setting"] == setting
        assert 0.99 < summary["guarantee"]["epsilon"] <= 1
    refused(tacit("new", "device.toml", cwd=tmp_path), 2, "already exists")
    refused(tacit("new", "other.toml", "--setting", "vertcal", cwd=tmp_path), 2, "vertical")


def test_compare_runs_files_and_reads_folders_of_the_same_test(folder):
    (folder / "mean.toml").write_text(RUN.split("[method]")[0] + '[method]\nname = "item-mean"\n')
    tacit("run", "run.toml", "--quiet", "--out", "fed", cwd=folder)
    answer = tacit("compare", "fed", "mean.toml", "--json", cwd=folder)
    assert answer.returncode == 0, answer.stderr
    result = json.loads(answer.stdout)
    assert [run["method"] for run in result["runs"]] == ["sgdmf", "item-mean"]
    assert {pair["metric"] for pair in result["paired"]} >= {"mse", "hr@10"}
    assert (folder / result["report"]).is_file()
    readable = tacit("compare", "fed", result["runs"][1]["run"], cwd=folder)
    assert "comparison.html" in readable.stdout
    tacit("run", "run.toml", "--quiet", "--seed", 1, "--out", "other", cwd=folder)
    refused(tacit("compare", "fed", "other", cwd=folder), 2, "seed", "different test sets")
    refused(tacit("compare", "fed", cwd=folder), 2, "two or more")


def test_report_writes_anew_what_was_lost(folder):
    tacit("run", "run.toml", "--quiet", "--out", "here", cwd=folder)
    for name in ("report.html", "card.md"):
        (folder / "here" / name).unlink()
    answer = tacit("report", "here", "--json", cwd=folder)
    assert answer.returncode == 0
    assert json.loads(answer.stdout) == {"run": "here", "report": "here/report.html", "card": "here/card.md"}
    assert (folder / "here" / "report.html").is_file()
    assert "NON-PRIVATE" in (folder / "here" / "card.md").read_text()
    refused(tacit("report", "nowhere", cwd=folder), 2, "no run folder")


def test_doctor_looks_at_the_machine(tmp_path):
    answer = tacit("doctor", "--json", cwd=tmp_path)
    checks = {check["check"]: check for check in json.loads(answer.stdout)["checks"]}
    assert answer.returncode == 0
    assert checks["kernels"]["state"] == "ok"
    assert checks["data"]["state"] == "missing"
    assert "TACIT_DATA" in checks["data"]["words"]
    assert "kernels" in tacit("doctor", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ("method.nmae='x'", 2, ["nmae"]),
        ("method.name=sgdfm", 2, ["sgdfm", 'Did you mean "sgdmf"']),
        ("method.factors=0", 2, ["factors"]),
        ("data={source='nowhere.csv'}", 3, ["nowhere.csv"]),
        ("partition.by=colour", 2, ["colour"]),
        ("partition.into=999", 2, ["999"]),
        ("privacy={epsilon=1.0, delta=1e-6, accounting='paper', unit='rating'}", 4, ["paper", "rating"]),
        ("aggregation.name=shuffle", 4, ["shuffle", "sgdmf has none here", "plain"]),
        ("aggregation.name=secag", 2, ["secag", 'Did you mean "secagg"']),
    ],
)
def test_a_mistake_gets_one_sentence_its_exit_code_and_no_folder(folder, change, code, words):
    refused(tacit("run", "run.toml", "--set", change, "--out", "here", cwd=folder), code, *words)
    assert not (folder / "here").exists()


def test_bad_data_gets_file_row_and_remedy(folder):
    (folder / "r.csv").write_text("user,item,rating\na,x,4\nb,x,many\n")
    answer = process("run", "run.toml", "--set", "data={source='r.csv'}", cwd=folder)
    refused(answer, 3, "r.csv", "3")
    assert not (folder / "runs").exists()


def test_demo_shows_federated_as_good_as_central_and_better_than_alone(tmp_path):
    answer = process("demo", "--quiet", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    errors = [
        json.loads((tmp_path / "runs" / "demo" / m / "summary.json").read_text())["metrics"]["mse"]
        for m in ("central", "federated", "local")
    ]
    assert errors[1] == pytest.approx(errors[0], rel=1e-4)
    assert errors[1] < 0.95 * errors[2]
    assert "comparison.html" in answer.stdout
    assert (tmp_path / "runs" / "demo" / "comparison.html").is_file()


@pytest.mark.parametrize(
    "arguments",
    [
        ["join", "no-such.kit", "--data", "none.csv"],
        ["join", "no-such.kit", "--check"],
        ["up", "no-such.toml", "--keys", "none"],
        ["up", "no-such.toml", "--local", "3"],
    ],
    ids=" ".join,
)
def test_services_say_at_once_which_package_is_missing(tmp_path, arguments, monkeypatch):
    monkeypatch.setattr(cells, "find_spec", lambda name: None)
    answer = tacit(*arguments, cwd=tmp_path)
    sentence = "Services between sites need one more package; install it: pip install 'tacit[deploy]'"
    assert (answer.returncode, answer.stderr.strip()) == (2, f"tacit: {sentence}")


def test_the_doctors_advice_keeps_its_brackets(tmp_path, monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    doctor_module = import_module("tacit.cli.doctor")  # the package has a command of that name
    monkeypatch.setattr(doctor_module, "version", missing)
    monkeypatch.setattr(doctor_module, "_kernels", lambda: "")
    assert 'pip install "tacit[deploy]"' in tacit("doctor", cwd=tmp_path).stdout


def test_compare_names_a_run_that_is_not_there(folder):
    answer = tacit("compare", "run.toml", "alone", cwd=folder)
    assert answer.returncode == 2
    assert 'There is no run folder or run file "alone"' in answer.stderr


def test_the_demo_says_when_privacy_costs_more_than_cooperation_gains():
    errors = {"federated": 0.7, "private": 0.9, "local": 0.8}
    assert "Privacy costs more here than cooperation gains: test MSE 0.900" in price_of_privacy(errors)
    assert price_of_privacy({**errors, "private": 0.75}) == ""
