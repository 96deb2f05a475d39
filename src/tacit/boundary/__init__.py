"""What leaves a party, and how: the gate, what it lets out, and the bytes that travel."""

from tacit.boundary.gate import Gate
from tacit.boundary.query import Query, Unbounded
from tacit.boundary.release import Release

__all__ = ["Gate", "Query", "Release", "Unbounded"]
