"""Data sets by name, under the folder that TACIT_DATA points to, and folders in one of the known forms."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from tacit.data import delimited, eicu, movielens, parquet
from tacit.data.columns import ATTRIBUTE, Records
from tacit.data.ratings import Feedback, Scale
from tacit.data.side_tables import read_side
from tacit.errors import DataError, UsageError, did_you_mean

# What a set's publisher says of its scale; a folder of that name is taken at its word.
_SCALES = {
    "ml-100k": Scale(1, 5),
    "ml-1m": Scale(1, 5),
    "ml-10m": Scale(0.5, 5),
    "ml-10m100k": Scale(0.5, 5),
    "ml-20m": Scale(0.5, 5),
    "ml-25m": Scale(0.5, 5),
    "ml-32m": Scale(0.5, 5),
    "ml-latest": Scale(0.5, 5),
    "ml-latest-small": Scale(0.5, 5),
    "jester-1": Scale(-10, 10),
    "libimseti": Scale(1, 10),
}


_LASTFM = ("user_artists.parquet", "user_artists.dat")
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
    except (OSError, RuntimeError) as error:  # a name that is too long, a home that there is not
        why = getattr(error, "strerror", None) or str(error)
        raise DataError(f'There is no file or folder "{source[:100]}…": {why}; check the path.') from None
    known = known_sets()
    hint = did_you_mean(source, ["demo", *known])
    if not named or path.suffix:  # no set is called like a file
        raise DataError(f'There is no file or folder "{source}"; check the path.{hint}')
    if folder is None:
        raise DataError(
            f'There is no file "{source}" here, and TACIT_DATA is not set; correct the path, set TACIT_DATA '
            f'to the folder that holds the set, or try "demo", which is made up.{hint}'
        )
    if not folder.is_dir():
        raise DataError(
            f'There is no file "{source}" here, and TACIT_DATA names "{folder}", which is no folder; mend it.'
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
            f'The folder "{folder}" holds no ratings that Tacit knows ({holds}); name a file in it, or bring '
            f"ratings.parquet, ratings.csv, a MovieLens set as published, or the eICU tables."
        )
    if columns and columns.keys() != {ATTRIBUTE} and form != "ratings":
        raise UsageError(f'"{folder}" is a published set whose columns are known; leave out columns.')
    if form == "eicu":
        return eicu.read(folder)
    if form == "lastfm":
        return _lastfm(folder, feedback)
    if form == "ratings":
        return _plain(folder, columns, feedback)
    return movielens.read(folder, form, feedback)


def _form(folder: Path) -> str | None:
    film = movielens.form(folder)
    if film is not None:
        return film
    if eicu.holds(folder):
        return "eicu"
    if _first(folder, _LASTFM) is not None:
        return "lastfm"
    return "ratings" if _first(folder, _RATINGS) is not None else None


def _plain(folder: Path, columns: Mapping[str, str] | None, feedback: Feedback) -> Records:
    """ratings.parquet (or .csv, …) beside users.parquet and items.parquet, where they are there."""
    found = read_file(_existing(folder, _RATINGS), columns, feedback)
    users, items = _beside(folder)
    return replace(found, users=users, items=items, scale=_SCALES.get(folder.name.lower()), name=folder.name)


def _beside(folder: Path) -> tuple[pa.Table | None, pa.Table | None]:
    """users.parquet and items.parquet, or as CSV; None where there is none."""
    users = _first(folder, ("users.parquet", "users.csv"))
    items = _first(folder, ("items.parquet", "items.csv"))
    people = None if users is None else movielens.described_users(read_side(users, "user")[0])
    if people is None and (folder / "gender.dat").is_file():  # LibimSeTi
        people, _ = delimited.read_side(folder / "gender.dat")
        people = people.rename_columns(["user", "gender"])
    return people, None if items is None else movielens.described_items(read_side(items, "item")[0])


def sides(folder: Path) -> tuple[pa.Table | None, pa.Table | None]:
    """What describes users and items in a folder, None where nothing does; no rating is read."""
    match _form(folder):
        case None | "lastfm":
            return None, None
        case "eicu":
            return eicu.patients(folder), None
        case "ratings":
            return _beside(folder)
        case kind:
            return movielens.sides(folder, kind)


def _lastfm(folder: Path, feedback: Feedback) -> Records:
    """Last.fm of HetRec 2011: how often a user played an artist."""
    kind = Feedback.COUNT if feedback is Feedback.EXPLICIT else feedback
    return replace(read_file(_existing(folder, _LASTFM), None, kind), counts=True, name=folder.name)


def read_file(path: Path, columns: Mapping[str, str] | None, feedback: Feedback) -> Records:
    """The records of one file, by its ending."""
    return (parquet if path.suffix.lower() in parquet.SUFFIXES else delimited).read(path, columns, feedback)


def _first(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _existing(folder: Path, names: tuple[str, ...]) -> Path:
    return _first(folder, names) or folder / names[0]
