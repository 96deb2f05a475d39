"""The door itself: who is served, what was answered before, and that nothing leaves before it is recorded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from tacit.boundary import release as _release
from tacit.boundary.endpoint import Endpoint, OwnNoise, Peers, Sealing
from tacit.boundary.events import Event, Public
from tacit.boundary.ledger import Ledger, Row
from tacit.boundary.private_state import Kept
from tacit.boundary.protection import Protection
from tacit.boundary.randomness import SecureStream, Seeded, Source
from tacit.boundary.release import Kind, Release
from tacit.boundary.spec import Terms
from tacit.boundary.wire import Array, Value, decode, encode
from tacit.errors import PrivacyRefused
from tacit.guarantee import NON_PRIVATE
from tacit.kernels.streams import derive
from tacit.rng import stream_key

#: Where a saved state names what is kept for good, and what stands in the answer; no block at home has an empty name.
NAMES = ""

#: Raises unless a release of this kind, with these blocks, is what the step was agreed to give.
Agreed = Callable[[Kind, Mapping[str, Value]], None]


@dataclass(frozen=True, eq=False)
class Served:
    """The request that a gate is serving: what came with it by name, and for a cohort which devices take part."""

    step: str
    round: int
    attempt: int
    hash: str
    agreed: Agreed | None = None
    received: frozenset[str] = frozenset()
    present: Array | None = None


class Door:
    """What every way out of a party goes through; `Gate` has the ways. Parameters and guarantee are told there."""

    def __init__(
        self,
        party: str,
        seed: int,
        home: dict[str, Any],
        devices: int = 0,
        protection: Protection | None = None,
        terms: Terms | None = None,
        how: Sealing | None = None,
        peers: Peers | None = None,
        weight: float = 1.0,
        users: int = 1,
    ) -> None:
        self.party, self.home, self.protection = party, home, protection
        self.terms = protection.terms if protection is not None else terms or Terms(NON_PRIVATE, {})
        self.how: Sealing = OwnNoise() if how is None else how
        self._peers, self._weight, self._users = peers or Peers("", (party,)), weight, users
        self._seed, self._devices = seed, devices
        self._request: Served | None = None
        self._made: Release | None = None
        self._owed: tuple[Kind, Event] | None = None  # noise that was drawn, and is in no release yet
        self._kept = Kept(home)
        if protection is not None:
            saved, secret = saved_home(protection.ledger, protection.run)
            home.update({name: np.array(array) for name, array in saved.items()})
            for name in secret:
                self._kept.mark(name)

    @contextmanager
    def serving(
        self,
        step: str,
        round: int,
        attempt: int,
        request_hash: str,
        agreed: Agreed | None = None,
        received: Iterable[str] = (),
        present: Array | None = None,
    ) -> Iterator[None]:
        """While one request is served: streams derive from it, and one release can be made, as `agreed` allows.

        Noise that was drawn and led to no release is charged all the same. That something failed can be seen, and may
        depend on the noisy answer: were it free, one could ask until the noise is as one likes it.
        """
        request = Served(step, round, attempt, request_hash, agreed, frozenset(received), present)
        self._request, self._made, self._owed = request, None, None
        try:
            yield
        finally:
            if self._owed is not None:
                self._record(*self._owed, encode({}))
            self._request = self._owed = None

    def made(self, thing: object) -> bool:
        """Whether `thing` is the release that this gate made for the request it served last."""
        return thing is not None and thing is self._made

    def repeated(self, step: str, round: int, attempt: int, request_hash: str) -> Release | None:
        """The recorded answer to a request that was answered before; None for a new one.

        The same request gets the same bytes, at no cost. An older one, whose bytes are gone, and the same round under
        other terms are refused, uncharged.
        """
        if self.protection is None:
            return None
        ledger, run = self.protection.ledger, self.protection.run
        found = ledger.answered(request_hash)
        if found is not None and found[0].run != run and not self.protection.simulated:
            found = None  # another run's: its noise came from nowhere twice, and this one's is charged anew
        if found is not None:
            row, body = found
            if body is None or row.run != run:
                raise PrivacyRefused(
                    f'{self.party} answered this very request for step "{step}" before, in another run of the same '
                    "file and seed or in an earlier round, and keeps its digest only; use another seed or ledger."
                )
            self._made = self._sealed(Kind(row.kind), body, row.contributors, row)
            return self._made
        if ledger.another(run, round, step, attempt, request_hash):
            why = (
                f'{self.party} has answered step "{step}" of round {round} for another request; the same round is not '
                "answered twice under other terms."
            )
            ledger.refuse(run, round, step, request_hash, why)
            raise PrivacyRefused(why)
        return None

    def stream(self, *purpose: str | int) -> np.random.Generator:
        """The party's private randomness for one purpose within the present request."""
        request = self._serving()
        if self.protection is not None and not self.protection.simulated:
            return cast(np.random.Generator, SecureStream())
        return derive(self._seed, self.party, request.round, *purpose, request.hash)

    def keep(self, name: str, array: Array | float) -> Array:
        """Put an array into `home`, secret for good, and return it: what is fitted to raw ratings and never leaves."""
        self.home[name] = kept = np.asarray(array)
        if self.protection is not None:
            self._kept.mark(name)
        return kept

    @property
    def present(self) -> Array | None:
        """Of a cohort, which devices take part in what is being served, (n,) bool; None means all."""
        return self._serving().present

    # -- inside -----------------------------------------------------------------------------------------------

    def _serving(self) -> Served:
        if self._request is None:
            raise PrivacyRefused(
                f"{self.party}'s gate was used outside a request; only a step of the party may use it."
            )
        return self._request

    def _endpoint(self, contributors: int, context: str | None = None) -> Endpoint:
        """What an aggregation may use while the present request is served; of an exchange `context` is the sum's."""
        request = self._serving()
        return Endpoint(
            self.party,
            self._peers,
            request.hash if context is None else context,
            contributors,
            source=self._source,
            seed=self._key,
            load=self.home.get,
            save=self.keep,
            simulate=self._only_simulated,
            recorded=self.protection is not None,
        )

    def _source(self, purpose: str, *more: str | int) -> Source:
        """The party's private randomness for one purpose within the present request."""
        request = self._serving()
        if self.protection is None:
            return Seeded(stream_key(self._seed, self.party, request.round, purpose, *more, request.hash))
        place = (purpose, request.round) if purpose == "coins" else (purpose, request.round, request.step)
        return self.protection.source(*place, *more, request.hash)

    def _key(self, *purpose: str | int) -> bytes:
        """32 private bytes for one purpose."""
        return (
            stream_key(self._seed, self.party, *purpose) if self.protection is None else self.protection.key(*purpose)
        )

    def _only_simulated(self, what: str) -> None:
        if self.protection is not None:
            self.protection.only_simulated(what)

    @contextmanager
    def _recording_refusals(self) -> Iterator[None]:
        """What is refused in the course of a secure sum is kept in the ledger: when, for which request, and why."""
        try:
            yield
        except PrivacyRefused as refusal:
            request = self._serving()
            if self.protection is not None:
                ledger, run = self.protection.ledger, self.protection.run
                ledger.refuse(run, request.round, request.step, request.hash, str(refusal))
            raise

    def _no_secret(self, blocks: Mapping[str, Any], lets_out: Sequence[str] = (), received: Sequence[str] = ()) -> None:
        """Refuse, under a protection, blocks that are secret, and names of what is.

        Copies are looked for in simulations only. Between organisations whoever asks could choose what leaves, with a
        rate that moves nothing, and a refusal would say that a guess was right: exactly, and at no cost.
        """
        if self.protection is None:
            return
        named = next((name for name in (*lets_out, *blocks) if name in self._kept.names), None)
        sent = {name: block for name, block in blocks.items() if name in received}
        own = {name: block for name, block in blocks.items() if name not in received}
        copies = self.protection.simulated
        found = named or self._kept.found_in(own, by_value=copies) or self._kept.found_in(sent, by_value=False)
        if found is not None:
            raise PrivacyRefused(
                f'{self.party} was about to let out "{found}", which it keeps at home for good; nothing was released: '
                "give a chain public and noised blocks only, and use what is kept inside a query."
            )

    def _let_out(
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
        request = self._serving()
        if self._made is not None:
            raise PrivacyRefused(f"{self.party} tried to let out two releases for one request; end a step in one.")
        self._no_secret(payload)
        self._no_secret(state or {}, received=received)
        body, row, home = encode(payload), None, {**self.home, **(state or {})}
        if request.agreed is not None:
            request.agreed(kind, decode(body))
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
        """Write down what the present request is answered with, and what it costs, before it leaves."""
        assert self.protection is not None
        request, self._owed = self._serving(), None
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
        """What is at home, to start again from; a block that leaves as it is stands in the answer and is only named."""
        sent = [name for name, block in payload.items() if home.get(name) is block]
        rest = {name: block for name, block in home.items() if name not in sent}
        return encode({**rest, NAMES: json.dumps({"kept": self._kept.names, "sent": sent})})

    def _sealed(self, kind: Kind, body: bytes, contributors: int, row: Row | None, sha: str = "") -> Release:
        if row is None or self.protection is None:
            return Release(self.party, kind, body, self.terms.guarantee, contributors, seal=_release._SEAL)
        promised = self.protection.terms.guarantee
        recorded = (row.event, row.payload, row.head)
        return Release(self.party, kind, body, promised, contributors, *recorded, sha, _release._SEAL)


def saved_home(ledger: Ledger, run: str) -> tuple[dict[str, Value], list[str]]:
    """What a party had at home after its latest release in a run, and what of it is kept for good; else nothing."""
    state, rows = ledger.state(), ledger.rows()
    if state is None or rows[-1].run != run:
        return {}, []
    saved = decode(state)
    names = json.loads(str(saved.pop(NAMES)))
    sent = decode(ledger.body()) if names["sent"] else {}
    return {**saved, **{name: sent[name] for name in names["sent"]}}, list(names["kept"])


def record_beside(ledger: Ledger, run: str, step: str, request: str, event: Public, body: bytes) -> None:
    """Write down what leaves before a run's first request or after its last, once; what is at home stays as it is."""
    if ledger.answered(request) is not None:
        return
    saved, secret = saved_home(ledger, run)
    state = encode({**saved, NAMES: json.dumps({"kept": secret, "sent": []})})
    ledger.record(
        run=run,
        round=0,
        step=step,
        attempt=0,
        kind=str(Kind.PUBLIC),
        request=request,
        event=event,
        body=body,
        sealed=False,
        contributors=1,
        present=None,
        state=state,
    )
