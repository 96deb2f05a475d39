"""Secure aggregation: the coordinator learns the survivors' sum and no single vector, though parties may drop out.

After Bonawitz et al. 2017 ("Practical secure aggregation for privacy-preserving machine learning", CCS) on the graph of
Bell et al. 2020 (CCS). One sum takes five exchanges (`SecAggParty` and `SecAggServer` are the two sides):

    advertise   each party sends two fresh public keys; the server sends each party its neighbours' keys
    share       each sends its neighbours encrypted shares of its two secrets: the seed of its own mask, and the
                private key from which the masks that it has in common with others follow
    mask        each sends vector + own mask ± common masks, mod 2^bits: common masks cancel in the sum
    confirm     signed shapes only: each signs the list of those whose masked vector arrived
    unmask      each sends its own seed and, of each neighbour, one share: of the seed if that one survived, of the
                private key if it dropped out

Nobody masks with a party that drops out before it shared; one that drops out later has its common masks recovered from
shares; one that drops out after its masked vector arrived is part of the sum. "Extras" are further secrets that are
shared along and revealed by index, such as seeds of excess noise.

Formal guarantee
----------------
*What.* With at most `shape.colluding` colluders, the joint view of them and the coordinator of one sum can be simulated
from their own inputs, the revealed extras, and the sum modulo 2^bits of the vectors of the honest ones among at least
`shape.fewest` survivors. So they learn that sum and nothing else.

*Against whom.* A semi-honest coordinator that sees everything and follows the protocol, with c semi-honest parties.
With a signed shape and identities also one that lies: about keys, mail, who dropped out, to each party differently.

*Why*, in outline (Bonawitz et al., Theorem 6.3 for semi-honest coordinators, and their section on active adversaries;
Bell et al. add the graph). Replace, one after the other, by hybrids: keys of honest pairs by uniform ones
(Diffie–Hellman, HKDF); encrypted shares among honest parties by shares of 0 (AES-256-GCM); shares, of which colluders
hold fewer than t, by those of 0 for the one secret of each honest party that is not revealed (Shamir); its masks by
uniform words (AES-CTR). An honest party that dropped out keeps its own mask, so that its vector, should it arrive late,
is uniform. Honest survivors keep the masks that they have in common with each other; these form a connected graph
(`graph`), so the vectors are uniform but for their sum (Bonawitz et al., Lemma 6.1, whose complete graph need only be
connected).

*Where the coordinator lies*, honest parties answer for one list L only, which t parties signed, together with the
keys that all on it advertised, so that no signature serves another sum: there is one such list, since 2t > n + c. Say
that it could unmask the sum of A, some but not all of the honest parties on L. If one of A answers, it has masked with
everyone on L, since it refuses otherwise; one of those is honest and not in A, and their mask stays unknown, since
neither's key is given. So none of A answers, and their seeds come from at least t − c honest parties on L outside A:
|A| ≤ H − (t − c), with H honest ones on L. Each of A had genuine mail of t − 1 others, at least t − 1 − c of them
honest, all of those in A or not on L: t − 1 − c ≤ |A| − 1 + (n − c) − H. Together 2t ≤ n + c, which is not so.

*Not promised.* Secure aggregation does not detect malicious inputs: a party that lies can spoil the sum, or make it
void, since nothing proves that vectors were in range. Anyone can deny service. Who takes part, who drops out and when
are visible. Without identities, an attacker who controls the network between a party and the coordinator can
impersonate either; use an authenticated transport.

Message formats
---------------
    advertisement   X25519 key for mail, 32 · X25519 key for masks, 32 · commitment to the own mask's seed, 32 · stamp
    mail            nonce, 12 · AES-256-GCM of one share (33) each of own seed, mask key and every extra · tag, 16
    commitments     one of 32 for every extra · stamp                 (what `share` returns under the own name)
    answer          number and indices of revealed extras · own seed · own extras · for each neighbour a byte and the
                    shares that it announces · stamp

A stamp is an Ed25519 signature where parties have identities. Elsewhere it is a SHA-256, which detects messages that
were damaged or belong to another sum, party or survivor list, but not forged ones. Everything is bound to one sum by a
hash of its context, roster and shape.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from types import MappingProxyType

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tacit.errors import BadMessage, PeerFailed, UsageError
from tacit.secure.graph import Shape, neighbours
from tacit.secure.masks import agree
from tacit.secure.shamir import SECRET, SHARE

HASH, SIGNATURE, NONCE, TAG = 32, 64, 12, 16


class VoidRound(PeerFailed):
    """Too few parties answered for a sum to be unmasked: nobody learns anything, and it may be repeated."""


class Given(IntEnum):
    """Which of a neighbour's secrets an answer has a share of: never both."""

    NOT_MASKED = 0
    SEED = 1
    KEY = 2
    NOTHING = 3  # masked with, but its mail could not be opened


@dataclass(frozen=True)
class Keys:
    """A party's advertisement."""

    mail: bytes
    mask: bytes
    commitment: bytes
    message: bytes

    @classmethod
    def of(cls, message: bytes) -> Keys:
        """From a message that was found genuine before."""
        return cls(message[:32], message[32:64], message[64:96], bytes(message))


@dataclass(frozen=True)
class Answer:
    """A party's answer: its own secrets, and its shares of others', by name: of seed or key first, then of extras."""

    reveal: tuple[int, ...]
    seed: bytes
    extras: tuple[bytes, ...]
    given: Mapping[str, tuple[Given, tuple[bytes, ...]]]


@dataclass(frozen=True)
class SecureSum:
    """One sum, as everyone knows it.

    Attributes
    ----------
    names : all parties, in an order that all agree on
    shape : from `choose`
    context : identifies this sum, different for every sum and attempt (run, round, step, attempt)
    extras : how many further secrets of 32 bytes are shared, to be revealed by index
    identities : everyone's Ed25519 public keys; a signed shape needs them
    """

    names: tuple[str, ...]
    shape: Shape
    context: bytes
    extras: int = 0
    identities: Mapping[str, Ed25519PublicKey] | None = None
    binding: bytes = field(init=False, repr=False)
    near: Mapping[str, tuple[str, ...]] = field(init=False, repr=False)
    point: Mapping[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.extras < 256:
            raise UsageError(f"{self.extras} extra secrets are not possible; share 0 to 255.")
        if self.shape.signed and self.identities is None:
            raise UsageError("A signed shape needs the parties' identities; give their Ed25519 public keys.")
        missing = [name for name in self.names if self.identities is not None and name not in self.identities]
        if missing:
            raise UsageError(f'There is no identity of "{missing[0]}"; give one Ed25519 public key for every party.')
        binding, near, point = _layout(self.names, self.shape, self.context, self.extras)
        object.__setattr__(self, "binding", binding)
        object.__setattr__(self, "near", near)
        object.__setattr__(self, "point", point)

    def bound(self, what: str, *parts: bytes | str | int) -> bytes:
        """A hash of these parts for one purpose, in this sum alone."""
        return digest(self.binding, what, *parts)

    def in_order(self, some: Iterable[str]) -> tuple[str, ...]:
        """These names in the roster's order, each once."""
        chosen = set(some)
        return tuple(name for name in self.names if name in chosen)

    def pair(self, a: str, b: str) -> tuple[str, str]:
        return (a, b) if self.point[a] < self.point[b] else (b, a)

    def pair_mask(self, private: X25519PrivateKey, name: str, other: str, theirs: Keys) -> tuple[bytes, int]:
        """The seed of the mask that two parties share, and the sign with which `name`, whose key this is, adds it."""
        pair = self.pair(name, other)
        return agree(private, theirs.mask, self.bound("pair mask", *pair)), 1 if pair[0] == name else -1

    def stamped(self, name: str, what: str, body: bytes, identity: Ed25519PrivateKey | None, *about: bytes) -> bytes:
        """The body, followed by a stamp over it and what it is about."""
        stamp = self.bound(what, name, body, *about)
        return body + (stamp if identity is None else identity.sign(stamp))

    def genuine(self, name: str, what: str, message: bytes, *about: bytes) -> bytes:
        """The body of a stamped message, or a `BadMessage` that names its sender."""
        size = HASH if self.identities is None else SIGNATURE
        body, stamp = message[:-size], message[-size:]
        expected = self.bound(what, name, body, *about)
        if self.identities is None:
            good = hmac.compare_digest(stamp, expected)
        else:
            good = is_signed(self.identities[name], stamp, expected)
        if not good:
            raise BadMessage(
                f'The {what} of "{name}" is not genuine: altered, cut off, or of another sum; leave it out.'
            )
        return body

    def read_keys(self, name: str, message: bytes) -> Keys:
        body = self.genuine(name, "advertisement", message)
        if len(body) != 3 * HASH:
            raise BadMessage(f'The advertisement of "{name}" has the wrong size; leave it out.')
        return Keys.of(message)

    @property
    def mail_size(self) -> int:
        return NONCE + SHARE * (2 + self.extras) + TAG

    def seal(self, key: bytes, sender: str, receiver: str, keys: Sequence[Keys], shares: Sequence[bytes]) -> bytes:
        """Shares for one receiver; `keys` are the sender's and the receiver's advertisements."""
        nonce = os.urandom(NONCE)
        return nonce + AESGCM(key).encrypt(nonce, b"".join(shares), self._about(sender, receiver, keys))

    def unseal(self, key: bytes, sender: str, receiver: str, keys: Sequence[Keys], mail: bytes) -> tuple[bytes, ...]:
        if len(mail) != self.mail_size:
            raise BadMessage(f'The mail of "{sender}" to "{receiver}" has {len(mail)} bytes, not {self.mail_size}.')
        try:
            opened = AESGCM(key).decrypt(mail[:NONCE], mail[NONCE:], self._about(sender, receiver, keys))
        except InvalidTag:
            raise BadMessage(f'The mail of "{sender}" to "{receiver}" was altered, or is of another sum.') from None
        return tuple(opened[i : i + SHARE] for i in range(0, len(opened), SHARE))

    def _about(self, sender: str, receiver: str, keys: Sequence[Keys]) -> bytes:
        return self.bound("mail", sender, receiver, *(k.message for k in keys))

    def listed(self, survivors: Sequence[str]) -> bytes:
        """What a survivor list is signed as."""
        return self.bound("survivors", *self.in_order(survivors))

    def to_sign(self, survivors: Sequence[str], keys: Mapping[str, Keys]) -> bytes:
        """What survivors sign: the list, and the keys that each of them advertised, as the signer saw them.

        Keys are fresh in every sum, so a signature is void in another one, even of the same context, and for a party
        that was sent other keys.
        """
        return self.bound(
            "signed list", self.listed(survivors), *(keys[name].message for name in self.in_order(survivors))
        )

    def write_answer(
        self, name: str, answer: Answer, survivors: Sequence[str], identity: Ed25519PrivateKey | None
    ) -> bytes:
        parts = [bytes([len(answer.reveal), *answer.reveal]), answer.seed, *answer.extras]
        for other in self.near[name]:
            given, shares = answer.given[other]
            parts += [bytes([given]), *shares]
        return self.stamped(name, "answer", b"".join(parts), identity, self.listed(survivors))

    def read_answer(self, name: str, message: bytes, survivors: Set[str], listed: bytes) -> Answer:
        """An answer for exactly this survivor list, or a `BadMessage` that names its sender."""
        body, at = self.genuine(name, "answer", message, listed), 0

        def take(size: int) -> bytes:
            nonlocal at
            at += size
            if at > len(body):
                raise BadMessage(f'The answer of "{name}" ends too early; leave it out.')
            return body[at - size : at]

        reveal = tuple(take(take(1)[0]))
        if any(index >= self.extras for index in reveal) or len(set(reveal)) < len(reveal):
            raise BadMessage(f'The answer of "{name}" reveals extras that do not exist; leave it out.')
        seed, extras, given = take(SECRET), tuple(take(SECRET) for _ in reveal), {}
        for other in self.near[name]:
            kind = take(1)[0]
            if kind not in (Given.NOT_MASKED, Given.NOTHING, Given.SEED if other in survivors else Given.KEY):
                raise BadMessage(
                    f'The answer of "{name}" gives a share of "{other}" that was not requested; leave it out.'
                )
            count = {Given.SEED: 1 + len(reveal), Given.KEY: 1}.get(Given(kind), 0)
            given[other] = (Given(kind), tuple(take(SHARE) for _ in range(count)))
        if at != len(body):
            raise BadMessage(f'The answer of "{name}" is too long; leave it out.')
        return Answer(reveal, seed, extras, given)


@lru_cache(maxsize=16)
def _layout(
    names: tuple[str, ...], shape: Shape, context: bytes, extras: int
) -> tuple[bytes, Mapping[str, tuple[str, ...]], Mapping[str, int]]:
    """The sum's binding hash, each party's neighbours, and the point of its shares: computed once for all parties."""
    numbers = (shape.parties, shape.degree, shape.threshold, shape.fewest, shape.colluding, int(shape.signed), extras)
    binding = digest("tacit secure sum 1", context, *names, *numbers)
    point = {name: i + 1 for i, name in enumerate(names)}
    return binding, MappingProxyType(neighbours(names, shape, binding)), MappingProxyType(point)


def digest(*parts: bytes | str | int) -> bytes:
    """SHA-256 of a list of values, injective in the list."""
    total = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        kind = b"b" if isinstance(part, bytes) else b"s" if isinstance(part, str) else b"i"
        total.update(kind + len(data).to_bytes(8, "little") + data)
    return total.digest()


def is_signed(identity: Ed25519PublicKey, signature: bytes, message: bytes) -> bool:
    try:
        identity.verify(signature, message)
    except InvalidSignature:
        return False
    return True


#: Bytes of the name, type and size of one part of a message, and of the rest of a message.
PART, MESSAGE = 56, 64


@dataclass(frozen=True)
class Traffic:
    """Bytes that one party sends and receives over the exchanges of one sum, if nobody drops out."""

    up: int
    down: int


def overhead(shape: Shape, extras: int, revealed: int) -> Traffic:
    """Bytes of keys, encrypted shares, survivor list and answers, with `extras` seeds shared and some revealed."""
    k, stamp = shape.degree, SIGNATURE if shape.signed else HASH
    keys = 3 * HASH + stamp
    mail = NONCE + SHARE * (2 + extras) + TAG
    answer = 1 + revealed + SECRET * (1 + revealed) + k * (1 + SHARE * (1 + revealed)) + stamp
    marks = -(-shape.parties // 8)
    signed = (PART + SIGNATURE) * shape.parties if shape.signed else 0
    up = keys + k * (mail + PART) + extras * HASH + stamp + marks + answer + (SIGNATURE if signed else 0)
    down = k * (keys + PART) + k * (mail + PART) + marks + signed + (marks if signed else 0)
    return Traffic(up + 5 * MESSAGE, down + 5 * MESSAGE)
