"""Sites that hold the same users: what each charges, and the roster that their guarantee rests on."""

import json
from dataclasses import replace

import pytest
from one_site import DATA, NAMES, Sites, costly, home_of, item_sources, offer_of, rows_of, run_file

from tacit.boundary.account import epsilon
from tacit.boundary.events import Gaussian
from tacit.boundary.protection import BudgetSpent, total_epsilon
from tacit.deploy.policy import Policy
from tacit.deploy.site_run import SiteRun, check_budget
from tacit.errors import PrivacyRefused
from tacit.guarantee import Relation
from tacit.prepare.plan import ROSTER_REPORTED
from tacit.report.site_ledger import SiteLedger, run_notes
from tacit.report.site_report import site_page

VERTICAL = {"by": "item", "into": 3, "align": "hashed"}
FILE = run_file(partition=VERTICAL, privacy={"epsilon": 1.0, "delta": 1e-6})
OFFER = offer_of(FILE)
FEWER = replace(OFFER, roster=NAMES[:2])
KEYS = {"party-2": "2" * 64, "party-3": "3" * 64}
KEY = b"k" * 32


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return item_sources(tmp_path_factory.mktemp("thirds"))


def done(folder, tables, offer, **rules) -> Sites:
    """A whole run among the sites of an offer."""
    sites = Sites(folder, offer, Policy(align_key=KEY, **rules), tables)
    sites.align(folder / f"{offer.run}.tct")
    sites.begin().conduct()
    sites.leave()
    return sites


def part_of(folder, tables, offer, **rules) -> SiteRun:
    """The first site, which looks at an offer."""
    home = home_of(folder, policy=Policy(align_key=KEY, **rules), source=tables["party-1"])
    return SiteRun(home, offer.run, offer.content())


def test_a_site_charges_what_its_users_spend_at_all_sites(tmp_path, tables):
    sites = done(tmp_path, tables, OFFER, max_epsilon=1.0)
    z = sites.agreed.plan.multiplier
    true = float(epsilon([Gaussian(z)] * len(NAMES), 1e-6, Relation.ZERO_OUT))
    assert true == pytest.approx(1.0, rel=1e-3)
    for home in sites.homes.values():
        (row,) = costly(home)
        assert row.spent == Gaussian(z, len(NAMES))
        assert total_epsilon(rows_of(home), 1e-6) == pytest.approx(true, rel=1e-9)
        (note,) = json.loads((home.ledgers / "runs.json").read_text()).values()
        assert note["parties"] == len(NAMES)
        rows, notes = rows_of(home), run_notes(home.ledger)
        kept = SiteLedger(home.name, home.ledger, rows, [true] * len(rows), 1e-6, Relation.ZERO_OUT, notes=notes)
        assert "over all 3 parties that hold one user" in site_page(kept, "")
    second = replace(OFFER, run="run-2")
    with pytest.raises(BudgetSpent, match="budget is 1") as refused:
        part_of(tmp_path, tables, second, max_epsilon=1.0)
    assert refused.value.exit_code == 4


def stated(file) -> str:
    return str(offer_of(file).planned(len(DATA.item_ids), len(NAMES)).terms.guarantee)


def test_the_guarantee_says_that_it_rests_on_the_roster():
    assert f"against the coordinator and other silos, {ROSTER_REPORTED}" in stated(FILE)


def test_no_other_guarantee_says_so():
    """A rating is in one silo, and where users are divided a user is too; a simulation's roster is nobody's word."""
    rating, user = {"epsilon": 1.0, "delta": 1e-6, "unit": "rating"}, {"epsilon": 1.0, "delta": 1e-6}
    for sections in (
        {"partition": VERTICAL, "privacy": rating},
        {"partition": {"into": 3}, "privacy": user},
        {"partition": VERTICAL, "privacy": user, "engine": {"name": "flare", "seeded": True}},
    ):
        assert stated(run_file(**sections)).partition(" · SIMULATED")[0].endswith("the coordinator and other silos")


@pytest.mark.parametrize(
    ("rules", "offer", "words"),
    [
        ({"peers": KEYS}, FEWER, r"lacks party-3, .* \(--peers\)"),
        ({"peers": {"party-2": "2" * 64}}, OFFER, r"has party-3, .* \(--peers\)"),
        ({"file": FILE}, FEWER, r"2 parties, .* \(--run\) says \[partition\] into = 3"),
        ({"file": FILE, "peers": {"party-2": "2" * 64}}, FEWER, "into = 3"),
    ],
)
def test_a_pinned_roster_is_the_one_that_is_offered(tmp_path, tables, rules, offer, words):
    with pytest.raises(PrivacyRefused, match=words) as refused:
        part_of(tmp_path, tables, offer, **rules)
    assert refused.value.exit_code == 4
    assert costly(home_of(tmp_path, source=tables["party-1"])) == []


@pytest.mark.parametrize(("rules", "option"), [({"peers": KEYS}, "--peers"), ({"file": FILE}, "--run")])
def test_a_site_that_pins_says_so_where_it_states_the_guarantee(tmp_path, tables, rules, option):
    part = part_of(tmp_path, tables, OFFER, **rules)
    policy, held = Policy(align_key=KEY, **rules), part.data
    made, _budget = check_budget(policy, OFFER, held, tmp_path / "ledger" / "party-1.sqlite", "party-1")
    words = policy.stated(made.terms.guarantee, OFFER)
    assert f"if every site pins the roster as this one did ({option})" in words
    assert ROSTER_REPORTED not in words
    assert policy.stated(made.terms.guarantee, OFFER) != Policy().stated(made.terms.guarantee, OFFER)


def test_what_a_site_pinned_stands_beside_its_ledger(tmp_path, tables):
    sites = done(tmp_path, tables, OFFER, file=FILE)
    (note,) = json.loads((sites.homes["party-1"].ledgers / "runs.json").read_text()).values()
    assert "pins the roster as this one did (--run)" in note["guarantee"]


def test_where_the_number_of_parties_costs_nothing_fewer_may_take_part():
    """Users that are divided, ratings that are protected: others' releases are of others."""
    for sections in (
        {"partition": {"into": 3}},
        {"partition": VERTICAL, "privacy": {"epsilon": 1.0, "unit": "rating"}},
    ):
        file = run_file(**sections)
        for rules in ({"peers": KEYS}, {"file": file}):
            Policy(align_key=KEY, **rules).check(replace(offer_of(file), roster=NAMES[:2]), "party-1")


def test_planted_a_site_that_takes_any_roster_is_noticed(tmp_path, tables, monkeypatch):
    monkeypatch.setattr(Policy, "_check_roster", lambda *_given: None)
    with pytest.raises(pytest.fail.Exception):
        test_a_pinned_roster_is_the_one_that_is_offered(tmp_path, tables, {"peers": KEYS}, FEWER, "lacks")
