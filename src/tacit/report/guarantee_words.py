"""A stated guarantee in plain words: what it promises, what it rests on, and what it leaves out.

Every number is rounded up, so that no sentence promises more than the run does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tacit.report.description import StatedGuarantee
from tacit.report.words import count, delta, epsilon, listing, plural, short, size

SIMULATED = (
    "SIMULATED: the noise comes from a seed, so anyone who has the run file can recompute and remove it, and anyone "
    "who sees two runs of one file on different data can cancel it."
)

_TRUST = {
    "local": "Every device adds noise before anything leaves it, so its user need not trust any other party.",
    "silo": "Users trust their own silo with their ratings, and no other party.",
    "distributed": "The parties share the noise: the guarantee needs enough honest ones to take part to the end.",
    "shuffled": "The proxy that shuffles the reports does not collude with the party that reads them.",
    "central": "The aggregator is trusted with the contributions; only what it publishes is protected.",
}
_CASES = {
    "zero-out": "the record as it is and an empty record",
    "add/remove": "the record being there and not",
    "replace": "the record as it is and any other in its place",
}


def one_line(stated: StatedGuarantee, setting: str) -> str:
    """As in "(1.00, 1e-06)-DP · per user and silo · zero-out · against … · SIMULATED (seeded)"."""
    unit = f"per {stated.unit}" + (" and silo" if per_silo(stated, setting) else "")
    parts = [bounds(stated), unit, stated.relation, f"against {against(stated)}"]
    if stated.claimed_epsilon is not None:
        parts.append(f"the paper's formulas claim ε = {epsilon(stated.claimed_epsilon)}")
    return " · ".join([*parts, "SIMULATED (seeded)"] if stated.simulated else parts)


def brief(stated: StatedGuarantee | None, hidden: str = "") -> str:
    """A guarantee in a few words, or NON-PRIVATE; `hidden` is what an aggregation without noise hides."""
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
    e, d, whom = _value(stated), delta(stated.delta), against(stated)
    whom = f"the {whom}" if whom.startswith("coordinator") else whom
    cases = _CASES.get(stated.relation, f"neighbours under the relation “{stated.relation}”")
    whose = "user's ratings were" if stated.unit == "user" else f"{stated.unit} was"
    barely = f"an observer can barely tell whether a {whose} used. The" if e <= 2 else "the"
    subject, verb = f"Every {stated.unit} is", "change"
    if stated.simulated:
        subject, verb = f"With noise that cannot be repeated, every {stated.unit} would be", "would change"
    sentences = [
        f"{subject} protected from {whom}.",
        f"ε = {epsilon(e)}, δ = {d}: {barely} odds between {cases} {verb} by a factor of at most {_factor(e)}, except "
        f"with probability about {d}.",
    ]
    if stated.claimed_epsilon is not None:
        claimed = epsilon(stated.claimed_epsilon)
        sentences.append(f"The paper's own formulas claim ε = {claimed}; what truly holds is ε = {epsilon(e)}.")
    return sentences


def in_several_silos(stated: StatedGuarantee, setting: str) -> list[str]:
    """The guarantee of a person who is in two or three silos; the run cannot check that everyone is in one only."""
    if not per_silo(stated, setting):
        return []
    e, costs = _value(stated), []
    for k, word in ((2, "two"), (3, "three")):
        # Group privacy, one silo after the other: (kε, δ·Σ e^{iε}). It holds however the silos interact.
        total = math.inf if k * e > 700 else stated.delta * sum(math.exp(i * e) for i in range(k))
        costs.append(f"no bound in {word}" if total >= 1 else f"at most ({epsilon(k * e)}, {delta(total)}) in {word}")
    together = " and ".join(costs)
    return [f"A person with records in several silos is protected in each separately; in total: {together}."]


def assumptions(stated: StatedGuarantee, has_chains: bool) -> list[str]:
    """The assumptions of the guarantee itself."""
    trust = _TRUST.get(stated.model, "The run states no more about it.")
    points = [f"Trust model: {stated.model}. {trust}"]
    if stated.simulated:
        points.append("This noise is simulated. A deployment draws noise that cannot be repeated.")
    if has_chains:
        points.append("The analysis of chains assumes real arithmetic; computers round.")
    return points + [f"{key.replace('_', ' ')}: {short(value, 200)}." for key, value in stated.further.items()]


#: Attributes of items that people wrote have one of these in their names.
WRITTEN_BY_USERS = ("tag", "review", "comment", "keyword")


def assumed_public(items: int, features: Sequence[str]) -> str:
    """The catalogue, which every offer contains and whose features a method may use.

    >>> assumed_public(500, ["genres", "year"])
    'Assumed public: the list of 500 items and their attributes genres, year.'
    """
    listed = f"Assumed public: the list of {plural(items, 'item')}"
    if not features:
        return f"{listed}."
    described = f"{listed} and their attributes {', '.join(short(name, 60) for name in features)}."
    written = any(part in name.lower() for name in features for part in WRITTEN_BY_USERS)
    warning = (
        " Tags and reviews are written by users, and their authors, who may be users of this run, are not protected."
    )
    return described + warning * written


def not_covered(stated: StatedGuarantee, aggregation: str, setting: str, deployed: bool = False) -> list[str]:
    """What the guarantee does not cover."""
    points = []
    if stated.model == "silo" or (stated.model == "distributed" and setting != "device"):
        points.append("Users from their own silo, which holds their ratings.")
    if stated.unit == "rating":
        points.append("A user's ratings taken together: each is protected only by itself.")
    if stated.relation == "zero-out":
        points.append("Membership: who is on the roster.")
    if not deployed:
        points.append(
            "Counts that the experimenter sees, on this card and in about.json: ratings, test users, party sizes."
        )
    hidden = stated.model == "distributed" or (aggregation != "plain" and stated.model == "silo")
    if hidden and not any(word in against(stated) for word in ("lying", "may lie")):
        points.append("Anything from a coordinator that lies: there is no guarantee against one.")
    if stated.simulated:
        points.append("Anything from anyone who has the run file: the noise is SIMULATED.")
    return points


def void(stated: StatedGuarantee) -> str:
    """What a run states that has no guarantee."""
    what = "a trust model of “none”" if stated.model == "none" else f"ε = {epsilon(_value(stated))}"
    if stated.claimed_epsilon is not None:
        what += f" (where the paper's own formulas claim ε = {epsilon(stated.claimed_epsilon)})"
    return f"The run states {what}, which guarantees nothing."


def _value(stated: StatedGuarantee) -> float:
    return math.inf if stated.epsilon is None else stated.epsilon


def _factor(e: float) -> str:
    """e^ε, rounded up."""
    if e > 20:
        return f"e^{epsilon(e)}"
    value = math.exp(e)
    return f"{math.ceil(value * 100 - 1e-9) / 100:.2f}" if value < 100 else count(math.ceil(value))


def secagg_sentences(sealing: Mapping[str, Any], devices: bool) -> list[str]:
    """`Plan.sealing` in sentences; `devices` chooses what parties are called."""
    who, many = ("device", "devices") if devices else ("party", "parties")
    noised, bits, colluding = sealing["noised"], sealing["bits"], sealing["colluding"]
    sentences = _protocol(sealing, who, many) if "honest" in sealing else []
    if not sentences and noised:
        sentences.append(
            f"The noise is drawn as one, as large as shares that survive c = {count(colluding)} colluding {many}."
        )
    wraps = "they carry no noise, are clipped locally to a public bound, and never wrap around"
    if noised:
        wraps = "noise makes one wrap around with probability 2⁻⁴⁰ at most, which would cost accuracy but no privacy"
    for n in dict.fromkeys(bits.values()):
        steps = listing(f"“{step}”" for step, its in bits.items() if its == n)
        sentences.append(f"Contributions to {steps} are integers of {n} bits; {wraps}.")
    if noised and not bits:
        sentences.append(
            f"No step is a sum whose noise could be shared, so each {who} adds all of the noise itself. Masks hide "
            "what it adds to a mean; an answer that is requested from it alone is seen, with its noise."
        )
    return sentences


def _protocol(sealing: Mapping[str, Any], who: str, many: str) -> list[str]:
    """Who must stay, whose noise a sum carries, what a sum costs, and against whom its masks hold."""
    fewest, everyone, colluding = sealing["fewest"], sealing["levels"][-1], sealing["colluding"]
    stay = f"All {count(everyone)}" if fewest == everyone else f"At least {count(fewest)}"
    sentences = [f"{stay} {many} must stay, or the round is void; c = {count(colluding)} may collude."]
    if sealing["bits"] and sealing["noised"]:
        steps = listing(f"“{step}”" for step in sealing["bits"])
        levels = len(sealing["levels"]) - 1
        surplus = f" If more stay, the surplus is removed, in {plural(levels, 'level')}." if levels else ""
        sentences.append(
            f"The noise of {steps} is shared: each {who} adds enough for the fewest honest survivors, h = "
            f"{count(sealing['honest'])}.{surplus}"
        )
    sentences.append(
        f"Each {who} shares masks with {plural(sealing['neighbours'], 'neighbour')}, {count(sealing['threshold'])} of "
        f"whom can recover its masks if it drops out. One sum costs it {size(sealing['bytes_up_each'])} up and "
        f"{size(sealing['bytes_down_each'])} down on top of its contribution."
    )
    sentences.append(
        f"The survivors sign who stayed, so the masks hold against a coordinator that lies, if fewer than "
        f"{count(colluding + 1)} {many} help it."
        if sealing["signed"]
        else "The masks hold against a coordinator that follows the protocol; against one that lies about who stayed "
        "there is no guarantee (sign the lists with [aggregation] signed = true)."
    )
    return sentences


def report_sentences(costs: Mapping[str, Any]) -> list[str]:
    """One step of `Plan.report_costs` in sentences: per report, release and run, and what a shuffle makes of it."""
    k, T, step = costs["reports"], costs["releases"], costs["step"]
    alone = (
        f"Each report of “{step}” has a local ε of {epsilon(costs['epsilon'])}. A device makes {count(k)} in a "
        f"release, ε = {epsilon(costs['epsilon_of_release'])} together, and {count(k * T)} in the run, ε = "
        f"{epsilon(costs['epsilon_of_run'])}: these hold against anyone, with δ = 0."
    )
    total = f"ε = {epsilon(costs['epsilon_at_delta'])} at δ = {delta(costs['delta'])}"
    if not costs["crowd"]:
        return [alone, f"All reports of a device compose to {total}."]
    mixed = (
        f"Mixed among those of {count(costs['crowd'])} distinct honest devices, one shuffle for each of the "
        f"{count(k * T)}, they compose to {total} for those who see the mixed reports alone (Feldman, McMillan and "
        "Talwar 2021, replace relation)."
    )
    return [alone, mixed]


def loss_warning(sealing: Mapping[str, Any] | None, devices: bool) -> str | None:
    """A warning where secure aggregation cannot lose a single party, with the remedy; None where it can."""
    if sealing is None or "honest" not in sealing or sealing["fewest"] < sealing["levels"][-1]:
        return None
    who, many = ("device", "devices") if devices else ("site", "parties")
    everyone = sealing["levels"][-1]
    remedy = f"no [aggregation] tolerate is possible among so few, so add {many}"
    if everyone >= sealing["colluding"] + 3:  # one can be lost, and two honest ones still hide each other
        remedy = f"raise [aggregation] tolerate, or add {many}"
    return (
        f"Secure sums among {count(everyone)} {many} tolerate no loss: one lost {who} voids every sum until it is "
        f"back; {remedy}."
    )
