"""How sums were sealed, in plain words: for plans and for the card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.report.words import count, plural, size


def sentences(told: Mapping[str, Any], devices: bool) -> list[str]:
    """What `Plan.sealing` says, in sentences; `devices` tells what parties are called."""
    who = "device" if devices else "party"
    many = "devices" if devices else "parties"
    said = []
    if "honest" in told:
        said.append(
            f"Noise is shared: each {who} adds enough for the fewest honest survivors, h = {count(told['honest'])}: at "
            f"least {count(told['fewest'])} must stay, or the round is void, and c = {count(told['colluding'])} may "
            f"collude. What is too much is taken out again, in {len(told['levels']) - 1} levels."
        )
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
    else:
        said.append(
            f"The noise is that of shares which survive c = {count(told['colluding'])} colluding {many}; it was drawn "
            "as one."
        )
    for step, bits in told["bits"].items():
        said.append(
            f"Contributions to “{step}” are whole numbers of {bits} bits; noise makes one wrap around with probability "
            "2⁻⁴⁰ at most, which would cost accuracy and no privacy."
        )
    if not told["bits"]:
        said.append(
            f"No step is a sum that could share its noise: each {who} adds its own. Masks hide what it adds to a mean; "
            "what is asked of it alone is seen, noise and all."
        )
    return said
