"""How sums were sealed, in plain words: for plans and for the card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.report.words import count, plural, size


def secagg_sentences(told: Mapping[str, Any], devices: bool) -> list[str]:
    """What `Plan.sealing` says, in sentences; `devices` tells what parties are called."""
    who = "device" if devices else "party"
    many = "devices" if devices else "parties"
    said = []
    if "honest" in told:
        said.append(_stay(told, many))
        if told["bits"] and told["noised"]:
            said.append(_shared(told, who))
        said.append(
            f"Each {who} shares masks with {plural(told['neighbours'], 'neighbour')}, {count(told['threshold'])} of "
            f"whom can recover what it owes if it drops out. One sum costs it {size(told['bytes_up_each'])} up and "
            f"{size(told['bytes_down_each'])} down beside its contribution."
        )
        said.append(
            f"The survivors sign who stayed, so the masks hold against a coordinator that lies, if fewer than "
            f"{count(told['colluding'] + 1)} {many} help it."
            if told["signed"]
            else "The masks hold against a coordinator that follows the protocol; against one that lies about who "
            "stayed there is no guarantee (sign the lists with [aggregation] signed = true)."
        )
    elif told["noised"]:
        said.append(
            f"The noise is that of shares which survive c = {count(told['colluding'])} colluding {many}; it was drawn "
            "as one."
        )
    for step, bits in told["bits"].items():
        wraps = (
            "noise makes one wrap around with probability 2⁻⁴⁰ at most, which would cost accuracy and no privacy"
            if told["noised"]
            else "they carry no noise, are cut at home to a public bound, and never wrap around"
        )
        said.append(f"Contributions to “{step}” are integers of {bits} bits; {wraps}.")
    if not told["bits"] and told["noised"]:
        said.append(
            f"No step is a sum that could share its noise: each {who} adds its own. Masks hide what it adds to a mean; "
            "what is asked of it alone is seen, noise and all."
        )
    return said


def loss_warning(told: Mapping[str, Any] | None, devices: bool) -> str | None:
    """A warning where a secure sum has room for nobody's loss, and what gives it some; None where it has."""
    if told is None or "honest" not in told or told["fewest"] < told["levels"][-1]:
        return None
    who, many = ("device", "devices") if devices else ("site", "parties")
    everybody = told["levels"][-1]
    mend = (
        f"raise [aggregation] tolerate, or let more {many} take part"
        if everybody >= told["colluding"] + 3  # one can be lost, and two honest ones are still left to hide among
        else f"no [aggregation] tolerate is possible among so few, so let more {many} take part"
    )
    return (
        f"Secure sums among {count(everybody)} {many} tolerate no loss: one lost {who} voids every sum until it is "
        f"back; {mend}."
    )


def _stay(told: Mapping[str, Any], many: str) -> str:
    """How many must stay for a sum to be."""
    fewest, parties, colluding = told["fewest"], told["levels"][-1], count(told["colluding"])
    if fewest == parties:
        return f"All {count(parties)} {many} must stay, or the round is void; c = {colluding} may collude."
    return f"At least {count(fewest)} {many} must stay, or the round is void; c = {colluding} may collude."


def _shared(told: Mapping[str, Any], who: str) -> str:
    """Whose noise a sealed sum carries."""
    steps = " and ".join(f"“{step}”" for step in told["bits"])
    words = f"The noise of {steps} is shared: each {who} adds enough for the fewest honest survivors, h = "
    pieces = len(told["levels"]) - 1
    spare = f" If more stay, what is too much is taken out again, in {plural(pieces, 'level')}." if pieces else ""
    return f"{words}{count(told['honest'])}.{spare}"
