"""A site's part in a run: whatever a coordinator says, no more leaves than the site's own plan allows."""

import json
from dataclasses import replace

import numpy as np
import pytest
from one_site import BIAS, CHAIN, DATA, NAMES, Sites, costly, home_of, offer_of, request_of, rows_of, run_file, sentence

from tacit.boundary.events import Roster
from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import BudgetSpent
from tacit.boundary.wire import encode
from tacit.data.ratings import Feedback
from tacit.data.vocabulary import Vocabulary
from tacit.deploy import offer as terms
from tacit.deploy import site_run as part_module
from tacit.deploy.offer import SiteSizes, facts_of, ids_array, read_ids
from tacit.deploy.policy import Policy
from tacit.deploy.site_run import SiteRun
from tacit.engine.envelope import TimedRequest
from tacit.errors import BadMessage, PrivacyRefused, TacitError
from tacit.prepare import prepared as prepared_run

OFFER = offer_of(run_file())
SECRET_SUM = offer_of(run_file(aggregation={"name": "secagg"}))


def changed(offer, **sections) -> dict:
    """The content of an offer whose run file has other sections."""
    table = offer.file.model_dump(exclude_none=True)
    for name, section in sections.items():
        table[name] = {**table.get(name, {}), **section} if section is not None else None
    file = type(offer.file).model_validate({k: v for k, v in table.items() if v is not None})
    return replace(offer, file=file).content()


#: By name: what a coordinator that lies would offer, and words of the refusal.
OFFERS = {
    "noise from a seed": (changed(OFFER, engine={"seeded": True}), "from a seed"),
    "an engine whose noise is seeded": (changed(OFFER, engine={"name": "inprocess"}), "from a seed"),
    "a paper's accounting": (changed(OFFER, privacy={"accounting": "paper"}), "paper's own formulas"),
    "no privacy": (changed(OFFER, privacy=None), "no [privacy]"),
    "no list of items": ({k: v for k, v in OFFER.content().items() if k != "items"}, "no public list of items"),
    "an experiment": ({**OFFER.content(), "local": True}, "local experiment"),
    "devices": ({**OFFER.content(), "setting": "device"}, "offered setting"),
    "a cohort": (offer_of(run_file(partition={"by": "device", "into": 3})).content(), "single devices"),
    "items divided": ({**OFFER.content(), "setting": "vertical"}, "offered setting"),
    "drop-outs": (changed(OFFER, aggregation={"dropout": 0.5}), "dropout"),
    "everybody's times": (changed(OFFER, split={"by": "temporal"}), "temporal"),
    "most of all held out": (changed(OFFER, split={"test": 0.6}), "more than half"),
    "more than the site allows": (changed(OFFER, privacy={"epsilon": 4.5}), "allows 4"),
    "a larger δ": (changed(OFFER, privacy={"delta": 1e-3}), "δ = 0.001"),
    "sums that only a simulation has": (changed(OFFER, aggregation={"name": "ideal"}), "simulations only"),
    "an undeclared scale": (offer_of(run_file(public={"users": 48})).content(), "declares [public] scale"),
    "fewer users": (changed(OFFER, public={"users": 10}), "16 users"),
    "others alone": (replace(OFFER, roster=NAMES[1:]).content(), "without party-1"),
    "a party twice": (replace(OFFER, roster=("party-1", "party-2", "party-2")).content(), "twice"),
    "another method": (changed(OFFER, method={"name": "nosuch"}), "nosuch"),
    "a method's other parameters": (changed(OFFER, method={"clip": "none"}), "clip"),
}


@pytest.mark.parametrize("what", OFFERS)
def test_an_offer_that_protects_less_is_refused_and_nothing_is_released(tmp_path, what):
    content, words = OFFERS[what]
    home = home_of(tmp_path, policy=Policy(max_epsilon=4.0, delta=1e-6))
    assert words in sentence(TacitError, SiteRun, home, "run-1", content)
    assert rows_of(home) == []


def test_planted_a_policy_that_looks_away_would_be_noticed(tmp_path, monkeypatch):
    """Without the policy's look at deployments the same offers pass: the tests above can fail."""
    monkeypatch.setattr(Policy, "_check_deployed", lambda self, offer: None)
    monkeypatch.setattr(Policy, "check_plan", lambda self, file, plan, users: None)
    for number, what in enumerate(("noise from a seed", "no privacy", "drop-outs")):
        (tmp_path / str(number)).mkdir()
        assert SiteRun(home_of(tmp_path / str(number)), "run-1", OFFERS[what][0]).sizes()["users"] == 16


def test_planted_a_site_without_that_rule_would_tell_what_was_rated(tmp_path, monkeypatch):
    """A private offer without a list of items: what would leave then is told by the ratings."""
    content = OFFERS["no list of items"][0]
    monkeypatch.setattr(Policy, "_check_deployed", lambda self, offer: None)
    assert "items" not in SiteRun(home_of(tmp_path), "run-1", content).sizes()  # the second lock on the same door
    offer = offer_of(run_file(privacy=None), items=None)
    (tmp_path / "open").mkdir()
    told = SiteRun(home_of(tmp_path / "open", policy=Policy(non_private=True)), "run-1", offer.content()).sizes()
    assert len(read_ids(told["items"])) > 0


def test_a_run_file_that_the_site_was_given_must_be_the_one_that_is_offered(tmp_path):
    own = run_file(privacy={"epsilon": 4.0, "delta": 1e-6, "ledger": "mine"})
    home = home_of(tmp_path, policy=Policy(file=own))
    SiteRun(home, "run-1", OFFER.content())
    for other in (
        changed(OFFER, public={"scale": [0, 5]}),
        changed(OFFER, public={"users": 49}),
        changed(OFFER, privacy={"unit": "rating"}),
        changed(OFFER, privacy={"epsilon": 1.0}),
        changed(OFFER, method={"count_weight": 2.0}),
        changed(OFFER, split={"test": 0.5}),
        changed(OFFER, partition={"into": 4}),
        changed(OFFER, aggregation={"name": "secagg"}),
        changed(OFFER, evaluate={"k": 3}),
        replace(OFFER, file=OFFER.file.model_copy(update={"seed": 8})).content(),
    ):
        assert "another run than the run file" in sentence(PrivacyRefused, SiteRun, home, "run-1", other)


def member(content: dict, place: int, entry: int, value) -> str:
    members = json.loads(content["roster"])
    members[place][entry] = value
    return json.dumps(members)


#: By name: what a coordinator that lies would begin with.
BEGINNINGS = {
    "another scale": lambda c: {"scale": "[0, 5]"},
    "no scale": lambda c: {"scale": "null"},
    "more users": lambda c: {"users": c["users"] + 1},
    "no users": lambda c: {"users": 0},
    "another kind of feedback": lambda c: {"feedback": "count"},
    "no kind of feedback": lambda c: {"feedback": "loud"},
    "this site smaller": lambda c: {"roster": member(c, 0, 1, 15), "users": c["users"] - 1},
    "this site with fewer items": lambda c: {"roster": member(c, 0, 2, 15)},
    "this site's items, other ones": lambda c: {"columns/party-1": np.arange(1, 17, dtype=np.int32)},
    "this site a cohort": lambda c: {"roster": member(c, 0, 3, 16)},
    "another site a cohort": lambda c: {"roster": member(c, 1, 3, 1_000)},
    "another site with nobody": lambda c: {"roster": member(c, 1, 1, 0), "users": c["users"] - 16},
    "another site with a debt": lambda c: {"roster": member(c, 1, 1, -16), "users": c["users"] - 32},
    "a site more": lambda c: {"roster": json.dumps([*json.loads(c["roster"]), ["party-4", 1, 16, 0]])},
    "a site less": lambda c: {"roster": json.dumps(json.loads(c["roster"])[:2]), "users": 32},
    "another site": lambda c: {"roster": member(c, 2, 0, "party-9")},
    "another order": lambda c: {"roster": json.dumps(json.loads(c["roster"])[::-1])},
    "no sites": lambda c: {"roster": "7"},
    "sites without end": lambda c: {"roster": "[" * 100_000},
    "other items": lambda c: {"items": ids_array(Vocabulary(DATA.item_ids.ids[:-1], "item"))},
    "items that are no list": lambda c: {"items": np.frombuffer(b"{", np.uint8)},
    "columns that are none": lambda c: {"columns/party-2": np.array([3, 2], np.int32)},
    "columns beyond the items": lambda c: {"columns/party-2": np.arange(1, 17, dtype=np.int32)},
}


@pytest.fixture(scope="module", params=[OFFER, SECRET_SUM], ids=["plain", "secagg"])
def accepted(request, tmp_path_factory):
    """Sites that have accepted an offer; a beginning that is refused leaves them as they were."""
    return Sites(tmp_path_factory.mktemp("sites"), request.param)


@pytest.mark.parametrize("what", BEGINNINGS)
def test_a_run_that_begins_otherwise_than_offered_is_refused(accepted, what):
    sites = accepted
    part, content = sites.parts["party-1"], sites.begin_content
    sentence(BadMessage, part.begin, {**content, **BEGINNINGS[what](content)})
    assert part.party is None
    assert costly(sites.homes["party-1"]) == []
    with pytest.raises(BadMessage, match="before its run had begun"):
        part.answer(ASK)


def test_how_many_ratings_there_are_is_never_the_coordinator_s_word(tmp_path):
    """Step sizes rest on |Ω|; with privacy it is the declared one, whatever is said."""
    sites = Sites(tmp_path, OFFER)
    part = sites.parts["party-1"]
    one = part.begin(sites.begin_content)
    assert part.begin({**sites.begin_content, "ratings": 3}) == one
    assert part.party.facts.ratings == 48 * 16  # users × min(50, items)
    part.leave()


def test_planted_facts_that_are_believed_would_be_noticed(tmp_path, monkeypatch):
    """With sizes believed, a lie about another site's devices reaches the plan, which refuses it; then it passes."""
    monkeypatch.setattr(terms, "_possible", lambda *_anything: True)
    sites = Sites(tmp_path, OFFER)
    content = sites.begin_content
    part = sites.parts["party-1"]
    lied = {**content, **BEGINNINGS["another site a cohort"](content)}
    with pytest.raises(PrivacyRefused, match="a cohort simulates many devices"):
        part.begin(dict(lied))
    monkeypatch.setattr(prepared_run, "check_cohorts", lambda *_anything: None)
    part.begin(lied)
    assert part.party is not None
    part.leave()


def test_a_secure_sum_with_a_made_up_cohort_would_still_carry_noise(tmp_path, monkeypatch):
    """Planted, the last lock: were a made-up cohort believed, its sum would be refused where the noise is shared."""
    monkeypatch.setattr(terms, "_possible", lambda *_anything: True)
    monkeypatch.setattr(prepared_run, "check_cohorts", lambda *_anything: None)
    sites = Sites(tmp_path, SECRET_SUM)
    content = sites.begin_content
    part = sites.parts["party-1"]
    lied = {**content, **BEGINNINGS["another site a cohort"](content)}
    part.begin(lied)
    agreed = SECRET_SUM.prepared(terms.read_facts(SECRET_SUM, lied))
    with pytest.raises(PrivacyRefused, match="only a simulation may do"):
        part.answer(request_of(agreed, "contribute"))
    part.leave()
    assert costly(sites.homes["party-1"]) == []


TERMS = OFFER.prepared(terms.facts_of(OFFER, dict.fromkeys(NAMES, terms.SiteSizes(16, None)), Feedback.EXPLICIT))
ASK = request_of(TERMS, "contribute")


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    """Sites of a run that has begun; a request that is refused leaves them as they were."""
    sites = Sites(tmp_path_factory.mktemp("serving"), OFFER).begin()
    yield sites
    sites.leave()


@pytest.fixture
def begun(tmp_path):
    sites = Sites(tmp_path, OFFER).begin()
    yield sites
    sites.leave()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"parameters": "other"}, "other terms"),
        ({"method": "sgdmf"}, "other terms"),
        ({"step": "disclose"}, "not a step"),
        ({"step": "__init__"}, "not a step"),
        ({"step": "at_home"}, "not a step"),
        ({"body": encode({"seed": 7})}, "not part of it"),
        ({"body": b"junk"}, "does not start"),
        ({"round": -1}, "envelope"),
    ],
)
def test_a_request_that_was_not_agreed_on_is_refused(serving, change, words):
    request = replace(request_of(serving.agreed, "contribute").request, **change)
    assert words in sentence(BadMessage, serving.parts["party-1"].answer, TimedRequest(request, 9.0))
    assert costly(serving.homes["party-1"]) == []


def test_a_deployment_has_no_survivors_to_name(begun):
    part, asked = begun.parts["party-1"], request_of(begun.agreed, "contribute")
    named = TimedRequest.of(replace(asked, survivors=np.ones(16, dtype=bool)).content())
    assert "survivors" in sentence(BadMessage, part.answer, named)
    assert costly(begun.homes["party-1"]) == []
    assert part.answer(asked).status == "ok"
    assert len(costly(begun.homes["party-1"])) == 1


def test_no_more_is_released_than_was_planned(begun):
    part = begun.parts["party-1"]
    first = part.answer(request_of(begun.agreed, "contribute"))
    assert part.answer(request_of(begun.agreed, "contribute")) == first
    assert "covers 1" in sentence(PrivacyRefused, part.answer, request_of(begun.agreed, "contribute", 2))
    assert len(costly(begun.homes["party-1"])) == 1


def test_terms_that_change_in_the_middle_of_a_run_are_refused(begun):
    """The same run offered and begun anew with other terms: what left counts, and no second contribution leaves."""
    home, part = begun.homes["party-1"], begun.parts["party-1"]
    part.answer(request_of(begun.agreed, "contribute"))
    part.leave()
    less = replace(OFFER, file=run_file(privacy={"epsilon": 2.0, "delta": 1e-6}, engine=OFFER.file.engine.model_dump()))
    other = SiteRun(replace(home, policy=Policy(max_epsilon=10.0)), "run-1", less.content())
    content = begun.begin_content
    other.begin(content)
    agreed = less.prepared(terms.read_facts(less, content))
    for round in (1, 2):
        with pytest.raises(PrivacyRefused):
            other.answer(request_of(agreed, "contribute", round))
    other.leave()
    assert len(costly(home)) == 1


def test_sizes_stand_in_the_ledger_before_they_leave(tmp_path):
    home = home_of(tmp_path)
    part = SiteRun(home, "run-1", OFFER.content())
    assert rows_of(home) == []
    said = part.sizes()
    (row,) = rows_of(home)
    assert (row.run, row.round, row.step, row.kind) == ("run-1", 0, "sizes:roster", "public")
    assert isinstance(row.spent, Roster)
    assert row.payload == part_module.hashlib.sha256(encode(said)).hexdigest()
    assert said == {"users": 16, "ratings": 0, "devices": 0}


def test_the_same_twice_is_one_row_and_another_offer_another(tmp_path):
    home = home_of(tmp_path)
    part = SiteRun(home, "run-1", OFFER.content())
    assert part.sizes() == part.sizes()
    SiteRun(home, "run-1", OFFER.content()).sizes()
    assert len(rows_of(home)) == 1
    SiteRun(home, "run-1", replace(OFFER, roster=NAMES[:2]).content()).sizes()
    assert len(rows_of(home)) == 2


def test_nothing_is_said_that_could_not_be_recorded(tmp_path, monkeypatch):
    part = SiteRun(home_of(tmp_path), "run-1", OFFER.content())

    def full(*_args, **_named):
        raise OSError("the disk is full")

    monkeypatch.setattr(Ledger, "record", full)
    with pytest.raises(OSError, match="disk is full"):
        part.sizes()


def test_planted_sizes_that_are_not_recorded_would_be_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(part_module, "record_public", lambda *_args: None)
    home = home_of(tmp_path)
    SiteRun(home, "run-1", OFFER.content()).sizes()
    assert rows_of(home) == []


@pytest.mark.parametrize("method", [BIAS, CHAIN], ids=["bias", "sgdmf"])
def test_a_budget_of_the_run_s_own_epsilon_is_enough_after_public_rows(tmp_path, method):
    """The first schedule that costs is the tight one, also when an offer is repeated with fewer parties."""
    offer = offer_of(run_file(method=method))
    home = home_of(tmp_path, policy=Policy(max_epsilon=4.0, delta=1e-6))
    SiteRun(home, offer.run, offer.content()).sizes()
    smaller = replace(offer, roster=NAMES[:2])
    sites = Sites(tmp_path, smaller, Policy(max_epsilon=4.0, delta=1e-6)).begin()
    plan = sites.agreed.plan
    ledger = Ledger.open(home.ledger)
    assert ledger.first_schedule() == list(plan.terms.events)
    ledger.close()
    sites.conduct()
    sites.leave()
    assert {answer.status for answer in sites.answers} == {"ok"}
    assert [row.step for row in rows_of(home)][:2] == ["sizes:roster", "sizes:roster"]
    assert len(costly(home)) == sum(plan.terms.releases.values())


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
