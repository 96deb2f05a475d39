"""One prepared run: the same wherever it is prepared, and refused for the reasons that a run file is refused for."""

from dataclasses import replace

import numpy as np
import pytest

from tacit.boundary.protection import Budget
from tacit.config import AggregationSection, PrivacySection, PublicSection, RunFile
from tacit.data.public_facts import public_facts
from tacit.data.ratings import Ratings, Scale
from tacit.data.synthetic import demo
from tacit.deploy.offer import Offer, offered_file
from tacit.errors import PeerFailed, PrivacyRefused, UsageError
from tacit.estimator import DP, Bias
from tacit.federation import Facts
from tacit.guarantee import NON_PRIVATE, Trust
from tacit.methods import chosen
from tacit.partition import partition
from tacit.prepare import PreparedRun, Records, train
from tacit.prepare.run_file import check, plan, prepared

DATA = {"source": "demo", "users": 30, "items": 12, "ratings": 300}
RATINGS = demo(users=30, items=12, ratings=300)
PRIVATE = {"epsilon": 4.0, "delta": 1e-4}
CHAIN = {"name": "sgdmf", "factors": 2, "rounds": 2, "local_steps": 1}
SUM = {"name": "bias"}


def file(method=SUM, by="user", private=True, **sections) -> RunFile:
    privacy = {"privacy": PRIVATE} if private else {}
    return RunFile.model_validate(
        {"data": DATA, "partition": {"by": by, "into": 3}, "method": method, **privacy, **sections}
    )


def facts_of(wanted: RunFile) -> Facts:
    return Facts.of(partition(RATINGS, by=wanted.partition.by, into=3), wanted.seed)


def made(**asked) -> PreparedRun:
    wanted = file(**asked)
    return prepared(wanted, facts_of(wanted), run="run-1")


def offered(wanted: RunFile, **options) -> Offer:
    facts, public = facts_of(wanted), PublicSection(scale=(1, 5), users=30, ratings=300)
    roster = tuple(member.name for member in facts.roster)
    return Offer("run-1", offered_file(wanted, public), roster, facts.setting, facts.catalogue, **options)


# -- one run, wherever it is prepared ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [SUM, {**CHAIN, "local_steps": 2}], ids=["sum", "chain"])
@pytest.mark.parametrize(
    ("by", "private", "aggregation"),
    [
        ("user", True, "plain"),
        ("user", True, "secagg"),
        ("item", True, "plain"),
        ("user", False, "plain"),
        ("user", False, "secagg"),
    ],
)
def test_its_deployed_twin_binds_the_same_into_every_request(method, by, private, aggregation):
    wanted = file(method, by, private, aggregation={"name": aggregation}, engine={"name": "flare", "seeded": True})
    here, facts = prepared(wanted, facts_of(wanted), run="run-1"), facts_of(wanted)
    offer = offered(wanted, local=True)
    there = Offer.of("run-1", offer.content()).prepared(facts)
    assert there.bound == here.bound
    assert there.guarantee == here.guarantee
    assert (there.facts.ratings, there.facts.unit) == (here.facts.ratings, here.facts.unit)
    assert there.plan.terms == here.plan.terms
    assert there.how == here.how


def test_an_offer_is_planned_as_it_will_be_prepared():
    offer = offered(file(CHAIN))
    assert offer.planned(12, 3).terms == offer.prepared(facts_of(file(CHAIN))).plan.terms


def test_an_estimator_fits_the_run_that_a_run_file_describes(tmp_path):
    """Noise derives from what requests bind, so equal messages mean equal runs."""
    parties = partition(RATINGS, into=3)
    run = made()
    trained = train(run, parties, records=Records.of(run, tmp_path))
    fitted = Bias(privacy=DP(**PRIVATE), seed=7).fit(parties, ratings=300)
    assert fitted.transcript_.digest == trained.transcript.digest
    assert fitted.guarantee_ == run.guarantee


def test_without_privacy_nothing_is_promised_and_no_default_is_left_open():
    free = made(method=CHAIN, private=False)
    assert free.guarantee == NON_PRIVATE
    assert not free.private
    assert free.spent({"improve": 1}) is None
    assert free.parameters.rounds == free.plan.rounds == 2
    assert not free.plan.sigma()
    assert None not in (free.parameters.sampling, free.parameters.fine_tuning)
    assert Records.of(free, None) is None


def test_a_name_changes_nothing_that_requests_bind():
    run = made(aggregation={"name": "secagg"})
    assert run.named("run-2").bound == run.bound
    assert run.named("run-2").plan is run.plan


# -- beside -----------------------------------------------------------------------------------------------------------


def test_it_keeps_an_aggregation_that_protects_it_and_no_other():
    sealed = made(method={"name": "synsgd", "factors": 2, "rounds": 2}, aggregation={"name": "secagg"})
    assert sealed.comparison("bias").sealed
    assert sealed.comparison("bias").aggregation == sealed.aggregation
    divided = made(method=CHAIN, by="item", aggregation={"name": "secagg", "dropout": 0.1})
    assert not divided.comparison("bias").sealed
    assert divided.comparison("bias").guarantee.trust is Trust.SILO
    assert divided.comparison("bias").aggregation.dropout == 0.1
    shuffled = replace(made(method=CHAIN), aggregation=AggregationSection(name="shuffle"))
    assert shuffled.comparison("bias").guarantee.trust is Trust.SILO


def test_no_budget_or_ledger_of_the_run_is_the_floors(tmp_path):
    run = made(method=CHAIN, privacy={**PRIVATE, "budget": 5.0, "ledger": str(tmp_path / "kept")})
    assert Records.of(run, tmp_path / "own").folder == tmp_path / "kept"
    floor = run.comparison("bias")
    assert (floor.privacy.budget, floor.privacy.ledger) == (None, None)
    assert Records.unlimited(floor, tmp_path / "own").folder == tmp_path / "own"


# -- refusals ---------------------------------------------------------------------------------------------------------

REFUSED = {
    "no guarantee": {"method": {"name": "central"}},
    "an aggregation that is not there": {"aggregation": {"name": "lattice"}},
    "signed, and not secagg": {"aggregation": {"name": "plain", "signed": True}},
    "nothing to shuffle": {"aggregation": {"name": "shuffle"}},
    "no sum to hide": {"method": {**CHAIN, "local_steps": 2}, "aggregation": {"name": "ideal"}},
    "a simulation for real": {"aggregation": {"name": "ideal"}, "engine": {"seeded": False}},
    "a delta that gives somebody away": {"privacy": {"epsilon": 1.0, "delta": 0.1}},
    "a budget that holds nothing": {"privacy": {**PRIVATE, "budget": 1.0}},
}


@pytest.mark.parametrize("why", REFUSED)
def test_it_is_refused_for_the_reason_and_in_the_words_of_the_run_file(why):
    wanted = file(**REFUSED[why])
    facts, seeded = facts_of(wanted), wanted.engine.seeded is not False
    asked = {"privacy": wanted.privacy, "aggregation": wanted.aggregation, "seeded": seeded}
    with pytest.raises((PrivacyRefused, UsageError)) as by_file:
        check(wanted)
    with pytest.raises((PrivacyRefused, UsageError)) as by_hand:
        PreparedRun.of(*chosen(wanted.method), facts, public=public_facts(wanted.data, wanted.public), **asked)
    assert str(by_hand.value) == str(by_file.value)
    assert type(by_hand.value) is type(by_file.value)


def test_without_privacy_an_aggregation_hides_what_it_can_and_promises_nothing():
    sealed, chain = made(private=False, aggregation={"name": "secagg"}), {**CHAIN, "local_steps": 2}
    assert sealed.sealed
    assert not sealed.private
    assert not sealed.guarantee
    assert "single contributions are hidden from the coordinator" in str(sealed.guarantee)
    assert sealed.hidden in str(sealed.guarantee)
    for asked in ({"method": chain, "aggregation": {"name": "ideal"}}, {"aggregation": {"name": "shuffle"}}):
        with pytest.raises(PrivacyRefused, match=r"has none here; use .*\"plain\"\."):
            made(private=False, **asked)


def test_a_setting_or_feedback_that_the_method_does_not_know_is_refused():
    with pytest.raises(UsageError, match="hold different users"):
        made(method={"name": "objective-perturbation"}, by="item", private=False)
    implicit = replace(facts_of(file()), feedback="implicit")
    with pytest.raises(UsageError, match="feedback"):
        PreparedRun.of(*chosen(SUM), implicit)


def test_a_cohort_is_refused_where_noise_must_hold_outside_a_simulation():
    with pytest.raises(PrivacyRefused, match="a cohort simulates many devices"):
        made(by="device", engine={"seeded": False})


def test_what_was_read_off_the_ratings_is_no_public_fact():
    rows = [["ann", "bob", "cid"], ["x", "y", "x"], [1.0, 5.0, 3.0]]
    parties = partition(Ratings.from_columns(*map(np.array, rows)), into=3)
    asked = {"privacy": PrivacySection(epsilon=1.0, delta=1e-6)}
    with pytest.raises(UsageError, match=r"scale .* was read off the ratings"):
        PreparedRun.of(*chosen(SUM), Facts.of(parties, 7), **asked)
    listed = replace(Facts.of(parties, 7), scale=Scale(1, 5))
    with pytest.raises(UsageError, match="items are known from ratings alone"):
        PreparedRun.of(*chosen(SUM), listed, **asked)


def test_a_plan_that_is_there_already_brings_its_own_parameters_and_facts():
    wanted = file(CHAIN)
    own = plan(wanted, *chosen(wanted.method), parties=3)
    run = PreparedRun.by_plan(chosen(CHAIN)[0], facts_of(wanted), own, run="run-1")
    assert run.bound == made(method=CHAIN).bound
    assert run.parameters is own.parameters


# -- building ---------------------------------------------------------------------------------------------------------


def test_drop_outs_and_what_a_refusal_does_come_from_what_was_asked_for(tmp_path):
    """They are no arguments of whoever trains."""
    parties = partition(RATINGS, into=3)
    poor = Budget(0.1, PRIVATE["delta"])
    stopping = made(privacy={**PRIVATE, "on_refusal": "stop"})
    with pytest.raises(PrivacyRefused, match=r"its budget is 0\.1"):
        train(stopping, parties, records=Records(tmp_path / "poor", poor))
    with pytest.raises(PeerFailed, match="fewer drop-outs"):  # with this seed, all three at once
        train(made(private=False, aggregation={"dropout": 0.6}), parties)
