"""A kill at every write of a run, and of a site: what is left is resumed to the same end, and is no tampering."""

import json
from contextlib import closing, suppress
from pathlib import Path

import pytest
from killpoints import states_of

from tacit.boundary.ledger import Ledger, ledgers_in
from tacit.cli.verified_ledgers import verified
from tacit.config import RunFile
from tacit.errors import UsageError
from tacit.experiment import run

PUBLIC = {
    "data": {"source": "demo", "users": 40, "items": 12, "ratings": 300},
    "partition": {"into": 2},
    "method": {"name": "bias"},
    "evaluate": {"floor": False},
}
FILES = {
    "private": RunFile.model_validate({**PUBLIC, "privacy": {"epsilon": 2.0, "delta": 1e-6}}),
    "non-private": RunFile.model_validate(PUBLIC),
}


def spent(folder: Path) -> dict[str, list[tuple[int, str, str]]]:
    """What every ledger of a run holds, once it verifies."""
    found = {}
    for path in ledgers_in(folder):
        with closing(Ledger.open(path)) as ledger:
            ledger.verify()
            found[ledger.party] = [(row.round, row.step, row.event) for row in ledger.rows()]
    return found


@pytest.mark.parametrize("kind", FILES)
def test_a_run_that_was_killed_at_any_write_is_resumed_to_the_same_end(tmp_path, monkeypatch, kind):
    file, made = FILES[kind], tmp_path / "run"
    summaries = []
    states = states_of(made, tmp_path, monkeypatch, lambda: summaries.append(run(file, made)))
    assert len(states) > (40 if file.privacy else 20)
    whole, charged = summaries[0], spent(made)
    for state in states:
        with suppress(UsageError):  # no ledger yet; that is not tampering
            verified(state)
        before = spent(state)
        if not (state / "summary.json").exists():
            summary = run(file, state)
        else:
            summary = json.loads((state / "summary.json").read_text())
        assert (summary["digest"], summary["guarantee"]) == (whole["digest"], whole["guarantee"])
        assert summary["metrics"] == whole["metrics"]
        after = spent(state)
        assert after == charged
        assert all(after[party][: len(rows)] == rows for party, rows in before.items())  # nothing is forgotten
        verified(state)
