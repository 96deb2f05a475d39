"""What a silo of a private SGDMF run keeps for good: evil silos that let it out, and coordinators that pry."""

import hashlib
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from sgdmf_conversations import CASES, FACTORS, ITEMS, USERS, converse, parties_of

from tacit.boundary import Gate
from tacit.boundary.release import Kind
from tacit.boundary.wire import decode, encode
from tacit.config import PrivacySection
from tacit.data.synthetic import synthesize
from tacit.errors import PrivacyRefused
from tacit.federation import Facts, step
from tacit.federation.messages import Request
from tacit.methods import chosen
from tacit.methods.factors import start_factors
from tacit.methods.sgdmf.horizontal import HorizontalSilo
from tacit.model import Model, NonNegative
from tacit.partition import partition
from tacit.prepare.prepared import PreparedRun

HOME = CASES["horizontal, user, pretrained"]
RECORDS = [[(j, float(1 + (i + j) % 5)) for j in range(ITEMS)] for i in range(USERS)]


# -- what may never leave ---------------------------------------------------------------------------------------------


class Asking:
    """A coordinator that asks for what it was told to ask for: ("finish", V), ("improve", V) …"""

    def __init__(self, asked, parameters, facts):
        self.asked, self.facts = asked, facts

    def run(self, federation):
        for name, block in self.asked:
            if name == "improve":
                next(federation.rounds(1))
            federation.ask(name, items=block, **({"t": 0} if name == "improve" else {}))
        return Model("sgdmf", self.facts.scale, self.facts.item_ids, NonNegative(1.0, 5.0, block))


def flat(value: float = 0.5) -> np.ndarray:
    return np.full((ITEMS, FACTORS), value, dtype=np.float32)


def put(**blocks):
    return lambda state, answer, number: {**state, **blocks}


def chained(update, **state):
    """A chain of honest answers whose state, or whose update, brings what it should not."""

    def act(silo):
        made = {name: block(silo) for name, block in state.items()} or {"items": flat()}
        return silo.gate.chain(silo.ratings, at=silo._at_home(), update=update(silo), state=made, release=("items",))

    return act


def kept(name, change=lambda x: x):
    return lambda silo: change(silo.home[name])


def unchanged(silo):
    return lambda state, answer, number: state


#: Ways out: the verb that a step ends in, and what an evil silo does there; tests/boundary has every disguise.
EVIL = {
    "U in a chain's state": (Kind.CHAIN, chained(unchanged, items=lambda s: flat(), users=kept("users"))),
    "U under another name": (Kind.CHAIN, chained(unchanged, items=lambda s: flat(), m=kept("users", np.copy))),
    "fine-tuned U by the update": (Kind.CHAIN, chained(lambda s: put(users=s.home["own users"].copy()))),
    "V_k as the state": (Kind.CHAIN, chained(unchanged, items=kept("own items"))),
    "V_k as a view, by the update": (Kind.CHAIN, chained(lambda s: put(items=s.home["own items"][::-1]))),
    "V_k as a sum": (Kind.SUM, lambda s: s.gate.sum(s.home["own items"])),
    "V_k as a sum over ratings": (
        Kind.SUM,
        lambda s: s.gate.sum(s.ratings, at={"users": s.home["users"], "items": s.home["own items"]}),
    ),
    "V_k past the gate": (Kind.CHAIN, lambda s: s.home["own items"]),
}


def evil(kind, act):
    """A silo that is honest until it is asked to improve."""

    class Evil(HorizontalSilo):
        @step(kind, takes=HorizontalSilo.steps["improve"].takes, gives=HorizontalSilo.steps["improve"].gives, what="U")
        def improve(self, items, t):
            return act(self)

    return Evil


FIRST = [("pretrain", flat()), ("finish", flat(0.7)), ("improve", flat(0.4))]


@pytest.mark.parametrize("name", EVIL)
def test_user_factors_and_fine_tuned_factors_are_refused_and_nothing_leaves(name):
    """Noise that was drawn before is charged: a row without anything in it."""
    books = {}
    with pytest.raises(PrivacyRefused):
        converse(HOME, RECORDS, None, coordinator=partial(Asking, FIRST), party=evil(*EVIL[name]), books=books)
    for book in books.values():
        first, second, *charged = book.kept
        assert (first.step, second.step) == ("pretrain", "finish")
        assert [row.payload for row in charged] in ([], [hashlib.sha256(encode({})).hexdigest()])


def test_the_same_silo_passes_when_it_is_honest():
    """So it is what it lets out that is refused, and not that it asks."""
    honest = evil(Kind.CHAIN, chained(lambda s: lambda state, answer, number: state))
    heard = converse(HOME, RECORDS, coordinator=partial(Asking, FIRST), party=honest)
    assert [row.step for row in heard.rows["party-1"]] == ["pretrain", "finish", "improve"]


# -- what a lying coordinator may ask ---------------------------------------------------------------------------------


def test_factors_fitted_to_raw_ratings_do_not_become_a_chains_state():
    """Where users' factors are noised, a coordinator that has them fitted first is answered no more."""
    books = {}
    with pytest.raises(PrivacyRefused, match='"users", which is private and stays at home'):
        converse(CASES["horizontal, rating, noised"], RECORDS, coordinator=partial(Asking, FIRST), books=books)
    assert {row.step for book in books.values() for row in book.kept} == {"pretrain", "finish"}


def test_no_more_is_answered_than_was_planned():
    books = {}
    asked = [("improve", flat(0.1 * t)) for t in range(1, 4)]
    with pytest.raises(PrivacyRefused, match="release 3 of step"):
        converse(HOME, RECORDS, coordinator=partial(Asking, asked), books=books)
    assert {len(book.kept) for book in books.values()} == {2}


@pytest.mark.parametrize("guess", ["V as it was", "V_k as it would be", "U as it would be"])
def test_whether_a_request_is_refused_does_not_depend_on_ratings(guess):
    """Neighbours: a silo where one user has ratings, or none. The coordinator sends what it guesses that is kept there.

    Fine-tuning on nothing changes nothing, so V_k = V shows an empty silo. What else is kept can be computed by whoever
    knows all records but one; U fits the place of V where a silo has as many users as there are items.
    """
    items = 4 if guess == "U as it would be" else ITEMS  # four: as many as her silo has users
    hers = next(share.users for share in parties_of(HOME, RECORDS) if 0 in share.users)
    nobody = [[] if i in hers else [(0, 5.0), (1, 1.0)] for i in range(USERS)]
    alone = [[(0, 5.0), (1, 1.0)], *nobody[1:]]
    V = np.full((items, FACTORS), 0.5, dtype=np.float32)
    first = [("pretrain", V), ("finish", V)]
    shadow = converse(HOME, alone, coordinator=partial(Asking, first), items=items).trained.parties
    home = next(party.home for party in shadow if 0 in party.ratings.user_ids.ids)
    sent = {"V as it was": V, "V_k as it would be": home["own items"], "U as it would be": home["users"]}[guess]
    refused = []
    for records in (alone, nobody):
        try:
            converse(HOME, records, coordinator=partial(Asking, [*first, ("improve", sent)]), items=items)
            refused.append(False)
        except PrivacyRefused:
            refused.append(True)
    assert refused[0] == refused[1]


# -- in whatever order it asks, nothing that was fine-tuned gets into a later answer -----------------------------------


DIVIDED = partition(synthesize(40, 15, 300, seed=3).ratings, into=2)
MODES = {"pretrained": "user", "together": "user", "noised": "rating"}


def answers(users: str, order: list[str]) -> list[dict[str, np.ndarray]]:
    """What a silo without noise says to `order`; equal requests are equal, whatever came between."""
    method, parameters = chosen({"name": "sgdmf", "factors": 3, "users": users, "sampling": 0.5, "rate": 1.0})
    privacy = PrivacySection(epsilon=4.0, delta=1e-6, unit=MODES[users])
    run = PreparedRun.of(method, parameters, Facts.of(DIVIDED, 7), privacy=privacy)
    silent = {name: replace(terms, multiplier=0.0) for name, terms in run.plan.terms.steps.items()}
    gate, facts = Gate("party-1", 7, {}, terms=replace(run.plan.terms, steps=silent)), run.facts
    silo = run.sides.party(DIVIDED[0], run.parameters, facts, gate)
    V, heard = start_factors(facts, facts.items, 3, "items"), []
    for name in order:
        payload = {"items": V, "t": 0} if name == "improve" else {"items": V}
        heard.append(decode(silo.answer(Request("sgdmf", "", name, 1, 0, encode(payload))).body))
    return heard


@pytest.mark.parametrize("users", MODES)
@pytest.mark.parametrize("before", [[], ["pretrain"], ["improve"]])
def test_fine_tuning_changes_no_later_answer(users, before):
    plain = answers(users, [*before, "improve"])
    tuned = answers(users, [*before, "finish", "improve"])
    np.testing.assert_array_equal(plain[-1]["items"], tuned[-1]["items"])
    again = answers(users, [*before, "pretrain", "improve"])
    between = answers(users, [*before, "finish", "pretrain", "improve"])
    np.testing.assert_array_equal(again[-1]["items"], between[-1]["items"])


@pytest.mark.parametrize("users", MODES)
def test_an_answer_does_depend_on_users_factors(users):
    """So the test above could fail: other factors at home give another answer."""
    first = answers(users, ["improve"])[-1]["items"]
    assert (first != answers(users, ["pretrain", "improve"])[-1]["items"]).any()
