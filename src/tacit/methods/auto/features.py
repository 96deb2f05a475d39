"""Public item features as `auto` uses them: labels, smooth functions of numbers, products of both, text. No rating."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tacit.data.catalogue import NUMBERS, Catalogue
from tacit.kernels.components import components

#: A number becomes so many bumps, evenly spaced over its range but for one item in a hundred at each end.
BUMPS = 8
#: Labels are multiplied by numbers where there are at most so many of them. More of them, and free text, become so many
#: principal components of their TF-IDF, times a factor: rows of it have length 1, and an item has a label or two.
MOST_CROSSED, COMPONENTS, SIZE = 40, 100, 3.0


def described(catalogue: Catalogue) -> np.ndarray:
    """What item means and popularity are regressed on, (m, d) float64: `labelled`, and how many labels an item has.

    The latter only where labels are many: items that more is said about are more popular.
    """
    numbers = [np.log1p(_counts(catalogue, name))[:, None] for name in catalogue.columns if _is_long(catalogue, name)]
    return np.hstack([labelled(catalogue), *numbers])


@lru_cache(maxsize=2)
def labelled(catalogue: Catalogue) -> np.ndarray:
    """Labels as 0 and 1, and exp(−((x − c)/(.8·step))²) of each number x around every centre c; (m, d) float64.

    Where there are many labels, and for free text, components of TF-IDF. The same bits on every site and at the
    coordinator (`kernels.components`).
    """
    found = [np.zeros((len(catalogue), 0))]
    for name in catalogue.columns:
        if _is_long(catalogue, name):
            found.append(SIZE * components(*_alone(catalogue, name).unit_rows, COMPONENTS))
            continue
        x = catalogue.features([name]).astype(np.float64)
        found.append(_bumps(x[:, 0]) if _is_number(catalogue, name) else x)
    return np.hstack(found)


def crossed(catalogue: Catalogue) -> np.ndarray:
    """Half of each number times each label, where labels are few; (m, d) float64."""
    short = [name for name in catalogue.columns if not _is_long(catalogue, name)]
    numbers = [catalogue.features([name]) for name in short if _is_number(catalogue, name)]
    labels = [catalogue.features([name]) for name in short if not _is_number(catalogue, name)]
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


def _is_number(catalogue: Catalogue, name: str) -> bool:
    assert catalogue.attributes is not None
    return catalogue.attributes.schema.field(name).type == NUMBERS


def _alone(catalogue: Catalogue, name: str) -> Catalogue:
    return Catalogue(catalogue.ids, catalogue.attributes, (name,))


def _is_long(catalogue: Catalogue, name: str) -> bool:
    """Whether a column has many labels, or is free text."""
    return _alone(catalogue, name).width > MOST_CROSSED


def _counts(catalogue: Catalogue, name: str) -> np.ndarray:
    """How many labels each item has, (m,)."""
    assert catalogue.attributes is not None
    lists = catalogue.attributes.column(name).combine_chunks()
    return np.diff(lists.offsets.to_numpy())


def _bumps(x: np.ndarray) -> np.ndarray:
    low, high = np.quantile(x, [0.01, 0.99])
    if high <= low:
        return np.zeros((len(x), 0))
    centres, step = np.linspace(low, high, BUMPS, retstep=True)
    return np.exp(-np.square((x[:, None] - centres) / (0.8 * step)))
