"""Injected drop-outs are independent, of the stated rate, and never depend on order."""

import numpy as np

from tacit.data.synthetic import demo
from tacit.federation import Facts
from tacit.federation.dropout import Attendance
from tacit.partition import partition

DEVICES = Facts.of(partition(demo(users=4000, items=20, ratings=8000), by="device"), 7)
SILOS = Facts.of(partition(demo(users=40, items=20, ratings=400), into=5), 7)


def test_the_rate_is_the_stated_one():
    """n = 4,000 devices × 10 rounds; five standard deviations, a false alarm in about two million."""
    gone = np.mean([1 - np.mean(Attendance.draw(DEVICES, 0.3, t, 0).survivors("party-1")) for t in range(10)])
    assert abs(gone - 0.3) < 5 * np.sqrt(0.3 * 0.7 / 40_000)


def test_half_drop_out_before_they_hear():
    attendance = Attendance.draw(DEVICES, 0.4, 1, 0)
    silent = 1 - attendance.receivers("party-1", 4000) / 4000
    assert abs(silent - 0.2) < 5 * np.sqrt(0.2 * 0.8 / 4000)
    assert not np.any(attendance.arrives["party-1"] & ~attendance.receives["party-1"])


def test_who_drops_out_depends_on_round_and_exchange_and_nothing_else():
    def who(t, call):
        return Attendance.draw(DEVICES, 0.3, t, call).survivors("party-1").tolist()

    assert who(1, 0) == who(1, 0)
    assert who(1, 0) != who(2, 0)
    assert who(1, 0) != who(1, 1)


def test_silos_drop_out_one_by_one():
    rounds = [Attendance.draw(SILOS, 0.5, t, 0) for t in range(60)]
    there = np.array([[bool(a.survivors(m.name)[0]) for m in SILOS.roster] for a in rounds])
    assert 0.3 < there.mean() < 0.7
    assert (there.any(axis=0) & (~there).any(axis=0)).all()
    assert np.abs(np.corrcoef(there.T)[np.triu_indices(5, 1)]).max() < 0.6
