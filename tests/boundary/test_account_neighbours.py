"""What the accountant charges is never below the truth, on neighbours chosen to make it look bad.

Every check is also run with a mistake planted in the accountant, and has to notice it.
"""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import true_divergences as true
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.boundary import account, events, renyi
from tacit.boundary import loss_distributions as losses
from tacit.boundary.events import DiscreteGaussian, Gaussian, Laplace, Pure, SampledGaussian, Skellam
from tacit.guarantee import Relation

ZERO_OUT, REPLACE = Relation.ZERO_OUT, Relation.REPLACE
ORDERS = np.array([1.5, 2.0, 3.0, 4.5, 8.0, 16.0])
#: Rounding of the reference itself.
ROUNDING = 1e-7


def clear_caches():
    for cached in (renyi._single, losses._single, losses._composed, account.merged_epsilon, account.merged_delta):
        cached.cache_clear()


@pytest.fixture(autouse=True, scope="module")
def coarser_losses():
    """A wider grid of losses: larger by a little, which these checks allow for, and ten times as fast."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(losses, "INTERVAL", 1e-3)
        clear_caches()
        yield
    clear_caches()


@pytest.fixture
def plant(monkeypatch):
    """Make the accountant misread every event, in its own code, where it takes the relation into account."""

    def planted(misread):
        sound = events.under
        for module in (renyi, losses, account):
            monkeypatch.setattr(module, "under", lambda event, relation: misread(event, sound(event, relation)))
        clear_caches()

    yield planted
    monkeypatch.undo()
    clear_caches()


def changed(event, **factors):
    """An event with some numbers multiplied, where it has them."""
    return replace(event, **{name: getattr(event, name) * f for name, f in factors.items() if hasattr(event, name)})


def integer_shifts():
    """Differences between two integer answers, in one to four coordinates: long, flat, and mixed."""
    return [(1,), (4,), (1, 1), (3, -1), (2, 2, 2), (5, 0, 1), (1, 1, 1, 1)]


def too_cheap(events_and_truths, relation=ZERO_OUT):
    """The cases in which an event costs less than what two neighbours show."""
    found = []
    for event, truth in events_and_truths:
        costs = renyi.curve((event,), relation, ORDERS)
        found += [(event, a) for a, c in zip(ORDERS, costs, strict=True) if truth(a) > c * (1 + ROUNDING) + 1e-12]
    return found


def skellam_cases():
    for variance, shift in itertools.product((2.0, 9.0, 100.0), integer_shifts()):
        noise = true.skellam(variance, 150 + int(20 * math.sqrt(variance)))
        pairs = [true.shifted(noise, s) for s in shift if s]
        l1, l2 = sum(map(abs, shift)), math.hypot(*shift)
        yield (Skellam(variance, float(l1), l2), lambda a, pairs=pairs: sum(true.renyi(q, p, a) for p, q in pairs))


def discrete_gaussian_cases():
    for (variance, shares), shift in itertools.product([(2.0, 1), (2.0, 3), (4.0, 8), (30.0, 2)], integer_shifts()):
        noise = true.discrete_gaussians(variance, shares, 90 + int(4 * variance))
        pairs = [true.shifted(noise, s) for s in shift if s]
        yield (
            DiscreteGaussian(variance, math.hypot(*shift), len(shift), shares),
            lambda a, pairs=pairs: sum(true.renyi(p, q, a) for p, q in pairs),
        )


def laplace_cases():
    """A shift of Δ₁ = 1 in one coordinate, and shared between several."""
    for scale, shares in itertools.product((0.5, 2.0), [(1.0,), (0.5, 0.5), (0.7, 0.2, 0.1)]):
        density = true.laplace(scale)
        pairs = [true.shifted(density, round(share / 0.01)) for share in shares]
        yield Laplace(scale), lambda a, pairs=pairs: sum(true.renyi(p[500:-500], q[500:-500], a) for p, q in pairs)


def sampled_cases():
    for z, rate, at in itertools.product((0.7, 1.5), (0.02, 0.3), (1.0, -1.0, 0.6)):
        here, gone = (
            true.sampled_gaussian(z, rate, at, reach=40, cells=6000),
            true.sampled_gaussian(z, 0.0, 0.0, reach=40, cells=6000),
        )
        for pair in ((here, gone), (gone, here)):
            yield SampledGaussian(z, rate), lambda a, pair=pair: true.renyi(*pair, a)


def replaced_cases():
    for z, rate, (one, other) in itertools.product((0.7, 1.5), (0.02, 0.3), [(1.0, -1.0), (1.0, 0.4), (-1.0, 0.0)]):
        pair = [true.sampled_gaussian(z, rate, at, reach=40, cells=6000) for at in (one, other)]
        yield SampledGaussian(z, rate), lambda a, pair=pair: true.renyi(*pair, a)


def pure_cases():
    """Randomised response, and an exponential mechanism over five choices."""
    for epsilon in (0.1, 1.0, 4.0):
        high = 1 / (1 + math.exp(-epsilon))
        yield Pure(epsilon, "rr"), lambda a, h=high: true.renyi(np.array([h, 1 - h]), np.array([1 - h, h]), a)
        scores = np.array([0.0, 0.2, 0.5, 0.9, 1.0])
        p, q = (np.exp(epsilon / 2 * s) / np.exp(epsilon / 2 * s).sum() for s in (scores, scores[::-1]))
        yield Pure(epsilon, "exponential"), lambda a, p=p, q=q: true.renyi(p, q, a)


CASES = {
    "skellam": skellam_cases,
    "discrete gaussian": discrete_gaussian_cases,
    "laplace": laplace_cases,
    "sampled": sampled_cases,
    "pure": pure_cases,
}


@pytest.mark.parametrize("kind", CASES)
def test_no_event_costs_less_than_its_neighbours_show(kind):
    assert too_cheap(CASES[kind]()) == []
    assert kind != "sampled" or too_cheap(replaced_cases(), REPLACE) == []


MISTAKES = {
    "half the sensitivity": lambda event, seen: changed(
        seen, multiplier=2, l1=0.5, l2=0.5, epsilon=0.5, local_epsilon=0.5
    ),
    "twice the variance": lambda event, seen: changed(seen, variance=2, multiplier=math.sqrt(2)),
    "rate squared": lambda event, seen: changed(seen, rate=getattr(seen, "rate", 1)),
    "shares counted twice": lambda event, seen: changed(seen, shares=2),
}


@pytest.mark.parametrize(
    ("kind", "mistake"),
    [
        ("skellam", "half the sensitivity"),
        ("skellam", "twice the variance"),
        ("discrete gaussian", "half the sensitivity"),
        ("discrete gaussian", "twice the variance"),
        ("discrete gaussian", "shares counted twice"),
        ("laplace", "half the sensitivity"),
        ("sampled", "half the sensitivity"),
        ("sampled", "rate squared"),
        ("pure", "half the sensitivity"),
    ],
)
def test_a_mistake_in_a_cost_would_be_noticed(kind, mistake, plant):
    plant(MISTAKES[mistake])
    assert too_cheap(CASES[kind]()) != []


def test_taking_a_replaced_sample_for_an_emptied_one_would_be_noticed(plant, monkeypatch):
    sound = renyi._integrated
    monkeypatch.setattr(renyi, "_integrated", lambda z, rate, alpha, replaced: sound(z, rate, alpha, False))
    plant(lambda event, seen: seen)
    assert too_cheap(replaced_cases(), REPLACE) != []


@given(z=st.floats(0.3, 20), rate=st.floats(1e-4, 0.9), order=st.integers(2, 60))
@settings(max_examples=40, deadline=None)
def test_sampled_costs_are_those_of_the_closed_form_at_whole_orders(z, rate, order):
    """Mironov, Talwar and Zhang 2019: Σ_k C(α, k)·(1 − q)^(α − k)·q^k·e^((k² − k)/2z²)."""
    from scipy.special import gammaln, logsumexp

    k = np.arange(order + 1)
    chance = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    terms = chance + (order - k) * math.log1p(-rate) + k * math.log(rate) + (k * k - k) / (2 * z * z)
    closed = float(logsumexp(terms)) / (order - 1)
    ours = renyi.curve((SampledGaussian(z, rate),), ZERO_OUT, np.array([float(order)]))[0]
    assert ours == pytest.approx(closed, rel=1e-6, abs=1e-12)


EPSILONS = (0.0, 0.3, 1.0, 2.0)


def understated(event, pair, relation, epsilons=EPSILONS):
    """The ε at which the accountant's δ is below that of a pair of neighbours."""
    return [
        e for e in epsilons if true.hockey_stick(*pair, e) > account.delta([event], e, relation) * (1 + 1e-6) + 1e-9
    ]


def overstated(event, pair, relation, epsilons=EPSILONS):
    """The ε at which the accountant's δ is more than a little above that of the worst pair."""
    return [e for e in epsilons if account.delta([event], e, relation) > true.hockey_stick(*pair, e) * 1.02 + 1e-6]


def sampled_pairs(z, rate, relation):
    """Pairs of neighbours for one sampled answer: the worst one first."""
    ends = [(1.0, None), (0.5, None)] if relation is ZERO_OUT else [(1.0, -1.0), (1.0, 0.3), (-0.8, 0.8)]
    for one, other in ends:
        p = true.sampled_gaussian(z, rate, one)
        q = true.sampled_gaussian(z, 0.0 if other is None else rate, other or 0.0)
        yield p, q
        yield q, p


@pytest.mark.parametrize("relation", [ZERO_OUT, REPLACE])
@pytest.mark.parametrize(("z", "rate"), [(1.0, 0.1), (0.6, 0.5)])
def test_delta_covers_sampled_neighbours_and_is_tight(relation, z, rate):
    pairs = list(sampled_pairs(z, rate, relation))
    for pair in pairs:
        assert understated(SampledGaussian(z, rate), pair, relation) == []
        assert understated(SampledGaussian(z, rate, 2), [true.twice(d) for d in pair], relation, (0.5, 1.5)) == []
    assert overstated(SampledGaussian(z, rate), pairs[0], relation) == []


def test_sampling_users_does_not_amplify_the_unit_rating():
    """If her other ratings show that she was sampled, one more shows over twice what a sampled Gaussian claims."""
    pair = [true.sampled_gaussian(1.0, 0.1, at, reach=40, cells=6000) for at in (21.0, 20.0)]
    assert true.hockey_stick(*pair, 1.0) > 2 * account.delta([SampledGaussian(1.0, 0.1)], 1.0, ZERO_OUT)


def test_delta_covers_neighbours_in_several_coordinates():
    """Replaced contributions that point anywhere in the plane: opposite is worst, and covered."""
    z, rate = 0.8, 0.3
    event = SampledGaussian(z, rate)
    one = true.sampled_gaussian_plane(z, rate, (1.0, 0.0))
    for angle in (0.5, 1.5, 2.5, math.pi):
        other = true.sampled_gaussian_plane(z, rate, (math.cos(angle), math.sin(angle)))
        assert understated(event, (one, other), REPLACE, (0.2, 1.0)) == []
    gone = true.sampled_gaussian_plane(z, 0.0, (0.0, 0.0))
    slanted = true.sampled_gaussian_plane(z, rate, (0.6, 0.8))
    assert understated(event, (slanted, gone), ZERO_OUT, (0.2, 1.0)) == []


@pytest.mark.parametrize("shares", [(1.0,), (0.5, 0.5), (0.75, 0.25)])
def test_delta_covers_laplace_however_the_shift_is_shared(shares):
    """Two coordinates that move by half each show less than one that moves by all of Δ₁, at every ε."""
    scale, cells = 1.0, true.laplace(1.0, reach=18, step=0.05)
    p, q = np.ones(1), np.ones(1)
    for share in shares:
        here, there = true.shifted(cells, round(share / 0.05))
        p, q = np.outer(p, here).ravel(), np.outer(q, there).ravel()
    assert understated(Laplace(scale), (p, q), ZERO_OUT, (0.0, 0.3, 0.6, 0.9)) == []


def test_delta_covers_pure_mechanisms_and_their_repetition():
    high = 1 / (1 + math.exp(-0.7))
    p, q = np.array([high, 1 - high]), np.array([1 - high, high])
    for count in (1, 2, 3):
        pair = [d.copy() for d in (p, q)]
        for _ in range(count - 1):
            pair = [np.outer(far, d).ravel() for far, d in zip(pair, (p, q), strict=True)]
        assert understated(Pure(0.7, "rr", count), pair, ZERO_OUT, (0.0, 0.35, 0.7, 1.4)) == []
        assert overstated(Pure(0.7, "rr", count), pair, ZERO_OUT, (0.0, 0.35, 0.7)) == []


def test_mistakes_would_be_noticed_in_delta(plant, monkeypatch):
    """The rate squared; replacing counted twice; replacing forgotten; the count forgotten."""
    event, (pair, replaced) = SampledGaussian(1.0, 0.1), (next(sampled_pairs(1.0, 0.1, r)) for r in (ZERO_OUT, REPLACE))
    plant(MISTAKES["rate squared"])
    assert understated(event, pair, ZERO_OUT) != []
    plant(lambda event, seen: changed(seen, multiplier=0.5))
    assert overstated(event, replaced, REPLACE) != []
    monkeypatch.undo()
    clear_caches()
    sound, merge = losses._single, events.merge
    monkeypatch.setattr(losses, "_single", lambda event, relation, interval: sound(event, ZERO_OUT, interval))
    assert understated(event, replaced, REPLACE) != []
    monkeypatch.undo()
    clear_caches()
    twice = [true.twice(d) for d in pair]
    assert understated(replace(event, count=2), twice, ZERO_OUT, (0.5,)) == []
    monkeypatch.setattr(account, "merge", lambda events: tuple(replace(e, count=1) for e in merge(events)))
    assert understated(replace(event, count=2), twice, ZERO_OUT, (0.5,)) != []


@given(st.lists(st.tuples(st.floats(0.5, 50), st.integers(1, 50)), min_size=1, max_size=5), st.floats(0.0, 3.0))
@settings(max_examples=30, deadline=None)
def test_plain_gaussians_have_the_delta_of_the_one_they_make(answers, epsilon):
    """Σ count/z² is the squared distance of the means in all coordinates together; δ from the normal distribution."""
    from scipy.stats import norm

    mu = math.sqrt(sum(count / z**2 for z, count in answers))
    direct = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    ours = account.delta([Gaussian(z, count) for z, count in answers], epsilon, ZERO_OUT)
    assert ours == pytest.approx(direct, rel=1e-6, abs=1e-13)
