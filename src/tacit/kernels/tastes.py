"""Posteriors of many users' tastes at once, the item factors fixed: z ~ N(0, c·I), targets = v·z + N(0, s²)."""

import numpy as np

from tacit.kernels.jit import Array, compiled

#: Nothing raises, whatever numbers a coordinator sent: whether something does could tell of a user's ratings.
OPTIONS = {"fastmath": True, "error_model": "numpy"}


#: How a user's own noise and scale of taste may differ from everybody's: s²/c and s² over those of all users, who have
#: c = 1, and the deviations of log c and of log s² among users. Found on nested splits of the training part of ML-1M.
RATIOS, NOISES = np.array([0.5, 1.0, 2.0]), np.array([0.6, 1.0, 1 / 0.6])
SCALE_DEVIATION, NOISE_DEVIATION = 0.5, 0.3


def _beliefs() -> Array:
    """The prior log probabilities, up to a constant, of each ratio and noise."""
    scales = np.log(NOISES / RATIOS[:, None])
    return -0.5 * (np.square(scales / SCALE_DEVIATION) + np.square(np.log(NOISES) / NOISE_DEVIATION))


BELIEFS = _beliefs()


@compiled(**OPTIONS)
def _factored(gram, ratio, lower):
    for f in range(len(gram)):  # gram + ratio·I = lower·lowerᵀ
        for h in range(f + 1):
            value = gram[f, h]
            if h == f:
                value += ratio
            for g in range(h):
                value -= lower[f, g] * lower[h, g]
            lower[f, h] = np.sqrt(max(value, ratio * 1e-9)) if h == f else value / lower[h, h]


@compiled(**OPTIONS)
def _own(gram, x, squares, count, ratios, noises, beliefs, lower, column, likely):
    k, best = len(x), -np.inf
    for c in range(len(ratios)):
        _factored(gram, ratios[c], lower)
        left, size = squares, -k * np.log(ratios[c])
        for f in range(k):
            value = x[f]
            for g in range(f):
                value -= lower[f, g] * column[g]
            column[f] = value / lower[f, f]
            left -= column[f] ** 2
            size += 2 * np.log(lower[f, f])
        for h in range(len(noises)):
            likely[c, h] = beliefs[c, h] - 0.5 * (count * np.log(noises[h]) + size + left / noises[h])
            best = max(best, likely[c, h])
    whole, ratio, noise = 0.0, 0.0, 0.0
    for c in range(len(ratios)):
        for h in range(len(noises)):
            weight = np.exp(likely[c, h] - best)
            whole += weight
            ratio += weight * np.log(ratios[c])
            noise += weight * np.log(noises[h])
    return np.exp(ratio / whole), np.exp(noise / whole)


@compiled(**OPTIONS)
def _posteriors(indptr, items, targets, factors, ratios, noises, beliefs, directions, means, spreads):
    k, q = directions.shape
    gram, lower, x, column = np.empty((k, k)), np.empty((k, k)), np.empty(k), np.empty(k)
    likely = np.empty(beliefs.shape)
    for i in range(len(indptr) - 1):
        gram[:] = 0
        x[:] = 0
        squares, end = 0.0, indptr[i + 1]
        for e in range(indptr[i], end - 1, 2):  # two entries at a time: half as many passes over gram
            v, w, s, t = factors[items[e]], factors[items[e + 1]], targets[e], targets[e + 1]
            squares += s * s + t * t
            for f in range(k):
                x[f] += s * v[f] + t * w[f]
                for h in range(f + 1):
                    gram[f, h] += v[f] * v[h] + w[f] * w[h]
        if (end - indptr[i]) % 2:
            v, t = factors[items[end - 1]], targets[end - 1]
            squares += t * t
            for f in range(k):
                x[f] += t * v[f]
                for h in range(f + 1):
                    gram[f, h] += v[f] * v[h]
        ratio, noise = _own(gram, x, squares, end - indptr[i], ratios, noises, beliefs, lower, column, likely)
        _factored(gram, ratio, lower)
        mean, spread = means[i], spreads[i]
        for f in range(k):
            mean[f] = x[f]
            for c in range(q):
                spread[f, c] = noise * directions[f, c]
        for f in range(k):
            for g in range(f):
                mean[f] -= lower[f, g] * mean[g]
                for c in range(q):
                    spread[f, c] -= lower[f, g] * spread[g, c]
            mean[f] /= lower[f, f]
            for c in range(q):
                spread[f, c] /= lower[f, f]
        for f in range(k - 1, -1, -1):
            mean[f] /= lower[f, f]
            for c in range(q):
                spread[f, c] /= lower[f, f]
            for g in range(f):
                mean[g] -= lower[f, g] * mean[f]
                for c in range(q):
                    spread[g, c] -= lower[f, g] * spread[f, c]


def posteriors(
    indptr: Array, items: Array, targets: Array, factors: Array, noise: float, directions: Array | None = None
) -> tuple[Array, Array]:
    """Every user's posterior mean, (n, k), and posterior covariance times `directions` (k, q), (n, k, q); float64.

    A user's own s² and prior variance c of tastes are near `noise` > 0 and 1: their logarithms are means over a small
    grid, by how likely each point makes the user's targets, t ~ N(0, s²·I + c·V·Vᵀ). With A = (s²/c)·I + Σ_j v_j·v_jᵀ
    over the user's own entries the mean is A⁻¹ Σ_j t_j·v_j and the covariance s²·A⁻¹. A user without entries has mean 0
    and covariance I.
    """
    n, k = len(indptr) - 1, factors.shape[1]
    directions = np.empty((k, 0)) if directions is None else np.asarray(directions, dtype=np.float64)
    means, spreads = np.empty((n, k)), np.empty((n, k, directions.shape[1]))
    targets, factors = (np.ascontiguousarray(x, dtype=np.float64) for x in (targets, factors))
    noise = float(noise)
    _posteriors(indptr, items, targets, factors, noise * RATIOS, noise * NOISES, BELIEFS, directions, means, spreads)
    return means, spreads


def posteriors_numpy(indptr, items, targets, factors, noise, directions=None):
    """The twin of `posteriors`, by dense covariances of targets."""
    n, k = len(indptr) - 1, factors.shape[1]
    directions = np.empty((k, 0)) if directions is None else directions
    means, spreads = np.zeros((n, k)), np.zeros((n, k, directions.shape[1]))
    for i in range(n):
        mine = slice(indptr[i], indptr[i + 1])
        v, t = factors[items[mine]].astype(np.float64), targets[mine]
        likely = BELIEFS.copy()
        for c, h in np.ndindex(BELIEFS.shape):
            covariance = noise * NOISES[h] * (np.eye(len(t)) + v @ v.T / (noise * RATIOS[c]))
            likely[c, h] -= 0.5 * (np.linalg.slogdet(covariance)[1] + t @ np.linalg.solve(covariance, t))
        weights = np.exp(likely - likely.max())
        weights /= weights.sum()
        ratio, own = noise * np.exp(weights.sum(1) @ np.log(RATIOS)), noise * np.exp(weights.sum(0) @ np.log(NOISES))
        a = v.T @ v + ratio * np.eye(k)
        means[i], spreads[i] = np.linalg.solve(a, v.T @ t), own * np.linalg.solve(a, directions)
    return means, spreads


@compiled(**OPTIONS)
def _slopes(indptr, items, residuals, factors, means, spreads, out):
    k, q = spreads.shape[1:]
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            v = factors[items[e]]
            for c in range(q):
                value = residuals[e] * means[i, c]
                for f in range(k):
                    value -= v[f] * spreads[i, f, c]
                out[e, c] = value


def slopes(indptr: Array, items: Array, residuals: Array, factors: Array, means: Array, spreads: Array) -> Array:
    """For each entry e of user i, residual_e·means_i − v_e·spreads_i: (nnz, q) float64.

    With means and covariances along q directions this is the posterior mean of (t − v·z)·z there, the slope of the
    expected log likelihood in v_e; means is (n, q), spreads (n, k, q).
    """
    out = np.empty((len(items), spreads.shape[2]))
    residuals, factors, means = (np.ascontiguousarray(x, dtype=np.float64) for x in (residuals, factors, means))
    _slopes(indptr, items, residuals, factors, means, spreads, out)
    return out


def slopes_numpy(indptr, items, residuals, factors, means, spreads):
    """The twin of `slopes`."""
    users = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    along = np.einsum("ek,ekq->eq", factors[items].astype(np.float64), spreads[users])
    return residuals[:, None] * means[users] - along


@compiled(**OPTIONS)
def _explained(indptr, items, factors, states, out):
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            value = 0.0
            for f in range(factors.shape[1]):
                value += factors[items[e], f] * states[i, f]
            out[e] = value


def explained(indptr: Array, items: Array, factors: Array, states: Array) -> Array:
    """v_e·z_i for each entry e of user i, (nnz,) float64."""
    out = np.empty(len(items))
    factors, states = (np.ascontiguousarray(x, dtype=np.float64) for x in (factors, states))
    _explained(indptr, items, factors, states, out)
    return out


def explained_numpy(indptr, items, factors, states):
    """The twin of `explained`."""
    return np.einsum("ek,ek->e", factors[items], states[users_of(indptr)])


def users_of(indptr: Array) -> Array:
    """The user of each entry, (nnz,) int64."""
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
