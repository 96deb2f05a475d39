"""Sites that hold ratings of the same users agree on one list of rows, before a vertical run begins; ids stay at home.

By `psi` every site's list is blinded by all sites in turn, and the coordinator compares what all have blinded; by
`hashed` sites send keyed hashes, with a key that the coordinator does not have. What each way reveals, and to whom, is
in docs/explanation/alignment.md; `REVEALS` says it on the card.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit import files
from tacit.boundary.wire import Array, Value, decode, encode, reading
from tacit.data.ratings import Ratings
from tacit.data.vocabulary import Vocabulary
from tacit.deploy.offer import Offer
from tacit.deploy.site_data import SiteData
from tacit.engine.cells import COORDINATOR
from tacit.engine.serve import checking_file
from tacit.errors import BadMessage, DataError, PeerFailed
from tacit.kernels.entries import entries_of
from tacit.secure.alignment import checked, common_rows, tags, travel
from tacit.secure.psi import SIZE, Blinder, ring

REVEALS = {
    "psi": "Users were aligned by blinding in turns (Diffie–Hellman private set intersection, semi-honest): the "
    "coordinator learned how many users each site has and how many they share, each site which of its users are on "
    "the common list, and nobody anybody else's ids.",
    "hashed": "Users were aligned by keyed hashes: the coordinator learned how many users each site has and which "
    "pseudonyms are at which sites; whoever has the sites' key and the hashes can test any id that it can think of.",
}

#: Says something to one site until it replies: name, id and content in, the reply's content out.
Say = Callable[[str, str, Mapping[str, Value]], Mapping[str, Any]]


# -- the coordinator's side -------------------------------------------------------------------------------------------


def align_sites(offer: Offer, sizes: Mapping[str, int], say: Say, kept: Path) -> tuple[int, dict[str, Array]]:
    """How many rows the common list has, and by site the row of each of its tags, or −1; the same when resumed."""
    if kept.exists():
        with checking_file(kept):
            saved: dict[str, Any] = decode(kept.read_bytes())
            return int(saved.pop("count")), saved
    way, names = offer.file.partition.align, offer.roster
    first = "first" if way == "psi" else "tags"
    lists = {name: _list(say(name, _about(offer, first, name), {"stage": first}), name, sizes[name]) for name in names}
    if way == "psi":
        for owner, others in ring(names).items():
            for name in others:
                content: dict[str, Value] = {"stage": "again", "owner": owner, "list": lists[owner]}
                lists[owner] = _list(say(name, _about(offer, "again", name, owner), content), name, sizes[owner])
    count, rows = common_rows(lists, offer.file.partition.keep, secrets.randbits(128))
    if count == 0:
        raise PeerFailed(
            "The sites have no user in common: do they write ids alike, leading zeros and capital letters included?"
        )
    files.write_private(kept, encode({"count": count, **rows}))
    return count, rows


def rows_content(count: int, rows: Array) -> dict[str, Value]:
    """What one site is told: the row of each of its tags on the common list."""
    return {"stage": "rows", "count": count, "rows": rows.astype(np.int64)}


def _list(reply: Mapping[str, Any], name: str, size: int) -> Array:
    return checked(reply.get("list"), name, rows=size, sizes=(SIZE,))


def _about(offer: Offer, *words: str) -> str:
    return hashlib.sha256("|".join(("align", offer.hash, *words)).encode()).hexdigest()


# -- a site's side ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SiteAlignment:
    """One site's part in one alignment; what it learned is kept in `folder`, what it drew until the rows are known.

    A site blinds one list in the name of each other.
    """

    offer: Offer
    name: str
    folder: Path
    key: bytes | None = None

    @reading(COORDINATOR)
    def reply(self, content: Mapping[str, Any], held: SiteData) -> tuple[dict[str, Value], SiteData]:
        """What is said to one stage, and what the site holds after it; `held` is what it held after the one before."""
        stage, ids = str(content.get("stage")), held.people
        if self.offer.setting != "vertical":
            raise BadMessage("Users are aligned where sites hold the same ones, and this run is not of that kind.")
        if stage != "rows" and self._path("rows").exists():
            raise BadMessage("The common list of this run is known already, and no other one is made.")
        if stage == "first" and self.offer.file.partition.align == "psi":
            return {"list": self._sent(self._blinder().first(ids))}, held
        if stage == "tags" and self.offer.file.partition.align == "hashed":
            assert self.key is not None  # as the site's rules have it
            return {"list": self._sent(tags(self.key, ids, context=self.offer.run.encode()))}, held
        if stage == "again" and self.offer.file.partition.align == "psi":
            return {"list": self._again(str(content.get("owner")), content.get("list"))}, held
        if stage == "rows":
            return {"aligned": True}, self._taken(content, held)
        raise BadMessage("A stage of the alignment is not one of this run's way of aligning.")

    def recalled(self, held: SiteData) -> SiteData:
        """What the site holds on the common list, if it was told before it was started anew."""
        path = self._path("rows")
        if not path.exists():
            return held
        with checking_file(path):
            told = decode(path.read_bytes())
        return self._on_list(told, held)

    def _again(self, owner: str, values: object) -> Array:
        """Another site's list, blinded once: a second one in its name would be somebody's guesses."""
        if owner == self.name or owner not in self.offer.roster:
            raise BadMessage("A list to blind is in the name of somebody who is not another party of this run.")
        told, most = checked(values, owner, sizes=(SIZE,)), self.offer.file.public.users
        if most is not None and len(told) > most:
            raise BadMessage(f"The list of {owner} has more users than the run declares; nothing was blinded.")
        path, digest = self._path("blinded"), hashlib.sha256(told.tobytes()).hexdigest()
        with checking_file(path):
            known = dict(json.loads(path.read_text())) if path.exists() else {}
        if known.setdefault(owner, digest) != digest:
            raise BadMessage(
                f"This site was asked to blind a second list in the name of {owner}; it blinds one of each."
            )
        files.write_private(path, json.dumps(known))
        return self._blinder().again(told, owner)

    def _sent(self, values: Array) -> Array:
        """A list in the order in which it may leave; where each user is in it is kept."""
        listed, place = travel(values)
        files.write_private(self._path("place"), encode({"place": place}))
        return listed

    def _blinder(self) -> Blinder:
        path = self._path("scalar")
        if not path.exists():
            files.write_private(path, Blinder().secret)
        with checking_file(path):
            return Blinder(path.read_bytes())

    def _taken(self, content: Mapping[str, Any], held: SiteData) -> SiteData:
        """What a site holds once it was told its rows; told again, as after a restart, it is on them already."""
        path, told = self._path("rows"), {name: content.get(name) for name in ("rows", "count")}
        if not self._path("place").exists():
            raise BadMessage("The rows of a common list came before this site had sent its own.")
        if not path.exists():
            held = self._on_list(told, held)
            files.write_private(path, encode(told))
        elif encode(told) != path.read_bytes():
            raise BadMessage("This site was told other rows of the common list before; a run has one list.")
        self._path("scalar").unlink(missing_ok=True)  # also where a kill came between the rows and this
        return held

    def _on_list(self, content: Mapping[str, Any], held: SiteData) -> SiteData:
        """The site's ratings on the rows of the common list; users who are not on it are left out."""
        rows, count = content.get("rows"), content.get("count")
        with checking_file(self._path("place")):
            place = np.asarray(decode(self._path("place").read_bytes())["place"])
        if len(place) != held.share.ratings.n_users:
            raise DataError(
                "This site's users are not those that it sent a list of when the run was aligned; join with the same "
                "data as then."
            )
        fine = isinstance(rows, np.ndarray) and rows.dtype == np.int64 and rows.shape == place.shape
        most = self.offer.file.public.users or 2**31 - 1
        if not fine or type(count) is not int or not 0 < count <= most:
            raise BadMessage("The rows of the common list are not one for each user of this site.")
        assert isinstance(rows, np.ndarray)
        here = rows[rows >= 0]
        if len(np.unique(here)) != len(here) or np.any(rows < -1) or np.any(rows >= count):
            raise BadMessage("The rows of the common list name a row twice, or one that there is not.")
        mine = rows[place]
        ratings = on_rows(held.share.ratings, mine, count)
        test = None if held.test is None else on_rows(held.test, mine, count)
        return replace(held, share=replace(held.share, ratings=ratings, users=np.arange(count)), test=test)

    def _path(self, what: str) -> Path:
        return self.folder / "aligned" / f"{self.offer.run}.{what}"


def on_rows(ratings: Ratings, rows: Array, count: int) -> Ratings:
    """The same ratings with user i in row rows[i] of `count`, those with −1 left out, and no ids but row numbers."""
    order = np.argsort(np.where(rows < 0, count, rows), kind="stable")[: int(np.sum(rows >= 0))]
    counts = np.zeros(count, dtype=np.int64)
    counts[rows[order]] = ratings.counts[order]
    _pointers, entries = entries_of(ratings.indptr, order)
    return replace(
        ratings,
        indptr=np.concatenate(([0], np.cumsum(counts))),
        items=ratings.items[entries],
        values=ratings.values[entries],
        times=None if ratings.times is None else ratings.times[entries],
        user_ids=Vocabulary(np.arange(count), "user"),
        user_attributes=None,
    )
