"""`tacit.fit`: the recommended model in one line."""

from __future__ import annotations

from typing import Any

from tacit.errors import UsageError, with_article
from tacit.estimator.base import DP, Estimator
from tacit.estimator.generate import estimator
from tacit.partition import Parties

#: A secure sum over fewer parties would show one party's numbers to another.
FEWEST = 3


def fit(
    parties: Parties,
    epsilon: float | None = None,
    delta: float | None = None,
    unit: str = "user",
    aggregation: str | None = None,
    seed: int = 7,
) -> Estimator:
    """The method `auto`, fitted to parties that `tacit.partition` made: private with `epsilon`, NON-PRIVATE without.

    Load the ratings with `features=`, as in `tacit.load("demo", features=["genres", "year"])`: without them a private
    model has little to tell users apart by, and `recommend` gives close to the same list to everyone.

    Parameters
    ----------
    epsilon, delta, unit : the guarantee, as in `DP`
    aggregation : how parties' sums are added; by default "secagg" where there is a guarantee and there are three
        parties or more, so that all share one noise, and else "plain"
    seed : of the simulation

    >>> import tacit
    >>> silos = tacit.partition(tacit.load("demo", users=100, items=50, ratings=2000), into=4)
    >>> tacit.fit(silos, epsilon=2).guarantee_.epsilon <= 2
    True
    """
    if not isinstance(parties, Parties):
        raise UsageError(
            f"tacit.fit takes parties, and got {with_article(type(parties).__name__)}; make them with tacit.partition."
        )
    private = epsilon is not None
    if aggregation is None:
        aggregation = "secagg" if private and sum(share.devices or 1 for share in parties) >= FEWEST else "plain"
    privacy = DP(epsilon, delta, unit) if epsilon is not None else None
    made: Any = estimator("auto")
    fitted: Estimator = made(privacy=privacy, aggregation=aggregation, seed=seed).fit(parties)
    return fitted
