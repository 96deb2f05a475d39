"""Calibration: the smallest noise that keeps a schedule within (ε, δ).

Formal guarantee
----------------
The multiplier z that is returned satisfies `account.epsilon(schedule(z), δ, relation) ≤ ε`: this was checked at that
very z, rounded up to six significant digits, and it is the smallest such number if ε falls as z grows. Values are
cached in the user's cache folder, as JSON. A cached value is used only if the record is intact, was computed by the
same versions, and the schedule still makes exactly the events that were checked; otherwise it is computed again.
"""

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
from tacit.boundary import gdp
from tacit.boundary.account import merged_epsilon, plain_mu
from tacit.boundary.events import Event, merge, to_json
from tacit.errors import PrivacyRefused, UsageError
from tacit.guarantee import Relation

Schedule = Callable[[float], Sequence[Event]]

#: The range of multipliers that are tried, and the grid of the answer.
LEAST, MOST, DIGITS = 1e-3, 1e9, 6
#: Changes when the meaning of a cached value does.
EDITION = 3

_GRID = Context(prec=DIGITS, rounding=ROUND_CEILING)


def multiplier(schedule: Schedule, epsilon: float, delta: float, relation: Relation, cache: bool = True) -> float:
    """The smallest multiplier z for which `schedule(z)` stays within (ε, δ) under `relation`.

    Parameters
    ----------
    schedule : the events of the whole run, fixed beforehand, as a function of z
    epsilon, delta : the target
    cache : whether to read and write the user's cache folder

    >>> from tacit.boundary.events import Gaussian
    >>> multiplier(lambda z: [Gaussian(z, count=100)], 1.0, 1e-6, Relation.ZERO_OUT)
    42.2468
    """
    if not 0 < epsilon < math.inf:
        raise UsageError(f"epsilon = {epsilon} is not possible as a target; give a number above 0.")
    if not 0 <= delta < 1:
        raise UsageError(f"delta = {delta} is not possible; give a number from 0 up to, but not including, 1.")
    relation = Relation(relation)
    if (near := _closed_form(schedule, epsilon, delta, relation)) is not None:
        return _smallest_on_grid(schedule, epsilon, delta, relation, near)
    file = _file(schedule, epsilon, delta, relation) if cache else None
    if file is not None and (cached := _read(file, schedule)) is not None:
        return cached
    near = _search(schedule, epsilon, delta, relation)
    found = _smallest_on_grid(schedule, epsilon, delta, relation, near)
    if file is not None:
        _write(file, found, schedule)
    return found


def _closed_form(schedule: Schedule, epsilon: float, delta: float, relation: Relation) -> float | None:
    """Plain Gaussians in proportion to z: μ(z) = μ(1)/z, so z = μ(1)/μ*. None for any other schedule."""
    once, twice = (merge(schedule(z)) for z in (1.0, 2.0))
    if delta == 0 or not once or not twice:
        return None
    mu, half = plain_mu(once, relation), plain_mu(twice, relation)
    if mu is None or half is None or not math.isclose(mu, 2 * half, rel_tol=1e-12):
        return None
    return mu / gdp.mu(epsilon, delta)


def _search(schedule: Schedule, epsilon: float, delta: float, relation: Relation) -> float:
    """About where ε(z) = ε: by Brent's method on a coarse grid of losses, which errs upwards, then on the fine one."""
    from scipy.optimize import brentq, newton

    def excess(log_z: float, coarse: float = 10.0) -> float:
        """ln(ε(z)/ε), above 0 where z is too small."""
        reached = merged_epsilon(merge(schedule(math.exp(log_z))), delta, relation, coarse)
        return math.log(min(max(reached / epsilon, 1e-300), 1e300))

    least, step = math.log(LEAST), math.log(4)
    if excess(least) <= 0:
        return LEAST
    high = 0.0
    while excess(high) > 0:
        high += step
        if high > math.log(MOST):
            raise PrivacyRefused(
                f"No noise keeps this schedule within ε = {epsilon:g} at δ = {delta:g}: part of it costs more than "
                "that whatever the multiplier; raise epsilon, or leave that part out."
            )
    low = high - step
    while low > least and excess(low) <= 0:
        low, high = max(least, low - step), low
    rough = brentq(excess, low, high, xtol=1e-4)
    slope = min((excess(rough + 1e-3) - excess(rough)) / 1e-3, -0.1)
    fine, _outcome = newton(
        lambda log_z: excess(log_z, 1.0), rough, lambda _: slope, tol=1e-5, maxiter=3, full_output=True, disp=False
    )
    return math.exp(min(max(float(fine), rough - 0.02), rough + 0.02))


def _smallest_on_grid(schedule: Schedule, epsilon: float, delta: float, relation: Relation, near: float) -> float:
    """The smallest number of the grid around `near` that is checked to hold; the one before it is checked not to."""

    def holds(candidate: Decimal) -> bool:
        return merged_epsilon(merge(schedule(float(candidate))), delta, relation) <= epsilon

    high = _on_grid(near)
    low, stride = _GRID.next_minus(high), 1e-5
    while not holds(high):
        low, high, stride = high, max(_GRID.next_plus(high), _on_grid(float(high) * (1 + stride))), stride * 2
        if high > MOST:
            raise PrivacyRefused(
                f"No noise near {near:g} was found for ε = {epsilon:g} at δ = {delta:g}; the schedule's cost has to "
                "fall as the multiplier grows."
            )
    while low > LEAST and holds(low):
        low, high, stride = min(_GRID.next_minus(low), _on_grid(float(low) * (1 - stride))), low, stride * 2
    while _GRID.next_plus(low) < high:
        middle = min(_on_grid(float(low + high) / 2), _GRID.next_minus(high))
        low, high = (low, middle) if holds(middle) else (middle, high)
    return float(high)


def _on_grid(z: float) -> Decimal:
    return _GRID.create_decimal(repr(z))


def folder() -> Path:
    """Where values are cached: `tacit/calibrations` in XDG_CACHE_HOME, or in ~/.cache."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(given) if Path(given).is_absolute() else Path.home() / ".cache") / "tacit" / "calibrations"


def _file(schedule: Schedule, epsilon: float, delta: float, relation: Relation) -> Path | None:
    """The file for one question: its name is a hash of the question and of every version that the answer depends on."""
    question = {
        "edition": EDITION,
        "versions": {name: _version(name) for name in ("tacit", "dp-accounting", "scipy", "numpy")},
        "events": [_as_json(schedule(z)) for z in (1.0, 2.0)],
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
    """The cached value, if the record is intact and the schedule still makes the events that were checked."""
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        seal = record.pop("seal")
        value = float(Decimal(record["multiplier"]))
        intact = seal == _hash(record) and LEAST <= value <= MOST
        return value if intact and record["events"] == _hash(_as_json(schedule(value))) else None
    except (OSError, ValueError, ArithmeticError, KeyError, TypeError, AttributeError):
        return None


def _write(file: Path, value: float, schedule: Schedule) -> None:
    """Cache a value; a folder that cannot be written costs time, nothing else."""
    record = {"multiplier": repr(value), "events": _hash(_as_json(schedule(value)))}
    with suppress(OSError):
        files.write_private(file, json.dumps({**record, "seal": _hash(record)}), durable=False)


def _as_json(events: Sequence[Event]) -> list[dict[str, Any]]:
    together = merge(events)
    return [{"kind": "NonPrivate"}] if together is None else [to_json(event) for event in together]


def _hash(table: object) -> str:
    return hashlib.sha256(json.dumps(table, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"
