"""A site's part in a run: whatever a coordinator says, no more leaves than the site's own reckoning allows."""

import json
from dataclasses import replace

import numpy as np
import pytest
from one_site import BIAS, CHAIN, DATA, NAMES, Sites, costly, home_of, offer_of, request_of, rows_of, run_file
from typer.testing import CliRunner

from tacit.boundary.events import Metrics, Roster
from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import BudgetSpent
from tacit.boundary.wire import encode
from tacit.cli import app
from tacit.data.catalogue import Catalogue
from tacit.data.ratings import Feedback
from tacit.data.vocabulary import Vocabulary
from tacit.deploy import offer as terms
from tacit.deploy import policy as policy_module
from tacit.deploy import site_data as source_module
from tacit.deploy import site_run as part_module
from tacit.deploy.catalogue_message import ids_array, read_ids
from tacit.deploy.policy import Policy
from tacit.deploy.site_files import read_predictor
from tacit.deploy.site_run import SiteRun
from tacit.engine.envelope import TimedRequest
from tacit.errors import BadMessage, DataError, PeerFailed, PrivacyRefused, TacitError, UsageError
from tacit.prepare import prepared as prepared_run

OFFER = offer_of(run_file())
SECRET_SUM = offer_of(run_file(aggregation={"name": "secagg"}))


def sentence(kinds, action, *args) -> str:
    """The one sentence of a refusal."""
    with pytest.raises(kinds) as found:
        action(*args)
    text = str(found.value)
    assert "\n" not in text
    assert text[-1] in ".?"
    return text


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
    "reports through nobody": (changed(OFFER, aggregation={"name": "shuffle"}), "simulations only"),
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


#: What a coordinator may say that is not an offer at all.
DAMAGED = {
    "nothing": {},
    "no TOML": {**OFFER.content(), "file": "= 1"},
    "unknown keys": {**OFFER.content(), "file": OFFER.content()["file"] + '\n[backdoor]\nopen = "yes"\n'},
    "a number as file": {**OFFER.content(), "file": 7},
    "a roster of nothing": {**OFFER.content(), "roster": "null"},
    "a roster that never ends": {**OFFER.content(), "roster": "[" * 100_000},
    "an unknown setting": {**OFFER.content(), "setting": "diagonal"},
    "items as text": {**OFFER.content(), "items": "[1, 2]"},
    "items without end": {**OFFER.content(), "items": np.frombuffer(b"[" * 100_000, np.uint8)},
    "items out of order": {**OFFER.content(), "items": np.frombuffer(b"[2, 1]", np.uint8)},
    "items twice": {**OFFER.content(), "items": np.frombuffer(b"[1, 1]", np.uint8)},
    "items that are none": {**OFFER.content(), "items": np.frombuffer(b"[1.5, null]", np.uint8)},
    "no items at all": {**OFFER.content(), "items": np.frombuffer(b"[]", np.uint8)},
}


@pytest.mark.parametrize("what", DAMAGED)
def test_what_is_no_offer_is_one_sentence(tmp_path, what):
    home = home_of(tmp_path)
    sentence(BadMessage, SiteRun, home, "run-1", DAMAGED[what])
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


@pytest.mark.parametrize("missing", ["feedback", "ratings", "users", "roster", "scale", "items"])
def test_a_beginning_that_lacks_something_is_refused(accepted, missing):
    content = {name: value for name, value in accepted.begin_content.items() if name != missing}
    sentence(BadMessage, accepted.parts["party-1"].begin, content)
    assert costly(accepted.homes["party-1"]) == []


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


#: Another run of the same, with a seed of its own: requests of one file and seed are the same, and answered once.
SECOND = replace(OFFER, run="run-2", file=OFFER.file.model_copy(update={"seed": 8}))


def done(folder, offer, policy=None) -> Sites:
    sites = Sites(folder, offer, policy).begin()
    sites.conduct()
    sites.leave()
    return sites


def test_a_larger_budget_covers_a_second_run_and_not_a_third(tmp_path):
    policy = Policy(max_epsilon=7.0)
    done(tmp_path, OFFER, policy)
    home = done(tmp_path, SECOND, policy).homes["party-1"]
    assert len(costly(home)) == 2
    with pytest.raises(BudgetSpent):
        SiteRun(home, "run-3", replace(OFFER, run="run-3").content())
    assert len(costly(home)) == 2


def test_a_budget_for_some_days_forgets_what_is_older(tmp_path, monkeypatch):
    monkeypatch.setattr("tacit.boundary.ledger.now", lambda: "2020-01-01T00:00:00+00:00")
    home = done(tmp_path, OFFER).homes["party-1"]
    monkeypatch.undo()
    with pytest.raises(BudgetSpent):
        SiteRun(home, "run-2", replace(OFFER, run="run-2").content())
    weekly = replace(home, policy=Policy(days=7))
    SiteRun(weekly, "run-2", replace(OFFER, run="run-2").content()).sizes()


def test_planted_a_ledger_that_is_not_asked_would_be_noticed(tmp_path, monkeypatch):
    home = done(tmp_path, OFFER).homes["party-1"]
    again = replace(OFFER, run="run-2").content()
    with pytest.raises(BudgetSpent):
        SiteRun(home, "run-2", again)
    monkeypatch.setattr(part_module, "check_budget", lambda *_args: None)
    assert SiteRun(home, "run-2", again).sizes()["users"] == 16


PROBES = {
    "every list without one item": [
        replace(OFFER, catalogue=Catalogue(Vocabulary(np.delete(DATA.item_ids.ids, place), "item")))
        for place in range(6)
    ],
    "one item alone": [replace(OFFER, catalogue=Catalogue(Vocabulary(DATA.item_ids.ids[:1], "item")))],
    "items that there are not": [replace(OFFER, catalogue=Catalogue(Vocabulary(DATA.item_ids.ids + 10_000, "item")))],
    "narrow scales": [offer_of(run_file(public={"scale": [low, low + 1], "users": 48})) for low in (1, 2, 4, 7)],
    "half held out": [offer_of(run_file(seed=seed, split={"test": 0.5})) for seed in range(5)],
}


@pytest.mark.parametrize("probe", PROBES)
def test_what_is_replied_to_an_offer_depends_on_no_rating(probe, tmp_path):
    """Otherwise offers would be questions about ratings that nobody is charged for, asked as often as one likes."""
    for number, offer in enumerate(PROBES[probe]):
        (tmp_path / str(number)).mkdir()
        home = home_of(tmp_path / str(number))
        part = SiteRun(home, "run-1", replace(offer, run="run-1").content())
        assert part.sizes() == {"users": len(part.data.people), "ratings": 0, "devices": 0}
        part.leave()


def test_planted_data_that_is_refused_would_be_noticed(tmp_path, monkeypatch):
    def strict(ratings, items, scale):
        if np.any(items.rows(ratings.item_ids.ids) < 0):
            raise DataError("An item is not listed.")
        return source_module.fit_ratings(ratings, items, scale)

    monkeypatch.setattr(source_module, "fit_ratings", strict)
    with pytest.raises(DataError):
        test_what_is_replied_to_an_offer_depends_on_no_rating("every list without one item", tmp_path)


@pytest.mark.parametrize(("method", "aggregation"), [(CHAIN, "plain"), (BIAS, "secagg")], ids=["chain", "secagg"])
def test_a_part_rebuilt_before_every_request_repeats_itself_and_goes_on(tmp_path, method, aggregation):
    """Private: whatever was answered last is answered with the same bytes, at no cost; older ones are refused."""
    offer = offer_of(run_file(method=method, aggregation={"name": aggregation}))
    sites = Sites(tmp_path, offer).begin()
    deliver = sites.deliver

    def disturbed(requests, attendance):
        sites.again("party-1")
        found = deliver(requests, attendance)
        if "party-1" in requests:
            ask = TimedRequest(requests["party-1"], 9.0)
            mine = next(answer for answer in found if answer.party == "party-1")
            assert sites.again("party-1").answer(ask) == mine
        return found

    sites.deliver = disturbed
    sites.conduct()
    asked = [ask for name, ask in sites.asked if name == "party-1"]
    with pytest.raises(PrivacyRefused, match="stores only its digest"):
        sites.parts["party-1"].answer(asked[0])
    sites.leave()
    rows = rows_of(sites.homes["party-1"])
    assert [row.step for row in rows] == ["sizes:roster", *(ask.request.step for ask in asked)]
    assert len(costly(sites.homes["party-1"])) == sum(sites.agreed.plan.terms.releases.values())


def test_without_privacy_a_part_goes_on_from_its_memory(tmp_path):
    """A run whose site is rebuilt before every request has the very answers of one that ran through."""
    offer, policy = offer_of(run_file(privacy=None, method=CHAIN)), Policy(non_private=True)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    smooth = done(tmp_path / "one", offer, policy)
    sites = Sites(tmp_path / "other", offer, policy).begin()
    deliver = sites.deliver

    def disturbed(requests, attendance):
        sites.again("party-1")
        found = deliver(requests, attendance)
        assert sites.again("party-1").answer(TimedRequest(requests["party-1"], 9.0)) == found[0]
        return found

    sites.deliver = disturbed
    sites.conduct()
    sites.leave()
    assert sites.answers == smooth.answers
    assert not sites.homes["party-1"].ledger.exists()


def test_planted_a_site_without_memory_would_be_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr("tacit.engine.serve.Memory.recall", lambda self, home: None)
    with pytest.raises((AssertionError, PeerFailed)):
        test_without_privacy_a_part_goes_on_from_its_memory(tmp_path)


def test_an_offer_in_the_middle_of_a_run_takes_nothing_from_its_home(tmp_path):
    """A changed offer writes a row of its own; what the run had at home is there for it all the same."""
    sites = Sites(tmp_path, offer_of(run_file(method=CHAIN))).begin()
    sites.conduct()
    part, home = sites.parts["party-1"], sites.homes["party-1"]
    before = {name: np.array(block) for name, block in part.party.home.items()}
    part.leave()
    SiteRun(home, "run-1", replace(sites.offer, roster=NAMES[:2]).content()).sizes()
    after = sites.again("party-1").party.home
    sites.leave()
    assert rows_of(home)[-1].step == "sizes:roster"
    assert before
    assert after.keys() == before.keys()
    for name, block in before.items():
        np.testing.assert_array_equal(after[name], block)


def test_signed_sums_need_the_others_keys_from_themselves(tmp_path):
    offer = offer_of(run_file(aggregation={"name": "secagg", "signed": True}))
    assert "--peers" in sentence(PrivacyRefused, Sites, tmp_path, offer)
    sites = Sites(tmp_path, offer, Policy(peers={}))
    keys = json.loads(sites.begin_content["identities"])
    for missing in ("party-2", "party-3"):
        some = {name: key for name, key in keys.items() if name != missing}
        part = SiteRun(home_of(tmp_path, policy=Policy(peers=some)), "run-1", offer.content())
        assert missing in sentence(PrivacyRefused, part.begin, sites.begin_content)
    part = SiteRun(home_of(tmp_path, policy=Policy(peers={**keys, "party-3": "0" * 64})), "run-1", offer.content())
    assert "party-3 signs with another key" in sentence(TacitError, part.begin, sites.begin_content)
    assert costly(sites.homes["party-1"]) == []
    (tmp_path / "known").mkdir()
    done(tmp_path / "known", offer, Policy(peers=keys))


def kept(tmp_path, **rules):
    sites = Sites(tmp_path, OFFER, Policy(**rules)).begin()
    shared = {}
    federation = sites.agreed.federation(sites, observer=lambda _round, _rounds, blocks: shared.update(blocks))
    sites.agreed.coordinate(federation)
    reply = sites.parts["party-1"].save(shared)
    sites.leave()
    return reply, sites.homes["party-1"]


def test_metrics_stay_at_home_unless_the_site_shares_them(tmp_path):
    reply, home = kept(tmp_path)
    assert reply == {}
    assert json.loads((home.folder / "home" / "metrics.json").read_text())["metrics"]["mse"] > 0
    assert read_predictor(home.folder / "home" / "predictor.tct").rates
    assert not any(isinstance(row.spent, Metrics) for row in rows_of(home))


def test_metrics_that_are_shared_stand_in_the_ledger(tmp_path):
    reply, home = kept(tmp_path, shares_metrics=True)
    assert reply["metrics"] == (home.folder / "home" / "metrics.json").read_text()
    assert isinstance(rows_of(home)[-1].spent, Metrics)


def test_beside_the_ledger_stands_with_whom_each_run_was(tmp_path):
    home = done(tmp_path, OFFER).homes["party-1"]
    (known,) = json.loads((home.ledgers / "runs.json").read_text()).items()
    assert known[0] == "run-1"
    assert known[1]["federation"] == "hearts"
    assert known[1]["budget"] == 4.0
    assert "SIMULATED" not in known[1]["guarantee"]
    assert (home.ledgers / "runs.json").stat().st_mode & 0o777 == 0o600


def test_a_union_of_items_is_known_when_the_run_begins(tmp_path):
    """Without privacy and a list, sites tell what they have, and all then learn over all of it."""
    offer = offer_of(run_file(privacy=None, public={"scale": [1, 5]}), items=None)
    sites = done(tmp_path, offer, Policy(non_private=True))
    assert len(sites.agreed.facts.item_ids) == len(DATA.item_ids)
    assert {part.data.share.ratings.n_items for part in sites.parts.values()} == {len(DATA.item_ids)}


def test_a_run_that_only_an_experiment_may_hold_is_held_in_one(tmp_path):
    """The same offer with seeded noise is fine where the site is the experimenter's own."""
    offer = offer_of(run_file(engine={"name": "flare", "seeded": True}), local=True)
    home = home_of(tmp_path, policy=Policy(local=True))
    part = SiteRun(home, "run-1", offer.content())
    assert part.sizes()["users"] == 16
    assert rows_of(home) == []
    with pytest.raises(PrivacyRefused, match="cannot join another run"):
        SiteRun(home, "run-1", OFFER.content())
    assert policy_module.seeded(offer.file)
    with pytest.raises(UsageError, match="cannot take part"):
        SiteRun(home, "run-1", replace(offer, roster=NAMES[1:]).content())


def test_an_offer_that_the_budget_does_not_cover_is_in_the_ledger_and_on_its_page(tmp_path):
    home = home_of(tmp_path, policy=Policy(max_epsilon=1.25))
    with pytest.raises(BudgetSpent):
        SiteRun(home, "run-1", OFFER.content())
    assert rows_of(home) == []
    page = tmp_path / "left.html"
    answer = CliRunner().invoke(app, ["ledger", "show", str(home.ledger), "--html", str(page)])
    assert answer.exit_code == 0, answer.stderr
    assert "1 request refused" in page.read_text()
    assert "this site allows 1.25 (--max-epsilon)" in page.read_text()
