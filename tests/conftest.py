"""Sites that contract tests keep up: their coordinator rests while other tests have one; all end with the session."""

from functools import cache
from pathlib import Path

import pytest
import typer.testing

from tacit.testing import apart

# The command line is made from its functions' signatures once, and not for every command that a test gives.
typer.testing._get_command = cache(typer.testing._get_command)

#: Tests that make coordinators of their own in the test process, or count its threads.
OTHERS = {Path(__file__).parent / room for room in ("deploy", "e2e", "engine")}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if OTHERS & set(item.path.parents):
        apart.rest()


def pytest_sessionfinish():
    apart.stop()
