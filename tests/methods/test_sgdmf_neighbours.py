"""Private SGDMF on neighbouring ratings: answers move by at most what their noise covers, and nothing else moves."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import sgdmf_conversations
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdmf_conversations import (
    CASES,
    ITEMS,
    PINS,
    USERS,
    Case,
    Heard,
    Records,
    axes,
    converse,
    everybody,
    extreme_records,
    neighbour_of,
    parties_of,
    to_corner,
    wild,
)

from tacit.boundary import Gate
from tacit.boundary import clipped_gradients as gradients
from tacit.boundary.account import epsilon
from tacit.boundary.clipped_gradients import EmbeddingGradient
from tacit.boundary.mechanisms import Gaussian
from tacit.errors import BadMessage, DataError
from tacit.federation import Facts
from tacit.guarantee import Relation
from tacit.kernels.embed import embed
from tacit.methods.sgdmf.update_rule import UpdateRule
from tacit.partition import Setting
from tacit.prepare import prepared

EVERY = pytest.mark.parametrize("name", CASES)
#: How far an estimate may lie from its expectation, in standard deviations: one false alarm in a million, or so.
ALARM = 5.0


# -- neighbours -------------------------------------------------------------------------------------------------------


def check_neighbours(case: Case, records: Records, near: Records, **how: object) -> None:
    """Neighbours' answers are within what the noise was made for, and nothing else that leaves differs."""
    here, there = converse(case, records, **how), converse(case, near, **how)
    assert here.answers.keys() == there.answers.keys()
    assert {step for _, step, _, _ in here.answers} == set(case.stated)
    charged = {name: terms.event.multiplier for name, terms in here.plan.terms.steps.items()}
    within = 2 if here.plan.terms.relation is Relation.REPLACE else 1  # the accountant's factor, and nobody else's
    for key, answer in here.answers.items():
        other = there.answers[key]
        assert answer.sigma == other.sigma
        moved, covered = _apart(answer.exact, other.exact), answer.sigma / charged[key[1]]
        assert moved <= within * covered, f"{key}: moved by {moved}, and the noise covers {within * covered}"
    assert here.trained.transcript.digest == there.trained.transcript.digest, "something else than answers differs"


def _apart(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> float:
    assert one.keys() == other.keys()
    assert all(np.isfinite(block).all() for answer in (one, other) for block in answer.values())
    return math.sqrt(sum(float(np.square(one[name] - other[name]).sum()) for name in one))


def check_public_quantities(case: Case) -> None:
    """Step sizes and weights are no function of the ratings: where noise does not set the rate, it is as given."""
    given = case.with_(rate=3.0)
    records = [[(j, case.scale[j % 2]) for j in range(ITEMS)] for _ in range(USERS)]
    check_neighbours(given, records, [records[0][1:] if case.unit == "rating" else [], *records[1:]])


def check_projected(case: Case, seed: int = 3) -> None:
    """Whatever a coordinator sends, chains start inside Π's ball."""
    heard = converse(case, extreme_records(seed, case.scale), send=wild(seed, case.span))
    assert heard.started
    for state in heard.started:
        for block in state.values():
            np.testing.assert_allclose(block, embed(block, case.span), rtol=1e-6)


@EVERY
@pytest.mark.parametrize("alike", [replace, everybody], ids=["sampled", "everybody"])
def test_an_empty_record_adds_exactly_nothing(name, alike):
    """Where all records are empty every answer is 0, bit for bit; where one is, her own row is."""
    case = alike(CASES[name])
    for answer in converse(case, [[] for _ in range(USERS)]).answers.values():
        assert all(block.tobytes() == bytes(block.nbytes) for block in answer.exact.values())
    records = [[], *[[(j, case.scale[0]) for j in range(ITEMS)]] * (USERS - 1)]
    rows = {share.name: np.asarray(share.users) == 0 for share in parties_of(case, records)}
    for (party, *_), answer in converse(case, records, pin=to_corner).answers.items():
        if "users" in answer.exact:
            hers = answer.exact["users"][rows[party]]
            assert hers.tobytes() == bytes(hers.nbytes)
            assert answer.exact["users"].any() or case.sampling < 1


# -- noise ------------------------------------------------------------------------------------------------------------


def check_noise(case: Case) -> None:
    """σ = z·Δ with the rule book's Δ; every cell has noise, sampled or not, and every answer has its own."""
    heard = converse(case, [[(0, case.scale[1])], *[[] for _ in range(USERS - 1)]], pin=None)
    seen: list[np.ndarray] = []
    for (_, step, _, _), answer in heard.answers.items():
        stated = heard.plan.multiplier * case.sensitivity(step)
        assert math.isclose(answer.sigma, stated, rel_tol=1e-12), f"{answer.sigma} where {stated} is stated"
        for name, block in answer.noised.items():
            noise = block.astype(np.float64) - answer.exact[name]
            assert (np.abs(noise) > 1e-9 * answer.sigma).all(), "a cell has no noise"
            seen += [noise.ravel()[:9] / answer.sigma]
    together = np.concatenate(seen)
    assert len(np.unique(np.round(together, 6))) > 0.99 * together.size, "noise was used twice"
    assert abs(np.var(together) - 1) < ALARM * math.sqrt(2 / together.size)


# -- samples ----------------------------------------------------------------------------------------------------------

#: Users, and ratings of each, in the world where samples are counted; every item has one rater.
CROWD, EACH = 100, 4


def check_sampling(case: Case) -> None:
    """Units are drawn at the rate that ledgers record, one by one, and by every silo for itself.

    Every item is rated once and no slope is 0, so the rows of an answer that are not 0 show what was drawn. Counted
    over 100 users × 4 ratings × all answers, with 5 standard deviations of room.
    """
    case = case.with_(trim=EACH) if case.trimmed else case
    records = [[(EACH * i + k, case.scale[1]) for k in range(EACH)] for i in range(CROWD)]
    send = axes(case.span, pretrain=0, improve=1, finish=1)
    heard = converse(case, records, send=send, items=CROWD * EACH)
    events = [row.spent for rows in heard.rows.values() for row in rows]
    rate = case.sampling
    assert {event.rate for event in events if hasattr(event, "rate")} == {rate}
    drawn = _drawn(case, heard, {share.name: share.users for share in parties_of(case, records, CROWD * EACH)})
    seen = np.concatenate([part[~np.isnan(part)] for part in drawn.values()])
    singly = case.unit == "rating" and not case.replaced
    spread = math.sqrt(rate * (1 - rate) / seen.size * (1 if singly else EACH))
    assert abs(seen.mean() - rate) < ALARM * spread, f"{seen.mean()} were drawn where {rate} is recorded"
    two = [(a, b) for a in range(EACH) for b in range(a)]
    agree, pairs = _agreement([(part[:, a], part[:, b]) for part in drawn.values() for a, b in two])
    if singly:
        assert abs(agree - rate**2 - (1 - rate) ** 2) < ALARM * math.sqrt(EACH / 4 / pairs), "ratings come together"
    else:
        assert agree == 1
    if case.setting is Setting.VERTICAL and not singly:
        whom = {key: np.fmax.reduce(part, axis=1) for key, part in drawn.items()}
        others = [(one, whom["party-2", *key[1:]]) for key, one in whom.items() if key[0] == "party-1"]
        agree, pairs = _agreement(others)
        assert abs(agree - rate**2 - (1 - rate) ** 2) < ALARM * math.sqrt(1 / 4 / pairs), "silos share their samples"


def _drawn(case: Case, heard: Heard, users: Mapping[str, np.ndarray]) -> dict[tuple, np.ndarray]:
    """By answer: which ratings of whom were drawn, (users, EACH); NaN for those of other silos."""
    drawn = {}
    for key, answer in heard.answers.items():
        shown = np.full(CROWD * EACH, np.nan)
        shown[np.asarray(heard.trained.facts.member(key[0]).columns)] = answer.exact["items"].any(axis=1)
        drawn[key] = shown.reshape(CROWD, EACH)[np.asarray(users[key[0]])]
    return drawn


def _agreement(pairs: list[tuple[np.ndarray, np.ndarray]]) -> tuple[float, int]:
    """How often both of a pair are drawn, or neither, and how many pairs there are."""
    one, other = (np.concatenate(side) for side in zip(*pairs, strict=True))
    known = ~(np.isnan(one) | np.isnan(other))
    return float(np.mean(one[known] == other[known])), int(known.sum())


def half_sampled(case: Case) -> None:
    check_sampling(replace(case, sampling=0.5))


# -- what it costs ----------------------------------------------------------------------------------------------------


@EVERY
def test_what_left_of_one_unit_composes_to_what_was_promised(name):
    """Each ledger holds every answer that one unit is in, at all parties, and no more than was promised."""
    case = CASES[name]
    heard = converse(case, extreme_records(1, case.scale))
    terms = heard.plan.terms
    spent = {party: [row.spent for row in rows] for party, rows in heard.rows.items()}
    in_all = case.setting is Setting.VERTICAL and case.unit == "user"
    for party, events in spent.items():
        made = sum(in_all or key[0] == party for key in heard.answers)
        assert sum(getattr(event, "count", 0) for event in events) == made
        reached = float(epsilon(events, heard.plan.delta, terms.relation))
        assert reached <= terms.guarantee.epsilon * (1 + 1e-9), f"ε = {reached} left, {terms.guarantee} was promised"
        assert reached > 0.99 * terms.guarantee.epsilon


# -- Δ ----------------------------------------------------------------------------------------------------------------


@EVERY
@given(
    seed=st.integers(0, 2**32),
    pin=st.sampled_from(sorted(PINS)),
    lies=st.booleans(),
    scale=st.sampled_from([(1, 5), (-10, 10)]),
)
@settings(deadline=None, max_examples=10)
def test_neighbours_answers_are_within_what_the_noise_covers(name, seed, pin, lies, scale):
    case = replace(CASES[name], scale=scale)
    records = extreme_records(seed, scale)
    near = neighbour_of(case, records, seed)
    check_neighbours(case, records, near, pin=PINS[pin], send=wild(seed, case.span) if lies else None)


@EVERY
@pytest.mark.parametrize("check", [check_public_quantities, check_projected, check_noise, half_sampled])
def test_every_check_holds_in_every_case(name, check):
    check(CASES[name])


@EVERY
def test_the_plan_has_the_rule_books_sensitivity(name):
    plan = CASES[name].plan()
    assert plan.terms.relation is (Relation.REPLACE if CASES[name].replaced else Relation.ZERO_OUT)
    for step, terms in plan.terms.steps.items():
        assert terms.sensitivity == pytest.approx(CASES[name].sensitivity(step))


# -- what may come in -------------------------------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_a_number_is_refused_by_schema(name, bad):
    def send(step, t, rows):
        sent = np.ones((rows, 3))
        sent[0, 0] = bad
        return sent

    with pytest.raises(BadMessage, match="not finite"):
        converse(CASES[name], [[(0, 5.0)]] * USERS, send=send)


@EVERY
def test_one_user_may_rate_an_item_once(name):
    with pytest.raises(DataError, match="rate an item once"):
        converse(CASES[name], [[(0, 5.0), (0, 5.0)], *[[] for _ in range(USERS - 1)]])


# -- bugs that would make a stated ε false, planted one at a time ------------------------------------------------------


HOME, NOISED = CASES["horizontal, user, pretrained"], CASES["horizontal, rating, noised"]
VERTICAL, PER_RATING = CASES["vertical, user"], CASES["vertical, rating"]


def received_factors_are_not_projected(patch):
    patch.setattr(UpdateRule, "project", lambda self, parameters, received, span: received.copy())


def ratings_are_counted(patch):
    """|Ω| as it is, not as it was declared."""
    real = prepared.replace
    patch.setattr(prepared, "replace", lambda facts, ratings=0, **others: real(facts, **others))


def silos_weigh_what_they_hold(patch):
    real = Facts.of.__func__

    def of(cls, parties, seed):
        held = {share.name: 1 + share.ratings.n_ratings for share in parties}
        patch.setattr(Facts, "weight", lambda self, name: held[name] / sum(held.values()))
        return real(cls, parties, seed)

    patch.setattr(Facts, "of", classmethod(of))


def theta_for_items_rows(patch):
    """θ where √θ does: not false, but more noise than the rule book has."""
    stated = staticmethod(lambda size, kept, blocks: 2 * size**1.5 * kept)
    patch.setattr(EmbeddingGradient, "_of_ratings", stated)


def more_are_drawn_than_is_stated(patch):
    real = gradients.sample_users
    patch.setattr(gradients, "sample_users", lambda indptr, rate, *given: real(indptr, min(1, 1.5 * rate), *given))


def users_are_drawn_where_ratings_are_stated(patch):
    patch.setattr(gradients, "sample_ratings", gradients.sample_users)


def only_rows_that_were_touched_are_noised(patch):
    real = Gaussian.noised

    def sparing(self, blocks, source):
        noised = real(self, blocks, source)
        for name, block in blocks.items():
            quiet = np.setdiff1d(np.arange(block.n), block.rows)
            noised[name][quiet] = 0
        return noised

    patch.setattr(Gaussian, "noised", sparing)


def steps_share_their_noise(patch):
    real = Gate._source
    patch.setattr(Gate, "_source", lambda self, purpose, *number: real(self, purpose, *[0] * len(number)))


#: What is planted, the check that must fail, and on which case; what moves neighbours is planted with the contracts.
PLANTED = {
    "received factors not projected": (received_factors_are_not_projected, check_projected, everybody(HOME)),
    "received not projected, vertical": (received_factors_are_not_projected, check_projected, everybody(VERTICAL)),
    "|Ω| counted": (ratings_are_counted, check_public_quantities, everybody(HOME)),
    "|Ω| counted, vertical": (ratings_are_counted, check_public_quantities, everybody(VERTICAL)),
    "weights from counts": (silos_weigh_what_they_hold, check_public_quantities, everybody(HOME)),
    "θ for items' rows": (theta_for_items_rows, check_noise, everybody(HOME)),
    "sampling stated too low": (more_are_drawn_than_is_stated, half_sampled, HOME),
    "users drawn for ratings": (users_are_drawn_where_ratings_are_stated, half_sampled, PER_RATING),
    "users drawn for ratings, noised": (users_are_drawn_where_ratings_are_stated, half_sampled, NOISED),
    "untouched rows not noised": (only_rows_that_were_touched_are_noised, check_noise, everybody(HOME)),
    "noise used twice": (steps_share_their_noise, check_noise, everybody(VERTICAL)),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_noticed(name, monkeypatch):
    """The check holds, and with the bug it does not."""
    plant, check, case = PLANTED[name]
    check(case)
    plant(monkeypatch)
    monkeypatch.setattr(sgdmf_conversations, "_plan", sgdmf_conversations._plan.__wrapped__)  # plans are made anew
    with pytest.raises(AssertionError):
        check(case)
