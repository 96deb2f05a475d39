"""Sites that contract tests keep up: their coordinator rests while other tests have one; all end with the session."""

from pathlib import Path

import pytest

from tacit.testing import apart

#: Tests that make coordinators of their own in the test process, or count its threads.
OTHERS = {Path(__file__).parent / room for room in ("deploy", "e2e", "engine")}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if OTHERS & set(item.path.parents):
        apart.rest()


def pytest_sessionfinish():
    apart.stop()
