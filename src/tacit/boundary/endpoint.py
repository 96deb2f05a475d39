"""A party's end of an aggregation: what it has at hand while one request is served, and what it does with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tacit.boundary.code import SEALED
from tacit.boundary.randomness import Source
from tacit.boundary.spec import StepTerms
from tacit.boundary.wire import Array, Value
from tacit.errors import BadMessage

#: Where a party's home keeps what it drew for the sum at hand, and which sums it has sealed.
STATE, SEALED_BEFORE = "sealing", "sealed before"


@dataclass(frozen=True)
class Peers:
    """Who takes part in a run's sums, and the keys by which they know each other.

    Attributes
    ----------
    run : the run's own name: no key, share or signature serves another
    names : the parties, in the roster's order
    identity : the party's own signing key, where lists are signed; else None
    identities : everybody's public signing keys, by name
    """

    run: str
    names: tuple[str, ...]
    identity: Ed25519PrivateKey | None = None
    identities: Mapping[str, Ed25519PublicKey] | None = None


@dataclass(frozen=True)
class Endpoint:
    """What a party's side of an aggregation may use while it serves one request.

    Attributes
    ----------
    party, peers : who this is, and among whom
    context : the hash of the request whose answer is sealed: keys, shares and masks serve that one alone
    contributors : how many devices or parties are in the answer
    source : by purpose, private randomness: from the seed in a simulation, else from nowhere twice
    seed : by purpose, 32 private bytes
    load, save : what the aggregation keeps at this party between requests; it is secret for good
    require_simulation : raises in a deployment; its argument says what only a simulation may do
    recorded : whether a ledger remembers every request that was answered
    """

    party: str
    peers: Peers
    context: str
    contributors: int
    source: Callable[..., Source]
    seed: Callable[..., bytes]
    load: Callable[[str], Array | None]
    save: Callable[[str, Array], object]
    require_simulation: Callable[[str], None]
    recorded: bool = False


class Sealing(Protocol):
    """The party's side of an aggregation: what it says beside contributions, and which of that begins a sum."""

    @property
    def exchanges(self) -> Mapping[str, Any]: ...

    @property
    def first(self) -> frozenset[str]: ...

    def seals(self, terms: StepTerms) -> bool:
        """Whether this step's releases leave under a seal alone."""

    def ready(self, terms: StepTerms, endpoint: Endpoint) -> None:
        """Refuse, before a coin is thrown, what could not be sealed."""

    def noised(self, exact: Any, terms: StepTerms, endpoint: Endpoint) -> Any:
        """A sum's exact contribution with what noise this party adds to it: all of it, its share, or none."""

    def seal(self, vector: Any, terms: StepTerms, endpoint: Endpoint) -> Mapping[str, Value]:
        """What leaves."""

    def answer(self, exchange: str, payload: Mapping[str, Any], endpoint: Endpoint) -> Mapping[str, Value]:
        """What is said in the course of a sum, beside the contribution: no data is in it."""

    def check_sealed(self, payload: Mapping[str, Value], terms: StepTerms, cells: int, who: str) -> None:
        """Raise `BadMessage` unless a sealed contribution is what it should be; both ends ask."""


class OwnNoise:
    """A party's side where nothing is hidden: it adds all of the noise itself, and its contribution may be seen."""

    exchanges: ClassVar[Mapping[str, Any]] = {}
    first: ClassVar[frozenset[str]] = frozenset()

    def seals(self, terms: StepTerms) -> bool:
        return False

    def ready(self, terms: StepTerms, endpoint: Endpoint) -> None:
        return None

    def noised(self, exact: Any, terms: StepTerms, endpoint: Endpoint) -> Any:
        return terms.code.noised(exact, endpoint.contributors, endpoint.source("noise", 0))

    def seal(self, vector: Any, terms: StepTerms, endpoint: Endpoint) -> Mapping[str, Value]:
        return terms.code.payload(vector)

    def answer(self, exchange: str, payload: Mapping[str, Any], endpoint: Endpoint) -> Mapping[str, Value]:
        raise BadMessage(f'{endpoint.party} was asked to "{exchange}", which this run\'s aggregation does not know.')

    def check_sealed(self, payload: Mapping[str, Value], terms: StepTerms, cells: int, who: str) -> None:
        body, bits = payload.get(SEALED), terms.code.bits
        fine = isinstance(body, np.ndarray) and body.dtype == np.uint8 and body.shape == (cells * bits // 8,)
        if not fine or len(payload) > 1:
            raise BadMessage(
                f'What {who} sent for step "{terms.spec.step}" is not {cells:,} cells of {bits} bits, as is agreed.'
            )
