"""Public item features as numbers to compute with, and those that choices are ranked by. No rating is read."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tacit.data.catalogue import NUMBERS, Catalogue
from tacit.federation import Facts
from tacit.kernels.components import components

#: A number becomes so many bumps, evenly spaced over its range but for one item in a hundred at each end.
BUMPS = 8
#: More labels than these, and free text, become so many principal components of their TF-IDF, times a factor: its rows
#: have length 1, and an item has a label or two.
FEW, COMPONENTS, SIZE = 40, 100, 3.0
#: Columns of more features than this are many labels or free text: items differ along their main directions only.
NARROW = 100
#: Directions that choices are ranked along, at most. On a nested leave-one-out split of ML-1M (noised counts, ε = 1):
#: HR@10 .151 by these features, .140 by the components of unit rows; with tags .151 and .143.
MOST = 40


def described(catalogue: Catalogue) -> np.ndarray:
    """What item means and popularity are regressed on, (m, d) float64: `labelled`, and how many labels an item has.

    The latter only where labels are many: items that more is said about are more popular.
    """
    numbers = [np.log1p(_counts(catalogue, name))[:, None] for name in catalogue.columns if is_long(catalogue, name)]
    return np.hstack([labelled(catalogue), *numbers])


@lru_cache(maxsize=2)
def labelled(catalogue: Catalogue) -> np.ndarray:
    """Labels as 0 and 1, and bumps of numbers; where there are many labels, and for free text, components of TF-IDF.

    (m, d) float64, the same bits on every site and at the coordinator (`kernels.components`).
    """
    found = [np.zeros((len(catalogue), 0))]
    for name in catalogue.columns:
        if is_long(catalogue, name):
            found.append(SIZE * components(*_alone(catalogue, name).unit_rows, COMPONENTS))
        else:
            found.append(_columns(catalogue, name))
    return np.hstack(found)


def choice_features(facts: Facts) -> np.ndarray:
    """What users may choose items by: labels and numbers, and the main directions of wide columns; (m, ≤ 40) float32.

    The same at the coordinator and at every party, but for rounding where machines differ.
    """
    catalogue = facts.catalogue
    narrow = [name for name in catalogue.columns if catalogue.features([name]).shape[1] <= NARROW]
    x = np.hstack([np.zeros((len(catalogue), 0)), *(_columns(catalogue, name) for name in narrow)])
    if len(narrow) < len(catalogue.columns):
        x = np.hstack([x, facts.components(MOST)])
    if x.shape[1] > MOST:
        centred = x - x.mean(axis=0)
        x = centred @ np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :MOST]
    return x.astype(np.float32)


def is_number(catalogue: Catalogue, name: str) -> bool:
    """Whether a column has numbers rather than labels or text."""
    assert catalogue.attributes is not None
    return catalogue.attributes.schema.field(name).type == NUMBERS


def is_long(catalogue: Catalogue, name: str) -> bool:
    """Whether a column has many labels, or is free text."""
    return _alone(catalogue, name).width > FEW


def _columns(catalogue: Catalogue, name: str) -> np.ndarray:
    x = catalogue.features([name]).astype(np.float64)
    return _bumps(x[:, 0]) if is_number(catalogue, name) else x


def _alone(catalogue: Catalogue, name: str) -> Catalogue:
    return Catalogue(catalogue.ids, catalogue.attributes, (name,))


def _counts(catalogue: Catalogue, name: str) -> np.ndarray:
    """How many labels each item has, (m,)."""
    assert catalogue.attributes is not None
    lists = catalogue.attributes.column(name).combine_chunks()
    return np.diff(lists.offsets.to_numpy())


def _bumps(x: np.ndarray) -> np.ndarray:
    """exp(−((x − c)/(.8·step))²) of each number x around every centre c."""
    low, high = np.quantile(x, [0.01, 0.99])
    if high <= low:
        return np.zeros((len(x), 0))
    centres, step = np.linspace(low, high, BUMPS, retstep=True)
    return np.exp(-np.square((x[:, None] - centres) / (0.8 * step)))
