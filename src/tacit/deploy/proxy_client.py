"""Both ways to the proxy's service: a device's and the coordinator's, with the standard library alone.

The proxy shows a certificate of the federation's authority in the name `proxy`, wherever it listens.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Collection, Mapping
from http.client import HTTPException, HTTPSConnection
from time import monotonic, sleep
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tacit.engine.board import NoAnswer, UnknownNotice
from tacit.engine.cells import Credentials
from tacit.errors import BadMessage, PeerFailed, PrivacyRefused, TacitError
from tacit.secure.proxy import check_terms
from tacit.secure.shuffler import MOST_LENGTH, BatchTerms, Closed, TooFew, UnknownBatch

#: Seconds for one answer, for a proxy that is away, before another try, and for a device's reports to reach it.
ANSWER, AWAY, AGAIN, HANDING = 60.0, 60.0, 0.2, 20.0
#: Bytes of a batch, and of every other answer.
MOST_BATCH, MOST_ANSWER = 2**31, 2**16
_ERRORS: Mapping[str, type[TacitError]] = {
    kind.__name__: kind for kind in (UnknownBatch, UnknownNotice, NoAnswer, Closed, TooFew, PrivacyRefused, BadMessage)
}


class Absent(PeerFailed):
    """The proxy cannot be reached, or ended the connection."""


class _Connection(HTTPSConnection):
    """A connection to whoever holds the federation's certificate for `proxy`, whatever its address is called."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext) -> None:
        super().__init__(host, port, timeout=ANSWER, context=context)
        self._tls = context

    def connect(self) -> None:
        bare = socket.create_connection((self.host, self.port), timeout=ANSWER)
        bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.sock = self._tls.wrap_socket(bare, server_hostname="proxy")
        except BaseException:
            bare.close()
            raise


class Line:
    """Requests to the proxy, one at a time, over a connection that is kept while it works."""

    def __init__(self, host: str, port: int, credentials: Credentials) -> None:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(credentials.ca))
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(credentials.certificate, credentials.key)
        self.place, self._lock = f"{host}:{port}", threading.Lock()
        self._connection = _Connection(host, port, context)

    def request(self, method: str, path: str, body: bytes = b"", most: int = MOST_ANSWER) -> bytes:
        """The proxy's answer; raises its refusal, or `Absent` where there is no proxy."""
        with self._lock:
            kept = self._connection.sock is not None
            try:
                try:
                    status, answer = self._asked(method, path, body, most)
                except (OSError, HTTPException):
                    self._connection.close()
                    if not kept:
                        raise
                    status, answer = self._asked(method, path, body, most)  # an idle connection may be closed
            except ssl.SSLCertVerificationError:
                raise PrivacyRefused(
                    f'What answers at {self.place} has no certificate of this federation for "proxy"; nothing was sent.'
                ) from None
            except (OSError, HTTPException) as error:
                self._connection.close()
                raise Absent(f"The proxy at {self.place} does not answer ({type(error).__name__}).") from None
        if status >= 400:
            raise _refusal(answer)
        return answer

    def close(self) -> None:
        self._connection.close()

    def _asked(self, method: str, path: str, body: bytes, most: int) -> tuple[int, bytes]:
        self._connection.request(method, path, body or None, {"Content-Length": str(len(body))})
        response = self._connection.getresponse()
        answer = response.read(most + 1)
        if len(answer) > most:
            self._connection.close()
            raise BadMessage(f"The proxy's answer is longer than {most:,} bytes; it was not read.")
        return response.status, answer


def _refusal(answer: bytes) -> TacitError:
    try:
        table = json.loads(answer)
        kind, why = _ERRORS[table["error"]], str(table["why"])[:400]
    except (ValueError, KeyError, TypeError):
        return BadMessage("The proxy's refusal cannot be read.")
    return kind(why if why.isprintable() else "The proxy refused; its words cannot be shown.")


class DeviceLine:
    """A device's end of the proxy (`tacit.secure.proxy.DeviceEnd`)."""

    def __init__(self, line: Line, key: bytes, patience: float = HANDING) -> None:
        self.key, self._line, self._patience = key, line, patience

    def close(self) -> None:
        self._line.close()

    def send(self, device: str, planned: BatchTerms, message: bytes) -> bool:
        """Hand over the reports; a proxy that is away is tried again for a while, with the same bytes."""
        deadline = monotonic() + self._patience
        place = f"/batches/{planned.context}"
        while True:
            try:
                check_terms(_read_terms(self._line.request("GET", place)), planned)
                self._line.request("POST", f"{place}/reports", message)
                return True
            except (UnknownBatch, Closed):
                return False
            except Absent:
                if monotonic() > deadline:
                    return False
                sleep(AGAIN)


class CoordinatorLine:
    """The coordinator's end (`tacit.secure.proxy.CoordinatorEnd`).

    `fingerprints` reads, by name, the certificates that are valid now: a revoked one gets on no list.
    """

    def __init__(
        self,
        line: Line,
        private_key: X25519PrivateKey,
        fingerprints: Callable[[], Mapping[str, str]],
        patience: float = AWAY,
    ) -> None:
        self.private_key, self._line, self._fingerprints, self._patience = private_key, line, fingerprints, patience

    def open(self, terms: BatchTerms, devices: Collection[str]) -> None:
        valid = self._fingerprints()
        table = {**vars(terms), "devices": sorted(valid[name] for name in devices if name in valid)}
        deadline = monotonic() + self._patience
        while True:
            try:
                self._line.request("POST", "/batches", json.dumps(table).encode())
                return
            except Absent as error:
                if monotonic() > deadline:
                    raise PeerFailed(f"{error} Start it with: tacit proxy proxy.kit, and resume the run.") from None
                sleep(AGAIN)

    def collect(self, context: str) -> np.ndarray[Any, Any] | None:
        try:
            raw = self._line.request("POST", f"/batches/{context}/shuffled", most=MOST_BATCH)
        except (UnknownBatch, Absent):
            return None
        length = int.from_bytes(raw[:4], "little")
        if not 0 < length <= MOST_LENGTH or (len(raw) - 4) % length:
            raise BadMessage("What the proxy forwarded is no number of reports of one length.")
        return np.frombuffer(raw, dtype=np.uint8, offset=4).reshape(-1, length)

    def close(self) -> None:
        self._line.close()

    def forget(self, context: str) -> None:
        try:
            self._line.request("DELETE", f"/batches/{context}")
        except Absent:  # it forgets by itself
            return


def _read_terms(answer: bytes) -> BatchTerms:
    try:
        table = json.loads(answer)
        terms = BatchTerms(str(table["context"]), int(table["crowd"]), int(table["length"]))
    except (ValueError, KeyError, TypeError):
        raise BadMessage("The proxy's terms cannot be read.") from None
    terms.check()
    return terms
