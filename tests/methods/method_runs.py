"""What tests of whole runs share: a small run file, and the rows of ledgers that are found whole."""

from contextlib import closing
from pathlib import Path

from tacit.boundary.ledger import Ledger, Row, ledgers_in
from tacit.config import RunFile
from tacit.methods import chosen
from tacit.prepare.plan import Plan
from tacit.prepare.run_file import plan

DATA = {"source": "demo", "users": 400, "items": 60, "ratings": 8000}
BASE = {
    "data": DATA,
    "partition": {"into": 4},
    "method": {"name": "bias"},
    "privacy": {"epsilon": 4.0, "delta": 1e-6},
    "evaluate": {"floor": False},
}


def run_file(**sections) -> RunFile:
    """A private run of `bias`; a section that is given takes the place of the one here."""
    return RunFile.model_validate({**BASE, **sections})


def plan_of(file: RunFile) -> Plan:
    return plan(file, *chosen(file.method))


def rows_of(folder: Path) -> dict[str, list[Row]]:
    """By party, the rows of its ledger, once it is found whole."""
    found = {}
    for path in ledgers_in(folder):
        with closing(Ledger.open(path)) as ledger:
            ledger.verify()
            found[ledger.party] = ledger.rows()
    return found
