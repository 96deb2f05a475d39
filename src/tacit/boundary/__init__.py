"""What leaves a party, and how: the gate, its releases and their noise, the ledger, and the bytes that travel."""

from tacit.boundary.gate import Gate, RoleGate
from tacit.boundary.query import Query, Unbounded
from tacit.boundary.release import Release

__all__ = ["Gate", "Query", "Release", "RoleGate", "Unbounded"]
