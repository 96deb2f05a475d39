"""A site's own rules, each by itself; what they do to a whole offer is in test_site_run."""

import pytest
from one_site import CHAIN, NAMES, offer_of, run_file

from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import BudgetSpent
from tacit.data.ratings import Feedback
from tacit.deploy.offer import SiteSizes, facts_of
from tacit.deploy.policy import Policy
from tacit.errors import PrivacyRefused

OFFER = offer_of(run_file())


def plan_of(offer):
    return offer.prepared(facts_of(offer, dict.fromkeys(NAMES, SiteSizes(16, None)), Feedback.EXPLICIT)).plan


def both_of(offer):
    """An offer's run file, and the plan that it makes."""
    return offer.file, plan_of(offer)


def test_without_a_word_from_the_site_there_is_a_ceiling():
    file, plan = both_of(offer_of(run_file(privacy={"epsilon": 11.0, "delta": 1e-6})))
    with pytest.raises(BudgetSpent, match="--max-epsilon"):
        Policy().check_plan(file, plan, 48)
    Policy(max_epsilon=11.0).check_plan(file, plan, 48)


def test_what_a_run_file_asks_for_is_held_to_the_ceiling_whatever_its_plan_reaches():
    """The first run's ε becomes the budget for good: one of 1,000 that next to nothing is sampled for reaches 0."""
    chain = {**CHAIN, "sampling": 1e-9}
    file, plan = both_of(offer_of(run_file(method=chain, privacy={"epsilon": 1000.0, "delta": 1e-6})))
    assert plan.terms.guarantee.epsilon < 10
    with pytest.raises(BudgetSpent, match=r"ε = 1000, and without --max-epsilon"):
        Policy().check_plan(file, plan, 48)
    with pytest.raises(BudgetSpent, match="allows 10"):
        Policy(max_epsilon=10.0).check_plan(file, plan, 48)


@pytest.mark.parametrize(("users", "largest"), [(48, 1e-4), (1000, 1e-5), (1, 1e-4)])
def test_delta_is_small_beside_the_site_s_own_users(users, largest):
    """Whatever number of users the coordinator declares."""
    for delta, fine in ((largest, True), (2 * largest, False)):
        file, plan = both_of(offer_of(run_file(privacy={"epsilon": 4.0, "delta": delta})))
        if fine:
            Policy().check_plan(file, plan, users)
            continue
        with pytest.raises(PrivacyRefused, match="--delta"):
            Policy().check_plan(file, plan, users)


def test_a_unit_that_the_site_asks_for_is_the_run_s():
    file, plan = both_of(offer_of(run_file(privacy={"epsilon": 4.0, "delta": 1e-6, "unit": "rating"})))
    Policy(unit="rating").check_plan(file, plan, 48)
    with pytest.raises(PrivacyRefused, match="--unit"):
        Policy(unit="user").check_plan(file, plan, 48)


def test_a_simulated_guarantee_is_for_experiments():
    file, plan = both_of(offer_of(run_file(engine={"name": "flare", "seeded": True})))
    assert plan.terms.guarantee.simulated
    Policy(local=True).check_plan(file, plan, 48)
    with pytest.raises(PrivacyRefused, match="SIMULATED"):
        Policy().check_plan(file, plan, 48)


def test_a_budget_is_the_site_s_or_the_first_run_s_for_good(tmp_path):
    ledger = Ledger(tmp_path / "party-1.sqlite", "party-1")
    file = run_file(privacy={"epsilon": 4.0, "delta": 1e-6, "budget": 50.0, "period": 3.0})
    plan = plan_of(offer_of(file))
    assert Policy().budget(file, plan, ledger).epsilon == 4.0
    assert Policy().budget(file, plan, ledger).days is None
    larger = run_file(privacy={"epsilon": 9.0, "delta": 1e-5})
    assert Policy().budget(larger, plan_of(offer_of(larger)), ledger) == Policy().budget(file, plan, ledger)
    ledger.verify()
    mine = Policy(max_epsilon=2.0, delta=1e-7, days=30.0).budget(file, plan, ledger)
    assert (mine.epsilon, mine.delta, mine.days) == (2.0, 1e-7, 30.0)
    assert Policy(local=True).budget(file, plan, ledger).epsilon == 50.0
    ledger.close()


def test_a_catalogue_that_only_the_coordinator_has_is_no_difference():
    own = run_file(public={"scale": [1, 5], "users": 48, "catalogue": "my/items.csv"})
    Policy(file=own).check(OFFER, "party-1")
    Policy(file=run_file(public={})).check(OFFER, "party-1")
    with pytest.raises(PrivacyRefused, match="another run"):
        Policy(file=run_file(privacy=None), non_private=True).check(OFFER, "party-1")
