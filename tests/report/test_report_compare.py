"""Runs side by side."""

from __future__ import annotations

import re

import numpy as np
import pytest
from fake_run import ABOUT, GUARANTEE, RUN, SUMMARY, write_run
from page_reader import Page

from tacit.errors import UsageError
from tacit.report import RunRecord, compare_report, write_comparison
from tacit.report.comparison import differences, labels
from tacit.report.words import metric


def a_run(tmp_path, name, *, method="sgdmf", mse=0.755, **changes) -> RunRecord:
    summary = {"metrics": {**SUMMARY["metrics"], "mse": mse}, "intervals": {"mse": [mse - 0.01, mse + 0.01]}}
    about = {**changes.pop("about", {}), "method": {**ABOUT["method"], "name": method}}
    summary |= changes.pop("summary", {})
    return RunRecord.read(write_run(tmp_path / name, summary=summary, about=about, **changes))


def test_it_is_offline_well_formed_and_names_the_best(tmp_path):
    records = [a_run(tmp_path, "a", method="central", mse=0.7), a_run(tmp_path, "b", mse=0.8)]
    text = compare_report(records)
    page = Page(text)
    assert not re.search(r"https?:|url\(|@import|<link|<script", text)
    assert page.references == []
    assert "Two runs side by side: central has the best test MSE, 0.700" in page.text
    assert page.text.count("NON-PRIVATE") >= 2
    assert len(text) < 100_000


def test_numbers_are_the_summaries(tmp_path):
    records = [a_run(tmp_path, "a", method="central", mse=0.70123), a_run(tmp_path, "b", mse=0.80456)]
    page = Page(compare_report(records))
    for record in records:
        for name, value in record.summary.metrics.items():
            assert metric(value) in page.data[repr(value)], name
        assert record.summary.digest in page.text


def test_each_run_carries_its_own_stamp(tmp_path):
    records = [
        a_run(tmp_path, "a", method="central"),
        a_run(tmp_path, "b", summary={"guarantee": {**GUARANTEE, "simulated": True}}),
        a_run(tmp_path, "c", method="als", summary={"guarantee": {**GUARANTEE, "epsilon": 2.0}}),
    ]
    text = compare_report(records)
    assert text.count('class="chip none"') == 2
    assert text.count('class="chip simulated"') == 2
    assert text.count('class="chip holds"') == 2
    assert "ε = 1.00 per user, SIMULATED" in text
    assert "(2.00, 1e-06)-DP" in text


def test_a_paired_comparison_finds_a_difference_that_is_there(tmp_path):
    values = np.linspace(0.2, 1.4, 40)
    records = [
        a_run(tmp_path, "a", method="central", mse=0.7, users={"mse": values}),
        a_run(tmp_path, "b", mse=0.8, users={"mse": values + 0.1}),
    ]
    page = Page(compare_report(records))
    assert "User by user" in page.text
    assert "−0.100" in page.text
    assert "100 %" in page.text


def test_runs_on_different_tests_are_not_ranked(tmp_path):
    other = RUN.format(by="user").replace("seed = 7", "seed = 8")
    records = [a_run(tmp_path, "a", mse=0.7), a_run(tmp_path, "b", run=other, mse=0.8)]
    page = Page(compare_report(records))
    assert differences(records) == ["seed"]
    assert "Compare with care" in page.text
    assert "best" not in page.text
    assert "User by user" not in page.text


def test_different_data_is_a_difference(tmp_path):
    about = {"data": {**ABOUT["data"], "ratings": 299}}
    records = [a_run(tmp_path, "a"), a_run(tmp_path, "b", about=about)]
    assert differences(records) == ["data"]
    assert "different data" in compare_report(records)


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


def test_runs_of_one_round_are_levels_among_lines(tmp_path):
    records = [a_run(tmp_path, "a"), a_run(tmp_path, "b", method="local", rounds={"mse": [0.9]})]
    page = Page(compare_report(records))
    assert "Dashed levels are runs of a single round." in page.text


def test_one_run_no_metric_and_no_rounds_are_bearable(tmp_path):
    alone = a_run(tmp_path, "a", summary={"metrics": {}, "intervals": {}}, rounds={}, users={}, messages=[])
    page = Page(compare_report([alone]))
    assert "One run side by side" in page.text
    assert "How they learned" not in page.text


def test_metrics_that_only_some_runs_have_are_dashes(tmp_path):
    records = [a_run(tmp_path, "a"), a_run(tmp_path, "b", method="bias", summary={"metrics": {"mae": float("nan")}})]
    page = Page(compare_report(records))
    assert "–" in page.words
    assert "nan" not in page.text


def test_hostile_names_stay_text(tmp_path):
    hostile = "<script>alert(1)</script>"
    records = [a_run(tmp_path, "a", method=hostile), a_run(tmp_path, "b", summary={"metrics": {hostile: 1.0}})]
    assert "<script" not in compare_report(records)


def test_comparing_nothing_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no run to compare"):
        write_comparison([], tmp_path / "comparison.html")
    assert not list(tmp_path.iterdir())


def test_a_comparison_is_written_where_it_was_asked_for(tmp_path):
    a_run(tmp_path, "a")
    path = write_comparison([tmp_path / "a"], tmp_path / "comparison.html")
    assert path == tmp_path / "comparison.html"
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    with pytest.raises(UsageError, match="cannot be written"):
        write_comparison([tmp_path / "a"], tmp_path / "nowhere" / "comparison.html")
