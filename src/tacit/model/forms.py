"""Forms of models: each finds a user's state from a history, rates and ranks.

A form is a frozen dataclass whose fields are arrays, named in `arrays`, and plain numbers. Only these and its name are
saved; loading looks the name up among the installed forms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, ClassVar, Protocol

import numpy as np

from tacit.errors import DataError, UsageError
from tacit.registry import Registry

Number = bool | int | float

#: Tacit's own, as pyproject.toml lists them.
OWN = (
    "linear",
    "tastes",
    "non-negative",
    "implicit",
    "item-item",
    "co-occurrence",
    "hashed",
    "bayesian",
    "rated-and-ranked",
)


class Form(Protocol):
    """What all users of a model share. A user's own part is the state, a row of numbers.

    Attributes
    ----------
    name : by which it is found when a model is loaded
    arrays : the names of its arrays, and their dimensions: "items" is the number of items; any other name stands for
        one number in all arrays of the form. A field whose default is None is optional
    dtype : of its arrays and of its users' states, such as "float32"
    """

    name: ClassVar[str]
    arrays: ClassVar[Mapping[str, tuple[str, ...]]]
    dtype: ClassVar[str]

    @property
    def width(self) -> int:
        """k, the length of a user's state."""

    def fold_in(self, indptr: np.ndarray, items: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Each row's state from its own history alone, in compressed rows; (n, k)."""

    def rate(self, states: np.ndarray, users: np.ndarray, items: np.ndarray) -> np.ndarray | None:
        """The rating of each pair (users[e], items[e]), on the scale, float32; None: the form only ranks."""

    def rank(self, states: np.ndarray, users: np.ndarray) -> np.ndarray:
        """A score of every item, one row per user: the higher, the sooner recommended. (len(users), m) float32."""


class NotInstalled(DataError):
    """A model's form is not among those that are installed here."""


@cache
def known() -> Registry[type[Form]]:
    """Forms by name: those of Tacit, and those of other installed packages."""
    return Registry("tacit.forms", "model form", type, OWN)


def find(name: str) -> type[Form]:
    """The form of that name."""
    try:
        return known().find(name)
    except UsageError as unknown:
        raise NotInstalled(
            f'There is no model form "{name[:100]}" here; install the package that provides it. ({unknown})'
        ) from None


def rates(form: Form) -> bool:
    """Whether a form predicts ratings on the scale, or only ranks."""
    none = np.empty(0, dtype=np.int64)
    return form.rate(np.empty((0, form.width), dtype=form.dtype), none, none) is not None


def arrays_of(form: Form) -> dict[str, np.ndarray]:
    """A form's arrays by name, without optional ones that it does not have."""
    found = {name: getattr(form, name) for name in form.arrays}
    return {name: array for name, array in found.items() if array is not None}


def numbers_of(form: Form) -> dict[str, Number]:
    """A form's plain numbers by name."""
    return {f.name: getattr(form, f.name) for f in fields(form) if f.name not in form.arrays}  # type: ignore[arg-type]


def same(*forms: Form) -> bool:
    """Whether all forms are equal: the same numbers, and the same arrays or copies of them."""
    first = forms[0]
    numbers, arrays = numbers_of(first), arrays_of(first)
    for form in forms[1:]:
        if form is first:
            continue
        others = arrays_of(form)
        if type(form) is not type(first) or numbers_of(form) != numbers or others.keys() != arrays.keys():
            return False
        if not all(others[name] is arrays[name] or np.array_equal(others[name], arrays[name]) for name in arrays):
            return False
    return True


def build(name: str, numbers: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Form:
    """A form from its saved numbers and arrays; unknown names are refused."""
    form = find(name)
    wanted = {f.name: f for f in fields(form)}  # type: ignore[arg-type]
    for given in (*numbers, *arrays):
        if given not in wanted or (given in arrays) != (given in form.arrays):
            raise DataError(f'The form "{name}" has no {"array" if given in arrays else "number"} "{given[:40]}".')
    for missing in wanted.keys() - numbers.keys() - arrays.keys():
        if wanted[missing].default is MISSING:
            raise DataError(f'The form "{name}" lacks "{missing}".')
    return form(**numbers, **arrays)


def check(form: Form, items: int | None, states: np.ndarray | None = None, users: int | None = None) -> None:
    """Refuse a form whose arrays do not fit each other or the numbers of items and users, or are not finite."""
    for name, number in numbers_of(form).items():
        if not isinstance(number, Number) or not math.isfinite(number):
            raise DataError(f'"{name}" of the form "{form.name}" is not a finite number.')
    optional = {f.name for f in fields(form) if f.default is None}  # type: ignore[arg-type]
    sizes = {} if items is None else {"items": items}
    for name, dimensions in form.arrays.items():
        array = getattr(form, name)
        if array is None and name in optional:
            continue
        _check_array(f'"{name}" of the form "{form.name}"', array, form.dtype, len(dimensions))
        for dimension, size in zip(dimensions, array.shape, strict=True):
            if sizes.setdefault(dimension, size) != size:
                raise DataError(
                    f'"{name}" of the form "{form.name}" has {size:,} {dimension} where {sizes[dimension]:,} are known.'
                )
    if states is None:
        return
    _check_array("The users' states", states, form.dtype, 2)
    if states.shape[1] != form.width or (users is not None and len(states) != users):
        known = "" if users is None else f"{users:,} users of "
        raise DataError(f"The users' states have the shape {states.shape}; there are {known}{form.width} each.")


def _check_array(what: str, array: Any, dtype: str, dimensions: int) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != dimensions:
        raise DataError(f"{what} is not a {dtype} array of {dimensions} dimensions.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise DataError(f"{what} has numbers that are not finite.")
