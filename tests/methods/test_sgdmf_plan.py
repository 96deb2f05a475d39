"""The plan of a private SGDMF run: known values, the paper's claim beside what holds, and what is refused and how."""

import json
import math
from contextlib import chdir
from pathlib import Path

import pytest
import tomli_w
from method_runs import rows_of, run_file
from sgdmf_conversations import CASES, DELTA, EPSILON, FINAL, LOCAL, ROUNDS, SILOS
from typer.testing import CliRunner

from tacit.aggregation.plain import Plain
from tacit.boundary.account import epsilon
from tacit.boundary.events import Gaussian, SampledGaussian
from tacit.cli import app
from tacit.config import RunFile
from tacit.data.public_facts import PublicFacts
from tacit.data.ratings import Scale
from tacit.errors import PrivacyRefused
from tacit.experiment import run
from tacit.guarantee import Relation, Unit
from tacit.methods.context import Context, Target
from tacit.methods.sgdmf import SGDMF
from tacit.methods.sgdmf.parameters import SGDMFParameters
from tacit.partition import Setting
from tacit.prepare.plan import Plan, make_plan

ZERO_OUT, HORIZONTAL, VERTICAL = Relation.ZERO_OUT, Setting.HORIZONTAL, Setting.VERTICAL
#: 2R^1.5 for the scale 1 … 5.
ONE = 2 * 4**1.5


ML_1M = PublicFacts(6040, 3883, Scale(1, 5), 1_000_209)


def planned(setting=HORIZONTAL, parties=10, parameters=None, unit="user", accounting="sound") -> Plan:
    """A plan at ML-1M's size; parameters left out are the paper's: T = 100, T' = 10, η = .01, θ = 10."""
    context = Context(ML_1M, setting, parties, Target(1.0, 1e-6, Unit(unit)))
    asked = SGDMFParameters.model_validate(parameters or {})
    return make_plan(SGDMF, asked, context, Plain(setting, parties), seeded=True, paper=accounting == "paper")


# -- known values -----------------------------------------------------------------------------------------------------


def test_the_noise_of_the_papers_schedule():
    """T·T' = 1000 steps at η = .01, ε = 1, δ = 1e-6: z = 1.56, on √10·2R^1.5."""
    plan = planned()
    assert plan.multiplier == pytest.approx(1.56269, rel=1e-4)
    assert plan.sigma()["improve"] == pytest.approx(1.56269 * math.sqrt(10) * ONE, rel=1e-4)
    spent = epsilon([SampledGaussian(plan.multiplier, 0.01, 1000)], 1e-6, ZERO_OUT)
    assert 0.999 < spent == plan.terms.guarantee.epsilon <= 1.0


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_plan_counts_every_answer(case):
    """The promise covers every answer that any run of these parameters makes of one unit, counted here."""
    plan = case.plan()
    kappa = FINAL if case.setting is Setting.VERTICAL else 0
    answers = (ROUNDS * LOCAL + kappa) * (SILOS if case.setting is Setting.VERTICAL and case.unit == "user" else 1)
    z = plan.multiplier
    event = Gaussian(z, answers) if case.sampling == 1 else SampledGaussian(z, case.sampling, answers)
    reached = float(epsilon([event], DELTA, Relation.REPLACE if case.replaced else Relation.ZERO_OUT))
    assert reached <= plan.terms.guarantee.epsilon * (1 + 1e-9) <= EPSILON * (1 + 1e-9)
    assert reached > 0.999 * EPSILON


@pytest.mark.parametrize(
    ("setting", "parties", "theta"),
    [(HORIZONTAL, 10, 10), (HORIZONTAL, 40, 10), (VERTICAL, 1, 10), (VERTICAL, 10, 5), (VERTICAL, 18, 2)],
)
def test_defaults_are_the_papers(setting, parties, theta):
    parameters = planned(setting, parties, {"sampling": 1.0}).parameters
    assert parameters.trim == theta
    assert (parameters.factors, parameters.rounds, parameters.local_steps) == (20, 100, 10)
    assert parameters.final_steps == (300 if setting is VERTICAL else None)
    context = Context(ML_1M, setting, parties, Target(1.0, 1e-6, Unit.USER))
    assert SGDMFParameters().resolved(context).eta == 0.01


# -- the paper's own formulas -----------------------------------------------------------------------------------------


def test_the_papers_formulas_and_what_holds():
    """ε = 1, T = 100, T' = 10, θ = 10: Proposition 3 makes σ = z(T')·θ·2R^1.5, of which 0.49 is true."""
    paper, sound = planned(accounting="paper"), planned()
    assert paper.terms.guarantee.claimed_epsilon == 1.0
    assert paper.terms.guarantee.epsilon == pytest.approx(0.488, abs=0.002)
    z = paper.sigma()["improve"] / (10 * ONE)
    assert epsilon([SampledGaussian(z, 0.01, 10)], 1e-6, ZERO_OUT) == pytest.approx(1.0, abs=1e-3)
    assert "the paper's formulas claim ε = 1" in str(paper.terms.guarantee)
    assert sound.terms.guarantee.claimed_epsilon is None
    # The corrected noise is smaller than the paper's, and than what the paper's Δ needs once all T·T' steps compose.
    assert sound.sigma()["improve"] == pytest.approx(79.07, abs=0.01)
    assert paper.sigma()["improve"] == pytest.approx(139.5, abs=0.1)
    assert sound.multiplier * 10 * ONE == pytest.approx(250.0, abs=0.1)


SHORT = {"rounds": 10, "local_steps": 1, "sampling": 1.0, "trim": 2}


def test_the_claim_can_lie_far_below_what_holds():
    """Many rounds of few steps and a small θ: ten answers where one is counted, and √2 in return."""
    plan = planned(parameters=SHORT, accounting="paper")
    claimed = planned(parameters={**SHORT, "rounds": 1, "trim": 1})
    z = plan.multiplier
    assert z == pytest.approx(math.sqrt(2) * claimed.multiplier, rel=1e-5)
    assert plan.terms.guarantee.epsilon == epsilon([Gaussian(z, 10)], 1e-6, ZERO_OUT) == pytest.approx(2.40, abs=0.01)


def tiny(method, **privacy) -> RunFile:
    return run_file(
        data={"source": "demo", "users": 30, "items": 12, "ratings": 200},
        partition={"into": 2},
        method={"name": "sgdmf", "factors": 2, **method},
        privacy={"epsilon": 1.0, "delta": 1e-6, "accounting": "paper", **privacy},
    )


def test_ledgers_charge_what_holds_and_the_summary_shows_both(tmp_path):
    summary = run(tiny(SHORT, budget=3.0), tmp_path / "above")
    true = summary["guarantee"]["epsilon"]
    assert (summary["guarantee"]["claimed_epsilon"], true) == (1.0, pytest.approx(2.40, abs=0.01))
    for rows in rows_of(tmp_path / "above").values():
        assert epsilon([row.spent for row in rows], 1e-6, ZERO_OUT) == pytest.approx(true)
    assert json.loads((tmp_path / "above" / "summary.json").read_text())["guarantee"] == summary["guarantee"]
    card = (tmp_path / "above" / "card.md").read_text()
    assert "2.40" in card
    assert "claim" in card


def test_a_claim_that_does_not_hold_is_refused(tmp_path):
    """A party's budget is the ε that was asked for; one sentence says what the run would cost."""
    with pytest.raises(PrivacyRefused, match=r"to ε = 2\.40\d at δ = 1e-06, and its budget is 1"):
        run(tiny(SHORT), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    below = run(tiny({**SHORT, "rounds": 2, "local_steps": 2, "trim": 10}), tmp_path / "below")
    assert below["guarantee"]["epsilon"] < 1.0 == below["guarantee"]["claimed_epsilon"]


# -- what is refused, before data is touched --------------------------------------------------------------------------

#: The data is not there: a run that gets as far as looking for it ends with exit code 3.
NOWHERE = {
    "data": {"source": "nowhere.csv"},
    "public": {"scale": [1, 5], "users": 5000, "catalogue": "items.csv"},
    "partition": {"into": 2},
    "method": {"name": "sgdmf", "rounds": 2, "local_steps": 2, "sampling": 1.0},
    "privacy": {"epsilon": 1.0, "delta": 1e-6, "unit": "user"},
}
PER_ITEM, PER_RATING, BY_DEVICE = {"by": "item"}, {"unit": "rating"}, {"by": "device", "into": None}

REFUSED = {
    "δ = 1/n": ({"privacy": {"delta": 1 / 5000}}, 2, "is not below 1/users"),
    "θ = 0": ({"method": {"trim": 0}}, 2, "trim = 0"),
    "θ = 1.5": ({"method": {"trim": 1.5}}, 2, "trim = 1.5"),
    "η = 0": ({"method": {"sampling": 0.0}}, 2, "sampling = 0.0"),
    "η > 1": ({"method": {"sampling": 1.5}}, 2, "sampling = 1.5"),
    "budget below one step": ({"privacy": {"budget": 0.01}}, 4, "budget"),
    "a claim above the budget": ({"privacy": {"accounting": "paper"}, "method": SHORT}, 4, "budget"),
    "noised users, per user": ({"method": {"users": "noised"}}, 4, 'users = "noised"'),
    "θ per rating": ({"partition": PER_ITEM, "privacy": PER_RATING, "method": {"trim": 3}}, 2, "the unit is a rating"),
    "θ per rating, noised": ({"privacy": PER_RATING, "method": {"trim": 3}}, 2, "the unit is a rating"),
    "κ where users are divided": ({"method": {"final_steps": 3}}, 2, "final_steps = 3"),
    "users where items are divided": (
        {"partition": PER_ITEM, "method": {"users": "noised"}},
        2,
        "nothing in the vertical setting",
    ),
    "fine-tuning, vertical": (
        {"partition": PER_ITEM, "method": {"fine_tuning": 3}},
        2,
        "nothing in the vertical setting",
    ),
    "θ on devices": ({"partition": BY_DEVICE, "method": {"local_steps": 10, "trim": 3}}, 2, "trim = 3 does nothing"),
    "sends without devices": ({"method": {"send": "record"}}, 2, "nothing in the horizontal setting"),
    "the paper's, on devices": (
        {"partition": BY_DEVICE, "method": {"local_steps": 10}, "privacy": {"accounting": "paper"}},
        4,
        "no paper's account",
    ),
    "the paper's, vertical": ({"partition": PER_ITEM, "privacy": {"accounting": "paper"}}, 4, "no paper's accounting"),
    "the paper's, per rating": ({"privacy": {"accounting": "paper", **PER_RATING}}, 4, "no paper's accounting"),
}


def tacit_run(folder: Path, sections: dict):
    table = {name: {**section, **sections.get(name, {})} for name, section in NOWHERE.items()}
    whole = {name: {k: v for k, v in section.items() if v is not None} for name, section in table.items()}
    (folder / "run.toml").write_text(tomli_w.dumps(whole))
    (folder / "items.csv").write_text("item\n" + "\n".join(map(str, range(20))) + "\n")
    with chdir(folder):
        return CliRunner().invoke(app, ["run", "run.toml", "--quiet", "--json"], env={"TACIT_DATA": None})


def test_without_a_mistake_the_data_is_looked_for(tmp_path):
    answer = tacit_run(tmp_path, {})
    assert (answer.exit_code, answer.stdout) == (3, "")
    assert "nowhere.csv" in answer.stderr


@pytest.mark.parametrize("name", REFUSED)
def test_bad_parameters_get_one_clear_sentence_before_data_is_touched(tmp_path, name):
    sections, code, words = REFUSED[name]
    answer = tacit_run(tmp_path, sections)
    assert (answer.exit_code, answer.stdout) == (code, ""), answer.stderr
    assert words in answer.stderr
    assert answer.stderr.startswith("tacit: ")
    assert answer.stderr.count("\n") == 1
    assert "Traceback" not in answer.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["items.csv", "run.toml"]
