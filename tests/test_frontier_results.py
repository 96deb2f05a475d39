"""The tables of docs/results/frontier.md: valid sweeps, and runs that become rows and tables."""

import json
import sys
from pathlib import Path

import pytest

from tacit.cli.frontier import read_sweep
from tacit.methods import find

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # as `python -m experiments.…` has it

from experiments import frontier  # noqa: E402

SWEEPS = sorted((ROOT / "experiments" / "frontier").glob("*.toml"))


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_every_sweep_is_valid_and_names_methods_that_exist(path):
    _base, sweep = read_sweep(path)
    names = [options if isinstance(options, str) else options["name"] for options in (*sweep.methods, *sweep.levels)]
    assert [find(name).name for name in names] == names
    assert len(set(sweep.seeds)) == len(sweep.seeds)


def run(folder, name, mse, **more):
    place = folder / "tiny" / name
    place.mkdir(parents=True)
    summary = {"metrics": {"mse": mse, **more}, "bytes_up": 10, "seconds": 1.5}
    (place / "summary.json").write_text(json.dumps(summary))


def test_runs_become_a_table_of_means_and_deviations(tmp_path):
    run(tmp_path, "bias-1.0-7", 0.9)
    run(tmp_path, "auto-1.0-7", 0.5)
    run(tmp_path, "auto-1.0-8", 0.7)
    run(tmp_path, "auto-objective-=-ranking--0.5-7", 0.8, **{"hr_full@10": 0.25})
    run(tmp_path, "central-none-7", 0.4)
    made = frontier.tables([dict.fromkeys(frontier.NUMBERS, "") | row for row in frontier.collected(tmp_path)])
    assert made["tiny-mse"].splitlines() == [
        "| MSE | ε = 0.5 | ε = 1 | no privacy |",
        "|---|---|---|---|",
        "| `auto` |  | 0.6000 ± 0.1414 |  |",
        "| `auto, objective = ranking` | 0.8000 (n = 1) |  |  |",
        "| `bias` |  | 0.9000 (n = 1) |  |",
        "| `central` |  |  | 0.4000 (n = 1) |",
    ]
    assert "0.2500" in made["tiny-hr-full-10"]


def test_rows_are_kept_and_a_new_run_replaces_its_own(tmp_path):
    table = tmp_path / "frontier.csv"
    for mse in (0.9, 0.8):
        run(tmp_path / f"{mse}", "bias-1.0-7", mse)
        run(tmp_path / f"{mse}", f"bias-1.0-{round(10 * mse)}", 0.7)
        rows = frontier.read(table) | {
            tuple(row[key] for key in frontier.KEYS): row for row in frontier.collected(tmp_path / f"{mse}")
        }
        frontier.write(table, rows)
    found = {row["seed"]: row["mse"] for row in frontier.read(table).values()}
    assert found == {"7": "0.8", "8": "0.7", "9": "0.7"}
