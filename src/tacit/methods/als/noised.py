"""What a coordinator makes of noised sums: a start from counts and means, and the update of a private sweep.

All of it is computed from noised values and public facts, so it costs nothing.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tacit.boundary.least_squares import unpacked
from tacit.federation import Facts, Total
from tacit.kernels.posteriors import posteriors
from tacit.methods.als.learner import ITEMS, START, Learner, as_sent
from tacit.methods.als.priors import Prior, item_features, products
from tacit.methods.als.scaled import PRIORS, WEIGHT, query
from tacit.methods.als.statistics import empty_joint, square
from tacit.methods.bias import item_biases
from tacit.model.bayesian import Bayesian

#: The weight of a count beside a rating's deviation from its user's mean.
COUNT_WEIGHT = 0.7
#: Before the first sweep, the variances of a user's level and of their taste for each starting direction.
LEVEL, TASTE, NOISE, DOUBT = 0.3, 0.3, 0.8, 10.0


def noised_start(facts: Facts, counted: Total, factors: int, stream: np.random.Generator) -> Learner:
    """Item biases by empirical Bayes; q_i starts as popularity, bias and the main directions of public features."""
    A, S = (np.asarray(counted[name], dtype=np.float64) for name in ("sums", "counts"))
    b = np.clip(item_biases(A, S / COUNT_WEIGHT, counted.noise, counted.noise / COUNT_WEIGHT), -2, 2)
    known = np.maximum(S, counted.noise)
    counts = facts.ratings * known / known.sum()
    d = factors + 2
    items = np.ones((facts.items, d))
    items[:, 1] = b
    items[:, 2:] = START * directions(np.log1p(counts), b, facts.catalogue.features(), factors, stream)
    a, c = np.triu_indices(d)
    features = item_features(counts, facts.catalogue.features())
    precision = np.diag([1 / LEVEL, *[1 / TASTE] * factors]).astype(np.float32)
    form = Bayesian(
        facts.scale.low,
        facts.scale.high,
        0.0,
        as_sent(NOISE),
        as_sent(DOUBT),
        items.astype(np.float32),
        (items[:, a] * items[:, c]).astype(np.float32),
        np.zeros((d + 1, d - 1), dtype=np.float32),
        precision,
    )
    start = Prior.fitted(products(features, items[:, 1:]), features.shape[1], facts.items)
    return Learner(form, features, replace(start, covariance=start.covariance + ITEMS * np.eye(d - 1)), facts.users)


def directions(
    popularity: np.ndarray, b: np.ndarray, features: np.ndarray, factors: int, stream: np.random.Generator
) -> np.ndarray:
    """Starting directions in this order: popularity, bias, main directions of features, random ones; (m, k)."""
    columns = np.stack([popularity, b], axis=1)
    if features.shape[1]:
        U, sizes, _ = np.linalg.svd(features - features.mean(axis=0), full_matrices=False)
        columns = np.concatenate([columns, U[:, sizes > 1e-6 * sizes.max(initial=1e-9)]], axis=1)
    columns = np.concatenate([columns, stream.standard_normal((len(b), factors))], axis=1)[:, :factors]
    deviation = columns.std(axis=0)
    spread: np.ndarray = (columns - columns.mean(axis=0)) / np.where(deviation > 1e-9, deviation, 1.0)
    return spread


def noised_update(learner: Learner, total: Total) -> Learner:
    """`Learner.updated` where sums are noised and users weighted: items, then both priors, then σ²."""
    form, n, d = learner.form, learner.users, learner.form.width
    up = query(d - 2).limit / math.sqrt(PRIORS)
    users, error, _, weight = np.asarray(total["errors"], dtype=np.float64) * up
    weight = WEIGHT * float(np.clip(weight / max(users, 1.0), 0.05, 3.0))
    empty = empty_joint(form)
    J = up * unpacked(np.asarray(total["joint"], dtype=np.float64)[None])[0] + n * empty
    prior = Prior.fitted(J, d + 1, n, noise=total.noise * up)
    sums, targets = believed(total.blocks, total.noise, weight, learner.prior)
    ones = np.ones(len(sums))
    means, moments = posteriors(sums, targets, ones, 0, learner.prior.means(learner.features), learner.prior.precision)
    joint = products(learner.features, means[:, 1:])
    joint[1 - d :, 1 - d :] = square(moments.sum(axis=0, dtype=np.float64), d)[1:, 1:]
    form = replace(
        form,
        noise=as_sent(float(np.clip(2 * error / max(users, 1.0), 0.1, 4.0))),
        items=means,
        moments=moments,
        coefficients=prior.coefficients.astype(np.float32),
        precision=prior.precision.astype(np.float32),
    )
    return replace(learner, form=form, prior=Prior.fitted(joint, learner.features.shape[1], len(means)))


def believed(
    blocks: Mapping[str, np.ndarray], noise: float, weight: float, prior: Prior
) -> tuple[np.ndarray, np.ndarray]:
    """What noised sums say about items, as upper triangles and targets of a likelihood; float32.

    With users weighted by about w, t = S·z + e has Cov(e) = w·S + ν²(3/2 + tr Σ/2)·I: in the eigenvectors of S, whose
    eigenvalues are lowered by the noise's own and cut at 0, the precision is s²/(w·s + ν²…).
    """
    S = unpacked(np.asarray(blocks["moments"], dtype=np.float64))
    d = S.shape[1]
    right = np.asarray(blocks["targets"], dtype=np.float64)[:, 1:] - S[:, 0, 1:]
    sizes, axes = np.linalg.eigh(S[:, 1:, 1:])
    sizes = np.maximum(sizes - noise * math.sqrt(d), 0)
    doubt = weight * sizes + noise**2 * (1.5 + np.trace(prior.covariance) / 2) + 1e-12
    along = np.einsum("mfj,mf->mj", axes, right)
    precision = np.einsum("mfj,mj,mhj->mfh", axes, sizes**2 / doubt, axes)
    a, b = np.triu_indices(d)
    whole, targets = np.zeros((len(S), d, d)), np.zeros((len(S), d))
    whole[:, 1:, 1:] = precision
    targets[:, 1:] = np.einsum("mfj,mj->mf", axes, sizes * along / doubt)
    return whole[:, a, b].astype(np.float32), targets.astype(np.float32)
