"""`partition`: ratings divided among parties.

The division depends on (seed, id), never on the order of the input. Horizontal shares have all items, vertical ones all
users; every rating is in exactly one share, and is copied once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tacit.data.catalogue import Catalogue
from tacit.data.ratings import Ratings
from tacit.data.vocabulary import Vocabulary
from tacit.errors import DataError, UsageError, check_integer, check_type, is_number
from tacit.partition.attribute import GENRE, find_column, parties_of, values
from tacit.partition.parties import Parties, Setting, Share
from tacit.partition.skew import assignment_order, sizes
from tacit.rng import derive

WAYS = ("user", "item", "device", "group")
SMALLEST_GROUP, LARGEST_GROUP = 3, 30


def partition(
    ratings: Ratings,
    into: int | None = None,
    by: str = "user",
    *,
    size_skew: float = 0.0,
    taste_skew: float = 0.0,
    seed: int = 7,
) -> Parties:
    """Divide ratings among parties.

    Parameters
    ----------
    into : number of parties; by default 10 silos, one cohort of devices, groups of 3 to 30, a party per value
    by : "user" (silos of users), "item" (silos of items), "device" (each user alone, in cohorts), "group", or
        an attribute: a column of the users' or items' table. A film of several genres goes to its rarest
    size_skew : 0 equal sizes … 1 each party half of the one before; for "user" and "item"
    taste_skew : 0 at random … 1 like with like; for "user" and "item"

    >>> from tacit.data.synthetic import demo
    >>> partition(demo(), into=4)
    Parties(horizontal: 1,000 users are divided at random among 4 silos.)
    """
    check_type(ratings, Ratings, "partition", "ratings, as tacit.load or tacit.split return them")
    _check(into, by, size_skew, taste_skew)
    if not ratings.n_users or not ratings.n_items:
        raise DataError(f"{ratings.name} has no users or no items, so there is nothing to divide.")
    if by in ("user", "item"):
        division = _silos(ratings, by, into or 10, size_skew, taste_skew, seed)
    elif by == "device":
        division = _cohorts(ratings, into or 1, seed)
    elif by == "group":
        division = _groups(ratings, into, seed)
    else:
        division = _by_attribute(ratings, by, into)
    catalogue = Catalogue(ratings.item_ids, ratings.item_attributes, ratings.features)
    shares, (setting, _, _, description) = _shares(ratings, division), division
    return Parties(shares, setting, description, ratings.scale, ratings.feedback, ratings.user_ids, catalogue)


class Division(NamedTuple):
    """The party of every user or item, before any rating is moved."""

    setting: Setting
    party: np.ndarray  # of every user, or if vertical of every item: (n,) or (m,) int64
    labels: list[str]
    description: str


def _check(into: int | None, by: str, size_skew: float, taste_skew: float) -> None:
    if into is not None:
        check_integer("into", into)
    for name, skew in (("size_skew", size_skew), ("taste_skew", taste_skew)):
        if not is_number(skew) or not 0 <= skew <= 1:
            raise UsageError(f"{name} = {skew!r} is not possible; give a number between 0 and 1.")
        if skew and by not in ("user", "item"):
            raise UsageError(f'{name} works by "user" and by "item", not by "{by}"; leave it out.')


def _silos(r: Ratings, by: str, into: int, size_skew: float, taste_skew: float, seed: int) -> Division:
    n = r.n_users if by == "user" else r.n_items
    _check_enough(n, into, by)
    party = _assigned(assignment_order(r, by, taste_skew, seed), sizes(n, into, size_skew))
    how = f"by taste (skew {taste_skew:g})" if taste_skew else "at random"
    unequal = f" of unequal size (skew {size_skew:g})" if size_skew else ""
    sentence = f"{_are(n, by)} divided {how} among {_many(into, 'silo')}{unequal}."
    setting = Setting.HORIZONTAL if by == "user" else Setting.VERTICAL
    return Division(setting, party, _numbered("silo", into), sentence)


def _cohorts(r: Ratings, into: int, seed: int) -> Division:
    _check_enough(r.n_users, into, "user")
    party = _assigned(assignment_order(r, "user", 0.0, seed), sizes(r.n_users, into, 0.0))
    sentence = f"{_are(r.n_users, 'device')} simulated in {_many(into, 'cohort')}, one device per user."
    return Division(Setting.DEVICE, party, _numbered("cohort", into), sentence)


def _groups(r: Ratings, into: int | None, seed: int) -> Division:
    n = r.n_users
    fewest, most = -(-n // LARGEST_GROUP), n // SMALLEST_GROUP
    if not fewest <= (into or fewest) <= most:
        possible = f"make {fewest:,} to {most:,} groups" if most else "are too few for one"
        but = f", not {into:,}" if into and most else ""
        sizes_allowed = f"{SMALLEST_GROUP} to {LARGEST_GROUP}"
        raise UsageError(f"Groups have {sizes_allowed} members: {_many(n, 'user')} {possible}{but}.")
    g = into or min(max(round(2 * n / (SMALLEST_GROUP + LARGEST_GROUP)), fewest), most)
    draw = derive(seed, "group sizes", n, g)
    size = draw.integers(SMALLEST_GROUP, LARGEST_GROUP + 1, g)
    excess = int(size.sum()) - n  # taken from, or given to, random places that have room
    room = size - SMALLEST_GROUP if excess > 0 else LARGEST_GROUP - size
    places = draw.permutation(np.repeat(np.arange(g), room))[: abs(excess)]
    size -= np.sign(excess) * np.bincount(places, minlength=g)
    party = _assigned(assignment_order(r, "user", 0.0, seed), size)
    sentence = f"{_are(n, 'user')} divided at random among {_many(g, 'group')} of {size.min()} to {size.max()}."
    return Division(Setting.HORIZONTAL, party, _numbered("group", g), sentence)


def _by_attribute(r: Ratings, by: str, into: int | None) -> Division:
    side, column = find_column(r, by, WAYS)
    rarest = side == "item" and by in GENRE
    party, labels, merged = parties_of(values(column, rarest), by, into)
    sentence = f"{_are(len(party), side)} divided by {by} among {_many(len(labels), 'silo')}"
    sentence += ", each item under its rarest genre" if rarest else ""
    sentence += ", the smallest values merged." if merged else "."
    return Division(Setting.HORIZONTAL if side == "user" else Setting.VERTICAL, party, labels, sentence)


def _check_enough(n: int, into: int, what: str) -> None:
    if into > n:
        raise UsageError(f"{_many(n, what)} cannot be divided among {into:,} parties; request {n:,} or fewer.")


def _many(n: int, what: str) -> str:
    return f"{n:,} {what}{'s' * (n != 1)}"


def _are(n: int, what: str) -> str:
    return f"{_many(n, what)} {'is' if n == 1 else 'are'}"


def _numbered(what: str, n: int) -> list[str]:
    return [f"{what} {k}" for k in range(1, n + 1)]


def _assigned(order: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The party of each member, when the first size[0] in `order` go to the first party, and so on."""
    party = np.empty(len(order), dtype=np.int64)
    party[order] = np.repeat(np.arange(len(size)), size)
    return party


def _shares(r: Ratings, division: Division) -> tuple[Share, ...]:
    order = np.argsort(division.party, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(division.party))[:-1])
    vertical, device = division.setting is Setting.VERTICAL, division.setting is Setting.DEVICE
    everyone = np.arange(r.n_users if vertical else r.n_items)
    parts = _by_items(r, division.party, members) if vertical else map(r.select_users, members)
    shares = []
    for k, (part, mine, label) in enumerate(zip(parts, members, division.labels, strict=True), start=1):
        users, items = (everyone, mine) if vertical else (mine, everyone)
        shares.append(Share(f"party-{k}", part, users, items, label, len(mine) if device else 0))
    return tuple(shares)


def _by_items(r: Ratings, party: np.ndarray, members: list[np.ndarray]) -> Iterator[Ratings]:
    """`r.select_items` of each party, in one pass over the ratings instead of one per party."""
    place = np.empty(r.n_items, dtype=np.int32)
    for mine in members:
        place[mine] = np.arange(len(mine), dtype=np.int32)
    code = party.astype(np.uint16 if len(members) <= 1 << 16 else np.int64)[r.items]
    order = np.argsort(code, kind="stable")  # linear in time for 16 bits
    users, items, values = r.users[order], place[r.items[order]], r.values[order]
    times = None if r.times is None else r.times[order]
    ends = np.cumsum(np.bincount(code, minlength=len(members)))
    for mine, part in zip(members, map(slice, np.concatenate(([0], ends[:-1])), ends), strict=True):
        yield replace(
            r,
            indptr=np.concatenate(([0], np.cumsum(np.bincount(users[part], minlength=r.n_users)))),
            items=items[part],
            values=values[part],
            times=None if times is None else times[part],
            item_ids=Vocabulary(r.item_ids[mine], "item", r.item_ids.listed),
            item_attributes=None if r.item_attributes is None else r.item_attributes.take(mine),
        )
