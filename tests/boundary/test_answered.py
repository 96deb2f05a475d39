"""A ledger knows from memory which requests are new, and notices what others wrote."""

from pathlib import Path

import pytest

from tacit.boundary.events import Gaussian
from tacit.boundary.ledger import Ledger


def recorded(ledger, number):
    ledger.record(
        run="run",
        round=number,
        step="improve",
        attempt=0,
        kind="chain",
        request=f"request {number}",
        event=Gaussian(3.0),
        body=b"body",
        sealed=False,
        contributors=1,
        present=None,
        state=b"state",
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "party-1.sqlite"


def test_a_request_is_new_until_it_is_answered(path):
    ledger = Ledger(path, "party-1")
    for number in (1, 2):
        assert ledger.answered(f"request {number}") is None
        assert not ledger.answered_otherwise("run", number, "improve", 0, "another")
        recorded(ledger, number)
        assert ledger.answered(f"request {number}")[0].round == number
        assert ledger.answered_otherwise("run", number, "improve", 0, "another")
        assert not ledger.answered_otherwise("run", number, "improve", 0, f"request {number}")
        assert not ledger.answered_otherwise("another run", number, "improve", 0, "another")


def test_what_another_connection_wrote_is_known(path):
    one, other = Ledger(path, "party-1"), Ledger(path, "party-1")
    assert one.answered("request 1") is None
    recorded(other, 1)
    assert one.answered("request 1")[1] == b"body"
    recorded(one, 2)
    assert other.answered_otherwise("run", 2, "improve", 0, "another")


def test_what_was_undone_was_not_answered(path):
    ledger = Ledger(path, "party-1")
    recorded(ledger, 1)

    def refuse():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        ledger.record(
            run="run",
            round=2,
            step="improve",
            attempt=0,
            kind="chain",
            request="request 2",
            event=Gaussian(3.0),
            body=b"",
            sealed=False,
            contributors=1,
            present=None,
            state=b"",
            admit=refuse,
        )
    assert ledger.answered("request 2") is None
    assert ledger.written == 1


def test_a_ledger_that_is_only_read_knows_its_requests(path):
    ledger = Ledger(path, "party-1")
    recorded(ledger, 1)
    ledger.close()
    reader = Ledger.open(path)
    assert reader.answered("request 1") is not None
    assert reader.answered("request 2") is None
    reader.close()
