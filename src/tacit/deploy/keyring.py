"""The coordinator's keyring: who was invited to a federation, by which certificate, and their pinned signing keys.

    ca.key ca.pem                        the federation's certificate authority
    coordinator.key coordinator.crt      the coordinator's TLS key and certificate
    identity.key                         the coordinator's signing key
    federation.json, lock                all invitations (`Record`)

Only its owner can read the folder. A site's TLS key is generated here and leaves in its kit; no copy stays. Its signing
key is generated at the site, and pinned here at its first hello. The record of invitations is read for every question,
so that a revocation takes effect at once, and changed by one process at a time.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from tacit import files
from tacit.deploy import certificates as x509
from tacit.deploy.kit import NAME, SHA, Kit
from tacit.engine.cells import Credentials
from tacit.errors import BadMessage, PeerFailed, TamperingFound, UsageError, did_you_mean
from tacit.report.words import moment

RECORD = "federation.json"
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

    def invite(self, name: str, *, days: int = 365, at: tuple[str, int] | None = None, device: bool = False) -> Kit:
        """A new kit for a site; its earlier kits are refused from now on.

        The certificate ends with the authority's at the latest. The key is only in the kit. A proxy's has the address
        `at` which devices and the coordinator reach it; a `device` that takes part through the proxy is given that too.
        """
        check_name(name)
        if at is not None:
            self._check_proxy(name, *at)
        if device and (self.proxy is None or self.insecure):
            raise UsageError(
                f"A device takes part through the federation's proxy, and none is invited; write its kit with: tacit "
                f"keys invite {self.folder} --role proxy --at HOST:PORT"
            )
        x509.check_days(days)
        self._check_time()
        ca, ca_key = (
            x509.read_certificate(read_text(self.folder, "ca.pem")),
            x509.read_key(read_text(self.folder, "ca.key")),
        )
        key = x509.new_key()
        certificate = x509.site_certificate(name, key, ca, ca_key, days, serves=at is not None)
        new = Invitation(
            name=name,
            fingerprint=x509.fingerprint(certificate),
            serial=f"{certificate.serial_number:x}",
            made=x509.now(),
            until=certificate.not_valid_after_utc,
        )
        address = {} if at is None else {"proxy": f"{at[0]}:{at[1]}"}
        change(self.folder, lambda record: record.added(new).model_copy(update=address))
        host, port = at or (self.proxy if device else None) or (self.host, self.port)
        return Kit(
            name=name,
            federation=self.federation,
            host=host,
            port=port,
            insecure=self.insecure,
            ca=x509.certificate_text(ca),
            certificate=x509.certificate_text(certificate),
            key=x509.key_text(key),
            coordinator=x509.identity_text(self.identity.public_key()),
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
            return record.noted(found, revoked=x509.now())

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

    def enrol(self, name: str, identity: str, *, fingerprint: str | None = None) -> None:
        """Pin a site's public signing key (hex) at its first hello, until the site is invited again.

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
                    "invite it again."
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
    def proxy(self) -> tuple[str, int] | None:
        """Where the invited proxy is; None where there is none."""
        host, _colon, port = read_record(self.folder).proxy.rpartition(":")
        return (host, int(port)) if port and "proxy" in self.invited else None

    def report_key(self, run: str) -> X25519PrivateKey:
        """The private key to which the reports of one run are sealed; the same whenever the run is resumed."""
        derived = HKDF(hashes.SHA256(), 32, None, f"tacit reports 1|{run}".encode())
        return X25519PrivateKey.from_private_bytes(derived.derive(self.identity.private_bytes_raw()))

    def _check_proxy(self, name: str, host: str, port: int) -> None:
        if name != "proxy":
            raise UsageError(f"--at is where a proxy listens, and {name} is none; leave it out.")
        if self.insecure:
            raise UsageError("A proxy knows devices by their certificates; make the keys without --insecure.")
        if not x509.is_host(host) or not 1 <= port <= 65535:
            raise UsageError(f'"{host}:{port}" is no address of a proxy; give one such as proxy.example.org:8104.')

    @property
    def identity(self) -> Ed25519PrivateKey:
        """The coordinator's signing key."""
        return x509.read_identity(read_text(self.folder, "identity.key"))

    def credentials(self) -> Credentials:
        """The coordinator's TLS files, if they are valid now."""
        self._check_time()
        return Credentials(self.folder / "ca.pem", self.folder / "coordinator.crt", self.folder / "coordinator.key")

    def _check_time(self) -> None:
        certificate, when = x509.read_certificate(read_text(self.folder, "coordinator.crt")), x509.now()
        if when < certificate.not_valid_before_utc:
            raise UsageError(
                f'The keys of "{self.federation}" are valid from {_shown(certificate.not_valid_before_utc)} on, and '
                f"this machine's clock is at {_shown(when)}; set the clock."
            )
        if when > certificate.not_valid_after_utc:
            raise UsageError(
                f'The keys of "{self.federation}" expired on {_shown(certificate.not_valid_after_utc)}; make new ones '
                "with `tacit keys init` in a new folder, and invite all sites again."
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
        ca, certificate = x509.read_certificate(texts["ca.pem"]), x509.read_certificate(texts["coordinator.crt"])
        ca_key, key = x509.read_key(texts["ca.key"]), x509.read_key(texts["coordinator.key"])
        x509.read_identity(texts["identity.key"])
    except ValueError:
        raise damaged(folder) from None
    if not (x509.belongs(ca_key, ca) and x509.belongs(key, certificate) and x509.is_issued(certificate, ca)):
        raise damaged(folder)


def _new_texts(federation: str, host: str, days: int) -> dict[str, str]:
    ca_key, key = x509.new_key(), x509.new_key()
    ca = x509.authority(federation, ca_key, days)
    return {
        "ca.key": x509.key_text(ca_key),
        "ca.pem": x509.certificate_text(ca),
        "coordinator.key": x509.key_text(key),
        "coordinator.crt": x509.certificate_text(x509.coordinator_certificate(host, key, ca, ca_key)),
        "identity.key": x509.key_text(Ed25519PrivateKey.generate()),
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


class Unreadable(UsageError):
    """The keyring's files cannot be read or changed now."""


class Damaged(TamperingFound):
    """The keyring's files do not belong together."""


#: The coordinator's own problems, whose messages name its files: sites are only asked to try later.
OWN = (Unreadable, Damaged, OSError)


class Invitation(BaseModel):
    """One kit: its certificate (`fingerprint` and `serial`, hex), times, and the site's pinned signing key (hex)."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str = Field(pattern=f"^({NAME.pattern})$")
    fingerprint: str = Field(pattern=SHA)
    serial: str
    made: AwareDatetime
    until: AwareDatetime
    revoked: AwareDatetime | None = None
    replaced: AwareDatetime | None = None
    identity: str | None = Field(default=None, pattern=SHA)

    @property
    def state(self) -> Literal["valid", "expired", "revoked", "replaced"]:
        if self.revoked is not None:
            return "revoked"
        if self.replaced is not None:
            return "replaced"
        return "expired" if datetime.now(UTC) > self.until else "valid"


class Record(BaseModel):
    """A federation: where its coordinator is, and its invitations in order."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    format: Literal["tacit keyring 1"] = "tacit keyring 1"
    federation: str
    host: str
    port: int
    insecure: bool
    invitations: tuple[Invitation, ...] = ()
    proxy: str = ""

    def latest(self, name: str) -> Invitation | None:
        return next((one for one in reversed(self.invitations) if one.name == name), None)

    def noted(self, one: Invitation, **facts: object) -> Record:
        """The record with changes to one invitation."""
        known = one.model_copy(update=facts)
        return self.model_copy(update={"invitations": tuple(known if i is one else i for i in self.invitations)})

    def added(self, new: Invitation) -> Record:
        """The record with one more invitation, which replaces the site's earlier one."""
        old = self.latest(new.name)
        ended = self if old is None or old.revoked else self.noted(old, replaced=new.made)
        return self.model_copy(update={"invitations": (*ended.invitations, new)})


def change(folder: Path, how: Callable[[Record], Record]) -> None:
    """Read, change and write the record under a lock."""
    try:
        with os.fdopen(os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed
            record = read_record(folder)
            changed = how(record)
            if changed != record:
                files.write_private(folder / RECORD, changed.model_dump_json(indent=2) + "\n")
    except OSError as error:
        raise Unreadable(f'The keys in "{folder}" cannot be changed: {error.strerror}; their owner can.') from None


def read_record(folder: Path) -> Record:
    text = read_text(folder, RECORD)
    try:
        return Record.model_validate_json(text)
    except ValueError:
        raise damaged(folder / RECORD) from None


def read_text(folder: Path, name: str) -> str:
    try:
        return (folder / name).read_text(encoding="utf-8")
    except OSError as error:
        raise Unreadable(f'"{folder / name}" cannot be read: {error.strerror}; its owner can.') from None
    except UnicodeDecodeError:
        raise damaged(folder / name) from None


def damaged(place: Path) -> Damaged:
    return Damaged(
        f'"{place}" is damaged; restore the folder from your copy, or make new keys and invite all sites again.'
    )
