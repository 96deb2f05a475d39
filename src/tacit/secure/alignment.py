"""One common list of rows for sites that hold ratings of the same users, without any user id leaving a site.

Each site turns its ids into *tags*: by keyed hashes here (`tags`), or by blinding in turns (`psi`). The coordinator
joins tags (`common_rows`) and sends each site, for each of its tags, the row in the common roster. Ids are compared as
exact text, `str(id)`: sites must write them alike, leading zeros, case and spaces included.

    site                               coordinator
    list, place = travel(tags(…))  ──►  count, rows = common_rows({site: list, …}, keep, seed)
    rows[place], in the ids' order ◄──  rows[site]

Guarantee
---------
HMAC-SHA256 is a pseudo-random function: to anyone without the key, tags are random. The coordinator learns how many
users each site has and which tags are at which sites, and nothing about ids; anyone with the key who sees tags can
test any id. `psi` has no such key. docs/explanation/alignment.md has the consequences and proofs.
"""

import hmac
from collections.abc import Mapping, Sequence

import numpy as np

from tacit.errors import BadMessage, DataError, UsageError, did_you_mean
from tacit.rng import id_keys
from tacit.secure.masks import Array

#: Bytes of a tag: 16 or 32. Two of n ids share a tag with probability at most n²/2^129, n²/2^257.
SIZES = (16, 32)

#: Fewest bytes of the key that the sites share.
KEY = 32

#: Users that every site has, or all, with an empty record at sites that lack them.
KEEPS = ("shared", "all")

_DOMAIN = b"tacit alignment tag 1"


def id_texts(ids: Sequence[object]) -> list[bytes]:
    """Ids as the text that sites compare; an id that is there twice is an error, which does not repeat the id."""
    texts = [str(i).encode() for i in ids]
    seen: dict[bytes, int] = {}
    for position, text in enumerate(texts):
        first = seen.setdefault(text, position)
        if first != position:
            raise DataError(
                f"User ids number {first + 1:,} and {position + 1:,} of this site are the same text; "
                "a common roster needs every user once, so merge the two."
            )
    return texts


def tags(key: bytes, ids: Sequence[object], *, size: int = 32, context: bytes = b"") -> Array:
    """HMAC-SHA256(key, context, id) of every id, cut to `size` bytes: (n, size) uint8, in the ids' order.

    Parameters
    ----------
    key : 32 bytes or more, shared by the sites and unknown to the coordinator
    context : what this alignment is, alike at all sites; tags of different contexts cannot be linked

    >>> a, b = tags(bytes(32), ["u1", 42]), tags(bytes(32), ["42"])
    >>> bool((a[1] == b[0]).all())
    True
    """
    if len(key) < KEY:
        raise UsageError(f"A key for tags has {KEY} bytes or more, not {len(key)}; let the sites share a longer one.")
    if size not in SIZES:
        raise UsageError(f"A tag has 16 or 32 bytes, not {size}.")
    head = _DOMAIN + len(context).to_bytes(8, "little") + context
    joined = b"".join(hmac.digest(key, head + text, "sha256")[:size] for text in id_texts(ids))
    return np.frombuffer(joined, dtype=np.uint8).reshape(-1, size)


def travel(values: Array) -> tuple[Array, Array]:
    """The list as it may leave its site, sorted, and the place of every id in it.

    In the ids' order a list would reveal more than its tags: an id's rank among sorted ids, or when a user joined. The
    order of tags is that of random numbers. Row numbers that come back are `rows[place]` in the ids' order.
    """
    order = np.argsort(_as_text(values), kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return values[order], place


def checked(values: object, sender: str, *, rows: int | None = None, sizes: tuple[int, ...] = SIZES) -> Array:
    """A list of tags from a peer, if it can be one: (n, size) uint8, no row twice, and `rows` of them where known."""
    if not isinstance(values, np.ndarray) or values.dtype != np.uint8 or values.ndim != 2:
        raise BadMessage(f'The list of "{sender}" is no table of bytes with one tag a row; refuse it.')
    if values.shape[1] not in sizes:
        allowed = " or ".join(map(str, sizes))
        raise BadMessage(f'The tags of "{sender}" have {values.shape[1]} bytes instead of {allowed}; refuse the list.')
    if rows is not None and len(values) != rows:
        raise BadMessage(f'The list of "{sender}" came with {len(values):,} tags instead of {rows:,}; refuse it.')
    if len(np.unique(_as_text(values))) != len(values):
        raise BadMessage(f'The list of "{sender}" has a tag twice, but a site has every user once; refuse it.')
    return values


def common_rows(lists: Mapping[str, Array], keep: str, seed: int) -> tuple[int, dict[str, Array]]:
    """How many rows the common roster has; per site, for each of its tags, the row there or −1: int64.

    Parameters
    ----------
    lists : by site, tags of one kind and size, in the order in which the site sent them
    keep : "shared" (users that every site has) or "all" (the union)
    seed : rows are in the order of a keyed hash of their tags, so neither ids, sites nor arrival decide. With
        `secrets.randbits(128)`, secret to the coordinator, rows reveal nothing; with a seed that sites know, a site
        that can compute tags works out from its own rows where rows of others fall between them

    >>> x, y = tags(bytes(32), ["ann", "bob"]), tags(bytes(32), ["bob", "cy"])
    >>> count, rows = common_rows({"x": x, "y": y}, "shared", 7)
    >>> count, rows["x"].tolist(), rows["y"].tolist()
    (1, [-1, 0], [0, -1])
    """
    if keep not in KEEPS:
        raise UsageError(f'keep = "{keep}" is not possible; take "shared" or "all".{did_you_mean(keep, KEEPS)}')
    if not lists:
        raise UsageError("There is no list to align; give the list of every site.")
    every = [checked(values, site) for site, values in lists.items()]
    widths = {site: values.shape[1] for site, values in lists.items()}
    if len(set(widths.values())) > 1:
        sizes = ", ".join(f'"{site}" {width}' for site, width in widths.items())
        raise BadMessage(f"Sites sent tags of different sizes ({sizes} bytes); let all use one way and one size.")
    size = every[0].shape[1]
    found, number = np.unique(_as_text(np.concatenate(every)), return_inverse=True)
    sites = np.bincount(number, minlength=len(found))
    kept = np.flatnonzero(sites == len(every) if keep == "shared" else sites)
    texts = (tag.tobytes().hex() for tag in found.view(np.uint8).reshape(-1, size)[kept])
    order = np.argsort(id_keys(seed, "alignment: row of a tag", texts), kind="stable")
    row = np.full(len(found), -1, dtype=np.int64)
    row[kept[order]] = np.arange(len(kept))
    ends = np.cumsum([len(values) for values in every])[:-1]
    return len(kept), dict(zip(lists, np.split(row[number], ends), strict=True))


def _as_text(values: Array) -> Array:
    """Rows of bytes as values that NumPy sorts and compares whole: (n,) of S16 or S32."""
    return np.ascontiguousarray(values).view(f"S{max(values.shape[1], 1)}").reshape(-1)
