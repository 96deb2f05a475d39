"""Public item features as `auto` uses them: labels, smooth functions of numbers, products of both, text. No rating."""

from __future__ import annotations

import numpy as np

from tacit.data.catalogue import Catalogue
from tacit.methods.item_features import is_long, is_number


def crossed(catalogue: Catalogue) -> np.ndarray:
    """Half of each number times each label, where labels are few; (m, d) float64."""
    short = [name for name in catalogue.columns if not is_long(catalogue, name)]
    numbers = [catalogue.features([name]) for name in short if is_number(catalogue, name)]
    labels = [catalogue.features([name]) for name in short if not is_number(catalogue, name)]
    both = [0.5 * x * label for x in numbers for label in labels]
    return np.hstack([np.zeros((len(catalogue), 0)), *both]).astype(np.float64)


def standardised(x: np.ndarray, axis: int = 0) -> np.ndarray:
    """(x − mean)/deviation; 0 where all are equal."""
    deviation = x.std(axis=axis)
    return (x - x.mean(axis=axis)) / np.where(deviation > 1e-9, deviation, 1.0)


def principal(x: np.ndarray, most: int) -> np.ndarray:
    """The map, (d, most), to the strongest directions of centred rows, which then have norm 1 on average.

    Columns without variance are 0, and so are those beyond d.
    """
    centred = x - x.mean(axis=0)
    sizes, axes = np.linalg.eigh(centred.T @ centred)
    kept = axes[:, ::-1][:, :most] * (sizes[::-1][:most] > 1e-9 * max(sizes.sum(), 1e-300))
    scale = np.sqrt(np.square(centred @ kept).sum() / max(len(x), 1))
    found = np.zeros((x.shape[1], most))
    found[:, : kept.shape[1]] = kept / scale if scale > 0 else 0.0
    return found
