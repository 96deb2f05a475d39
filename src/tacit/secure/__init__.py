"""How several parties' contributions become one sum."""

from tacit.secure.ideal import IdealSum, SecureSum
from tacit.secure.plain import Aggregation, Plain

__all__ = ["Aggregation", "IdealSum", "Plain", "SecureSum"]
