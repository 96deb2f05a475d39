"""What leaves a party, and how: the gate, what it lets out, and the bytes that travel."""

from tacit.boundary.gate import Gate
from tacit.boundary.query import Query, Unbounded
from tacit.boundary.release import Release
from tacit.boundary.role_gate import RoleGate

__all__ = ["Gate", "Query", "Release", "RoleGate", "Unbounded"]
