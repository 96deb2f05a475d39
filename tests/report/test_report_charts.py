"""Charts: right shape on odd numbers, honest about what they leave out, and escaped."""

import re

import numpy as np
import pytest

from tacit.report.bars import Estimate, estimates, stacked_rounds
from tacit.report.charts import Reference, Series, binned, histogram, line_chart
from tacit.report.svg import nice_step, tick_format, ticks
from tacit.rng import derive

ODD = {
    "none": np.empty(0),
    "one": np.array([0.5]),
    "equal": np.full(5, 0.7),
    "zeros": np.zeros(4),
    "gaps": np.array([1.0, np.nan, 0.5, np.inf, 0.4]),
    "only gaps": np.array([np.nan, np.inf, -np.inf]),
    "negative": np.array([-3.0, -1.0, -2.0]),
    "huge": np.array([1e308, -1e308, 1.0]),
    "tiny": np.array([1e-300, 2e-300, 3e-300]),
}


def line(y, references=(), name="a") -> str:
    series = [Series(name, np.arange(len(y)), np.asarray(y))]
    return line_chart(series, label="l", x_title="x", y_title="y", references=references)


def narrow(drawing: str) -> str:
    return drawing[drawing.index('class="narrow"') :]


@pytest.mark.parametrize("values", ODD.values(), ids=ODD)
def test_every_chart_draws_odd_numbers_inside_its_frame(values):
    rows = [Estimate(str(k), float(v), None, float(v)) for k, v in enumerate(values)]
    drawings = line(values), histogram(values, label="l", x_title="x"), estimates(rows, label="l", x_title="x")
    for drawing in drawings:
        assert drawing.count('role="img"') == 2  # for wide and for narrow screens
        assert not re.search(r'="[^"]*(nan|inf)', drawing)
        for part, width in ((drawing, 680), (narrow(drawing), 390)):
            found = re.findall(r' (?:x|y|x1|x2|y1|y2|cx|cy|width|height)="([^"]*)"', part)
            assert all(-20 <= float(c) <= width + 20 for c in found)


@pytest.mark.parametrize("n", [0, 1, 2, 500])
def test_rounds_are_stacked_and_gathered(n):
    up = np.ones((n, 2))
    drawing = stacked_rounds(np.arange(n), up, 2 * up, label="l")
    assert drawing.count("<rect") <= 4 * (120 + 52)
    assert (n == 0) == ("Nothing to show" in drawing)


@pytest.mark.parametrize("about", [4, 16, 28])
@pytest.mark.parametrize("seed", range(6))
def test_no_user_is_lost_between_bins(seed, about):
    values = derive(seed, "bins").gamma(2.0, 0.4 * 10.0 ** (seed - 3), 1000)
    edges, counts, open_ended = binned(values, about)
    assert counts.sum() == 1000
    assert len(edges) == len(counts) + 1
    assert len(counts) <= about + 2
    closed = np.append(edges[:-1], np.inf) if open_ended else edges
    assert np.array_equal(counts, np.histogram(values, closed)[0])


def test_a_few_extreme_users_share_one_open_bar():
    values = np.concatenate([np.linspace(0, 1, 990), np.linspace(50, 100, 10)])
    edges, counts, open_ended = binned(values, 20)
    assert open_ended
    assert counts.sum() == 1000
    assert edges[-1] < 100
    assert "and more" in histogram(values, label="l", x_title="x")


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0.7, 1.25), (-3, 1e9), (1, 100), (1e-9, 2e-9)])
def test_ticks_are_round_few_and_inside(low, high):
    found = ticks(low, high, 5)
    assert 2 <= len(found) <= 7
    assert all(low - 1e-12 <= t <= high + 1e-3 * (high - low) for t in found)
    written = [tick_format(nice_step(high - low, 5))(t) for t in found]
    assert len(set(written)) == len(written) or high < 1e-8


def test_a_long_line_keeps_its_peaks_and_its_ends():
    y = np.ones(50_000)
    y[31_234], y[-1] = 9.0, 2.0
    drawing = line(y)
    assert len(drawing) < 80_000
    path = re.search(r' d="([^"]*)"', drawing)[1]
    assert len({float(p.split()[1]) for p in re.split("[ML]", path)[1:]}) >= 3


def test_an_early_outlier_does_not_flatten_the_rest_and_is_named():
    assert "↑ up to 5,000" in line(np.concatenate([[5000.0], np.linspace(1.2, 0.8, 99)]))


def test_levels_that_lie_close_keep_their_names_apart():
    levels = [Reference(f"run {k}", 0.8 + 0.0001 * k) for k in range(3)]
    drawing = narrow(line(np.linspace(2, 1, 9), levels))
    heights = sorted(float(y) for y in re.findall(r'y="([\d.]+)" class="note"[^>]*>run', drawing))
    assert len(heights) == 3
    assert min(np.diff(heights)) >= 14
