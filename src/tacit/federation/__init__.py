"""The coordinator's `Federation`, the `Party`, and the messages between them."""

from tacit.federation.calls import Total
from tacit.federation.coordinator import Federation
from tacit.federation.facts import Facts, Member
from tacit.federation.messages import Answer, Choice, Floats, Integer, Request, Schema, Step, step
from tacit.federation.peer import Party, Peer
from tacit.federation.role import Role
from tacit.federation.transcript import Transcript

__all__ = [
    "Answer",
    "Choice",
    "Facts",
    "Federation",
    "Floats",
    "Member",
    "Party",
    "Peer",
    "Request",
    "Role",
    "Schema",
    "Step",
    "Total",
    "Transcript",
    "Integer",
    "step",
]
