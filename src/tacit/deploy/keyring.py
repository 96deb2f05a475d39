"""The coordinator's keyring: who was invited to a federation, by which certificate, and their pinned signing keys.

    ca.key ca.pem                        the federation's certificate authority
    coordinator.key coordinator.crt      the coordinator's TLS key and certificate
    identity.key                         the coordinator's signing key
    federation.json, lock                all invitations (`invitations`)

Only its owner can read the folder. A site's TLS key is generated here and leaves in its kit; no copy stays. Its signing
key is generated at the site, and pinned here at its first hello.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tacit import files
from tacit.deploy import certificates as x509
from tacit.deploy.certificates import (
    certificate_text,
    identity_text,
    key_text,
    new_key,
    now,
    read_certificate,
    read_key,
)
from tacit.deploy.invitations import NAME, RECORD, Invitation, Record, change, damaged, read_record, read_text
from tacit.deploy.kit import Kit
from tacit.engine.cells import Credentials
from tacit.errors import BadMessage, PeerFailed, TamperingFound, UsageError, did_you_mean
from tacit.report.words import moment

_SECRETS = ("ca.key", "coordinator.key", "identity.key")
_PARTS = (*_SECRETS, "ca.pem", "coordinator.crt", RECORD)


@dataclass(frozen=True)
class Keyring:
    """The keys of one federation, in a folder of the coordinator's.

    `host` and `port` are where sites reach the coordinator; an `insecure` channel is without TLS.
    """

    folder: Path
    federation: str
    host: str
    port: int
    insecure: bool

    @classmethod
    def make(
        cls, folder: Path, *, federation: str, host: str, port: int, days: int = 365, insecure: bool = False
    ) -> Keyring:
        """New keys in a new folder; no certificate outlives `days`."""
        _check_terms(federation, host, port)
        x509.check_days(days)
        place = folder.absolute()
        try:
            if place.exists() and (not place.is_dir() or any(place.iterdir())):
                what = "holds a federation's keys already" if (place / RECORD).exists() else "already exists"
                raise UsageError(f'"{folder}" {what}; name a folder that is new or empty.')
            place.parent.mkdir(parents=True, exist_ok=True)
            unfinished = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))  # made with mode 0700
        except OSError as error:
            raise _cannot_store(folder, error) from None
        try:
            for name, text in _new_texts(federation, host, days).items():
                files.write_private(unfinished / name, text)
            record = Record(federation=federation, host=host, port=port, insecure=insecure)
            files.write_private(unfinished / RECORD, record.model_dump_json(indent=2) + "\n")
            os.replace(unfinished, place)
        except OSError as error:
            raise _cannot_store(folder, error) from None
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        return cls(folder, federation, host, port, insecure)

    @classmethod
    def open(cls, folder: Path) -> Keyring:
        """The keys in `folder`, if they are complete and closed to other users."""
        if not (folder / RECORD).is_file():
            raise UsageError(f'"{folder}" holds no keys of a federation; make them with `tacit keys init`.')
        for part in _PARTS:
            if not (folder / part).is_file():
                raise TamperingFound(f'"{folder / part}" is missing; restore the keys from your copy.')
        for place in (folder, *(folder / name for name in _SECRETS)):
            if place.stat().st_mode & 0o077:
                raise UsageError(
                    f'"{place}" is open to other users of this machine; close it with `chmod -R go= {folder}`, and '
                    "make new keys if anyone may have read them."
                )
        record = read_record(folder)
        _check_whole(folder)
        return cls(folder, record.federation, record.host, record.port, record.insecure)

    # -- invitations ----------------------------------------------------------------------------------------------

    def invite(self, name: str, *, days: int = 365) -> Kit:
        """A new kit for a site; its earlier kits are refused from now on.

        The certificate ends with the authority's at the latest. The key is only in the kit.
        """
        check_name(name)
        x509.check_days(days)
        self._check_time()
        ca, ca_key = read_certificate(read_text(self.folder, "ca.pem")), read_key(read_text(self.folder, "ca.key"))
        key = new_key()
        certificate = x509.site_certificate(name, key, ca, ca_key, days)
        new = Invitation(
            name=name,
            fingerprint=x509.fingerprint(certificate),
            serial=f"{certificate.serial_number:x}",
            made=now(),
            until=certificate.not_valid_after_utc,
        )
        change(self.folder, lambda record: record.added(new))
        return Kit(
            name=name,
            federation=self.federation,
            host=self.host,
            port=self.port,
            insecure=self.insecure,
            ca=certificate_text(ca),
            certificate=certificate_text(certificate),
            key=key_text(key),
            coordinator=identity_text(self.identity.public_key()),
        )

    def revoke(self, name: str) -> None:
        """End a site's invitation: its certificate and its signing key are refused from now on."""

        def revoked(record: Record) -> Record:
            found = record.latest(name)
            if found is None:
                known = sorted({one.name for one in record.invitations}, key=_order)
                raise UsageError(f'"{name}" was never invited, so nothing was revoked.{did_you_mean(name, known)}')
            if found.revoked is not None:
                raise UsageError(f"The invitation of {name} was revoked already, on {_shown(found.revoked)}.")
            return record.noted(found, revoked=now())

        change(self.folder, revoked)

    @property
    def invitations(self) -> tuple[Invitation, ...]:
        """The latest invitation of each name; parties in numeric order, then roles."""
        latest = {one.name: one for one in read_record(self.folder).invitations}
        return tuple(latest[name] for name in sorted(latest, key=_order))

    @property
    def invited(self) -> tuple[str, ...]:
        """The names with a valid invitation; parties in numeric order, then roles."""
        return tuple(one.name for one in self.invitations if one.state == "valid")

    def status_of(self, name: str, fingerprint: str) -> str | None:
        """None if this certificate (SHA-256, hex) is the valid one of this name; else why not."""
        every, short = read_record(self.folder).invitations, f"{fingerprint[:16]}…"
        found = next((one for one in every if one.fingerprint == fingerprint.lower()), None)
        if found is None:
            return f'The certificate {short} was not made for the federation "{self.federation}"; use a kit of it.'
        if found.name != name:
            return f"The certificate {short} is that of {found.name}, not of {name}; use the kit of {name}."
        if found.revoked is not None:
            return f"The invitation of {name} was revoked on {_shown(found.revoked)}; ask the operator for a new one."
        if found.replaced is not None:
            return f"The kit of {name} was replaced by a newer one on {_shown(found.replaced)}; use that one."
        if found.state == "expired":
            return f"The certificate of {name} expired on {_shown(found.until)}; ask the operator for a new invitation."
        return None

    # -- identities -----------------------------------------------------------------------------------------------

    def enrol(self, name: str, identity: str, *, fingerprint: str | None = None) -> None:
        """Pin a site's public signing key (hex) at its first hello, until the site is invited anew.

        The `fingerprint` of the hello's certificate makes sure that no newer invitation is meant.
        """
        if not re.fullmatch("[0-9a-f]{64}", identity):
            raise BadMessage(f"{name} sent an invalid signing key; one has 64 hexadecimal digits.")

        def pinned(record: Record) -> Record:
            found = record.latest(name)
            if found is None or found.state != "valid" or fingerprint not in (None, found.fingerprint):
                raise PeerFailed(f"{name} has no valid invitation; invite it with `tacit keys invite`.")
            if found.identity not in (None, identity):
                raise TamperingFound(
                    f"{name} signs with another key ({identity[:16]}…) than it did at its first hello "
                    f"({found.identity[:16]}…): another site poses as {name}, or it lost its state folder; ask it, and "
                    "invite it anew."
                )
            return record.noted(found, identity=identity)

        change(self.folder, pinned)

    def identity_of(self, name: str) -> Ed25519PublicKey | None:
        """A site's public signing key; None before its first hello, and when its invitation is not valid."""
        found = read_record(self.folder).latest(name)
        if found is None or found.identity is None or found.state != "valid":
            return None
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(found.identity))

    @property
    def identity(self) -> Ed25519PrivateKey:
        """The coordinator's signing key."""
        return x509.read_identity(read_text(self.folder, "identity.key"))

    def credentials(self) -> Credentials:
        """The coordinator's TLS files, if they are valid now."""
        self._check_time()
        return Credentials(self.folder / "ca.pem", self.folder / "coordinator.crt", self.folder / "coordinator.key")

    # -- inside ---------------------------------------------------------------------------------------------------

    def _check_time(self) -> None:
        certificate, when = read_certificate(read_text(self.folder, "coordinator.crt")), now()
        if when < certificate.not_valid_before_utc:
            raise UsageError(
                f'The keys of "{self.federation}" are valid from {_shown(certificate.not_valid_before_utc)} on, and '
                f"this machine's clock is at {_shown(when)}; set the clock."
            )
        if when > certificate.not_valid_after_utc:
            raise UsageError(
                f'The keys of "{self.federation}" expired on {_shown(certificate.not_valid_after_utc)}; make new ones '
                "with `tacit keys init` in a new folder, and invite all sites anew."
            )


def check_name(name: str) -> None:
    """Raise UsageError unless it is the name of a party or role."""
    if not NAME.fullmatch(name):
        raise UsageError(
            f'"{name}" cannot be invited: sites are called party-1, party-2, …, and roles catalogue, proxy or '
            "decrypter-1, …."
        )


def _check_whole(folder: Path) -> None:
    """Raise TamperingFound unless all keys are readable and belong together."""
    texts = {name: read_text(folder, name) for name in _PARTS}
    try:
        ca, certificate = read_certificate(texts["ca.pem"]), read_certificate(texts["coordinator.crt"])
        ca_key, key = read_key(texts["ca.key"]), read_key(texts["coordinator.key"])
        x509.read_identity(texts["identity.key"])
    except ValueError:
        raise damaged(folder) from None
    if not (x509.belongs(ca_key, ca) and x509.belongs(key, certificate) and x509.is_issued(certificate, ca)):
        raise damaged(folder)


def _new_texts(federation: str, host: str, days: int) -> dict[str, str]:
    """All keys and certificates of a new federation, by file."""
    ca_key, key = new_key(), new_key()
    ca = x509.authority(federation, ca_key, days)
    return {
        "ca.key": key_text(ca_key),
        "ca.pem": certificate_text(ca),
        "coordinator.key": key_text(key),
        "coordinator.crt": certificate_text(x509.coordinator_certificate(host, key, ca, ca_key)),
        "identity.key": key_text(Ed25519PrivateKey.generate()),
    }


def _check_terms(federation: str, host: str, port: int) -> None:
    if not federation.strip() or not federation.isprintable() or len(federation.encode()) > 64:
        raise UsageError(f'"{federation}" cannot be a federation\'s name; give 1 to 64 printable characters.')
    if not x509.is_host(host):
        raise UsageError(
            f'"{host}" is not a host; give a name or an address that the sites reach, such as hearts.example.org.'
        )
    if not 1 <= port <= 65535:
        raise UsageError(f"{port} is not a port; give one from 1 to 65535, such as 8102.")


def _order(name: str) -> tuple[bool, str, int]:
    """Parties first, and 10 after 9."""
    kind, _dash, number = name.partition("-")
    return kind != "party", kind, int(number or 0)


def _shown(when: datetime) -> str:
    return moment(when.isoformat())


def _cannot_store(folder: Path, error: OSError) -> UsageError:
    return UsageError(f'No keys can be stored in "{folder}": {error.strerror}; name another folder.')
