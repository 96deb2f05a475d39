"""MovieLens as published: 100K, 1M, 10M, and the CSV form of 20M, 25M, 32M and latest.

    100K              u.data, u.user, u.item         tabs and bars; Latin-1; 19 genre flags      1…5
    1M                ratings.dat, users.dat, movies.dat      "::"; Latin-1                      1…5
    10M               ratings.dat, movies.dat (tags.dat)      "::"; UTF-8                      0.5…5
    20M and later     ratings.csv, movies.csv (tags.csv)      commas and quotes                0.5…5

Every form gives the same side tables: films have `title`, `genres` ("Comedy|Drama"), `year` (from the title) and, where
users' tags are at hand, `tags`; people, where they are described, have `gender`, `age`, `occupation`, `zip` and `zip1`,
the zip code's first digit. All listed films belong to the vocabulary, rated or not: the catalogue is public.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tacit.data import delimited
from tacit.data.arrow_tables import read_whole
from tacit.data.columns import Columns, Records, id_column
from tacit.data.delimited import Layout
from tacit.data.ratings import Feedback, Scale

_ROWS = ("user", "item", "rating", "timestamp")
#: A tag that fewer films have is left out: it says too little about others.
FEWEST_TAGGED = 5
_GENRES = (
    *("unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary"),
    *("Drama", "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller"),
    *("War", "Western"),
)


def form(folder: Path) -> str | None:
    """Which published form a folder holds: "100k", "1m", "10m", "csv", or None."""

    def has(*names: str) -> bool:
        return all((folder / name).is_file() for name in names)

    if has("u.data"):
        return "100k"
    if has("ratings.dat", "movies.dat"):
        return "1m" if has("users.dat") else "10m"
    return "csv" if has("ratings.csv", "movies.csv") else None


def read(folder: Path, kind: str, feedback: Feedback) -> Records:
    """The records of a folder in that form, with its films and, where it describes them, its people."""
    scale = Scale(1.0, 5.0) if kind in ("100k", "1m") else Scale(0.5, 5.0)
    users, items = sides(folder, kind)
    if kind == "csv":
        found = delimited.read(folder / "ratings.csv", None, feedback)
    else:
        path, separator = (folder / "u.data", "\t") if kind == "100k" else (folder / "ratings.dat", "::")
        chosen = Columns("user", "item", None if feedback is Feedback.IMPLICIT else "rating", "timestamp")
        found = delimited.read_records(path, Layout(_ROWS, separator, quoted=False), chosen)
    return replace(found, users=users, items=items, scale=scale, name=folder.name)


def sides(folder: Path, kind: str) -> tuple[pa.Table | None, pa.Table | None]:
    """The tables that describe people and films, None where there is none; ratings are not read."""
    users: pa.Table | None = None
    items: pa.Table | None = None
    if kind == "100k":
        items = _films_100k(folder / "u.item") if (folder / "u.item").is_file() else None
        if (folder / "u.user").is_file():
            users = _side(folder / "u.user", ("user", "age", "gender", "occupation", "zip"), "|")
    elif kind in ("1m", "10m"):
        items = _side(folder / "movies.dat", ("item", "title", "genres"), "::")
        if kind == "1m":
            users = _side(folder / "users.dat", ("user", "gender", "age", "occupation", "zip"), "::")
    else:
        films, _ = delimited.read_whole(folder / "movies.csv")
        items = films.rename_columns({id_column(films.column_names, "item", '"movies.csv"'): "item"})
    films = None if items is None else with_tags(described_items(items), folder)
    return None if users is None else described_users(users), films


def described_users(users: pa.Table) -> pa.Table:
    """With `zip` as text and `zip1`: its first digit as text, "other" where it does not start with one."""
    if "zip" not in users.column_names or "zip1" in users.column_names:
        return users
    zips = pc.utf8_trim_whitespace(users["zip"].cast(pa.string()))
    first = pc.utf8_slice_codeunits(zips, 0, 1)
    digit = pc.fill_null(pc.match_substring_regex(first, "^[0-9]$"), False)
    users = users.set_column(users.column_names.index("zip"), "zip", zips)
    return users.append_column("zip1", pc.if_else(digit, first, "other"))


def described_items(items: pa.Table) -> pa.Table:
    """With `year`, from titles such as "Heat (1995)", and null for "(no genres listed)"."""
    if "title" not in items.column_names:
        return items
    if "genres" in items.column_names:
        listed = items["genres"].cast(pa.string())
        none = pc.fill_null(pc.is_in(listed, value_set=pa.array(["", "(no genres listed)"])), True)
        genres = pc.if_else(none, pa.scalar(None, pa.string()), listed)
        items = items.set_column(items.column_names.index("genres"), "genres", genres)
    if "year" not in items.column_names:
        # The last four digits in brackets: "2046 (2004)"; a span such as "(1959-1961)" counts from its start.
        found = pc.extract_regex(items["title"].cast(pa.string()), r".*\((?P<year>[0-9]{4})[^()]*\)")
        items = items.append_column("year", pc.struct_field(found, "year").cast(pa.int32()))
    return items


def with_tags(items: pa.Table, folder: Path) -> pa.Table:
    """With `tags` ("dark comedy|pixar"), as users gave them, in lower case; each is on five films at least.

    From tags.parquet, tags.csv or tags.dat of the folder; 1M, which has none, takes those of 10M where the folder
    ml-10m-tags lies beside it, since most films have the same ids. Whoever gave a tag is not protected.
    """
    beside = [folder.parent / "ml-10m-tags"] if folder.name.lower() == "ml-1m" else []
    files = (place / f"tags.{form}" for place in (folder, *beside) for form in ("parquet", "csv", "dat"))
    path = next((file for file in files if file.is_file()), None)
    if path is None or "tags" in items.column_names:
        return items
    names = ("user", "item", "tag", "timestamp")
    table = _side(path, names, "::") if path.suffix == ".dat" else read_whole(path)[0]
    item = id_column(table.column_names, "item", f'"{path.name}"')
    text = pc.utf8_trim_whitespace(pc.utf8_lower(table["tag"].cast(pa.string())))
    given = pa.table({"item": table[item].cast(pa.string()), "tag": pc.replace_substring(text, "|", " ")})
    given = given.filter(
        pc.and_kleene(pc.is_in(given["item"], items["item"].cast(pa.string())), pc.not_equal(text, ""))
    )
    given = given.group_by(["item", "tag"]).aggregate([])
    often = given.group_by("tag").aggregate([("item", "count")])
    given = given.filter(
        pc.is_in(given["tag"], often.filter(pc.greater_equal(often["item_count"], FEWEST_TAGGED))["tag"])
    )
    joined = given.sort_by([("item", "ascending"), ("tag", "ascending")]).group_by("item", use_threads=False)
    lists = joined.aggregate([("tag", "list")])
    tags = pc.binary_join(lists["tag_list"], "|")
    places = pc.index_in(items["item"].cast(pa.string()), lists["item"].combine_chunks())
    return items.append_column("tags", tags.combine_chunks().take(places))


def _side(path: Path, names: Sequence[str], separator: str) -> pa.Table:
    try:
        path.read_bytes().decode("utf-8")
        encoding = "utf-8"
    except UnicodeDecodeError:  # the older sets
        encoding = "latin-1"
    return delimited.read_whole(path, Layout(tuple(names), separator, quoted=False, encoding=encoding))[0]


def _films_100k(path: Path) -> pa.Table:
    """u.item: id, title, two dates, an address, and one flag per genre."""
    films = _side(path, ("item", "title", "released", "video", "address", *_GENRES), "|")
    spelled = [pc.if_else(pc.equal(films[genre], 1), f"{genre}|", "") for genre in _GENRES]
    genres = pc.utf8_rtrim(pc.binary_join_element_wise(*spelled, ""), "|")
    return films.select(["item", "title"]).append_column("genres", genres)
