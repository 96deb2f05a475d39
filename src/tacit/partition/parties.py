"""The result of a partition: one share of the ratings per party, and the public facts of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import overload

import numpy as np

from tacit.data.catalogue import Catalogue
from tacit.data.ratings import Feedback, Ratings, Scale
from tacit.data.vocabulary import Vocabulary


class Setting(StrEnum):
    """How the parties' ratings lie in the whole matrix."""

    HORIZONTAL = "horizontal"  # same items, different users
    VERTICAL = "vertical"  # same users, different items
    DEVICE = "device"  # one user each; a share is a cohort of devices


@dataclass(frozen=True, eq=False)
class Share:
    """One party's ratings, and where they lie in the whole.

    Attributes
    ----------
    ratings : Ratings; row r is the whole's user users[r], column c its item items[c]
    users, items : (n_h,), (m_h,) int64, increasing
    label : such as the attribute's value
    devices : number of devices if this is a cohort, else 0
    """

    name: str
    ratings: Ratings
    users: np.ndarray
    items: np.ndarray
    label: str
    devices: int = 0

    def __repr__(self) -> str:
        r = self.ratings
        size = f"{r.n_users:,} users × {r.n_items:,} items, {r.n_ratings:,} ratings"
        return f"Share({self.name}, {self.label}: {size})"


@dataclass(frozen=True, eq=False)
class Parties(Sequence[Share]):
    """All parties of one partition, named "party-1" … in this order, and what is public of the whole."""

    shares: tuple[Share, ...]
    setting: Setting
    description: str
    scale: Scale
    feedback: Feedback
    user_ids: Vocabulary
    catalogue: Catalogue

    @overload
    def __getitem__(self, index: int) -> Share: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Share, ...]: ...
    def __getitem__(self, index: int | slice) -> Share | tuple[Share, ...]:
        return self.shares[index]

    def __len__(self) -> int:
        return len(self.shares)

    @property
    def n_users(self) -> int:
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        return len(self.catalogue)

    @property
    def item_ids(self) -> Vocabulary:
        return self.catalogue.ids

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(share.name for share in self.shares)

    @property
    def n_ratings(self) -> int:
        return sum(share.ratings.n_ratings for share in self.shares)

    def __repr__(self) -> str:
        return f"Parties({self.setting}: {self.description})"
