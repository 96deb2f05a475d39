"""What (ε, δ) means for a person: numbers that follow from the definition."""

import math

import numpy as np
import pytest

from tacit.boundary import odds
from tacit.errors import UsageError


def coin(epsilon, delta):
    """The worst (ε, δ)-DP pair: given away with probability δ, otherwise told with odds e^ε to 1."""
    truth = 1 / (1 + math.exp(-epsilon))
    p = np.array([delta, (1 - delta) * truth, (1 - delta) * (1 - truth), 0.0])
    return p, p[::-1]


def best_test(p, q, false_alarms):
    """The most powerful test of p against q, by Neyman and Pearson."""
    order = np.argsort(-p / np.maximum(q, 1e-300))
    hits = left = 0.0
    left = false_alarms
    for i in order:
        take = 1.0 if q[i] <= left else left / q[i]
        hits, left = hits + take * p[i], left - take * q[i]
    return hits


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (0.1, 1e-6), (1.0, 1e-6), (2.0, 0.01), (8.0, 0.0)])
def test_the_best_attacker_is_the_one_who_sees_the_coin(epsilon, delta):
    p, q = coin(epsilon, delta)
    told = odds.odds(epsilon, delta)
    assert told.accuracy == pytest.approx(np.maximum(p, q).sum() / 2)
    assert told.advantage == pytest.approx(np.abs(p - q).sum() / 2)
    assert told.caught == pytest.approx(best_test(p, q, 0.01))
    for alarms in (0.0, 0.001, 0.3, 1.0):
        assert odds.power(alarms, epsilon, delta) == pytest.approx(best_test(p, q, alarms))


@pytest.mark.parametrize("prior", [1e-6, 0.001, 0.5, 0.9])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0, 50.0])
def test_certainty_follows_bayes(prior, epsilon):
    truth = 1 / (1 + math.exp(-epsilon))
    seen = prior * truth / (prior * truth + (1 - prior) * (1 - truth))
    assert odds.posterior(prior, epsilon) == pytest.approx(seen, rel=1e-9)


def test_certainties_at_the_edges():
    assert odds.posterior(0.5, 0.0) == 0.5
    assert (odds.posterior(0.0, 5.0), odds.posterior(1.0, 5.0), odds.posterior(0.001, math.inf)) == (0, 1, 1)
    assert odds.posterior(0.5, 5000.0) == 1


VERDICTS = {
    "strong": [(0.0, 0.0), (1.0, 1e-6)],
    "moderate": [(1.001, 1e-6), (3.0, 1e-6)],
    "weak": [(10.0, 1e-6)],
    "little": [(10.01, 1e-6), (1e6, 0.0)],
    "none": [(math.inf, 0.0), (0.1, 0.5)],
}


def test_verdicts_are_honest():
    assert {word: [odds.odds(*pair).verdict for pair in pairs] for word, pairs in VERDICTS.items()} == {
        word: [word] * len(pairs) for word, pairs in VERDICTS.items()
    }


def test_delta_is_fit_for_a_tenth_of_its_inverse():
    assert odds.odds(1.0, 1e-6).people == pytest.approx(100_000)
    assert odds.odds(1.0, 0.0).people == math.inf


def test_what_is_impossible_is_refused():
    for pair in [(-1.0, 0.0), (math.nan, 0.0), (1.0, -1e-9), (1.0, 1.0), (1.0, math.nan)]:
        with pytest.raises(UsageError, match="not possible"):
            odds.odds(*pair)
    with pytest.raises(UsageError, match="probability"):
        odds.posterior(1.5, 1.0)
