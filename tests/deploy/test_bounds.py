"""Single bounds of a deployment: rows that tell nothing, keys that owners gave, times that stay where they lie."""

import json
import os

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from one_site import DATA, NAMES, Sites, costly, home_of, offer_of, run_file, write_csv
from stated import gate_of, promise, step_terms

from tacit.boundary import Gate
from tacit.boundary.clipped_sums import Clipped
from tacit.boundary.code import Fixed
from tacit.boundary.endpoint import PartySide
from tacit.boundary.events import NonPrivate
from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import BudgetSpent
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec, StepTerms, Terms
from tacit.data.load import load
from tacit.data.synthetic import demo
from tacit.deploy import align
from tacit.deploy import site_run as part
from tacit.deploy.align import align_sites
from tacit.deploy.certificates import identity_text
from tacit.deploy.policy import Policy
from tacit.deploy.site_data import Source
from tacit.deploy.site_run import SiteRun
from tacit.errors import PrivacyRefused, TamperingFound
from tacit.guarantee import NON_PRIVATE
from tacit.kernels.rounding import round_and_add, round_and_add_numpy
from tacit.secure.alignment import common_rows, tags

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
    found = [align_sites(offer, sizes, say, folder / f"{number}.tct") for number in (1, 2)]
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


UNSIGNED, MASKED = offer_of(run_file()), offer_of(run_file(aggregation={"name": "secagg"}))


def begun(folder, offer, told_by_coordinator: dict[str, str], knows_peers: bool = True) -> SiteRun:
    """The first site's part in a run that signs nothing, begun with the keys that a coordinator names."""
    sites = Sites(folder, offer)
    keys = json.loads(sites.begin_content["identities"])
    others = {name: key for name, key in keys.items() if name != "party-1"}
    part = SiteRun(home_of(folder, policy=Policy(peers=others if knows_peers else None)), offer.run, offer.content())
    try:
        part.begin({**sites.begin_content, "identities": json.dumps({**keys, **told_by_coordinator})})
    finally:
        part.leave()
        assert costly(sites.homes["party-1"]) == []
    return part


def another_key(name: str) -> dict[str, str]:
    return {name: identity_text(Ed25519PrivateKey.generate().public_key())}


@pytest.mark.parametrize("name", NAMES[1:])
def test_a_site_that_was_given_keys_is_told_no_others_also_where_nothing_is_signed(tmp_path, name):
    """Whoever speaks for a peer under another key may be the coordinator itself."""
    with pytest.raises(TamperingFound, match=f"{name} signs with another key"):
        begun(tmp_path, UNSIGNED, another_key(name))


def test_keys_as_their_owners_gave_them_are_fine_and_so_is_not_knowing_any(tmp_path):
    (tmp_path / "unknown").mkdir()
    assert begun(tmp_path, UNSIGNED, {})
    assert begun(tmp_path / "unknown", UNSIGNED, another_key("party-2"), knows_peers=False)


def test_secure_sums_that_nobody_signs_are_not_for_a_site_that_knows_its_peers(tmp_path):
    """The coordinator could repeat the peers' public keys, play all of them, and take all noise but this site's off."""
    with pytest.raises(PrivacyRefused, match="signed = true, or join without --peers"):
        begun(tmp_path, MASKED, {})
    (tmp_path / "unknown").mkdir()
    assert begun(tmp_path / "unknown", MASKED, {}, knows_peers=False)


def test_planted_a_site_that_does_not_compare_keys_would_be_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(SiteRun, "_others", lambda self, agreed, identities: {})
    assert begun(tmp_path, UNSIGNED, another_key("party-2"))


def test_when_somebody_rated_is_not_in_a_site_s_share(tmp_path):
    """What is not in it no step of any method can let out."""
    path = write_csv(tmp_path / "ratings.csv", DATA)
    assert load(path, scale=(1, 5)).times is not None
    held = Source(path).for_run(offer_of(run_file()), "party-1", tmp_path)
    assert held.share.ratings.n_ratings > 0
    assert held.share.ratings.times is None


def test_delta_is_held_to_the_site_s_own_users_before_sizes_leave(tmp_path):
    """300 users: a δ of 5·10⁻⁵ would be fine for a site of 100, and is refused before anything was said."""
    many = demo(users=300, items=16, ratings=3000)
    public = {"scale": [1, 5], "users": 300}
    offer = offer_of(run_file(public=public, privacy={"epsilon": 4.0, "delta": 5e-5}), items=many.item_ids)
    home = home_of(tmp_path, source=Source(write_csv(tmp_path / "many.csv", many)))
    with pytest.raises(PrivacyRefused, match=r"above 3\.3e-05"):
        SiteRun(home, "run-1", offer.content())


def test_a_run_that_was_accepted_by_mistake_does_not_begin(tmp_path, monkeypatch):
    """Planted: a site that does not look at what an offer costs; where the run begins the same rules hold again."""
    monkeypatch.setattr(part, "check_budget", lambda *_offer: None)
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
    ledger.bind_people(sites.parts["party-1"].data.people)
    with pytest.raises(PrivacyRefused, match="is for other people"):
        ledger.bind_people([f"stranger {k}" for k in range(16)])
    ledger.close()


def test_a_look_at_an_offer_keeps_its_copy_of_the_ledger_beside_it(tmp_path, monkeypatch):
    """It holds keys and factors: no folder that others share has it, and what a killed service left is swept."""
    sites = Sites(tmp_path, offer_of(run_file())).begin()
    sites.conduct()
    sites.leave()
    home, afford, seen = sites.homes["party-1"], part.Protection.check_budget, []

    def looked(self):
        seen.append((self.ledger.path, self.ledger.path.parent.stat().st_mode & 0o077))
        afford(self)

    old, young = (home.ledgers / f"{part.COPY}{name}" for name in ("old", "young"))
    for place in (old, young):
        place.mkdir()
    os.utime(old, (0, 0))
    monkeypatch.setattr(part.Protection, "check_budget", looked)
    SiteRun(home, "run-1", sites.offer.content())
    ((copy, mode),) = seen
    assert (copy.name, copy.parent.parent, mode) == (home.ledger.name, home.ledgers, 0)
    assert list(home.ledgers.glob(f"{part.COPY}*")) == [young]


QUERY = Clipped(("x",), 1.0)


def test_a_site_refuses_an_aggregation_that_only_simulations_have_without_privacy_too():
    offer = offer_of(run_file(privacy=None, aggregation={"name": "ideal"}))
    with pytest.raises(PrivacyRefused, match="exists in simulations only"):
        Policy(non_private=True).check(offer, "party-1")


class Willing(PartySide):
    """Hides what it is given, and is always ready."""

    def seals(self, terms):
        return terms.sealed


def test_what_is_hidden_is_released_no_oftener_than_planned_without_a_ledger_too():
    """Two sums over different parties, subtracted, would show one of them."""
    spec, code = Spec("tell", QUERY, releases=2), Fixed.of(1.0, 4)
    step = StepTerms(spec, Kind.SUM, 0.0, 1.0, NonPrivate(), code, sealed=True, cells=3)
    gate = Gate("party-1", 7, {}, terms=Terms(NON_PRIVATE, {"tell": step}), aggregation=Willing(), users=4)

    def tell(attempt):
        with gate.serving("tell", 1, attempt, f"{attempt:064x}"):
            return gate.sum({"x": np.ones((4, 3))}, np.ones(4))

    tell(0)
    tell(1)
    with pytest.raises(PrivacyRefused, match="2 were planned"):
        tell(2)
    again = Gate("party-1", 7, dict(gate.home), terms=gate.terms, aggregation=Willing(), users=4)
    gate = again
    with pytest.raises(PrivacyRefused, match="2 were planned"):
        tell(3)


def test_a_cohort_makes_no_chains_whose_noise_would_be_one_devices(tmp_path):
    gate = gate_of(tmp_path, promise(step_terms(QUERY, 4.0, Kind.CHAIN)), devices=30)
    with gate.serving("tell", 1, 0, "0" * 64), pytest.raises(PrivacyRefused, match="30 simulated devices"):
        gate.chain({"x": np.ones((30, 3))}, np.ones(30))
    assert gate.protection.ledger.rows() == []


@pytest.mark.parametrize("kernel", [round_and_add, round_and_add_numpy])
def test_a_piece_that_meets_a_cell_twice_adds_nothing(kernel):
    """Its numbers would add up there, to more than its length."""
    starts, cells = np.array([0, 2, 4]), np.array([1, 1, 0, 2])
    total = np.zeros(3, dtype=np.int64)
    too_long = kernel(
        starts, cells, np.array([0.7, 0.7, 0.5, 0.5]), np.zeros(4), 0.1, 1e9, 1e9, np.zeros((2, 2)), total
    )
    assert too_long.tolist() == [True, False]
    assert total.tolist() == [5, 0, 5]
