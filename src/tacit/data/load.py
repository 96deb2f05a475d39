"""`load`: ratings from any source.

    "demo"                                  synthetic, with planted tastes
    "ml-1m", "jester-1", "eicu-demo", …     a set under the folder that TACIT_DATA names
    "ratings.csv", ".tsv", ".dat", …        text: any usual separator, header or not, gzipped or not
    "ratings.parquet"                       Parquet
    "some/folder"                           MovieLens or eICU as published, or ratings.parquet and side tables
    "shop.duckdb", "shop.sqlite", "shop.db", "duckdb:PATH", "sqlite:PATH",
    "postgresql://…"                        a database, with query="select …"
    an Arrow table, a pandas or polars frame    in memory

All of them end in `ratings_from_table`, which checks each value; an error is one sentence with file, row and remedy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from tacit.data import named_sets, sql
from tacit.data.arrow_tables import is_frame, read_file, read_frame
from tacit.data.catalogue import (
    Catalogue,
    align,
    catalogue_of,
    listed_ids,
    public_attributes,
    read_catalogue,
    read_side,
)
from tacit.data.columns import ATTRIBUTE, Origin, Records
from tacit.data.ratings import Feedback, Ratings, Scale
from tacit.data.tables import ratings_from_table
from tacit.errors import DataError, UsageError, check_type, did_you_mean, is_number

_FOREIGN = {".json", ".jsonl", ".xlsx", ".xls", ".ods", ".zip", ".7z"}
_FOREIGN |= {".pkl", ".npz", ".npy", ".feather", ".arrow", ".h5"}


def load(
    source: Any,
    *,
    feedback: str = "explicit",
    columns: Mapping[str, str] | None = None,
    duplicates: str = "error",
    bad_rows: str = "error",
    query: str | None = None,
    scale: tuple[float, float] | Scale | None = None,
    user_table: str | Path | None = None,
    item_table: str | Path | None = None,
    catalogue: str | Path | None = None,
    users: int | None = None,
    items: int | None = None,
    ratings: int | None = None,
    seed: int = 7,
    features: Sequence[str] = (),
    attribute: str | None = None,
    private: bool = False,
) -> Ratings:
    """Ratings from a file, a folder, a database, a named set, or synthetic.

    Parameters
    ----------
    source : a path, name or address, or a table; see the module. A bare name is sought under TACIT_DATA first
    feedback : "explicit" (opinions on a scale), "implicit" (every row is a 1) or "count" (how often). A set of counts,
        such as Last.fm or eICU, is loaded as "count" where "explicit" is requested, with a note
    columns : names for user, item, rating, timestamp, as in {"user": "uid", "item": "isbn"}; the usual names
        are found without it, and {"timestamp": ""} leaves timestamps out
    duplicates : how a pair that occurs twice is treated: an "error", its "last" rating (by timestamp where there is
        one), or their "mean"
    bad_rows : how rows without an id or a number, or off the scale, are treated: an "error", or left out ("drop")
    query : of a database; not needed if it has one table
    scale : the declared range; the default is the published one, or else that of the data
    user_table, item_table : CSV or Parquet files that describe users and items by id; others get nulls
    catalogue : a CSV or Parquet file with the ids of all items; a rating of any other is an error
    features : public attributes of items that a method may use: columns of the catalogue, or else of the item table
    users, items, ratings, seed : size and seed of "demo"
    attribute : a further column of the ratings, which describes their users or their items, to divide them by
    private : whether a column that describes items is refused, as with [privacy]

    Examples
    --------
    >>> load("demo", users=20, items=30, ratings=100)
    Ratings(demo: 20 users × 30 items, 100 ratings on 1…5)
    """
    kind = Feedback(_one_of("feedback", feedback, list(Feedback)))
    _one_of("duplicates", duplicates, ("error", "last", "mean"))
    _one_of("bad_rows", bad_rows, ("error", "drop"))
    declared = _declared(scale, kind)
    if isinstance(features, str):
        raise UsageError(f'features takes a list of columns, as in features=["{features[:60]}"].')
    if query is not None and not query.strip():
        raise UsageError("The query is empty; give a select, or leave it out where there is one table only.")
    sizes = {"users": users, "items": items, "ratings": ratings}
    tables = {"user_table": user_table, "item_table": item_table, "catalogue": catalogue}
    if isinstance(source, str | Path) and str(source) == "demo":
        _leave_out({"columns": columns, "query": query, **tables}, "the demo brings its own")
        return _demo(declared, features, feedback=kind.value, seed=seed, **sizes)
    _leave_out(sizes, 'it sizes source="demo" only')
    wanted = columns if attribute is None else {**(columns or {}), ATTRIBUTE: attribute}
    records = _records(source, query, wanted, kind)
    if records.counts and kind is Feedback.EXPLICIT:
        kind = Feedback.COUNT
        note = 'this set counts events and holds no opinions: it was loaded with feedback="count"'
        records = replace(records, notes=(*records.notes, note))
    people, people_origin = _side(records, user_table, "user")
    things, things_origin = _side(records, item_table, "item")
    listed, listed_origin = (things, things_origin) if catalogue is None else read_side(catalogue, "item")
    described = {name for table in (people, things) if table is not None for name in table.column_names}
    own_items = listed if catalogue is not None else records.items
    loaded = ratings_from_table(
        records.table,
        records.origin,
        replace(records.columns, attribute=None) if attribute in described else records.columns,
        feedback=kind,
        duplicates=duplicates,
        bad_rows=bad_rows,
        private=private,
        scale=declared or _published(records.scale, kind),
        listed_users=listed_ids(records.users, "user", people_origin),
        listed_items=listed_ids(own_items, "item", listed_origin),
        closed=catalogue is not None,
        name=records.name,
        notes=records.notes,
    )
    pa.default_memory_pool().release_unused()
    user_side = None if people is None else align(people, loaded.user_ids, people_origin)
    item_side = None if things is None else align(things, loaded.item_ids, things_origin)
    loaded = replace(
        loaded,
        user_attributes=_joined(user_side, loaded.user_attributes),
        item_attributes=_joined(item_side, loaded.item_attributes),
    )
    return _with_features(loaded, listed, listed_origin, features)


def public_items(
    source: str | Path,
    *,
    catalogue: str | Path | None = None,
    item_table: str | Path | None = None,
    items: int | None = None,
    seed: int = 7,
    features: Sequence[str] = (),
) -> Catalogue:
    """The items and their public attributes, as `load` will find them where all are listed; no rating is read.

    >>> public_items("demo", items=20, features=["year"])
    Catalogue(20 items; year: 1 feature column)
    """
    if catalogue is not None:
        return read_catalogue(catalogue, features)
    if str(source) == "demo":
        from tacit.data.synthetic import demo_items

        return catalogue_of(demo_items(500 if items is None else items, seed), Origin("the demo"), features)
    table, origin = read_side(item_table, "item") if item_table else (_sides(str(source))[1], Origin(f'"{source}"'))
    if table is None:
        shown = sql.displayed(str(source))
        raise UsageError(f'No table describes the items of "{shown}"; name one with [public] catalogue.')
    return catalogue_of(table, origin, features)


def side_columns(
    source: str | Path, user_table: str | Path | None = None, item_table: str | Path | None = None
) -> dict[str, list[str]]:
    """By "user" and "item", the attributes that `load` of the same will find; no rating is read.

    >>> side_columns("demo")["item"]
    ['title', 'genres', 'year']
    """
    if str(source) == "demo":
        from tacit.data.synthetic import demo

        small = demo(users=10, items=10, ratings=40)
        own = small.user_attributes, small.item_attributes
    else:
        own = (None, None) if user_table and item_table else _sides(str(source))
    tables = {}
    for kind, given, table in (("user", user_table, own[0]), ("item", item_table, own[1])):
        described = table if given is None else read_side(given, kind)[0]
        tables[kind] = [] if described is None else [name for name in described.column_names if name != kind]
    return tables


def _sides(source: str) -> tuple[pa.Table | None, pa.Table | None]:
    if sql.is_address(source) or not (path := named_sets.find(source)).is_dir():
        return None, None
    return named_sets.sides(path)


def check_source(source: str) -> None:
    """DataError where a source is a file, folder or named set that is not there; a database is not asked."""
    if source != "demo" and "://" not in source and not sql.is_address(source):
        named_sets.find(source)


def _records(source: Any, query: str | None, columns: Mapping[str, str] | None, kind: Feedback) -> Records:
    if is_frame(source):
        _leave_out({"query": query}, "a table in memory is not a database")
        return read_frame(source, columns, kind)
    check_type(source, str | Path, "load", 'a path, a name such as "demo", an address, or a table')
    source = str(source)
    if sql.is_address(source):
        return sql.read(source, query, columns, kind)
    if "://" in source or "password=" in source.lower():
        raise DataError(
            f'"{sql.displayed(source)}" is not an address that Tacit reads; use postgresql://…, duckdb:PATH or '
            f"sqlite:PATH, or download the file first and give its path."
        )
    path = named_sets.find(source)
    if path.suffix.lower() in sql.SUFFIXES and path.is_file():
        return sql.read(str(path), query, columns, kind)
    if query is not None:
        raise UsageError(f'"{source}" is not a database, so it takes no query; leave it out.')
    if path.is_dir():
        return named_sets.read_folder(path, columns, kind)
    if path.suffix.lower() in _FOREIGN:
        raise DataError(f'Tacit does not read "{path.suffix}" files such as "{path}"; save it as CSV or Parquet.')
    return read_file(path, columns, kind)


def _demo(declared: Scale | None, features: Sequence[str], **sizes: Any) -> Ratings:
    from tacit.data.synthetic import demo

    made = demo(**sizes)
    if declared is not None and (declared.low, declared.high) != (made.scale.low, made.scale.high):
        raise UsageError(f"The demo has the scale {made.scale}; leave out scale.")
    assert made.item_attributes is not None
    described = made.item_attributes.add_column(0, "item", pa.array(made.item_ids.ids))
    return _with_features(made, described, Origin("the demo"), features)


def _with_features(ratings: Ratings, table: pa.Table | None, origin: Origin, features: Sequence[str]) -> Ratings:
    if not features:
        return ratings
    public, others = public_attributes(table, ratings.item_ids, origin, features), ratings.item_attributes
    if public is not None and others is not None:
        for name in others.column_names:
            public = public if name in features else public.append_column(name, others.column(name))
    return replace(ratings, item_attributes=public, features=tuple(features))


def _side(records: Records, path: str | Path | None, kind: str) -> tuple[pa.Table | None, Origin]:
    """The table that describes users or items: the requested one, else the source's own."""
    if path is not None:
        return read_side(path, kind)
    table = records.users if kind == "user" else records.items
    return table, Origin(f'the {kind} table of "{records.name}"')


def _joined(table: pa.Table | None, more: pa.Table | None) -> pa.Table | None:
    """A side table's attributes, and that one which is a column of the ratings."""
    if table is None or more is None:
        return more if table is None else table
    return table.append_column(more.column_names[0], more.column(0))


def _declared(scale: tuple[float, float] | Scale | None, kind: Feedback) -> Scale | None:
    if scale is None:
        return None
    if not isinstance(scale, Scale):
        if not (isinstance(scale, Sequence) and len(scale) == 2 and all(is_number(end) for end in scale)):
            raise UsageError(f"scale = {scale!r} is not possible; give its two ends, as in scale=(1, 5).")
        scale = Scale(float(scale[0]), float(scale[1]))
    if kind is Feedback.IMPLICIT and (scale.low, scale.high) != (0.0, 1.0):
        raise UsageError('feedback="implicit" has the scale 0…1; leave out scale, or use feedback="explicit".')
    if kind is Feedback.COUNT and scale.low < 0:
        raise UsageError(f"Counts start at 0 and the scale at {scale.low:g}; declare scale=(0, {scale.high:g}).")
    return scale


def _published(scale: Scale | None, kind: Feedback) -> Scale | None:
    """A set's own scale; read as counts, its opinions start at 0."""
    if kind is Feedback.EXPLICIT or scale is None:
        return scale
    return Scale(0.0, scale.high) if kind is Feedback.COUNT else None


def _leave_out(given: Mapping[str, object], why: str) -> None:
    name = next((name for name, value in given.items() if value), None)
    if name is not None:
        raise UsageError(f"{name} does not go with this source ({why}); leave it out.")


def _one_of(name: str, value: str, known: Any) -> str:
    if str(value) not in known:
        raise UsageError(f'{name} is one of {", ".join(known)}, not "{value}".{did_you_mean(value, known)}')
    return str(value)
