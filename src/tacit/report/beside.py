"""What sites tell beside a run's own messages, before it begins and after it has ended, in words and bytes.

It is in no digest and in no summary: these are the same as those of one process. Bytes are what the sites' ledgers say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tacit.boundary.wire import Value, encode
from tacit.report.words import listing
from tacit.secure.psi import SIZE

BEFORE, AFTER = "before", "after"
_METRICS = "metrics of its own test ratings, without any noise, which the site chose to tell"


def told_before(
    told: Mapping[str, Mapping[str, Value]], users: Mapping[str, int], way: str | None = None, offers: int = 1
) -> list[dict[str, Any]]:
    """What sites told before a run began.

    Parameters
    ----------
    told : by site, what it said of itself when it accepted
    users : by site, how many users it has
    way : how users were aligned, "psi" or "hashed"; None where sites hold different ones
    offers : how often the run was offered: anew, where somebody had refused
    """
    items = any("items" in content for content in told.values())
    counted = any(content.get("ratings") for content in told.values())
    what = ["how many users it has", *(["how many ratings"] if counted else []), *(["which items"] if items else [])]
    again = ", once for each offer" if offers > 1 else ""
    sizes = [len(encode(content)) for content in told.values()] * offers
    rows = [_row("sizes:roster", BEFORE, "roster", listing(what) + again, sizes)]
    lists = {name: len(encode({"list": np.zeros((n, SIZE), np.uint8)})) for name, n in users.items()}
    if way == "psi":
        others = [size for size in lists.values() for _other in range(len(lists) - 1)]
        again = "another site's blinded list, blinded once more"
        rows.append(_row("first:roster", BEFORE, "roster", "the list of its users, blinded", list(lists.values())))
        rows.append(_row("again:roster", BEFORE, "roster", again, others))
    elif way is not None:
        rows.append(
            _row("tags:roster", BEFORE, "roster", "the list of its users, as keyed hashes", list(lists.values()))
        )
    if way is not None:
        heard = [len(encode({"aligned": True}))] * len(lists)
        rows.append(_row("rows:roster", BEFORE, "roster", "the word that it knows its rows on the common list", heard))
    return rows


def told_after(replies: Mapping[str, Mapping[str, Value]]) -> list[dict[str, Any]]:
    """What sites told after a run had ended: their own metrics, where they chose to."""
    sizes = [len(encode({"metrics": reply["metrics"]})) for reply in replies.values() if "metrics" in reply]
    return [_row("metrics:own", AFTER, "metrics", _METRICS, sizes)] if sizes else []


def _row(step: str, when: str, kind: str, what: str, sizes: list[int]) -> dict[str, Any]:
    return {"step": step, "when": when, "kind": kind, "what": what, "answers": len(sizes), "bytes": sum(sizes)}
