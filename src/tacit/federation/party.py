"""The party's side: who holds ratings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.boundary import Gate
from tacit.boundary.wire import Array
from tacit.errors import PrivacyRefused
from tacit.federation.facts import Facts
from tacit.federation.peer import Peer
from tacit.model import Fitted
from tacit.partition import Share


class Party(Peer):
    """Who holds data: a silo, a group, or a cohort of devices (one row each).

    Subclasses add steps, marked with `@step`, and `at_home`.

    Attributes
    ----------
    ratings : what it holds, in its own rows and columns
    home : arrays that it keeps between steps and that never leave unless a step lets them out
    """

    gate: Gate

    def __init__(self, share: Share, parameters: Any, facts: Facts, gate: Gate) -> None:
        if not isinstance(gate, Gate):
            raise PrivacyRefused(f"{share.name} has ratings, and was given a gate that is not a party's.")
        super().__init__(share.name, parameters, facts, gate)
        self.ratings = share.ratings

    def _latest(self, block: str, shared: Mapping[str, Array]) -> Array:
        """A shared block as it is now: the one given, or the one that arrived last."""
        latest: Array = shared[block] if block in shared else self.home[block]
        return latest

    def at_home(self, **shared: Array) -> Fitted:
        """What the party itself would predict for its own rows and columns, given what is shared.

        Used by the party's own service and, in a simulation, by the experimenter. It is not a step.
        """
        raise NotImplementedError(f"{type(self).__name__} must say what it predicts at home.")

    def before_fine_tuning(self, **shared: Array) -> Fitted | None:
        """The same before the party improved the shared part for itself; None where a method does not do that."""
        return None
