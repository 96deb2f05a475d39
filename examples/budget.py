"""A party's budget over several runs: what each adds, and where the party refuses.

python examples/budget.py
"""

import tempfile
from pathlib import Path

from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import total_epsilon
from tacit.config import RunFile
from tacit.errors import PrivacyRefused
from tacit.experiment import run

folder = Path(tempfile.mkdtemp())
wanted = {
    "data": {"source": "demo", "users": 300},
    "partition": {"into": 3},
    "privacy": {"epsilon": 1.0, "delta": 1e-6, "ledger": str(folder / "ledgers"), "budget": 2.0},
}

for number in range(1, 6):
    # Somebody who tries one value after another on the same people: each try is a release, and costs.
    file = RunFile.model_validate({"method": {"name": "bias", "shrinkage": number}, **wanted})
    try:
        summary = run(file, folder / f"run-{number}")
    except PrivacyRefused as refusal:
        print(f"run {number}: {refusal}")
        break
    ledger = Ledger.open(folder / "ledgers" / "party-1.sqlite")
    spent = total_epsilon(ledger.rows(), 1e-6)
    ledger.close()
    print(f"run {number}: ε {summary['guarantee']['epsilon']:.2f} by itself, party-1 has reached {spent:.3f} of 2")

print(f"Ledgers: {folder / 'ledgers'}")
