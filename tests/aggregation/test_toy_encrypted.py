"""A toy encrypted aggregation, in this one file: additively homomorphic encryption under a key that all parties share.

It shows that an aggregation needs nothing of the package changed. IT IS NOT SECURE: its ring is far too small. The
scheme is the textbook one over Z_q[x]/(xⁿ + 1): party i has a small secret s_i and publishes p_i = e_i − a·s_i; with
p = Σ p_i everyone encrypts m as (u, v) = (a·r + e', p·r + e'' + Δ·m), ciphertexts are added, and Σ v + Σ_i s_i·(Σ u)
is Δ·Σm plus errors far below Δ. No party can open anything alone, and each helps to open one thing per request.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from plugged import plugged

from tacit import aggregation as aggregations
from tacit.aggregation.aggregation import Aggregation, decoded, nothing_to_hide
from tacit.boundary.code import SEALED, Grid
from tacit.boundary.mechanisms import Skellam
from tacit.boundary.release import Kind
from tacit.boundary.wire import encode
from tacit.config import AggregationSection, RunFile
from tacit.deploy.local_sites import LocalSites
from tacit.deploy.local_sites import train as train_apart
from tacit.errors import BadMessage, PeerFailed, PrivacyRefused, UsageError
from tacit.federation.calls import Call, View
from tacit.federation.messages import Bytes, BytesByParty, Exchange, Hash, Request, Schema, named_parties, pack_parties
from tacit.guarantee import Trust
from tacit.partition import Setting
from tacit.prepare.loaded import prepare
from tacit.prepare.simulate import train
from tacit.prepare.simulated_ledgers import Records
from tacit.secure.masks import words
from tacit.secure.quantize import wrapped

N, LOG_Q, SMUDGE = 16, 128, 2**40  # degree, log₂ of the modulus, and the size of what hides s_i·u in an opening
Q, WIDE = 1 << LOG_Q, LOG_Q // 8


def drawn(seed: bytes, label: str, count: int, size: int) -> np.ndarray:
    """Numbers from 0 to size − 1, for polynomials' coefficients; (count, N) of Python's integers."""
    raw = hashlib.shake_256(seed + label.encode()).digest(count * N * WIDE)
    return (from_bytes(np.frombuffer(raw, dtype=np.uint8)) % size).reshape(count, N)


def small(seed: bytes, label: str, count: int = 1) -> np.ndarray:
    """Coefficients −1, 0 or 1."""
    return drawn(seed, label, count, 3) - 1


def times(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Row by row the product modulo xⁿ + 1 and q; one row serves all."""
    rows = []
    for left, right in zip(*np.broadcast_arrays(a, b), strict=True):
        whole = np.convolve(left, right)
        rows.append((whole[:N] - np.append(whole[N:], 0)) % Q)
    return np.array(rows, dtype=object)


def to_bytes(polynomials: np.ndarray) -> np.ndarray:
    raw = b"".join(int(number % Q).to_bytes(WIDE, "little") for number in polynomials.ravel())
    return np.frombuffer(raw, dtype=np.uint8)


def from_bytes(raw: np.ndarray) -> np.ndarray:
    body = raw.tobytes()
    numbers = [int.from_bytes(body[at : at + WIDE], "little") for at in range(0, len(body), WIDE)]
    return np.array(numbers, dtype=object)


KEY, JOINT = "toy key", "toy joint key"


@dataclass(frozen=True)
class Toy(Aggregation):
    """Sums under encryption, whose key nobody has.

    Guarantee
    ---------
    If the ring were large enough: a coordinator that asks for sums alone to be opened, and one party that helps it, see
    the sum of the others alone. Each party adds a share of variance σ²/(n − 1): without the helper's, σ² is left. Every
    party has to stay.
    """

    name: ClassVar[str] = "toy"
    hides: ClassVar[frozenset[Kind]] = frozenset({Kind.SUM})
    exchanges: ClassVar[Mapping[str, Exchange]] = {
        "offer": Exchange(Schema(context=Hash()), Schema(key=Bytes(N * WIDE)), "its part of a public key for one sum"),
        "meet": Exchange(BytesByParty(context=Hash()), Schema(met=Bytes(1)), "the word that all parts have arrived"),
        "open": Exchange(
            Schema(context=Hash(), total=Bytes(2**24)),
            Schema(part=Bytes(2**24)),
            "its part in opening an encrypted sum",
        ),
    }
    first: ClassVar[frozenset[str]] = frozenset({"offer"})

    @classmethod
    def of(cls, setting, parties, section):
        if setting is not Setting.HORIZONTAL or parties < 3:
            raise UsageError('[aggregation] name = "toy" is for three silos of users or more; use "secagg".')
        return cls(setting, parties)

    @property
    def fewest(self):
        return self.parties

    def check(self, method, steps):
        if not any(self.hidden(*step) for step in steps.values()):
            raise nothing_to_hide("toy", method, "encrypts contributions to a sum", '"plain"')

    def trust(self):
        return Trust.DISTRIBUTED, "the coordinator, if it opens sums alone, and one colluding party"

    def noise(self, sigma, contributors):
        return sigma * (contributors / (self.parties - 1)) ** 0.5

    def largest_variance(self, variance):
        return variance * self.parties / (self.parties - 1)

    # -- a party's side

    def seals(self, terms):
        return terms.sealed

    def answer(self, exchange, payload, endpoint):
        about = bytes.fromhex(endpoint.context)
        if exchange == "offer":
            if self._kept(KEY, endpoint) is not None:
                raise PrivacyRefused(f"{endpoint.party} has a key for this sum already, and makes no second one.")
            seed = endpoint.seed("toy", endpoint.context)
            self._keep(KEY, endpoint, seed)
            return {"key": to_bytes(self._public(about, seed))}
        seed = self._kept(KEY, endpoint)
        if seed is None:
            raise PrivacyRefused(f"{endpoint.party} has no key for this sum; nothing was released.")
        if exchange == "meet":
            keys = [from_bytes(payload[name]) for name in endpoint.peers.names if name in payload]
            if len(keys) < self.parties or not (keys[self._place(endpoint)] == self._public(about, seed)[0]).all():
                raise PrivacyRefused(f"{endpoint.party} misses a part of the key, or its own.")
            self._keep(JOINT, endpoint, to_bytes(sum(keys)).tobytes())
            return {"met": np.ones(1, dtype=np.uint8)}
        if self._kept(JOINT, endpoint) is None:
            raise PrivacyRefused(f"{endpoint.party} has helped to open what this request gave, and does so once.")
        total = from_bytes(payload["total"]).reshape(-1, N)
        endpoint.save(JOINT, np.zeros(1, dtype=np.uint8))
        smudge = drawn(endpoint.seed("smudge", endpoint.context), "smudge", len(total), SMUDGE)
        return {"part": to_bytes(times(small(seed, "secret"), total) + smudge)}

    def ready(self, terms, endpoint):
        if terms.sealed and self._kept(JOINT, endpoint) is None:
            raise PrivacyRefused(f"{endpoint.party} has no key to encrypt this with; nothing was released.")

    def noised(self, exact, terms, endpoint):
        if not isinstance(terms.code, Grid):
            return exact
        return Skellam(terms.code.variance / (self.parties - 1)).add(exact, endpoint.source("noise", 0))

    def seal(self, vector, terms, endpoint):
        if not terms.sealed:
            return super().seal(vector, terms, endpoint)
        bits, about = terms.code.bits, bytes.fromhex(endpoint.context)
        padded = [*wrapped(vector, bits).tolist(), *[0] * (-len(vector) % N)]
        numbers = np.array(padded, dtype=object).reshape(-1, N)
        joint, seed, count = self._kept(JOINT, endpoint), endpoint.seed("seal", endpoint.context), len(numbers)
        a, p, r = drawn(about, "a", 1, Q), from_bytes(np.frombuffer(joint, np.uint8))[None], small(seed, "r", count)
        u = times(a, r) + small(seed, "u", count)
        v = times(p, r) + small(seed, "v", count) + numbers * (Q >> bits)
        return {SEALED: to_bytes(np.stack([u, v]))}

    def check_sealed(self, payload, terms, cells, who):
        if not terms.sealed:
            return super().check_sealed(payload, terms, cells, who)
        body, size = payload.get(SEALED), 2 * -(-cells // N) * N * WIDE
        if len(payload) > 1 or not isinstance(body, np.ndarray) or (body.dtype, body.shape) != (np.uint8, (size,)):
            raise BadMessage(f"What {who} sent is not {cells:,} encrypted numbers.")
        return None

    def _public(self, about, seed):
        return (small(seed, "error") - times(drawn(about, "a", 1, Q), small(seed, "secret"))) % Q

    def _place(self, endpoint):
        return endpoint.peers.names.index(endpoint.party)

    def _keep(self, name, endpoint, secret):
        endpoint.save(name, np.frombuffer(bytes.fromhex(endpoint.context) + secret, dtype=np.uint8))

    def _kept(self, name, endpoint):
        state = endpoint.load(name)
        raw = b"" if state is None else state.tobytes()
        return raw[32:] if raw[:32] == bytes.fromhex(endpoint.context) else None

    # -- the coordinator's side

    def add(self, call):
        names, bits, size = call.peers.names, call.terms.code.bits, call.size
        context, there = {"context": call.request.hash}, call.attendance(exchanges=4)
        keys = call.exchange("offer", dict.fromkeys(names, context), there[0])
        if len(keys) < len(names):
            return None
        public = {name: body["key"] for name, body in keys.items()}
        met = call.exchange("meet", {name: {**context, **public} for name in names}, there[1])
        if len(met) < len(names):
            return None

        def reduce(answers, _there):
            bodies = [from_bytes(body[SEALED]) for _answer, body in answers]
            here = pack_parties({answer.party for answer, _body in answers}, names)
            return {"here": here, "total": to_bytes(sum(bodies, np.zeros(1, dtype=object)))}

        result = call.contributions(reduce, view=View.MASKED, names=names, there=there[2])
        if len(named_parties(result["here"], names)) < len(names):
            return None
        u, v = from_bytes(result["total"]).reshape(2, -1, N)
        parts = call.exchange("open", {name: {**context, "total": to_bytes(u)} for name in names}, there[3])
        if len(parts) < len(names):
            return None
        noisy = v + sum(from_bytes(body["part"]).reshape(-1, N) for body in parts.values())
        whole = (((noisy % Q) + (Q >> (bits + 1))) >> (LOG_Q - bits)) % (1 << bits)
        return decoded(call, len(names), whole.ravel()[:size].astype(words(bits)))


PRIVATE = {"epsilon": 4.0, "delta": 1e-4}
METHODS = ("bias", "feature-slopes")


@pytest.fixture(autouse=True)
def known():
    aggregations.known()["toy"] = Toy
    with plugged():
        yield
    del aggregations.known()["toy"]


def file(method, privacy=None, **sections) -> RunFile:
    base = {
        "data": {"users": 45, "items": 15, "ratings": 400},
        "public": {"features": ["genres"]},
        "partition": {"into": 3},
        "method": {"name": method, **({"directions": 2} if method == "feature-slopes" else {})},
        "privacy": privacy,
        "aggregation": {"name": "toy", "tolerate": 0.0},
    }
    return RunFile.model_validate({**base, **sections})


def held(folder, *args, **sections):
    made = prepare(file(*args, **sections))
    return made, train(
        made.run, made.parties, records=Records.of(made.run, folder / "ledgers"), payloads=folder / "all"
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("privacy", [None, PRIVATE], ids=["non-private", "private"])
def test_what_is_opened_is_exactly_the_sum_of_what_was_encrypted(tmp_path, monkeypatch, method, privacy):
    vectors, totals, seal, add = [], [], Toy.seal, Toy.add

    def sealing(self, vector, terms, endpoint):
        vectors.append((terms, vector))
        return seal(self, vector, terms, endpoint)

    def adding(self, call):
        total = add(self, call)
        totals.append((call.terms, total))
        return total

    monkeypatch.setattr(Toy, "seal", sealing)
    monkeypatch.setattr(Toy, "add", adding)
    made, trained = held(tmp_path, method, privacy)
    assert len(vectors) == 3 * len(totals)
    for place, (terms, total) in enumerate(totals):
        added = sum(vector for _terms, vector in vectors[3 * place : 3 * place + 3])
        step = terms.code.rounding.step if privacy else terms.code.step
        found = np.concatenate([total.blocks[name].ravel() for name in sorted(total.blocks)])
        np.testing.assert_array_equal(found, (added * step).astype(np.float32))
    if privacy:
        assert made.run.guarantee.epsilon <= 4.0
        assert made.run.guarantee.trust is Trust.DISTRIBUTED
    else:
        assert made.run.hidden.endswith("hidden from the coordinator, if it opens sums alone, and one colluding party")
    # nobody sees a single contribution: neither its numbers nor its bytes are in any message
    messages = [path.read_bytes() for path in (tmp_path / "all").iterdir()]
    for terms, vector in vectors:
        plain = terms.code.payload(vector)[SEALED].tobytes()
        assert not any(plain in message for message in messages)
    names = made.parties.names  # what else is up there is the opened sum, which the coordinator sees
    sums = [entry for entry in trained.transcript.entries if entry.kind == "sum" and entry.party in names]
    sums = [entry for entry in sums if entry.direction == "up"]
    assert len(sums) == len(vectors)
    assert all(entry.digest == "" for entry in sums)


def test_the_noise_on_a_sum_is_what_is_said_of_it(tmp_path, monkeypatch):
    noises, noised = [], Toy.noised

    def noising(self, exact, terms, endpoint):
        noises.append(noised(self, exact, terms, endpoint) - exact)
        return exact + noises[-1]

    monkeypatch.setattr(Toy, "noised", noising)
    made, _trained = held(tmp_path, "bias", PRIVATE, data={"users": 45, "items": 500, "ratings": 2000})
    (terms,) = made.run.plan.terms.steps.values()
    said = made.run.how.noise(terms.sigma, 3) / terms.code.rounding.step
    assert np.std(sum(noises)) == pytest.approx(said, rel=0.12)  # 1,000 cells: five standard deviations


def test_a_party_asked_without_an_exchange_of_keys_gives_nothing():
    made = prepare(file("bias"))
    request = Request("bias", made.run.bound, "contribute", 1, 0, encode({}))
    with pytest.raises(PrivacyRefused, match="party-1 has no key to encrypt this with; nothing was released"):
        made.run.party(made.parties[0]).answer(request)


def test_a_party_helps_to_open_one_sum_of_a_request(tmp_path, monkeypatch):
    exchange, seen = Call.exchange, {}

    def noted(self, name, payloads, there=None):
        seen[name] = payloads["party-1"]
        return exchange(self, name, payloads, there)

    monkeypatch.setattr(Call, "exchange", noted)
    made = prepare(file("bias"))
    trained = train(made.run, made.parties)
    again = Request("bias", made.run.bound, "open:contribute", 1, 0, encode(seen["open"]))
    with pytest.raises(PrivacyRefused, match="has helped to open what this request gave, and does so once"):
        trained.parties[0].answer(again)


def test_a_party_that_drops_out_makes_a_sum_void(tmp_path):
    made = prepare(file("bias").model_copy(update={"aggregation": AggregationSection(name="toy", dropout=0.9)}))
    with pytest.raises(PeerFailed, match="at least 3 must"):
        train(made.run, made.parties)


def test_parties_in_processes_of_their_own_say_the_same(tmp_path, monkeypatch):
    """A site finds it by an entry point of an installed package: here, this very file. With seeded noise, and none."""
    info = tmp_path / "site" / "toy-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[tacit.aggregations]\ntoy = {__name__.rpartition('.')[2]}:Toy\n")
    here = __file__.rpartition("/")[0]
    root = here.rpartition("/tests/")[0]
    path = [str(tmp_path / "site"), here, f"{root}/tests/e2e", f"{root}/examples/plugin"]
    monkeypatch.setenv("PYTHONPATH", ":".join(path))
    sites = LocalSites(tmp_path / "sites", ("party-1", "party-2", "party-3"))
    try:
        sites.start_all()
        for privacy, run_id in ((PRIVATE, "ab" * 16), (None, "cd" * 16)):
            table = file("bias", privacy, engine={"name": "flare", "seeded": True if privacy else None})
            made = prepare(table)
            run = made.run.named(run_id)
            together = train(run, made.parties, records=Records.of(run, tmp_path / "ledgers"))
            divided = train_apart(sites, table, run, made.parties)
            assert divided.transcript.digest == together.transcript.digest
    finally:
        sites.stop()
