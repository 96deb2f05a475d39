"""The run files, sweeps, figures and tables behind docs/results: valid, resumable, and drawn as they are."""

import math
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.config import RunFile
from tacit.methods import chosen

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # as `python -m experiments.…` has it

from experiments import figures, lfl, panels, sweep  # noqa: E402
from experiments.orderings import Ordering, orderings  # noqa: E402
from experiments.p0 import SWEEPS  # noqa: E402
from experiments.results import AFTER, BEFORE, Cell, Results, said_n, usual_n  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"
FILES = sorted((ROOT / "experiments").glob("*.toml"))
SEEDS = (7, 8, 9)
ERRORS = st.lists(st.floats(0.1, 100), min_size=2, max_size=6)


# -- run files and sweeps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_run_file_is_valid(path):
    chosen(RunFile.read(path).method, str(path))


def test_every_run_file_of_p0_belongs_to_a_sweep():
    sweeps = [*SWEEPS.values(), *lfl.SWEEPS.values()]
    assert {path.stem for path in FILES if path.stem.startswith("p0-")} <= {each.file for each in sweeps}


@pytest.mark.parametrize("sweeps", [SWEEPS, lfl.SWEEPS], ids=["p0", "lfl"])
def test_every_point_of_a_sweep_is_valid_and_a_run_of_its_own(sweeps):
    for name, of in sweeps.items():
        for data in of.data:
            points = list(of.points(data, [7]))
            assert len({sweep.key(row_of(name, data, variant, file)) for variant, file in points}) == len(points)
            for _, file in points:
                chosen(file.method)


def row_of(name, data, variant, file):
    return {"sweep": name, "data": data, "variant": variant, **sweep.described(file)}


def test_a_sweep_goes_on_where_it_stopped(tmp_path, monkeypatch):
    table, runs = tmp_path / "p0.csv", []

    def measured(file):
        if len(runs) == 4:
            raise KeyboardInterrupt
        runs.append(file)
        return {"mse": "1.0", "mse_shared": "", "seconds": "0.1"}

    monkeypatch.setattr(sweep, "measured", measured)
    arguments = "noise", SWEEPS["noise"], "ml-1m", [7], table
    with pytest.raises(KeyboardInterrupt):
        sweep.run_sweep(*arguments)
    assert len(sweep.read(table)) == 4
    monkeypatch.setattr(sweep, "measured", lambda file: runs.append(file) or {"mse": "1.0", "seconds": "0.1"})
    sweep.run_sweep(*arguments)
    sweep.run_sweep(*arguments)
    points = list(SWEEPS["noise"].points("ml-1m", [7]))
    assert len(runs) == len(points) == len(sweep.read(table))
    assert {file.to_toml() for file in runs} == {file.to_toml() for _, file in points}


# -- statistics -------------------------------------------------------------------------------------------------


@given(ERRORS)
def test_a_cell_has_the_mean_and_the_sample_standard_deviation(values):
    cell = Cell({str(seed): value for seed, value in enumerate(values)})
    assert (cell.n, cell.mean) == (len(values), pytest.approx(np.mean(values)))
    assert cell.sd == pytest.approx(np.std(values, ddof=1), abs=1e-9)


def test_a_cell_says_what_is_missing():
    assert Cell({}).written(3) == "not run"
    assert Cell({"7": 0.9}).written(1) == "0.900"
    assert Cell({"7": 0.9, "8": 0.7}).written(3) == "0.800 ± 0.141 (n = 2)"
    assert Cell({"7": 25.0, "8": math.nan}).written(1) == "25.00 (1 diverged)"
    assert said_n([Cell({"7": 1.0, "10": 1.0}), Cell({"7": 1.0}), Cell({})]) == "n = 1 to 2 (seeds 7, 10)"
    assert usual_n([Cell({"7": 1.0}), Cell({"7": 1.0, "8": 1.0}), Cell({})]) == 2


def test_before_fine_tuning_is_the_only_error_of_a_method_that_has_no_such_stage():
    common = {"sweep": "synsgd", "data": "ml-1m", "seed": "7", "epsilon": "0.5"}
    own = common | {"variant": "sgdmf", "mse": "0.8", "mse_shared": "1.1"}
    floor = common | {"variant": "bias", "mse": "0.9", "mse_shared": ""}
    results = Results([own, floor])
    found = [
        results.cell("synsgd", "ml-1m", what, variant=v, epsilon=0.5).mean
        for what in (BEFORE, AFTER)
        for v in ("sgdmf", "bias")
    ]
    assert found == [1.1, 0.9, 0.8, 0.9]


def compared(lower, upper, alike=False):
    cells = [("x", Cell({str(seed): value for seed, value in enumerate(values)})) for values in (lower, upper)]
    return Ordering("claim", "ml-1m", "user", "", *cells, alike)


@pytest.mark.parametrize(
    ("lower", "upper", "verdict"),
    [
        ([1.0, 2.0, 3.0], [1.1, 2.11, 3.09], "holds"),  # paired: seeds vary far more than methods
        ([1.1, 2.11, 3.09], [1.0, 2.0, 3.0], "reversed"),
        ([1.0, 2.0, 3.0], [1.3, 1.9, 3.1], "no difference"),
        ([1.0, 1.0, 1.0], [1.0, 1.0, 1.0], "no difference"),
        ([1.0], [2.0], "one seed"),
        ([], [2.0], "not run"),
        ([1.0, math.nan], [2.0, 2.0], "diverged"),
    ],
)
def test_a_verdict_goes_by_the_differences_seed_by_seed(lower, upper, verdict):
    assert compared(lower, upper).verdict == verdict


# -- figures and tables -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows():
    """Every run of every sweep on one data set: below each other in the order of the variants, falling with ε."""
    made = []
    for name, of in SWEEPS.items():
        order = {variant: place for place, variant in enumerate(of.variants)}
        for variant, file in of.points("ml-1m", [7]):
            row = row_of(name, "ml-1m", variant, file)
            error = 0.8 + 0.1 * order[variant] + 0.2 / float(row["epsilon"] or 8)
            shared = f"{error + 0.3:.5f}" if row["setting"] == "user" and variant != "bias" else ""
            noise = {"sigma": "79.067", "signal_to_noise": "0.000431", "true_epsilon": "0.4883"}
            for seed in SEEDS:
                own = {"seed": str(seed), "mse": f"{error + 0.01 * seed:.5f}", "mse_shared": shared}
                made.append(dict.fromkeys(sweep.COLUMNS, "") | row | noise | own)
    return made


@pytest.fixture(scope="module")
def results(rows):
    return Results(rows)


@pytest.mark.parametrize("name", figures.FIGURES)
def test_a_figure_is_well_formed_and_draws_every_line_and_the_floor(name, results, tmp_path):
    (path,) = (path for path in figures.write_figures(results, tmp_path) if path.stem == name)
    root = ET.parse(path).getroot()
    words = [each.text for each in root.iter(f"{SVG}text")]
    lines = {line.name for row in figures.rows_of(name, results) for panel in row.panels for line in panel.lines}
    assert {"bias (the floor)", "MovieLens 1M", "test MSE"} <= {*words, *(word.split(",")[0] for word in words)}
    assert lines - {"bias"} <= set(words)
    assert any("n = 3 (seeds 7, 8, 9)" in word for word in words)
    assert "nan" not in path.read_text()
    width, height = (float(root.get(side)) for side in ("width", "height"))
    for mark in root.iter(f"{SVG}circle"):
        assert 0 < float(mark.get("cx")) < width
        assert 0 < float(mark.get("cy")) < height


@given(st.lists(st.floats(0.01, 500), min_size=1, max_size=8))
def test_an_axis_holds_all_its_values_and_does_not_blow_up_what_is_alike(values):
    cells = [Cell({"7": value}) for value in values]
    axis, ticks, write, logarithmic = panels.scale(cells, 0.0, 1.0)
    low, high = (10**axis.low, 10**axis.high) if logarithmic else (axis.low, axis.high)
    assert low <= min(values) <= max(values) <= high
    assert high - low >= 0.0199 * min(values)
    assert len({write(tick) for tick in ticks}) == len(ticks) >= 2


def page_and_table(folder, rows):
    """Copies of the pages, and a table of these rows."""
    page, table = folder / "p0.md", folder / "p0.csv"
    (folder / "p0").mkdir()
    page.write_text((ROOT / "docs/results/p0.md").read_text())
    (folder / "p0/orderings.md").write_text((ROOT / "docs/results/p0/orderings.md").read_text())
    for row in rows:
        sweep.append(table, row)
    return page, ["--table", str(table), "--page", str(page)]


def around(text):
    """A page without its tables."""
    return re.sub(r"(?s)(<!-- table: [\w-]+ -->).*?(<!-- end -->)", r"\1\2", text)


def written(page):
    return {path.name: path.read_text() for path in (page, *page.with_suffix("").iterdir())}


def test_tables_come_between_their_marks_and_a_second_time_changes_nothing(rows, tmp_path):
    page, arguments = page_and_table(tmp_path, rows)
    before = page.read_text()
    figures.main(arguments)
    first = written(page)
    figures.main(arguments)
    assert written(page) == first
    assert around(first["p0.md"]) == around(before)
    assert "| per rating | 0.5 | 1.280 ± 0.010 |" in first["p0.md"]  # 0.8 + 0.2/0.5 + 0.08
    assert "**Jester:** not run." in first["p0.md"]
    assert "| 1 | 79.07 | 79.07 | 0.00043 | 0.00043 | 0.49 |" in first["p0.md"]


def test_what_was_not_run_is_said_to_be_so(tmp_path, rows):
    few = [row for row in rows if row["sweep"] == "clipping" and row["variant"] != "embedding"]
    page, arguments = page_and_table(tmp_path, few)
    figures.main(arguments)
    found = written(page)
    assert "| per user | 8 | not run | 1.0" in found["p0.md"]
    assert "Not run." in found["parties.svg"]
    assert "Not run: embedding clipping below" in found["orderings.md"]
    for name in figures.FIGURES:
        ET.fromstring(found[f"{name}.svg"])


def test_the_pages_ask_for_every_table_and_figure_there_is():
    pages = [(ROOT / "docs/results" / name).read_text() for name in ("p0.md", "p0/orderings.md")]
    assert set(re.findall(r"<!-- table: ([\w-]+) -->", "".join(pages))) == set(figures.all_tables(Results([])))
    assert set(re.findall(r"\(p0/([\w-]+)\.svg\)", pages[0])) == set(figures.FIGURES)
    assert all(page.count("<!-- table:") == page.count("<!-- end -->") for page in pages)


def test_the_page_of_secure_sums_has_every_table_and_figure_and_is_as_its_runs_make_it(tmp_path):
    page, table = (ROOT / "docs/results" / f"lfl.{kind}" for kind in ("md", "csv"))
    text, copy = page.read_text(), tmp_path / "lfl.md"
    assert set(re.findall(r"<!-- table: ([\w-]+) -->", text)) == set(lfl.all_tables(Results([])))
    assert set(re.findall(r"\(lfl/([\w-]+)\.svg\)", text)) == set(lfl.FIGURES)
    copy.write_text(text)
    lfl.write_page(Results.read(table), copy)
    assert copy.read_text() == text
    for name in lfl.FIGURES:
        drawn = (tmp_path / "lfl" / f"{name}.svg").read_text()
        ET.fromstring(drawn)
        assert drawn == (ROOT / "docs/results/lfl" / f"{name}.svg").read_text()


def test_every_claim_finds_its_runs(results):
    """A comparison that names a variant or column wrongly would say "not run" for ever."""
    found = [each for each in orderings(results) if each.data == "ml-1m"]
    assert {each.claim for each in found if each.verdict == "not run"} == set()
    assert all(len(each.differences) == 3 for each in found)
