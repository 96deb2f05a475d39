"""What mechanisms really give away is at most what their events say; and each way to get it wrong is seen to be found.

A silo sums its users' vectors, each clipped to norm C, and releases the sum with noise. Neighbours are as bad as can
be: one user at the bound, far beyond it, or spread over all coordinates, and the same silo with her record emptied.
"""

import numpy as np
import pytest
import true_divergences as true
from privacy_loss import EPSILONS, gaussian_delta, hockey_stick, leaks, measured_delta, seeded

from tacit.boundary.mechanisms import DiscreteGaussian, DiscreteLaplace, Gaussian, Skellam
from tacit.rng import derive

C, Z = 2.0, 1.5  # the clip, and noise over sensitivity
ITEMS = 6


def clipped(x):
    return x / np.maximum(1, np.linalg.norm(x, axis=-1, keepdims=True) / C)


def silo(victim):
    """Three users; the last is the one who is protected."""
    others = derive(7, "others").standard_normal((2, ITEMS))
    return np.vstack([others, victim])


VICTIMS = {
    "at the bound, in one coordinate": C * np.eye(ITEMS)[0],
    "at the bound, in all": np.full(ITEMS, C / np.sqrt(ITEMS)),
    "far beyond it": 50.0 * np.eye(ITEMS)[1],
    "far beyond it, negative": np.full(ITEMS, -9.0),
}
EMPTY = np.zeros(ITEMS)


def towards(victim):
    """The most telling statistic: the output along the direction in which she moves it."""
    direction = victim / np.linalg.norm(victim)
    return lambda y: y.reshape(len(y), -1, ITEMS).sum(axis=1) @ direction


def added(sums, n, source, sigma=Z * C):
    """n independent releases of a sum, (n, ITEMS)."""
    return Gaussian(sigma).add({"sum": np.repeat(sums[None], n, axis=0)}, source)["sum"]


def honest(users, n, source):
    return added(clipped(users).sum(axis=0).astype(np.float32), n, source)


EVENT = Gaussian(Z * C).event(C)


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_gaussian_release_gives_away_no_more_than_its_event(victim):
    """n = 40,000 releases of either neighbour at four ε; false alarm 10⁻⁶ each."""
    source, victim = seeded("honest", victim), VICTIMS[victim]
    release = lambda users, n: honest(users, n, source)  # noqa: E731
    assert leaks(release, silo(victim), silo(EMPTY), EVENT, towards(victim)) is None


def test_the_measurement_is_sharp():
    """It finds nearly all that there is to find, with n = 400,000."""
    source, victim = seeded("sharp"), VICTIMS["at the bound, in all"]
    release = lambda users, n: honest(users, n, source)  # noqa: E731
    for epsilon, share in ((0.1, 0.9), (0.5, 0.8), (1.0, 0.5)):
        found = measured_delta(release, silo(victim), silo(EMPTY), epsilon, towards(victim), 400_000)
        assert share * gaussian_delta(epsilon, EVENT) < found < gaussian_delta(epsilon, EVENT)


def half_the_sensitivity(users, n, source):
    return added(clipped(users).sum(axis=0), n, source, Z * C / 2)


def clip_after_noise(users, n, source):
    return clipped(added(users.sum(axis=0), n, source))


def truncated(users, n, source):
    """Noise beyond 3σ is cut to 3σ."""
    return clipped(users).sum(axis=0) + np.clip(added(EMPTY, n, source), -3 * Z * C, 3 * Z * C)


def a_coarse_grid(users, n, source):
    """Noise from a coarse grid: which fractions occur reveals the sum."""
    return clipped(users).sum(axis=0) + np.round(added(EMPTY, n, source), 1)


BUGS = {
    "half the sensitivity": (half_the_sensitivity, VICTIMS["at the bound, in all"], towards(np.ones(ITEMS))),
    "clip after noise": (clip_after_noise, VICTIMS["far beyond it"], towards(VICTIMS["far beyond it"])),
    "truncated": (truncated, VICTIMS["at the bound, in one coordinate"], lambda y: y[:, 0]),
    "a coarse grid": (a_coarse_grid, VICTIMS["at the bound, in all"], lambda y: np.round(y[:, 0] * 10 % 1, 6)),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found_and_the_right_release_passes(bug):
    """n = 400,000 for cut tails, which are rare; 40,000 for all others."""
    release, victim, statistic = BUGS[bug]
    source, n = seeded("bug", bug), 400_000 if release is truncated else 40_000
    assert leaks(lambda users, n: release(users, n, source), silo(victim), silo(EMPTY), EVENT, statistic, n) is not None
    source = seeded("not a bug", bug)
    assert leaks(lambda users, n: honest(users, n, source), silo(victim), silo(EMPTY), EVENT, statistic) is None


SUPPORT = np.arange(-4000, 4001)


def discrete_laplace_law(scale):
    return np.tanh(0.5 / scale) * np.exp(-np.abs(SUPPORT) / scale)


def test_discrete_laplace_noise_composes_worse_than_a_laplace_event_would_say():
    """Why its event is `Pure`: at Δ = 1 it is randomised response, and at ε' < ε gives away more than Laplace noise."""
    scale, half, law = 2.0, 0.25, discrete_laplace_law(2.0)
    discrete = hockey_stick(law, np.roll(law, 1), half)
    response = np.array([1 / (1 + np.exp(-1 / scale)), 1 / (1 + np.exp(1 / scale))])
    continuous = 1 - np.exp(-(1 / scale - half) / 2)  # of Laplace noise with multiplier 2
    assert discrete == pytest.approx(hockey_stick(response, response[::-1], half), rel=1e-9)
    assert discrete > 1.05 * continuous
    assert hockey_stick(law, np.roll(law, 3), DiscreteLaplace(scale).event(3).epsilon) < 1e-15


@pytest.mark.parametrize(
    ("mechanism", "law"),
    [
        (Skellam(20.0), true.skellam(20.0, 4000)),
        (DiscreteGaussian(20.0), true.discrete_gaussians(20.0, 1, 4000)),
        (DiscreteLaplace(3.0), discrete_laplace_law(3.0)),
    ],
)
@pytest.mark.parametrize("flaw", [None, "half the sensitivity", "noise used for sampled entries only"])
def test_discrete_releases_measured(mechanism, law, flaw):
    """n = 40,000 releases of an answer that is 0 or 2, measured as above, against the exact δ(ε) of the law."""
    source, shift = seeded("discrete", type(mechanism).__name__), 2

    def release(x, n):
        answer = np.full(n, x, dtype=np.int64)
        if flaw == "noise used for sampled entries only" and x == 0:
            return answer
        return mechanism.add(2 * answer if flaw == "half the sensitivity" else answer, source)

    found = [
        measured_delta(release, shift, 0, epsilon, lambda y: y.astype(float), 40_000)
        > hockey_stick(law, np.roll(law, shift), epsilon)
        for epsilon in EPSILONS
    ]
    assert any(found) == (flaw is not None)
