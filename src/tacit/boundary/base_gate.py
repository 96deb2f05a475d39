"""What every gate does: serve one request, repeat an earlier answer, record a release before its bytes leave.

`BaseGate._release` is the only place where a `Release` is made. It checks and encodes the payload, has the ledger write
the row durably, and only then returns the bytes. What may be released, and with which noise, is in `gate`.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from tacit.boundary import release as _release
from tacit.boundary.endpoint import Endpoint, PartySide, Peers
from tacit.boundary.events import Event, Public
from tacit.boundary.ledger import Ledger, Row
from tacit.boundary.private_state import PrivateState
from tacit.boundary.protection import Protection
from tacit.boundary.randomness import Secure, SecureStream, Seeded, Source
from tacit.boundary.release import Kind, Release
from tacit.boundary.spec import Terms
from tacit.boundary.wire import Array, Value, decode, encode
from tacit.errors import PrivacyRefused, UsageError
from tacit.guarantee import NON_PRIVATE
from tacit.kernels.streams import derive
from tacit.rng import stream_key

#: The entry of a saved state that lists private names and blocks that are stored in the answer; no block has this name.
NAMES = ""

#: Raises unless a release of this kind, with these blocks, fits the step's schema.
Check = Callable[[Kind, Mapping[str, Value]], None]


@dataclass(frozen=True, eq=False)
class Served:
    """The request that a gate is serving; `received` names its blocks, `present` the devices of a cohort in it."""

    step: str
    round: int
    attempt: int
    hash: str
    check: Check | None = None
    received: frozenset[str] = frozenset()
    present: Array | None = None


class BaseGate:
    """The part that `Gate` and `RoleGate` share; parameters and guarantee are documented there."""

    def __init__(
        self,
        party: str,
        seed: int,
        home: dict[str, Any],
        devices: int = 0,
        protection: Protection | None = None,
        terms: Terms | None = None,
        aggregation: PartySide | None = None,
        peers: Peers | None = None,
        weight: float = 1.0,
        users: int = 1,
    ) -> None:
        self.party, self.home, self.protection = party, home, protection
        self.terms = protection.terms if protection is not None else terms or Terms(NON_PRIVATE, {})
        self.aggregation = PartySide() if aggregation is None else aggregation
        self._peers, self._weight, self._users = peers or Peers("", (party,)), weight, users
        self._seed, self._devices = seed, devices
        self._seeded = protection is None or protection.simulated
        self._request: Served | None = None
        self._made: Release | None = None
        self._uncharged: tuple[Kind, Event] | None = None  # noise that was drawn and is in no release yet
        self._private = PrivateState(home)
        if protection is not None:
            saved, private = saved_home(protection.ledger, protection.run)
            home.update({name: np.array(array) for name, array in saved.items()})
            for name in private:
                self._private.mark(name)

    @contextmanager
    def serving(
        self,
        step: str,
        round: int,
        attempt: int,
        request_hash: str,
        check: Check | None = None,
        received: Iterable[str] = (),
        present: Array | None = None,
    ) -> Iterator[None]:
        """While one request is served: streams derive from it, and one release that passes `check` can be made.

        Noise that was drawn is charged even if nothing is released. A failure is visible and may depend on the noisy
        answer: if it were free, a coordinator could repeat requests until it likes the noise.
        """
        self._request = Served(step, round, attempt, request_hash, check, frozenset(received), present)
        self._made = self._uncharged = None
        try:
            yield
        finally:
            if self._uncharged is not None:
                self._record(*self._uncharged, encode({}))
            self._request = self._uncharged = None

    def made(self, thing: object) -> bool:
        """Whether `thing` is the release that this gate made for the latest request."""
        return thing is not None and thing is self._made

    def repeated(self, step: str, round: int, attempt: int, request_hash: str) -> Release | None:
        """The recorded answer to a request that was answered before; None for a new one.

        The same request gets the same bytes at no cost. An older one, whose bytes were discarded, and another request
        for the same round and step are refused without a charge.
        """
        if self.protection is None:
            return None
        ledger, run = self.protection.ledger, self.protection.run
        found = ledger.answered(request_hash)
        if found is not None and found[0].run != run and not self.protection.simulated:
            found = None  # another run's: deployed noise is never drawn twice, and this one's is charged again
        if found is not None:
            row, body = found
            if body is None or row.run != run:
                raise PrivacyRefused(
                    f'{self.party} answered this request for step "{step}" before, in another run of the same '
                    "file and seed or in an earlier round, and stores only its digest; use another seed or ledger."
                )
            self._made = self._sealed(Kind(row.kind), body, row.contributors, row)
            return self._made
        if ledger.answered_otherwise(run, round, step, attempt, request_hash):
            why = (
                f'{self.party} has answered step "{step}" of round {round} for another request; the same round is not '
                "answered twice under other terms."
            )
            ledger.refuse(run, round, step, request_hash, why)
            raise PrivacyRefused(why)
        return None

    def store_private(self, name: str, array: Array | float) -> Array:
        """Store an array in `home` that must never leave, such as factors fitted to raw ratings, and return it."""
        self.home[name] = stored = np.asarray(array)
        if self.protection is not None:
            self._private.mark(name)
        return stored

    @property
    def present(self) -> Array | None:
        """Which devices of a cohort take part in the present request, (n,) bool; None means all."""
        return self._serving().present

    # -- private randomness: derived from the seed in a simulation, from the operating system in a deployment ------

    def stream(self, *purpose: str | int) -> np.random.Generator:
        """Private randomness for one purpose within the present request."""
        request = self._serving()
        if not self._seeded:
            return cast(np.random.Generator, SecureStream())
        return derive(self._seed, self.party, request.round, *purpose, request.hash)

    def _source(self, purpose: str, *more: str | int) -> Source:
        """The same, for the exact samplers of noise."""
        request = self._serving()
        if not self._seeded:
            return Secure()
        place: tuple[str | int, ...] = (purpose, request.round, request.step)
        if self.protection is None:
            place = request.round, purpose
        elif purpose == "coins":
            place = purpose, request.round
        return Seeded(self._key(*place, *more, request.hash))

    def _key(self, *purpose: str | int) -> bytes:
        return stream_key(self._seed, self.party, *purpose) if self._seeded else os.urandom(32)

    def _require_simulation(self, what: str) -> None:
        if not self._seeded:
            raise PrivacyRefused(
                f"{self.party} was about to {what}, which only a simulation may do; nothing was released."
            )

    def _serving(self) -> Served:
        if self._request is None:
            raise PrivacyRefused(
                f"{self.party}'s gate was used outside a request; only a step of the party may use it."
            )
        return self._request

    def _endpoint(self, contributors: int, context: str | None = None) -> Endpoint:
        """What an aggregation may use for the present request; for an exchange, `context` is the sum's request."""
        return Endpoint(
            self.party,
            self._peers,
            self._serving().hash if context is None else context,
            contributors,
            source=self._source,
            seed=self._key,
            load=self.home.get,
            save=self.store_private,
            require_simulation=self._require_simulation,
            recorded=self.protection is not None,
        )

    @contextmanager
    def _recording_refusals(self) -> Iterator[None]:
        """Record in the ledger what is refused during a secure sum: when, for which request, and why."""
        try:
            yield
        except PrivacyRefused as refusal:
            request = self._serving()
            if self.protection is not None:
                ledger, run = self.protection.ledger, self.protection.run
                ledger.refuse(run, request.round, request.step, request.hash, str(refusal))
            raise

    def _exchanged(self, name: str, payload: Mapping[str, Any]) -> Mapping[str, Value]:
        """The aggregation's answer to one of its own exchanges, which carry random numbers and no data."""
        try:
            return self.aggregation.answer(name, payload, self._endpoint(1, str(payload.get("context", ""))))
        except UsageError as wrong:  # requested in the wrong order, or for something that does not exist
            raise PrivacyRefused(f"{self.party} refuses an exchange: {wrong}") from None

    def _refuse_private(
        self, blocks: Mapping[str, Any], released: Sequence[str] = (), received: Sequence[str] = ()
    ) -> None:
        """Under a protection, refuse blocks that are private, and names of private blocks.

        Copies are compared in simulations only. In a deployment the coordinator could choose what would leave, with a
        rate that moves nothing, and a refusal would confirm a guess: exactly, and at no cost.
        """
        if self.protection is None:
            return
        named = next((name for name in (*released, *blocks) if name in self._private.names), None)
        sent = {name: block for name, block in blocks.items() if name in received}
        own = {name: block for name, block in blocks.items() if name not in received}
        copies = self.protection.simulated
        found = named or self._private.found_in(own, by_value=copies) or self._private.found_in(sent, by_value=False)
        if found is not None:
            raise PrivacyRefused(
                f'{self.party} was about to release "{found}", which is private and stays at home; nothing was '
                "released: give a chain public and noised blocks only, and use private ones inside a query."
            )

    def _release(
        self,
        kind: Kind,
        payload: Mapping[str, Value | Array],
        event: Event | None,
        contributors: int = 1,
        sealed: bool = False,
        present: Array | None = None,
        state: Mapping[str, Any] | None = None,
        received: Sequence[str] = (),
    ) -> Release:
        """Check, record, and only then make the release; `state` becomes part of what is at home."""
        request = self._serving()
        if self._made is not None:
            raise PrivacyRefused(f"{self.party} tried to make two releases for one request; end a step in one.")
        self._refuse_private(payload)
        self._refuse_private(state or {}, received=received)
        body, row, home = encode(payload), None, {**self.home, **(state or {})}
        if request.check is not None:
            request.check(kind, decode(body))
        if self.protection is not None:
            if event is None:
                raise PrivacyRefused(f"{self.party} tried to release something that no event accounts for.")
            row = self._record(kind, event, body, self._saved(home, payload), sealed, contributors, present)
        self.home.update(home)
        self._made = self._sealed(kind, body, contributors, row, "" if row is None or sealed else row.payload)
        return self._made

    def _record(
        self,
        kind: Kind,
        event: Event,
        body: bytes,
        state: bytes | None = None,
        sealed: bool = False,
        contributors: int = 1,
        present: Array | None = None,
    ) -> Row:
        """Write the answer to the present request, and what it costs, to the ledger before it leaves."""
        assert self.protection is not None
        request, self._uncharged = self._serving(), None
        return self.protection.ledger.record(
            run=self.protection.run,
            round=request.round,
            step=request.step,
            attempt=request.attempt,
            kind=str(kind),
            request=request.hash,
            event=event,
            body=body,
            sealed=sealed,
            contributors=contributors,
            present=None if present is None else np.packbits(present).tobytes(),
            state=self._saved(self.home, {}) if state is None else state,
            admit=None if isinstance(event, Public) else partial(self.protection.admit, request.step),
        )

    def _saved(self, home: Mapping[str, Any], payload: Mapping[str, Value | Array]) -> bytes:
        """The state to restart from; a block that leaves unchanged is in the answer and is only named here."""
        sent = [name for name, block in payload.items() if home.get(name) is block]
        rest = {name: block for name, block in home.items() if name not in sent}
        return encode({**rest, NAMES: json.dumps({"kept": self._private.names, "sent": sent})})

    def _sealed(self, kind: Kind, body: bytes, contributors: int, row: Row | None, sha: str = "") -> Release:
        recorded = ("", "", "") if row is None else (row.event, row.payload, row.head)
        return Release(self.party, kind, body, self.terms.guarantee, contributors, *recorded, sha, _release._SEAL)


def saved_home(ledger: Ledger, run: str) -> tuple[dict[str, Value], list[str]]:
    """What a party had at home after its latest release in a run, and the names of what is private."""
    state, rows = ledger.state(), ledger.rows()
    if state is None or rows[-1].run != run:
        return {}, []
    saved = decode(state)
    names = json.loads(str(saved.pop(NAMES)))
    sent = decode(ledger.body()) if names["sent"] else {}
    return {**saved, **{name: sent[name] for name in names["sent"]}}, list(names["kept"])


def record_public(ledger: Ledger, run: str, step: str, request: str, event: Public, body: bytes) -> None:
    """Record, once, what leaves before a run's first request or after its last; the saved state stays as it is."""
    if ledger.answered(request) is not None:
        return
    saved, private = saved_home(ledger, run)
    state = encode({**saved, NAMES: json.dumps({"kept": private, "sent": []})})
    ledger.record(run=run, step=step, kind=Kind.PUBLIC.value, request=request, event=event, body=body, state=state)
