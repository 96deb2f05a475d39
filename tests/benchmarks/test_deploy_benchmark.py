"""The deployment benchmark measures what it says, at small sizes; what it calls a leak is one."""

from pathlib import Path

import pytest

from benchmarks import deploy

pytest.importorskip("nvflare")


def standing(memory=100.0, files=10, threads=5):
    return {"memory": memory, "files": files, "threads": threads}


def found(last, processes=(1, 1)):
    """Two processes after round 2, and what the second of them holds after the last."""
    return {"processes": list(processes), "held": {"2": [standing(), standing()], "20": [standing(), last]}}


def test_nothing_that_grew_is_no_leak():
    assert deploy.leaks(found(standing())) == []
    assert "leak: none" in deploy.of_load(found(standing()), 1, 20)[0].what


@pytest.mark.parametrize("what", ["memory", "files", "threads"])
def test_what_grew_is_named_with_whose_it_is(what):
    grown = found(standing(**{what: 1000}))
    (told,) = deploy.leaks(grown)
    assert told.startswith(f"{what} of site 1")
    assert "leak: none" not in deploy.of_load(grown, 1, 20)[0].what


def test_a_process_that_stays_is_a_leak():
    assert deploy.leaks(found(standing(), processes=(1, 2))) == ["processes: 1 → 2"]


def test_the_parts_of_a_start_add_up_to_it():
    times = dict(zip(deploy._STEPS, (1.0, 2.0, 2.5, 4.0, 4.5), strict=True))
    whole, *parts = deploy.of_starts([times], [1.5])
    assert sum(part.value for part in parts) == pytest.approx(whole.value) == 4.5


def test_the_functions_of_a_start_exist():
    found = deploy.functions_of_a_start()
    assert len(found) == len(deploy._STEPS) + 1
    assert all(callable(getattr(owner, name)) for owner, name in found)


def test_every_way_of_a_round_brings_back_what_travels_in_parts():
    took = deploy.rounds(2, 1_500_000, 1)
    assert {way: len(seconds) for way, seconds in took.items()} == {
        "engine": 1,
        "cells": 1,
        "sockets": 1,
        "in process": 1,
    }


def test_run_files_are_valid_and_read_the_same_as_text(tmp_path: Path):
    from benchmarks.private import as_toml

    from tacit.config import RunFile

    tables = deploy.tables(3, 5, "secagg")
    (tmp_path / "run.toml").write_text(as_toml(tables))
    assert RunFile.read(tmp_path / "run.toml", [], None) == RunFile.model_validate(tables)


def test_medians_count_and_the_spread_is_told():
    row = deploy.spread("a", [1.0, 9.0, 2.0], "b", [4.0], most=3.0)
    assert (row.value, row.ratio, row.target) == (2.0, 0.5, "≤ 3 s: met")
    assert "(1 s … 9 s)" in row.what
