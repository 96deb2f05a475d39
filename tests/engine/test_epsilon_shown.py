"""The ε on the live line and in status.json: of what was charged, attempts and single steps included."""

from pathlib import Path

import numpy as np
import pytest

from tacit.boundary.account import epsilon
from tacit.boundary.events import Public
from tacit.boundary.ledger import Ledger, ledgers_in
from tacit.boundary.protection import Budget, total_epsilon
from tacit.config import RunFile
from tacit.data.synthetic import demo
from tacit.experiment import run
from tacit.federation import Facts, Transcript
from tacit.federation.dropout import Attendance
from tacit.federation.transcript import Entry
from tacit.guarantee import Relation
from tacit.partition import partition
from tacit.prepare.progress import progress_reporter
from tacit.prepare.run_file import prepared
from tacit.prepare.simulate import train
from tacit.prepare.simulated_ledgers import Records

SILOS = 5
DATA = {"source": "demo", "users": 40, "items": 12, "ratings": 300}
RATINGS = demo(users=40, items=12, ratings=300)
CHAIN = {"name": "sgdmf", "factors": 2, "rounds": 3, "local_steps": 2, "sampling": 1.0}
SUMS = {"name": "sgdmf", "factors": 2, "rounds": 2, "local_steps": 1, "sampling": 1.0, "fine_tuning": 0}


def held(folder, by: str, method: dict, **sections):
    """One run: as it was prepared, what was shown after each round, and what each ledger was charged with, by round."""
    table = {"data": DATA, "partition": {"by": by, "into": SILOS}, "method": method, **sections}
    file = RunFile.model_validate({"privacy": {"epsilon": 1.0, "delta": 1e-6}, **table})
    parties, shown = partition(RATINGS, by=by, into=SILOS), []
    run = prepared(file, Facts.of(parties, 7), run="run")
    trained = train(run, parties, records=Records(folder, Budget(1.0, 1e-6)), watch=shown.append)
    charged = []
    for path in ledgers_in(folder):
        ledger = Ledger.open(path)
        charged.append([(row.round, row.step, row.spent) for row in ledger.rows() if not isinstance(row.spent, Public)])
        ledger.close()
    return run, trained, [(glance.round, glance.epsilon) for glance in shown], charged


def check(folder, monkeypatch):
    """The second round is void once: all but two parties leave before they unmask."""
    honest, rounds = Attendance.over, []

    def lost(facts, dropout, round, call, exchanges):
        rounds.append(round)
        if rounds.count(2) != 1 or round != 2:
            return honest(facts, dropout, round, call, exchanges)
        gone = {member.name: np.array([place < 2]) for place, member in enumerate(facts.roster)}
        return [*[Attendance.full()] * (exchanges - 1), Attendance(gone, gone)]

    monkeypatch.setattr(Attendance, "over", lost)
    run, trained, shown, charged = held(folder, "user", SUMS, aggregation={"name": "secagg", "retries": 2})
    made = run.plan
    assert trained.void == 1
    assert [round for round, _epsilon in shown] == [1, 2]
    for rows in charged:
        assert len(rows) == 3  # two rounds, and one of them twice
        for round, reached in shown:
            now = [event for row, _step, event in rows if row <= round]
            assert reached >= epsilon(now, 1e-6, made.terms.relation) * (1 - 1e-9)
    assert shown[-1][1] < made.terms.guarantee.epsilon  # one retry was not needed


def test_after_a_retry_what_is_shown_covers_what_was_charged(tmp_path, monkeypatch):
    check(tmp_path, monkeypatch)


def test_planted_what_is_shown_by_round_is_noticed(tmp_path, monkeypatch):
    def by_round(self):
        rounds = {step: {e.round for e in self.entries if e.step == step} for step in {e.step for e in self.entries}}
        return {step: len(found) for step, found in rounds.items()}

    monkeypatch.setattr(Transcript, "requests_by_step", property(by_round))
    with pytest.raises(AssertionError):
        check(tmp_path, monkeypatch)


def test_a_step_that_comes_last_and_once_is_shown_once_it_was_made(tmp_path):
    run, trained, shown, charged = held(tmp_path, "item", CHAIN)
    made = run.plan
    for round, reached in shown:
        for rows in charged:
            now = [event for row, step, event in rows if row <= round and step == "improve"]
            assert reached == pytest.approx(epsilon(now, 1e-6, made.terms.relation), rel=1e-9)
    whole = epsilon([event for _round, _step, event in charged[0]], 1e-6, made.terms.relation)
    assert shown[-1][1] < made.spent(trained.transcript.requests_by_step) == pytest.approx(whole, rel=1e-9)
    assert made.spent(trained.transcript.requests_by_step) <= made.terms.guarantee.epsilon
    assert made.spent({}) == 0
    assert made.spent(dict.fromkeys(made.terms.releases, 999)) == made.terms.guarantee.epsilon  # all others are refused
    seen = []
    look = progress_reporter(run, seen.append)  # what a coordinator shows
    assert look(3, 3, trained.transcript) == seen[0].epsilon == made.spent(trained.transcript.requests_by_step)


def test_what_was_asked_is_what_the_party_that_was_asked_most_got():
    transcript = Transcript()
    names = list(Entry.__dataclass_fields__)
    for call, party in enumerate(("party-1", "party-2", "party-1")):
        values = dict.fromkeys(names, "") | {"call": call, "round": 1, "copies": 1, "bytes": 1}
        transcript.restore([Entry(**values | {"step": "improve", "party": party, "direction": "down", "status": "ok"})])
    assert transcript.requests_by_step["improve"] == 2


def twice(folder: Path, unit: str, method: dict) -> str:
    """The card of the second of two runs over one folder of ledgers."""
    for number in (7, 8):
        table = {
            "seed": number,
            "data": {"source": "demo", "users": 40, "items": 12, "ratings": 300},
            "partition": {"into": 1},
            "method": method,
            "privacy": {"epsilon": 1.0, "delta": 1e-6, "unit": unit, "budget": 6.0, "ledger": str(folder / "kept")},
            "evaluate": {"floor": False},
        }
        run(RunFile.model_validate(table), folder / f"run-{number}")
    return (folder / "run-8" / "card.md").read_text()


PRETRAINED = {"name": "sgdmf", "factors": 2, "rounds": 1, "local_steps": 1, "users": "pretrained", "sampling": 1.0}


@pytest.mark.parametrize(
    ("unit", "method", "relation"),
    [("user", {"name": "bias"}, Relation.ZERO_OUT), ("rating", PRETRAINED, Relation.REPLACE)],
    ids=["bias", "factors fitted at home"],
)
def test_the_card_says_the_lifetime_of_two_runs_under_the_relation_of_the_ledgers(tmp_path, unit, method, relation):
    card = twice(tmp_path, unit, method)
    ledger = Ledger.open(tmp_path / "kept" / "party-1.sqlite")
    reached = total_epsilon(ledger.rows(), 1e-6, relation)
    ledger.close()
    assert reached > 1.2
    assert f"all runs together: ε = {reached:.2f} at most" in card or f"ε = {reached + 0.005:.2f} at most" in card
