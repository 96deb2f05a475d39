"""The server's side of one secure sum; `secagg_protocol` describes the protocol and its guarantee."""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tacit.errors import BadMessage, UsageError
from tacit.secure.masks import Array, add_mask, agree, words
from tacit.secure.secagg_protocol import HASH, Answer, Given, Keys, SecureSum, VoidRound
from tacit.secure.shamir import fits, joined

#: How many choices of shares are tried for one secret.
TRIES = 400


@dataclass(frozen=True)
class Unmasked:
    """The survivors' sum modulo 2^bits, and the extras that were revealed, by name and index."""

    total: Array
    extras: dict[str, dict[int, bytes]]


class SecAggServer:
    """Unmasks one sum: keys, mail, survivors, unmasked, in this order.

    A party that sends a malformed message is left out from then on; `rejected` has the reason, by name.
    """

    def __init__(self, about: SecureSum) -> None:
        self._sum = about
        self._keys: dict[str, Keys] = {}
        self._commitments: dict[str, bytes] = {}
        self._sharers: set[str] = set()
        self._survivors: tuple[str, ...] | None = None
        self.rejected: dict[str, str] = {}

    def keys(self, advertised: Mapping[str, bytes]) -> dict[str, dict[str, bytes]]:
        """For each party that advertised, the advertisements of those of its neighbours that did."""
        probe = X25519PrivateKey.generate()
        for name in self._known(advertised):
            try:
                keys = self._sum.read_keys(name, advertised[name])
                for key in (keys.mail, keys.mask):
                    agree(probe, key, b"")  # a key of low order would fail at every neighbour
                self._keys[name] = keys
            except BadMessage as why:
                self.rejected[name] = str(why)
        self._enough(self._keys, "advertised")
        return {
            name: {other: self._keys[other].message for other in self._sum.near[name] if other in self._keys}
            for name in self._keys
        }

    def mail(self, shared: Mapping[str, Mapping[str, bytes]]) -> dict[str, dict[str, bytes]]:
        """For each party that shared, its mail; a party that left out a neighbour that advertised is rejected."""
        for name in self._known(shared):
            try:
                self._check_mail(name, shared[name])
            except BadMessage as why:
                self.rejected[name] = str(why)
            else:
                self._sharers.add(name)
        self._enough(self._sharers, "shared")
        return {
            name: {other: shared[other][name] for other in self._sum.near[name] if other in self._sharers}
            for name in self._sum.in_order(self._sharers)
        }

    def survivors(self, masked_names: Iterable[str]) -> tuple[str, ...]:
        """Those whose masked vector arrived, in the roster's order; the first list stands."""
        if self._survivors is None:
            chosen = tuple(name for name in self._known(masked_names) if name in self._sharers)
            self._enough(chosen, "survive")
            self._survivors = chosen
        return self._survivors

    def unmasked(self, masked_sum: Array, answers: Mapping[str, bytes], bits: int) -> Unmasked:
        """The survivors' sum, from the sum of their masked vectors and their answers."""
        if self._survivors is None or masked_sum.dtype != words(bits):
            raise UsageError(f"Call `survivors` first, and give their sum in words of {words(bits)}.")
        survivors, total = self._survivors, masked_sum.copy()
        read = self._read(answers, survivors)
        for name in survivors:
            seed = self._seed_of(name, read)
            add_mask(total, self._sum.bound("own mask", name, seed), bits, -1)
        chosen = set(survivors)
        for name in self._sum.in_order(self._sharers - chosen):
            stayed = [other for other in self._sum.near[name] if other in chosen]
            if stayed:
                key = self._key_of(name, read)
                for other in stayed:  # what `other` added is the opposite of what `name` would have added
                    seed, sign = self._sum.pair_mask(key, name, other, self._keys[other])
                    add_mask(total, seed, bits, sign)
        return Unmasked(total, {name: self._extras_of(name, read) for name in survivors} if self._sum.extras else {})

    def _known(self, given: Iterable[str]) -> tuple[str, ...]:
        for name in set(given) - set(self._sum.names):
            self.rejected[name] = f'"{name}" is not on the roster of this sum.'
        return self._sum.in_order(given)

    def _enough(self, parties: Iterable[str], did: str) -> None:
        count, fewest = len(tuple(parties)), self._sum.shape.fewest
        if count < fewest:
            raise VoidRound(f"Only {count} of {self._sum.shape.parties} parties {did}, and {fewest} must; try again.")

    def _check_mail(self, name: str, sent: Mapping[str, bytes]) -> None:
        if name not in self._keys:
            raise BadMessage(f'"{name}" sent mail but advertised no genuine keys; leave it out.')
        for other in self._sum.near[name]:
            if other in self._keys and len(sent.get(other, b"")) != self._sum.mail_size:
                raise BadMessage(f'"{name}" sent no mail of the right size to "{other}"; leave it out.')
        if self._sum.extras:
            body = self._sum.genuine(name, "commitments", sent.get(name, b""))
            if len(body) != HASH * self._sum.extras:
                raise BadMessage(f'The commitments of "{name}" have the wrong size; leave it out.')
            self._commitments[name] = body

    def _read(self, answers: Mapping[str, bytes], survivors: Sequence[str]) -> dict[str, Answer]:
        read, chosen, listed = {}, set(survivors), self._sum.listed(survivors)
        for name in self._known(answers):
            if name not in chosen:
                self.rejected[name] = f'"{name}" answered, but is not among the survivors.'
                continue
            try:
                read[name] = self._sum.read_answer(name, answers[name], chosen, listed)
            except BadMessage as why:
                self.rejected[name] = str(why)
                continue
            for other, (given, _) in read[name].given.items():
                if (given == Given.NOT_MASKED) == (other in self._sharers):
                    raise VoidRound(
                        f'"{name}" got other mail than was sent: it and "{other}" do not agree on a mask; try again.'
                    )
        return read

    def _seed_of(self, name: str, read: Mapping[str, Answer]) -> bytes:
        def good(seed: bytes) -> bool:
            return self._sum.bound("seed", name, seed) == self._keys[name].commitment

        if name in read:
            if good(read[name].seed):
                return read[name].seed
            self.rejected[name] = f'The seed that "{name}" gave is not the one that it had committed to.'
        seed = self._joined(name, "seed", self._shares(name, read, Given.SEED, 0), good)
        if seed is None:
            raise VoidRound(f'The mask of "{name}", which survived, cannot be recovered from the answers; try again.')
        return seed

    def _key_of(self, name: str, read: Mapping[str, Answer]) -> X25519PrivateKey:
        def good(key: bytes) -> bool:
            return X25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw() == self._keys[name].mask

        key = self._joined(name, "mask key", self._shares(name, read, Given.KEY, 0), good)
        if key is None:
            raise VoidRound(
                f'The masks of "{name}", which dropped out, cannot be recovered from the answers; try again.'
            )
        return X25519PrivateKey.from_private_bytes(key)

    def _extras_of(self, name: str, read: Mapping[str, Answer]) -> dict[int, bytes]:
        """The revealed extras of a survivor; one that cannot be recovered is left out."""
        found = {}
        for index in sorted({index for answer in read.values() for index in answer.reveal}):
            commitment = self._commitments[name][HASH * index : HASH * (index + 1)]

            def good(extra: bytes, index: int = index, commitment: bytes = commitment) -> bool:
                return self._sum.bound("extra", name, index, extra) == commitment

            extra: bytes | None = None
            if name in read and index in read[name].reveal:
                extra = read[name].extras[read[name].reveal.index(index)]
            if extra is None or not good(extra):
                shares = {
                    holder: share
                    for holder, answer in read.items()
                    if index in answer.reveal
                    for share in self._shares(
                        name, {holder: answer}, Given.SEED, 1 + answer.reveal.index(index)
                    ).values()
                }
                extra = self._joined(name, "extra", shares, good)
            if extra is not None:
                found[index] = extra
        return found

    def _shares(self, owner: str, read: Mapping[str, Answer], kind: Given, at: int) -> dict[str, bytes]:
        """The shares of one of the owner's secrets, by holder; holders that are known to have lied come last."""
        holders = [other for other in self._sum.near[owner] if other in read and read[other].given[owner][0] == kind]
        return {other: read[other].given[owner][1][at] for other in sorted(holders, key=lambda h: h in self.rejected)}

    def _joined(
        self, owner: str, what: str, shares: Mapping[str, bytes], good: Callable[[bytes], bool]
    ) -> bytes | None:
        """The secret that passes its check, from some choice of shares; holders of wrong shares are noted."""
        threshold = self._sum.shape.threshold
        for holders in _choices(tuple(shares), threshold):
            chosen = {self._sum.point[holder]: shares[holder] for holder in holders}
            try:
                secret = joined(chosen, threshold)
            except BadMessage:
                continue
            if good(secret):
                for holder in shares.keys() - set(holders):
                    if not fits(chosen, threshold, self._sum.point[holder], shares[holder]):
                        self.rejected.setdefault(
                            holder, f'The share of the {what} of "{owner}" that "{holder}" gave is wrong.'
                        )
                return secret
        return None


def _choices(holders: tuple[str, ...], threshold: int) -> Iterator[tuple[str, ...]]:
    """Ways to take `threshold` of the holders: the first ones, then all others, or a sample of them."""
    if len(holders) < threshold:
        return
    yield holders[:threshold]
    if math.comb(len(holders), threshold) <= TRIES:
        yield from combinations(holders, threshold)
        return
    for attempt in range(TRIES):
        mixed = sorted(holders, key=lambda holder: hashlib.sha256(f"{attempt} {holder}".encode()).digest())
        yield tuple(mixed[:threshold])
