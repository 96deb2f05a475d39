"""How secure aggregation protects a run's sums, in plain words: for plans and for the card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.report.words import count, plural, size


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
    sentences += [f"Contributions to “{step}” are integers of {n} bits; {wraps}." for step, n in bits.items()]
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
        steps = " and ".join(f"“{step}”" for step in sealing["bits"])
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
