"""A site's service, message by message and without a line: which run it is in, what its replies tell, when it ends."""

import json
from dataclasses import replace

import numpy as np
import pytest
from one_site import Sites, home_of, offer_of, rows_of, run_file

from tacit.boundary.events import Metrics
from tacit.boundary.ledger import Ledger
from tacit.boundary.wire import encode
from tacit.deploy import site_service as module
from tacit.deploy.logs import ServiceLog
from tacit.deploy.policy import Policy
from tacit.deploy.service_status import Status
from tacit.deploy.site_service import Site
from tacit.engine.envelope import TimedRequest
from tacit.errors import PeerFailed, PrivacyRefused, TacitError, TamperingFound
from tacit.federation.messages import Request

OFFER = offer_of(run_file())


def service_of(folder, home, stays=False) -> Site:
    return Site(home, ServiceLog(folder, home.name), Status(folder, home.name, "hearts"), stays)


@pytest.fixture
def begun(tmp_path):
    """The service of party-1 in a run that has begun, and all sites' parts in it."""
    sites = Sites(tmp_path, OFFER).begin()
    service = service_of(tmp_path, sites.homes["party-1"])
    sites.parts["party-1"].leave()
    assert "error" not in service._handle("offer", "run-1", OFFER.content())
    assert set(service._handle("begin", "run-1", sites.begin_content)) == {"bound"}
    yield service, sites
    service._leave()
    sites.leave()


def ask_of(agreed, round=1, **change) -> dict:
    request = Request(agreed.method.name, agreed.bound, "contribute", round, 0, encode({}))
    return TimedRequest(replace(request, **change), 9.0).content()


def released(sites) -> list:
    return [row for row in rows_of(sites.homes["party-1"]) if row.step == "contribute"]


@pytest.mark.parametrize("topic", ["ask", "begin", "align", "end"])
def test_a_message_of_another_run_changes_nothing(begun, topic):
    service, sites = begun
    content = {"ask": ask_of(sites.agreed), "begin": sites.begin_content, "align": {"stage": "first"}, "end": {}}[topic]
    assert service._handle(topic, "run-2", content)["error"] == "BadMessage"
    assert released(sites) == []
    assert service._part is not None
    assert not service._over
    assert "error" not in service._handle("ask", "run-1", ask_of(sites.agreed))
    assert len(released(sites)) == 1


def test_with_privacy_a_failure_has_no_words(begun):
    """A request of other terms, one of a step that is not: that they failed is told, and not how."""
    service, sites = begun
    for change in ({"parameters": "other"}, {"step": "nosuch"}, {"body": b"junk"}):
        reply = service._handle("ask", "run-1", ask_of(sites.agreed, **change))
        assert (reply["error"], reply["why"]) == ("BadMessage", "")
    assert released(sites) == []


def test_a_spent_budget_is_told_without_numbers(tmp_path):
    """Two runs were accepted before either cost anything; the second one to ask is refused, discreetly."""
    one, two = Sites(tmp_path, OFFER), replace(OFFER, run="run-2", file=OFFER.file.model_copy(update={"seed": 8}))
    service = service_of(tmp_path, one.homes["party-1"])
    service._handle("offer", "run-2", two.content())
    one.begin().conduct()
    one.leave()
    (tmp_path / "elsewhere").mkdir()
    others = Sites(tmp_path / "elsewhere", two).begin()  # the same sites, for what they agree on
    service._handle("begin", "run-2", others.begin_content)
    reply = service._handle("ask", "run-2", ask_of(others.agreed))
    service._leave()
    others.leave()
    assert (reply["status"], reply["why"]) == ("refused", "party-1 refuses: its budget does not cover this release.")


def test_a_new_offer_ends_the_part_in_the_run_before(begun):
    """Even an offer that is refused: what was begun is begun anew or not at all."""
    service, sites = begun
    before = service._part
    refused = replace(OFFER, run="run-2", roster=("party-2", "party-3"))
    assert service._handle("offer", "run-2", refused.content())["error"] == "PrivacyRefused"
    assert before.party is None
    assert service._handle("ask", "run-2", ask_of(sites.agreed))["error"] == "BadMessage"
    assert released(sites) == []


def test_a_folder_with_another_names_ledger_is_not_served_from(tmp_path, monkeypatch):
    home = home_of(tmp_path)
    home.ledgers.mkdir()
    Ledger(home.ledgers / "party-9.sqlite", "party-9").close()
    monkeypatch.setattr(module, "SiteChannel", lambda *_place: pytest.fail("it was about to connect"))
    with pytest.raises(PrivacyRefused, match="holds the ledger of party-9"):
        service_of(tmp_path, home).serve()


# -- metrics ------------------------------------------------------------------------------------------------------


@pytest.fixture
def sharing(tmp_path):
    sites = Sites(tmp_path, OFFER, Policy(shares_metrics=True)).begin()
    yield sites
    sites.leave()


def told(sites, biases) -> dict:
    return sites.parts["party-1"].keep({"biases": np.full(16, biases, np.float32), "mean": np.float32(3)})


def test_metrics_are_told_once_a_run_whatever_models_come(sharing):
    """A coordinator that could ask again would learn the error of any model that it likes, and so every rating."""
    sharing.conduct()
    assert "metrics" in told(sharing, 0.0)
    for number in range(1, 4):
        assert told(sharing, number / 10) == {}
    mine = [row for row in rows_of(sharing.homes["party-1"]) if isinstance(row.spent, Metrics)]
    assert len(mine) == 1


def test_metrics_are_not_told_of_a_run_that_released_nothing(sharing):
    """Otherwise an offer, a beginning and an end would be a question at no cost."""
    assert told(sharing, 0.0) == {}
    assert not any(isinstance(row.spent, Metrics) for row in rows_of(sharing.homes["party-1"]))


# -- how it ends, and what it shows ------------------------------------------------------------------------------------


def test_an_end_before_any_offer_is_an_end(tmp_path):
    service = service_of(tmp_path, home_of(tmp_path))
    assert service._handle("end", "", {"why": "too few came", "words": "{}"}) == {"ended": True}
    assert service._status.now()["message"] == "too few came"


@pytest.mark.parametrize("why", ["\x1b[2Jall is well", "two\nlines"])
def test_what_is_said_to_a_hello_does_not_command_the_terminal(why):
    """Whoever answers in the coordinator's place has not signed it."""
    with pytest.raises(PeerFailed, match="does not let this site in") as found:
        module._let_in(json.dumps({"error": "PeerFailed", "why": why}).encode())
    assert str(found.value).isprintable()


def test_a_full_disk_ends_the_service_and_is_no_tampering(begun, monkeypatch):
    service, sites = begun

    def full(*_ask):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(service._part, "answer", full)
    reply = service._handle("ask", "run-1", ask_of(sites.agreed))
    assert reply == {"error": "PeerFailed", "why": ""}
    assert type(service._failure) is TacitError
    assert service._failure.exit_code == 1
    assert str(service._failure).endswith(
        "(No space left on device), so the answer has not left; make room and join again."
    )
    assert service._status.now()["state"] == "failed"
    service._replied("ask")
    assert service._ended.is_set()


def test_a_site_whose_own_trouble_ended_a_run_shows_that_and_not_what_it_is_told_of_itself(begun):
    service, sites = begun
    service._handle("ask", "run-1", ask_of(sites.agreed, step="nosuch"))
    own = service._status.now()["message"]
    service._handle("end", "run-1", {"why": "party-1 did not answer; its own terminal says why.", "words": "{}"})
    assert own
    assert service._status.now()["message"] == own
    assert service._status.now()["state"] == "failed"


@pytest.mark.parametrize("why", ["", "too few came"])
def test_a_service_that_stays_waits_between_runs(tmp_path, why):
    staying, leaving = (service_of(tmp_path, home_of(tmp_path), stays) for stays in (True, False))
    for service in (staying, leaving):
        service._handle("end", "", {"why": why, "words": "{}"})
    shown = staying._status.now()
    assert (shown["state"], shown["alive"]) == ("waiting", True)
    assert shown["message"]
    assert leaving._status.now()["state"] == ("failed" if why else "done")


def test_bytes_and_budget_are_shown_from_the_beginning(begun):
    service, sites = begun
    shown = service._status.now()
    assert (shown["epsilon"], shown["budget"]) == (0.0, 4.0)
    assert (shown["bytes_up"], shown["bytes_down"]) == (0, 0)
    ask = ask_of(sites.agreed)
    reply = service._handle("ask", "run-1", ask)
    shown = service._status.now()
    assert (shown["bytes_up"], shown["bytes_down"]) == (len(reply["body"]), len(ask["body"]))
    service._handle("ask", "run-1", ask)
    assert service._status.now()["bytes_up"] == 2 * len(reply["body"])


def test_what_a_site_finds_wrong_at_home_is_elsewhere_a_site_that_failed(tmp_path):
    damaged = TamperingFound("The ledger is not what it was.")
    assert type(module._abroad(damaged, home_of(tmp_path))) is PeerFailed
    assert module._abroad(damaged, home_of(tmp_path, policy=Policy(local=True))) is damaged
    refusal = PrivacyRefused("No.")
    assert module._abroad(refusal, home_of(tmp_path)) is refusal
