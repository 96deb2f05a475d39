"""How many sealed reports a second `tacit proxy` takes, shuffles and forwards, and whether its memory stays flat.

The service is a process of its own. A thousand devices, each with a certificate, send a hundred reports a batch, and
the coordinator collects it: in the first batch over new connections, whose handshakes are the larger part, then over
those that are kept. Counted is the processor time of the proxy's process, since the devices share the machine's cores
with it; beside it is what AES-GCM and a random order of the same bytes cost.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from benchmarks.common.fresh import ROOT
from benchmarks.common.result import Missing, Result
from tacit.deploy import certificates as x509
from tacit.deploy.keyring import Keyring
from tacit.deploy.local_sites import free_port
from tacit.deploy.proxy_client import CoordinatorLine, Line
from tacit.engine.cells import Credentials, check_installed, raise_descriptor_limit
from tacit.errors import UsageError
from tacit.secure.shuffler import BatchTerms, random_order

DEVICES, REPORTS, LENGTH, BATCHES = 1000, 100, 56, 10
LEAST = 20_000  # reports a second
#: By how much memory may be larger after the last batch than after the third.
FLAT = 1.05
TICK = os.sysconf("SC_CLK_TCK")


def measure() -> list[Result]:
    """Seconds of processor time for as many reports as a second is to take, and megabytes."""
    try:
        check_installed()
    except UsageError as error:
        raise Missing(str(error)) from None
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        seconds, megabytes = _served(Path(folder), stack)
    count = DEVICES * REPORTS
    ways = {"new connections": seconds[0], "kept connections": float(np.median(seconds[1:]))}
    limit = LEAST * _limit()
    return [
        *(
            Result(f"{LEAST:,} reports, {way}", LEAST * spent / count, "s", "AES-GCM, an order", limit, most=1.0)
            for way, spent in ways.items()
        ),
        Result(
            f"memory of tacit proxy after {BATCHES} batches of {count:,}",
            megabytes[-1],
            "MB",
            "after three",
            megabytes[2],
            most_ratio=FLAT,
        ),
    ]


def _served(folder: Path, stack: ExitStack) -> tuple[list[float], list[float]]:
    """By batch, seconds of the proxy's processor time, and the megabytes that it holds afterwards."""
    keyring = Keyring.make(folder / "keys", federation="bench", host="localhost", port=free_port())
    port = free_port()
    keyring.invite("proxy", at=("localhost", port)).write(folder / "proxy.kit")
    names = [f"party-{k}" for k in range(1, DEVICES + 1)]
    credentials = _invited(keyring, folder, names)
    command = [str(Path(sys.executable).with_name("tacit")), "proxy", "proxy.kit", "--state", "state"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)})
    stack.callback(process.wait)
    stack.callback(process.terminate)
    assert process.stderr is not None
    stack.enter_context(process.stderr)
    process.stderr.readline()  # it listens
    lines = [stack.enter_context(closing(Line("localhost", port, one))) for one, _print in credentials.values()]
    own = stack.enter_context(closing(Line("localhost", port, keyring.credentials())))
    fingerprints = {name: fingerprint for name, (_files, fingerprint) in credentials.items()}
    coordinator = CoordinatorLine(own, X25519PrivateKey.generate(), lambda: fingerprints)
    raise_descriptor_limit()
    message = os.urandom(REPORTS * LENGTH)
    pool = stack.enter_context(ThreadPoolExecutor(2))
    seconds, megabytes = [], []
    for batch in range(BATCHES):
        terms, before = BatchTerms(f"{batch:064x}", DEVICES, LENGTH), _processor(process.pid)
        coordinator.open(terms, names)
        list(pool.map(partial(_sent, terms.context, message), lines))
        found = coordinator.collect(terms.context)
        assert found is not None
        assert len(found) == DEVICES * REPORTS
        coordinator.forget(terms.context)
        seconds.append(_processor(process.pid) - before)
        megabytes.append(_held(process.pid))
    return seconds, megabytes


def _sent(context: str, message: bytes, line: Line) -> bytes:
    return line.request("POST", f"/batches/{context}/reports", message)


def _invited(keyring: Keyring, folder: Path, names: list[str]) -> dict[str, tuple[Credentials, str]]:
    """By name, a certificate's files and its fingerprint; all devices have one key, which saves making a thousand."""
    ca = x509.read_certificate((folder / "keys" / "ca.pem").read_text())
    ca_key, key, made = x509.read_key((folder / "keys" / "ca.key").read_text()), x509.new_key(), {}
    (folder / "device.key").write_text(x509.key_text(key))
    for name in names:
        certificate = x509.site_certificate(name, key, ca, ca_key, 1)
        (folder / f"{name}.crt").write_text(x509.certificate_text(certificate))
        files = Credentials(keyring.folder / "ca.pem", folder / f"{name}.crt", folder / "device.key")
        made[name] = files, x509.fingerprint(certificate)
    return made


def _processor(pid: int) -> float:
    """Seconds of processor time that a process has used."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICK


def _held(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1000


def _limit() -> float:
    """Seconds a report, for opening and sealing its bytes once and one random order."""
    count, cipher, nonce = DEVICES * REPORTS, AESGCM(bytes(16)), bytes(12)
    text, began = os.urandom(count * LENGTH), time.process_time()
    rows = np.frombuffer(cipher.encrypt(nonce, text, None), dtype=np.uint8)[: count * LENGTH].reshape(count, LENGTH)
    cipher.encrypt(nonce, rows[random_order(count, os.urandom)].tobytes(), None)
    return (time.process_time() - began) / count
