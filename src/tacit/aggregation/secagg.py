"""`secagg`: masks hide every contribution, and the parties share the noise (`tacit.secure`).

Every exchange belongs to one *context*, the hash of the request whose answer is masked, so keys, shares and masks
serve that request alone and a new attempt has new ones. A party saves what it drew with each answer, so it can continue
after a crash. A malformed message is left out under its sender's name, and the sum continues without it.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from tacit.aggregation.aggregation import Aggregation, colluders, colluding, decoded, nothing_to_hide
from tacit.aggregation.ideal import HiddenSum
from tacit.boundary.code import SEALED, Grid
from tacit.boundary.endpoint import SEALED_BEFORE, STATE, Endpoint, Peers
from tacit.boundary.mechanisms import Skellam
from tacit.boundary.randomness import Keyed
from tacit.boundary.release import Kind
from tacit.boundary.spec import StepTerms
from tacit.boundary.wire import Array, Value
from tacit.config import AggregationSection
from tacit.errors import PeerFailed, PrivacyRefused
from tacit.federation.calls import Answers, Call, Total, View
from tacit.federation.dropout import Attendance
from tacit.federation.facts import Member
from tacit.federation.messages import (
    Bytes,
    BytesByParty,
    Exchange,
    Hash,
    PackedParties,
    Schema,
    Step,
    named_parties,
    pack_parties,
)
from tacit.guarantee import Trust
from tacit.partition import Setting
from tacit.secure.graph import Shape, choose
from tacit.secure.masks import pack, unpack, words
from tacit.secure.noise_shares import NoiseShares
from tacit.secure.quantize import reduced, wrapped
from tacit.secure.secagg_party import SecAggParty
from tacit.secure.secagg_protocol import SecureSum, Traffic, VoidRound, overhead
from tacit.secure.secagg_server import SecAggServer

#: Survivors, their sum, and by survivor the revealed seeds of noise.
_Unmasked = tuple[Sequence[str], Array, Mapping[str, Mapping[int, bytes]]]

_CONTEXT, _LISTED = Hash(), PackedParties()

EXCHANGES: Mapping[str, Exchange] = {
    "advertise": Exchange(Schema(context=_CONTEXT), Schema(keys=Bytes()), "fresh public keys for one secure sum"),
    "share": Exchange(
        BytesByParty(context=_CONTEXT),
        BytesByParty(),
        "sealed shares of what unmasks its contribution, for its neighbours",
    ),
    "collect": Exchange(BytesByParty(context=_CONTEXT), Schema(rejected=_LISTED), "whose shares arrived damaged"),
    "confirm": Exchange(
        Schema(context=_CONTEXT, survivors=_LISTED),
        Schema(signature=Bytes()),
        "a signature under the list of those that stayed",
    ),
    "unmask": Exchange(
        BytesByParty(context=_CONTEXT, survivors=_LISTED),
        Schema(answer=Bytes()),
        "shares that take the masks off the sum of those that stayed",
    ),
}


@dataclass(frozen=True)
class _Terms(Aggregation):
    """What `secagg` promises, whether parties run it or a simulation counts it."""

    tolerate: float = 0.3
    colluding: int = 1
    signed: bool = False
    retried: int = 0

    name: ClassVar[str] = "secagg"
    seen: ClassVar[str] = "the coordinator sees the sum only, while enough parties follow the protocol"
    hides: ClassVar[frozenset[Kind]] = frozenset({Kind.SUM, Kind.CHAIN})

    @cached_property
    def shares(self) -> NoiseShares:
        return NoiseShares.of(self.parties, self.tolerate, self.colluding)

    @cached_property
    def shape(self) -> Shape:
        """Which parties mask with each other."""
        return choose(self.parties, self.tolerate, self.colluding, self.signs)

    @property
    def signs(self) -> bool:  # type: ignore[override]
        return self.signed

    @property
    def fewest(self) -> int:  # type: ignore[override]
        return self.shares.fewest

    @property
    def retries(self) -> int:  # type: ignore[override]
        return self.retried

    def check(self, method: str, steps: Mapping[str, tuple[Kind, bool]]) -> None:
        if not any(self.hidden(*step) for step in steps.values()):
            raise nothing_to_hide("secagg", method, "hides contributions to a sum, or to a mean over parties")

    def trust(self) -> tuple[Trust, str]:
        many = "devices" if self.setting is Setting.DEVICE else "parties"
        lying = ", who may lie about who stayed," if self.signs else ""
        who = colluders(self.colluding, self.setting)
        return Trust.DISTRIBUTED, f"the coordinator{lying} and {who}, if {self.shares.honest:,} honest {many} stay"

    def noise(self, sigma: float, contributors: int) -> float:
        return math.sqrt(self.shares.remaining_variance(sigma * sigma, contributors))

    def largest_variance(self, variance: float) -> float:
        return self.shares.largest_variance(variance)

    @property
    def noise_share(self) -> float:  # type: ignore[override]
        return 1 / math.sqrt(max(1, self.parties - self.colluding))

    @property
    def traffic(self) -> Traffic:
        return overhead(self.shape, self.shares.extras, self.shares.extras)

    def description(self) -> dict[str, Any] | None:
        return {
            "colluding": self.colluding,
            "honest": self.shares.honest,
            "fewest": self.shares.fewest,
            "levels": list(self.shares.levels),
            "neighbours": self.shape.degree,
            "threshold": self.shape.threshold,
            "signed": self.signs,
            "bytes_up_each": self.traffic.up,
            "bytes_down_each": self.traffic.down,
        }

    def messages(self, step: Step, simulated: bool) -> dict[str, Step]:
        if not simulated:
            every = super().messages(step, simulated)
            return {name: message for name, message in every.items() if self.signs or not name.startswith("confirm:")}
        what = "keys, sealed shares and what unmasks, of every device: counted as the protocol would send it, not run"
        name = f"protocol:{step.name}"
        return {name: Step(name, Kind.PUBLIC, BytesByParty(), BytesByParty(), what)}


@dataclass(frozen=True)
class CountedSecAgg(HiddenSum, _Terms):
    """`secagg` over cohorts of devices: sum and noise are what the protocol would give; its bytes are counted."""

    def count_traffic(self, call: Call, there: Attendance) -> None:
        call.messenger.count_protocol(call.request, self.traffic.up, self.traffic.down, there)


@dataclass(frozen=True)
class SecAgg(_Terms):
    """Sums and means under masks.

    Attributes
    ----------
    tolerate : ω, the fraction of parties that may drop out
    colluding : c, how many of all parties may collude; at least one
    signed : whether survivors sign the list of survivors, against a coordinator that lies
    retried : how many void sums may be tried again, over the whole run

    Guarantee
    ---------
    That of `tacit.secure.secagg_protocol` for what is hidden, and of `tacit.secure.noise_shares` for the remaining
    noise. In a masked mean of chains each party's own noise is in its chain. Which steps are masked is a term of the
    run: a party masks them for this very request, after keys and shares were exchanged, or releases nothing.
    """

    exchanges: ClassVar[Mapping[str, Exchange]] = EXCHANGES
    first: ClassVar[frozenset[str]] = frozenset({"advertise"})

    @classmethod
    def of(cls, setting: Setting, parties: int, section: AggregationSection) -> Self:
        many = colluding(section.collusion, parties)
        made = cls(setting, parties, section.tolerate, many, section.signed, section.retries)
        _ = made.shape, made.shares  # refuse too few parties, or too many that may drop out or collude
        return made

    def for_roster(self, roster: tuple[Member, ...]) -> Aggregation:
        terms = (self.setting, self.parties, self.tolerate, self.colluding, self.signed, self.retried)
        return CountedSecAgg(*terms) if any(member.devices > 1 for member in roster) else self

    def seals(self, terms: StepTerms) -> bool:
        return terms.sealed

    # -- the party's side: exchanges carry random numbers alone -----------------------------------------------

    def answer(self, exchange: str, payload: Mapping[str, Any], endpoint: Endpoint) -> Mapping[str, Value]:
        """One exchange of the protocol. How much excess noise is revealed follows from the survivor list, here."""
        party = self._begin(endpoint) if exchange == "advertise" else self._party(endpoint)
        names, own = endpoint.peers.names, ("context", "survivors")
        received = {name: value.tobytes() for name, value in payload.items() if name not in own}
        survivors = named_parties(payload["survivors"], names) if "survivors" in payload else []
        match exchange:
            case "advertise":
                answer = {"keys": party.advertise()}
            case "share":
                levels = range(self.shares.extras)
                answer = party.share(received, [endpoint.seed("excess", level, endpoint.context) for level in levels])
            case "collect":
                answer = {"rejected": pack_parties(party.collect(received), names).tobytes()}
            case "confirm":
                answer = {"signature": party.confirm(survivors)}
            case "unmask":
                reveal = range(self.shares.spare(len(survivors)))
                answer = {"answer": party.unmask(survivors, reveal, received or None)}
            case _:
                return super().answer(exchange, payload, endpoint)
        _save(endpoint, party)
        return _arrays(answer)

    def ready(self, terms: StepTerms, endpoint: Endpoint) -> None:
        """Refuse what this party cannot mask: keys and shares were not exchanged for this very request, or not all."""
        if terms.sealed and not (_begun(endpoint) and self._party(endpoint).can_mask):
            raise PrivacyRefused(
                f"{endpoint.party} releases this under masks alone, and none were agreed on for this request; nothing "
                "was released: exchange keys and shares first."
            )

    def noised(self, exact: Any, terms: StepTerms, endpoint: Endpoint) -> Any:
        """Integers plus this party's share of the noise: a part that stays, and parts that may be revealed."""
        if not terms.sealed or not isinstance(terms.code, Grid):
            return super().noised(exact, terms, endpoint)
        variance, seeds = terms.code.variance, self._party(endpoint).extras
        base = Skellam(self.shares.base(variance)).sample(exact.size, endpoint.source("noise", 0))
        out: Array = exact + base
        for part, seed in zip(self.shares.excess(variance), seeds, strict=True):
            out += Skellam(part).sample(exact.size, Keyed(seed))
        return out

    def seal(self, vector: Any, terms: StepTerms, endpoint: Endpoint) -> Mapping[str, Value]:
        """A vector under this sum's masks, as it travels."""
        if not terms.sealed:
            return super().seal(vector, terms, endpoint)
        party, bits = self._party(endpoint), terms.code.bits
        masked = party.mask(wrapped(vector, bits), bits)
        if not endpoint.recorded:  # else the ledger knows
            past = _sealed_before(endpoint) + bytes.fromhex(endpoint.context)
            endpoint.save(SEALED_BEFORE, np.frombuffer(past, dtype=np.uint8))
        _save(endpoint, party)
        return {SEALED: pack(masked, bits)}

    def _begin(self, endpoint: Endpoint) -> SecAggParty:
        """A party with fresh keys; two vectors under the same masks would show both, so no sum begins twice."""
        if _begun(endpoint) or bytes.fromhex(endpoint.context) in _sealed_before(endpoint):
            raise PrivacyRefused(f"{endpoint.party} has begun this secure sum already, and begins none twice.")
        return SecAggParty(endpoint.party, self._sum(endpoint.peers, endpoint.context), endpoint.peers.identity)

    def _party(self, endpoint: Endpoint) -> SecAggParty:
        """The party as it was after its latest answer in this sum."""
        state = endpoint.load(STATE)
        if state is None or not _begun(endpoint):
            raise PrivacyRefused(
                f"{endpoint.party} was asked to continue a secure sum that it did not begin, or that another one has "
                "replaced; nothing was released: exchange keys again."
            )
        saved, about = state[len(endpoint.context) // 2 :].tobytes(), self._sum(endpoint.peers, endpoint.context)
        return SecAggParty.restore(saved, about, endpoint.peers.identity)

    def _sum(self, peers: Peers, context: str) -> SecureSum:
        """The sum of one request, bound to the run and to that request."""
        if len(peers.names) != self.parties:
            raise PrivacyRefused(
                f"The noise was planned for {self.parties:,} parties, and {len(peers.names):,} take part; plan again."
            )
        bound = hashlib.sha256(f"{peers.run}|{context}".encode()).digest()
        return SecureSum(peers.names, self.shape, bound, self.shares.extras, peers.identities)

    # -- the coordinator's side -------------------------------------------------------------------------------

    def add(self, call: Call) -> Total | None:
        """The survivors' sum once spare noise is taken out; None where too few stayed."""
        if not call.terms.sealed:
            return super().add(call)
        try:
            survivors, total, revealed = self._unmasked(call)
        except VoidRound:
            return None
        bits = call.terms.code.bits
        return decoded(call, len(survivors), reduced(total - wrapped(self._excess(revealed, call), bits), bits))

    def mean(self, call: Call) -> Array:
        """Σ weight·block over those that stayed, by their masks, over the sum of their weights."""
        if not call.terms.sealed:
            return super().mean(call)
        (shape,) = call.shapes.values()
        try:
            survivors, total, _revealed = self._unmasked(call)
        except VoidRound as void:
            raise PeerFailed(
                f'The masked mean of step "{call.request.step}" in round {call.request.round} is void, and what left '
                f"is charged: {void} Allow for more drop-outs with [aggregation] tolerate."
            ) from void
        weight = sum(call.facts.weight(name) for name in survivors)
        mean: Array = (call.terms.code.numbers(total) / weight).reshape(shape).astype(np.float32)
        return mean

    def _unmasked(self, call: Call) -> _Unmasked:
        """Who survived, their sum, and the revealed seeds of noise; bad messages are noted even if the sum is void."""
        server = SecAggServer(self._sum(call.peers, call.request.hash))
        try:
            return self._run(server, call)
        finally:
            call.rejected.update(server.rejected)

    def _run(self, server: SecAggServer, call: Call) -> _Unmasked:
        names, exchange = call.peers.names, call.exchange
        context: dict[str, Value] = {"context": call.request.hash}
        there = call.attendance(exchanges=5)
        keys = exchange("advertise", {name: {**context} for name in names}, there[0])
        sent = server.keys({name: body["keys"].tobytes() for name, body in keys.items()})
        shared = exchange("share", {n: {**context, **_arrays(sent[n])} for n in sent}, there[1])
        mail = server.mail({name: {to: x.tobytes() for to, x in body.items()} for name, body in shared.items()})
        ready = exchange("collect", {n: {**context, **_arrays(mail[n])} for n in mail}, there[2])
        for party, body in ready.items():
            for sender in named_parties(body["rejected"], names):
                call.rejected[sender] = f"{party} could not open the mail of {sender}, which was damaged."
        if len(ready) < self.shape.fewest:  # before any vector is requested, and charged
            raise VoidRound(f"Only {len(ready)} of {len(names)} parties could be masked with each other.")
        survivors, total = self._contributions(call, list(ready), there[3])
        listed = server.survivors(survivors)
        about: dict[str, Value] = {**context, "survivors": pack_parties(listed, names)}
        signatures: dict[str, Value] = {}
        if self.signs:
            confirmed = exchange("confirm", {name: {**about} for name in listed}, there[3])
            signatures = {name: body["signature"] for name, body in confirmed.items()}
        answers = exchange("unmask", {name: {**about, **signatures} for name in listed}, there[4])
        read = {name: body["answer"].tobytes() for name, body in answers.items()}
        shown = server.unmasked(total, read, call.terms.code.bits)
        return listed, shown.total, shown.extras

    def _contributions(self, call: Call, ready: Sequence[str], there: Attendance) -> tuple[list[str], Array]:
        """Whose masked vectors arrived, and their sum; single vectors are not stored."""
        names, size, bits = call.peers.names, call.size, call.terms.code.bits

        def reduce(answers: Answers, _there: Attendance) -> dict[str, Value]:
            total = np.zeros(size, dtype=words(bits))
            for _answer, body in answers:
                total += unpack(body[SEALED], size, bits)
            arrived = {answer.party for answer, _body in answers}
            return {"survivors": pack_parties(arrived, names), "total": pack(reduced(total, bits), bits)}

        result = call.contributions(reduce, view=View.MASKED, names=ready, there=there)
        return named_parties(result["survivors"], names), unpack(result["total"], size, bits)

    def _excess(self, revealed: Mapping[str, Mapping[int, bytes]], call: Call) -> Array:
        """The noise whose seeds were revealed, added up: it is subtracted from the sum; (size,) int64."""
        code, total = call.terms.code, np.zeros(call.size, dtype=np.int64)
        if isinstance(code, Grid):
            variances = self.shares.excess(code.variance)
            for seeds in revealed.values():
                for level, seed in seeds.items():
                    total += Skellam(variances[level]).sample(call.size, Keyed(seed))
        return total


def _begun(endpoint: Endpoint) -> bool:
    """Whether keys were exchanged for this very request."""
    state, context = endpoint.load(STATE), bytes.fromhex(endpoint.context)
    return state is not None and state[: len(context)].tobytes() == context


def _save(endpoint: Endpoint, party: SecAggParty) -> None:
    endpoint.save(STATE, np.frombuffer(bytes.fromhex(endpoint.context) + party.state(), dtype=np.uint8))


def _sealed_before(endpoint: Endpoint) -> bytes:
    """The contexts of all requests that this party masked a vector for, where no ledger records them."""
    before = endpoint.load(SEALED_BEFORE)
    return b"" if before is None else before.tobytes()


def _arrays(parts: Mapping[str, bytes]) -> dict[str, Value]:
    return {name: np.frombuffer(part, dtype=np.uint8) for name, part in parts.items()}
