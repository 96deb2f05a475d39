"""A stated guarantee in plain words: what it promises, what it rests on, and what it leaves out.

Every number is rounded up, so that no sentence promises more than the run does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tacit.report.description import StatedGuarantee
from tacit.report.words import count, delta, epsilon, listing, plural, short

SIMULATED = (
    "SIMULATED: the noise was seeded, so whoever holds the run file can recompute it and take it off, "
    "and whoever sees two runs of one file on different data can cancel it."
)

_TRUST = {
    "local": "Each user protects herself before anything leaves her device; she trusts nobody else.",
    "silo": "Users trust their own silo with their ratings, and nobody else.",
    "distributed": "The parties share the noise: it holds while enough honest ones take part to the end.",
    "shuffled": "The proxy that shuffles the reports does not work together with whoever reads them.",
    "central": "Whoever gathers the contributions is trusted with them; only what it publishes is protected.",
}
_CASES = {
    "zero-out": "{whose} record as it is, or emptied",
    "add/remove": "{whose} record being there, or not",
    "replace": "{whose} record as it is, or any other in its place",
}


def one_line(stated: StatedGuarantee, setting: str) -> str:
    """As in "(1.00, 1e-06)-DP · per user and silo · zero-out · against … · SIMULATED (seeded)"."""
    unit = f"per {stated.unit}" + (" and silo" if per_silo(stated, setting) else "")
    parts = [bounds(stated), unit, stated.relation, f"against {against(stated)}"]
    if stated.claimed_epsilon is not None:
        parts.append(f"the paper's formulas claim ε = {epsilon(stated.claimed_epsilon)}")
    return " · ".join([*parts, "SIMULATED (seeded)"] if stated.simulated else parts)


def brief(stated: StatedGuarantee | None, hidden: str = "") -> str:
    """A guarantee in a few words, or NON-PRIVATE; `hidden` says what an aggregation without noise hides."""
    if stated is None or not stated.holds:
        return "NON-PRIVATE, contributions hidden" if hidden else "NON-PRIVATE"
    return f"ε = {epsilon(stated.epsilon or 0)} per {stated.unit}{', SIMULATED' if stated.simulated else ''}"


def bounds(stated: StatedGuarantee) -> str:
    """As in "(1.00, 1e-06)-DP"."""
    return f"({epsilon(_value(stated))}, {delta(stated.delta)})-DP"


def against(stated: StatedGuarantee) -> str:
    return stated.against if isinstance(stated.against, str) else listing(stated.against)


def per_silo(stated: StatedGuarantee, setting: str) -> bool:
    """Whether the guarantee counts a person once in each silo. In the vertical setting it spans all silos."""
    return stated.unit == "user" and stated.model in ("silo", "distributed") and setting == "horizontal"


def explained(stated: StatedGuarantee) -> list[str]:
    """Who is protected from whom, and what the two numbers mean."""
    whose = "her" if stated.unit == "user" else f"the {stated.unit}'s"
    cases = f"neighbours under the relation “{stated.relation}”"
    if stated.relation in _CASES:
        cases = _CASES[stated.relation].format(whose=whose)
    verb, changes = ("would be", "would change") if stated.simulated else ("is", "changes")
    whom = against(stated)
    whom = f"the {whom}" if whom.startswith("coordinator") else whom
    protected = f"{stated.unit} {verb} protected from {whom}."
    sentences = [
        f"With noise that nobody can repeat, every {protected}" if stated.simulated else f"Every {protected}",
        f"ε = {epsilon(_value(stated))}, δ = {delta(stated.delta)}: seeing all that crossed to them "
        f"{changes} the odds between two cases ({cases}) by a factor of at most {_factor(_value(stated))}, except with "
        f"probability about {delta(stated.delta)}.",
    ]
    if stated.claimed_epsilon is not None:
        sentences.append(
            f"The paper's own formulas claim ε = {epsilon(stated.claimed_epsilon)}; "
            f"what truly holds is ε = {epsilon(_value(stated))}."
        )
    return sentences


def in_several_silos(stated: StatedGuarantee, setting: str) -> list[str]:
    """What two and three silos cost: that a person is in one only, nobody can check."""
    if not per_silo(stated, setting):
        return []
    e, costs = _value(stated), []
    for k, word in ((2, "two"), (3, "three")):
        # Group privacy, one silo after the other: (kε, δ·Σ e^{iε}). It holds however the silos interact.
        total = math.inf if k * e > 700 else stated.delta * sum(math.exp(i * e) for i in range(k))
        costs.append(f"no bound in {word}" if total >= 1 else f"at most ({epsilon(k * e)}, {delta(total)}) in {word}")
    together = " and ".join(costs)
    return [f"A person with records in several silos is protected in each by itself; together: {together}."]


def assumptions(stated: StatedGuarantee, has_chains: bool) -> list[str]:
    """The assumptions that the guarantee itself brings."""
    trust = _TRUST.get(stated.model, "That is the run's word; this card knows no more of it.")
    points = [f"Trust model: {stated.model}. {trust}"]
    if stated.simulated:
        points.append("The noise is a simulation's. A deployment draws it where nobody can repeat it.")
    if has_chains:
        points.append("Chains are analysed in real arithmetic, while computers round.")
    return points + [f"{key.replace('_', ' ')}: {short(value, 200)}." for key, value in stated.further.items()]


def assumed_public(items: int, features: Sequence[str]) -> str:
    """That anyone may know the catalogue, which is in every offer and whose features a method may use.

    >>> assumed_public(500, ["genres", "year"])
    'Assumed public: the list of 500 items and their attributes genres, year.'
    """
    listed = f"Assumed public: the list of {plural(items, 'item')}"
    return (
        f"{listed} and their attributes {', '.join(short(name, 60) for name in features)}."
        if features
        else f"{listed}."
    )


def not_covered(stated: StatedGuarantee, aggregation: str, setting: str, deployed: bool = False) -> list[str]:
    """What the guarantee does not cover."""
    points = []
    if stated.model == "silo" or (stated.model == "distributed" and setting != "device"):
        points.append("Users from their own silo, which holds their ratings.")
    if stated.unit == "rating":
        points.append("A user as a whole: one with many ratings is protected rating by rating only.")
    if stated.relation == "zero-out":
        points.append("Being on the roster.")
    if not deployed:
        points.append(
            "Counts that the experimenter sees, on this card and in about.json: ratings, test users, party sizes."
        )
    hidden = stated.model == "distributed" or (aggregation != "plain" and stated.model == "silo")
    if hidden and not any(word in against(stated) for word in ("lying", "may lie")):
        points.append("Anything from a lying coordinator: there is no guarantee against one.")
    if stated.simulated:
        points.append("Anything from whoever holds the run file: the noise is SIMULATED.")
    return points


def void(stated: StatedGuarantee) -> str:
    """What a run states that has no guarantee for all that."""
    what = "a trust model of “none”" if stated.model == "none" else f"ε = {epsilon(_value(stated))}"
    if stated.claimed_epsilon is not None:
        what += f" (where the paper's own formulas claim ε = {epsilon(stated.claimed_epsilon)})"
    return f"The run states {what}, which is no guarantee."


def _value(stated: StatedGuarantee) -> float:
    return math.inf if stated.epsilon is None else stated.epsilon


def _factor(e: float) -> str:
    """e^ε, rounded up."""
    if e > 20:
        return f"e^{epsilon(e)}"
    value = math.exp(e)
    return f"{math.ceil(value * 100 - 1e-9) / 100:.2f}" if value < 100 else count(math.ceil(value))
