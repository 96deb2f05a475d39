"""A run among others, on terminal, report and card: the verdict in the headline, and what has no guarantee named so."""

from __future__ import annotations

import io
from importlib import import_module

import pytest
from fake_run import GUARANTEE, RUN, SUMMARY, write_run
from page_reader import Page
from rich.console import Console
from typer.testing import CliRunner

from tacit.cli import app
from tacit.cli.display import print_summary
from tacit.report import RunRecord, compare_report, privacy_card, report
from tacit.report.comparison import labels, mean_over
from tacit.report.contenders import contenders, remarks

FLOOR = {"method": "bias", "metrics": {"mse": 0.7, "ndcg@10": 0.2}, "intervals": {"mse": [0.69, 0.71]}}
OTHERS = [
    {"name": "local", "what": "each silo alone", "metrics": {"mse": 0.8}, "intervals": {"mse": [0.79, 0.81]}},
    {"name": "popularity", "what": "most rated", "metrics": {"ndcg@10": 0.4}},
    {"name": "central", "what": "all in one place", "missing": "not trained here, since 2,000,000 ratings are many"},
]


def a_run(folder, floor=FLOOR, references=OTHERS, **changes) -> RunRecord:
    told = {"floor": {**floor, "guarantee": GUARANTEE}, "references": references}
    summary = {"guarantee": GUARANTEE, "run": str(folder), **changes.pop("summary", {})}
    return RunRecord.read(write_run(folder, summary=summary, about=told, **changes))


def terminal(record: RunRecord) -> str:
    console = Console(file=io.StringIO(), width=150)
    print_summary({**SUMMARY, "run": str(record.folder), "guarantee": GUARANTEE}, console)
    return console.file.getvalue()


@pytest.mark.parametrize(("mse", "words"), [(0.7, "does not beat bias"), (0.9, "beats bias")])
def test_terminal_report_and_card_say_the_verdict_in_their_headline(tmp_path, mse, words):
    record = a_run(tmp_path / "run", {**FLOOR, "metrics": {"mse": mse}})
    assert terminal(record).splitlines()[0].endswith(f" · {words}")
    assert f"0.755, {words}</h1>" in report(record)
    assert privacy_card(record).splitlines()[0] == f"# Privacy card: {words}"


def test_terminal_and_report_have_all_of_them_with_intervals(tmp_path):
    record = a_run(tmp_path / "run")
    lines = {line.split()[0]: line for line in terminal(record).splitlines() if line.strip()}
    assert "0.7000  0.6900 … 0.7100" in lines["bias,"]
    assert "ε = 1.00" in lines["bias,"]
    assert "0.8000  0.7900 … 0.8100" in lines["local"]
    for name in ("local", "popularity", "central"):
        assert f"  {name}: " in terminal(record)
    assert "NON-PRIVATE, for comparison; stays with the experimenter:" in terminal(record)
    page = Page(report(record))
    assert page.text.count("NON-PRIVATE, for comparison; stays with the experimenter") == 3
    for value in (0.69, 0.79, 0.81, 0.4):
        assert repr(value) in page.data
    assert "Central: not trained here, since 2,000,000 ratings are many." in page.text
    assert "local and popularity: NON-PRIVATE, for comparison" in privacy_card(record)


def test_what_was_learned_together_stands_beside_what_parties_made_of_it(tmp_path):
    record = a_run(tmp_path / "run", summary={"metrics_shared": {"mse": 1.1}})
    assert [one.name for one in contenders(record)][:3] == ["this run", "bias, the floor", "before tuning"]
    assert "before tuning" in terminal(record)
    assert "1.1" in Page(report(record)).data


def test_what_does_better_without_learning_together_is_said(tmp_path):
    record = a_run(tmp_path / "run")
    assert remarks(record) == ["Popularity does better by NDCG@10: 0.400 against 0.313."]
    assert remarks(record)[0] in terminal(record)
    assert remarks(record)[0] in Page(report(record)).text


def test_a_run_that_stands_alone_has_no_such_table(tmp_path):
    record = RunRecord.read(write_run(tmp_path / "run"))
    assert contenders(record) == []
    assert "beside it" not in terminal(record)
    assert "Beside others" not in report(record)


def test_nothing_in_a_reference_can_act(tmp_path):
    hostile = "<script>alert(1)</script>[/red]**x**"
    others = [{"name": hostile, "what": hostile, "metrics": {"mse": 0.1}}]
    record = a_run(tmp_path / "run", {**FLOOR, "method": hostile}, others)
    assert "<script" not in report(record) + privacy_card(record)
    assert "[/red]" in terminal(record)


# -- compare ----------------------------------------------------------------------------------------------------------


def test_runs_of_one_method_are_told_apart_by_what_differs(tmp_path):
    masked = RUN.format(by="user") + '\n[aggregation]\nname = "secagg"\n'
    single = {**GUARANTEE, "unit": "rating"}
    one, two = a_run(tmp_path / "a"), a_run(tmp_path / "b", run=masked)
    assert labels([one, two]) == ["sgdmf, plain", "sgdmf, secagg"]
    three = a_run(tmp_path / "c", summary={"guarantee": single})
    assert labels([one, three]) == ["sgdmf, per user", "sgdmf, per rating"]
    other = a_run(tmp_path / "d", run=RUN.format(by="user").replace("seed = 7", "seed = 8"))
    assert labels([one, other]) == ["sgdmf, seed 7", "sgdmf, seed 8"]


def test_terminal_and_page_compare_with_the_first_run_by_the_same_names(tmp_path, monkeypatch):
    monkeypatch.setattr(import_module("tacit.cli.compare"), "check_finished", lambda folder: None)  # made up runs
    first = a_run(tmp_path / "x" / "run", summary={"metrics": {**SUMMARY["metrics"], "mse": 0.9}})
    best = a_run(tmp_path / "y" / "run", summary={"guarantee": None})
    folders = [str(first.folder), str(best.folder)]
    answer = CliRunner().invoke(app, ["compare", *folders, "--out", str(tmp_path / "page.html")])
    assert answer.exit_code == 0, answer.stderr
    told = " ".join(answer.stdout.split())
    assert "sgdmf, ε = 1.00 sgdmf, no privacy" in told
    assert "User by user, “sgdmf, ε = 1.00” against each other run; means over users" in told
    assert "ε = 1.00 per user NON-PRIVATE" in told
    assert "mse rating" in told
    assert "ndcg@10 user" in told
    page = Page((tmp_path / "page.html").read_text())
    assert "The first run, “sgdmf, ε = 1.00”, against each other one" in page.text
    assert "mean per rating" in page.text
    assert "ε = 1.00 per user" in page.text
    assert mean_over("made-up") == ""
    assert compare_report([first, best]).count("does not beat bias") >= 1
