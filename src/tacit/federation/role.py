"""Roles beside the parties: a catalogue, decrypters, a proxy. They hold nobody's ratings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tacit.boundary import RoleGate
from tacit.data.catalogue import Catalogue
from tacit.errors import UsageError
from tacit.federation.facts import Facts, Member
from tacit.federation.messages import Step
from tacit.federation.peer import Peer

#: What a role may be called; parties are party-1, party-2, ….
ROLE = re.compile("catalogue|proxy|decrypter-[1-9][0-9]{0,8}")


class Role(Peer):
    """Somebody without ratings whom the coordinator asks by name. Subclasses add public steps, marked with `@step`.

    A step ends in `gate.send`, whose blocks the step's schema names. What an aggregation says to its roles needs no
    step: it is answered by the aggregation, as at parties.

    Attributes
    ----------
    own_catalogue : items and attributes that only this role has, in the order of the run's items; or None
    home : arrays that it keeps between steps
    """

    gate: RoleGate

    def __init__(
        self,
        name: str,
        parameters: Any,
        facts: Facts,
        gate: RoleGate,
        own_catalogue: Catalogue | None = None,
        sums: Mapping[str, Step] | None = None,
    ) -> None:
        super().__init__(name, parameters, facts, gate)
        self.own_catalogue, self._sums = own_catalogue, dict(sums or {})

    @classmethod
    def own_columns(cls, parameters: Any) -> tuple[str, ...] | None:
        """Which attributes of the items that it brings it uses; None for all."""
        return None

    @property
    def sums(self) -> Mapping[str, Step]:
        """The parties' steps, which an exchange of the run's aggregation can be about."""
        return self._sums


def role_members(names: Iterable[str], facts: Facts) -> tuple[Member, ...]:
    """Roles as the public facts list them: they have no users, and see all items."""
    items = np.arange(facts.items, dtype=np.int64)
    return tuple(Member(name, 0, len(items), items) for name in names)


def combine_roles(method: Mapping[str, type[Role]], aggregation: Mapping[str, type[Role]]) -> dict[str, type[Role]]:
    """A run's roles: those of its method, and those of its aggregation."""
    if both := sorted(method.keys() & aggregation.keys()):
        raise UsageError(f'Both the method and the aggregation have a role "{both[0]}"; choose another aggregation.')
    roles = {**method, **aggregation}
    if wrong := [name for name in roles if not ROLE.fullmatch(name)]:
        raise UsageError(f'A role cannot be called "{wrong[0]}"; roles are catalogue, proxy, or decrypter-1, ….')
    return roles


def all_steps(party: Mapping[str, Step], roles: Mapping[str, type[Role]]) -> dict[str, Step]:
    """The steps of parties and roles by name; a request names a step and nothing else, so no two can be alike."""
    steps = dict(party)
    for role, kind in roles.items():
        for name, step in kind.steps.items():
            if name in party or steps.setdefault(name, step) is not step:
                raise UsageError(f'The role "{role}" has a step "{name}", as others in this run have; rename it.')
    return steps
