"""What a run ends with on a terminal: whose metrics they are, or that there are none."""

import io

import pytest
from rich.console import Console

from tacit.cli.display import print_summary

SUMMARY = {
    "run": "r",
    "method": "bias",
    "setting": "horizontal",
    "metrics": {"mse": 0.9},
    "intervals": {},
    "guarantee": None,
    "rounds": 1,
    "bytes_up": 10,
    "bytes_down": 20,
    "seconds": 0.1,
}


def shown(**changes) -> str:
    console = Console(file=io.StringIO(), width=150)
    print_summary({**SUMMARY, **changes}, console)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"metrics_of": "1 of 3 sites"}, "Metrics are of 1 of 3 sites"),
        ({"metrics": {}}, "Metrics stayed at the sites"),
        ({"void": 2}, "Void because too few parties stayed: 2 sums"),
    ],
)
def test_what_is_special_about_a_run_is_said(changes, words):
    assert words in shown(**changes)
    assert words not in shown()
