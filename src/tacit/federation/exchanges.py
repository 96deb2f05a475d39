"""What may be said in the course of a secure sum, beside the contributions themselves.

An exchange about step "contribute" is asked for as "advertise:contribute". Keys, shares and what unmasks are drawn at
random and have no data in them, so these are public steps, and every party of every method knows them.
"""

from __future__ import annotations

from collections.abc import Mapping

from tacit.boundary.gate import EXCHANGES
from tacit.boundary.release import Kind
from tacit.federation.messages import MOST_LETTER, Bytes, Hash, Letters, Marks, Schema, Step

_TAKES: Mapping[str, Schema] = {
    "advertise": Schema(context=Hash()),
    "share": Letters(context=Hash()),
    "collect": Letters(context=Hash()),
    "confirm": Schema(context=Hash(), survivors=Marks()),
    "unmask": Letters(context=Hash(), survivors=Marks()),
}
_GIVES: Mapping[str, Schema] = {
    "advertise": Schema(keys=Bytes(MOST_LETTER)),
    "share": Letters(),
    "collect": Schema(rejected=Marks()),
    "confirm": Schema(signature=Bytes(MOST_LETTER)),
    "unmask": Schema(answer=Bytes(MOST_LETTER)),
}
_WHAT: Mapping[str, str] = {
    "advertise": "fresh public keys for one secure sum",
    "share": "sealed shares of its masks and of its spare noise, for its neighbours",
    "collect": "whose shares arrived damaged",
    "confirm": "a signature under the list of those that stayed",
    "unmask": "shares that take the masks off the sum of those that stayed, and spare noise out of it",
}


def exchange_step(name: str, steps: Mapping[str, Step]) -> Step | None:
    """The step that "advertise:contribute" and the like name, if there is such an exchange and such a step."""
    exchange, _colon, of = name.partition(":")
    if exchange not in EXCHANGES or of not in steps:
        return None
    return Step(name, Kind.PUBLIC, _TAKES[exchange], _GIVES[exchange], _WHAT[exchange])


def exchanges_about(step: str, steps: Mapping[str, Step], signed: bool, simulated: bool) -> dict[str, Step]:
    """What is said in the course of a secure sum of one step; of simulated devices it is only counted, as one."""
    if simulated:
        what = "keys, sealed shares and what unmasks, of every device: counted as the protocol would send it, not run"
        name = f"protocol:{step}"
        return {name: Step(name, Kind.PUBLIC, Letters(), Letters(), what)}
    names = [f"{exchange}:{step}" for exchange in EXCHANGES if signed or exchange != "confirm"]
    return {name: found for name in names if (found := exchange_step(name, steps)) is not None}
