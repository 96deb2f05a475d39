"""Runs compared on one page: ranked only where that is fair, each with its guarantee."""

from importlib import import_module

import numpy as np
import pytest
from fake_run import ABOUT, GUARANTEE, RUN, SUMMARY, write_run
from page_reader import Page
from typer.testing import CliRunner

from tacit.cli import app
from tacit.errors import UsageError
from tacit.report import RunRecord, compare_report, write_comparison
from tacit.report.comparison import differences, labels, mean_over
from tacit.report.words import metric


def a_run(tmp_path, name, *, method="sgdmf", mse=0.755, **changes) -> RunRecord:
    summary = {"metrics": {**SUMMARY["metrics"], "mse": mse}, "intervals": {"mse": [mse - 0.01, mse + 0.01]}}
    about = {**changes.pop("about", {}), "method": {**ABOUT["method"], "name": method}}
    summary |= changes.pop("summary", {})
    return RunRecord.read(write_run(tmp_path / name, summary=summary, about=about, **changes))


def test_the_page_is_true_to_the_summaries_and_names_the_best(tmp_path):
    records = [a_run(tmp_path, "a", method="central", mse=0.70123), a_run(tmp_path, "b", mse=0.80456)]
    text = compare_report(records)
    page = Page(text)
    assert "Two runs compared: central has the best test MSE, 0.701" in page.text
    assert len(text) < 100_000
    for record in records:
        assert all(metric(value) in page.data[repr(value)] for value in record.summary.metrics.values())
        assert record.summary.digest in page.text
    assert page.row("MSE")[0] == "MSE mean per rating"


def test_each_run_carries_its_own_guarantee(tmp_path):
    records = [
        a_run(tmp_path, "a", method="central"),
        a_run(tmp_path, "b", summary={"guarantee": {**GUARANTEE, "simulated": True}}),
        a_run(tmp_path, "c", method="als", summary={"guarantee": {**GUARANTEE, "epsilon": 2.0}}),
    ]
    page = Page(compare_report(records))
    for kind in ("none", "simulated", "holds"):  # on the results, and on what is guaranteed
        assert page.classes.count(f"chip {kind}") == 2
    assert "ε = 1.00 per user, SIMULATED" in page.text
    assert "(2.00, 1e-06)-DP" in page.text


def test_a_paired_comparison_finds_a_difference_that_is_there(tmp_path):
    values = np.linspace(0.2, 1.4, 40)
    records = [
        a_run(tmp_path, "a", method="central", mse=0.7, users={"mse": values}),
        a_run(tmp_path, "b", mse=0.8, users={"mse": values + 0.1}),
    ]
    name, users, difference, p, better, worse = Page(compare_report(records)).row("sgdmf")
    assert (name, users, p, better, worse) == ("sgdmf", "40", "< 0.001", "100 %", "0 %")
    assert difference.startswith("−0.100")


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"run": RUN.format(by="user").replace("seed = 7", "seed = 8")}, "seed"),
        ({"about": {"data": {**ABOUT["data"], "ratings": 299}}}, "data"),
    ],
)
def test_runs_on_different_tests_are_not_ranked(tmp_path, change, key):
    records = [a_run(tmp_path, "a", mse=0.7), a_run(tmp_path, "b", mse=0.8, **change)]
    page = Page(compare_report(records))
    assert differences(records) == [key]
    assert [kind for kind, _words in page.stamps] == ["simulated"]
    assert "best" not in page.text
    assert "best" not in page.classes
    assert "User by user" not in page.text


def test_labels_say_as_much_as_it_takes(tmp_path):
    private = {"guarantee": GUARANTEE}
    records = [
        a_run(tmp_path, "a", method="central"),
        a_run(tmp_path, "b"),
        a_run(tmp_path, "c", summary=private),
        a_run(tmp_path, "d", summary=private),
    ]
    assert labels(records) == ["central", "sgdmf, no privacy", "sgdmf, ε = 1.00, c", "sgdmf, ε = 1.00, d"]
    assert labels([records[0], records[0]]) == ["central, no. 1", "central, no. 2"]
    file = RUN.format(by="user")
    masked = a_run(tmp_path, "e", summary=private, run=file + '\n[aggregation]\nname = "secagg"\n')
    assert labels([records[2], masked]) == ["sgdmf, plain", "sgdmf, secagg"]
    rating = a_run(tmp_path, "f", summary={"guarantee": {**GUARANTEE, "unit": "rating"}})
    assert labels([records[2], rating]) == ["sgdmf, per user", "sgdmf, per rating"]
    other = a_run(tmp_path, "g", summary=private, run=file.replace("seed = 7", "seed = 8"))
    assert labels([records[2], other]) == ["sgdmf, seed 7", "sgdmf, seed 8"]


def test_runs_of_one_round_are_levels_among_lines(tmp_path):
    records = [a_run(tmp_path, "a"), a_run(tmp_path, "b", method="local", rounds={"mse": [0.9]})]
    assert "Horizontal dashed lines are runs of a single round." in Page(compare_report(records)).text


def test_a_single_run_without_metrics_and_rounds_still_reads(tmp_path):
    alone = a_run(tmp_path, "a", summary={"metrics": {}, "intervals": {}}, rounds={}, users={}, messages=[])
    page = Page(compare_report([alone]))
    assert "One run compared" in page.text
    assert "How they learned" not in page.text


def test_metrics_that_only_some_runs_have_are_dashes(tmp_path):
    records = [a_run(tmp_path, "a"), a_run(tmp_path, "b", method="bias", summary={"metrics": {"mae": float("nan")}})]
    page = Page(compare_report(records))
    assert page.row("MSE")[2] == page.row("MAE")[2] == "–"
    assert "nan" not in page.text


def test_hostile_names_stay_text(tmp_path):
    hostile = "<script>alert(1)</script>"
    records = [a_run(tmp_path, "a", method=hostile), a_run(tmp_path, "b", summary={"metrics": {hostile: 1.0}})]
    assert hostile in Page(compare_report(records)).text


def test_a_comparison_is_written_where_it_was_asked_for(tmp_path):
    with pytest.raises(UsageError, match="no run to compare"):
        write_comparison([], tmp_path / "comparison.html")
    assert not list(tmp_path.iterdir())
    a_run(tmp_path, "a")
    path = write_comparison([tmp_path / "a"], tmp_path / "comparison.html")
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    with pytest.raises(UsageError, match="cannot be written"):
        write_comparison([tmp_path / "a"], tmp_path / "nowhere" / "comparison.html")


def test_terminal_and_page_compare_with_the_first_run_by_the_same_names(tmp_path, monkeypatch):
    monkeypatch.setattr(import_module("tacit.cli.compare"), "check_finished", lambda folder: None)  # made up runs
    first = a_run(tmp_path, "x", mse=0.9, summary={"guarantee": GUARANTEE})
    best = a_run(tmp_path, "y")
    folders = [str(first.folder), str(best.folder)]
    answer = CliRunner().invoke(app, ["compare", *folders, "--out", str(tmp_path / "page.html")])
    assert answer.exit_code == 0, answer.stderr
    printed = " ".join(answer.stdout.split())
    for words in ("sgdmf, ε = 1.00 sgdmf, no privacy", "“sgdmf, ε = 1.00” against", "ε = 1.00 per user NON-PRIVATE"):
        assert words in printed
    assert "mse rating" in printed
    assert "ndcg@10 user" in printed
    page = Page((tmp_path / "page.html").read_text())
    assert "The first run, “sgdmf, ε = 1.00”, against" in page.text
    assert "ε = 1.00 per user" in page.text
    assert mean_over("made-up") == ""
