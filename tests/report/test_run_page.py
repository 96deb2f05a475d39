"""The report of a run: one offline file, well formed, escaped, bounded, and true to the summary."""

import math
import os
import re

import numpy as np
import pytest
from fake_run import ABOUT, GUARANTEE, RUN, SUMMARY, three_rounds, write_run
from page_reader import Page

from tacit.errors import UsageError
from tacit.report import write_report
from tacit.report.words import metric, seconds, size

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&\u202e\x07"


def read(folder) -> tuple[str, Page]:
    text = write_report(folder).read_text(encoding="utf-8")
    return text, Page(text)


def page_of(tmp_path, **changes) -> Page:
    return read(write_run(tmp_path / "run", **changes))[1]


def test_numbers_are_the_summarys_and_agree_with_what_is_shown(tmp_path):
    page = page_of(tmp_path, summary={"metrics_shared": {"mse": 0.79}})
    exact = [*SUMMARY["metrics"].values(), *SUMMARY["intervals"]["mse"], *SUMMARY["intervals"]["ndcg@10"], 0.79]
    assert all(metric(value) in page.data[repr(value)] for value in exact)
    shown = {"3": "3", "6600": size(6600), "6000": size(6000), "41.26": seconds(41.26), "7": "7"}
    assert all(text in page.data[value] for value, text in shown.items())
    assert SUMMARY["digest"] in page.text
    assert {"svg", "figure", "details", "table", "h1"} <= page.tags
    for value, texts in page.data.items():
        for text in texts:
            scale = {"KB": 1e3, "MB": 1e6}.get(text.split()[-1], 1.0)
            digits = re.match(r"[\d.,]+", text)[0].replace(",", "")
            assert float(digits) * scale == pytest.approx(float(value), rel=0.01)


def test_data_split_partition_method_and_reproduction_are_described(tmp_path):
    page = page_of(tmp_path)
    for words in (
        "300 ratings of 20 items by 40 users, 38 % of all pairs",
        "A random tenth is held out.",
        "Users are divided at random among 2 silos.",
        "Each silo improves a copy of the item factors.",
        "Made for tests.",
        "tacit run run.toml",
        "Tacit 0.1.0, Python 3.11.9 and NumPy 2.4.0",
        "14 March 2026, 10:22 UTC",
        "A test rating of 4 or more counts as relevant.",
        "mean squared error",
        'source = "demo"',
    ):
        assert words in page.text, words
    assert page.row("North") == ["North (party-1)", "20", "20", "150"]
    assert [page.row(name)[1] for name in ("factors", "rate", "trim", "shuffle")] == ["20", "0.5", "not set", "yes"]


@pytest.mark.parametrize(
    ("guarantee", "kind"),
    [(None, "none"), ({**GUARANTEE, "simulated": True}, "simulated"), (GUARANTEE, "holds")],
)
def test_the_stamp_comes_first(tmp_path, guarantee, kind):
    page = page_of(tmp_path, summary={"guarantee": guarantee})
    (found, words), *_ = page.stamps
    assert found == kind
    assert words.startswith("(1.00, 1e-06)-DP · per user" if guarantee else "NON-PRIVATE")
    assert ("NON-PRIVATE" in page.text) == (guarantee is None)
    assert ("SIMULATED" in page.text) == (kind == "simulated")


def test_nothing_from_data_can_act(tmp_path):
    parties = [{"name": HOSTILE, "label": HOSTILE, "users": 1, "items": 1, "ratings": 1, "devices": 0}] * 2
    about = {
        **dict.fromkeys(("tacit", "python", "numpy", "created", "split"), HOSTILE),
        "data": {**ABOUT["data"], "name": HOSTILE, "scale": HOSTILE, "feedback": HOSTILE, "notes": [HOSTILE]},
        "partition": {"description": HOSTILE, "parties": parties},
        "method": {"name": HOSTILE, "title": HOSTILE, "parameters": {HOSTILE: HOSTILE}, "what": HOSTILE},
        "crossings": [{"step": HOSTILE, "kind": HOSTILE, "to": HOSTILE, "what": HOSTILE}],
        "notes": [HOSTILE],
    }
    rows = [(1, 1, HOSTILE, HOSTILE, way, "chain", 9, 1, "", HOSTILE) for way in ("up", "down")]
    stated = {**GUARANTEE, **dict.fromkeys(("unit", "relation", "model", "against"), HOSTILE)}
    summary = {"metrics": {HOSTILE: 1.0}, "digest": HOSTILE, "setting": HOSTILE, "method": HOSTILE, "guarantee": stated}
    folder = write_run(
        tmp_path / "run",
        about=about,
        messages=rows,
        summary=summary,
        rounds={HOSTILE: [1.0, 2.0]},
        users={HOSTILE: [1.0, 2.0]},
        run=RUN.format(by="user") + "# <script>alert(3)</script>\n",
    )
    assert "alert(2)" in read(folder)[1].text


def test_the_size_is_bounded_at_70_000_users_and_6_000_parties(tmp_path):
    rng = np.random.default_rng(1)
    names = [f"party-{k}" for k in range(6000)]
    parties = [{"name": n, "label": f"clinic {n}", "users": 12, "items": 20, "ratings": 9, "devices": 0} for n in names]
    about = {"partition": {"description": "many", "parties": parties}}
    rows = [(1, 1, "improve", n, "up", "chain", 100 + k, 1, "", "ok") for k, n in enumerate(names)]
    users, rounds = {"mse": rng.gamma(2, 0.4, 70_000)}, {"mse": rng.random(5000)}
    text, page = read(write_run(tmp_path / "run", about=about, messages=rows, users=users, rounds=rounds))
    assert len(text.encode()) < 300_000
    assert "6,000 silos learned together" in page.text
    assert page.row("5,980 others")[1] == "71,760"
    assert "u69999" not in text


def test_many_devices_are_one_cohort(tmp_path):
    parties = [{"name": "party-1", "label": "cohort 1", "users": 6040, "items": 9, "ratings": 99, "devices": 6040}]
    about = {"partition": {"description": "one device per user", "parties": parties}}
    rows = [(1, 1, "improve", "party-1", "up", "sum", 6040 * 100, 6040, "", "ok")]
    changes = {"summary": {"setting": "device"}, "run": RUN.format(by="device")}
    page = page_of(tmp_path, about=about, messages=rows, **changes)
    assert "6,040 devices learned together" in page.text
    assert "6,040 devices are one cohort here; for each of them, 100 bytes up" in page.text


@pytest.mark.parametrize(
    ("rounds", "words"),
    [
        ({}, "No round of this run reported a metric."),
        ({"mse": []}, "No round of this run reported a metric."),
        ({"mse": [0.9]}, "After round 1, test MSE was 0.900."),
        ({"mse": [math.nan, math.nan]}, "no finite value of MSE in any round"),
        ({"mse": [math.inf, 2.0, 1.0]}, "fell from 2.000 after round 2 to 1.000 after round 3. 1 round gave no finite"),
        ({"mse": [1.0, 1.0]}, "was 1.000 after round 1, and again after round 2"),
        ({"mse": [1.0, 2.0]}, "it got worse"),
        ({"ndcg@10": [0.1, 0.3]}, "Test NDCG@10 rose from 0.100"),
        ({"mse": [2.0, 0.5, 1.0]}, "Its best, 0.500, came after round 2."),
    ],
)
def test_learning_curves_of_every_shape_are_described(tmp_path, rounds, words):
    assert words in page_of(tmp_path, rounds=rounds).text


@pytest.mark.parametrize(
    ("users", "words"),
    [
        ({"mse": [0.4]}, "There is one user, whose MSE is 0.400."),
        ({"mse": [math.nan]}, "No user has a value."),
        ({"mse": [0.4, math.nan, 0.4]}, "1 user without a value left out."),
        ({"mse": [0.5] * 9}, "MSE is 0.500 for nearly all of 9 users."),
        ({"ndcg@10": np.linspace(0, 1, 11)}, "for one user in ten it is below 0.100"),
        ({"mse": np.linspace(0, 1, 11)}, "for one user in ten it is above 0.900"),
    ],
)
def test_any_number_of_users_is_described(tmp_path, users, words):
    assert words in page_of(tmp_path, users=users).text


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_a_metric_without_a_value_is_a_dash(tmp_path, value):
    page = page_of(tmp_path, summary={"metrics": {"mse": value}, "intervals": {"mse": [None, math.nan]}})
    assert "test MSE –" in page.text
    assert "nan" not in page.text.lower().replace("finance", "")


def test_a_run_without_metrics_parties_or_messages_still_reads(tmp_path):
    about = {"partition": {"description": "", "parties": []}, "crossings": [], "notes": [], "split": ""}
    summary = {"metrics": {}, "intervals": {}, "bytes_up": 0, "bytes_down": 0, "rounds": 0}
    page = page_of(tmp_path, about=about, summary=summary, rounds={}, users={}, messages=[])
    assert "A model was trained" in page.text
    assert "No message passed between any two roles." in page.text


@pytest.mark.parametrize(
    ("method", "kind", "words"),
    [
        ("central", "disclose", "Two silos pooled their ratings"),
        ("local", "public", "Two silos each learned alone"),
        ("random", "public", "Two silos shared nothing"),
        ("als", "sum", "Two silos learned together: test MSE 0.755"),
    ],
)
def test_the_headline_says_what_the_parties_did(tmp_path, method, kind, words):
    crossings = [{"step": "improve", "kind": kind, "to": "the coordinator", "what": "x"}]
    about = {"method": {**ABOUT["method"], "name": method}, "crossings": crossings}
    assert f"<h1>{words}" in read(write_run(tmp_path / "run", about=about))[0]


def test_a_transcript_that_does_not_add_up_and_lost_messages_are_reported(tmp_path):
    page = page_of(tmp_path / "a", summary={"bytes_up": 1})
    assert "adds up to 6,600 bytes up and 6,000 down, while the summary says 1 byte up" in page.text
    rows = [*three_rounds(), (5, 3, "improve", "party-1", "up", "chain", 40, 1, "", "lost")]
    page = page_of(tmp_path / "b", messages=rows)
    assert "Not all answers arrived in time: 1 lost." in page.text
    assert "count lost and late ones too" in page.text


def test_a_disk_that_refuses_leaves_the_old_report(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "run")
    (folder / "report.html").write_text("old")

    def refuse(*_places):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(UsageError, match=r"report\.html.*cannot be written: No space left on device"):
        write_report(folder)
    assert (folder / "report.html").read_text() == "old"
    assert not list(folder.glob("*.part"))
