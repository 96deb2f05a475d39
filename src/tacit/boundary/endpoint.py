"""A party's side of an aggregation: what it may use while one request is served, and what it does with it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tacit.boundary.code import SEALED
from tacit.boundary.randomness import Source
from tacit.boundary.spec import StepTerms
from tacit.boundary.wire import Array, Value
from tacit.errors import BadMessage
from tacit.secure.proxy import CoordinatorEnd, DeviceEnd

#: Where a party's home stores what it drew for the present sum, and which sums it has sealed.
STATE, SEALED_BEFORE = "sealing", "sealed before"


@dataclass(frozen=True)
class Peers:
    """Who takes part in a run's sums: their names in the roster's order, and where lists are signed, the signing keys.

    `run` is part of every key, share and signature, so that none serves another run. `to_proxy` and `from_proxy` are a
    device's and the coordinator's way to the proxy, where reports go through one.
    """

    run: str
    names: tuple[str, ...]
    identity: Ed25519PrivateKey | None = None
    identities: Mapping[str, Ed25519PublicKey] | None = None
    to_proxy: DeviceEnd | None = None
    from_proxy: CoordinatorEnd | None = None


@dataclass(frozen=True)
class Endpoint:
    """What a party's side of an aggregation may use while it serves one request.

    Attributes
    ----------
    party, peers : the party, and all that take part
    context : the hash of the request whose answer is sealed: keys, shares and masks serve that one only
    contributors : how many devices or parties are in the answer
    source : by purpose, private randomness: from the seed in a simulation, else from the operating system
    seed : by purpose, 32 private bytes
    load, save : what the aggregation stores at this party between requests; it is private for good
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


class PartySide:
    """A party's side of an aggregation. By default nothing is hidden: the party adds all of the noise itself.

    `exchanges` are the schemas of what it sends besides contributions, `first` those that begin a sum, and `last` those
    that may follow a recorded contribution only.
    """

    exchanges: ClassVar[Mapping[str, Any]] = {}
    first: ClassVar[frozenset[str]] = frozenset()
    last: ClassVar[frozenset[str]] = frozenset()

    def seals(self, terms: StepTerms) -> bool:
        """Whether this step's releases leave sealed only."""
        return False

    def ready(self, terms: StepTerms, endpoint: Endpoint) -> None:
        """Refuse, before any randomness is drawn, what could not be sealed."""

    def noised(self, exact: Any, terms: StepTerms, endpoint: Endpoint) -> Any:
        """A sum's exact contribution with the noise that this party adds: all of it, its share, or none."""
        return terms.code.noised(exact, endpoint.contributors, endpoint.source("noise", 0))

    def seal(self, vector: Any, terms: StepTerms, endpoint: Endpoint) -> Mapping[str, Value]:
        """What leaves."""
        return terms.code.payload(vector)

    def answer(self, exchange: str, payload: Mapping[str, Any], endpoint: Endpoint) -> Mapping[str, Value]:
        """What is sent during a sum besides the contribution: it contains no data."""
        raise BadMessage(
            f'{endpoint.party} was sent the exchange "{exchange}", which this run\'s aggregation does not have.'
        )

    def check_sealed(self, payload: Mapping[str, Value], terms: StepTerms, cells: int, who: str) -> None:
        """Raise `BadMessage` unless a sealed contribution has the agreed form; both ends call it."""
        body, bits = payload.get(SEALED), terms.code.bits
        fine = isinstance(body, np.ndarray) and body.dtype == np.uint8 and body.shape == (cells * bits // 8,)
        if not fine or len(payload) > 1:
            raise BadMessage(f'What {who} sent for step "{terms.spec.step}" is not {cells:,} cells of {bits} bits.')
