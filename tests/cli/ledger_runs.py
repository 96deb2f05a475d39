"""What tests of ledger commands share: the run file, and how a ledger is read, written and tampered with."""

import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path

from test_cli import tacit

from tacit.boundary.events import Gaussian
from tacit.boundary.ledger import Ledger, Row

RUN = """
[data]
source = "demo"
users = 200
items = 30
ratings = 2000
[partition]
into = 3
[method]
name = "bias"
[privacy]
epsilon = 2
delta = 1e-6
"""


def as_json(*words, cwd):
    return json.loads(tacit("ledger", *words, "--json", cwd=cwd).stdout)


def values(path: Path, query: str) -> list:
    """What a query finds in a ledger, which stays as it is."""
    with closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as database:
        return database.execute(query).fetchall()


def edit(path: Path, *statements: str) -> None:
    """Change a ledger behind its owner's back."""
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()


def record(ledger: Ledger, round: int, **changes) -> Row:
    sha = hashlib.sha256(f"{ledger.party} {round}".encode()).hexdigest()
    same = {"run": "r", "step": "s", "attempt": 0, "kind": "sum", "request": sha, "event": Gaussian(9.0)}
    same |= {"body": b"body", "sealed": False, "contributors": 1, "present": None, "state": b"state"}
    return ledger.record(round=round, **same | changes)
