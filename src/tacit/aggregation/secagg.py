"""`secagg`: the parties' masks hide every contribution, and their noise is shared (tacit.secure).

Every exchange is about one *context*, the hash of the request whose answer is masked; so keys, shares and masks serve
that request alone, and a new attempt has new ones. What a party drew lives in its home and is saved with each answer,
so that one that was killed goes on where it was. What a party sends that is not as agreed is left out under its name,
and the sum goes on without it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from tacit.aggregation.aggregation import Aggregation, colluders, colluding, nothing_to_hide, opened
from tacit.aggregation.ideal import HiddenSum
from tacit.boundary.code import SEALED, Grid
from tacit.boundary.endpoint import SEALED_BEFORE, STATE, Endpoint, Peers
from tacit.boundary.mechanisms import Skellam
from tacit.boundary.randomness import Keyed
from tacit.boundary.release import Kind
from tacit.boundary.spec import StepTerms
from tacit.boundary.wire import Array, Value
from tacit.config import AggregationSection
from tacit.errors import BadMessage, PeerFailed, PrivacyRefused
from tacit.federation.calls import Heard, View
from tacit.federation.conversation import Conversation, Opened
from tacit.federation.dropout import Attendance
from tacit.federation.facts import Member
from tacit.federation.messages import (
    MOST_LETTER,
    Bytes,
    BytesByParty,
    Exchange,
    Hash,
    PackedParties,
    Schema,
    Step,
    pack_parties,
    unpack_parties,
)
from tacit.guarantee import Trust
from tacit.partition import Setting
from tacit.secure.graph import Shape, choose
from tacit.secure.masks import pack, unpack, words
from tacit.secure.noise_shares import NoiseShares
from tacit.secure.quantize import reduced, wrapped
from tacit.secure.secagg_party import SecAggParty
from tacit.secure.secagg_protocol import Traffic, VoidRound, overhead
from tacit.secure.secagg_server import SecAggServer

EXCHANGES: Mapping[str, Exchange] = {
    "advertise": Exchange(
        Schema(context=Hash()), Schema(keys=Bytes(MOST_LETTER)), "fresh public keys for one secure sum"
    ),
    "share": Exchange(
        BytesByParty(context=Hash()),
        BytesByParty(),
        "sealed shares of what unmasks its contribution, for its neighbours",
    ),
    "collect": Exchange(BytesByParty(context=Hash()), Schema(rejected=PackedParties()), "whose shares arrived damaged"),
    "confirm": Exchange(
        Schema(context=Hash(), survivors=PackedParties()),
        Schema(signature=Bytes(MOST_LETTER)),
        "a signature under the list of those that stayed",
    ),
    "unmask": Exchange(
        BytesByParty(context=Hash(), survivors=PackedParties()),
        Schema(answer=Bytes(MOST_LETTER)),
        "shares that take the masks off the sum of those that stayed",
    ),
}


@dataclass(frozen=True)
class _Terms(Aggregation):
    """What `secagg` means, whether parties run it or a simulation counts it."""

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
        """Who masks with whom."""
        return choose(self.parties, self.tolerate, self.colluding, self.signs)

    @property
    def signs(self) -> bool:
        return self.signed

    @property
    def fewest(self) -> int:  # type: ignore[override]
        return self.shares.fewest

    @property
    def retries(self) -> int:  # type: ignore[override]
        return self.retried

    def check(self, method: str, steps: Mapping[str, tuple[Kind, bool]]) -> None:
        if not any(self.hidden(*step) for step in steps.values()):
            raise nothing_to_hide(
                "secagg", method, "hides contributions to a sum, or to a mean over parties", '"plain"'
            )

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
    def noise_share(self) -> float:
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
            names = [name for name in EXCHANGES if self.signs or name != "confirm"]
            said = [EXCHANGES[name].about(name, step.name) for name in names]
            return {exchange.name: exchange for exchange in said}
        what = "keys, sealed shares and what unmasks, of every device: counted as the protocol would send it, not run"
        name = f"protocol:{step.name}"
        return {name: Step(name, Kind.PUBLIC, BytesByParty(), BytesByParty(), what)}


@dataclass(frozen=True)
class CountedSecAgg(HiddenSum, _Terms):
    """`secagg` over cohorts of devices: sum and noise are what masks would show; bytes are counted."""

    def count_traffic(self, conversation: Conversation, there: Attendance) -> None:
        conversation.line.count_protocol(conversation.request, self.traffic, there)


@dataclass(frozen=True)
class SecAgg(_Terms):
    """Sums and means under masks.

    Attributes
    ----------
    tolerate : ω, the fraction of parties that may drop out
    colluding : c, how many of all parties may collude; at least one
    signed : whether survivors sign who survived, against a coordinator that lies
    retried : how many void sums may be tried again, over the whole run

    Guarantee
    ---------
    That of `tacit.secure.secagg_protocol` for what is hidden, and of `tacit.secure.noise_shares` for the remaining
    noise. A masked mean of chains hides each party's own; its noise is the party's all the same. Which steps are masked
    is a term of the run: a party masks them for this very request, after the exchange of keys and shares, or releases
    nothing.
    """

    exchanges: ClassVar[Mapping[str, Exchange]] = EXCHANGES
    first: ClassVar[frozenset[str]] = frozenset({"advertise"})

    @classmethod
    def of(cls, setting: Setting, parties: int, section: AggregationSection) -> Self:
        made = cls(
            setting,
            parties,
            section.tolerate,
            colluding(section.collusion, parties),
            section.signed,
            section.retries,
        )
        _ = made.shape, made.shares  # which refuse too few parties, or too many that may drop out or collude
        return made

    def for_roster(self, roster: tuple[Member, ...]) -> Aggregation:
        terms = (self.setting, self.parties, self.tolerate, self.colluding, self.signed, self.retried)
        return CountedSecAgg(*terms) if any(member.devices > 1 for member in roster) else self

    def seals(self, terms: StepTerms) -> bool:
        return terms.sealed

    # -- the party's side: exchanges are random numbers alone -------------------------------------------------

    def answer(self, exchange: str, payload: Mapping[str, Any], endpoint: Endpoint) -> Mapping[str, Value]:
        rest = {name: value for name, value in payload.items() if name != "context"}
        done: Mapping[str, Value] = getattr(self, f"_{exchange}")(endpoint, **rest)
        return done

    def _advertise(self, endpoint: Endpoint) -> dict[str, Value]:
        """Fresh keys for one sum; a second time for the same one would undo what was agreed on."""
        if _ready(endpoint) or _sealed_before(endpoint):
            raise PrivacyRefused(f"{endpoint.party} has begun this secure sum already, and begins none twice.")
        sealer = SecAggParty(endpoint.party, *self._about(endpoint.peers, endpoint.context), *_keys(endpoint.peers))
        return self._done(endpoint, sealer, {"keys": _array(sealer.advertise())})

    def _share(self, endpoint: Endpoint, **keys: Array) -> dict[str, Value]:
        """Sealed shares of what will unmask this party's vector, and of what made its excess noise."""
        sealer = self._sealer(endpoint)
        extras = [endpoint.seed("excess", level, endpoint.context) for level in range(self.shares.extras)]
        letters = sealer.share({name: key.tobytes() for name, key in keys.items()}, extras)
        return self._done(endpoint, sealer, {name: _array(letter) for name, letter in letters.items()})

    def _collect(self, endpoint: Endpoint, **mail: Array) -> dict[str, Value]:
        """Takes the neighbours' shares in; answers whose were damaged, as marks along the roster."""
        sealer = self._sealer(endpoint)
        rejected = sealer.collect({name: letter.tobytes() for name, letter in mail.items()})
        return self._done(endpoint, sealer, {"rejected": pack_parties(rejected, endpoint.peers.names)})

    def _confirm(self, endpoint: Endpoint, survivors: Array) -> dict[str, Value]:
        """A signature under the one list of survivors that this party accepts."""
        sealer = self._sealer(endpoint)
        listed = _named(survivors, endpoint.peers)
        return self._done(endpoint, sealer, {"signature": _array(sealer.confirm(listed))})

    def _unmask(self, endpoint: Endpoint, survivors: Array, **signatures: Array) -> dict[str, Value]:
        """What unmasks the survivors' sum, and the seeds of the noise that so many survivors do not need.

        How many pieces of excess are revealed follows from the list, here; the coordinator has no say in it.
        """
        sealer, listed = self._sealer(endpoint), _named(survivors, endpoint.peers)
        spare = self.shares.spare(len(listed))
        signed = {name: signature.tobytes() for name, signature in signatures.items()} or None
        return self._done(endpoint, sealer, {"answer": _array(sealer.unmask(listed, range(spare), signed))})

    def ready(self, terms: StepTerms, endpoint: Endpoint) -> None:
        """Refuse what this party cannot mask: keys and shares were not exchanged for this very request, or not all."""
        if terms.sealed and not (_ready(endpoint) and self._sealer(endpoint).can_mask):
            raise PrivacyRefused(
                f"{endpoint.party} lets this out under masks alone, and none were agreed on for this request; nothing "
                "was released: exchange keys and shares first."
            )

    def noised(self, exact: Any, terms: StepTerms, endpoint: Endpoint) -> Any:
        """Integers plus this party's share of the noise: a piece that stays, and pieces that may be revealed."""
        if not terms.sealed or not isinstance(terms.code, Grid):
            return super().noised(exact, terms, endpoint)
        variance, seeds = terms.code.variance, self._sealer(endpoint).extras
        base = Skellam(self.shares.base(variance)).sample(exact.size, endpoint.source("noise", 0))
        out: Array = exact + base
        for piece, seed in zip(self.shares.excess(variance), seeds, strict=True):
            out += Skellam(piece).sample(exact.size, Keyed(seed))
        return out

    def seal(self, vector: Any, terms: StepTerms, endpoint: Endpoint) -> Mapping[str, Value]:
        """A vector under this sum's masks, as it travels."""
        if not terms.sealed:
            return super().seal(vector, terms, endpoint)
        sealer, bits = self._sealer(endpoint), terms.code.bits
        masked = sealer.mask(wrapped(vector, bits), bits)
        _note_sealed(endpoint)
        return self._done(endpoint, sealer, {SEALED: pack(masked, bits)})

    def _sealer(self, endpoint: Endpoint) -> SecAggParty:
        state = endpoint.load(STATE)
        if state is None or not _ready(endpoint):
            raise PrivacyRefused(
                f"{endpoint.party} was asked to go on with a secure sum that it did not begin, or that another one has "
                "replaced; nothing was released: start the exchange of keys anew."
            )
        kept = state[len(endpoint.context) // 2 :].tobytes()
        return SecAggParty.restore(kept, *self._about(endpoint.peers, endpoint.context), *_keys(endpoint.peers))

    def _done(self, endpoint: Endpoint, sealer: SecAggParty, answer: dict[str, Value]) -> dict[str, Value]:
        """Keeps where the sum at hand stands: its context, and all that was drawn for it."""
        endpoint.save(STATE, _array(bytes.fromhex(endpoint.context) + sealer.state()))
        return answer

    def _about(self, peers: Peers, context: str) -> tuple[tuple[str, ...], Shape, bytes, int]:
        """What one sum is about: names, shape, extras, and what binds it to the run and to the masked request."""
        if len(peers.names) != self.parties:
            raise PrivacyRefused(
                f"The noise was planned for {self.parties:,} parties, and {len(peers.names):,} take part; plan anew."
            )
        bound = hashlib.sha256(f"{peers.run}|{context}".encode()).digest()
        return peers.names, self.shape, bound, self.shares.extras

    # -- the coordinator's side -------------------------------------------------------------------------------

    def add(self, conversation: Conversation) -> Opened | None:
        """How many stayed, and their sum once spare noise is taken out; None where too few stayed."""
        if not conversation.terms.sealed:
            return super().add(conversation)
        try:
            survivors, total, revealed = self._opened(conversation)
        except VoidRound:
            return None
        bits = conversation.terms.code.bits
        excess = wrapped(self._excess(revealed, conversation), bits)
        return opened(conversation, len(survivors), reduced(total - excess, bits))

    def mean(self, conversation: Conversation) -> Array:
        """Σ weight·block over those that stayed, by their masks, over the sum of their weights."""
        if not conversation.terms.sealed:
            return super().mean(conversation)
        (shape,) = conversation.shapes.values()
        try:
            survivors, total, _revealed = self._opened(conversation)
        except VoidRound as void:
            raise PeerFailed(
                f'The masked mean of step "{conversation.request.step}" in round {conversation.request.round} is void, '
                f"and what left is charged: {void} Allow for more drop-outs with [aggregation] tolerate."
            ) from void
        weight = sum(conversation.facts.weight(name) for name in survivors)
        mean: Array = (conversation.terms.code.numbers(total) / weight).reshape(shape).astype(np.float32)
        return mean

    def _opened(self, conversation: Conversation) -> tuple[Sequence[str], Array, Mapping[str, Mapping[int, bytes]]]:
        """One sum, opened; what did not fit is noted, whether or not the sum came about."""
        peers = conversation.peers
        opener = SecAggServer(*self._about(peers, conversation.request.hash), peers.identities if self.signs else None)
        try:
            return self._held(opener, conversation)
        finally:
            conversation.rejected.update(opener.rejected)

    def _held(
        self, opener: SecAggServer, conversation: Conversation
    ) -> tuple[Sequence[str], Array, Mapping[str, Mapping[int, bytes]]]:
        """The protocol, as Bonawitz et al. 2017 have it."""
        names, say, bits = conversation.peers.names, conversation.say, conversation.terms.code.bits
        context: dict[str, Value] = {"context": conversation.request.hash}
        there = conversation.attendance(exchanges=5)
        keys = say("advertise", {name: {**context} for name in names}, there[0])
        sent = opener.keys({name: _bytes(body["keys"]) for name, body in keys.items()})
        letters = say("share", {n: {**context, **_letters(sent[n])} for n in sent}, there[1])
        mail = opener.mail({name: {to: _bytes(x) for to, x in body.items()} for name, body in letters.items()})
        ready = say("collect", {n: {**context, **_letters(mail[n])} for n in mail}, there[2])
        for party, body in ready.items():
            for sender in np.array(names)[unpack_parties(body["rejected"], len(names))]:
                conversation.rejected[str(sender)] = (
                    f"{party} could not open its letter of {sender}, which was damaged."
                )
        if len(ready) < self.shape.fewest:  # before any vector is asked for, and charged
            raise VoidRound(f"Only {len(ready)} of {len(names)} parties could be masked with each other.")
        survivors, total = self._contributions(conversation, list(ready), there[3])
        listed = opener.survivors(survivors)
        about: dict[str, Value] = {**context, "survivors": pack_parties(listed, names)}
        signatures: dict[str, Value] = {}
        if self.signs:
            confirmed = say("confirm", {name: {**about} for name in listed}, there[3])
            signatures = {name: body["signature"] for name, body in confirmed.items()}
        answers = say("unmask", {name: {**about, **signatures} for name in listed}, there[4])
        shown = opener.unmasked(total, {name: _bytes(body["answer"]) for name, body in answers.items()}, bits)
        return listed, shown.total, shown.extras

    def _contributions(
        self, conversation: Conversation, ready: Sequence[str], there: Attendance
    ) -> tuple[list[str], Array]:
        """Whose masked vectors arrived, and their sum: more of them is not needed, nor kept."""
        names, size, bits = conversation.peers.names, conversation.size, conversation.terms.code.bits

        def left(heard: Heard, _there: Attendance) -> dict[str, Value]:
            total = np.zeros(size, dtype=words(bits))
            for _answer, body in heard:
                total += unpack(body[SEALED], size, bits)
            arrived = {answer.party for answer, _body in heard}
            return {"survivors": pack_parties(arrived, names), "total": pack(reduced(total, bits), bits)}

        result = conversation.contributions(left, view=View.MASKED, names=ready, there=there)
        here = unpack_parties(result["survivors"], len(names))
        survivors = [name for name, stayed in zip(names, here, strict=True) if stayed]
        return survivors, unpack(result["total"], size, bits)

    def _excess(self, revealed: Mapping[str, Mapping[int, bytes]], conversation: Conversation) -> Array:
        """The pieces of noise whose seeds were revealed, added up: what is taken out; (size,) int64."""
        code, total = conversation.terms.code, np.zeros(conversation.size, dtype=np.int64)
        if isinstance(code, Grid):
            variances = self.shares.excess(code.variance)
            for seeds in revealed.values():
                for level, seed in seeds.items():
                    total += Skellam(variances[level]).sample(conversation.size, Keyed(seed))
        return total


def _keys(peers: Peers) -> tuple[Any, Any]:
    return peers.identity, peers.identities


def _ready(endpoint: Endpoint) -> bool:
    """Whether keys were exchanged for this very request."""
    state, context = endpoint.load(STATE), endpoint.context
    return state is not None and state[: len(context) // 2].tobytes() == bytes.fromhex(context)


def _sealed_before(endpoint: Endpoint) -> bool:
    """Whether this party has masked something for the same request: two vectors under the same masks would show both.

    A ledger knows that too; without one what is kept at home does.
    """
    before = endpoint.load(SEALED_BEFORE)
    return before is not None and bytes.fromhex(endpoint.context) in before.tobytes()


def _note_sealed(endpoint: Endpoint) -> None:
    if endpoint.recorded:
        return
    before = endpoint.load(SEALED_BEFORE)
    past = b"" if before is None else before.tobytes()
    endpoint.save(SEALED_BEFORE, _array(past + bytes.fromhex(endpoint.context)))


def _named(marks: Array, peers: Peers) -> list[str]:
    here = unpack_parties(marks, len(peers.names))
    return [name for name, marked_ in zip(peers.names, here, strict=True) if marked_]


def _letters(letters: Mapping[str, bytes]) -> dict[str, Value]:
    return {name: np.frombuffer(letter, dtype=np.uint8) for name, letter in letters.items()}


def _array(raw: bytes) -> Array:
    return np.frombuffer(raw, dtype=np.uint8)


def _bytes(value: object) -> bytes:
    if not isinstance(value, np.ndarray):
        raise BadMessage("A letter of a secure sum is not a string of bytes.")
    return value.tobytes()
