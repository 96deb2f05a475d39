"""Parties by an attribute: one per value, of the users' table (horizontal) or the items' (vertical)."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from tacit.data.ratings import Ratings
from tacit.errors import UsageError, did_you_mean

UNKNOWN = "unknown"
GENRE = ("genre", "genres")  # either name will do; a cell may have several values, as in "Drama|War"


def find_column(ratings: Ratings, by: str, others: tuple[str, ...]) -> tuple[str, pa.ChunkedArray]:
    """("user" or "item", the column called `by`); the users' one if both have it.

    `others` are the ways to divide that are not columns, for the message.
    """
    tables = {"user": ratings.user_attributes, "item": ratings.item_attributes}
    columns = {side: [] if t is None else t.column_names for side, t in tables.items()}
    found = side_with(by, columns)
    if found is not None and (table := tables[found[0]]) is not None:
        return found[0], table[found[1]]
    known = [*others, *columns["user"], *columns["item"]]
    possible = f"{ratings.name} can by {', '.join(known)}"
    raise UsageError(f'Ratings cannot be divided by "{by}"; {possible}.{did_you_mean(by, known)}')


def side_with(by: str, columns: Mapping[str, Sequence[str]]) -> tuple[str, str] | None:
    """("user" or "item", the name of its column called `by`), by the columns that each has; the users' one if both do.

    >>> side_with("genre", {"user": ["age"], "item": ["title", "genres"]})
    ('item', 'genres')
    """
    names = (by, *GENRE) if by in GENRE else (by,)
    return next(((side, name) for side in ("user", "item") for name in names if name in columns[side]), None)


def values(column: pa.ChunkedArray, rarest: bool = False) -> np.ndarray:
    """The column as text, (rows,) object; missing and empty cells are "unknown".

    With `rarest`, a cell of several values ("Drama|War", or a list) counts as the one that the fewest rows have,
    the first in the alphabet among equals.
    """
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        cells = ["|".join(map(str, cell or ())) for cell in column.to_pylist()]
    else:
        try:
            cells = column.cast(pa.string()).to_pylist()
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            kind = f"a column of {column.type}"
            raise UsageError(f"Ratings cannot be divided by {kind}; give one of text or numbers.") from None
    missing = (None, "", "nan") if pa.types.is_floating(column.type) else (None, "")
    cells = [UNKNOWN if cell in missing else cell for cell in cells]
    if rarest:
        several = [sorted(set(filter(None, cell.split("|"))) or {UNKNOWN}) for cell in cells]
        rows = Counter(value for cell in several for value in cell)
        cells = [min(cell, key=rows.__getitem__) for cell in several]
    return np.array(cells, dtype=object)


def parties_of(labels: np.ndarray, by: str, into: int | None) -> tuple[np.ndarray, list[str], bool]:
    """The party of every row (rows,) int64, the parties' labels, and whether values had to be merged.

    The party with the most rows comes first. With more values than `into`, each of the largest `into` values makes a
    party, and each further one, by decreasing size, joins the party that is then the smallest.
    """
    found, code, size = np.unique(labels, return_inverse=True, return_counts=True)
    if into is not None and into > len(found):
        raise UsageError(f'"{by}" has {len(found):,} values, too few for {into:,} parties; request fewer.')
    order = np.lexsort((np.arange(len(found)), -size))
    members: list[list[int]] = [[int(v)] for v in order[:into]]
    heap = [(int(size[v]), -k) for k, (v,) in enumerate(members)]
    heapq.heapify(heap)
    for v in order[len(members) :]:
        smallest, k = heapq.heappop(heap)
        members[-k].append(int(v))
        heapq.heappush(heap, (smallest + int(size[v]), k))
    members.sort(key=lambda group: (-sum(int(size[v]) for v in group), str(found[group[0]])))
    party = np.empty(len(found), dtype=np.int64)
    for k, group in enumerate(members):
        party[group] = k
    names = [_joined([str(found[v]) for v in group]) for group in members]
    return party[code], names, len(members) < len(found)


def _joined(names: list[str]) -> str:
    return " + ".join(names) if len(names) <= 3 else f"{names[0]} + {len(names) - 1} more"
