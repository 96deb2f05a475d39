"""A budget for a period trusts the site's clock, and refuses one that has gone back."""

from datetime import UTC, datetime, timedelta

import pytest
from stated import promise, step_terms

from tacit.boundary import ledger as ledgers
from tacit.boundary import tally
from tacit.boundary.clipped_sums import Clipped
from tacit.boundary.events import Gaussian
from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import Budget, Protection
from tacit.errors import PrivacyRefused

NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)
EVENT = Gaussian(10.0)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A ledger, and a function that asks at some hour after noon whether one more release is affordable."""
    ledger = Ledger(tmp_path / "party-1.sqlite", "party-1")

    def at(hours: float, days: float | None = 30.0, run: str = "run-2", record: bool = False) -> None:
        now = NOON + timedelta(hours=hours)
        monkeypatch.setattr(tally, "clock", lambda: now)
        monkeypatch.setattr(ledgers, "now", lambda: now.isoformat(timespec="seconds"))
        terms = promise(step_terms(Clipped(("x",), 1.0), 10.0, step="sum"), stated=0.6)
        Protection(terms, ledger, Budget(0.6, 1e-6, days), run).check_budget()
        if record:
            ledger.record(
                run=run,
                round=1,
                step="sum",
                attempt=0,
                kind="sum",
                request=run,
                event=EVENT,
                body=b"1",
                sealed=False,
                contributors=1,
                present=None,
                state=b"",
            )

    at(0, run="run-1", record=True)
    yield at
    ledger.close()


def test_a_clock_that_has_gone_back_is_refused(site):
    with pytest.raises(PrivacyRefused, match=r"clock says 2026-03-14 11:54 UTC .* last release is of 2026-03-14 12:00"):
        site(-0.1)
    with pytest.raises(PrivacyRefused, match="set the clock right"):
        site(-24 * 40)


def test_a_clock_that_is_kept_right_may_go_back_a_little(site):
    with pytest.raises(PrivacyRefused, match=r"its budget is 0\.6"):  # the release still counts
        site(-0.05)
    with pytest.raises(PrivacyRefused, match=r"its budget is 0\.6"):
        site(24 * 29)
    site(24 * 31)


def test_a_budget_for_the_lifetime_needs_no_clock(site):
    with pytest.raises(PrivacyRefused, match=r"its budget is 0\.6"):
        site(-24 * 40, days=None)
