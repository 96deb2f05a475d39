"""What (ε, δ) means for a person: odds, the best attacker's score, and words.

All of it follows from one fact (Kairouz, Oh and Viswanath 2015, proof of Theorem 3.3): whatever an (ε, δ)-DP mechanism
shows about one unit can be computed from a coin. With probability δ the coin reveals everything, otherwise it shows the
truth with odds e^ε to 1. So no attacker, with any knowledge and any computer, does better than one who sees that coin.
"""

import math
from dataclasses import dataclass

from tacit.errors import UsageError

#: Up to which ε a guarantee is called what.
VERDICTS = ((1.0, "strong"), (3.0, "moderate"), (10.0, "weak"), (math.inf, "little"))


@dataclass(frozen=True)
class Odds:
    """What a guarantee allows the best attacker, who sees every release and knows everything else.

    Attributes
    ----------
    factor : e^ε, by which the odds for or against anything about one unit can move
    accuracy : how often they are right about which of two equally likely values one unit has
    advantage : by how much hits exceed false alarms, at most
    caught : the share of units that they find at one false alarm in a hundred
    people : the size of data set that δ is fit for; above ten times that, δ could cover revealing one person entirely
    verdict : strong, moderate, weak, little or none
    """

    epsilon: float
    delta: float
    factor: float
    accuracy: float
    advantage: float
    caught: float
    people: float
    verdict: str


def odds(epsilon: float, delta: float) -> Odds:
    """The numbers for (ε, δ).

    >>> allowed = odds(1.0, 1e-6)
    >>> allowed.verdict, round(allowed.accuracy, 3), round(allowed.factor, 2)
    ('strong', 0.731, 2.72)
    """
    if not epsilon >= 0:
        raise UsageError(f"epsilon = {epsilon} is not possible; give a number of at least 0.")
    if not 0 <= delta < 1:
        raise UsageError(f"delta = {delta} is not possible; give a number from 0 up to, but not including, 1.")
    truth = 1 / (1 + math.exp(-epsilon))
    accuracy = delta + (1 - delta) * truth
    return Odds(
        epsilon,
        delta,
        factor=math.exp(epsilon) if epsilon < 700 else math.inf,
        accuracy=accuracy,
        advantage=2 * accuracy - 1,
        caught=power(0.01, epsilon, delta),
        people=math.inf if delta == 0 else 1 / (10 * delta),
        verdict="none" if delta >= 0.5 or epsilon == math.inf else next(w for top, w in VERDICTS if epsilon <= top),
    )


def posterior(prior: float, epsilon: float) -> float:
    """The most that a certainty of `prior` can become, except with probability δ.

    >>> round(posterior(0.5, 1.0), 3), round(posterior(0.001, 1.0), 5)
    (0.731, 0.00271)
    """
    if not 0 <= prior <= 1:
        raise UsageError(f"A prior of {prior} is not possible; give a probability.")
    if prior in (0.0, 1.0) or epsilon == math.inf:
        return float(prior > 0)
    return 1 / (1 + (1 - prior) / prior * math.exp(-epsilon))


def power(false_alarms: float, epsilon: float, delta: float) -> float:
    """The largest share of hits at a share of false alarms (Wasserman and Zhou 2010; Kairouz, Oh and Viswanath).

    1 − f(α) with f(α) = max{0, 1 − δ − e^ε·α, e^−ε·(1 − δ − α)}.
    """
    grown = false_alarms * math.exp(min(epsilon, 700.0)) + delta
    return max(0.0, min(1.0, grown, 1 - math.exp(-epsilon) * (1 - delta - false_alarms)))
