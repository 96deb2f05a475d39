"""A ledger is held to the budget of a run that releases, and not to that of one that was refused."""

import json
from contextlib import closing, suppress

import tacit
from tacit.boundary.ledger import Ledger
from tacit.data.synthetic import demo
from tacit.errors import TacitError

PARTIES = tacit.partition(demo(users=40, items=12, ratings=300), into=1)


def test_a_run_that_is_refused_leaves_no_budget_behind(tmp_path):
    for epsilon, budget in ((0.9, 1.0), (0.8, 0.9)):
        privacy = tacit.DP(epsilon, 1e-6, ledger=str(tmp_path / "kept"), budget=budget, on_refusal="stop")
        with suppress(TacitError):
            tacit.Bias(privacy=privacy).fit(PARTIES)
    with closing(Ledger.open(tmp_path / "kept" / "party-1.sqlite")) as ledger:
        assert len({row.run for row in ledger.rows() if row.kind == "sum"}) == 1
        assert json.loads(ledger._about()["budgets"]) == [[1.0, 1e-6, None]]
