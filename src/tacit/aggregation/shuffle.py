"""`shuffle`: a proxy separates single reports from their senders, so that one device hides among all others.

Each device seals every report to the coordinator and hands them to the proxy (`tacit.secure.shuffler`), which knows the
senders and cannot read; the coordinator gets one shuffled batch, which it can read and which names nobody. To the
coordinator itself a device sends a receipt only: a commitment to what it sealed, under a salt that stays at home. A
plain hash would let the coordinator find the device's report in the batch.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from tacit.aggregation.aggregation import Aggregation, colluders, colluding, nothing_to_hide, shuffled
from tacit.boundary.code import SEALED
from tacit.boundary.endpoint import STATE, Endpoint
from tacit.boundary.release import Kind
from tacit.boundary.spec import StepTerms
from tacit.boundary.wire import Array, Value
from tacit.config import AggregationSection
from tacit.errors import BadMessage, PeerFailed, PrivacyRefused
from tacit.federation.calls import Answers, Call, View, require
from tacit.federation.dropout import Attendance
from tacit.federation.facts import Member
from tacit.federation.messages import (
    BytesByParty,
    Choice,
    Exchange,
    Hash,
    Schema,
    Step,
    named_parties,
    pack_parties,
)
from tacit.guarantee import Trust
from tacit.partition import Setting
from tacit.rng import derive
from tacit.secure.noise_shares import fewest_of
from tacit.secure.proxy import CoordinatorEnd, DeviceEnd
from tacit.secure.sealed_reports import OVERHEAD, Layout, binding, open_batch, seal
from tacit.secure.shuffler import BatchTerms, TooFew

#: How often reports are handed over again after the proxy was started anew.
TRIES = 5
RECEIPT = 32


@dataclass(frozen=True)
class _Terms(Aggregation):
    """What `shuffle` promises, whether a proxy shuffles or a simulation does."""

    tolerate: float = 0.3
    colluding: int = 1

    name: ClassVar[str] = "shuffle"
    seen: ClassVar[str] = "the coordinator sees shuffled reports only, while the proxy does not help it"
    hides: ClassVar[frozenset[Kind]] = frozenset({Kind.REPORT})

    @property
    def passes(self) -> int:
        """How many devices' reports the proxy waits for."""
        return fewest_of(self.parties, self.tolerate)

    @property
    def crowd(self) -> int:  # type: ignore[override]
        return max(1, self.passes - self.colluding)

    def check(self, method: str, steps: Mapping[str, tuple[Kind, bool]]) -> None:
        if any(kind is not Kind.REPORT for kind, _mean in steps.values()) or not steps:
            raise nothing_to_hide("shuffle", method, "mixes single reports alone", '"secagg" or "plain"')

    def trust(self) -> tuple[Trust, str]:
        who = colluders(self.colluding, self.setting)
        return Trust.SHUFFLED, f"whoever sees the shuffled reports, with {who} and without the proxy's help"

    def messages(self, step: Step, simulated: bool) -> dict[str, Step]:
        name = f"protocol:{step.name}"
        what = "the reports, sealed to the coordinator and shuffled by the proxy: no report says whose it is"
        if simulated:
            what = "what sealing the reports adds to them, for every device: counted, not run"
        about = {} if simulated else super().messages(step, simulated)
        return {**about, name: Step(name, Kind.PUBLIC, BytesByParty(), BytesByParty(), what)}

    def _require_enough(self, call: Call, devices: int) -> None:
        if devices < self.passes:
            raise PeerFailed(
                f'{devices:,} devices reported for step "{call.request.step}" in round {call.request.round}, and the '
                f"shuffler passes nothing on below {self.passes:,}; what left is charged. Allow for more drop-outs "
                "with [aggregation] tolerate."
            )


@dataclass(frozen=True)
class CountedShuffle(_Terms):
    """`shuffle` over cohorts of devices: reports are mixed without a proxy, and the bytes of sealing are counted."""

    def ready(self, terms: StepTerms, endpoint: Endpoint) -> None:
        endpoint.require_simulation("send reports that only a simulation shuffles")

    def gather(self, call: Call) -> dict[str, Any]:
        def reduce(answers: Answers, there: Attendance) -> dict[str, Value]:
            devices = sum(answer.contributors for answer, _body in require(answers, call.request))
            self._require_enough(call, devices)
            mixed = shuffled(call, answers)
            each = len(np.asarray(next(iter(mixed.values())))) // devices
            call.messenger.count_protocol(call.request, each * OVERHEAD, 0, there)
            return mixed

        return call.contributions(reduce, "reports", view=View.HIDDEN)


@dataclass(frozen=True)
class Shuffle(_Terms):
    """Reports that a proxy shuffles before the coordinator sees them.

    Attributes
    ----------
    tolerate : ω, the fraction of devices that may drop out of a round
    colluding : c, how many of all devices may collude; at least one

    Guarantee
    ---------
    The proxy passes nothing on that fewer than ⌈(1 − ω)·n⌉ devices sent, which each device asks it before it sends
    anything; of those, all but c are honest, and one of them hides among so many
    (`tacit.boundary.shuffle_amplification`). If the proxy helps the coordinator, only each report's own ε holds. The
    proxy alone learns who sent how many reports, and nothing of what is in them (`tacit.secure.sealed_reports`).
    """

    exchanges: ClassVar[Mapping[str, Exchange]] = {
        "send": Exchange(
            Schema(context=Hash()),
            Schema(taken=Choice(True, False)),
            "whether its sealed reports have reached the proxy",
        )
    }
    last: ClassVar[frozenset[str]] = frozenset({"send"})
    through_proxy: ClassVar[bool] = True

    @classmethod
    def of(cls, setting: Setting, parties: int, section: AggregationSection) -> Self:
        return cls(setting, parties, section.tolerate, colluding(section.collusion, parties))

    def for_roster(self, roster: tuple[Member, ...]) -> Aggregation:
        cohorts = any(member.devices > 1 for member in roster)
        return CountedShuffle(self.setting, self.parties, self.tolerate, self.colluding) if cohorts else self

    # -- a device's side --------------------------------------------------------------------------------------

    def seals(self, terms: StepTerms) -> bool:
        return terms.sealed

    def ready(self, terms: StepTerms, endpoint: Endpoint) -> None:
        _device_end(endpoint)

    def seal(self, reports: Any, terms: StepTerms, endpoint: Endpoint) -> Mapping[str, Value]:
        """A receipt for what was sealed; the sealed reports themselves wait at home for "send"."""
        about = binding(endpoint.peers.run, endpoint.context)
        sealed = seal(Layout.of(reports).pack(reports), _device_end(endpoint).key, about)
        waiting = _Waiting(
            endpoint.context, sealed.shape[1], endpoint.seed("receipt", endpoint.context), sealed.tobytes()
        )
        endpoint.save(STATE, waiting.saved)
        return {SEALED: np.frombuffer(waiting.receipt, dtype=np.uint8)}

    def answer(self, exchange: str, payload: Mapping[str, Any], endpoint: Endpoint) -> Mapping[str, Value]:
        """Hand the proxy what was sealed for this request; the same bytes, as often as they are asked for."""
        if exchange != "send":
            return super().answer(exchange, payload, endpoint)
        waiting = _Waiting.restore(endpoint.load(STATE), endpoint)
        planned = BatchTerms(waiting.context, self.passes, waiting.length)
        return {"taken": _device_end(endpoint).send(endpoint.party, planned, waiting.message)}

    def check_sealed(self, payload: Mapping[str, Value], terms: StepTerms, cells: int, who: str) -> None:
        receipt = payload.get(SEALED)
        fine = isinstance(receipt, np.ndarray) and receipt.dtype == np.uint8 and receipt.shape == (RECEIPT,)
        if not fine or len(payload) > 1:
            raise BadMessage(f'What {who} sent for step "{terms.spec.step}" is not a receipt of {RECEIPT} bytes.')

    # -- the coordinator's side -------------------------------------------------------------------------------

    def gather(self, call: Call) -> dict[str, Any]:
        """Receipts first, then the batch; devices hand over the same bytes again where the proxy has forgotten them."""
        names = self._receipts(call)
        layout = _layout(call)
        terms = BatchTerms(call.request.hash, self.passes, layout.sealed_size)
        for attempt in range(TRIES):
            self._opened(call, attempt, terms)
            call.exchange("send", {name: {"context": terms.context} for name in names}, again=attempt)
            batch = self._collected(call, attempt, layout, terms)
            if batch is not None:
                return batch
        raise PeerFailed(
            f'The proxy has lost the reports of step "{call.request.step}" in round {call.request.round}, or too few '
            f"devices reached it, {TRIES} times over; see whether it is up, and resume the run."
        )

    def _opened(self, call: Call, attempt: int, terms: BatchTerms) -> None:
        """Open the batch at the proxy, unless a run that is resumed has done so."""

        def opened() -> dict[str, Value]:
            _end(call).open(terms, call.roster)
            return {}

        _logged(call, f"open {attempt}", opened)

    def _receipts(self, call: Call) -> list[str]:
        """The devices that have sealed their reports, and recorded them."""

        def reduce(answers: Answers, _there: Attendance) -> dict[str, Value]:
            arrived = [answer.party for answer, _body in require(answers, call.request)]
            self._require_enough(call, len(arrived))
            return {"who": pack_parties(arrived, call.roster)}

        result = call.contributions(reduce, "reports", view=View.MASKED)
        return named_parties(result["who"], call.roster)

    def _collected(self, call: Call, attempt: int, layout: Layout, terms: BatchTerms) -> dict[str, Any] | None:
        """The reports of a batch in random order; None where the proxy does not know it, or not of enough devices."""
        end, arrived = _end(call), False

        def collect() -> dict[str, Value]:
            nonlocal arrived
            try:
                batch = end.collect(terms.context)
            except TooFew:  # some could not reach it
                batch = None
            if batch is None:
                return {"found": False, "left_out": 0}
            arrived = True
            opened = open_batch(batch, end.private_key, binding(call.peers.run, terms.context), layout.size)
            call.messenger.count_proxied(call.request, batch.nbytes)
            order = derive(call.facts.seed, call.request.round, "shuffle").permutation(len(opened.rows))
            reports = {f"report/{name}": block[order] for name, block in layout.unpack(opened.rows).items()}
            return {"found": True, "left_out": opened.repeated + opened.unreadable, **reports}

        result = _logged(call, f"batch {attempt}", collect)
        if arrived:
            end.forget(terms.context)
        if not result.pop("found"):
            return None
        if left_out := result.pop("left_out"):
            call.rejected["proxy"] = (
                f'{left_out:,} reports of step "{call.request.step}" in round {call.request.round} were damaged, '
                "sealed to another key, or repeated, and were left out."
            )
        return {name.removeprefix("report/"): block for name, block in result.items()}


@dataclass(frozen=True)
class _Waiting:
    """A device's sealed reports for one request, as they lie at home."""

    context: str
    length: int
    salt: bytes
    message: bytes

    @property
    def receipt(self) -> bytes:
        """A commitment: it binds the device to these bytes, and says nothing of them to anyone without the salt."""
        return hashlib.sha256(self.salt + self.message).digest()

    @property
    def saved(self) -> Array:
        head = bytes.fromhex(self.context) + self.length.to_bytes(4, "little") + self.salt
        return np.frombuffer(head + self.message, dtype=np.uint8)

    @classmethod
    def restore(cls, saved: Array | None, endpoint: Endpoint) -> Self:
        raw = b"" if saved is None else saved.tobytes()
        if len(raw) < 68 or raw[:32].hex() != endpoint.context:
            raise PrivacyRefused(
                f"{endpoint.party} was asked to hand over reports that it has not sealed for this request; nothing was "
                "sent."
            )
        return cls(endpoint.context, int.from_bytes(raw[32:36], "little"), raw[36:68], raw[68:])


def _device_end(endpoint: Endpoint) -> DeviceEnd:
    end = endpoint.peers.to_proxy
    if end is None:
        raise PrivacyRefused(
            f"{endpoint.party} has no way to a proxy, and reports through one alone; nothing was sent."
        )
    return end


def _end(call: Call) -> CoordinatorEnd:
    if call.peers.from_proxy is None:
        raise PeerFailed("This run has no proxy; invite one with: tacit keys invite KEYS --role proxy --at HOST:PORT")
    return call.peers.from_proxy


def _logged(call: Call, what: str, compute: Callable[[], Mapping[str, Value]]) -> dict[str, Any]:
    """One call on the proxy, whose result a resumed run takes from the log."""
    key = f"{call.request.round}/{call.request.step}/{what}/{call.request.attempt}"
    return call.messenger.call(key, call.request.hash, compute)


def _layout(call: Call) -> Layout:
    """How a report lies in bytes, from the step's schema."""
    messenger = call.messenger
    fields = messenger.steps[call.request.step].gives.blocks(messenger.dimensions)
    return Layout(tuple((name, *fields[name]) for name in sorted(fields)))
