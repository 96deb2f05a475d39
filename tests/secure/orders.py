"""Whether an order is independent of the one in which things arrived, tested in three ways."""

import numpy as np
from scipy import stats


def check_independent(order: np.ndarray, block: int = 100) -> None:
    """Fail unless the order of n things says nothing about their arrival; `block` is how many arrive together.

    For n of 10,000 or more, each of the three tests fails a uniform order less than once in a million times:
    correlation of places (normal, 5 standard deviations: 6e-7), a table of tenths by tenths (chi², 81 degrees of
    freedom: 1e-7), and neighbours from one message that stay neighbours (Poisson of mean `block`, 7 standard
    deviations, below 1e-9 for block = 100).
    """
    n, place = len(order), np.arange(len(order))
    assert np.array_equal(np.sort(order), place), "something is missing, or came twice"
    correlation = np.corrcoef(order, place)[0, 1] * np.sqrt(n)
    assert abs(correlation) < 5, f"places correlate: {correlation:.1f} standard deviations"
    table, _, _ = np.histogram2d(order, place, bins=10)
    chi = ((table - n / 100) ** 2 / (n / 100)).sum()
    assert stats.chi2.sf(chi, 81) > 1e-7, f"tenths depend on each other: χ² = {chi:.0f}"
    together = np.count_nonzero(np.diff(order // block) == 0)
    assert together < block + 7 * np.sqrt(block) + 10, f"{together} reports are still beside one of the same message"
