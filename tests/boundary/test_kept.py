"""What stays at home: user factors, fine-tuned item factors and losses, in every disguise that a method might use."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from stated import deployed as as_deployed
from stated import gate_of, promise, step_terms

from tacit.boundary import Gate
from tacit.boundary.clipped_sums import Clipped
from tacit.boundary.private_state import PrivateState
from tacit.boundary.protection import Protection
from tacit.boundary.query import Mechanism, Query
from tacit.boundary.release import Kind
from tacit.boundary.wire import decode, encode
from tacit.errors import PrivacyRefused, UngatedRelease
from tacit.federation import Choice, Facts, Floats, Party, Request, Schema, step
from tacit.guarantee import NON_PRIVATE
from tacit.methods.method import Parameters
from tacit.partition import partition
from tacit.testing.worlds import checkerboard

ITEMS, FACTORS, USERS, STEPS = 12, 3, 8, 2
Z = 2.0
VECTORS = Schema(items=Floats("items", "factors"))


def fitted(rows, seed):
    """Stands for factors that were fitted to raw ratings."""
    return np.random.default_rng(seed).random((rows, FACTORS), dtype=np.float32)


def gradient():
    """What a bounded query is answered over; its answers are 0 before they are noised."""
    return {"items": np.zeros((1, ITEMS, FACTORS))}, np.ones(1, dtype=np.int64)


def descend(state, answer, step):
    return {**state, "items": state["items"] - np.float32(0.1) * answer["items"]}


def leave(name, value):
    """An update that puts something of its own into the state."""
    return lambda state, answer, step: {**descend(state, answer, step), name: value}


def tricks(home):
    """Ways to let a secret out through a chain: state, update, what is let out, and the secret that is found."""
    users, own, loss = (home[name] for name in ("users", "own items", "loss"))
    items = {"items": fitted(ITEMS, 3)}
    return {
        "users, by name": (items, descend, ("items", "users"), "users"),
        "users, in the state": ({**items, "users": users}, descend, ("items",), "users"),
        "users, renamed": ({**items, "momentum": users}, descend, ("items",), "users"),
        "users, in part": ({**items, "momentum": users[2:]}, descend, ("items",), "users"),
        "users, inside a list": ({**items, "momentum": [(users.T,)]}, descend, ("items",), "users"),
        "users, copied": ({**items, "momentum": users.ravel().astype(np.float64)}, descend, ("items",), "users"),
        "users, by the update": (items, leave("momentum", users.copy()), ("items",), "users"),
        "fine-tuned, as the state": ({"items": own}, descend, ("items",), "own items"),
        "fine-tuned, copied": ({"items": own.copy()}, descend, ("items",), "own items"),
        "fine-tuned, by the update": (items, leave("items", own.copy()), ("items",), "own items"),
        "fine-tuned, an earlier one": (items, leave("items", fitted(ITEMS, 1)), ("items",), "own items"),
        "fine-tuned, overwritten": (items, leave("own items", fitted(ITEMS, 9)), ("items",), "own items"),
        "loss, by the update": (items, leave("so far", float(loss)), ("items", "so far"), "loss"),
        "loss, left at home as public": (items, leave("so far", np.full(1, loss)), ("items",), "loss"),
    }


TRICKS = sorted(tricks({"users": fitted(USERS, 0), "own items": fitted(ITEMS, 2), "loss": 0.5}))


@dataclass(frozen=True)
class Confession(Query):
    """A query that claims to be as random as was planned, and is not."""

    mechanism = Mechanism.RESPONSE

    def sensitivity(self, unit, relation):
        return 1.0

    def over(self, items, present=None):
        return Confessed(items)


class Confessed:
    def __init__(self, items):
        self.items = items

    def reports(self, _stream, _coins, _epsilon):
        return {"items": self.items.copy()}


class Silo(Party):
    """Keeps what it fits to raw ratings, and then tries to let it out."""

    @step(Kind.PUBLIC, takes=Schema(), what="the word that it has pre-trained and fine-tuned")
    def train(self):
        self.gate.store_private("users", fitted(USERS, 0))
        self.gate.store_private("own items", fitted(ITEMS, 1))
        self.gate.store_private("own items", fitted(ITEMS, 2))
        self.gate.store_private("loss", 0.73125)
        return self.gate.public("done")

    @step(Kind.CHAIN, takes=Schema(how=Choice("fair", *TRICKS)), gives=VECTORS, what="noised item factors")
    def improve(self, how):
        fair = ({"items": fitted(ITEMS, 3)}, descend, ("items",), "")
        state, update, release, _found = fair if how == "fair" else tricks(self.home)[how]
        return self.gate.chain(*gradient(), update=update, state=state, release=release)

    @step(Kind.PUBLIC, takes=Schema(fact=Choice("done", "users")), what="user factors, called a fact")
    def gossip(self, fact):
        return self.gate.public(fact, self.home["users"])

    @step(Kind.DISCLOSE, takes=Schema(), gives=VECTORS, what="fine-tuned item factors, as they are")
    def surrender(self):
        return self.gate.disclose(items=self.home["own items"])

    @step(Kind.REPORT, takes=Schema(), gives=VECTORS, what="user factors, called reports")
    def confess(self):
        return self.gate.report(self.home["own items"])

    @step(Kind.CHAIN, takes=Schema(), gives=VECTORS, what="a sum, not a chain")
    def mistaken(self):
        return self.gate.sum(*gradient())


class Sizes(Parameters):
    @property
    def dimensions(self):
        return {"factors": FACTORS}


def silo(tmp_path=None, run="run-1") -> Silo:
    """One silo; with a folder it is protected, and its ledger is there."""
    parties = partition(checkerboard(users=USERS, items=ITEMS)[0], into=1)
    facts, (share,) = Facts.of(parties, 7), parties
    chain = step_terms(Clipped(("items",), 1.0), Z, Kind.CHAIN, step="improve", releases=20, answers=STEPS)
    steps = (
        chain,
        step_terms(Confession(), 1.0, Kind.REPORT, step="confess"),
        step_terms(Clipped(("items",), 1.0), Z, step="mistaken"),
    )
    terms = promise(*steps)
    if tmp_path is None:
        return Silo(share, Sizes(), facts, Gate("party-1", 7, {}, terms=replace(terms, guarantee=NON_PRIVATE)))
    return Silo(share, Sizes(), facts, gate_of(tmp_path, terms, budget=1e3, run=run))


def ask(party, name, round=1, **payload):
    return party.answer(Request("m", "", name, round, 0, encode(payload)))


def rows(party) -> list[str]:
    return [row.step for row in party.gate.protection.ledger.rows()]


def nothing_left(party) -> bool:
    """Whether, after training, nothing was recorded, or charges alone: noise that was drawn and led to no release."""
    ledger = party.gate.protection.ledger
    return rows(party) == ["train"] or decode(ledger.body()) == {}


@pytest.fixture
def trained(tmp_path):
    party = silo(tmp_path)
    ask(party, "train")
    return party


@pytest.mark.parametrize("how", TRICKS)
def test_a_chain_that_lets_a_secret_out_is_refused_and_nothing_leaves(trained, how):
    """Where noise had been drawn before the secret came up, it is charged."""
    before = dict(trained.home)
    found = tricks(trained.home)[how][3]
    with pytest.raises(PrivacyRefused, match=f'"{found}", which is private and stays at home'):
        ask(trained, "improve", how=how)
    update = tricks(trained.home)[how][1]
    assert rows(trained) == (["train"] if update is descend else ["train", "improve"])
    assert nothing_left(trained)
    assert trained.home.keys() == before.keys()


@pytest.mark.parametrize(
    ("name", "payload"),
    [("gossip", {"fact": "done"}), ("gossip", {"fact": "users"}), ("surrender", {}), ("confess", {})],
)
def test_no_other_way_out_takes_a_secret(trained, name, payload):
    with pytest.raises(PrivacyRefused):
        ask(trained, name, **payload)
    assert nothing_left(trained)


def test_a_step_that_ends_in_another_kind_is_refused_and_charged(trained):
    with pytest.raises(UngatedRelease, match="declared a chain and ended in a sum"):
        ask(trained, "mistaken")
    assert rows(trained) == ["train", "mistaken"]
    assert nothing_left(trained)
    assert "items" not in trained.home


def test_a_name_stays_secret_after_a_restart(tmp_path):
    """The state is read back from the ledger; nobody calls keep again."""
    party = silo(tmp_path)
    ask(party, "train")
    party.gate.protection.ledger.close()
    again = silo(tmp_path)
    np.testing.assert_array_equal(again.home["users"], fitted(USERS, 0))
    assert sorted(again.home) == ["loss", "own items", "users"]
    for number, how in enumerate(TRICKS, start=1):
        if how != "fine-tuned, an earlier one":  # only what is at home now is read back
            with pytest.raises(PrivacyRefused, match="stays at home"):
                ask(again, "improve", number, how=how)
    assert nothing_left(again)


def test_what_stands_under_a_secret_name_is_secret_whoever_put_it_there(trained):
    trained.home["own items"] = fitted(ITEMS, 5)
    with pytest.raises(PrivacyRefused, match="own items"):
        ask(trained, "improve", how="fine-tuned, copied")


def test_a_gate_that_forgets_its_secrets_is_noticed(trained, monkeypatch):
    """Planted: without the check the same requests release what is kept, so it is the check that refuses them."""
    monkeypatch.setattr(Gate, "_refuse_private", lambda self, *blocks, **others: None)
    release = ask(trained, "improve", how="fine-tuned, by the update")
    np.testing.assert_array_equal(decode(release.body)["items"], fitted(ITEMS, 2))
    assert rows(trained) == ["train", "improve"]


#: Tricks that need a look at values: the rest is found by name or by memory.
COPIES = {how for how in TRICKS if "copied" in how or how == "fine-tuned, an earlier one"}


@pytest.fixture
def deployed(trained):
    as_deployed(trained.gate)
    return trained


@pytest.mark.parametrize("how", sorted(COPIES))
def test_between_organisations_a_copy_is_like_any_other_block(deployed, how):
    """Whoever can choose what leaves would be told by a refusal that it is a secret's value; charged it is anyway."""
    ask(deployed, "improve", how=how)
    assert rows(deployed) == ["train", "improve"]


def test_planted_a_gate_that_compares_values_would_tell(deployed, monkeypatch):
    monkeypatch.setattr(Protection, "simulated", True)
    with pytest.raises(PrivacyRefused):
        ask(deployed, "improve", how="fine-tuned, an earlier one")


@pytest.mark.parametrize("how", ["users, by name", "users, in the state", "users, in part", "users, renamed"])
def test_between_organisations_names_and_memory_are_looked_at_all_the_same(deployed, how):
    with pytest.raises(PrivacyRefused, match="stays at home"):
        ask(deployed, "improve", how=how)
    assert nothing_left(deployed)


def test_the_fair_step_passes_and_is_charged(trained):
    items = decode(ask(trained, "improve", how="fair").body)["items"]
    assert items.shape == (ITEMS, FACTORS)
    np.testing.assert_array_equal(trained.home["items"], items)
    np.testing.assert_array_equal(trained.home["users"], fitted(USERS, 0))
    assert rows(trained) == ["train", "improve"]


def test_without_a_protection_nothing_is_refused():
    party = silo()
    ask(party, "train")
    np.testing.assert_array_equal(party.home["own items"], fitted(ITEMS, 2))
    assert party.home["loss"] == 0.73125
    for number, how in enumerate(("fair", "users, renamed", "fine-tuned, by the update"), 2):
        ask(party, "improve", number, how=how)
    np.testing.assert_array_equal(decode(ask(party, "surrender", 9).body)["items"], fitted(ITEMS, 2))


def test_blank_blocks_and_counters_are_no_secrets_copy_but_a_view_is():
    kept = PrivateState(home := {"x": np.zeros((3, 2)), "n": np.asarray(5), "none": np.empty(0)})
    for name in home:
        kept.mark(name)
    for thing in (np.zeros(6), 5, True, np.empty(0), "text", None):
        assert kept.found_in(thing) is None
    assert kept.found_in(home["x"][1:]) == "x"
