"""Single bounds of a deployment: rows that tell nothing, keys that owners gave, times that stay where they lie."""

import json

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from one_site import DATA, NAMES, Sites, costly, home_of, offer_of, run_file, write_csv

from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import BudgetSpent
from tacit.data.load import load
from tacit.data.synthetic import demo
from tacit.deploy import align, part
from tacit.deploy.align import aligned
from tacit.deploy.certificates import identity_text
from tacit.deploy.part import Part
from tacit.deploy.policy import Policy
from tacit.deploy.source import Source
from tacit.errors import PrivacyRefused, TamperingFound
from tacit.secure.alignment import common_rows, tags

# -- rows of a common list ----------------------------------------------------------------------------------------

#: Users of each site by number: 40 that all have, and some of its own.
USERS = {name: [*range(40), *range(100 * k, 100 * k + 5)] for k, name in enumerate(NAMES, start=1)}
WAYS = ["psi", "hashed"]


def rows_twice(folder, way: str) -> list[dict[str, np.ndarray]]:
    """The rows of two alignments of the same sets, under one offer: the same run, the same seed, the same tags."""
    offer = offer_of(run_file(partition={"by": "item", "into": 3, "align": way}, privacy=None))
    lists = {name: tags(b"k" * 32, users) for name, users in USERS.items()}

    def say(name, _about, content):
        return {"list": lists[content.get("owner", name)]}

    sizes = {name: len(users) for name, users in USERS.items()}
    found = [aligned(offer, sizes, say, folder / f"{number}.tct") for number in (1, 2)]
    assert [count for count, _rows in found] == [40, 40]
    return [rows for _count, rows in found]


@pytest.mark.parametrize("way", WAYS)
def test_rows_of_a_common_list_are_in_an_order_that_nobody_knows_beforehand(tmp_path, way):
    """Two orders of 40 users are the same by chance once in 40! ≈ 8·10⁴⁷ times; who is on the list is the same."""
    one, other = rows_twice(tmp_path, way)
    for name in NAMES:
        np.testing.assert_array_equal(one[name] < 0, other[name] < 0)
        assert sorted(one[name][one[name] >= 0]) == list(range(40))
        assert not np.array_equal(one[name], other[name])


@pytest.mark.parametrize("way", WAYS)
def test_planted_rows_in_the_order_of_the_run_s_seed_would_be_noticed(tmp_path, monkeypatch, way):
    """A site that can compute tags, and knows the seed, knows that order: where others' users fall between its own."""
    seed = offer_of(run_file()).file.seed
    monkeypatch.setattr(align, "common_rows", lambda lists, keep, _drawn: common_rows(lists, keep, seed))
    with pytest.raises(AssertionError):
        test_rows_of_a_common_list_are_in_an_order_that_nobody_knows_beforehand(tmp_path, way)


# -- whom a site works with ---------------------------------------------------------------------------------------

UNSIGNED = {"plain": offer_of(run_file()), "secagg": offer_of(run_file(aggregation={"name": "secagg"}))}


def begun(folder, offer, told_by_coordinator: dict[str, str], knows_peers: bool = True) -> Part:
    """The first site's part in a run that signs nothing, begun with the keys that a coordinator names."""
    sites = Sites(folder, offer)
    keys = json.loads(sites.begin_content["identities"])
    others = {name: key for name, key in keys.items() if name != "party-1"}
    part = Part(home_of(folder, policy=Policy(peers=others if knows_peers else None)), offer.run, offer.content())
    try:
        part.begin({**sites.begin_content, "identities": json.dumps({**keys, **told_by_coordinator})})
    finally:
        part.leave()
        assert costly(sites.homes["party-1"]) == []
    return part


def another_key(name: str) -> dict[str, str]:
    return {name: identity_text(Ed25519PrivateKey.generate().public_key())}


@pytest.mark.parametrize("name", NAMES[1:])
@pytest.mark.parametrize("aggregation", UNSIGNED)
def test_a_site_that_was_given_keys_is_told_no_others_also_where_nothing_is_signed(tmp_path, aggregation, name):
    """Whoever speaks for a peer under another key may be the coordinator itself."""
    with pytest.raises(TamperingFound, match=f"{name} signs with another key"):
        begun(tmp_path, UNSIGNED[aggregation], another_key(name))


@pytest.mark.parametrize("aggregation", UNSIGNED)
def test_keys_as_their_owners_gave_them_are_fine_and_so_is_not_knowing_any(tmp_path, aggregation):
    (tmp_path / "unknown").mkdir()
    assert begun(tmp_path, UNSIGNED[aggregation], {})
    assert begun(tmp_path / "unknown", UNSIGNED[aggregation], another_key("party-2"), knows_peers=False)


def test_planted_a_site_that_does_not_compare_keys_would_be_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(Part, "_others", lambda self, agreed, identities: {})
    assert begun(tmp_path, UNSIGNED["plain"], another_key("party-2"))


# -- times --------------------------------------------------------------------------------------------------------


def test_when_somebody_rated_is_not_in_a_site_s_share(tmp_path):
    """What is not in it no step of any method can let out."""
    path = write_csv(tmp_path / "ratings.csv", DATA)
    assert load(path, scale=(1, 5)).times is not None
    held = Source(path).held(offer_of(run_file()), "party-1", tmp_path)
    assert held.share.ratings.n_ratings > 0
    assert held.share.ratings.times is None


# -- one lock behind the other ------------------------------------------------------------------------------------


def test_delta_is_held_to_the_site_s_own_users_before_sizes_leave(tmp_path):
    """300 users: a δ of 5·10⁻⁵ would be fine for a site of 100, and is refused before anything was said."""
    many = demo(users=300, items=16, ratings=3000)
    public = {"scale": [1, 5], "users": 300}
    offer = offer_of(run_file(public=public, privacy={"epsilon": 4.0, "delta": 5e-5}), items=many.item_ids)
    home = home_of(tmp_path, source=Source(write_csv(tmp_path / "many.csv", many)))
    with pytest.raises(PrivacyRefused, match=r"above 3\.3e-05"):
        Part(home, "run-1", offer.content())


def test_a_run_that_was_accepted_by_mistake_does_not_begin(tmp_path, monkeypatch):
    """Planted: a site that does not look at what an offer costs; where the run begins the same rules hold again."""
    monkeypatch.setattr(part, "affordable", lambda *_offer: None)
    sites = Sites(tmp_path, offer_of(run_file()), Policy(max_epsilon=3.0))
    with pytest.raises(BudgetSpent, match="allows 3"):
        sites.begin()
    sites.leave()
    assert costly(sites.homes["party-1"]) == []


def test_a_ledger_knows_whose_it_is_once_a_run_has_begun(tmp_path):
    """Another roster under the same ledger would begin with budgets that others have spent, or share theirs."""
    sites = Sites(tmp_path, offer_of(run_file())).begin()
    sites.leave()
    home = sites.homes["party-1"]
    ledger = Ledger.open(home.ledger)
    ledger.bind_people(sites.parts["party-1"]._held.people)
    with pytest.raises(PrivacyRefused, match="kept for other people"):
        ledger.bind_people([f"stranger {k}" for k in range(16)])
    ledger.close()
