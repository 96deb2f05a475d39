"""How several parties' contributions become one sum."""

from tacit.secure.ideal import IdealSum
from tacit.secure.plain import Aggregation, Plain

__all__ = ["Aggregation", "IdealSum", "Plain"]
