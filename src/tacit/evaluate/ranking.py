r"""Ranking metrics from positions, in expectation over the order of tied scores.

A test item with `g` candidates above it and `t` tied with it (itself included) stands, over random orders of
the tie, at positions g+1 … g+t with equal probability. Each metric below is the exact mean over those orders
(McSherry & Najork 2008), so that a predictor that gives all items one score gets what guessing gets:

    hit        P(position ≤ k) = clip((k − g) / t, 0, 1)
    DCG        (1/t) Σ_{p=g+1}^{min(g+t, k)} 1 / log₂(p + 1)
    AP         (1/t) Σ_{p=g+1}^{min(g+t, k)} (1/p) (G + 1 + (r − 1)(p − g − 1)/(t − 1))

where G relevant items lie above the tie and r are in it. Per user, with R relevant items and h expected hits:
precision = h/k, recall = h/R, F1 = 2h/(k + R) (the harmonic mean of both), NDCG = DCG over that of R items on
top, and AP is divided by min(R, k), so that a perfect list has 1 (Ribero et al. 2022, eq. 5, divide by R).
"""

from __future__ import annotations

import numpy as np

from tacit.evaluate.metrics import PerUser
from tacit.evaluate.positions import Positions


def ranking_metrics(positions: Positions, relevant: np.ndarray, weights: np.ndarray, k: int) -> dict[str, PerUser]:
    """All ranking metrics per evaluated user.

    Parameters
    ----------
    relevant : (e,) bool, of each entry of `positions`
    weights : (e,) float64 ≥ 0, x of eq. (4)
    k : the cut-off

    Returns
    -------
    name → numerator and denominator, (u,) each; the denominator is 0 where a user has no relevant item
    """
    u = len(positions.users)
    owner, above, tied = (a[relevant] for a in (positions.owner, positions.above, positions.tied))
    better, equal = _relevant_rivals(owner, above)

    def per_user(x: np.ndarray) -> np.ndarray:
        return np.bincount(owner, x, minlength=u)

    R = np.bincount(owner, minlength=u).astype(np.float64)
    some = (R > 0).astype(np.float64)
    safe = np.maximum(R, 1.0)  # divides 0 where there is no relevant item
    h = per_user(_hit(above, tied, k))
    sampled = _hit(positions.sampled_above[relevant], positions.sampled_tied[relevant], k)
    alone = _hit(above - better, tied - equal + 1, k)  # without the other relevant items
    discounts = np.concatenate(([0.0], np.cumsum(1 / np.log2(np.arange(2, k + 2)))))
    ideal = discounts[np.minimum(safe, k).astype(np.int64)]
    return {
        f"hr@{k}": PerUser(per_user(sampled) / safe, some),
        f"hr_full@{k}": PerUser(per_user(alone) / safe, some),
        f"ndcg@{k}": PerUser(per_user(_tie_mean(discounts, above, tied, k)) / ideal, some),
        f"precision@{k}": PerUser(h / k, some),
        f"recall@{k}": PerUser(h / safe, some),
        f"f1@{k}": PerUser(2 * h / (k + R), some),
        f"map@{k}": PerUser(per_user(_precisions(above, tied, better, equal, k)) / np.minimum(safe, k), some),
        "rank": mean_percentile(positions, weights),
    }


def mean_percentile(positions: Positions, weights: np.ndarray) -> PerUser:
    """Σ x_ui · rank_ui and Σ x_ui per user over *all* test items.

    rank_ui is the share of the user's other candidates that stand above item i, a tie counting half: 0 is the
    very top, 1 the very bottom. An item that has no rival has no percentile, and no weight.

    References: Hu, Koren & Volinsky 2008; Ribero et al. 2022, "Federating recommendations using
    differentially private prototypes", eq. (4).
    """
    u = len(positions.users)
    rivals = (positions.candidates - 1)[positions.owner]
    percentile = (positions.above + (positions.tied - 1) / 2) / np.maximum(rivals, 1)
    x = np.where(rivals > 0, weights, 0.0)
    return PerUser(
        np.bincount(positions.owner, x * percentile, minlength=u),
        np.bincount(positions.owner, x, minlength=u),
    )


def _relevant_rivals(owner: np.ndarray, above: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each relevant item: how many relevant ones of its user stand above it (G), how many tie with it (r).

    Within a user fewer items above means a higher score, and as many above means a tie.
    """
    span = int(above.max(initial=0)) + 1
    groups, group, sizes = np.unique(owner * span + above, return_inverse=True, return_counts=True)
    before = np.cumsum(sizes) - sizes
    user = groups // span
    first = np.searchsorted(user, user)  # the first group of each group's user
    return (before - before[first])[group], sizes[group]


def _hit(above: np.ndarray, tied: np.ndarray, k: int) -> np.ndarray:
    return np.clip((k - above) / tied, 0.0, 1.0)


def _tie_mean(prefix: np.ndarray, above: np.ndarray, tied: np.ndarray, k: int) -> np.ndarray:
    """The mean over a tie's positions of a quantity whose prefix sums over positions 1 … k are given."""
    return (prefix[np.minimum(above + tied, k)] - prefix[np.minimum(above, k)]) / tied


def _precisions(above: np.ndarray, tied: np.ndarray, better: np.ndarray, equal: np.ndarray, k: int) -> np.ndarray:
    """The expected precision at an item's own position, 0 beyond k.

    With B = (r − 1)/(t − 1) the sum in the module's docstring is (G + 1 − B(g + 1)) Σ 1/p + B Σ 1.
    """
    slope = (equal - 1) / np.maximum(tied - 1, 1)
    harmonic = np.concatenate(([0.0], np.cumsum(1 / np.arange(1, k + 1))))
    ones = np.arange(k + 1, dtype=np.float64)
    constant = better + 1 - slope * (above + 1)
    return constant * _tie_mean(harmonic, above, tied, k) + slope * _tie_mean(ones, above, tied, k)
