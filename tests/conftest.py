"""Sites that contract tests keep up: their coordinator rests while other tests have one; all end with the session."""

from functools import cache

import pytest
import typer.testing

from tacit.testing import running_sites
from tacit.testing.agreement_contract import AgreementContract

# The command line is made from its functions' signatures once, and not for every command that a test gives.
typer.testing._get_command = cache(typer.testing._get_command)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Only contract tests speak to the sites that are kept up; any other may make a coordinator of its own."""
    if not issubclass(item.cls or object, AgreementContract):
        running_sites.rest()


def pytest_sessionfinish():
    running_sites.stop()
