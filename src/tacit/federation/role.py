"""Roles without ratings: a catalogue, decrypters, a proxy."""

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

#: Names of roles; parties are party-1, party-2, ….
ROLE = re.compile("catalogue|proxy|decrypter-[1-9][0-9]{0,8}")


class Role(Peer):
    """A role without ratings, which the coordinator asks by name. Subclasses add public steps, marked with `@step`.

    A step ends in `gate.send`, whose blocks the step's schema names. The aggregation answers its own exchanges, as at
    parties. `own_catalogue` has items and attributes that only this role has, in the order of the run's items, or None.
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
        """The attributes of its own catalogue that it uses; None for all."""
        return None

    @property
    def sums(self) -> Mapping[str, Step]:
        """The parties' steps, to which exchanges of the run's aggregation refer."""
        return self._sums


def role_members(names: Iterable[str], facts: Facts) -> tuple[Member, ...]:
    """Roles as the public facts list them: without users, with all items."""
    items = np.arange(facts.items, dtype=np.int64)
    return tuple(Member(name, 0, len(items), items) for name in names)


def combine_roles(method: Mapping[str, type[Role]], aggregation: Mapping[str, type[Role]]) -> dict[str, type[Role]]:
    """A run's roles: its method's and its aggregation's."""
    if both := sorted(method.keys() & aggregation.keys()):
        raise UsageError(f'Both the method and the aggregation have a role "{both[0]}"; choose another aggregation.')
    roles = {**method, **aggregation}
    if wrong := [name for name in roles if not ROLE.fullmatch(name)]:
        raise UsageError(f'A role cannot be called "{wrong[0]}"; roles are catalogue, proxy, or decrypter-1, ….')
    return roles


def all_steps(party: Mapping[str, Step], roles: Mapping[str, type[Role]]) -> dict[str, Step]:
    """The steps of parties and roles by name, which must be unique."""
    steps = dict(party)
    for role, kind in roles.items():
        for name, step in kind.steps.items():
            if name in party or steps.setdefault(name, step) is not step:
                raise UsageError(f'The role "{role}" has a step "{name}", as others in this run have; rename it.')
    return steps
