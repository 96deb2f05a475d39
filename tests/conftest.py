"""Tests of engines come first, so that one worker runs all of them with the same sites; then the sites end."""

import sys
from functools import cache
from importlib.util import find_spec

import pytest
import typer.testing

from tacit.testing import running_sites
from tacit.testing.agreement_contract import AgreementContract

# Arrow looks for this package whenever it makes a scalar; where it is not installed, it looks in vain every time.
if find_spec("dateutil") is None:
    sys.modules["dateutil"] = None

# The command line is made from its functions' signatures once, and not for every command that a test gives.
typer.testing._get_command = cache(typer.testing._get_command)


def speaks_to_sites(item) -> bool:
    """Only contract tests speak to the sites that are kept up; any other may make a coordinator of its own."""
    return issubclass(item.cls or object, AgreementContract)


def pytest_collection_modifyitems(items):
    """Workers begin with equal parts of the list and steal from its end: what is first stays with the first worker."""
    items.sort(key=lambda item: not speaks_to_sites(item))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if not speaks_to_sites(item):
        running_sites.stop()


def pytest_sessionfinish():
    running_sites.stop()
