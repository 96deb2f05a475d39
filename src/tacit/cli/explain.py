"""`tacit explain`: what an (ε, δ) means for one person, in words and odds."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console
from rich.table import Table

from tacit.boundary.account import group, to_replace
from tacit.boundary.odds import Odds, odds, posterior
from tacit.cli.display import print_json

#: How sure an attacker may have been before; and the guarantees that the given one is compared with.
PRIORS = (0.5, 0.1, 0.01, 0.001)
COMPARED = (0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0)

VERDICTS = {
    "strong": "Strong: a guess about one user stays a guess.",
    "moderate": "Moderate: a guess about one user can become much more certain, but not sure.",
    "weak": "Weak: someone who suspected something about one user can become nearly certain.",
    "little": "Little: in theory almost everything about one user may leak; only the attack's difficulty protects.",
    "none": "None: nothing is promised about one user.",
}
NOT_MEANT = (
    "It does not hide facts about everyone: that smokers fall ill is learned, also about smokers who stayed away.",
    "It covers what left, not what is stored: a stolen disk, or a model tuned and used at home, is not covered.",
    "It covers one unit, as the guarantee names it. Per rating is far less than per user; per user and silo counts "
    "each silo on its own.",
    "It covers no more than the relation says: under zero-out and replace, who is on the roster is not hidden.",
    "It is a bound for the worst user and an attacker who knows everything else; most users lose less.",
)


def explain(epsilon: float, delta: float, as_json: bool) -> None:
    """Explain what an (ε, δ) means for one person, in words and odds."""
    found = odds(epsilon, delta)
    if as_json:
        print_json(_table(found))
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold](ε = {epsilon:g}, δ = {delta:g})-differential privacy[/bold] · {VERDICTS[found.verdict]}")
    console.print("\nAn attacker who sees everything that left, and knows everything else, can raise their certainty")
    exception = "" if delta == 0 else f" (except with probability δ = {delta:g}; see below)"
    console.print(f"about one user from …{exception}")
    for prior in PRIORS:
        console.print(f"  {f'1 in {round(1 / prior)}':>9}  to at most {_percent(posterior(prior, epsilon))}")
    console.print(
        f"\nThe best attacker, who decides which of two things is true of a user, is right {_percent(found.accuracy)} "
        f"of the time; a coin is right 50 %. At a false-alarm rate of 1 % they find {_percent(found.caught)} of the "
        "users that they look for; guessing finds 1 %."
    )
    console.print(f"\n{_delta_words(found)}\n")
    console.print(_compared(found))
    console.print("\nWhat it does not mean:")
    for line in NOT_MEANT:
        console.print(f"  · {line}")
    pair, replaced = group(epsilon, delta, 2), to_replace(epsilon, delta)
    console.print(
        f"  · It covers one user at a time: two users together have (ε = {pair[0]:g}, δ = {pair[1]:.2g}). "
        f"A zero-out guarantee, stated for replacing a user by another, is (ε = {replaced[0]:g}, "
        f"δ = {replaced[1]:.2g})."
    )


def _table(found: Odds) -> dict[str, Any]:
    """The explanation as one JSON object; infinite values are null."""
    return {
        "epsilon": _finite(found.epsilon),
        "delta": found.delta,
        "verdict": found.verdict,
        "words": VERDICTS[found.verdict],
        "factor": _finite(found.factor),
        "certainty": [{"from": prior, "to": posterior(prior, found.epsilon)} for prior in PRIORS],
        "accuracy": found.accuracy,
        "advantage": found.advantage,
        "caught_at_1_percent_false_alarms": found.caught,
        "people": _finite(found.people),
        "beside": [
            {"epsilon": e, "verdict": other.verdict, "from_half": posterior(0.5, e), "accuracy": other.accuracy}
            for e, other in ((e, odds(e, found.delta)) for e in COMPARED)
        ],
        "two_users": dict(zip(("epsilon", "delta"), map(_finite, group(found.epsilon, found.delta, 2)), strict=True)),
        "not_meant": list(NOT_MEANT),
    }


def _compared(found: Odds) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("ε", "from 1 in 2 to", "from 1 in 1000 to", "best attacker right", "verdict"):
        table.add_column(name, justify="left" if name == "verdict" else "right")
    for e in sorted({*COMPARED, found.epsilon}):
        other = odds(e, found.delta)
        cells = [f"{e:g}", _percent(posterior(0.5, e)), _percent(posterior(0.001, e)), _percent(other.accuracy)]
        table.add_row(*cells, other.verdict, style="bold" if e == found.epsilon else "")
    return table


def _delta_words(found: Odds) -> str:
    if found.verdict == "none":
        return "There is no promise here, so δ means nothing."
    if found.delta == 0:
        return "δ = 0: the promise holds without exception, whatever the size of the data."
    return (
        f"δ = {found.delta:g} is the probability that the promise fails for a user. It should be well below one over "
        f"the number of users: it suits data of up to {found.people:,.0f} users; with {10 * found.people:,.0f} or "
        "more, even publishing one user's whole record would satisfy it."
    )


def _percent(share: float) -> str:
    """Rounded up to two significant digits, counted from 0 or from 100 %.

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
