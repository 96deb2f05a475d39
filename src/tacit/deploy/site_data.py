"""A site's own data: ratings are read once, mapped to a run's list of items and scale, and split here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from tacit.data.catalogue import Catalogue, align, catalogue_of, column_of, named_column, read_side
from tacit.data.columns import Origin
from tacit.data.load import load
from tacit.data.ratings import Ratings, Scale, row_order
from tacit.data.split import split
from tacit.data.values import quoted_id
from tacit.data.vocabulary import Vocabulary
from tacit.deploy.offer import Offer, SiteSizes
from tacit.deploy.site_files import read_share
from tacit.errors import DataError, PrivacyRefused, UsageError
from tacit.partition import Setting, Share
from tacit.report.words import plural

#: How many unlisted items a message names.
FEW = 3


@dataclass(frozen=True, eq=False)
class SiteData:
    """A site's data for one run: its share, the people in it, and its own held-out test set.

    `unfit` is how many of its ratings are of items that the run does not list, or outside its scale.
    """

    share: Share
    people: tuple[str, ...]
    test: Ratings | None = None
    unfit: int = 0

    def sizes(self, offer: Offer) -> SiteSizes:
        """What the coordinator is sent: sizes, and without privacy also counts and, where there is no list, items."""
        private = offer.file.privacy is not None
        named = offer.setting is Setting.VERTICAL or (offer.items is None and not private)
        ratings = 0 if private else self.share.ratings.n_ratings
        items = self.share.ratings.item_ids if named else None
        return SiteSizes(self.share.ratings.n_users, items, ratings, self.share.devices)


@dataclass(frozen=True)
class Source:
    """Where a site's ratings are: a file, a folder, a database with a query.

    They are read once, by the site's own options, before it connects. An offer's list of items and scale then only
    leave out and clip. That is reported here (`unfit`) and not to the coordinator: whether data fits an offer would be
    an answer at no cost, and anyone who makes offers could repeat the question.

    Attributes
    ----------
    data, query, columns, feedback, duplicates, bad_rows : as `tacit.load` takes them
    items : a public list: what a vertical site holds; else the list that a run must have, with the attributes it uses
    """

    data: str
    query: str | None = None
    columns: Mapping[str, str] | None = None
    items: Path | None = None
    feedback: str = "explicit"
    duplicates: str = "error"
    bad_rows: str = "error"

    @cached_property
    def ratings(self) -> Ratings:
        """All of the site's ratings."""
        return load(
            self.data,
            feedback=self.feedback,
            columns=self.columns,
            duplicates=self.duplicates,
            bad_rows=self.bad_rows,
            query=self.query,
        )

    @cached_property
    def listed(self) -> Vocabulary | None:
        """The site's own public list of items."""
        return None if self._table is None else catalogue_of(*self._table).ids

    @cached_property
    def _table(self) -> tuple[pa.Table, Origin] | None:
        return None if self.items is None else read_side(self.items, "item")

    def check(self, offer: Offer) -> None:
        """Refuse an offer that does not fit this site's data, by rules that do not depend on any rating."""
        public, vertical, private = offer.file.public, offer.setting is Setting.VERTICAL, offer.file.privacy is not None
        if offer.file.data.feedback != self.feedback:
            raise UsageError(
                f"The run learns from {offer.file.data.feedback} feedback, and this site's data was read as "
                f"{self.feedback} (--feedback)."
            )
        if offer.file.split.by == "latest" and self.ratings.times is None:
            raise UsageError(
                "The run holds out everybody's latest rating, and this site's data has no times; ask for another split."
            )
        if vertical and private and self.listed is None:
            raise UsageError(
                "In a vertical run with [privacy] a site names its items in a file, with --items, since taking them "
                "from the ratings would reveal that somebody rated them."
            )
        self._same_catalogue(offer)
        if public.users is not None and not vertical and self.ratings.n_users > public.users:
            raise UsageError(
                f"This site alone has {self.ratings.n_users:,} users, and the run declares {public.users:,} in all "
                "([public] users); ask the coordinator to correct it."
            )
        if offer.setting is Setting.DEVICE and private and self.ratings.n_users > 1:
            raise PrivacyRefused(
                f"This is a run of single devices, and the data has {self.ratings.n_users:,} users; join with one "
                "device's data."
            )

    def _same_catalogue(self, offer: Offer) -> None:
        """Refuse items, or attributes of items, that are not those of the site's own list."""
        offered, vertical = offer.catalogue, offer.setting is Setting.VERTICAL
        if offered is None or self._table is None or self.listed is None:
            return
        table, origin = self._table
        columns = offered.columns
        if vertical:  # the list has the site's items, and need not have their attributes
            columns = tuple(name for name in columns if column_of(name, table.column_names))
            rows = offered.ids.rows(self.listed.ids)
            if not columns or np.any(rows < 0):  # the coordinator refuses items that are not on its list
                return
            offered = replace(offered, columns=columns).part(rows)
        elif self.listed != offered.ids:
            raise PrivacyRefused("The offered list of items is not the one that this site was given (--items).")
        if missing := [name for name in columns if not column_of(name, table.column_names)]:
            raise PrivacyRefused(
                f'The run uses the item attribute "{missing[0][:200]}", and the list of items that this site was given '
                "(--items) has no such column; ask for one that has it."
            )
        own = catalogue_of(table, origin, columns)
        if (other := own.differs(offered)) is not None:
            raise PrivacyRefused(
                f'The offered item attribute "{other[:200]}" is not the one that this site was given (--items).'
            )

    def for_run(self, offer: Offer, name: str, folder: Path) -> SiteData:
        """The site's ratings for the offered run; user ids stay in this process."""
        self.check(offer)
        file, own = offer.file, self.ratings
        items = self.listed or own.item_ids if offer.setting is Setting.VERTICAL else offer.items or own.item_ids
        scale = own.scale if file.public.scale is None else Scale(*file.public.scale)
        ratings, unfit = fit_ratings(own, items, scale)
        train, test = ratings, None
        if ratings.n_ratings:
            parts = split(ratings, by=file.split.by, test=file.split.test, seed=file.seed, partial=True)
            train, test = parts.train, parts.test if parts.test.n_ratings else None
        rows, columns = np.arange(ratings.n_users), np.arange(ratings.n_items)
        devices = ratings.n_users if offer.setting is Setting.DEVICE else 0
        share = Share(name, replace(train, times=None), rows, columns, name, devices)
        return SiteData(share, _people(share), test, unfit)

    def unfit(self, data: SiteData, offer: Offer) -> str:
        """Which ratings a run leaves out or clips, and why; empty where there are none.

        It depends on ratings without any protection: it is printed at this site, and never sent.
        """
        if not data.unfit:
            return ""
        own, there, found = self.ratings, data.share.ratings, []
        ids, scale = own.item_ids.ids, there.scale
        listed = (there.item_ids.rows(ids) >= 0)[own.items]
        outside = listed & ((own.values < np.float32(scale.low)) | (own.values > np.float32(scale.high)))
        of_all = f"of {plural(own.n_ratings, 'rating')}"
        if left_out := int(np.sum(~listed)):
            vertical = offer.setting is Setting.VERTICAL
            where = "in the file of --items" if vertical else "on the run's list of items"
            mend = "add such items to that file" if vertical else "have them added to the run's [public] catalogue"
            some = list(dict.fromkeys(own.items[~listed].tolist()))
            named = ", ".join(quoted_id(ids[item]) for item in some[:FEW]) + (", …" if len(some) > FEW else "")
            found.append(
                f"Left out: {left_out:,} {of_all}, since their items are not {where} ({named}); correct the ids, or "
                f"{mend}."
            )
        if off := int(np.sum(outside)):
            first = int(np.argmax(outside))
            which = f"{own.values[first]:g} for item {quoted_id(ids[own.items[first]])}"
            found.append(
                f"Clipped: {off:,} {of_all}, since they are outside the run's scale {scale} (such as {which}); correct "
                "them, or have the run's [public] scale widened."
            )
        return " ".join(found)


def fit_ratings(ratings: Ratings, items: Vocabulary, scale: Scale) -> tuple[Ratings, int]:
    """Ratings on another list of items and scale, and how many did not fit.

    Ratings of unlisted items are left out, and values outside the scale are clipped; every user stays.
    """
    column = items.rows(ratings.item_ids.ids)
    listed = column[ratings.items] >= 0
    there = ratings.keep(listed)
    values = np.clip(there.values, np.float32(scale.low), np.float32(scale.high))
    indptr, order = row_order(there.users, column[there.items], ratings.user_ids, items)
    order = np.arange(there.n_ratings) if order is None else order
    unfit = int(np.sum(~listed)) + int(np.sum(values != there.values))
    placed = replace(
        there,
        indptr=indptr,
        items=column[there.items][order].astype(np.int32),
        values=values[order],
        times=None if there.times is None else there.times[order],
        item_ids=Vocabulary(items.ids, "item", items.listed),
        item_attributes=None,
        scale=scale,
    )
    return placed, unfit


@dataclass(frozen=True)
class StoredShare:
    """A share that an experimenter stored for one of its own sites, under the run's name."""

    def for_run(self, offer: Offer, name: str, folder: Path) -> SiteData:
        path = folder / f"{offer.run}.share"
        if not path.exists():
            raise DataError(f'There is no share of this run for {name} in "{folder}".')
        share = read_share(path)
        return SiteData(share, _people(share))

    def unfit(self, data: SiteData, offer: Offer) -> str:
        return ""


def _people(share: Share) -> tuple[str, ...]:
    return tuple(str(user) for user in share.ratings.user_ids.ids)


@dataclass(frozen=True)
class NoRatings:
    """The ratings of a role: none, so a kit for a role cannot join as a party."""

    def for_run(self, offer: Offer, name: str, folder: Path) -> SiteData:
        raise PrivacyRefused(f"{name} is a role without ratings, and cannot join as a party; ask for another kit.")

    def unfit(self, data: SiteData, offer: Offer) -> str:
        return ""


@dataclass(frozen=True)
class RoleTable:
    """A role's own table of items, CSV or Parquet; None for no table."""

    path: Path | None = None

    def check(self) -> str:
        """A description; raises where the table cannot be read."""
        if self.path is None:
            return "none: this role has no table of its own"
        table, _origin = read_side(self.path, "item")
        return f"{table.num_rows:,} items with {', '.join(table.column_names[1:]) or 'no attributes'}"

    def catalogue(
        self, items: Vocabulary, run: str, folder: Path, columns: Sequence[str] | None = None
    ) -> Catalogue | None:
        """The run's items with the table's attributes; `columns` are those that the role uses, None for all."""
        return None if self.path is None else _described(self.path, items, columns)


@dataclass(frozen=True)
class StoredRoleTable(RoleTable):
    """A table that an experimenter stored for one of its own roles, under the run's name."""

    def catalogue(
        self, items: Vocabulary, run: str, folder: Path, columns: Sequence[str] | None = None
    ) -> Catalogue | None:
        path = folder / role_table_name(run)
        return _described(path, items, columns) if path.exists() else None


def role_table_name(run: str) -> str:
    return f"{run}.parquet"


def write_role_table(path: Path, catalogue: Catalogue) -> None:
    """Store a catalogue as a role's table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {} if catalogue.attributes is None else {name: catalogue.attributes[name] for name in catalogue.columns}
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    pq.write_table(pa.table({"item": catalogue.ids.ids, **columns}), path)


def _described(path: Path, items: Vocabulary, columns: Sequence[str] | None) -> Catalogue:
    table, origin = read_side(path, "item")
    known = table.column_names[1:]
    wanted = tuple(known if columns is None else columns)
    if missing := [name for name in wanted if not column_of(name, known)]:
        raise DataError(f'{origin.name} has no column "{missing[0]}", which this role uses; add it, or name another.')
    used = {name: named_column(table, name, origin.name) for name in wanted}
    return Catalogue(items, align(pa.table({"item": table["item"], **used}), items, origin), wanted)
