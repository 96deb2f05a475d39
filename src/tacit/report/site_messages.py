"""What sites send outside a run's own messages: sizes and lists before it, their own metrics after it.

It is in no digest and in no summary: these are the same as those of one process. Bytes are what the sites' ledgers say.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import Field, ValidationError, field_validator

from tacit.boundary.wire import Value, encode
from tacit.config import MOST_RATINGS, MOST_USERS, Frozen
from tacit.evaluate.metrics import METRICS
from tacit.report.words import listing
from tacit.secure.psi import SIZE

BEFORE, AFTER = "before", "after"
_METRICS = "metrics of its own test ratings, without any noise, which the site chose to tell"
_NAME = re.compile("[a-z0-9_]+(@[1-9][0-9]{0,5})?")


def sent_before(
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


def sent_after(replies: Mapping[str, Mapping[str, Value]]) -> list[dict[str, Any]]:
    """What sites told after a run had ended: their own metrics, where they chose to."""
    sizes = [len(encode({"metrics": reply["metrics"]})) for reply in replies.values() if "metrics" in reply]
    return [_row("metrics:own", AFTER, "metrics", _METRICS, sizes)] if sizes else []


def _row(step: str, when: str, kind: str, what: str, sizes: list[int]) -> dict[str, Any]:
    return {"step": step, "when": when, "kind": kind, "what": what, "answers": len(sizes), "bytes": sum(sizes)}


class SiteMetrics(Frozen):
    """What one site tells of the model's quality on its own test ratings."""

    metrics: dict[str, Annotated[float, Field(ge=0, le=1e15)]]
    users: int = Field(ge=1, le=MOST_USERS)
    ratings: int = Field(ge=1, le=MOST_RATINGS)

    @field_validator("metrics")
    @classmethod
    def _known(cls, found: dict[str, float]) -> dict[str, float]:
        if not all(name.partition("@")[0] in METRICS and _NAME.fullmatch(name) for name in found):
            raise ValueError("there is no such metric")
        return found


def site_metrics(replies: Mapping[str, Any]) -> dict[str, SiteMetrics | None]:
    """By site that told any, its metrics; None where they are none."""
    told: dict[str, SiteMetrics | None] = {}
    for name, reply in replies.items():
        if "metrics" in reply:
            try:
                told[name] = SiteMetrics.model_validate_json(str(reply["metrics"]))
            except ValidationError:
                told[name] = None
    return told


def shared_metrics(replies: Mapping[str, Any], parties: int) -> tuple[dict[str, float], list[str]]:
    """What sites told of how good the model is for them, as one, and notes of who told; what cannot be is left out.

    Errors are weighed by test ratings, and places in lists by test users, as they are over all users together.
    """
    found = site_metrics(replies)
    notes = [f"The metrics that {name} told are none, and were left out." for name, site in found.items() if not site]
    told = [site for site in found.values() if site is not None]
    if not told:
        return {}, [*notes, "Metrics stayed at the sites: none of them chose to tell its own."]
    metrics = {}
    for name in set.intersection(*(set(site.metrics) for site in told)) - {"rmse"}:
        weights = [site.ratings if name in ("mse", "mae") else site.users for site in told]
        metrics[name] = float(np.average([site.metrics[name] for site in told], weights=weights))
    if "mse" in metrics:
        metrics["rmse"] = math.sqrt(metrics["mse"])
    note = (
        f"METRICS SHARED: {len(told)} of {parties} sites chose to tell the metrics of their own test ratings, which "
        f"depend on data and carry no guarantee; what is shown is {'their mean' if len(told) > 1 else 'its own'}."
    )
    return {name: metrics[name] for name in sorted(metrics, key=_place)}, [*notes, note]


def _place(name: str) -> tuple[int, str]:
    """Where a metric stands among all, as everywhere."""
    return list(METRICS).index(name.partition("@")[0]), name
