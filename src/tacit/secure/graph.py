"""Which parties mask with each other: number of neighbours, threshold, and a ring that everyone computes alike.

With few parties each is a neighbour of every other. With many, each has k neighbours: the k/2 nearest on both sides of
a ring in random order, the Harary graph of Bell et al. 2020 ("Secure single-server aggregation with (poly)logarithmic
overhead", CCS). Its order is a hash of a public seed. Colluders are fixed before the seed is known, and a semi-honest
coordinator follows the protocol: it takes the seed as it comes and drops nobody by choice, and devices and networks
fail without looking at the ring. So the set of those missing or colluding is independent of the ring, and the
probabilities below are over a uniformly random order. An adversary that *chooses* whom to drop after it has seen the
ring is not covered, unless the failure is impossible altogether (−∞) or the shape is `signed`, hence complete.

Formal guarantee
----------------
d = ⌊ω·n⌋ drop-outs, c colluders, r = d + c. For one sum (a run of T sums: T times as much, at most):

- *connected*. Take r parties off the ring. Two neighbouring survivors with fewer than k/2 removed ones between them are
  linked, so the honest survivors fall apart only if at two places k/2 consecutive ones are removed, k in all. That
  cannot be if k > r. Else: at most C(n, 2) pairs of places, each with probability C(n − k, r − k)/C(n, r); ≤ 2⁻⁴⁰.
- *hidden*. The secrets of a party that t colluding neighbours can put together are lost. Impossible if t > c; else at
  most n·P[Hypergeometric(n − 1, c, k) ≥ t] ≤ 2⁻⁴⁰. Honest parties never give both secrets of one (`SecAggParty`).
- *recovers*. The sum is void if fewer than t of a party's neighbours are left. Impossible if k − d ≥ t; else at most
  n·P[Hypergeometric(n − 1, d, k) > k − t] ≤ 2⁻²⁰.

Signed shapes (against a coordinator that lies) are complete and have 2t > n + c: two different survivor lists, or both
secrets of one party, would need 2t ≤ (n − c) + 2c signatures or shares, since honest parties give one each.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tacit.errors import PrivacyRefused, UsageError
from tacit.secure.noise_shares import fewest_of

Floats = NDArray[np.float64]

#: log2 of the probabilities that are allowed, per sum.
SECURE, AVAILABLE = -40.0, -20.0
#: Up to this many parties the graph is complete: that costs little and leaves nothing to chance.
SMALL = 16
#: The largest degree of a ring that is tried before the complete graph.
WIDEST = 1024
NEVER = -math.inf


@dataclass(frozen=True)
class Shape:
    """The graph of a secure sum, and the probabilities that it fails.

    Attributes
    ----------
    parties, degree, threshold : n parties with k neighbours each, t of whom give a secret back
    fewest : survivors below which a round is void
    colluding : parties that may collude with the coordinator
    signed : whether survivor lists are signed, against a coordinator that lies
    connected, hidden, recovers : log2 of the probabilities of failure, −∞ where failure is impossible
    """

    parties: int
    degree: int
    threshold: int
    fewest: int
    colluding: int
    signed: bool
    connected: float
    hidden: float
    recovers: float

    @property
    def complete(self) -> bool:
        return self.degree == self.parties - 1


@lru_cache(maxsize=256)
def choose(parties: int, tolerate: float, colluding: int, signed: bool = False) -> Shape:
    """The cheapest shape in which all of the bounds above hold.

    The threshold is the largest that keeps the sum recoverable, since a higher one resists more colluders; at most
    k//2 + 1, or c + 1 if that is more, to leave room for answers that are lost or wrong.

    >>> print(choose(50, 0.3, 1).degree, choose(50, 0.3, 1).threshold)
    18 4
    """
    if parties < 3:
        has = {0: "none", 1: "one"}.get(parties, "two")
        raise UsageError(
            f'Secure sums need three parties or more; this run has {has}. Use [aggregation] name = "plain".'
        )
    if not 0 <= tolerate < 1 or colluding < 0:
        raise UsageError(
            f"tolerate = {tolerate} with {colluding} colluding is not possible; take a fraction from 0 to below 1, "
            "and no negative number of colluders."
        )
    fewest = fewest_of(parties, tolerate)
    dropped = parties - fewest
    if fewest - colluding < 2:
        raise PrivacyRefused(
            f"Of {parties} parties {dropped} may drop out and {colluding} collude, which leaves "
            f"{max(0, fewest - colluding)} to hide among, and 2 are needed; lower [aggregation] tolerate or collusion, "
            "or let more parties take part."
        )
    if signed:
        return _signed(parties, dropped, colluding)
    for degree in range(2, min(parties - 1, WIDEST + 1), 2) if parties > SMALL else ():
        connected = _split(parties, degree, dropped + colluding)
        if connected <= SECURE and (shape := _shaped(parties, degree, dropped, colluding, connected)):
            return shape
    shape = _shaped(parties, parties - 1, dropped, colluding, NEVER)
    if shape is None:
        raise PrivacyRefused(
            f"No threshold suits {parties} parties of which {dropped} may drop out and {colluding} collude; lower "
            "[aggregation] tolerate or collusion."
        )
    return shape


def neighbours(names: Sequence[str], shape: Shape, public_seed: bytes) -> dict[str, tuple[str, ...]]:
    """Each party's neighbours, in the roster's order: symmetric, never itself, the same wherever it is computed."""
    if len(names) != shape.parties or len(set(names)) < len(names):
        raise UsageError(
            f"A roster of {len(set(names))} different names does not suit a shape for {shape.parties} parties."
        )
    if shape.complete:
        return {name: tuple(other for other in names if other != name) for name in names}
    key = hashlib.sha256(b"tacit ring 1" + public_seed).digest()
    ring = sorted(range(len(names)), key=lambda i: hashlib.sha256(key + names[i].encode()).digest())
    reach = [offset for offset in range(-shape.degree // 2, shape.degree // 2 + 1) if offset]
    near = {ring[at]: sorted(ring[(at + offset) % len(ring)] for offset in reach) for at in range(len(ring))}
    return {name: tuple(names[j] for j in near[i]) for i, name in enumerate(names)}


def _signed(parties: int, dropped: int, colluding: int) -> Shape:
    """The complete graph with the smallest threshold above (n + c)/2; all that survive must be able to sign."""
    threshold, fewest = (parties + colluding) // 2 + 1, parties - dropped
    if threshold > fewest:
        most = math.floor(1000 * (parties - threshold) / parties) / 1000
        raise PrivacyRefused(
            f"Against a coordinator that lies, {parties} parties with {colluding} colluding need {threshold} "
            f"signatures, and only {fewest} are sure to survive; tolerate at most {most:g}."
        )
    return Shape(parties, parties - 1, threshold, fewest, colluding, True, NEVER, NEVER, NEVER)


def _shaped(parties: int, degree: int, dropped: int, colluding: int, connected: float) -> Shape | None:
    """The shape of this degree with its best threshold; None where no threshold keeps all bounds."""
    lost = math.log2(parties) + _tail(parties - 1, dropped, degree)
    known = math.log2(parties) + _tail(parties - 1, colluding, degree)
    for threshold in range(max(degree // 2 + 1, min(degree, colluding + 1)), 0, -1):
        # Void if more than k − t neighbours are lost; known if t or more of them collude.
        recovers, hidden = min(0.0, lost[degree - threshold + 1]), min(0.0, known[threshold])
        if recovers <= AVAILABLE:
            if hidden > SECURE:
                return None
            odds = (connected, float(hidden), float(recovers))
            return Shape(parties, degree, threshold, parties - dropped, colluding, False, *odds)
    return None


def _split(parties: int, degree: int, removed: int) -> float:
    """log2 of the union bound on two runs of k/2 removed parties."""
    if degree > removed:
        return NEVER
    places = _log2_choose(parties, 2)
    runs = _log2_choose(parties - degree, removed - degree) - _log2_choose(parties, removed)
    return min(0.0, float(places + runs))


def _tail(others: int, marked: int, degree: int) -> Floats:
    """log2 P[at least j of `degree` drawn without replacement are marked], for j = 0 … degree + 1."""
    j = np.arange(degree + 1)
    possible = (j <= marked) & (degree - j <= others - marked)
    safe = np.where(possible, j, max(0, degree - (others - marked)))
    each = _log2_choose(marked, safe) + _log2_choose(others - marked, degree - safe) - _log2_choose(others, degree)
    each = np.where(possible, each, NEVER)
    tails: Floats = np.append(np.logaddexp2.accumulate(each[::-1])[::-1], NEVER)
    return tails


def _log2_choose(n: int, k: int | NDArray[np.int64]) -> Floats:
    from scipy.special import gammaln

    chosen: Floats = (gammaln(n + 1) - gammaln(np.add(k, 1)) - gammaln(np.subtract(n, k) + 1)) / math.log(2)
    return chosen
