"""A site's own ratings: read where they lie, held to the public list of items and to the scale, split at home."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tacit.data.load import load
from tacit.data.ratings import Ratings
from tacit.data.sides import read_catalogue
from tacit.data.split import split
from tacit.data.vocabulary import Vocabulary
from tacit.deploy.kept import read_share
from tacit.deploy.terms import Offer, Told
from tacit.errors import DataError, PrivacyRefused, UsageError
from tacit.partition import Setting, Share


@dataclass(frozen=True, eq=False)
class Held:
    """What a site brings to one run: its share, whose it is, and what it held out of it for a test of its own."""

    share: Share
    people: tuple[str, ...]
    test: Ratings | None = None

    def told(self, offer: Offer) -> Told:
        """What the coordinator is told of it: sizes, and without privacy also counts and, where asked for, items."""
        private = offer.file.privacy is not None
        named = offer.setting is Setting.VERTICAL or (offer.items is None and not private)
        ratings = 0 if private else self.share.ratings.n_ratings
        items = self.share.ratings.item_ids if named else None
        return Told(self.share.ratings.n_users, items, ratings, self.share.devices)


@dataclass(frozen=True)
class Source:
    """Where a site's ratings are: a file, a folder, a database with a query. `items` lists what a vertical site has."""

    data: str
    query: str | None = None
    columns: Mapping[str, str] | None = None
    items: Path | None = None

    def held(self, offer: Offer, name: str, folder: Path) -> Held:
        """The site's ratings, ready for the offered run; user ids stay in this process."""
        file = offer.file
        listed = self._listed(offer, folder)
        ratings = load(
            self.data,
            feedback=file.data.feedback,
            columns=self.columns,
            duplicates=file.data.duplicates,
            query=self.query,
            scale=file.public.scale,
            catalogue=listed,
        )
        _fits(ratings, offer)
        parts = split(ratings, by=file.split.by, test=file.split.test, seed=file.seed, untested=True)
        rows, columns = np.arange(ratings.n_users), np.arange(ratings.n_items)
        devices = ratings.n_users if offer.setting is Setting.DEVICE else 0
        share = Share(name, replace(parts.train, times=None), rows, columns, name, devices)
        return Held(share, _people(share), parts.test if parts.test.n_ratings else None)

    def _listed(self, offer: Offer, folder: Path) -> Path | None:
        """A file with the items that a rating may name; None where the site's own ratings say so."""
        if offer.setting is Setting.VERTICAL and self.items is not None:
            return self.items
        if offer.setting is Setting.VERTICAL and offer.file.privacy is not None:
            raise UsageError(
                "In a vertical run with [privacy] a site names the items that it holds in a file, with --items, since "
                "reading them off the ratings would tell that somebody rated them."
            )
        if offer.items is None or offer.setting is Setting.VERTICAL:
            return None
        if self.items is not None and items_of(self.items) != offer.items:
            raise PrivacyRefused("The offered list of items is not the one that this site was given (--items).")
        path = folder / "items.parquet"
        ids = offer.items.ids
        pq.write_table(pa.table({"item": pa.array(ids, pa.string() if ids.dtype == object else pa.int64())}), path)
        return path


@dataclass(frozen=True)
class Laid:
    """A share that an experimenter has laid ready for one of its own sites, under the run's name."""

    def held(self, offer: Offer, name: str, folder: Path) -> Held:
        path = folder / f"{offer.run}.share"
        if not path.exists():
            raise DataError(f'There is no share of this run for {name} in "{folder}".')
        share = read_share(path)
        return Held(share, _people(share))


def _people(share: Share) -> tuple[str, ...]:
    return tuple(str(user) for user in share.ratings.user_ids.ids)


def _fits(ratings: Ratings, offer: Offer) -> None:
    public = offer.file.public
    if public.users is not None and offer.setting is not Setting.VERTICAL and ratings.n_users > public.users:
        raise DataError(
            f"This site alone has {ratings.n_users:,} users, and the run declares {public.users:,} in all ([public] "
            "users); tell the coordinator."
        )
    if offer.setting is Setting.DEVICE and offer.file.privacy is not None and ratings.n_users > 1:
        raise PrivacyRefused(
            f"This is a run of single devices, and the data is of {ratings.n_users:,} users; join with one device's."
        )


def items_of(path: str | Path) -> Vocabulary:
    """The items of a public list in a file."""
    return Vocabulary(np.unique(read_catalogue(path)), "item")
