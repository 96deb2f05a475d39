"""Sites agree on one list of users: it is the plain join of their ids, and no id is in any message."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
from one_site import DATA, NAMES, Sites, costly, home_of, item_sources, offer_of, rows_of, run_file

from tacit.boundary.events import Public
from tacit.boundary.wire import decode, encode
from tacit.data.load import load
from tacit.data.vocabulary import Vocabulary
from tacit.deploy.align import align_sites, on_rows, rows_content
from tacit.deploy.policy import Policy
from tacit.deploy.site_run import SiteRun
from tacit.errors import BadMessage, DataError, PeerFailed, TamperingFound, UsageError
from tacit.evaluate.evaluation import evaluate_as_configured
from tacit.federation import Facts
from tacit.methods import chosen
from tacit.partition import Parties, Setting, Share
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.simulate import train
from tacit.secure.psi import Blinder

KEY = b"k" * 32
LEARNS = {"name": "sgdmf", "factors": 2, "rounds": 2, "local_steps": 1, "sampling": 1.0}


def vertical(way="psi", keep="shared", **sections):
    partitioned = {"by": "item", "into": 3, "align": way, "keep": keep}
    return offer_of(run_file(partition=partitioned, **{"privacy": None, "method": LEARNS, **sections}))


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Each site has a third of the items, and not all of the users; ids that can be found."""
    folder = tmp_path_factory.mktemp("tables")
    return item_sources(
        folder, lambda user: f"patient-{int(user[1:]):07d}", lambda user, site: int(user[-3:]) % 7 != site
    )


def ids_of(sites) -> dict[str, tuple[str, ...]]:
    return {name: part.data.people for name, part in sites.parts.items()}


class Coordinator:
    """Says what a coordinator says, and keeps every message."""

    def __init__(self, sites: Sites, folder) -> None:
        self.sites, self.kept, self.messages = sites, folder / "aligned.tct", []

    def say(self, name, _about, content):
        self.messages.append(encode(content))
        reply = self.sites.parts[name].align(decode(self.messages[-1]))
        self.messages.append(encode(reply))
        return reply

    def run(self) -> "Coordinator":
        self.count, self.rows = self.sites.align(self.kept, self.say)
        return self


def rules_of(**rules) -> Policy:
    return Policy(**{"non_private": True, "align_key": KEY, **rules})


def part_of(folder, tables, offer, **rules) -> SiteRun:
    """The first site alone."""
    return SiteRun(home_of(folder, policy=rules_of(**rules), source=tables["party-1"]), offer.run, offer.content())


def sites_of(tmp_path, tables, offer, **rules) -> Sites:
    return Sites(tmp_path, offer, rules_of(**rules), tables)


def roster_of(ids, coordinator, places) -> dict[int, str]:
    """Who is in which row, by what the sites themselves know."""
    found: dict[int, str] = {}
    for name, own in ids.items():
        for user, row in zip(own, coordinator.rows[name][places[name]], strict=True):
            if row >= 0:
                assert found.setdefault(int(row), user) == user
    return found


def places_of(sites) -> dict[str, np.ndarray]:
    return {name: decode(part._alignment._path("place").read_bytes())["place"] for name, part in sites.parts.items()}


@pytest.mark.parametrize("keep", ["shared", "all"])
@pytest.mark.parametrize("way", ["psi", "hashed"])
def test_the_common_list_is_the_plain_join(tmp_path, tables, way, keep):
    sites = sites_of(tmp_path, tables, vertical(way, keep))
    ids = ids_of(sites)
    done = Coordinator(sites, tmp_path).run()
    joined = (set.intersection if keep == "shared" else set.union)(*(set(own) for own in ids.values()))
    assert 0 < len(joined) < sum(map(len, ids.values()))
    roster = roster_of(ids, done, places_of(sites))
    assert sorted(roster) == list(range(done.count))
    assert set(roster.values()) == joined
    for name, part in sites.parts.items():
        ratings, own = part.data.share.ratings, load(tables[name].data, scale=(1, 5))
        assert ratings.n_users == done.count
        assert part.data.share.ratings.user_ids.ids.tolist() == list(range(done.count))
        held = part.data
        for row, user in roster.items():
            here = own.counts[own.user_ids.row(user)] if user in ids[name] else 0
            assert ratings.counts[row] + held.test.counts[row] == here


@pytest.mark.parametrize("way", ["psi", "hashed"])
def test_no_id_and_no_order_of_ids_is_in_any_message(tmp_path, tables, way):
    sites = sites_of(tmp_path, tables, vertical(way))
    ids = ids_of(sites)
    done = Coordinator(sites, tmp_path).run()
    everything = b"".join(done.messages) + done.kept.read_bytes()
    assert len(everything) > 32 * sum(map(len, ids.values()))
    for user in set().union(*ids.values()):
        for trace in (user.encode(), user[-4:].encode() * 2, hashlib.sha256(user.encode()).digest()):
            assert trace not in everything
    for name, own in ids.items():
        first = next(
            decode(m)["list"] for m in done.messages if b"list" in m[:200] and len(decode(m)["list"]) == len(own)
        )
        values = [value.tobytes() for value in first]
        assert values == sorted(values)
        assert not np.array_equal(places_of(sites)[name], np.arange(len(own)))


def test_planted_a_site_that_sends_its_ids_would_be_noticed(tmp_path, tables, monkeypatch):
    monkeypatch.setattr(
        "tacit.deploy.align.tags",
        lambda key, ids, context: np.array([list(i.encode().ljust(32)) for i in ids], dtype=np.uint8),
    )
    with pytest.raises(AssertionError):
        test_no_id_and_no_order_of_ids_is_in_any_message(tmp_path, tables, "hashed")


def test_keyed_hashes_of_two_runs_cannot_be_linked(tmp_path, tables):
    runs = [replace(vertical("hashed"), run=run) for run in ("run-1", "run-2")]
    lists = [part_of(tmp_path, tables, offer).align({"stage": "tags"})["list"] for offer in runs]
    assert not {v.tobytes() for v in lists[0]} & {v.tobytes() for v in lists[1]}


def test_keyed_hashes_need_a_key(tmp_path, tables):
    with pytest.raises(UsageError, match="--align-key"):
        part_of(tmp_path, tables, vertical("hashed"), align_key=None)


def test_a_list_of_more_users_than_there_are_is_refused(tmp_path, tables):
    """Blinding as many guesses as one likes would be a service to whoever guesses."""
    offer = vertical()
    declared = offer.file.public.users
    part = part_of(tmp_path, tables, offer)
    guesses = Blinder().first([f"guess {k}" for k in range(declared + 1)])
    with pytest.raises(BadMessage, match="more users than the run declares"):
        part.align({"stage": "again", "owner": "party-2", "list": guesses})
    assert len(part.align({"stage": "again", "owner": "party-2", "list": guesses[1:]})["list"]) == declared


def test_the_items_that_a_site_is_given_are_those_that_it_holds(tmp_path, tables):
    """A coordinator that gives a site other columns would have its ratings learned as other items'."""
    sites = sites_of(tmp_path, tables, vertical())
    Coordinator(sites, tmp_path).run()
    content, part = sites.begin_content, sites.parts["party-1"]
    own = content["columns/party-1"]
    others = np.setdiff1d(np.arange(DATA.n_items, dtype=np.int32), own)[: len(own)]
    with pytest.raises(BadMessage, match="the items that party-1 holds"):
        part.begin({**content, "columns/party-1": others})
    assert part.party is None
    assert set(part.begin(content)) == {"bound"}


def test_a_second_list_in_somebody_s_name_is_refused(tmp_path, tables):
    """Guesses in another's name would be told from users by comparing."""
    part = part_of(tmp_path, tables, vertical())
    one, guesses = Blinder().first(["a", "b"]), Blinder().first(["c", "d"])
    first = part.align({"stage": "again", "owner": "party-2", "list": one})["list"]
    np.testing.assert_array_equal(part.align({"stage": "again", "owner": "party-2", "list": one})["list"], first)
    with pytest.raises(BadMessage, match="A second list in the name of party-2"):
        part.align({"stage": "again", "owner": "party-2", "list": guesses})
    part.align({"stage": "again", "owner": "party-3", "list": guesses})


def test_planted_a_site_that_forgets_whose_list_it_blinded_would_be_noticed(tmp_path, tables):
    part = part_of(tmp_path, tables, vertical())
    part.align({"stage": "again", "owner": "party-2", "list": Blinder().first(["a", "b"])})
    part._alignment._path("blinded").unlink()
    guessed = part.align({"stage": "again", "owner": "party-2", "list": Blinder().first(["c"])})
    assert len(guessed["list"]) == 1  # the guess comes back blinded, to be compared with


ONE = Blinder().first(["a"])
WAYS = [("psi", "tags"), ("hashed", "first"), ("hashed", "again"), ("psi", "ids")]


@pytest.mark.parametrize(
    ("way", "content", "words"),
    [
        *(
            ("psi", {"stage": "again", "owner": owner}, "not another party")
            for owner in ("party-1", "party-9", "", None)
        ),
        *((way, {"stage": stage, "owner": "party-2"}, "not one of this run") for way, stage in WAYS),
        ("psi", rows_content(3, np.arange(3)), "before this site had sent"),
    ],
)
def test_a_message_in_nobody_s_name_of_another_way_or_too_early_is_refused(tmp_path, tables, way, content, words):
    with pytest.raises(BadMessage, match=words):
        part_of(tmp_path, tables, vertical(way)).align({"list": ONE, **content})


def test_sites_with_other_users_do_not_align(tmp_path):
    part = Sites(tmp_path, offer_of(run_file())).parts["party-1"]
    with pytest.raises(BadMessage, match="in this run they do not"):
        part.align({"stage": "first"})


@pytest.fixture
def listed(tmp_path, tables):
    """A site that has sent its list and waits for its rows."""
    part = part_of(tmp_path, tables, vertical())
    users = len(part.align({"stage": "first"})["list"])
    return part, users


@pytest.mark.parametrize(
    "change",
    [
        lambda n: (n, np.arange(n - 1)),
        lambda n: (n, np.zeros(n, np.int64)),
        lambda n: (n, np.arange(n) + 1),
        lambda n: (n, np.arange(n) - 2),
        lambda n: (n - 1, np.arange(n)),
        lambda n: (0, np.full(n, -1)),
        lambda n: (2**40, np.arange(n)),
        lambda n: (True, np.full(n, -1)),
        lambda n: (n, np.arange(n, dtype=np.int32)),
        lambda n: (n, "rows"),
    ],
)
def test_rows_that_cannot_be_are_refused(listed, change):
    part, users = listed
    before = part.data
    count, rows = change(users)
    with pytest.raises(BadMessage, match="rows of the common list"):
        part.align({"stage": "rows", "count": count, "rows": rows})
    assert part.data is before
    assert not part._alignment._path("rows").exists()
    assert part._alignment._path("scalar").exists()


def test_rows_are_told_once_and_no_list_is_made_after_them(listed):
    part, users = listed
    content = rows_content(users, np.arange(users))
    part.align(content)
    held = part.data
    part.align(content)
    assert part.data is held
    with pytest.raises(BadMessage, match="other rows"):
        part.align(rows_content(users, np.arange(users)[::-1]))
    for stage in ("first", "again"):
        with pytest.raises(BadMessage, match="already known"):
            part.align({"stage": stage, "owner": "party-2", "list": ONE})


@pytest.mark.parametrize(
    "reply",
    [
        {},
        {"list": "no"},
        {"list": np.zeros((3, 32), np.uint8)},
        {"list": np.arange(64, dtype=np.uint8).reshape(2, 32)},
    ],
)
def test_a_list_of_another_size_or_none_is_refused_by_the_coordinator(tmp_path, reply):
    with pytest.raises(BadMessage, match="party-1"):
        align_sites(vertical(), dict.fromkeys(NAMES, 3), lambda *_said: reply, tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_sites_without_a_user_in_common_are_told_so(tmp_path):
    made = {name: Blinder().first([f"{name}-{k}" for k in range(3)]) for name in NAMES}
    offer = vertical("hashed")
    with pytest.raises(PeerFailed, match="no user in common"):
        align_sites(offer, dict.fromkeys(NAMES, 3), lambda name, *_said: {"list": made[name]}, tmp_path / "kept")


def test_a_resumed_coordinator_asks_nobody(tmp_path, tables):
    sites = sites_of(tmp_path, tables, vertical())
    done = Coordinator(sites, tmp_path).run()

    def nobody(*_said):
        raise AssertionError("was asked")

    count, rows = align_sites(sites.offer, {}, nobody, done.kept)
    assert count == done.count
    for name in NAMES:
        np.testing.assert_array_equal(rows[name], done.rows[name])


def test_a_site_that_comes_back_with_other_users_is_told_so(tmp_path, tables, listed):
    part, users = listed
    part.align(rows_content(users, np.arange(users)))
    fewer = on_rows(part.data.share.ratings, np.arange(users), users)
    held = replace(part.data, share=replace(part.data.share, ratings=on_rows(fewer, np.arange(users), users + 1)))
    with pytest.raises(DataError, match="same data"):
        part._alignment.restored(held)


@pytest.mark.parametrize("what", ["rows", "place", "blinded"])
def test_a_damaged_file_is_named(listed, what):
    part, users = listed
    part.align({"stage": "again", "owner": "party-2", "list": ONE})
    if what == "rows":
        part.align(rows_content(users, np.arange(users)))
    path = part._alignment._path(what)
    path.write_bytes(path.read_bytes()[:-3])
    actions = {
        "rows": lambda: part._alignment.restored(part.data),
        "place": lambda: part.align(rows_content(users, np.arange(users))),
        "blinded": lambda: part.align({"stage": "again", "owner": "party-2", "list": ONE}),
    }
    with pytest.raises(TamperingFound, match=what):
        actions[what]()


def test_with_privacy_every_list_stands_in_the_ledger_and_costs_nothing(tmp_path, tables):
    method = LEARNS
    offer = vertical(privacy={"epsilon": 4.0, "delta": 1e-6}, method=method)
    sites = sites_of(tmp_path, tables, offer, non_private=False, max_epsilon=4.0)
    done = Coordinator(sites, tmp_path).run()
    home = sites.homes["party-1"]
    rows = rows_of(home)
    assert [row.step for row in rows] == ["sizes:roster", "first:roster", "again:roster", "again:roster", "rows:roster"]
    assert all(isinstance(row.spent, Public) for row in rows)
    sent = {hashlib.sha256(message).hexdigest() for message in done.messages}
    assert {row.payload for row in rows[1:]} <= sent
    sites.begin().conduct()
    sites.leave()
    assert {answer.status for answer in sites.answers} == {"ok"}
    assert len(costly(home)) == sum(sites.agreed.plan.terms.releases.values())


def joined(ratings, roster):
    """Ratings put into the rows of a roster of ids, user by user."""
    known = {str(user): place for place, user in enumerate(ratings.user_ids.ids)}
    lines = [ratings.indptr[known[roster[row]] :][:2] if roster[row] in known else (0, 0) for row in sorted(roster)]
    picked = np.concatenate([np.arange(start, end) for start, end in lines]).astype(int)
    counts = [end - start for start, end in lines]
    users = Vocabulary(np.arange(len(roster)), "user")
    where = {"indptr": np.cumsum([0, *counts]), "items": ratings.items[picked], "values": ratings.values[picked]}
    return replace(ratings, **where, user_ids=users)


def test_a_run_on_aligned_rows_is_the_run_on_plainly_joined_data(tmp_path, tables):
    """The same model, bit for bit, as a simulation over ratings that were joined by id; the same metrics too."""
    sites = sites_of(tmp_path, tables, vertical("psi", "all"), shares_metrics=True)
    ids, done = ids_of(sites), Coordinator(sites, tmp_path).run()
    roster = roster_of(ids, done, places_of(sites))
    model = sites.begin().conduct()
    facts, shares = sites.agreed.facts, []
    for name, part in sites.parts.items():
        raw = tables[name].for_run(sites.offer, name, tmp_path)
        shares.append(
            Share(name, joined(raw.share.ratings, roster), np.arange(done.count), facts.member(name).columns, name)
        )
        told = json.loads(part.save({"users": model.user_factors})["metrics"])
        predictor, file = part.party.at_home(users=model.user_factors), sites.offer.file
        test = joined(raw.test, roster)
        plain = evaluate_as_configured(predictor, test, shares[-1].ratings, file.evaluate, file.seed)
        assert told["metrics"] == plain.metrics
        assert told["ratings"] == test.n_ratings > 0
    whole = (facts.scale, facts.feedback, shares[0].ratings.user_ids, facts.catalogue)
    parties = Parties(tuple(shares), Setting.VERTICAL, "joined by id", *whole)
    simulated = train(PreparedRun.of(*chosen(LEARNS), Facts.of(parties, sites.offer.file.seed)), parties)
    np.testing.assert_array_equal(model.item_factors, simulated.model.item_factors)
    np.testing.assert_array_equal(model.user_factors, simulated.model.user_factors)
