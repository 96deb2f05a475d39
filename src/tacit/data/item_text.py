"""Items described by words or labels, as rows of unit length: TF-IDF, and its hashed form for free text.

With c the count of word w at item i, and f the number of the m items that have w,

    weight(i, w) = (1 + log c)·log(m / f)   for 2 ≤ f < m, else 0;   every row is divided by its length

A word of one item alone says nothing about others. Logarithms are rounded to multiples of 1/1024, lengths are sums in a
fixed order, and words are hashed by BLAKE2, so every machine gets the same numbers.
"""

from __future__ import annotations

import hashlib
import unicodedata
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: The number of feature columns that free text is hashed into.
BUCKETS = 1024
_GRID = 1024.0


class Rows(NamedTuple):
    """A sparse matrix in compressed rows: row i has `values` in `columns` at indptr[i] … indptr[i+1]."""

    indptr: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    width: int


def words(text: str) -> list[str]:
    """The words of a text in order: letters, marks and digits in lower case; anything else stands between words.

    >>> words("Heat (1995): L.A. Crime—Saga")
    ['heat', '1995', 'l', 'a', 'crime', 'saga']
    """
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).lower())
    blanks = {ord(c): " " for c in set(text) if unicodedata.category(c)[0] not in "LMN"}
    return text.translate(blanks).split()


def tf_idf(lists: pa.ListArray, hashed: bool = False) -> Rows:
    """One row per item from its list of words: a column per word in alphabetical order, or hashed, with signs."""
    m, flat = len(lists), lists.flatten()
    known = np.array(sorted(pc.unique(flat).to_pylist()), dtype=object)
    place = pc.index_in(flat, value_set=pa.array(known.tolist(), pa.string())).to_numpy().astype(np.int64)
    row = pc.list_parent_indices(lists).to_numpy().astype(np.int64)
    cells, counts = np.unique(row * max(1, len(known)) + place, return_counts=True)
    row, place = np.divmod(cells, max(1, len(known)))
    held = np.bincount(place, minlength=len(known))  # f
    shared = (held[place] >= 2) & (held[place] < m)
    row, place, counts = row[shared], place[shared], counts[shared]
    values: np.ndarray = np.rint(_GRID * (1 + np.log(counts))) * np.rint(_GRID * np.log(m / held[place])) / _GRID**2
    width = len(known)
    if hashed:
        codes = [int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little") for word in known]
        values *= np.array([1.0 if code >> 63 else -1.0 for code in codes])[place] if codes else 1.0
        width, bucket = BUCKETS, np.array([code % BUCKETS for code in codes], dtype=np.int64)
        cells, again = np.unique(row * width + bucket[place], return_inverse=True)
        values = np.bincount(again, values, minlength=len(cells))
        row, place = np.divmod(cells, width)
    return unit_rows(row, place, values, m, width)


def unit_rows(row: np.ndarray, columns: np.ndarray, values: np.ndarray, m: int, width: int) -> Rows:
    """Entries in order of rows as a matrix whose rows have length 1; a row of zeros stays one."""
    length = np.sqrt(np.bincount(row, values * values, minlength=m))[row]
    values = np.divide(values, length, out=np.zeros(len(values)), where=length > 0)
    return Rows(np.concatenate(([0], np.cumsum(np.bincount(row, minlength=m)))), columns, values, width)


def beside(blocks: list[Rows], m: int) -> Rows:
    """Matrices of m rows, side by side."""
    starts = np.cumsum([0, *(block.width for block in blocks)])
    row = np.concatenate([np.zeros(0, np.int64), *(np.repeat(np.arange(m), np.diff(b.indptr)) for b in blocks)])
    columns = np.concatenate(
        [np.zeros(0, np.int64), *(b.columns + s for b, s in zip(blocks, starts[:-1], strict=True))]
    )
    values = np.concatenate([np.zeros(0), *(block.values for block in blocks)])
    order = np.argsort(row, kind="stable")
    indptr = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=m))))
    return Rows(indptr, columns[order], values[order], int(starts[-1]))
