"""`am-dpsgd`: it learns what is there, its weights rest on released counts, and each trap that is put back is found."""

from dataclasses import replace

import numpy as np
import pytest

import tacit
from tacit.boundary import least_squares
from tacit.data.public_facts import PublicFacts
from tacit.data.ratings import Scale
from tacit.data.synthetic import synthesize
from tacit.errors import PrivacyRefused, TacitError
from tacit.federation import Facts
from tacit.guarantee import Unit
from tacit.methods import chosen, find, known
from tacit.methods.baselines.am_dpsgd import AMParameters, AMParty, specs
from tacit.methods.context import Context, Target
from tacit.partition import Setting, partition
from tacit.prepare.prepared import PreparedRun
from tacit.testing.privacy_contract import PrivacyContract
from tacit.testing.worlds import lonely

WORLD = synthesize(600, 80, 24_000, rank=2, noise=0.4, seed=7).ratings
SEEN, HIDDEN = tacit.split(WORLD, test=0.1, seed=7)


def mse(model):
    return tacit.evaluate(model, HIDDEN, ranking=False).metrics["mse"]


def context(unit=Unit.USER, epsilon=4.0, users=6_000, items=3_000, ratings=900_000):
    facts = PublicFacts(users, items, Scale(1, 5), ratings)
    return Context(facts, Setting.HORIZONTAL, 3, Target(epsilon, 1e-6, unit))


def test_factors_explain_what_biases_leave():
    silos = tacit.partition(SEEN, into=3)
    alternating = tacit.estimator("am-dpsgd")
    assert mse(alternating(factors=2, rounds=60).fit(silos)) < 0.95 * mse(tacit.Bias().fit(silos))


def test_gradient_steps_improve_on_the_start():
    privacy, silos = tacit.DP(epsilon=8, delta=1e-5), tacit.partition(SEEN, into=3)
    am = tacit.estimator("am-dpsgd")(privacy=privacy, aggregation="ideal").fit(silos)
    start = tacit.estimator("am-dpsgd")(privacy=privacy, aggregation="ideal", rounds=1, rate=1e-9).fit(silos)
    assert mse(am) < mse(start)


def test_silos_and_devices_release_the_same_sums():
    totals = []
    for by, into in (("user", 3), ("device", 2)):
        parties = partition(lonely(), by=by, into=into)
        run = PreparedRun.of(*chosen({"name": "am-dpsgd", "factors": 1, "rounds": 1}), Facts.of(parties, 7))
        m = run.facts.items
        items, weights = np.full((m, 2), 0.1, dtype=np.float32), np.linspace(1, 2, m, dtype=np.float32)
        query = specs(run.parameters, context())[1].query
        answers = [query.over(*run.party(share)._gradient(items, weights)).exact({}, None) for share in parties]
        totals.append(sum(answer["moment"] for answer in answers))
    np.testing.assert_allclose(*totals, atol=1e-9)


def test_the_budget_is_shared_by_counts_and_steps_and_nothing_else():
    here = context()
    stated = find("am-dpsgd").stated(AMParameters().resolved(here), here)
    assert [spec.step for spec in stated] == ["count", "descend"]
    assert sum(spec.share for spec in stated) == pytest.approx(1)


def test_noise_leaves_room_for_fewer_steps_and_factors_where_the_budget_is_strict():
    strict, loose = (AMParameters().resolved(context(epsilon=epsilon)) for epsilon in (1, 8))
    assert strict.factors < loose.factors
    assert strict.rounds < loose.rounds


def test_one_rating_as_the_unit_is_refused_with_the_reason():
    with pytest.raises(PrivacyRefused, match="one rating moves everything that its user adds"):
        AMParameters().resolved(context(Unit.RATING))


# -- planted ----------------------------------------------------------------------------------------------------------


class Case(PrivacyContract):
    name = "am-dpsgd"
    parameters = {"factors": 1, "rounds": 2, "clip": 0.5}
    units = (Unit.USER,)


def weights_are_from_exact_counts(patch):
    """Everybody's counts are in everybody's weights, so one record moves what others add."""
    real = AMParty._gradient

    def exact(self, items, weights):
        counts = np.bincount(self.ratings.items, minlength=self.ratings.n_items)
        return real(self, items, (1.0 + counts).astype(np.float32) ** -4)

    patch.setattr(AMParty, "_gradient", exact)


def users_are_not_clipped(patch):
    patch.setattr(least_squares, "bounded_rows", lambda indptr, x, limit: np.clip(np.nan_to_num(x), -1e18, 1e18))


def factors_are_shared(patch):
    """Others' ratings are in what is fitted to one user."""
    real = AMParty._states

    def shared(self, form):
        states = real(self, form)
        return (states + states.mean(axis=0)) / 2

    patch.setattr(AMParty, "_states", shared)


@pytest.mark.parametrize("bug", [weights_are_from_exact_counts, users_are_not_clipped, factors_are_shared])
def test_a_trap_that_is_put_back_is_found(bug, monkeypatch):
    bug(monkeypatch)
    with pytest.raises(AssertionError, match="times as far"):
        Case().test_no_neighbour_moves_an_answer_further_than_stated(Setting.HORIZONTAL, Unit.USER)


def test_counts_that_nobody_is_charged_for_cannot_be_asked(monkeypatch):
    """Planted: the counts are left out of what is stated, so that all of the budget goes to the steps."""

    def free(parameters, context):
        return [replace(spec, share=1.0) for spec in specs(parameters, context) if spec.step != "count"]

    honest = find("am-dpsgd")
    sides = {setting: replace(each, specs=free) for setting, each in honest.sides.items()}
    monkeypatch.setitem(known(), "am-dpsgd", replace(honest, sides=sides))
    cheat = tacit.estimator("am-dpsgd")(privacy=tacit.DP(epsilon=1, delta=1e-5), factors=1, rounds=1)
    with pytest.raises(TacitError, match="count"):
        cheat.fit(tacit.partition(SEEN, into=3))
