"""A party's part in secure sums: its keys, its masks and its shares of the noise, one sum at a time.

Every exchange is about one *context*, the hash of the request whose answer will be masked; so keys, shares and masks
serve that request alone, and a new attempt has new ones. What was drawn lives in the party's home and is saved with
each answer, so that a party that was killed goes on where it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tacit.boundary.noise import Skellam
from tacit.boundary.sealed import SEALED, Grid
from tacit.boundary.source import Keyed, Source
from tacit.boundary.wire import Array, Value
from tacit.errors import PrivacyRefused
from tacit.secure.graph import Shape
from tacit.secure.masks import pack
from tacit.secure.quantize import wrapped
from tacit.secure.secagg import Sealer
from tacit.secure.shares import Shares

#: Where a party's home keeps what it drew for the sum at hand.
STATE = "sealing"


@dataclass(frozen=True)
class Circle:
    """Who takes part in secure sums, and under which terms.

    Attributes
    ----------
    run : the run's own name: no key, share or signature serves another
    names : the roster, in its order
    shape : who is whose neighbour, and the thresholds
    shares : how noise is divided
    identity : the party's own signing key, where survivors' lists are signed; else None
    identities : everybody's public signing keys, by name
    """

    run: str
    names: tuple[str, ...]
    shape: Shape
    shares: Shares
    identity: Ed25519PrivateKey | None = None
    identities: Mapping[str, Ed25519PublicKey] | None = None

    def about(self, context: str) -> bytes:
        """What everything in one sum is bound to: the run, and the request whose answer is masked."""
        return hashlib.sha256(f"{self.run}|{context}".encode()).digest()


class Seals:
    """One party's side of the secure sums of a run.

    Parameters
    ----------
    party, circle : who this is, and among whom
    load, save : the state of the sum at hand, from and to the party's home; it is secret for good
    seed : by purpose, 32 bytes for a piece of noise that may be revealed: derived in a simulation, else drawn
    """

    def __init__(
        self,
        party: str,
        circle: Circle,
        load: Callable[[], Array | None],
        save: Callable[[Array], object],
        seed: Callable[..., bytes],
    ) -> None:
        self.party, self.circle = party, circle
        self._load, self._save, self._seed = load, save, seed

    # -- exchanges: what the coordinator asks and the party answers, random numbers alone ------------------------

    def advertise(self, context: str) -> dict[str, Value]:
        """Fresh keys for one sum; a second time for the same one would undo what was agreed on."""
        if self.ready(context):
            raise PrivacyRefused(f"{self.party} has begun this secure sum already, and begins none twice.")
        sealer = Sealer(
            self.party,
            self.circle.names,
            self.circle.shape,
            self.circle.about(context),
            self.circle.shares.extras,
            self.circle.identity,
            self.circle.identities,
        )
        return self._done(context, sealer, {"keys": _bytes(sealer.advertise())})

    def share(self, context: str, **keys: Array) -> dict[str, Value]:
        """Sealed shares of what will unmask this party's vector, and of what made its excess noise."""
        sealer = self._sealer(context)
        extras = [self._seed("excess", level, context) for level in range(self.circle.shares.extras)]
        letters = sealer.share({name: key.tobytes() for name, key in keys.items()}, extras)
        return self._done(context, sealer, {name: _bytes(letter) for name, letter in letters.items()})

    def collect(self, context: str, **mail: Array) -> dict[str, Value]:
        """Takes the neighbours' shares in; answers whose were damaged, as marks along the roster."""
        sealer = self._sealer(context)
        rejected = sealer.collect({name: letter.tobytes() for name, letter in mail.items()})
        return self._done(context, sealer, {"rejected": marked(rejected, self.circle.names)})

    def confirm(self, context: str, survivors: Array) -> dict[str, Value]:
        """A signature under the one list of survivors that this party accepts."""
        sealer = self._sealer(context)
        return self._done(context, sealer, {"signature": _bytes(sealer.confirm(self._named(survivors)))})

    def unmask(self, context: str, survivors: Array, **signatures: Array) -> dict[str, Value]:
        """What unmasks the survivors' sum, and the seeds of the noise that so many survivors do not need.

        How many pieces of excess are revealed follows from the list, here; the coordinator has no say in it.
        """
        sealer, listed = self._sealer(context), self._named(survivors)
        spare = self.circle.shares.spare(len(listed))
        signed = {name: signature.tobytes() for name, signature in signatures.items()} or None
        return self._done(context, sealer, {"answer": _bytes(sealer.unmask(listed, range(spare), signed))})

    # -- sealing ------------------------------------------------------------------------------------------------

    def ready(self, context: str) -> bool:
        """Whether keys were exchanged for this very request."""
        state = self._load()
        return state is not None and state[: len(context) // 2].tobytes() == bytes.fromhex(context)

    def check(self, context: str) -> None:
        """Refuse what this party cannot mask: keys and shares were not exchanged for this very request, or not all."""
        if not self.ready(context) or not self._sealer(context).can_mask:
            raise PrivacyRefused(
                f"{self.party} lets this out under masks alone, and none were agreed on for this request; nothing was "
                "released: exchange keys and shares first."
            )

    def noised(self, vector: Array, grid: Grid, source: Source, context: str) -> Array:
        """Whole numbers plus this party's share of the noise: a piece that stays, and pieces that may be revealed."""
        shares, seeds = self.circle.shares, self._sealer(context).extras
        out: Array = vector + Skellam(shares.base(grid.variance)).sample(vector.size, source)
        for variance, seed in zip(shares.excess(grid.variance), seeds, strict=True):
            out += Skellam(variance).sample(vector.size, Keyed(seed))
        return out

    def masked(self, vector: Array, bits: int, context: str) -> dict[str, Value]:
        """A vector mod 2^bits under this sum's masks, as it travels."""
        sealer = self._sealer(context)
        return self._done(context, sealer, {SEALED: pack(sealer.mask(vector, bits), bits)})

    # -- inside -------------------------------------------------------------------------------------------------

    def _sealer(self, context: str) -> Sealer:
        state, circle = self._load(), self.circle
        if state is None or not self.ready(context):
            raise PrivacyRefused(
                f"{self.party} was asked to go on with a secure sum that it did not begin, or that another one has "
                "replaced; nothing was released: start the exchange of keys anew."
            )
        kept, about = state[len(context) // 2 :].tobytes(), circle.about(context)
        return Sealer.restore(
            kept, circle.names, circle.shape, about, circle.shares.extras, circle.identity, circle.identities
        )

    def _done(self, context: str, sealer: Sealer, answer: dict[str, Value]) -> dict[str, Value]:
        """Keeps where the sum at hand stands: its context, and all that was drawn for it."""
        self._save(_bytes(bytes.fromhex(context) + sealer.state()))
        return answer

    def _named(self, marks: Array) -> list[str]:
        here = unmarked(marks, len(self.circle.names))
        return [name for name, marked in zip(self.circle.names, here, strict=True) if marked]


def marked(names: Collection[str], roster: Sequence[str]) -> Array:
    """Which of the roster are among `names`: a bit each, packed; uint8."""
    return np.packbits(np.array([name in names for name in roster], dtype=bool))


def unmarked(marks: Array, number: int) -> Array:
    """The bits of `marked`, (number,) bool."""
    return np.unpackbits(marks, count=number).astype(bool)


def added_noise(variance: float, size: int, source: Source, bits: int) -> Array:
    """The noise of all survivors' shares together, as a simulation draws it: one Skellam variable a cell, mod 2^bits.

    Skellam variables add up exactly, so it has the very distribution that the single shares would have.
    """
    return wrapped(Skellam(variance).sample(size, source), bits)


def excess_of(revealed: Mapping[str, Mapping[int, bytes]], grid: Grid, shares: Shares, size: int) -> Array:
    """The pieces of noise whose seeds were revealed, added up, (size,) int64: what the coordinator takes out."""
    variances, total = shares.excess(grid.variance), np.zeros(size, dtype=np.int64)
    for seeds in revealed.values():
        for level, seed in seeds.items():
            total += Skellam(variances[level]).sample(size, Keyed(seed))
    return total


def _bytes(raw: bytes) -> Array:
    return np.frombuffer(raw, dtype=np.uint8)
