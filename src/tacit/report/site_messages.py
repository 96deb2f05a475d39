"""What sites send outside a run's own messages: sizes and lists before it, their own metrics after it.

Digest and summary leave it out, so that they equal those of a simulation. Bytes are as in the sites' ledgers.
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

_NAME = re.compile("[a-z0-9_]+(@[1-9][0-9]{0,5})?")


def sent_before(
    replies: Mapping[str, Mapping[str, Value]], users: Mapping[str, int], way: str | None = None, offers: int = 1
) -> list[dict[str, Any]]:
    """What sites sent before a run began.

    Parameters
    ----------
    replies : by site, what it reported about itself when it accepted
    users : by site, how many users it has
    way : how users were aligned, "psi" or "hashed"; None where sites hold different users
    offers : how often the run was offered: again after each refusal
    """
    items = any("items" in reply for reply in replies.values())
    counted = any(reply.get("ratings") for reply in replies.values())
    what = ["how many users it has", *(["how many ratings"] if counted else []), *(["which items"] if items else [])]
    again = ", once for each offer" if offers > 1 else ""
    sent = {"sizes:roster": (listing(what) + again, [len(encode(reply)) for reply in replies.values()] * offers)}
    lists = [len(encode({"list": np.zeros((n, SIZE), np.uint8)})) for n in users.values()]
    if way == "psi":
        sent["first:roster"] = ("the list of its users, blinded", lists)
        sent["again:roster"] = ("another site's blinded list, blinded once more", lists * (len(lists) - 1))
    elif way is not None:
        sent["tags:roster"] = ("the list of its users, as keyed hashes", lists)
    if way is not None:
        acknowledged = [len(encode({"aligned": True}))] * len(lists)
        sent["rows:roster"] = ("the acknowledgement that it has its rows of the common list", acknowledged)
    return [_row(step, "before", "roster", *content) for step, content in sent.items()]


def sent_after(replies: Mapping[str, Mapping[str, Value]]) -> list[dict[str, Any]]:
    """What sites sent after a run had ended: their own metrics, where they chose to."""
    sizes = [len(encode({"metrics": reply["metrics"]})) for reply in replies.values() if "metrics" in reply]
    what = "metrics of its own test ratings, without any noise, which the site chose to report"
    return [_row("metrics:own", "after", "metrics", what, sizes)] if sizes else []


def _row(step: str, when: str, kind: str, what: str, sizes: list[int]) -> dict[str, Any]:
    return {"step": step, "when": when, "kind": kind, "what": what, "answers": len(sizes), "bytes": sum(sizes)}


class SiteMetrics(Frozen):
    """The model's quality on one site's own test ratings."""

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
    """The metrics of every site that reported any; None where they are invalid."""
    found: dict[str, SiteMetrics | None] = {}
    for name, reply in replies.items():
        if "metrics" in reply:
            try:
                found[name] = SiteMetrics.model_validate_json(str(reply["metrics"]))
            except ValidationError:
                found[name] = None
    return found


def shared_metrics(replies: Mapping[str, Any], parties: int) -> tuple[dict[str, float], list[str]]:
    """The sites' metrics combined, and notes on which sites reported any; invalid ones are left out.

    Errors are weighted by test ratings, and ranking metrics by test users, as they are over all users together.
    """
    found = site_metrics(replies)
    notes = [f"The metrics that {name} reported are invalid and left out." for name, site in found.items() if not site]
    valid = [site for site in found.values() if site is not None]
    if not valid:
        return {}, [*notes, "Metrics stayed at the sites: no site chose to report its own."]
    metrics = {}
    for name in set.intersection(*(set(site.metrics) for site in valid)) - {"rmse"}:
        weights = [site.ratings if name in ("mse", "mae") else site.users for site in valid]
        metrics[name] = float(np.average([site.metrics[name] for site in valid], weights=weights))
    if "mse" in metrics:
        metrics["rmse"] = math.sqrt(metrics["mse"])
    notes.append(
        f"METRICS SHARED: {len(valid)} of {parties} sites chose to report the metrics of their own test ratings, which "
        f"depend on data and carry no guarantee; {'their mean is' if len(valid) > 1 else 'these are'} shown."
    )
    order = list(METRICS)
    return dict(sorted(metrics.items(), key=lambda one: (order.index(one[0].partition("@")[0]), one[0]))), notes
