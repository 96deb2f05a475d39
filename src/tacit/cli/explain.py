"""`tacit explain`: what an (ε, δ) means for one person, in words and odds."""

from __future__ import annotations

import json
import math
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from tacit.boundary.account import group, to_replace
from tacit.boundary.odds import Odds, odds, posterior

#: What somebody may have thought before; and the guarantees that the given one is set beside.
PRIORS = (0.5, 0.1, 0.01, 0.001)
BESIDE = (0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0)

VERDICTS = {
    "strong": "Strong: a guess about one user stays a guess.",
    "moderate": "Moderate: a guess about one user can become a good deal surer, but not sure.",
    "weak": "Weak: somebody who suspected something about one user can become nearly certain.",
    "little": "Little: on paper almost everything about one user may show; only the attack's difficulty protects.",
    "none": "None: nothing is promised about one user.",
}
NOT_MEANT = (
    "It does not hide facts about everybody: that smokers fall ill will be learnt, and holds for one who stayed away.",
    "It covers what left, not what is kept: a stolen disk, or a model tuned and used at home, is another matter.",
    "It covers one unit, as the guarantee names it. Per rating is far less than per user; per user and silo counts "
    "each silo on its own.",
    "It covers no more than the relation says: under zero-out and replace, who is on the roster is not hidden.",
    "It is a ceiling for the worst user, the worst attacker and everything else already known; most users lose less.",
)


def explain(epsilon: float, delta: float, as_json: bool) -> None:
    """Say what (ε, δ) means."""
    told = odds(epsilon, delta)
    if as_json:
        typer.echo(json.dumps(_table(told), ensure_ascii=False, allow_nan=False))
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold](ε = {epsilon:g}, δ = {delta:g})-differential privacy[/bold] · {VERDICTS[told.verdict]}")
    console.print("\nWhoever sees everything that left, and knows everything else, can raise their certainty about one")
    console.print(f"user from …{_except(delta)}")
    for prior in PRIORS:
        console.print(f"  {_one_in(prior):>9}  to at most {_percent(posterior(prior, epsilon))}")
    console.print(
        f"\nThe best attacker, who must say which of two things is true of a user, is right {_percent(told.accuracy)} "
        f"of the time; a coin is right 50 %. At one false alarm in a hundred they find {_percent(told.caught)} of "
        "those that they look for; guessing finds 1 %."
    )
    console.print(f"\n{_delta_words(told)}\n")
    console.print(_beside(told))
    console.print("\nWhat it does not mean:")
    for line in NOT_MEANT:
        console.print(f"  · {line}")
    pair, replaced = group(epsilon, delta, 2), to_replace(epsilon, delta)
    console.print(
        f"  · It covers one at a time: two users who are looked at together have (ε = {pair[0]:g}, δ = {pair[1]:.2g}). "
        f"And a zero-out guarantee, read as one about replacing a user by another, is (ε = {replaced[0]:g}, "
        f"δ = {replaced[1]:.2g})."
    )


def _table(told: Odds) -> dict[str, Any]:
    """Everything that is said, as one JSON object; what has no end is null."""
    return {
        "epsilon": _finite(told.epsilon),
        "delta": told.delta,
        "verdict": told.verdict,
        "words": VERDICTS[told.verdict],
        "factor": _finite(told.factor),
        "certainty": [{"from": prior, "to": posterior(prior, told.epsilon)} for prior in PRIORS],
        "accuracy": told.accuracy,
        "advantage": told.advantage,
        "caught_at_1_percent_false_alarms": told.caught,
        "people": _finite(told.people),
        "beside": [
            {"epsilon": e, "verdict": other.verdict, "from_half": posterior(0.5, e), "accuracy": other.accuracy}
            for e, other in ((e, odds(e, told.delta)) for e in BESIDE)
        ],
        "two_users": dict(zip(("epsilon", "delta"), map(_finite, group(told.epsilon, told.delta, 2)), strict=True)),
        "not_meant": list(NOT_MEANT),
    }


def _beside(told: Odds) -> Table:
    """The guarantee between its neighbours."""
    table = Table(box=None, pad_edge=False)
    for name in ("ε", "from 1 in 2 to", "from 1 in 1000 to", "best attacker right", "verdict"):
        table.add_column(name, justify="left" if name == "verdict" else "right")
    for e in sorted({*BESIDE, told.epsilon}):
        other = odds(e, told.delta)
        cells = [f"{e:g}", _percent(posterior(0.5, e)), _percent(posterior(0.001, e)), _percent(other.accuracy)]
        table.add_row(*cells, other.verdict, style="bold" if e == told.epsilon else "")
    return table


def _delta_words(told: Odds) -> str:
    if told.verdict == "none":
        return "There is no promise here that δ could be the exception to."
    if told.delta == 0:
        return "δ = 0: the promise holds without exception, whatever the size of the data."
    return (
        f"δ = {told.delta:g} is the chance that the promise does not hold for a user. Keep it well below one over the "
        f"number of users: it is fit for data of up to {told.people:,.0f} users, and with {10 * told.people:,.0f} or "
        "more it could cover giving one of them away entirely."
    )


def _except(delta: float) -> str:
    return "" if delta == 0 else f" (except with probability δ = {delta:g}; see below)"


def _one_in(prior: float) -> str:
    return f"1 in {round(1 / prior)}"


def _percent(share: float) -> str:
    """Rounded up, since it is a ceiling: two digits that count, from either end.

    >>> _percent(0.7310585786), _percent(0.00271), _percent(0.99966), _percent(1.0)
    ('73.2 %', '0.28 %', '99.966 %', '100 %')
    """
    room = min(share, 1 - share) * 100
    if room <= 1e-4:
        return "100 %" if share > 0.5 else f"{0.0001 if share > 0 else 0:g} %"
    digits = 1 if room >= 1 else 1 - math.floor(math.log10(room))
    return f"{math.ceil(share * 100 * 10**digits - 1e-9) / 10**digits:.{digits}f} %"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
