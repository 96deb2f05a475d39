"""Vocabularies of users and items: ids to rows, and back."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.errors import DataError, did_you_mean


class Vocabulary:
    """Strictly increasing ids, an array of int64 or of str (object).

    `kind` is "user" or "item", for messages; `listed` is True where no id is known from ratings alone, so that the list
    may be public.
    """

    def __init__(self, ids: np.ndarray, kind: str, listed: bool = True) -> None:
        self.ids, self.kind, self.listed = ids, kind, listed

    @classmethod
    def of(cls, ids: Any, kind: str) -> Vocabulary:
        """The vocabulary of the distinct ids in any sequence."""
        return cls(np.unique(as_ids(ids)), kind, listed=False)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self):,} {self.kind}s)"

    def __getitem__(self, rows: Any) -> Any:
        return self.ids[rows]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and len(self) == len(other) and bool(np.all(self.ids == other.ids))

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def _arrow(self) -> pa.Array:
        return pa.array(self.ids, pa.string() if self.ids.dtype == object else pa.int64())

    def rows(self, ids: Any) -> np.ndarray:
        """The row of each id, −1 for an unknown one. Shape (len(ids),), int64."""
        wanted = as_ids(ids)
        if wanted.dtype != self.ids.dtype:
            wanted = wanted.astype(str).astype(object) if self.ids.dtype == object else _to_int(wanted)
        found = pc.index_in(pa.array(wanted, self._arrow.type), value_set=self._arrow)
        return pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)

    def row(self, id: object) -> int:
        """The row of one id; an unknown one is an error with a suggestion."""
        row = int(self.rows([id])[0])
        if row < 0:
            named = self.ids.dtype == object  # a number that looks like another one says nothing
            hint = did_you_mean(str(id), (str(i) for i in self.ids[:5000])) if named else ""
            raise DataError(f"There is no {self.kind} {id!r} among the {len(self):,} known.{hint}")
        return row


def as_ids(ids: Any) -> np.ndarray:
    """Ids as one flat array: int64 where all are integers that fit, text (object) otherwise."""
    if isinstance(ids, (pa.Array, pa.ChunkedArray)):
        ids = ids.to_numpy(zero_copy_only=False) if isinstance(ids, pa.Array) else ids.to_numpy()
    array = np.asarray(ids)
    if array.dtype.kind == "i" or (array.dtype.kind == "u" and not np.any(array > _INT64.max)):
        return array.astype(np.int64, copy=False)
    if array.dtype == object and all(_is_int64(i) for i in array):
        return array.astype(np.int64)
    return np.array([str(i) for i in array], dtype=object)


def _is_int64(id: object) -> bool:
    return isinstance(id, (int, np.integer)) and not isinstance(id, bool) and _INT64.min <= int(id) <= _INT64.max


def _to_int(ids: np.ndarray) -> np.ndarray:
    """Text ids as integers, None where the text is not how an int64 is written. Shape (len(ids),), object."""
    numbers = (int(i) if _WHOLE.fullmatch(i) else None for i in ids)
    return np.array([n if _is_int64(n) else None for n in numbers], dtype=object)


_INT64 = np.iinfo(np.int64)
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")
