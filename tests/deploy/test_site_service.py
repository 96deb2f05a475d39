"""A site's service, message by message: which run it is in, what its replies reveal, when it ends."""

import json
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from one_site import DATA, Sites, home_of, offer_of, request_of, rows_of, run_file, service_of, write_csv

from tacit.boundary.events import Metrics
from tacit.boundary.ledger import Ledger
from tacit.data.catalogue import Catalogue
from tacit.data.vocabulary import Vocabulary
from tacit.deploy import site_service as module
from tacit.deploy.policy import Policy
from tacit.deploy.site_data import Source
from tacit.errors import DataError, PrivacyRefused, TacitError, TamperingFound

OFFER = offer_of(run_file())
AGAIN = replace(OFFER, run="run-2", file=OFFER.file.model_copy(update={"seed": 8}))


@pytest.fixture
def begun(tmp_path):
    """The service of party-1 in a run that has begun, and all sites' parts in it."""
    sites = Sites(tmp_path, OFFER).begin()
    service = service_of(tmp_path, sites.homes["party-1"])
    sites.parts["party-1"].leave()
    assert "error" not in service.handle("offer", "run-1", OFFER.content())
    assert set(service.handle("begin", "run-1", sites.begin_content)) == {"bound"}
    yield service, sites
    service.leave()
    sites.leave()


def ask_of(agreed, **change) -> dict:
    request = request_of(agreed, "contribute")
    return replace(request, request=replace(request.request, **change)).content()


def released(sites) -> list:
    return [row for row in rows_of(sites.homes["party-1"]) if row.step == "contribute"]


def shown(service) -> dict:
    return service._status.now()


@pytest.mark.parametrize("topic", ["ask", "begin", "align", "end"])
def test_a_message_of_another_run_changes_nothing(begun, topic):
    service, sites = begun
    content = {"ask": ask_of(sites.agreed), "begin": sites.begin_content, "align": {"stage": "first"}, "end": {}}[topic]
    assert service.handle(topic, "run-2", content)["error"] == "BadMessage"
    assert released(sites) == []
    assert "error" not in service.handle("ask", "run-1", ask_of(sites.agreed))
    assert len(released(sites)) == 1


def test_with_privacy_a_failure_has_no_words(begun):
    service, sites = begun
    for change in ({"parameters": "other"}, {"step": "nosuch"}, {"body": b"junk"}):
        reply = service.handle("ask", "run-1", ask_of(sites.agreed, **change))
        assert (reply["error"], reply["why"]) == ("BadMessage", "")
    assert released(sites) == []


def test_a_spent_budget_is_reported_without_numbers(tmp_path):
    """Two runs were accepted before either cost anything; the second one to release is refused, as an answer."""
    one = Sites(tmp_path, OFFER)
    service = service_of(tmp_path, one.homes["party-1"])
    service.handle("offer", "run-2", AGAIN.content())
    one.begin().conduct()
    one.leave()
    (tmp_path / "elsewhere").mkdir()
    others = Sites(tmp_path / "elsewhere", AGAIN).begin()  # the same sites, for the facts they agree on
    service.handle("begin", "run-2", others.begin_content)
    reply = service.handle("ask", "run-2", ask_of(others.agreed))
    service.leave()
    others.leave()
    assert (reply["status"], reply["why"]) == ("refused", "party-1 refuses: its budget does not cover this release.")
    with closing(Ledger.open(one.homes["party-1"].ledger)) as ledger:
        (refusal,) = ledger.refusals()["told"]
    assert (refusal["run"], refusal["step"]) == ("run-2", "contribute")


@pytest.mark.parametrize("limit", [None, 2.718])
def test_a_refused_offer_reveals_no_budget_and_no_spending(tmp_path, limit):
    sites = Sites(tmp_path, OFFER).begin()
    sites.conduct()
    sites.leave()
    service = service_of(tmp_path, replace(sites.homes["party-1"], policy=Policy(max_epsilon=limit)))
    reply = service.handle("offer", "run-2", AGAIN.content())
    assert reply == {"error": "PrivacyRefused", "why": "party-1 refuses: its budget does not cover this run."}
    assert ("its budget is 4" if limit is None else "2.718") in shown(service)["message"]


def test_an_error_about_data_is_not_sent(tmp_path):
    path = write_csv(tmp_path / "odd.csv", DATA)
    with (tmp_path / "odd.csv").open("a") as file:
        file.write('\n"secret-person","secret-item",five,0\n')
    home = home_of(tmp_path, source=Source(path))
    reply = service_of(tmp_path, home).handle("offer", "run-1", OFFER.content())
    assert reply["error"] == "PeerFailed"
    assert reply["why"].startswith("party-1 cannot take part (")
    assert "secret" not in reply["why"]


@pytest.mark.parametrize("sections", [{"engine": {"name": "flare", "seeded": True}}, {"privacy": None}])
def test_a_broken_rule_is_sent(tmp_path, sections):
    service = service_of(tmp_path, home_of(tmp_path))
    reply = service.handle("offer", "run-1", offer_of(run_file(**sections)).content())
    assert reply["error"] == "PrivacyRefused"
    assert reply["why"] == f"party-1 refuses: {shown(service)['message']}"


@pytest.mark.parametrize(
    ("error", "local", "sent"),
    [
        (TamperingFound('"/srv/ledger" is not what it was.'), False, "party-1 failed (TamperingFound); see its own"),
        (DataError('"/data/patients.csv" has no ratings.'), False, "party-1 failed (DataError); see its own"),
        (TamperingFound('"/srv/ledger" is not what it was.'), True, '"/srv/ledger" is not'),
        (PrivacyRefused("No."), False, "No."),
    ],
)
def test_without_privacy_a_failure_is_sent_but_not_the_names_of_files(tmp_path, monkeypatch, error, local, sent):
    def fail(*_content):
        raise error

    monkeypatch.setattr(module.SiteRun, "begin", fail)
    offer = offer_of(run_file(privacy=None), local=local)
    service = service_of(tmp_path, home_of(tmp_path, policy=Policy(non_private=True, local=local)))
    service.handle("offer", "run-1", offer.content())
    assert service.handle("begin", "run-1", {})["why"].startswith(sent)


def test_a_new_offer_ends_the_part_in_the_run_before(begun):
    """Even an offer that is refused."""
    service, sites = begun
    refused = replace(OFFER, run="run-2", roster=("party-2", "party-3"))
    assert service.handle("offer", "run-2", refused.content())["error"] == "PrivacyRefused"
    for run in ("run-1", "run-2"):
        assert service.handle("ask", run, ask_of(sites.agreed))["error"] == "BadMessage"
    assert released(sites) == []


def test_a_folder_with_another_names_ledger_is_not_served_from(tmp_path, monkeypatch):
    home = home_of(tmp_path)
    home.ledgers.mkdir()
    Ledger(home.ledgers / "party-9.sqlite", "party-9").close()
    monkeypatch.setattr(module, "SiteChannel", lambda *_place: pytest.fail("it was about to connect"))
    with pytest.raises(PrivacyRefused, match="holds the ledger of party-9"):
        service_of(tmp_path, home).serve()


def test_ratings_off_the_list_are_reported_at_this_site_alone(tmp_path):
    there, sentences = DATA.item_ids.ids, []
    home = home_of(tmp_path, source=Source(write_csv(tmp_path / "all.csv", DATA)))
    service = service_of(tmp_path, home, report=sentences.append)
    assert service.handle("offer", "run-1", OFFER.content())
    assert sentences == []
    offer = replace(OFFER, catalogue=Catalogue(Vocabulary(there[:-5], "item")))
    reply = service.handle("offer", "run-1", offer.content())
    gone = int((DATA.items >= len(there) - 5).sum())
    (sentence,) = sentences
    assert sentence.startswith(
        f"Left out: {gone} of {DATA.n_ratings} ratings, since their items are not on the run's list"
    )
    assert "Left out" not in json.dumps(shown(service)) + (tmp_path / "log.jsonl").read_text()
    assert reply == {"users": DATA.n_users, "ratings": 0, "devices": 0}


@pytest.fixture
def sharing(tmp_path):
    sites = Sites(tmp_path, OFFER, Policy(shares_metrics=True)).begin()
    yield sites
    sites.leave()


def shared(sites, biases) -> dict:
    return sites.parts["party-1"].save({"biases": np.full(16, biases, np.float32), "mean": np.float32(3)})


def test_metrics_are_sent_once_a_run_whatever_models_come(sharing):
    """A coordinator that could ask again would learn the error of any model that it likes, and so every rating."""
    sharing.conduct()
    assert "metrics" in shared(sharing, 0.0)
    for number in range(1, 4):
        assert shared(sharing, number / 10) == {}
    assert sum(isinstance(row.spent, Metrics) for row in rows_of(sharing.homes["party-1"])) == 1


def test_metrics_are_not_sent_of_a_run_that_released_nothing(sharing):
    """Otherwise an offer, a beginning and an end would be a question at no cost."""
    assert shared(sharing, 0.0) == {}
    assert not any(isinstance(row.spent, Metrics) for row in rows_of(sharing.homes["party-1"]))


BAD_ENDS = {
    "too few items": {"biases": np.zeros(1, np.float32)},
    "not finite": {"biases": np.full(DATA.n_items, np.nan, np.float32)},
    "another block": {"ratings": np.zeros(3, np.float32)},
    "nothing": {},
}


@pytest.mark.parametrize("end", BAD_ENDS)
def test_the_reply_to_an_end_does_not_depend_on_what_became_of_it(begun, end):
    service, sites = begun
    content = {f"shared/{name}": block for name, block in BAD_ENDS[end].items()}
    assert service.handle("end", "run-1", {"words": "{}", **content}) == {"ended": True}
    assert not (sites.homes["party-1"].folder / "home").exists()


def test_a_full_disk_ends_the_service_and_is_no_tampering(begun, monkeypatch):
    service, sites = begun

    def full(*_ask):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.SiteRun, "answer", full)
    assert service.handle("ask", "run-1", ask_of(sites.agreed)) == {"error": "PeerFailed", "why": ""}
    assert type(service._failure) is TacitError
    assert "(No space left on device), so the answer has not left" in str(service._failure)
    assert shown(service)["state"] == "failed"


def test_a_site_whose_own_error_ended_a_run_shows_it_and_not_the_coordinators_words(begun):
    service, sites = begun
    service.handle("ask", "run-1", ask_of(sites.agreed, step="nosuch"))
    own = shown(service)["message"]
    service.handle("end", "run-1", {"why": "party-1 did not answer; see its own terminal.", "words": "{}"})
    assert own
    assert (shown(service)["message"], shown(service)["state"]) == (own, "failed")


@pytest.mark.parametrize("why", ["", "too few came"])
def test_a_service_that_stays_waits_between_runs(tmp_path, why):
    staying, leaving = (service_of(tmp_path, home_of(tmp_path), stays=stays) for stays in (True, False))
    for service in (staying, leaving):
        assert service.handle("end", "", {"why": why, "words": "{}"}) == {"ended": True}
    assert (shown(staying)["state"], shown(staying)["alive"]) == ("waiting", True)
    assert why in shown(staying)["message"]
    assert (shown(leaving)["state"], shown(leaving)["message"]) == ("failed" if why else "done", why)


def test_bytes_and_budget_are_shown_from_the_beginning(begun):
    service, sites = begun
    assert [shown(service)[name] for name in ("epsilon", "budget", "bytes_up", "bytes_down")] == [0.0, 4.0, 0, 0]
    ask = ask_of(sites.agreed)
    reply = service.handle("ask", "run-1", ask)
    assert (shown(service)["bytes_up"], shown(service)["bytes_down"]) == (len(reply["body"]), len(ask["body"]))
    service.handle("ask", "run-1", ask)
    assert shown(service)["bytes_up"] == 2 * len(reply["body"])
