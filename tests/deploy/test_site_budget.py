"""A site's budget over runs, what it resumes from after a kill, and what it stores and shares at the end."""

import json
from dataclasses import replace

import numpy as np
import pytest
from killpoints import states_of
from one_site import (
    BIAS,
    CHAIN,
    DATA,
    NAMES,
    Sites,
    costly,
    home_of,
    item_sources,
    offer_of,
    rows_of,
    run_file,
    sentence,
)
from typer.testing import CliRunner

from tacit.boundary.events import Metrics
from tacit.boundary.ledger import ledgers_in
from tacit.boundary.protection import BudgetSpent
from tacit.cli import app
from tacit.data.catalogue import Catalogue
from tacit.data.vocabulary import Vocabulary
from tacit.deploy import policy as policy_module
from tacit.deploy import site_data as source_module
from tacit.deploy import site_run as part_module
from tacit.deploy.policy import Policy
from tacit.deploy.site_files import read_predictor
from tacit.deploy.site_run import SiteRun
from tacit.engine.envelope import TimedRequest
from tacit.errors import DataError, PeerFailed, PrivacyRefused, TacitError, UsageError
from tacit.model import Model

OFFER = offer_of(run_file())
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
    sites.conduct()
    reply = sites.parts["party-1"].save(sites.shared)
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


@pytest.mark.parametrize("method", [BIAS, CHAIN], ids=["bias", "sgdmf"])
def test_a_sites_folder_opens_as_a_model(tmp_path, method):
    sites = Sites(tmp_path, offer_of(run_file(method=method))).begin()
    shared = sites.conduct()
    sites.parts["party-1"].save(sites.shared)
    home = sites.homes["party-1"].folder
    model = Model.load(home)
    assert model.item_ids == shared.item_ids
    assert model.method == method["name"]
    assert model.stamp.startswith("(4.00, 1e-06)-DP")
    assert len(model.recommend({shared.item_ids[0].item(): 5.0}, n=3)) == 3
    assert {path.stat().st_mode & 0o777 for path in (home / "home" / "model").iterdir()} == {0o600}
    sites.leave()


def whole_run(folder, tmp_path, monkeypatch, offer, policy):
    """A whole run; what a kill would leave of the first site, and how many requests it had answered by then."""
    home_of(folder)
    sites = []

    def work():
        sites.append(Sites(folder, offer, policy))
        sites[0].begin()
        sites[0].conduct()
        sites[0].parts["party-1"].save(sites[0].shared)
        sites[0].leave()

    def answered():
        return sum(answer.party == "party-1" for answer in sites[0].answers) if sites else 0

    states = states_of(folder / "party-1", tmp_path / "killed", monkeypatch, work, answered)
    return sites[0], states


@pytest.mark.parametrize(
    ("method", "aggregation", "private"),
    [(CHAIN, "plain", True), (BIAS, "secagg", True), (CHAIN, "plain", False), (BIAS, "secagg", False)],
    ids=["chain", "secagg", "non-private", "non-private secagg"],
)
def test_a_site_that_was_killed_at_any_write_goes_on(tmp_path, monkeypatch, method, aggregation, private):
    sections = {"method": method, "aggregation": {"name": aggregation}, **({} if private else {"privacy": None})}
    offer, policy = offer_of(run_file(**sections)), Policy(non_private=not private)
    (tmp_path / "whole").mkdir()
    sites, states = whole_run(tmp_path / "whole", tmp_path, monkeypatch, offer, policy)
    asks = [ask for name, ask in sites.asked if name == "party-1"]
    answers = [answer for answer in sites.answers if answer.party == "party-1"]
    whole = sites.homes["party-1"]
    assert len(states) > (20 if private else 10)
    for state, done in states:
        home = home_of(state.parent, policy=policy)
        recorded = {row.request for path in ledgers_in(home.ledgers) for row in rows_of(home)}
        part = SiteRun(home, offer.run, offer.content())
        part.sizes()
        part.begin(sites.begin_content)
        for ask, answer in zip(asks[done:], answers[done:], strict=True):
            kept = ask.request.hash in recorded or part._memory.answered(ask.request.hash) is not None
            given = part.answer(ask)
            assert given.status == "ok"
            if kept or not (private or aggregation == "secagg"):
                assert given == answer
            elif aggregation == "secagg":  # what the others sent goes with the keys and shares that were lost
                break
        part.save(sites.shared)
        part.leave()
        read_predictor(home.folder / "home" / "predictor.tct")
        charged = [(row.step, row.event) for row in costly(home)]
        assert charged == [(row.step, row.event) for row in costly(whole)][: len(charged)]
        assert len(charged) == len(costly(whole)) or aggregation == "secagg"


def test_a_site_that_was_killed_at_any_write_of_its_alignment_goes_on(tmp_path, monkeypatch):
    """The secret with which ids were blinded is gone in the end, whenever the site was killed."""
    sections = {"by": "item", "into": 3, "align": "psi", "keep": "shared"}
    learns = {"name": "sgdmf", "factors": 2, "rounds": 1, "local_steps": 1, "sampling": 1.0, "fine_tuning": 0}
    offer, policy = offer_of(run_file(partition=sections, privacy=None, method=learns)), Policy(non_private=True)
    sources = item_sources(tmp_path)
    (tmp_path / "whole").mkdir()
    sites = Sites(tmp_path / "whole", offer, policy, sources)
    said = []

    def say(name, _about, content):
        reply = sites.parts[name].align(content)
        said.extend([content] if name == "party-1" else [])
        return reply

    def work():
        sites.align(tmp_path / "aligned.tct", say)

    states = states_of(tmp_path / "whole" / "party-1", tmp_path / "killed", monkeypatch, work, lambda: len(said))
    expected = sites.parts["party-1"].data.share.ratings
    assert len(states) > 10
    for state, done in states:
        home = home_of(state.parent, policy=policy, source=sources["party-1"])
        part = SiteRun(home, offer.run, offer.content())
        for content in said[done:]:
            part.align(content)
        kept = {path.suffix: path.stat().st_mode & 0o777 for path in (home.folder / "aligned").glob("[!.]*")}
        assert kept == dict.fromkeys((".place", ".rows", ".blinded"), 0o600)
        if done:
            np.testing.assert_array_equal(part.data.share.ratings.values, expected.values)
