"""Who was asked most decides what is shown as spent, and ledgers of several runs are read under their own relation."""

from pathlib import Path

import pytest

from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import total_epsilon
from tacit.config import RunFile
from tacit.experiment import run
from tacit.federation.transcript import Entry, Transcript
from tacit.guarantee import Relation


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
