"""A role's part in a deployed run: which offers it takes, what it answers by, and what it goes on from."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from one_site import DATA, Sites, home_of, kit_of, offer_of, run_file

from tacit.boundary.gate import RoleGate
from tacit.boundary.wire import encode
from tacit.deploy.offer import Offer
from tacit.deploy.policy import Policy
from tacit.deploy.site_data import NoRatings, RoleTable
from tacit.deploy.site_run import RoleRun, SiteRun
from tacit.engine.envelope import TimedRequest
from tacit.errors import BadMessage, DataError, PrivacyRefused, UsageError
from tacit.federation.messages import Request
from tacit.methods import known
from tacit.testing.role_method import WEIGHED

ITEMS = np.ones(len(DATA.item_ids), dtype=np.float32)


@pytest.fixture(autouse=True)
def installed():
    known()[WEIGHED.name] = WEIGHED
    yield
    del known()[WEIGHED.name]


@pytest.fixture
def offer():
    return replace(offer_of(run_file(method={"name": WEIGHED.name, "rounds": 2})), roles=("catalogue",))


def role_home(folder, brings=None, name="catalogue", policy=None):
    place = folder / name
    place.mkdir(exist_ok=True)
    home = home_of(folder, "party-1", policy)
    return replace(home, kit=kit_of(name), folder=place, ledgers=place / "ledger", data=NoRatings(), brings=brings)


def begun(folder, offer, home):
    """The role's part, once the run has begun among three parties."""
    sites = Sites(folder, offer)
    part = RoleRun(home, offer.run, offer.content())
    part.begin(sites.begin_content)
    return part, offer.prepared(part.party.facts)


def asked(made, t, step="weigh"):
    return TimedRequest(Request(WEIGHED.name, made.bound, step, t + 1, 0, encode({"items": ITEMS, "t": t})), 10.0)


def test_an_offer_lists_roles_apart_from_parties_and_its_hash_covers_them(offer):
    read = Offer.of(offer.run, offer.content())
    assert (read.roles, read.roster) == (("catalogue",), ("party-1", "party-2", "party-3"))
    assert read.hash == offer.hash != replace(offer, roles=()).hash


@pytest.mark.parametrize("roles", [["party-4"], ["catalogue", "catalogue"], ["anybody"]])
def test_an_offer_with_roles_that_cannot_be_is_refused(offer, roles):
    with pytest.raises(BadMessage, match="an invalid role, or one twice"):
        Offer.of(offer.run, {**offer.content(), "roles": json.dumps(roles)})


OTHER_FILE = Policy(file=run_file(method={"name": WEIGHED.name, "rounds": 9}))


@pytest.mark.parametrize(
    ("change", "here", "kind", "words"),
    [
        ({"roles": ()}, {}, UsageError, "a run without catalogue"),
        ({}, {"name": "proxy"}, UsageError, "a run without proxy"),
        ({"file": offer_of(run_file()).file}, {}, UsageError, "as installed here have none"),
        ({"local": True}, {}, PrivacyRefused, "up --local"),
        ({}, {"policy": OTHER_FILE}, PrivacyRefused, "another run than the run file"),
    ],
)
def test_a_role_takes_no_offer_that_is_not_for_it_or_not_as_agreed(tmp_path, offer, change, here, kind, words):
    with pytest.raises(kind, match=words):
        RoleRun(role_home(tmp_path, **here), offer.run, replace(offer, **change).content())


def test_a_role_s_kit_cannot_join_as_a_party(tmp_path, offer):
    with pytest.raises(PrivacyRefused, match="catalogue is a role without ratings"):
        SiteRun(role_home(tmp_path), offer.run, offer.content())


def test_a_party_begins_no_run_with_other_roles_than_its_own_code_needs(tmp_path, offer):
    sites = Sites(tmp_path, replace(offer, roles=()))
    with pytest.raises(BadMessage, match="offered with the roles none, and the code installed here needs catalogue"):
        sites.parts["party-1"].begin(sites.begin_content)


def test_a_role_says_nothing_of_itself_and_has_no_ledger_in_a_private_run(tmp_path, offer):
    home = role_home(tmp_path)
    part, made = begun(tmp_path, offer, home)
    assert made.private
    assert part.sizes() == part.spent(now=True) == part.save({}) == {}
    assert part.answer(asked(made, 0)).head == ""
    assert not home.ledgers.exists()
    with pytest.raises(BadMessage, match="no users to align"):
        part.align({"stage": "first"})


def test_a_role_that_was_killed_repeats_its_latest_answer_and_goes_on_from_it(tmp_path, offer):
    home = role_home(tmp_path)
    part, made = begun(tmp_path, offer, home)
    first, second = part.answer(asked(made, 0)), part.answer(asked(made, 1))
    anew, _made = begun(tmp_path, offer, home)
    assert anew.answer(asked(made, 1)) == second
    assert first.body != second.body
    assert int(anew.party.home["asked"]) == 2


def test_a_request_under_other_terms_is_refused(tmp_path, offer):
    part, made = begun(tmp_path, offer, role_home(tmp_path))
    other = TimedRequest(Request(WEIGHED.name, "other", "weigh", 1, 0, encode({"items": ITEMS, "t": 0})), 10.0)
    with pytest.raises(BadMessage, match="other terms"):
        part.answer(other)
    with pytest.raises(BadMessage, match="survivors"):
        part.answer(replace(asked(made, 0), survivors=np.ones(1, dtype=bool)))


def test_a_deployed_role_draws_from_the_operating_system_and_a_simulated_one_from_the_seed(tmp_path, offer):
    part, _made = begun(tmp_path, offer, role_home(tmp_path))
    seeded = RoleGate("catalogue", 7, {})
    for gate, alike in ((part.party.gate, False), (seeded, True)):
        with gate.serving("weigh", 1, 0, "hash"):
            assert (gate._endpoint(1).seed("box") == gate._endpoint(1).seed("box")) is alike
            assert np.array_equal(gate.stream("order").random(4), gate.stream("order").random(4)) is alike
            draws = [gate._endpoint(1).source("coins").words(2).tolist() for _ in range(2)]
            assert (draws[0] == draws[1]) is alike


def table(path, **columns):
    pq.write_table(pa.table(columns), path)
    return RoleTable(path)


def test_what_a_role_brings_is_in_the_order_of_the_run_s_items(tmp_path, offer):
    ids = DATA.item_ids.ids
    brings = table(tmp_path / "own.parquet", item=ids[::-1], year=np.arange(len(ids))[::-1].astype(float))
    part, _made = begun(tmp_path, offer, role_home(tmp_path, brings))
    assert part.party.own_catalogue.ids == DATA.item_ids
    assert np.all(np.diff(part.party.own_catalogue.features()[:, 0]) > 0)
    assert f"{len(ids)} items with year" in brings.check()


def test_items_that_the_role_does_not_know_have_no_features(tmp_path):
    ids = DATA.item_ids.ids
    brings = table(tmp_path / "own.parquet", item=ids[1:], kind=["a"] * (len(ids) - 1), title=ids[1:])
    found = brings.catalogue(DATA.item_ids, "run-1", tmp_path, ("kind",))
    assert found.columns == ("kind",)
    np.testing.assert_array_equal(found.features()[:, 0], [0, *[1] * (len(ids) - 1)])
    with pytest.raises(DataError, match='no column "colour"'):
        brings.catalogue(DATA.item_ids, "run-1", tmp_path, ("colour",))


def test_a_role_may_bring_nothing(tmp_path):
    assert RoleTable().catalogue(DATA.item_ids, "run-1", tmp_path) is None
    assert "none" in RoleTable().check()
    with pytest.raises(DataError, match="no item table"):
        RoleTable(tmp_path / "gone.parquet").check()
