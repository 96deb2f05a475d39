"""Private runs record everything durably; here processes fail and power does not, so databases need not wait."""

import sqlite3

import pytest

from tacit.boundary import sealed_database


class Quick(sqlite3.Connection):
    """A database that does not wait for the disk."""

    def execute(self, statement, *others):
        return super().execute("pragma synchronous = off" if "synchronous" in statement else statement, *others)


class Sqlite:
    """The sqlite3 module, but for such connections."""

    def __getattr__(self, name):
        return getattr(sqlite3, name)

    def connect(self, *args, **kwargs):
        return sqlite3.connect(*args, factory=Quick, **kwargs)


@pytest.fixture(autouse=True, scope="module")
def _quick_databases():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealed_database, "sqlite3", Sqlite())
        yield
