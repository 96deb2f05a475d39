"""The metrics that sites chose to tell of a deployed run, as one, and who told them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import Field, ValidationError, field_validator

from tacit.config import MOST_RATINGS, MOST_USERS, Frozen
from tacit.evaluate.metrics import METRICS

_NAME = re.compile("[a-z0-9_]+(@[1-9][0-9]{0,5})?")


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
