"""What must hold of private SGDMF: each check raises AssertionError where it does not, as planted bugs show."""

import math
from collections.abc import Mapping

import numpy as np
from sgdmf_cases import (
    DELTA,
    EPSILON,
    FINAL,
    ITEMS,
    LOCAL,
    ROUNDS,
    SILOS,
    USERS,
    Case,
    Records,
    extreme_records,
    parties_of,
)
from sgdmf_talks import Heard, axes, converse, to_corner, wild

from tacit.boundary.account import epsilon
from tacit.boundary.events import Gaussian, SampledGaussian
from tacit.guarantee import Relation
from tacit.kernels.embed import embed
from tacit.partition import Setting

#: How far an estimate may lie from its expectation, in standard deviations: one false alarm in a million, or so.
ALARM = 5.0


# -- neighbours -------------------------------------------------------------------------------------------------------


def check_neighbours(case: Case, records: Records, near: Records, **how: object) -> dict[str, float]:
    """Neighbours' answers are within what the noise was made for, and nothing else that leaves differs.

    Returns by step how far they came, in parts of Δ under zero-out.
    """
    here, there = converse(case, records, **how), converse(case, near, **how)
    assert here.answers.keys() == there.answers.keys()
    assert {step for _, step, _, _ in here.answers} == set(case.stated)
    charged = {name: terms.event.multiplier for name, terms in here.plan.terms.steps.items()}
    furthest = dict.fromkeys(case.stated, 0.0)
    within = 2 if here.plan.terms.relation is Relation.REPLACE else 1  # the accountant's factor, and nobody else's
    for key, answer in here.answers.items():
        other = there.answers[key]
        assert answer.sigma == other.sigma
        moved, covered = _apart(answer.exact, other.exact), answer.sigma / charged[key[1]]
        assert moved <= within * covered, f"{key}: moved by {moved}, and the noise covers {within * covered}"
        furthest[key[1]] = max(furthest[key[1]], moved / covered)
    assert here.trained.transcript.digest == there.trained.transcript.digest, "something else than answers differs"
    return furthest


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


def check_empty(case: Case) -> None:
    """Where all records are empty every answer is 0, bit for bit; where one is, her own row is."""
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


# -- what it costs ----------------------------------------------------------------------------------------------------


def check_composition(case: Case) -> None:
    """Each ledger holds every answer that one unit is in, at all parties, and no more than was promised."""
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


def check_plan(case: Case) -> None:
    """The promise covers every answer that any run of these parameters makes of one unit, counted here."""
    plan = case.plan()
    kappa = FINAL if case.setting is Setting.VERTICAL else 0
    answers = (ROUNDS * LOCAL + kappa) * (SILOS if case.setting is Setting.VERTICAL and case.unit == "user" else 1)
    z = plan.multiplier
    event = Gaussian(z, answers) if case.sampling == 1 else SampledGaussian(z, case.sampling, answers)
    reached = float(epsilon([event], DELTA, Relation.REPLACE if case.replaced else Relation.ZERO_OUT))
    assert reached <= plan.terms.guarantee.epsilon * (1 + 1e-9) <= EPSILON * (1 + 1e-9)
    assert reached > 0.999 * EPSILON
