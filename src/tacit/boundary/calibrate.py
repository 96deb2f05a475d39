"""Calibration: the smallest noise that keeps a schedule within (ε, δ).

Formal guarantee
----------------
The multiplier z that comes back satisfies `account.epsilon(schedule(z), δ, relation) ≤ ε`: it was checked at that very
z, rounded up to six significant digits, and is the smallest such number if ε falls as z grows. Values are kept in the
user's cache folder, as JSON. A kept value is used only if the record is whole, was computed by the same versions, and
the schedule still makes exactly the events that were checked; anything else is ignored and written anew.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from decimal import ROUND_CEILING, Context, Decimal
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tacit import files
from tacit.boundary import compose, gdp, spending
from tacit.boundary.events import Event, to_json
from tacit.errors import PrivacyRefused, UsageError
from tacit.guarantee import Relation

Schedule = Callable[[float], Sequence[Event]]

#: The multipliers that are looked at, and the grid of the answer.
LEAST, MOST, DIGITS = 1e-3, 1e9, 6
#: Changes when the meaning of a kept value does.
EDITION = 2

_GRID = Context(prec=DIGITS, rounding=ROUND_CEILING)


def multiplier(schedule: Schedule, epsilon: float, delta: float, relation: Relation, cache: bool = True) -> float:
    """The smallest multiplier z for which `schedule(z)` stays within (ε, δ) under `relation`.

    Parameters
    ----------
    schedule : the events of the whole run, fixed beforehand, as a function of z
    epsilon, delta : the target
    cache : whether to look the value up in, and keep it in, the user's cache folder

    >>> from tacit.boundary.events import Gaussian
    >>> multiplier(lambda z: [Gaussian(z, count=100)], 1.0, 1e-6, Relation.ZERO_OUT)
    42.2468
    """
    if not 0 < epsilon < math.inf:
        raise UsageError(f"epsilon = {epsilon} is not possible as a target; give a number above 0.")
    if not 0 <= delta < 1:
        raise UsageError(f"delta = {delta} is not possible; give a number from 0 up to, but not including, 1.")
    relation = Relation(relation)
    if (exact := _plain(schedule, epsilon, delta, relation)) is not None:
        return exact
    file = _file(schedule, epsilon, delta, relation) if cache else None
    if file is not None and (kept := _read(file, schedule)) is not None:
        return kept
    found = _search(schedule, epsilon, delta, relation)
    if file is not None:
        _write(file, found, schedule)
    return found


# -- finding it -----------------------------------------------------------------------------------------------


def _plain(schedule: Schedule, epsilon: float, delta: float, relation: Relation) -> float | None:
    """Plain Gaussians in proportion to z: μ(z) = μ(1)/z, so z = μ(1)/μ*. None for any other schedule."""
    once, twice = (spending.merge(schedule(z)) for z in (1.0, 2.0))
    if delta == 0 or not once or not twice:
        return None
    mu, half = compose.plain_mu(once, relation), compose.plain_mu(twice, relation)
    if mu is None or half is None or not math.isclose(mu, 2 * half, rel_tol=1e-12):
        return None
    return _settled(schedule, epsilon, delta, relation, mu / gdp.mu(epsilon, delta))


def _search(schedule: Schedule, epsilon: float, delta: float, relation: Relation) -> float:
    """Bracket, narrow down on a coarse grid of losses, which errs upwards, then on the fine one."""

    def too_much(z: float, coarse: float) -> float:
        """ln(ε(z)/ε), above 0 where z is too small."""
        together = spending.merge(schedule(z))
        reached = math.inf if together is None else compose.epsilon(together, delta, relation, coarse)
        return math.log(max(reached, 1e-300) / epsilon)

    if too_much(LEAST, 10.0) <= 0:
        return LEAST
    low = high = 1.0
    while too_much(high, 10.0) > 0:
        low, high = high, high * 4
        if high > MOST:
            raise PrivacyRefused(
                f"No noise keeps this schedule within ε = {epsilon:g} at δ = {delta:g}: part of it costs more than "
                "that whatever the multiplier; raise epsilon, or leave that part out."
            )
    while low == high or too_much(low, 10.0) <= 0:
        high, low = low if low < high else high, max(LEAST, low / 4)
    rough = _narrow(lambda z: too_much(z, 10.0), low, high, 1e-4)
    slope = (too_much(rough * 1.001, 10.0) - too_much(rough, 10.0)) / math.log(1.001)
    for _ in range(3):  # Newton's steps on the fine grid of losses, with the coarse one's slope
        off = too_much(rough, 1.0)
        rough *= math.exp(min(0.01, max(-0.01, -off / min(slope, -0.1))))
        if abs(off) < 1e-5:
            break
    return _settled(schedule, epsilon, delta, relation, rough)


def _narrow(too_much: Callable[[float], float], low: float, high: float, tolerance: float) -> float:
    """The upper end of a bracket of that relative width around the crossing: secants in ln z, kept in by bisection."""
    left, right = too_much(low), too_much(high)
    for step in range(60):
        if high - low <= tolerance * high or right == 0:
            break
        share = 0.5 if not math.isfinite(left) or step % 4 == 3 else left / (left - right)
        # Aim a hair past the crossing, in turn on either side, so that both ends close in.
        nudge = tolerance / 3 / math.log(high / low)
        share = min(max(share + (nudge if step % 2 == 0 else -nudge), 0.001), 0.999)
        middle = low * (high / low) ** share
        value = too_much(middle)
        if value > 0:
            low, left = middle, value
        else:
            high, right = middle, value
    return high


def _settled(schedule: Schedule, epsilon: float, delta: float, relation: Relation, near: float) -> float:
    """The smallest number of the grid around `near` that is checked to hold: the one before it is checked not to."""

    def holds(candidate: Decimal) -> bool:
        together = spending.merge(schedule(float(candidate)))
        return together is not None and compose.epsilon(together, delta, relation) <= epsilon

    high = _on_grid(near)
    low, stride = _GRID.next_minus(high), 1e-5
    while not holds(high):
        low, high, stride = high, max(_GRID.next_plus(high), _on_grid(float(high) * (1 + stride))), stride * 2
        if high > MOST:
            raise PrivacyRefused(
                f"The noise for ε = {epsilon:g} at δ = {delta:g} could not be settled near {near:g}; the schedule's "
                "cost has to fall as the multiplier grows."
            )
    while low > LEAST and holds(low):
        low, high, stride = min(_GRID.next_minus(low), _on_grid(float(low) * (1 - stride))), low, stride * 2
    while _GRID.next_plus(low) < high:
        middle = min(_on_grid(float(low + high) / 2), _GRID.next_minus(high))
        low, high = (low, middle) if holds(middle) else (middle, high)
    return float(high)


def _on_grid(z: float) -> Decimal:
    return _GRID.create_decimal(repr(z))


# -- keeping it -----------------------------------------------------------------------------------------------


def folder() -> Path:
    """Where values are kept: `tacit/calibrations` in XDG_CACHE_HOME, or in ~/.cache."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(given) if Path(given).is_absolute() else Path.home() / ".cache") / "tacit" / "calibrations"


def _file(schedule: Schedule, epsilon: float, delta: float, relation: Relation) -> Path | None:
    """The file for one question: its name is a hash of the question and of every version that the answer rests on."""
    question = {
        "edition": EDITION,
        "versions": {name: _version(name) for name in ("tacit", "dp-accounting", "scipy", "numpy")},
        "events": [_told(schedule(z)) for z in (1.0, 2.0)],
        "epsilon": epsilon,
        "delta": delta,
        "relation": str(relation),
        "grid": [LEAST, MOST, DIGITS],
    }
    try:
        return folder() / f"{_hash(question)}.json"
    except RuntimeError:  # no home folder
        return None


def _read(file: Path, schedule: Schedule) -> float | None:
    """The kept value, if the record is whole and the schedule still makes the events that were checked."""
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        seal = record.pop("seal")
        value = float(Decimal(record["multiplier"]))
        whole = seal == _hash(record) and LEAST <= value <= MOST
        return value if whole and record["events"] == _hash(_told(schedule(value))) else None
    except (OSError, ValueError, ArithmeticError, KeyError, TypeError, AttributeError):
        return None


def _write(file: Path, value: float, schedule: Schedule) -> None:
    """Keep a value: whole or not at all. A folder that cannot be written costs time, nothing else."""
    record = {"multiplier": repr(value), "events": _hash(_told(schedule(value)))}
    with suppress(OSError):
        files.write_private(file, json.dumps({**record, "seal": _hash(record)}), durable=False)


def _told(events: Sequence[Event]) -> list[dict[str, Any]]:
    together = spending.merge(events)
    return [{"kind": "NonPrivate"}] if together is None else [to_json(event) for event in together]


def _hash(table: object) -> str:
    return hashlib.sha256(json.dumps(table, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"
