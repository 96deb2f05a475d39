"""A tally says what reading every row again would say, whoever wrote the rows and whenever."""

import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.boundary.events import Gaussian, Laplace, NonPrivate, Public, SampledGaussian, merge
from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import Tally, together

EVENTS = [Gaussian(2.0), Gaussian(2.0, 3), SampledGaussian(1.5, 0.1, 10), Laplace(4.0), Public()]
OLD, NEW = "2020-01-01T00:00:00+00:00", datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def write(ledger, event, run="run-1", admit=None):
    number = len(ledger.rows()) + 1
    fixed = {"attempt": 0, "kind": "sum", "sealed": False, "contributors": 1, "present": None}
    varied = {"run": run, "round": number, "request": f"request {number}", "event": event, "admit": admit}
    return ledger.record(step="tell", body=b"body", state=b"state", **fixed, **varied)


def counted(ledger, mine, days=None):
    """The same from all rows."""
    rows = [row for row in ledger.rows() if (row.run == "run-1") == mine and (days is None or row.moment != OLD)]
    return merge(row.spent for row in rows)


def agrees(tally, ledger):
    return all(
        (tally.spent(days).mine if mine else tally.spent(days).earlier) == counted(ledger, mine, days)
        for mine in (True, False)
        for days in (None, 30.0)
    )


ROWS = st.lists(
    st.tuples(st.sampled_from(EVENTS), st.sampled_from(["run-1", "run-2"]), st.sampled_from([OLD, NEW]), st.booleans()),
    max_size=6,
)


@given(ROWS)
@settings(deadline=None, max_examples=25)
def test_it_is_the_sum_of_all_rows_after_every_row_and_writer(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("tally") / "party-1.sqlite"
    own, other = Ledger(path, "party-1"), Ledger(path, "party-1")
    tally = Tally(own, "run-1")
    assert agrees(tally, own)
    with pytest.MonkeyPatch.context() as patch:
        for event, run, moment, by_another in rows:
            patch.setattr("tacit.boundary.ledger.now", lambda moment=moment: moment)
            write(other if by_another else own, event, run)
            assert agrees(tally, own)
    own.close()
    other.close()


def test_what_another_connection_wrote_is_seen_before_the_last_word(tmp_path):
    own, other = (Ledger(tmp_path / "party-1.sqlite", "party-1") for _ in range(2))
    tally, seen = Tally(own, "run-1"), []
    assert tally.spent().earlier == ()
    write(other, Gaussian(2.0), "run-2")
    write(own, Gaussian(2.0), admit=lambda: seen.append(tally.spent().earlier))
    assert seen == [(Gaussian(2.0),)]


def test_a_tally_that_does_not_look_for_other_writers_is_found(tmp_path, monkeypatch):
    own, other = (Ledger(tmp_path / "party-1.sqlite", "party-1") for _ in range(2))
    write(own, Gaussian(2.0))
    tally = Tally(own, "run-1")
    tally.spent()
    other._database.execute("update releases set event = ?", ('{"count":7,"kind":"Gaussian","multiplier":2.0}',))
    assert tally.spent().mine == (Gaussian(2.0, 7),)
    monkeypatch.setattr(Ledger, "version", (0, 0))
    blind = Tally(own, "run-1")
    blind.spent()
    other._database.execute("update releases set event = ?", ('{"count":9,"kind":"Gaussian","multiplier":2.0}',))
    assert blind.spent().mine == (Gaussian(2.0, 7),)


def test_a_row_that_was_taken_back_is_not_counted(tmp_path):
    ledger = Ledger(tmp_path / "party-1.sqlite", "party-1")
    tally = Tally(ledger, "run-1")

    def refuse():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        write(ledger, Gaussian(2.0), admit=refuse)
    assert tally.spent().mine == ()
    write(ledger, Gaussian(2.0))
    assert tally.spent().mine == (Gaussian(2.0),)


def test_the_first_schedule_is_the_one_that_stands(tmp_path):
    own, other = (Ledger(tmp_path / "party-1.sqlite", "party-1") for _ in range(2))
    tally = Tally(own, "run-1")
    assert tally.spent().first == ()
    own.first_schedule([Gaussian(2.0, 5)])
    assert tally.spent().first == (Gaussian(2.0, 5),)
    other.first_schedule([Gaussian(3.0, 5)])
    assert tally.spent().first == (Gaussian(3.0, 5),)


def test_what_left_unprotected_stays_so():
    assert together((Gaussian(2.0),), (NonPrivate(),)) is None
    assert together(None, (Gaussian(2.0),)) is None
    assert together((Gaussian(2.0),), (Gaussian(2.0, 2),)) == (Gaussian(2.0, 3),)
