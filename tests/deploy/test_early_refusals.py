"""A site whose budget does not cover a run refuses when it looks, whoever else is there; its ledger and its page keep
that. What of its ratings a run leaves out is said at home, and nowhere else."""

import json
import threading
from dataclasses import replace

import pytest
from one_site import DATA, Sites, home_of, offer_of, rows_of, run_file, write_csv
from test_presence import NAMES, World
from typer.testing import CliRunner

from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import BudgetSpent
from tacit.boundary.wire import encode
from tacit.cli import app
from tacit.data.catalogue import Catalogue
from tacit.data.vocabulary import Vocabulary
from tacit.deploy import coordinator_service as module
from tacit.deploy.logs import ServiceLog
from tacit.deploy.policy import Policy
from tacit.deploy.service_status import Status
from tacit.deploy.site_data import Source
from tacit.deploy.site_run import SiteRun
from tacit.deploy.site_service import Site
from tacit.engine.coordinator_channel import TAKEN
from tacit.engine.envelope import TimedRequest, failure_content
from tacit.errors import PrivacyRefused
from tacit.federation.messages import Request

OFFER = offer_of(run_file())
SECOND = offer_of(run_file(seed=8), run="run-2")


def refusals(home) -> list[dict]:
    ledger = Ledger.open(home.ledger)
    try:
        ledger.verify()
        return ledger.refusals()["told"]
    finally:
        ledger.close()


# -- in the ledger and on its page ------------------------------------------------------------------------------------


def test_an_offer_that_the_budget_does_not_cover_is_on_the_page_of_what_left(tmp_path):
    home = home_of(tmp_path, policy=Policy(max_epsilon=1.25))
    with pytest.raises(BudgetSpent):
        SiteRun(home, "run-1", OFFER.content())
    assert rows_of(home) == []
    (told,) = refusals(home)
    assert (told["run"], told["step"], told["round"]) == ("run-1", "offer", 0)
    page = tmp_path / "left.html"
    answer = CliRunner().invoke(app, ["ledger", "show", str(home.ledger), "--html", str(page)])
    assert answer.exit_code == 0, answer.stderr
    assert "1 request refused; nothing left for it." in page.read_text()
    assert "this site allows 1.25 (--max-epsilon)" in page.read_text()


def test_a_release_that_the_budget_does_not_cover_is_kept_as_refused(tmp_path):
    """Two runs were accepted before either cost anything; the second one to ask is refused."""
    one, two = Sites(tmp_path, OFFER), Sites(tmp_path, SECOND)
    one.begin().conduct()
    one.leave()
    two.begin()
    request = Request(two.agreed.method.name, two.agreed.bound, "contribute", 1, 0, encode({}))
    answer = two.parts["party-1"].answer(TimedRequest(request, 9.0))
    two.leave()
    assert answer.status == "refused"
    (told,) = refusals(two.homes["party-1"])
    assert (told["run"], told["step"], told["why"]) == ("run-2", "contribute", answer.why)


# -- at once ----------------------------------------------------------------------------------------------------------


class Pushes:
    """A line that takes every message and notes to whom it went."""

    def __init__(self, *_place) -> None:
        self.sent: list[tuple[str, str]] = []

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def send(self, name, topic, *_message):
        self.sent.append((name, topic))
        return TAKEN


def test_whoever_comes_first_is_offered_the_run_and_may_refuse_before_the_others_are_there(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "Cell", Pushes)
    monkeypatch.setattr(module, "LOOK", 0.02)
    world = World(tmp_path)
    offer, sent = replace(OFFER, roster=NAMES), world.coordinator._cell.sent
    gathering = threading.Thread(target=world.coordinator.gather, args=(NAMES, 60.0, offer))
    gathering.start()
    try:
        world.hello("party-1")
        world.until(lambda: ("party-1", "offer") in sent)
        assert world.coordinator.desk.start_of("party-2") == ""  # nobody else is there
        refusal = failure_content(PrivacyRefused("party-1 refuses: its budget does not cover this run."), tell=True)
        said = {"about": offer.hash, **refusal}
        world.coordinator._receive("party-1", "reply", world.sealed("party-1", "reply", said, "run-1"))
        world.until(lambda: "party-1" in world.coordinator.refused)
        assert world.peer("party-1") == "refused"
        assert world.told[-1] == "party-1 refuses: its budget does not cover this run."
        world.hello("party-2")
        gathering.join(10)
        assert not gathering.is_alive()
        assert sent.count(("party-1", "offer")) == 1, "who has refused is not asked again"
    finally:
        world.hello("party-2")
        gathering.join(10)
        world.coordinator.close()


# -- what a run leaves out --------------------------------------------------------------------------------------------


def test_ratings_off_the_list_are_counted_and_named_at_home_alone(tmp_path):
    there = DATA.item_ids.ids
    offer = replace(OFFER, catalogue=Catalogue(Vocabulary(there[:-5], "item")))
    home, said = home_of(tmp_path, source=Source(write_csv(tmp_path / "all.csv", DATA))), []
    status = Status(tmp_path, "party-1", "hearts")
    site = Site(home, ServiceLog(tmp_path, "party-1"), status, tell=said.append)
    reply = site._handle("offer", "run-1", offer.content())
    gone = int((DATA.items >= len(there) - 5).sum())
    (words,) = said
    assert words.startswith(
        f"Left out: {gone} of {DATA.n_ratings} ratings, since their items are not on the run's list"
    )
    assert words.endswith("correct the ids, or have them added to the run's [public] catalogue.")
    assert words.count(", ") >= 3
    assert ", …)" in words
    everywhere = json.dumps(status.now()) + (tmp_path / "log.jsonl").read_text() + str(reply)
    assert str(gone) not in str(reply)
    assert "Left out" not in everywhere
    assert reply == {"users": DATA.n_users, "ratings": 0, "devices": 0}


def test_ratings_that_all_fit_are_not_spoken_of(tmp_path):
    said: list[str] = []
    site = Site(home_of(tmp_path), ServiceLog(tmp_path, "party-1"), Status(tmp_path, "party-1", "h"), tell=said.append)
    site._handle("offer", "run-1", OFFER.content())
    assert said == []
