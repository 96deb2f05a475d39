"""A secure sum played out in one process: everybody's messages, with places to drop out, to kill and to tamper."""

from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from scipy.stats import chi2

from tacit.rng import derive, stream_key
from tacit.secure.graph import choose
from tacit.secure.masks import words
from tacit.secure.quantize import reduced
from tacit.secure.secagg_party import SecAggParty
from tacit.secure.secagg_protocol import SecureSum
from tacit.secure.secagg_server import SecAggServer

#: The false-alarm rate of every statistical test on masks and shares.
FALSE_ALARM = 1e-9
#: Points of small order of Curve25519 and its twist, as listed by Bernstein ("Curve25519", FAQ).
SMALL_ORDER = [
    bytes(32),
    (1).to_bytes(32, "little"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),  # order 8
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),  # order 8
    (2**255 - 20).to_bytes(32, "little"),  # order 4, on the twist
]


def roster(n):
    return [f"party-{i + 1}" for i in range(n)]


def vector(seed, name, size, bits):
    """Any words mod 2^bits, the extremes among them."""
    drawn = derive(seed, "vector", name).integers(0, 2**bits, size, dtype=np.uint64, endpoint=False)
    drawn[:2] = [0, 2**bits - 1][: len(drawn[:2])]
    return drawn.astype(words(bits))


def ideal(vectors, bits):
    """The sum in Python's own integers."""
    total = [sum(int(v[i]) for v in vectors) % 2**bits for i in range(len(vectors[0]))]
    return np.array(total, dtype=words(bits))


def uniform_p(*samples):
    """The p-value of a chi-square test of bytes against uniform ones."""
    counts = sum(np.bincount(np.frombuffer(bytes(sample), dtype=np.uint8), minlength=256) for sample in samples)
    expected = counts.sum() / 256
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), 255))


def same(opened, round_):
    """Whether what was opened is the ideal sum, in the right words."""
    return opened.total.dtype == words(round_.bits) and np.array_equal(opened.total, round_.wanted())


@dataclass
class Round:
    """One sum. `gone` says after which exchange somebody drops out: "advertise", "share", "collect" or "mask"."""

    n: int
    tolerate: float = 0.3
    colluding: int = 1
    size: int = 6
    bits: int = 32
    extras: int = 0
    signed: bool = False
    context: bytes = b"a sum"
    sealer: type = SecAggParty
    shape: object = None
    parties: dict = field(default_factory=dict)

    def __post_init__(self):
        self.names = roster(self.n)
        self.shape = self.shape or choose(self.n, self.tolerate, self.colluding, self.signed)
        keys = {name: Ed25519PrivateKey.from_private_bytes(stream_key(7, name)) for name in self.names}
        identities = {name: key.public_key() for name, key in keys.items()} if self.signed else None
        self.about = SecureSum(tuple(self.names), self.shape, self.context, self.extras, identities)
        self.identity = keys if self.signed else dict.fromkeys(self.names)
        self.parties = {name: self.sealer(name, self.about, self.identity[name]) for name in self.names}
        self.opener = SecAggServer(self.about)
        self.vectors = {name: vector(7, name, self.size, self.bits) for name in self.names}
        self.secrets = {name: [stream_key(7, name, i) for i in range(self.extras)] for name in self.names}

    def restart(self, name):
        """The party is killed, and comes back from what it kept."""
        self.parties[name] = self.sealer.restore(self.parties[name].state(), self.about, self.identity[name])

    def each(self, names, act):
        """What the parties answer."""
        return {name: act(name, self.parties[name]) for name in names}

    # -- exchanges; `gone` have dropped out by then, and `spoil` is what the network makes of what it carries -------

    def advertise(self, gone=(), spoil=dict):
        there = [name for name in self.names if name not in gone]
        self.keys = self.opener.keys(spoil(self.each(there, lambda _, party: party.advertise())))

    def share(self, gone=(), spoil=dict):
        there = [name for name in self.keys if name not in gone]
        sent = self.each(there, lambda name, party: party.share(self.keys[name], self.secrets[name]))
        self.mail = self.opener.mail(spoil(sent))

    def collect(self, gone=()):
        there = [name for name in self.mail if name not in gone]
        self.noted = self.each(there, lambda name, party: party.collect(self.mail[name]))

    def mask(self, gone=()):
        there = [name for name in self.noted if name not in gone]
        self.masked = self.each(there, lambda name, party: party.mask(self.vectors[name], self.bits))
        self.survivors = self.opener.survivors(self.masked)

    def unmask(self, gone=(), reveal=(), spoil=dict):
        there, signatures = [name for name in self.survivors if name not in gone], None
        if self.signed:
            signatures = self.each(there, lambda _, party: party.confirm(self.survivors))
        answers = self.each(there, lambda _, party: party.unmask(self.survivors, reveal, signatures))
        self.answers = spoil(answers)

    def open(self):
        total = np.sum([self.masked[name] for name in self.survivors], axis=0, dtype=words(self.bits))
        return self.opener.unmasked(reduced(total, self.bits), self.answers, self.bits)

    def wanted(self):
        return ideal([self.vectors[name] for name in self.survivors], self.bits)

    def go(self, *exchanges):
        """Some exchanges, in which everyone left takes part; after "unmask" the sum must be right."""
        for exchange in exchanges:
            getattr(self, exchange)()
        if exchanges[-1] == "unmask":
            assert same(self.open(), self)

    def until_masked(self, gone=()):
        self.go("advertise", "share", "collect")
        self.mask(gone)

    def play(self, gone=None, reveal=()):
        """All of it: `gone` maps an exchange to those that are no longer there from it on."""
        gone, missing = gone or {}, set()
        for exchange in ("advertise", "share", "collect", "mask"):
            missing |= set(gone.get(exchange, ()))
            getattr(self, exchange)(missing)
        self.unmask(missing | set(gone.get("unmask", ())), reveal)
        return self.open()
