"""Posteriors of counts on a grid, one item after another: what noised sums say, under a log-normal prior."""

import numpy as np

from tacit.kernels.jit import Array, compiled


@compiled(fastmath=True)
def _log_counts(values, scales, deviations, logs, prior, s, out):
    points = len(logs)
    step, grid, weight = logs[1] - logs[0], np.exp(logs), np.empty(points)
    for i in range(len(prior)):
        for g in range(points):
            weight[g] = -0.5 * ((logs[g] - prior[i]) / s) ** 2
        for j in range(len(values)):
            y, scale = values[j, i], scales[j, i]
            known = max(np.sqrt(deviations[j] ** 2 + (step * max(y, 0.0)) ** 2), 1e-12)
            for g in range(points):
                weight[g] -= 0.5 * ((y - scale * grid[g]) / known) ** 2
        largest = weight.max()
        total, first, second, count = 0.0, 0.0, 0.0, 0.0
        for g in range(points):
            w = np.exp(weight[g] - largest)
            total += w
            first += w * logs[g]
            second += w * logs[g] ** 2
            count += w * grid[g]
        out[0, i], out[1, i] = first / total, second / total - (first / total) ** 2
        out[2, i] = count / total


def log_counts(values: Array, scales: Array, deviations: Array, logs: Array, prior: Array, s: float) -> Array:
    """Means and variances of log d, and means of d, by y_j = scale_j·d + N(0, deviation_j²), log d ~ N(prior, s²).

    Parameters
    ----------
    values, scales : (measurements, m)
    deviations : (measurements,); nothing is taken as known more finely than the grid's steps
    logs : the grid of log d, evenly spaced
    prior, s : (m,), and a number

    Returns
    -------
    (3, m) float64
    """
    out = np.empty((3, len(prior)))
    _log_counts(values, scales, deviations, logs, prior, s, out)
    return out


def log_counts_numpy(values, scales, deviations, logs, prior, s):
    """The twin of `log_counts`."""
    step, grid = logs[1] - logs[0], np.exp(logs)
    weights = -0.5 * ((logs - prior[:, None]) / s) ** 2
    for y, scale, deviation in zip(values[:, :, None], scales[:, :, None], deviations, strict=True):
        known = np.maximum(np.hypot(deviation, step * np.maximum(y, 0)), 1e-12)
        weights -= 0.5 * ((y - scale * grid) / known) ** 2
    weights = np.exp(weights - weights.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    mean = weights @ logs
    return np.array([mean, weights @ logs**2 - mean**2, weights @ grid])
