"""A run beside its floor, and how loud its noise is: said plainly, drawn everywhere, and silent where unknown."""

from __future__ import annotations

import math

import pytest
from fake_run import ABOUT, GUARANTEE, SUMMARY, write_run
from page_reader import Page

from tacit.errors import UsageError
from tacit.report import RunRecord, compare_report, privacy_card, report
from tacit.report.floor_verdict import verdict

HOSTILE = "<script>alert(1)</script> | **x**"
NOISE = {
    "step": "improve",
    "releases": 100,
    "answers": 10,
    "sampling": 0.01,
    "sensitivity": 50.6,
    "sigma": 106.2,
    "cells": 10_000,
    "signal": 0.139,
    "signal_to_noise": 0.002,
}


def a_floor(mse: float | None = 0.8, interval=None, metric: str = "mse", **changes) -> dict:
    paired = {} if interval is None else {metric: {"users": 40, "difference": -0.045, "interval": interval}}
    return {
        "method": "bias",
        "metrics": {metric: mse},
        "intervals": {metric: [0.79, 0.81]},
        "guarantee": GUARANTEE,
        "user_means": {metric: 0.9},
        "paired": paired,
        **changes,
    }


def a_run(folder, floor: dict | None = None, noise: list | None = None, private: bool = True, **changes) -> RunRecord:
    told = {key: value for key, value in (("floor", floor), ("steps_noise", noise)) if value is not None}
    summary = {"guarantee": GUARANTEE if private else None, **changes.pop("summary", {})}
    return RunRecord.read(write_run(folder, summary=summary, about={**told, **changes.pop("about", {})}, **changes))


# -- the verdict ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mse", "interval", "standing", "words"),
    [
        (0.8, (-0.06, -0.03), "beats", "beats bias at the same guarantee: test MSE 0.755 against 0.800, a difference"),
        (0.8, None, "beats", "beats bias at the same guarantee: test MSE 0.755 against 0.800."),
        (0.8, (-0.06, 0.01), "level", "does not clearly beat bias at the same guarantee"),
        (0.7, (0.03, 0.06), "fails", "does not beat bias at the same guarantee: test MSE 0.755 against 0.700"),
        (0.7, (-0.01, 0.06), "fails", "does not beat bias"),
        (0.7, None, "fails", "does not beat bias"),
        (0.75512, None, "fails", "does not beat bias"),
    ],
)
def test_the_verdict_follows_the_interval_and_names_both_numbers(tmp_path, mse, interval, standing, words):
    found = verdict(a_run(tmp_path / "run", a_floor(mse, interval)))
    assert found.standing == standing
    assert words in found.words
    assert (interval is not None) == ("95 % interval" in found.words)


@pytest.mark.parametrize(("value", "standing"), [(0.2, "beats"), (0.4, "fails")])
def test_where_more_is_better_less_does_not_beat(tmp_path, value, standing):
    ranked = {"metrics": {"ndcg@10": 0.31254}, "intervals": {}}
    run = a_run(tmp_path / "run", a_floor(value, metric="ndcg@10"), summary=ranked)
    assert verdict(run).standing == standing


def test_better_ratings_and_worse_ranks_are_both_in_the_headline(tmp_path):
    floor = a_floor(mse=0.9, metrics={"mse": 0.9, "ndcg@10": 0.3})
    said = verdict(a_run(tmp_path / "run", floor, summary={"metrics": {"mse": 0.8, "ndcg@10": 0.1}}))
    assert said.brief == "beats bias by MSE, not by NDCG@10"
    assert "It ranks worse than bias: NDCG@10 0.100 against 0.300." in said.words


def test_fine_tuning_at_home_is_not_what_was_learned_together(tmp_path):
    tuned = verdict(a_run(tmp_path / "a", a_floor(0.8), summary={"metrics_shared": {"mse": 1.1}}))
    assert tuned.standing == "tuned"
    assert "What was learned together does not beat bias at the same guarantee: test MSE 1.100 against 0.800." in (
        tuned.words
    )
    assert "brings it to 0.755" in tuned.words
    both = verdict(a_run(tmp_path / "b", a_floor(0.8), summary={"metrics_shared": {"mse": 0.79}}))
    assert both.standing == "beats"
    assert "Before fine-tuning at home it has 0.790." in both.words


def test_another_guarantee_is_named_and_none_is_not_invented(tmp_path):
    other = {**GUARANTEE, "epsilon": 3.0}
    words = [
        verdict(a_run(tmp_path / str(k), a_floor(0.8, guarantee=its), private=private)).words
        for k, (its, private) in enumerate([(other, True), (None, True), (None, False), (GUARANTEE, False)])
    ]
    assert "beats bias at (3.00, 1e-06)-DP per user:" in words[0]
    assert "beats bias as it is without privacy:" in words[1]
    assert "beats bias, both without privacy:" in words[2]
    assert "at (1.00, 1e-06)-DP per user" in words[3]


@pytest.mark.parametrize("floor", [{"method": "bias", "missing": "too few parties."}, a_floor(None), a_floor(math.nan)])
def test_a_floor_that_could_not_be_had_says_so(tmp_path, floor):
    found = verdict(a_run(tmp_path / "run", floor))
    assert found.standing == "unknown"
    assert "There is no floor to compare with: " in found.words
    assert ("too few parties." in found.words) == ("missing" in floor)


def test_a_damaged_floor_is_one_sentence(tmp_path):
    with pytest.raises(UsageError, match=r"about\.json.*floor\.metrics"):
        a_run(tmp_path / "run", {"method": "bias", "metrics": 3})


# -- where it is shown ----------------------------------------------------------------------------------------


def test_a_private_model_that_does_not_beat_it_says_so_at_the_top(tmp_path):
    record = a_run(tmp_path / "run", a_floor(0.7, (0.03, 0.06)))
    lines = [line for line in privacy_card(record).splitlines() if line]
    assert lines[0] == "# Privacy card: does not beat bias"
    assert lines[3].startswith("**Does not beat bias.** This model does not beat bias at the same guarantee")
    text = report(record)
    assert "<h1>Two silos learned together: test MSE 0.755, does not beat bias</h1>" in text
    assert text.index("Does not beat bias") < text.index("<dl")
    assert 'class="stamp simulated"' in text
    assert "nothing of it was released" in Page(text).text


def test_the_floor_is_drawn_on_every_chart_of_its_metric(tmp_path):
    text = report(a_run(tmp_path / "run", a_floor(0.8)))
    assert text.count("bias, the floor: 0.800") == 2  # wide and narrow
    assert text.count("bias mean 0.900") == 2
    assert text.count('class="reference"') == 4
    assert "bias: 0.800" in Page(text).text.replace("bias:  ", "bias: ")


def test_the_floor_lies_within_the_chart_however_far_it_is(tmp_path):
    text = report(a_run(tmp_path / "run", a_floor(40.0, user_means={"mse": 40.0})))
    assert "bias, the floor: 40.00" in text
    assert "bias mean" not in text  # beyond the histogram's axis


def test_runs_without_a_floor_say_nothing_of_it(tmp_path):
    record = a_run(tmp_path / "run")
    for text in (report(record), privacy_card(record), compare_report([record, record])):
        assert "floor" not in Page(text).text
        assert "How loud" not in text


def test_a_comparison_draws_each_floor_once_and_judges_each_private_run(tmp_path):
    other = {**GUARANTEE, "epsilon": 8.0}
    records = [
        a_run(tmp_path / "a", a_floor(0.8)),
        a_run(tmp_path / "b", a_floor(0.8)),
        a_run(tmp_path / "c", a_floor(0.7, guarantee=other), summary={"guarantee": other}),
        a_run(tmp_path / "d", a_floor(0.65, guarantee=None), private=False),
    ]
    text = compare_report(records)
    page = Page(text)
    for name in ("floor: bias, ε = 1.00", "floor: bias, ε = 8.00", "floor: bias, no privacy"):
        assert text.count(f">{name}</text>") == 4, name  # wide and narrow, of two charts
    assert page.text.count("beats bias at the same guarantee") == 2
    assert page.text.count("does not beat bias at the same guarantee") == 1
    assert "both without privacy" not in page.text
    assert "Dashed is the floor" in page.text


def test_floors_at_one_guarantee_that_differ_are_told_apart(tmp_path):
    records = [a_run(tmp_path / "a", a_floor(0.8)), a_run(tmp_path / "b", a_floor(0.81))]
    text = compare_report(records)
    assert "floor: bias, ε = 1.00<" in text
    assert "floor: bias, ε = 1.00, of sgdmf, " in text


def test_a_floor_that_is_among_the_runs_is_not_drawn_twice(tmp_path):
    biased = {"method": {**ABOUT["method"], "name": "bias"}}
    metrics = {"metrics": {**SUMMARY["metrics"], "mse": 0.8}}
    records = [a_run(tmp_path / "a", a_floor(0.8)), a_run(tmp_path / "b", about=biased, summary=metrics)]
    text = compare_report(records)
    assert "floor: bias," not in text
    assert "Dashed is the floor" in text


def test_nothing_in_a_floor_or_a_step_can_act(tmp_path):
    floor = a_floor(0.8, method=HOSTILE, missing=HOSTILE)
    record = a_run(tmp_path / "run", floor, [{**NOISE, "step": HOSTILE}])
    for text in (report(record), privacy_card(record), compare_report([record])):
        assert "<script" not in text
    assert "**x**" not in privacy_card(record)


# -- how loud the noise is ------------------------------------------------------------------------------------


def test_every_private_step_stands_in_the_table(tmp_path):
    finish = {**NOISE, "step": "finish", "releases": 1, "answers": 20, "sampling": 1.0, "signal_to_noise": 2.5}
    record = a_run(tmp_path / "run", noise=[NOISE, finish])
    text = privacy_card(record)
    assert "## How loud the noise is" in text
    assert "| improve | 100 × 10 | 1 % | 50.6 | 106 | 10,000 | 0.139 | 0.002 |" in text
    assert "| finish | 1 × 20 | everybody | 50.6 | 106 | 10,000 | 0.139 | 2.5 |" in text
    assert "the noise of a cell of “improve” is 500 times its signal" in text
    assert "almost all noise" in text
    assert "How loud the noise is" in Page(report(record)).text


@pytest.mark.parametrize("ratio", [0.0, 3.0, math.inf, math.nan])
def test_no_ratio_is_turned_into_words_that_it_does_not_bear(tmp_path, ratio):
    text = privacy_card(a_run(tmp_path / "run", noise=[{**NOISE, "signal_to_noise": ratio}]))
    assert "times its signal" not in text
    assert "nan" not in text
    assert "inf " not in text


def test_the_claimed_epsilon_stands_beside_the_true_one(tmp_path):
    stated = {**GUARANTEE, "epsilon": 0.49, "claimed_epsilon": 1.0}
    record = a_run(tmp_path / "run", summary={"guarantee": stated})
    text = privacy_card(record)
    assert "| ε that the paper's formulas claim | 1.00 |\n| ε that truly holds | 0.49 |" in text
    assert "(0.49, 1e-06)-DP" in text.splitlines()[2]
    assert "the paper's formulas claim ε = 1.00" in text.splitlines()[2]
    assert "the paper's formulas claim ε = 1.00" in Page(report(record)).text
