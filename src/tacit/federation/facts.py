"""Public facts of a run: what everyone may know before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit.boundary.wire import Array
from tacit.data.catalogue import Catalogue
from tacit.data.ratings import Feedback, Scale
from tacit.data.vocabulary import Vocabulary
from tacit.errors import PeerFailed
from tacit.guarantee import Unit
from tacit.partition import Parties, Setting


@dataclass(frozen=True, eq=False)
class Member:
    """One entry of the roster: a party's name and its public sizes. `devices` > 0 marks a cohort."""

    name: str
    users: int
    items: int
    columns: Array
    devices: int = 0


@dataclass(frozen=True, eq=False)
class Facts:
    """The public facts of a run.

    Attributes
    ----------
    users : n
    catalogue : all items, and their public attributes
    ratings : |Ω|, which scales step sizes: counted without privacy, declared with it
    roster : the parties in their order
    seed : of public choices, and in a simulation of everything
    unit : what the run protects; None for NON-PRIVATE
    roles : roles without ratings: a catalogue, decrypters, a proxy
    """

    setting: Setting
    scale: Scale
    feedback: Feedback
    users: int
    catalogue: Catalogue
    ratings: int
    roster: tuple[Member, ...]
    seed: int
    unit: Unit | None = None
    roles: tuple[Member, ...] = ()

    @classmethod
    def of(cls, parties: Parties, seed: int) -> Facts:
        """The facts of a simulated run over `parties`, without privacy: its ratings are counted."""
        roster = tuple(
            Member(share.name, len(share.users), len(share.items), np.asarray(share.items), share.devices)
            for share in parties
        )
        known = (parties.setting, parties.scale, parties.feedback, parties.n_users, parties.catalogue)
        return cls(*known, sum(share.ratings.n_ratings for share in parties), roster, seed)

    @property
    def items(self) -> int:
        """m, the number of items."""
        return len(self.catalogue)

    @property
    def item_ids(self) -> Vocabulary:
        """The vocabulary of items."""
        return self.catalogue.ids

    def features_of(self, name: str, columns: Sequence[str] | None = None) -> Array:
        """The features of the items that a party holds, (m_h, d) float32: of all items, unless they are divided."""
        held, features = self.member(name).columns, self.catalogue.features(columns)
        return features if len(held) == len(features) else features[held]

    def components(self, most: int = 40) -> Array:
        """The items along the main directions of their features, (m, k) float32 with k ≤ `most`, read-only.

        Principal components of `catalogue.unit_rows`, largest first; without features k = 0. Every party and the
        coordinator compute the same bits from the same catalogue, whatever their machines (kernels/components.py says
        why). A method whose result must not rest on that sends the coordinator's: those are the ones that count.
        """
        if most not in self._components:
            from tacit.kernels.components import components  # which compiles, and few methods need it

            found = components(*self.catalogue.unit_rows, most).astype(np.float32)
            found.setflags(write=False)
            self._components[most] = found
        return self._components[most]

    @cached_property
    def _components(self) -> dict[int, Array]:
        return {}

    def dimensions_of(self, name: str) -> dict[str, int]:
        """The values of the names in schemas' shapes, for one party."""
        member = self.member(name)
        sizes = {"features": self.catalogue.width, "roster": len(self.roster), "item_words": -(-member.items // 32)}
        return {"users": member.users, "items": member.items, **sizes}

    @cached_property
    def _places(self) -> dict[str, int]:
        return {member.name: place for place, member in enumerate((*self.roster, *self.roles))}

    def member(self, name: str) -> Member:
        """The roster's entry for a party, or that of another role."""
        if name not in self._places:
            raise PeerFailed(f'"{name}" is not on the roster of this run.')
        return (*self.roster, *self.roles)[self._places[name]]

    def weight(self, name: str) -> float:
        """A party's share of the mean: n_k/n where users are divided, m_k/m where items are (P0, step s2)."""
        member = self.member(name)
        if member in self.roles:
            return 0.0
        return member.items / self.items if self.setting is Setting.VERTICAL else member.users / self.users

    def first_user(self, name: str) -> int:
        """Where a party's users start when all parties' users are stacked in roster order."""
        return sum(member.users for member in self.roster[: self._places[name]])
