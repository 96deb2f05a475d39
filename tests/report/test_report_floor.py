"""The floor and other references beside a run: the verdict, where it is shown, and the noise of each private step."""

import io
import math

import pytest
from fake_run import ABOUT, GUARANTEE, SUMMARY, write_run
from page_reader import Page
from rich.console import Console

from tacit.cli.display import print_summary
from tacit.report import RunRecord, compare_report, privacy_card, report
from tacit.report.card import card
from tacit.report.floor_verdict import contenders, remarks, verdict
from tacit.report.readings import headline

HOSTILE = "<script>alert(1)</script> | **x**[/red]"
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
OTHERS = [
    {"name": "local", "what": "each silo alone", "metrics": {"mse": 0.8}, "intervals": {"mse": [0.79, 0.81]}},
    {"name": "popularity", "what": "most rated", "metrics": {"ndcg@10": 0.4}},
    {"name": "central", "what": "all in one place", "missing": "not trained here, since 2,000,000 ratings are many"},
]


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
    known = {"floor": floor, "steps_noise": noise, "references": changes.pop("references", None)}
    about = {key: value for key, value in known.items() if value is not None} | changes.pop("about", {})
    summary = {"guarantee": GUARANTEE if private else None, **changes.pop("summary", {})}
    return RunRecord.read(write_run(folder, summary=summary, about=about, **changes))


def terminal(record: RunRecord) -> str:
    console = Console(file=io.StringIO(), width=150)
    print_summary({**SUMMARY, "run": str(record.folder), "guarantee": GUARANTEE}, console)
    return console.file.getvalue()


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
    assert verdict(a_run(tmp_path / "run", a_floor(value, metric="ndcg@10"), summary=ranked)).standing == standing


def test_better_ratings_and_worse_ranks_are_both_in_the_headline(tmp_path):
    floor = a_floor(mse=0.9, metrics={"mse": 0.9, "ndcg@10": 0.3})
    found = verdict(a_run(tmp_path / "run", floor, summary={"metrics": {"mse": 0.8, "ndcg@10": 0.1}}))
    assert found.brief == "beats bias by MSE, not by NDCG@10"
    assert "It ranks worse than bias: NDCG@10 0.100 against 0.300." in found.words


@pytest.mark.parametrize(
    ("before", "standing", "words"), [(1.1, "tuned", "MSE 1.100 against 0.800"), (0.79, "beats", "it has 0.790")]
)
def test_local_fine_tuning_is_not_what_was_learned_together(tmp_path, before, standing, words):
    found = verdict(a_run(tmp_path / "a", a_floor(0.8), summary={"metrics_shared": {"mse": before}}))
    assert found.standing == standing
    assert words in found.words
    assert "0.755" in found.words


@pytest.mark.parametrize(
    ("its", "private", "words"),
    [
        ({**GUARANTEE, "epsilon": 3.0}, True, "beats bias at (3.00, 1e-06)-DP per user:"),
        (None, True, "beats bias as it is without privacy:"),
        (None, False, "beats bias, both without privacy:"),
        (GUARANTEE, False, "at (1.00, 1e-06)-DP per user"),
    ],
)
def test_another_guarantee_is_named_and_none_is_not_invented(tmp_path, its, private, words):
    assert words in verdict(a_run(tmp_path / "a", a_floor(0.8, guarantee=its), private=private)).words


@pytest.mark.parametrize("floor", [{"method": "bias", "missing": "too few parties."}, a_floor(None), a_floor(math.nan)])
def test_a_floor_that_could_not_be_had_says_so(tmp_path, floor):
    found = verdict(a_run(tmp_path / "run", floor))
    assert found.standing == "unknown"
    assert ("too few parties." in found.words) == ("missing" in floor)


@pytest.mark.parametrize(
    ("mse", "words", "kind"), [(0.7, "does not beat bias", "simulated"), (0.9, "beats bias", "holds")]
)
def test_terminal_report_and_card_have_the_verdict_in_their_headline(tmp_path, mse, words, kind):
    record = a_run(tmp_path / "run", a_floor(mse))
    assert terminal(record).splitlines()[0].endswith(f" · {words}")
    assert privacy_card(record).splitlines()[0] == f"# Privacy card: {words}"
    page = Page(report(record))
    assert f"test MSE 0.755, {words}" in page.text
    assert page.stamps[1][0] == kind
    assert page.stamps[1][1].startswith(words.capitalize())


def test_the_floor_is_drawn_on_every_chart_of_its_metric(tmp_path):
    text = report(a_run(tmp_path / "near", a_floor(0.8)))
    assert text.count("bias, the floor: 0.800") == text.count("bias mean 0.900") == 2  # wide and narrow
    assert Page(text).classes.count("reference") == 4
    text = report(a_run(tmp_path / "far", a_floor(40.0, user_means={"mse": 40.0})))
    assert "bias, the floor: 40.00" in text
    assert "bias mean" not in text  # beyond the histogram's axis


def test_runs_without_a_floor_or_references_do_not_mention_them(tmp_path):
    record = a_run(tmp_path / "run")
    assert contenders(record) == []
    for text in (report(record), privacy_card(record), compare_report([record, record]), terminal(record)):
        assert not any(
            words in text for words in ("the floor", "Noise and signal", "Against other models", "beside it")
        )


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


def test_floors_that_differ_are_told_apart_and_one_among_the_runs_is_not_drawn_twice(tmp_path):
    text = compare_report([a_run(tmp_path / "a", a_floor(0.8)), a_run(tmp_path / "b", a_floor(0.81))])
    assert "floor: bias, ε = 1.00<" in text
    assert "floor: bias, ε = 1.00, of sgdmf, " in text
    biased = {"method": {**ABOUT["method"], "name": "bias"}}
    metrics = {"metrics": {**SUMMARY["metrics"], "mse": 0.8}}
    records = [a_run(tmp_path / "c", a_floor(0.8)), a_run(tmp_path / "d", about=biased, summary=metrics)]
    assert "floor: bias," not in compare_report(records)


def test_nothing_in_a_floor_a_reference_or_a_step_can_act(tmp_path):
    floor = a_floor(0.8, method=HOSTILE, missing=HOSTILE)
    others = [{"name": HOSTILE, "what": HOSTILE, "metrics": {"mse": 0.1}}]
    record = a_run(tmp_path / "run", floor, [{**NOISE, "step": HOSTILE}], references=others)
    for text in (report(record), privacy_card(record), compare_report([record])):
        assert "<script" not in text
    assert "**x**" not in privacy_card(record)
    assert "[/red]" in terminal(record)


def test_terminal_report_and_card_name_the_references(tmp_path):
    floor = a_floor(0.7, metrics={"mse": 0.7, "ndcg@10": 0.2}, intervals={"mse": [0.69, 0.71]})
    record = a_run(tmp_path / "run", floor, references=OTHERS, summary={"metrics_shared": {"mse": 1.1}})
    assert [one.name for one in contenders(record)][:3] == ["this run", "bias, the floor", "before tuning"]
    printed = terminal(record)
    lines = {line.split()[0]: line for line in printed.splitlines() if line.strip()}
    assert "0.7000  0.6900 … 0.7100" in lines["bias,"]
    assert "0.8000  0.7900 … 0.8100" in lines["local"]
    assert "before tuning" in printed
    page = Page(report(record))
    assert page.row("local")[1:] == [
        "0.800 0.790 – 0.810",
        "–",
        "NON-PRIVATE, for comparison; stays with the experimenter",
    ]
    assert page.row("central")[1:3] == ["–", "–"]
    assert "1.1" in page.data
    assert "Central: not trained here, since 2,000,000 ratings are many." in page.text
    assert "local and popularity: NON-PRIVATE" in privacy_card(record)
    assert remarks(record) == ["Popularity does better by NDCG@10: 0.400 against 0.313."]
    assert all(remarks(record)[0] in text for text in (printed, page.text))


def test_every_private_step_is_in_the_table(tmp_path):
    finish = {**NOISE, "step": "finish", "releases": 1, "answers": 20, "sampling": 1.0, "signal_to_noise": 2.5}
    record = a_run(tmp_path / "run", noise=[NOISE, finish])
    text = privacy_card(record)
    assert "| improve | 100 × 10 | 1 % | 50.6 | 106 | 10,000 | 0.139 | 0.002 |" in text
    assert "| finish | 1 × 20 | all | 50.6 | 106 | 10,000 | 0.139 | 2.5 |" in text
    assert "the noise of “improve” is 500 × the signal per cell" in text
    assert Page(report(record)).row("improve")[-1] == "0.002"


@pytest.mark.parametrize("ratio", [0.0, 3.0, math.inf, math.nan])
def test_no_ratio_is_turned_into_words_that_it_does_not_bear(tmp_path, ratio):
    text = privacy_card(a_run(tmp_path / "run", noise=[{**NOISE, "signal_to_noise": ratio}]))
    assert "× the signal" not in text
    assert "nan" not in text
    assert "inf " not in text


def test_better_than_the_floor_and_worse_than_each_silo_alone_is_no_success(tmp_path):
    alone = [{"name": "local", "what": "each silo alone", "metrics": {"mse": 0.7}}]
    record = a_run(tmp_path / "run", a_floor(0.8), references=alone)
    found = verdict(record)
    assert found.standing == "alone"
    assert found.brief == "better than bias, worse than each silo alone"
    assert "Each silo alone, without sending anything, does better: test MSE 0.700 against 0.755." in found.words
    assert card(record).floor_kind == "simulated"  # the style of a warning
    assert headline(record).endswith("test MSE 0.755, better than bias, worse than each silo alone")
    assert "worse than each silo alone" in terminal(record)
    assert verdict(a_run(tmp_path / "worse", a_floor(0.8), references=OTHERS)).standing == "beats"
