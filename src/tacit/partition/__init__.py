"""Who holds what: ratings divided among parties."""

from tacit.partition.divide import partition
from tacit.partition.parties import Parties, Setting, Share

__all__ = ["partition", "Parties", "Share", "Setting"]
