"""One notion of spent: what one unit's releases cost over all parties that it is in, in every ledger and reading."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from method_runs import plan_of, rows_of, run_file

from tacit.boundary import Gate
from tacit.boundary.account import epsilon
from tacit.boundary.events import Gaussian
from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import Budget, Protection, total_epsilon
from tacit.config import AggregationSection
from tacit.data.public_facts import public_facts
from tacit.data.synthetic import demo
from tacit.errors import PrivacyRefused
from tacit.federation import Facts
from tacit.guarantee import Relation
from tacit.methods import chosen
from tacit.methods.bias import BIAS
from tacit.partition import Setting, partition
from tacit.prepare import plan as plans
from tacit.prepare.plan import plan_run
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.simulate import train
from tacit.prepare.simulated_ledgers import Records

SILOS, DELTA = 4, 1e-6
RATINGS = demo(users=40, items=24, ratings=400)
PARTIES = partition(RATINGS, into=SILOS, by="item")
DATA = {"source": "demo", "users": 40, "items": 24, "ratings": 400}


def planned(method: dict | None = None, unit: str = "user"):
    privacy, divided = {"epsilon": 1.0, "delta": DELTA, "unit": unit}, {"by": "item", "into": SILOS}
    file = run_file(data=DATA, partition=divided, method=method or {"name": "bias"}, privacy=privacy)
    return file, chosen(file.method), plan_of(file)


def runs(folder: Path, budget: float, count: int, **asked) -> list[PreparedRun]:
    """So many runs that keep one folder of ledgers, each with its own name and seed, and end at a refusal."""
    file, (method, _parameters), made = planned(**asked)
    privacy = file.privacy.model_copy(update={"on_refusal": "stop"})
    held = []
    for number in range(1, count + 1):
        facts = Facts.of(PARTIES, number)
        held.append(PreparedRun.by_plan(method, facts, made, privacy=privacy, run=f"run-{number}"))
        train(held[-1], PARTIES, records=Records(folder, Budget(budget, DELTA)))
    return held


def rows_in(folder: Path) -> dict[str, list]:
    """By party, the rows that cost something."""
    return {party: [row for row in rows if hasattr(row.spent, "count")] for party, rows in rows_of(folder).items()}


def true_epsilon(made, times: int) -> float:
    """What one user's releases cost: every answer of every silo, one after another."""
    specs = [terms.spec for terms in made.terms.steps.values()]
    answers = [Gaussian(made.multiplier, times * spec.releases * spec.answers * SILOS) for spec in specs]
    return float(epsilon(answers, DELTA, Relation.ZERO_OUT))


def test_a_budget_of_one_run_holds_one_run(tmp_path):
    with pytest.raises(PrivacyRefused, match="its budget is 1") as refused:
        runs(tmp_path, 1.0, 2)
    assert refused.value.exit_code == 4
    assert {row.run for rows in rows_in(tmp_path).values() for row in rows} == {"run-1"}


def test_what_is_read_is_the_joint_epsilon(tmp_path):
    held = runs(tmp_path, 5.0, 3)
    made, ledgers = held[-1].plan, rows_in(tmp_path)
    true = true_epsilon(made, 3)
    assert made.terms.guarantee.epsilon == pytest.approx(true_epsilon(made, 1), rel=1e-9)
    assert list(made.terms.events) == [Gaussian(made.multiplier, SILOS)]
    assert len(ledgers) == SILOS
    for rows in ledgers.values():
        assert [row.spent.count for row in rows] == [SILOS] * 3
        assert true <= total_epsilon(rows, DELTA) <= 1.1 * true
    (note,) = Records(tmp_path, Budget(5.0, DELTA)).lifetime_notes(held[-1])
    (said,) = re.findall(r"ε = ([\d.]+)", note)
    assert true <= float(said) <= 1.1 * true + 0.01


def test_a_party_reads_and_foretells_the_joint_epsilon(tmp_path):
    (held,) = runs(tmp_path, 5.0, 1)
    ledger = Ledger(tmp_path / "party-2.sqlite", "party-2")
    people = [str(user) for user in PARTIES[1].ratings.user_ids.ids]
    protection = Protection(held.plan.terms, ledger, Budget(5.0, DELTA), "run-2", people)
    assert protection.reading() >= true_epsilon(held.plan, 1) * (1 - 1e-9)
    assert protection.would_reach() >= true_epsilon(held.plan, 2)
    ledger.close()


def test_a_plan_that_no_budget_holds_is_refused_by_its_joint_epsilon():
    file, _method, made = planned()
    with pytest.raises(PrivacyRefused, match=r"takes every party to ε = 1\.000"):
        made.check_budget(file.privacy.model_copy(update={"budget": 0.9}))


@pytest.mark.parametrize("name", ["sgdmf", "local-private"])
def test_chains_are_charged_over_all_parties_too(tmp_path, name):
    method = {"name": name, "factors": 2, "rounds": 2, "local_steps": 2, "sampling": 1.0}
    (held,) = runs(tmp_path, 1.0, 1, method=method)
    made = held.plan
    assert made.terms.guarantee.epsilon == pytest.approx(true_epsilon(made, 1), rel=1e-9)
    for rows in rows_in(tmp_path).values():
        reached = float(epsilon([row.spent for row in rows], DELTA, Relation.ZERO_OUT))
        assert reached == pytest.approx(made.terms.guarantee.epsilon, rel=1e-9)


def test_a_rating_is_in_one_party_and_charged_once(tmp_path):
    runs(tmp_path, 1.0, 1, unit="rating")
    assert {row.event for rows in rows_in(tmp_path).values() for row in rows} == {
        f'{{"count":1,"kind":"Gaussian","multiplier":{planned(unit="rating")[2].multiplier!r}}}'
    }


def test_planted_a_gate_that_charges_its_own_share_is_noticed(tmp_path, monkeypatch):
    real = Gate._admitted
    monkeypatch.setattr(Gate, "_admitted", lambda self, terms: replace(real(self, terms), count=1))
    with pytest.raises(AssertionError):
        test_what_is_read_is_the_joint_epsilon(tmp_path)


def test_planted_a_plan_of_own_shares_is_noticed(tmp_path, monkeypatch):
    real = plans.event_of
    monkeypatch.setattr(plans, "event_of", lambda query, z, count, *how: real(query, z, count // SILOS, *how))
    with pytest.raises((AssertionError, PrivacyRefused)):
        test_what_is_read_is_the_joint_epsilon(tmp_path)


def test_a_sealed_sum_over_parties_of_the_same_users_is_refused():
    """One noise, which a user in s parties moves s times as far: s events would understate that."""
    adds = replace(BIAS, sides={Setting.VERTICAL: BIAS.sides[Setting.HORIZONTAL]})
    file, (_method, parameters), _made = planned()
    public = public_facts(file.data, file.public)

    def under(name):
        section = AggregationSection(name=name)
        return plan_run(adds, parameters, Setting.VERTICAL, SILOS, public, file.privacy, section, seeded=True)

    for name in ("ideal", "secagg"):
        with pytest.raises(PrivacyRefused, match="several parties"):
            under(name)
    assert under("plain").terms.steps["contribute"].parties == SILOS


# -- several ledgers of one folder ----------------------------------------------------------------------------


def test_the_lifetime_is_that_of_the_ledger_that_spent_most(tmp_path):
    """One party took part in four runs and another in two, so their users spent different amounts."""
    _file, (method, _parameters), made = planned()
    for name, count in (("party-1", 4), ("party-2", 2)):
        ledger = Ledger(tmp_path / f"{name}.sqlite", name)
        for number in range(1, count + 1):
            protection = Protection(made.terms, ledger, Budget(9.0, DELTA), f"run-{number}")
            protection.admit("contribute")
            record(ledger, f"run-{number}", made.terms.steps["contribute"].event)
        ledger.close()
    run = PreparedRun.by_plan(method, Facts.of(PARTIES, 7), made, run="run-4")
    (note,) = Records(tmp_path, Budget(9.0, DELTA)).lifetime_notes(run)
    (said,) = re.findall(r"ε = ([\d.]+)", note)
    assert float(said) >= true_epsilon(made, 4) > 1.3 * true_epsilon(made, 2)


def record(ledger: Ledger, run: str, event) -> None:
    about = {"run": run, "round": 1, "step": "contribute", "attempt": 0, "kind": "chain", "request": f"of {run}"}
    ledger.record(**about, event=event, body=b"", sealed=False, contributors=1, present=None, state=b"")
