"""A party's side of one secure sum; `secagg_protocol` describes the protocol and its guarantee."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tacit.errors import BadMessage, PrivacyRefused, TamperingFound, UsageError
from tacit.secure.masks import Array, add_mask, agree, words
from tacit.secure.secagg_protocol import Answer, Given, Keys, SecureSum, VoidRound, is_signed
from tacit.secure.shamir import SECRET, split

STEPS = ("share", "collect", "mask", "unmask")


class SecAggParty:
    """Masks one vector of one party: advertise, share, collect, mask, (confirm,) unmask, in this order, once each.

    Parameters
    ----------
    name, about : this party, and the sum
    identity : this party's Ed25519 key, where the sum has everyone's public ones

    Guarantee
    ---------
    Whatever the requests and their order, a party masks one vector and answers for one survivor list; so it never
    gives shares of both secrets of a neighbour, which together would reveal the neighbour's vector. It answers only
    where at least `shape.fewest` survive, itself among them, and it masked with every neighbour that does; with a
    signed shape only where `shape.threshold` survivors signed that same list. A repeated request gets the same
    bytes. This holds across crashes if `state()` is saved before what a call returned leaves the party, and no older
    state is ever used.
    """

    def __init__(self, name: str, about: SecureSum, identity: Ed25519PrivateKey | None = None) -> None:
        if name not in about.point:
            raise UsageError(f'"{name}" is not on the roster of this sum.')
        if (identity is None) != (about.identities is None):
            raise UsageError(f'"{name}" needs both its own identity and everyone\'s public ones, or neither.')
        self.name, self._sum, self._identity = name, about, identity
        self._mail_key, self._mask_key = X25519PrivateKey.generate(), X25519PrivateKey.generate()
        self._seed = os.urandom(SECRET)
        self._extras: tuple[bytes, ...] = ()
        self._keys: dict[str, Keys] = {}
        self._shares: dict[str, tuple[bytes, ...]] = {}  # by owner: of its seed, of its mask key, of its extras
        self._partners: tuple[str, ...] = ()
        self._done = 0
        self._survivors: tuple[str, ...] | None = None
        self._reveal: tuple[int, ...] | None = None
        self._pairs: dict[str, bytes] = {}
        self.rejected: dict[str, str] = {}

    @property
    def extras(self) -> tuple[bytes, ...]:
        """This party's own extra secrets, once shared."""
        return self._extras

    @property
    def can_mask(self) -> bool:
        """Whether all that comes before masking is done, and masking is not."""
        return STEPS[self._done : self._done + 1] == ("mask",)

    def advertise(self) -> bytes:
        """Two fresh public keys, one for mail and one for masks, and a commitment to the seed of the own mask."""
        commitment = self._sum.bound("seed", self.name, self._seed)
        mail, mask = (key.public_key().public_bytes_raw() for key in (self._mail_key, self._mask_key))
        return self._sum.stamped(self.name, "advertisement", mail + mask + commitment, self._identity)

    def share(self, keys: Mapping[str, bytes], extras: Sequence[bytes] = ()) -> dict[str, bytes]:
        """Encrypted shares of own seed, mask key and extras for every neighbour that advertised.

        With extras, the entry under the own name is for the server: commitments to them.
        """
        self._next("share")
        if len(extras) != self._sum.extras or any(len(extra) != SECRET for extra in extras):
            raise UsageError(f'"{self.name}" must share {self._sum.extras} extra secrets of {SECRET} bytes each.')
        for other in self._sum.near[self.name]:
            if other in keys:
                try:
                    self._keys[other] = read = self._sum.read_keys(other, keys[other])
                    self._mail_with(other, read)
                except BadMessage as why:
                    self._keys.pop(other, None)
                    self.rejected[other] = str(why)
        self._enough("keys", len(self._keys))
        self._extras = tuple(bytes(extra) for extra in extras)
        points = [self._sum.point[other] for other in (*self._keys, self.name)]
        secrets = (self._seed, self._mask_key.private_bytes_raw(), *self._extras)
        columns = zip(*(split(secret, points, self._sum.shape.threshold)[:-1] for secret in secrets), strict=True)
        own = Keys.of(self.advertise())
        sealed = {
            other: self._sum.seal(self._mail_with(other, theirs), self.name, other, (own, theirs), shares)
            for (other, theirs), shares in zip(self._keys.items(), columns, strict=True)
        }
        if self._extras:
            commitments = (self._sum.bound("extra", self.name, i, extra) for i, extra in enumerate(self._extras))
            sealed[self.name] = self._sum.stamped(self.name, "commitments", b"".join(commitments), self._identity)
        self._done += 1
        return sealed

    def collect(self, mail: Mapping[str, bytes]) -> tuple[str, ...]:
        """Store the shares that neighbours sent; the names of those whose mail is not genuine.

        It masks with everyone whose mail came at all, so that both sides of a pair do the same.
        """
        self._next("collect")
        own = Keys.of(self.advertise())
        bad = []
        for sender, sealed in mail.items():
            try:
                if sender not in self._keys:
                    raise BadMessage(f'"{sender}" is no neighbour of "{self.name}" that advertised genuine keys.')
                theirs = self._keys[sender]
                key = self._mail_with(sender, theirs)
                self._shares[sender] = self._sum.unseal(key, sender, self.name, (theirs, own), sealed)
            except BadMessage as why:
                bad.append(sender)
                self.rejected[sender] = str(why)
        self._partners = tuple(other for other in self._keys if other in mail)
        self._enough("mail", len(self._shares))
        self._done += 1
        return tuple(bad)

    def mask(self, vector: Array, bits: int) -> Array:
        """vector + own mask ± each pair's mask, mod 2^bits: the one earlier on the roster adds, the other subtracts."""
        self._next("mask")
        if vector.dtype != words(bits) or vector.ndim != 1:
            raise UsageError(f"A vector to mask modulo 2^{bits} is one of {words(bits)}, not of {vector.dtype}.")
        masked = vector.copy()
        add_mask(masked, self._sum.bound("own mask", self.name, self._seed), bits, 1)
        for other in self._partners:
            seed, sign = self._sum.pair_mask(self._mask_key, self.name, other, self._keys[other])
            add_mask(masked, seed, bits, sign)
        self._done += 1
        return masked

    def confirm(self, survivors: Sequence[str]) -> bytes:
        """This party's signature of the survivor list; it signs one list only."""
        if self._identity is None:
            raise UsageError(f'"{self.name}" has no identity to sign survivor lists with.')
        self._settle(survivors)
        return self._identity.sign(self._to_sign(survivors))

    def unmask(
        self, survivors: Sequence[str], reveal: Sequence[int] = (), signatures: Mapping[str, bytes] | None = None
    ) -> bytes:
        """The answer from which the survivors' sum is unmasked; it reveals the extras of these indices."""
        wanted = tuple(sorted(set(reveal)))
        if any(not 0 <= index < self._sum.extras for index in wanted):
            raise UsageError(f"There are {self._sum.extras} extra secrets; reveal some of those, not {list(reveal)}.")
        if self._sum.shape.signed:
            self._check_signatures(survivors, signatures or {})
        if self._reveal not in (None, wanted):
            raise PrivacyRefused(f'"{self.name}" has revealed other extras of this sum already; it answers once.')
        self._settle(survivors)
        self._reveal = wanted
        given: dict[str, tuple[Given, tuple[bytes, ...]]] = {}
        for other in self._sum.near[self.name]:
            if other not in self._partners:
                given[other] = (Given.NOT_MASKED, ())
            elif other not in self._shares:
                given[other] = (Given.NOTHING, ())
            elif other in survivors:
                seed, _, *extras = self._shares[other]
                given[other] = (Given.SEED, (seed, *(extras[index] for index in wanted)))
            else:
                given[other] = (Given.KEY, (self._shares[other][1],))
        answer = Answer(wanted, self._seed, tuple(self._extras[index] for index in wanted), given)
        return self._sum.write_answer(self.name, answer, survivors, self._identity)

    # -- over a crash ----------------------------------------------------------------------------------------------

    def state(self) -> bytes:
        """All of it, secrets included, for `restore`: store it where this party stores its keys."""
        keys = (self._mail_key.private_bytes_raw(), self._mask_key.private_bytes_raw())
        saved = {
            "sum": self._sum.binding.hex(),
            "name": self.name,
            "secrets": [secret.hex() for secret in (*keys, self._seed)],
            "extras": [extra.hex() for extra in self._extras],
            "keys": {other: keys.message.hex() for other, keys in self._keys.items()},
            "shares": {owner: [share.hex() for share in shares] for owner, shares in self._shares.items()},
            "partners": self._partners,
            "done": self._done,
            "survivors": self._survivors,
            "reveal": self._reveal,
            "rejected": self.rejected,
        }
        return json.dumps(saved).encode()

    @classmethod
    def restore(cls, state: bytes, about: SecureSum, identity: Ed25519PrivateKey | None = None) -> SecAggParty:
        """The party as it was when it returned this state; sum and identity are those that it was made with."""
        try:
            saved: dict[str, Any] = json.loads(state)
            party = cls(saved["name"], about, identity)
            same = saved["sum"] == about.binding.hex()
            if same:
                party._load(saved)
        except (ValueError, KeyError, TypeError, BadMessage):
            raise TamperingFound(
                "The saved state of a secure sum cannot be read; leave this sum and join the next."
            ) from None
        if not same:
            raise UsageError(
                f'The saved state of "{saved["name"]}" is of another sum; restore it with the same arguments.'
            )
        return party

    def _load(self, saved: dict[str, Any]) -> None:
        mail, mask, self._seed = (bytes.fromhex(secret) for secret in saved["secrets"])
        self._mail_key, self._mask_key = (X25519PrivateKey.from_private_bytes(key) for key in (mail, mask))
        self._extras = tuple(bytes.fromhex(extra) for extra in saved["extras"])
        self._keys = {other: Keys.of(bytes.fromhex(text)) for other, text in saved["keys"].items()}
        self._shares = {owner: tuple(map(bytes.fromhex, shares)) for owner, shares in saved["shares"].items()}
        self._partners, self._done = tuple(saved["partners"]), int(saved["done"])
        self._survivors = None if saved["survivors"] is None else tuple(saved["survivors"])
        self._reveal = None if saved["reveal"] is None else tuple(saved["reveal"])
        self.rejected = dict(saved["rejected"])

    def _next(self, step: str) -> None:
        at = STEPS.index(step)
        if self._done > at:
            raise PrivacyRefused(
                f'"{self.name}" did "{step}" in this sum already, which it does once; start a new sum.'
            )
        if self._done < at:
            raise UsageError(f'"{self.name}" cannot "{step}" yet: "{STEPS[self._done]}" comes first.')

    def _enough(self, what: str, count: int) -> None:
        """A party holds a share of its own secrets, so t − 1 others are enough."""
        needed = self._sum.shape.threshold - 1
        if count < needed:
            raise VoidRound(f'"{self.name}" has genuine {what} of {count} neighbours and needs {needed}; it leaves.')

    def _settle(self, survivors: Sequence[str]) -> None:
        """Check a survivor list, and accept no other afterwards."""
        self._next("unmask")
        chosen = self._sum.in_order(survivors)
        if len(chosen) != len(survivors):
            raise PrivacyRefused(f'"{self.name}" refuses a survivor list with strangers or with a name twice.')
        if self._survivors not in (None, chosen):
            raise PrivacyRefused(f'"{self.name}" refuses a second survivor list: two would reveal single vectors.')
        if self.name not in chosen:
            raise PrivacyRefused(f'"{self.name}" refuses a survivor list that it is not on itself.')
        if len(chosen) < self._sum.shape.fewest:
            raise PrivacyRefused(
                f'"{self.name}" refuses a sum of {len(chosen)}: at least {self._sum.shape.fewest} must survive.'
            )
        unmasked = [other for other in self._sum.near[self.name] if other in chosen and other not in self._partners]
        if unmasked:
            raise PrivacyRefused(
                f'"{self.name}" refuses: it did not mask with "{unmasked[0]}", which is listed as a survivor.'
            )
        self._survivors = chosen

    def _to_sign(self, survivors: Sequence[str]) -> bytes:
        """The list with everyone's keys: in a signed shape all are neighbours, and their keys are known."""
        keys = {**self._keys, self.name: self._sum.read_keys(self.name, self.advertise())}
        unseen = [name for name in survivors if name not in keys]
        if unseen:
            raise PrivacyRefused(f'"{self.name}" refuses a survivor list with "{unseen[0]}", whose keys it never saw.')
        return self._sum.to_sign(survivors, keys)

    def _check_signatures(self, survivors: Sequence[str], signatures: Mapping[str, bytes]) -> None:
        identities, listed = self._sum.identities or {}, self._to_sign(survivors)
        signed = sum(
            name in signatures and is_signed(identities[name], signatures[name], listed)
            for name in self._sum.in_order(survivors)
        )
        if signed < self._sum.shape.threshold:
            raise PrivacyRefused(
                f'"{self.name}" refuses a survivor list that {signed} of its parties signed: '
                f"{self._sum.shape.threshold} must."
            )

    def _mail_with(self, other: str, theirs: Keys) -> bytes:
        if other not in self._pairs:
            about = self._sum.bound("mail key", *self._sum.pair(self.name, other))
            self._pairs[other] = agree(self._mail_key, theirs.mail, about)
        return self._pairs[other]
