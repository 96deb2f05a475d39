"""The two ends of the proxy, for devices and for the coordinator, and the proxy that both have in one process.

Between organisations the same two protocols are spoken over HTTPS (`tacit.deploy.proxy_client`).
"""

import threading
from collections.abc import Callable, Collection
from typing import Any, Protocol

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tacit.errors import PrivacyRefused
from tacit.secure.shuffler import BatchTerms, Closed, Shuffler, UnknownBatch

Array = np.ndarray[Any, Any]


class DeviceEnd(Protocol):
    """A device's end. `key` is the coordinator's public key, to which reports are sealed."""

    @property
    def key(self) -> bytes: ...

    def send(self, device: str, planned: BatchTerms, message: bytes) -> bool:
        """Hand over sealed reports, if the proxy has opened the batch as it was planned; refuse otherwise.

        False where the proxy cannot be reached, or does not know the batch: the same bytes may be sent again.
        """


class CoordinatorEnd(Protocol):
    """The coordinator's end, with the private key that opens reports."""

    @property
    def private_key(self) -> X25519PrivateKey: ...

    def open(self, terms: BatchTerms, devices: Collection[str]) -> None:
        """Open a batch for these devices; open already, it stays as it is."""

    def collect(self, context: str) -> Array | None:
        """Close a batch and fetch it, (n, length) uint8; None where the proxy does not know it any more."""

    def forget(self, context: str) -> None:
        """Let the proxy drop a batch that has arrived."""


def check_terms(opened: BatchTerms, planned: BatchTerms) -> None:
    """Refuse to hand reports to a batch that hides a device among fewer others than its guarantee counts on."""
    if opened.crowd < planned.crowd:
        raise PrivacyRefused(
            f"The proxy would forward this batch with the reports of {opened.crowd:,} devices, and the guarantee "
            f"counts on {planned.crowd:,}; nothing was sent."
        )
    if opened != BatchTerms(planned.context, opened.crowd, planned.length):
        raise PrivacyRefused("The proxy has opened this batch for reports of another length; nothing was sent.")


class InProcessProxy:
    """Both ends and the shuffler between them, without sockets: the same checks, for simulations and tests.

    Parameters
    ----------
    private_key : the coordinator's
    randomness : as in `Shuffler`
    """

    def __init__(self, private_key: X25519PrivateKey, randomness: Callable[[int], bytes]) -> None:
        self.private_key, self.key = private_key, private_key.public_key().public_bytes_raw()
        self._shuffler, self._lock = Shuffler(randomness), threading.Lock()

    def open(self, terms: BatchTerms, devices: Collection[str]) -> None:
        with self._lock:
            self._shuffler.open(terms, devices)

    def send(self, device: str, planned: BatchTerms, message: bytes) -> bool:
        with self._lock:
            try:
                check_terms(self._shuffler.terms(device, planned.context), planned)
                return self._shuffler.accept(device, planned.context, message) > 0
            except (UnknownBatch, Closed):
                return False

    def collect(self, context: str) -> Array | None:
        with self._lock:
            try:
                return self._shuffler.close(context)
            except UnknownBatch:
                return None

    def forget(self, context: str) -> None:
        with self._lock:
            self._shuffler.forget(context)
