"""The report: one offline file, well formed, escaped, bounded, and true to the summary."""

from __future__ import annotations

import math
import os
import re

import numpy as np
import pytest
from fake_run import ABOUT, GUARANTEE, RUN, SUMMARY, three_rounds, write_run
from page_reader import Page

from tacit.errors import UsageError
from tacit.report import RunRecord, readings, report, write_card, write_report
from tacit.report.words import count, metric, seconds, size

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&\u202e\x07"


def read(folder) -> tuple[str, Page]:
    text = write_report(folder).read_text(encoding="utf-8")
    return text, Page(text)


def test_the_report_is_one_offline_well_formed_file(tmp_path):
    text, page = read(write_run(tmp_path / "run"))
    assert text.startswith("<!doctype html>")
    assert not re.search(r"https?:|//[a-z]|url\(|@import|<link|<script|<iframe", text)
    assert page.references == []
    assert page.policy.startswith("default-src 'none';")
    assert {"svg", "figure", "details", "table", "h1"} <= page.tags
    assert len(text) < 100_000


def test_the_headline_is_in_words_and_the_stamp_follows(tmp_path):
    _, page = read(write_run(tmp_path / "run"))
    assert "Two silos learned together: test MSE 0.755" in page.text
    head = page.text[: page.text.index("How it learned")]
    assert "NON-PRIVATE" in head
    assert "Nothing here limits what the coordinator or another party can learn from what crossed." in head


def test_numbers_are_the_summarys(tmp_path):
    _, page = read(write_run(tmp_path / "run", summary={"metrics_shared": {"mse": 0.79}}))
    for name, value in SUMMARY["metrics"].items():
        assert metric(value) in page.data[repr(value)], name
    for low, high in SUMMARY["intervals"].values():
        assert {metric(low), metric(high)} <= page.data[repr(low)] | page.data[repr(high)]
    assert page.data["0.79"] == {"0.790"}
    assert count(3) in page.data["3"]
    assert size(6600) in page.data["6600"]
    assert size(6000) in page.data["6000"]
    assert seconds(41.26) in page.data["41.26"]
    assert page.data["7"] == {"7"}
    assert SUMMARY["digest"] in page.text


def test_every_exact_number_agrees_with_what_is_shown(tmp_path):
    _, page = read(write_run(tmp_path / "run"))
    for value, shown in page.data.items():
        for text in shown:
            digits = re.match(r"[\d.,]+", text)
            assert digits is not None
            scale = {"KB": 1e3, "MB": 1e6}.get(text.split()[-1], 1.0)
            assert float(digits[0].replace(",", "")) * scale == pytest.approx(float(value), rel=0.01)


def test_data_split_partition_method_and_reproduction_are_told(tmp_path):
    _, page = read(write_run(tmp_path / "run"))
    for words in (
        "300 ratings by 40 users of 20 items, 38 % of all pairs",
        "A random tenth is held out.",
        "Users are divided at random among 2 silos.",
        "Each silo improves a copy of the item factors.",
        "Made for tests.",
        "tacit run run.toml",
        "Tacit 0.1.0, Python 3.11.9 and NumPy 2.4.0",
        "14 March 2026, 10:22 UTC",
        "Relevant is a test rating of 4 or more.",
        "mean squared error",
        'source = "demo"',
    ):
        assert words in page.text, words


@pytest.mark.parametrize("simulated", [True, False])
def test_a_guarantee_takes_the_stamps_place(tmp_path, simulated):
    stated = {**GUARANTEE, "simulated": simulated}
    text, page = read(write_run(tmp_path / "run", summary={"guarantee": stated}))
    assert "(1.00, 1e-06)-DP · per user and silo · zero-out · against coordinator and other silos" in page.text
    assert "NON-PRIVATE" not in page.text
    assert ("SIMULATED" in page.text) == simulated
    assert f'class="stamp {"simulated" if simulated else "holds"}"' in text


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
    summary = {"metrics": {HOSTILE: 1.0}, "digest": HOSTILE, "setting": HOSTILE, "method": HOSTILE}
    stated = {**GUARANTEE, **dict.fromkeys(("unit", "relation", "model", "against"), HOSTILE)}
    folder = write_run(
        tmp_path / "run",
        about=about,
        messages=rows,
        summary={**summary, "guarantee": stated},
        rounds={HOSTILE: [1.0, 2.0]},
        users={HOSTILE: [1.0, 2.0]},
        run=RUN.format(by="user") + "# <script>alert(3)</script>\n",
    )
    text, page = read(folder)
    assert "<script" not in text
    assert "<img" not in text
    assert "\u202e" not in text
    assert "\x07" not in text
    assert page.tags.isdisjoint({"script", "img"})


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
    assert "5,980 others" in page.text
    assert "u69999" not in text


def test_many_devices_are_one_cohort(tmp_path):
    parties = [{"name": "party-1", "label": "cohort 1", "users": 6040, "items": 9, "ratings": 99, "devices": 6040}]
    about = {"partition": {"description": "one device per user", "parties": parties}}
    rows = [(1, 1, "improve", "party-1", "up", "sum", 6040 * 100, 6040, "", "ok")]
    folder = write_run(
        tmp_path / "run", about=about, messages=rows, summary={"setting": "device"}, run=RUN.format(by="device")
    )
    _, page = read(folder)
    assert "6,040 devices learned together" in page.text
    assert "6,040 devices are one cohort here; for each of them, 100 bytes up" in page.text.replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("rounds", "words"),
    [
        ({}, "no rounds with a value"),
        ({"mse": []}, "no rounds with a value"),
        ({"mse": [0.9]}, "After round 1, test MSE was 0.900."),
        ({"mse": [math.nan, math.nan]}, "no finite value of MSE in any round"),
        ({"mse": [math.inf, 2.0, 1.0]}, "fell from 2.000 after round 2 to 1.000 after round 3. 1 round gave no finite"),
        ({"mse": [1.0, 1.0]}, "was 1.000 after round 1, and again after round 2"),
        ({"mse": [1.0, 2.0]}, "it got worse"),
        ({"ndcg@10": [0.1, 0.3]}, "Test NDCG@10 rose from 0.100"),
        ({"mse": [2.0, 0.5, 1.0]}, "Its best, 0.500, came after round 2."),
    ],
)
def test_rounds_of_every_shape_are_told(tmp_path, rounds, words):
    _, page = read(write_run(tmp_path / "run", rounds=rounds))
    assert words in page.text


@pytest.mark.parametrize(
    ("users", "words"),
    [
        ({"mse": [0.4]}, "There is one user, whose MSE is 0.400."),
        ({"mse": [math.nan]}, "No user has a value."),
        ({"mse": [0.4, math.nan, 0.4]}, "1 user without a value left out."),
        ({"mse": [0.5] * 9}, "Nearly all of 9 users have MSE 0.500."),
        ({"ndcg@10": np.linspace(0, 1, 11)}, "for one in ten it is below 0.100"),
        ({"mse": np.linspace(0, 1, 11)}, "for one in ten it is above 0.900"),
    ],
)
def test_users_of_every_number_are_told(tmp_path, users, words):
    _, page = read(write_run(tmp_path / "run", users=users))
    assert words in page.text


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_a_metric_without_a_value_is_a_dash(tmp_path, value):
    summary = {"metrics": {"mse": value}, "intervals": {"mse": [None, math.nan]}}
    _, page = read(write_run(tmp_path / "run", summary=summary))
    assert "test MSE –" in page.text
    assert "nan" not in page.text.lower().replace("finance", "")


def test_a_run_without_metrics_parties_or_messages_still_reads(tmp_path):
    about = {"partition": {"description": "", "parties": []}, "crossings": [], "notes": [], "split": ""}
    summary = {"metrics": {}, "intervals": {}, "bytes_up": 0, "bytes_down": 0, "rounds": 0}
    folder = write_run(tmp_path / "run", about=about, summary=summary, rounds={}, users={}, messages=[])
    _, page = read(folder)
    assert "A model was trained" in page.text
    assert "nothing was sent" in page.text
    assert "No message passed between any two roles." in page.text


@pytest.mark.parametrize(
    ("method", "kind", "words"),
    [
        ("central", "disclose", "Two silos pooled their ratings"),
        ("local", "public", "Two silos each learned alone"),
        ("random", "public", "Two silos shared nothing"),
        ("als", "sum", "Two silos learned together"),
    ],
)
def test_the_headline_says_what_the_parties_did(tmp_path, method, kind, words):
    about = {
        "method": {**ABOUT["method"], "name": method},
        "crossings": [{"step": "improve", "kind": kind, "to": "the coordinator", "what": "x"}],
    }
    record = RunRecord.read(write_run(tmp_path / "run", about=about))
    assert readings.headline(record).startswith(words)


def test_a_transcript_that_does_not_add_up_is_remarked(tmp_path):
    _, page = read(write_run(tmp_path / "run", summary={"bytes_up": 1}))
    assert "adds up to 6,600 bytes up and 6,000 down, while the summary says 1 byte up" in page.text


def test_lost_messages_are_told(tmp_path):
    rows = [*three_rounds(), (5, 3, "improve", "party-1", "up", "chain", 40, 1, "", "lost")]
    _, page = read(write_run(tmp_path / "run", messages=rows))
    assert "Not all answers arrived in time: 1 lost." in page.text
    assert "count lost and late ones too" in page.text


def test_a_password_in_the_run_file_is_not_shown(tmp_path):
    source = "postgresql://ann:s3cret@db/shop"
    about = {"data": {**ABOUT["data"], "name": source}}
    folder = write_run(tmp_path / "run", about=about, run=f'[data]\nsource = "{source}"\n')
    text, _ = read(folder)
    assert "s3cret" not in text
    assert "s3cret" not in write_card(folder).read_text(encoding="utf-8")


def test_the_same_run_gives_the_same_bytes(tmp_path):
    record = RunRecord.read(write_run(tmp_path / "run"))
    assert report(record) == report(RunRecord.read(tmp_path / "run"))


def test_writing_leaves_nothing_half_done(tmp_path):
    folder = write_run(tmp_path / "run")
    assert write_report(folder) == folder / "report.html"
    assert write_card(folder) == folder / "card.md"
    assert not list(folder.glob("*.part"))


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
