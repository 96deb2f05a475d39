"""A kit: the one file that a site gets from the operator of a federation.

It has the coordinator's address and public keys, and the site's certificate with its key, so it is secret: hand it over
on a channel that you trust. It is readable TOML, and its SHA-256 finds accidental damage, not deliberate changes.

The operator generated the TLS key, and could pose as the site on the channel. The site's signing key is not in the kit:
the site generates it and only the public half leaves. But the coordinator pins that half at the first hello and reports
it to the others: a malicious one could report a key of its own. Sites can compare their public keys out of band.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tomli_w

from tacit import files
from tacit.config import toml_table
from tacit.deploy.certificates import belongs, common_name, fingerprint, is_host, is_issued, read_certificate, read_key
from tacit.engine.cells import Credentials
from tacit.errors import PeerFailed, TamperingFound, UsageError
from tacit.federation.role import ROLE
from tacit.report.words import moment

#: What a site may be called.
NAME = re.compile(f"party-[1-9][0-9]{{0,8}}|{ROLE.pattern}")
#: A fingerprint or a public signing key, hex.
SHA = "^[0-9a-f]{64}$"
FORMAT = "tacit kit 1"
#: Bytes. A kit has about 2,100; nothing longer is read.
MOST = 2**16
_HEAD = """\
# A Tacit kit: with it {name} takes part in the federation "{federation}".
# SECRET: anyone with this file can connect as {name}. Hand it over on a safe channel.
"""


@dataclass(frozen=True)
class Kit:
    """The content of a kit.

    Attributes
    ----------
    name : the site's: "party-1", …, or a role
    federation : the federation's name
    host, port : where the coordinator listens; in a proxy's kit, where the proxy does
    insecure : whether the operator chose a channel without TLS
    ca, certificate, key : the authority's certificate, the site's own, and its key, as PEM texts
    coordinator : the coordinator's public signing key, hex
    """

    name: str
    federation: str
    host: str
    port: int
    insecure: bool
    ca: str
    certificate: str
    key: str = field(repr=False)
    coordinator: str

    @classmethod
    def read(cls, path: Path) -> Kit:
        """The kit at `path`, which is made readable for its owner alone."""
        table = _table(path, _text(path))
        digest = table.pop("sha256", None)
        wanted = {f.name: f.type for f in fields(cls)}
        typed = {name: type(value).__name__ for name, value in table.items()} == wanted
        if digest != _sum(table) or not typed:
            raise _damaged(path)
        kit = cls(**table)
        fine = NAME.fullmatch(kit.name) and kit.federation.isprintable() and re.fullmatch(SHA, kit.coordinator)
        if not fine or not is_host(kit.host) or not 0 < kit.port < 2**16:
            raise _damaged(path)
        return kit

    def write(self, path: Path) -> None:
        """Write the kit to a new file for its owner alone; an existing file is not changed."""
        table = asdict(self)
        content = {"format": FORMAT, **table, "sha256": _sum(table)}
        text = _HEAD.format(name=self.name, federation=self.federation)
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))  # reserves the name
            try:
                files.write_private(path, text + tomli_w.dumps(content, multiline_strings=True))
            except BaseException:
                path.unlink()
                raise
        except FileExistsError:
            raise UsageError(f'"{path}" already exists; name another file, or remove it first.') from None
        except OSError as error:
            raise UsageError(f'The kit "{path}" cannot be written: {error.strerror}; name another place.') from None

    def check(self, now: datetime | None = None) -> None:
        """Raise PeerFailed unless this kit is valid now."""
        again = f'ask the operator of "{self.federation}" to invite {self.name} again'
        try:
            ca, certificate, key = read_certificate(self.ca), read_certificate(self.certificate), read_key(self.key)
        except ValueError:
            raise PeerFailed(
                f"The kit of {self.name} holds a certificate or key that cannot be read; {again}."
            ) from None
        if not belongs(key, certificate):
            raise PeerFailed(f"The key and the certificate in the kit of {self.name} do not belong together; {again}.")
        if not is_issued(certificate, ca):
            raise PeerFailed(
                f"The certificate in the kit of {self.name} is not from the authority of its federation; {again}."
            )
        if common_name(certificate) != self.name:
            raise PeerFailed(
                f'The kit is for {self.name}, but its certificate is for "{common_name(certificate)}"; {again}.'
            )
        when = datetime.now(UTC) if now is None else now.astimezone(UTC)
        start = max(certificate.not_valid_before_utc, ca.not_valid_before_utc)
        end = min(certificate.not_valid_after_utc, ca.not_valid_after_utc)
        if when < start:
            raise PeerFailed(
                f"The certificate of {self.name} is valid from {moment(start.isoformat())} on, and the clock of this "
                f"machine is at {moment(when.isoformat())}; set the clock."
            )
        if when > end:
            raise PeerFailed(
                f"The certificate of {self.name} expired on {moment(end.isoformat())}, and the clock of this machine "
                f"is at {moment(when.isoformat())}; {again}."
            )

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the site's certificate, hex."""
        return fingerprint(read_certificate(self.certificate))

    def unpack(self, folder: Path) -> Credentials:
        """Write ca.pem, site.crt and site.key into `folder`, for its owner alone."""
        credentials = Credentials(folder / "ca.pem", folder / "site.crt", folder / "site.key")
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.chmod(0o700)
            files.write_private(credentials.ca, self.ca)
            files.write_private(credentials.certificate, self.certificate)
            files.write_private(credentials.key, self.key)
        except OSError as error:
            raise UsageError(
                f'The kit of {self.name} cannot be unpacked in "{folder}": {error.strerror}; name another folder.'
            ) from None
        return credentials


def _text(path: Path) -> str:
    """The file's text, after its mode is closed to others where that is possible."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                with suppress(OSError):
                    os.fchmod(file.fileno(), 0o600)
            raw = file.read(MOST + 1)
    except OSError as error:
        raise UsageError(
            f'The kit "{path}" cannot be read: {error.strerror}; name the file that the operator gave you.'
        ) from None
    if len(raw) > MOST:
        raise _not_a_kit(path)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise _not_a_kit(path) from None


def _table(path: Path, text: str) -> dict[str, Any]:
    try:
        table = toml_table(text)
    except ValueError:
        if text.startswith(_HEAD[:12]):
            raise _damaged(path) from None
        raise _not_a_kit(path) from None
    made_as = table.pop("format", None)
    if not isinstance(made_as, str) or not made_as.startswith("tacit kit "):
        raise _not_a_kit(path)
    if made_as != FORMAT:
        raise UsageError(
            f'"{path}" is a kit of another version ("{made_as}" instead of "{FORMAT}"); use the version of Tacit that '
            "the operator uses."
        )
    return table


def _not_a_kit(path: Path) -> UsageError:
    return UsageError(f'"{path}" is not a kit; name the file that the operator gave you, such as party-1.kit.')


def _damaged(path: Path) -> TamperingFound:
    return TamperingFound(f'The kit "{path}" is damaged; ask the operator of the federation to hand it over once more.')


def _sum(table: dict[str, Any]) -> str:
    """SHA-256 of a kit's content, whatever its layout."""
    return hashlib.sha256(json.dumps([FORMAT, table], sort_keys=True, default=str).encode()).hexdigest()
