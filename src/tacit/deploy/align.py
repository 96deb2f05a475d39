"""Sites with the same users agree on one list of rows before a vertical run begins; ids stay at the sites.

With `psi` every site's list is blinded by all sites in turn, and the coordinator compares the results; with `hashed`
sites send keyed hashes, with a key that the coordinator does not have. docs/explanation/alignment.md has what each way
reveals to whom; `REVEALS` is its sentence on the card.
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
    "the common list, and no site another's ids.",
    "hashed": "Users were aligned by keyed hashes: the coordinator learned how many users each site has and which "
    "pseudonyms are at which sites; anyone with the sites' key and the hashes can test any id that they can think of.",
}

#: Sends a message to one site until it replies: name, id and content in, the reply's content out.
Send = Callable[[str, str, Mapping[str, Value]], Mapping[str, Any]]


def align_sites(offer: Offer, sizes: Mapping[str, int], send: Send, path: Path) -> tuple[int, dict[str, Array]]:
    """How many rows the common list has, and by site the row of each of its tags, or −1; stored for a resumed run."""
    if path.exists():
        with checking_file(path):
            saved: dict[str, Any] = decode(path.read_bytes())
            return int(saved.pop("count")), saved
    way, names = offer.file.partition.align, offer.roster
    first = "first" if way == "psi" else "tags"
    lists = {name: _list(send(name, _id(offer, first, name), {"stage": first}), name, sizes[name]) for name in names}
    if way == "psi":
        for owner, others in ring(names).items():
            for name in others:
                content: dict[str, Value] = {"stage": "again", "owner": owner, "list": lists[owner]}
                lists[owner] = _list(send(name, _id(offer, "again", name, owner), content), name, sizes[owner])
    count, rows = common_rows(lists, offer.file.partition.keep, secrets.randbits(128))
    if count == 0:
        raise PeerFailed(
            "The sites have no user in common; do they write ids in the same way, with leading zeros and capitals?"
        )
    files.write_private(path, encode({"count": count, **rows}))
    return count, rows


def rows_content(count: int, rows: Array) -> dict[str, Value]:
    """The message to one site: the row of each of its tags on the common list."""
    return {"stage": "rows", "count": count, "rows": rows.astype(np.int64)}


def _list(reply: Mapping[str, Any], name: str, size: int) -> Array:
    return checked(reply.get("list"), name, rows=size, sizes=(SIZE,))


def _id(offer: Offer, *words: str) -> str:
    return hashlib.sha256("|".join(("align", offer.hash, *words)).encode()).hexdigest()


@dataclass(frozen=True)
class SiteAlignment:
    """One site's part in one alignment; its files are in `folder`, its secret only until the rows are known.

    A site blinds one list in the name of each other site.
    """

    offer: Offer
    name: str
    folder: Path
    key: bytes | None = None

    @reading(COORDINATOR)
    def reply(self, content: Mapping[str, Any], data: SiteData) -> tuple[dict[str, Value], SiteData]:
        """The reply to one stage, and the site's data after it; `data` is that before it."""
        stage, ids = str(content.get("stage")), data.people
        if self.offer.setting != "vertical":
            raise BadMessage("Users are aligned only where sites hold the same ones, and in this run they do not.")
        if stage != "rows" and self._path("rows").exists():
            raise BadMessage("The common list of this run is already known; there is only one.")
        if stage == "first" and self.offer.file.partition.align == "psi":
            return {"list": self._sent(self._blinder().first(ids))}, data
        if stage == "tags" and self.offer.file.partition.align == "hashed":
            assert self.key is not None  # the site's rules require it
            return {"list": self._sent(tags(self.key, ids, context=self.offer.run.encode()))}, data
        if stage == "again" and self.offer.file.partition.align == "psi":
            return {"list": self._again(str(content.get("owner")), content.get("list"))}, data
        if stage == "rows":
            return {"aligned": True}, self._store_rows(content, data)
        raise BadMessage("A stage of the alignment is not one of this run's method of aligning.")

    def restored(self, data: SiteData) -> SiteData:
        """The site's data on the common list, if the list came before a restart."""
        path = self._path("rows")
        if not path.exists():
            return data
        with checking_file(path):
            content = decode(path.read_bytes())
        return self._on_list(content, data)

    def _again(self, owner: str, values: object) -> Array:
        """Another site's list, blinded once: a second one in its name could be guesses."""
        if owner == self.name or owner not in self.offer.roster:
            raise BadMessage("A list to blind is in the name of a site that is not another party of this run.")
        given, most = checked(values, owner, sizes=(SIZE,)), self.offer.file.public.users
        if most is not None and len(given) > most:
            raise BadMessage(f"The list of {owner} has more users than the run declares; nothing was blinded.")
        path, digest = self._path("blinded"), hashlib.sha256(given.tobytes()).hexdigest()
        with checking_file(path):
            known = dict(json.loads(path.read_text())) if path.exists() else {}
        if known.setdefault(owner, digest) != digest:
            raise BadMessage(f"A second list in the name of {owner} came to be blinded; a site blinds one of each.")
        files.write_private(path, json.dumps(known))
        return self._blinder().again(given, owner)

    def _sent(self, values: Array) -> Array:
        """A list in the order in which it may leave; the place of each user in it is stored."""
        listed, place = travel(values)
        files.write_private(self._path("place"), encode({"place": place}))
        return listed

    def _blinder(self) -> Blinder:
        path = self._path("scalar")
        if not path.exists():
            files.write_private(path, Blinder().secret)
        with checking_file(path):
            return Blinder(path.read_bytes())

    def _store_rows(self, content: Mapping[str, Any], data: SiteData) -> SiteData:
        """The data on the site's rows; when they come again, as after a restart, it is on them already."""
        path, given = self._path("rows"), {name: content.get(name) for name in ("rows", "count")}
        if not self._path("place").exists():
            raise BadMessage("The rows of a common list came before this site had sent its own.")
        if not path.exists():
            data = self._on_list(given, data)
            files.write_private(path, encode(given))
        elif encode(given) != path.read_bytes():
            raise BadMessage("This site got other rows of the common list before; a run has one list.")
        self._path("scalar").unlink(missing_ok=True)  # also after a kill between the rows and this
        return data

    def _on_list(self, content: Mapping[str, Any], data: SiteData) -> SiteData:
        """The site's ratings on the rows of the common list; users who are not on it are left out."""
        rows, count = content.get("rows"), content.get("count")
        with checking_file(self._path("place")):
            place = np.asarray(decode(self._path("place").read_bytes())["place"])
        if len(place) != data.share.ratings.n_users:
            raise DataError("This site's users are not those of the alignment; join with the same data as then.")
        fine = isinstance(rows, np.ndarray) and rows.dtype == np.int64 and rows.shape == place.shape
        most = self.offer.file.public.users or 2**31 - 1
        if not fine or type(count) is not int or not 0 < count <= most:
            raise BadMessage("The rows of the common list are not one for each user of this site.")
        assert isinstance(rows, np.ndarray)
        here = rows[rows >= 0]
        if len(np.unique(here)) != len(here) or np.any(rows < -1) or np.any(rows >= count):
            raise BadMessage("The rows of the common list name a row twice, or one that does not exist.")
        mine = rows[place]
        ratings = on_rows(data.share.ratings, mine, count)
        test = None if data.test is None else on_rows(data.test, mine, count)
        return replace(data, share=replace(data.share, ratings=ratings, users=np.arange(count)), test=test)

    def _path(self, what: str) -> Path:
        return self.folder / "aligned" / f"{self.offer.run}.{what}"


def on_rows(ratings: Ratings, rows: Array, count: int) -> Ratings:
    """The ratings with user i in row rows[i] of `count`, those with −1 left out, and row numbers as ids."""
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
