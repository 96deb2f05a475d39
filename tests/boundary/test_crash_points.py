"""A crash at every point where something is written down, before it and after it: resuming ends the same way."""

import pytest

from tacit.boundary.ledger import Ledger
from tacit.config import RunFile
from tacit.engine.call_log import CallLog
from tacit.errors import TamperingFound
from tacit.experiment import run

FILE = RunFile.model_validate(
    {
        "data": {"source": "demo", "users": 120, "items": 30, "ratings": 1500},
        "partition": {"into": 3},
        "method": {"name": "bias"},
        "privacy": {"epsilon": 2.0, "delta": 1e-6},
    }
)


class Crash(BaseException):
    """The power fails."""


def crash_at(monkeypatch, owner, method, number, after):
    """Make the number-th call of a method crash, before or after its work."""
    real, calls = getattr(owner, method), iter(range(1_000_000))

    def failing(self, *args, **kwargs):
        now = next(calls) == number
        if now and not after:
            raise Crash
        result = real(self, *args, **kwargs)
        if now:
            raise Crash
        return result

    monkeypatch.setattr(owner, method, failing)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    return run(FILE, folder), spent(folder)


def spent(folder):
    """What every party's ledger says it released, in order."""
    found = {}
    for party in ("party-1", "party-2", "party-3"):
        ledger = Ledger(folder / "ledger" / f"{party}.sqlite", party)
        ledger.verify()
        found[party] = [(row.step, row.event, row.payload) for row in ledger.rows()]
        ledger.close()
    return found


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("owner", "method", "number"),
    [(Ledger, "record", n) for n in range(6)] + [(CallLog, "keep", n) for n in range(2)],
    ids=lambda x: x.__name__ if isinstance(x, type) else str(x),
)
def test_a_crash_anywhere_is_resumed_to_the_same_end(tmp_path, monkeypatch, whole, owner, method, number, after):
    with monkeypatch.context() as broken:
        crash_at(broken, owner, method, number, after)
        with pytest.raises(Crash):
            run(FILE, tmp_path / "run")
    assert not (tmp_path / "run" / "summary.json").exists()
    summary = run(FILE, tmp_path / "run")
    expected, releases = whole
    assert summary["digest"] == expected["digest"]
    assert summary["guarantee"] == expected["guarantee"]
    assert summary["metrics"] == expected["metrics"]
    assert spent(tmp_path / "run") == releases


def test_a_ledger_that_forgets_what_left_is_noticed(tmp_path, monkeypatch):
    """Planted: a record that is undone, as if it had been written after the bytes left and lost in a crash."""
    real = Ledger.record

    def forgetful(self, **kwargs):
        row = real(self, **kwargs)
        self._database.execute("delete from releases where number = ?", (row.number,))
        return row

    monkeypatch.setattr(Ledger, "record", forgetful)
    with pytest.raises(TamperingFound, match="does not go on"):
        run(FILE, tmp_path / "run")
