"""The benchmark of deployed rounds measures every way, with sites that end."""

from benchmarks.common.fresh import call

from benchmarks import deploy


def test_a_round_is_timed_on_every_way_and_the_sites_end():
    took = call("deploy", "rounds", 2, 10, 2)
    assert {name: len(times) for name, times in took.items()} == {
        "engine": 2,
        "cells": 2,
        "sockets": 2,
        "in process": 2,
    }
    assert all(time > 0 for times in took.values() for time in times)
    rows = deploy.of_rounds("40 bytes", took, most=60.0)
    assert rows[0].target.endswith("met")
    assert len({row.beside for row in rows}) == 4
