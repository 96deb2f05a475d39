"""The coordinator's state of `als`: items' posteriors, and the priors of items and users."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit.data.ratings import Scale
from tacit.kernels.posteriors import posteriors
from tacit.methods.als.priors import Prior, item_features, positive, products
from tacit.methods.als.statistics import noise_prior, square, users_joint
from tacit.model.bayesian import LEAST_NOISE, Bayesian

#: In quarters of the scale: σ² and the variances of users' and items' factors before the first sweep, and the size of
#: items' random factors. An item's bias starts as its mean with so many ratings of the centre. Found on a
#: split of the training parts of MovieLens 100K and latest-small.
NOISE, DOUBT, USERS, ITEMS, START, SHRINKAGE = 0.6, 10.0, 3.0, 0.1, 0.3, 5.0

#: The largest number that a party believes; precisions, the largest that sweeps find, are below 1/LEAST = 10⁴.
MOST = 1e6


@dataclass(frozen=True, eq=False)
class Learner:
    """All that a coordinator knows between sweeps.

    Attributes
    ----------
    form : what users get: items' posteriors, the users' prior and their noise
    features : f_i, (m, F)
    prior : of items' (b_i, q_i)
    users : n, on the roster
    """

    form: Bayesian
    features: np.ndarray
    prior: Prior
    users: int

    @classmethod
    def start(
        cls,
        scale: Scale,
        users: int,
        counts: np.ndarray,
        sums: np.ndarray,
        factors: int,
        public: np.ndarray,
        stream: np.random.Generator,
    ) -> Learner:
        """From how often each item was rated and the sum of its ratings, in quarters of the scale from its middle."""
        centre = float(np.clip(sums.sum() / max(counts.sum(), 1.0), -2, 2))
        form = started(scale, centre, counts, sums, stream.standard_normal((len(counts), factors)))
        features = item_features(counts, public)
        return cls(form, features, Prior.unknown(features.shape[1], factors + 1, ITEMS), users)

    def updated(self, blocks: Mapping[str, np.ndarray]) -> Learner:
        """After one sweep's sums: items' posteriors given users', then the priors of both, then the noise."""
        form, ones = self.form, np.ones(len(self.features))
        means, moments = posteriors(
            blocks["moments"], blocks["targets"], ones, 0, self.prior.means(self.features), self.prior.precision
        )
        prior = Prior.fitted(items_joint(self.features, means, moments), self.features.shape[1], len(means))
        form = replace(users_updated(form, blocks, self.users), items=means, moments=moments)
        return replace(self, form=form, prior=prior)

    @property
    def payload(self) -> dict[str, Any]:
        return payload_of(self.form)


def started(scale: Scale, centre: float, counts: np.ndarray, sums: np.ndarray, normals: np.ndarray) -> Bayesian:
    """Items with shrunken means and random factors, before the first sweep; `normals` (m, k) are standard normal."""
    m, factors = normals.shape
    d = factors + 2
    items = np.ones((m, d))
    items[:, 1] = (sums - centre * counts) / (np.maximum(counts, 0) + SHRINKAGE)
    items[:, 2:] = START * factors**-0.25 * normals
    a, b = np.triu_indices(d)
    return Bayesian(
        scale.low,
        scale.high,
        as_sent(centre),
        as_sent(NOISE),
        as_sent(DOUBT),
        items.astype(np.float32),
        (items[:, a] * items[:, b]).astype(np.float32),
        np.zeros((d + 1, d - 1), dtype=np.float32),
        (np.eye(d - 1) / USERS).astype(np.float32),
    )


def items_joint(features: np.ndarray, means: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """Σ_i E[h·hᵀ] with h = (f_i, b_i, q_i), from items' posteriors."""
    d = means.shape[1]
    joint = products(features, means[:, 1:])
    joint[1 - d :, 1 - d :] = square(moments.sum(axis=0, dtype=np.float64), d)[1:, 1:]
    return joint


def users_updated(form: Bayesian, blocks: Mapping[str, np.ndarray], users: int) -> Bayesian:
    """The form with the users' prior and their noise by what all of so many users said about these."""
    prior = Prior.fitted(users_joint(blocks, form, users), form.width + 1, users)
    noise, doubt = noise_prior(np.asarray(blocks["errors"], dtype=np.float64))
    coefficients, precision = prior.coefficients.astype(np.float32), prior.precision.astype(np.float32)
    return replace(form, noise=as_sent(noise), doubt=as_sent(doubt), coefficients=coefficients, precision=precision)


def payload_of(form: Bayesian) -> dict[str, np.ndarray]:
    """What users get, as it travels."""
    numbers = np.array([form.centre, form.noise, form.doubt], dtype=np.float32)
    return {**{name: getattr(form, name) for name in form.arrays}, "numbers": numbers}


def form_of(scale: Scale, payload: Mapping[str, np.ndarray]) -> Bayesian:
    """What arrived, as the form that it is; numbers that no sweep finds are moved to the nearest that one could."""
    centre, noise, doubt = (float(number) for number in payload["numbers"])
    arrays = {name: np.clip(payload[name], -MOST, MOST) for name in Bayesian.arrays}
    arrays["precision"] = possible(arrays["precision"])
    noise, doubt = min(max(noise, LEAST_NOISE), MOST), min(max(doubt, 1.0), MOST)
    return Bayesian(scale.low, scale.high, min(max(centre, -2.0), 2.0), noise, doubt, **arrays)


def possible(precision: np.ndarray) -> np.ndarray:
    """The precision itself if it is symmetric and clearly positive, else the nearest that is; float32."""
    wide = precision.astype(np.float64)
    sizes = np.linalg.eigvalsh((wide + wide.T) / 2)
    sound = np.allclose(wide, wide.T, rtol=1e-3) and sizes[0] > max(1e-9, 1e-6 * sizes[-1])
    return precision if sound else positive(wide, 1e-3 + 1e-4 * abs(sizes).max()).astype(np.float32)


def as_sent(number: float) -> float:
    """A number as float32, the precision that travels."""
    return float(np.float32(number))
