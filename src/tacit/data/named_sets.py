"""Data sets by name, under the folder that TACIT_DATA names, and folders in one of the known forms."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from tacit.data import eicu, movielens
from tacit.data.arrow_tables import read_file, read_whole
from tacit.data.catalogue import read_side
from tacit.data.columns import ATTRIBUTE, Records
from tacit.data.ratings import Feedback, Scale
from tacit.errors import DataError, UsageError, did_you_mean

#: The published scales, by the name of a set's folder.
_SCALES = {
    "ml-100k": Scale(1, 5),
    "ml-1m": Scale(1, 5),
    **dict.fromkeys(("ml-10m", "ml-10m100k", "ml-20m", "ml-25m", "ml-32m"), Scale(0.5, 5)),
    **dict.fromkeys(("ml-latest", "ml-latest-small"), Scale(0.5, 5)),
    "jester-1": Scale(-10, 10),
    "libimseti": Scale(1, 10),
}
#: Items that are published with a set, for sets that bring no table of them: Jester's jokes are numbered.
_NUMBERED = {"jester-1": 100}
_LASTFM, _ARTISTS = ("user_artists.parquet", "user_artists.dat"), ("artists.parquet", "artists.dat")
_RATINGS = ("ratings.parquet", "ratings.csv", "ratings.csv.gz", "ratings.tsv", "ratings.dat")


def data_folder() -> Path | None:
    """The folder that TACIT_DATA names, or None."""
    named = os.environ.get("TACIT_DATA", "").strip()
    return Path(named).expanduser() if named else None


def known_sets() -> list[str]:
    """The names under TACIT_DATA that can be loaded."""
    folder = data_folder()
    if folder is None or not folder.is_dir():
        return []
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and _form(path) is not None)


def find(source: str) -> Path:
    """The file or folder that a source means: a name under TACIT_DATA, or a path."""
    folder = data_folder()
    named = "/" not in source and "\\" not in source
    try:
        if named and folder is not None and (folder / source).exists():
            return folder / source
        path = Path(source).expanduser()
        if path.exists():
            return path
    except (OSError, RuntimeError) as error:  # a name that is too long, or no such home
        why = getattr(error, "strerror", None) or str(error)
        raise DataError(f'There is no file or folder "{source[:100]}…": {why}; check the path.') from None
    known = known_sets()
    hint = did_you_mean(source, ["demo", *known])
    if not named or path.suffix:  # no set has the name of a file
        raise DataError(f'There is no file or folder "{source}"; check the path.{hint}')
    if folder is None:
        raise DataError(
            f'There is no file "{source}" here, and TACIT_DATA is not set; correct the path, set TACIT_DATA '
            f'to the folder that holds the set, or try "demo", which is synthetic.{hint}'
        )
    if not folder.is_dir():
        raise DataError(
            f'There is no file "{source}" here, and TACIT_DATA names "{folder}", which is not a folder; correct it.'
        )
    listed = ", ".join(known) or "none"
    raise DataError(f'There is no file "{source}" here; known sets under TACIT_DATA: {listed}.{hint}')


def read_folder(folder: Path, columns: Mapping[str, str] | None, feedback: Feedback) -> Records:
    """The records of a folder in one of the known forms."""
    form = _form(folder)
    if form is None:
        files = sorted(path.name for path in folder.iterdir())
        holds = ", ".join(files[:8]) + (", …" if len(files) > 8 else "") if files else "nothing"
        raise DataError(
            f'The folder "{folder}" holds no ratings that Tacit knows ({holds}); name a file in it, or give '
            f"ratings.parquet, ratings.csv, a MovieLens set as published, or the eICU tables."
        )
    if columns and columns.keys() != {ATTRIBUTE} and form != "ratings":
        raise UsageError(f'"{folder}" is a published set whose columns are known; leave out columns.')
    if form == "eicu":
        return eicu.read(folder)
    if form == "lastfm":  # HetRec 2011: how often a user played an artist
        kind = Feedback.COUNT if feedback is Feedback.EXPLICIT else feedback
        found = read_file(_first(folder, _LASTFM), None, kind)
        return replace(found, items=_artists(folder), counts=True, name=folder.name)
    if form == "ratings":
        found = read_file(_first(folder, _RATINGS), columns, feedback)
        users, items = _plain_sides(folder)
        return replace(found, users=users, items=items, scale=_SCALES.get(folder.name.lower()), name=folder.name)
    return movielens.read(folder, form, feedback)


def sides(folder: Path) -> tuple[pa.Table | None, pa.Table | None]:
    """The tables that describe users and items in a folder, None where there is no such table; ratings are not read."""
    match _form(folder):
        case None:
            return None, None
        case "lastfm":
            return None, _artists(folder)
        case "eicu":
            return eicu.patients(folder), None
        case "ratings":
            return _plain_sides(folder)
        case kind:
            return movielens.sides(folder, kind)


def _form(folder: Path) -> str | None:
    if film := movielens.form(folder):
        return film
    if eicu.holds(folder):
        return "eicu"
    if _first(folder, _LASTFM).is_file():
        return "lastfm"
    return "ratings" if _first(folder, _RATINGS).is_file() else None


def _plain_sides(folder: Path) -> tuple[pa.Table | None, pa.Table | None]:
    """users.parquet and items.parquet, or as CSV; None where there is no such file."""
    users = _first(folder, ("users.parquet", "users.csv"))
    items = _first(folder, ("items.parquet", "items.csv"))
    people = movielens.described_users(read_side(users, "user")[0]) if users.is_file() else None
    if people is None and (folder / "gender.dat").is_file():  # LibimSeTi
        people = read_whole(folder / "gender.dat")[0].rename_columns(["user", "gender"])
    if not items.is_file():
        count = _NUMBERED.get(folder.name.lower())
        return people, None if count is None else pa.table({"item": np.arange(1, count + 1)})
    return people, movielens.with_tags(movielens.described_items(read_side(items, "item")[0]), folder)


def _artists(folder: Path) -> pa.Table | None:
    """The publisher's list of artists, None where it is missing: who was played is known from plays alone then."""
    path = _first(folder, _ARTISTS)
    return read_side(path, "item")[0] if path.is_file() else None


def _first(folder: Path, names: tuple[str, ...]) -> Path:
    """The first of these files that exists; the first of all where none does."""
    return next((folder / name for name in names if (folder / name).is_file()), folder / names[0])
