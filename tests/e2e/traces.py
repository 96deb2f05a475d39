"""Looks for traces of people in the bytes of a folder: ids as text, ratings and factors as the numbers they are.

A number by itself proves nothing: four random bytes are some rating now and then. So numbers are looked for two in a
row, as float32 or as float64, or one as text of at least seven characters. In 10 MB of random bytes 20,000 such
patterns of eight bytes are found by chance once in 10⁸ folders.
"""

import json
import re
import sqlite3
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

#: As many bytes make a pattern, and patterns begin at every fourth byte of an array.
WIDTH, STEP = 8, 4
_NUMBER = re.compile(rb"-?\d+\.\d+(?:e-?\d+)?")


def all_bytes(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every file under a folder as it lies there, and once more unpacked where it is compressed or paged."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        yield name, path.read_bytes()
        if path.suffix == ".npz":
            with zipfile.ZipFile(path) as packed:
                yield from ((f"{name}/{inner}", packed.read(inner)) for inner in packed.namelist())
        elif path.suffix == ".parquet":
            yield f"{name}, unpacked", json.dumps(pq.read_table(path).to_pylist(), default=str).encode()
        elif path.suffix == ".sqlite":
            yield f"{name}, unpacked", b"".join(_cells(path))


def _cells(path: Path) -> Iterator[bytes]:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
        tables = [table for (table,) in database.execute("select name from sqlite_master where type = 'table'")]
        for table in tables:
            for row in database.execute(f"select * from {table}"):
                yield from (cell if isinstance(cell, bytes) else str(cell).encode() for cell in row)


def found(folder: Path, ids: set[str], *numbers: np.ndarray) -> list[str]:
    """Where in a folder the start that all ids share stands, or two neighbours of an array, or a value as text."""
    windows, texts, start = _windows(numbers), _texts(numbers), _start(ids)
    assert len(start) >= 5, "ids need a start in common that nothing else has"
    places = []
    for name, raw in all_bytes(folder):
        if start in raw:
            places.append(f"{name}: {start.decode()}")
        if texts.intersection(_NUMBER.findall(raw)):
            places.append(f"{name}: numbers of the data, as text")
        for shift in range(WIDTH):
            whole = raw[shift : shift + (len(raw) - shift) // WIDTH * WIDTH]
            values = np.frombuffer(whole, dtype=np.uint64)
            if np.any(windows[np.searchsorted(windows[:-1], values)] == values):
                places.append(f"{name}: numbers of the data")
    return places


def _start(ids: set[str]) -> bytes:
    """What all ids begin with."""
    first, last = min(ids), max(ids)
    same = [one == other for one, other in zip(first, last, strict=False)]
    return first[: (*same, False).index(False)].encode()


def _windows(numbers: tuple[np.ndarray, ...]) -> np.ndarray:
    """All patterns of eight bytes that an array holds; not those of zeros or of one number twice, which say nothing."""
    patterns = [np.empty(0, dtype=np.uint64)]
    for array in numbers:
        for kind, apart in (("<f4", STEP), ("<f8", WIDTH)):
            raw = np.ascontiguousarray(array, dtype=kind).tobytes()
            starts = range(0, len(raw) - WIDTH + 1, apart)
            patterns.append(np.array([int.from_bytes(raw[at : at + WIDTH], "little") for at in starts], np.uint64))
    every = np.unique(np.concatenate(patterns))
    telling = (every >> np.uint64(32)) != (every & np.uint64(2**32 - 1))
    return every[telling & (every & np.uint64(2**32 - 1) != 0)]


def _texts(numbers: tuple[np.ndarray, ...]) -> set[bytes]:
    """The values as they would stand in JSON or CSV, where they are long enough to tell."""
    every = {repr(value) for array in numbers for value in array.astype(np.float64).ravel().tolist()}
    short = {str(value) for array in numbers for value in array.astype(np.float32).ravel()}
    return {text.encode() for text in every | short if len(text) >= 7}
