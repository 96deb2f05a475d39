"""The gate: the only door out of a party.

A *chain* is a number of queries with a pure update between them, or a convex problem *solved* with noise inside it; a
*sum* is one linear contribution, a *report* is a set of single reports for the shuffler, a *public* fact has no data
in it, no more than an *exchange* of keys and shares for a secure sum, and *disclose* hands out data as it is.
With a protection every one of them is noised or refused, charged and recorded before it leaves; without one,
NON-PRIVATE. What a party *keeps* stays at home for good: under a protection the gate refuses to let it out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from tacit.boundary import release as _release
from tacit.boundary.events import Event, Public
from tacit.boundary.kept import Kept
from tacit.boundary.ledger import Row
from tacit.boundary.objective import Problem
from tacit.boundary.protection import Protection
from tacit.boundary.query import Query, Randomised, Sensitive, Summable, Update
from tacit.boundary.release import Kind, Release
from tacit.boundary.sealed import SEALED, Fixed, Grid
from tacit.boundary.seals import STATE, Seals
from tacit.boundary.source import Seeded, Source
from tacit.boundary.wire import Array, Value, decode, encode
from tacit.errors import PrivacyRefused
from tacit.guarantee import NON_PRIVATE
from tacit.rng import derive, stream_key
from tacit.secure.masks import pack
from tacit.secure.quantize import wrapped

#: Facts that no data goes into, and the only values they can have; keys and shares leave by `exchange`.
PUBLIC_FACTS: Mapping[str, frozenset[object]] = {"done": frozenset({True})}

#: Where a saved state names what is kept for good, and what stands in the answer; no block at home has an empty name.
NAMES = ""

#: What a party can be asked in the course of a secure sum, beside the contribution itself.
EXCHANGES = ("advertise", "share", "collect", "confirm", "unmask")

#: Raises unless a release of this kind, with these blocks, is what the step was agreed to give.
Agreed = Callable[[Kind, Mapping[str, Value]], None]


@dataclass(frozen=True)
class Served:
    """The request that a gate is serving."""

    step: str
    round: int
    attempt: int
    hash: str
    agreed: Agreed | None = None


class Gate:
    """One party's door, one cohort's door.

    Parameters
    ----------
    party : the party's name
    seed : the run's seed; streams derive from (seed, party, round, purpose, hash of the request)
    home : what the party keeps between steps; a chain leaves its final state there
    devices : how many devices a cohort has, 0 for a silo
    protection : the party's ledger, budget and noise, or None for a run without privacy

    Guarantee
    ---------
    With a protection: as the protection states, over every release of the run, against everyone who sees what left.
    What was kept never leaves: neither itself, nor a view or copy of it, nor as part of a chain's state; a name once
    secret stays so, over restarts too. Without a protection: none, and every release is stamped NON-PRIVATE. Either
    way a payload is what the step was agreed to give, or nothing is recorded; it leaves as bytes, once per request; and
    a public fact is one of `PUBLIC_FACTS`.
    """

    def __init__(
        self, party: str, seed: int, home: dict[str, Any], devices: int = 0, protection: Protection | None = None
    ) -> None:
        self.party, self.home, self.protection = party, home, protection
        self._seed, self._devices = seed, devices
        self._request: Served | None = None
        self._made: Release | None = None
        self._kept = Kept(home)
        self._seals: Seals | None = None
        if protection is not None and protection.circle is not None and devices <= 1:
            self._seals = Seals(
                party, protection.circle, lambda: home.get(STATE), partial(self.keep, STATE), protection.key
            )
        if protection is not None and (state := protection.ledger.state()) is not None:
            rows = protection.ledger.rows()
            if rows[-1].run == protection.run:
                saved = decode(state)
                names = json.loads(str(saved.pop(NAMES)))
                if names["sent"]:
                    sent = decode(protection.ledger.body())
                    saved |= {name: sent[name] for name in names["sent"]}
                home.update({name: np.array(array) for name, array in saved.items()})
                for name in names["kept"]:
                    self._kept.mark(name)

    @contextmanager
    def serving(
        self, step: str, round: int, attempt: int, request_hash: str, agreed: Agreed | None = None
    ) -> Iterator[None]:
        """While one request is served: streams derive from it, and one release can be made, as `agreed` allows."""
        self._request, self._made = Served(step, round, attempt, request_hash, agreed), None
        try:
            yield
        finally:
            self._request = None

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
        return derive(self._seed, self.party, request.round, *purpose, request.hash)

    def keep(self, name: str, array: Array | float) -> Array:
        """Put an array into `home`, secret for good, and return it: what is fitted to raw ratings and never leaves."""
        self.home[name] = kept = np.asarray(array)
        if self.protection is not None:
            self._kept.mark(name)
        return kept

    # -- the ways out -----------------------------------------------------------------------------------------

    def chain(
        self,
        query: Query,
        update: Update,
        state: Mapping[str, Any],
        steps: int,
        lets_out: Sequence[str],
        received: Sequence[str] = (),
        weight: float = 1.0,
    ) -> Release:
        """`steps` times state ← update(state, query(state) + noise); the blocks named in `lets_out` leave.

        Where masks were agreed on for this request the blocks leave masked, times the public `weight` that they have in
        a mean over parties. Their noise is the party's own all the same: a chain is not linear, so that no sum of
        parts of it could carry a common noise.

        All of the final state stays in `home`, as public and noised values, so under a protection no block of it may be
        a secret, or bear the name of one. Blocks that came with the request are named in `received`: that one of these
        equals a secret, as a guess may, must change nothing.
        """
        self._no_secret(state, lets_out, received)
        current, event = dict(state), self._admitted(query, steps)
        for step in range(steps):
            current = update(current, self._answer(query, current, step), step)
        blocks = {name: current[name] for name in lets_out}
        payload: Mapping[str, Value] = blocks
        if self._seals is not None and self._seals.ready(context := self._serving().hash):
            payload = self._seals.masked(Fixed.encoded(blocks, weight), Fixed.BITS, context)
        return self._let_out(Kind.CHAIN, payload, event, state=current, received=received)

    def solve(self, problem: Problem) -> Release:
        """The minimisers of convex objectives with a random linear term, drawn here: the noise is inside them."""
        event = self._allowed(problem, lambda protection: problem.event(protection.terms.multiplier))
        request, linear, multiplier = self._serving(), problem.blank(), None
        if self.protection is not None:
            sigma, multiplier = self.protection.scale(problem), self.protection.terms.multiplier
            linear = self.protection.noised(linear, sigma, request.round, request.step, 0, request.hash)
        return self._let_out(Kind.CHAIN, problem.minimisers(linear, multiplier, self.stream("sample", 0)), event)

    def sum(self, query: Query, contributors: int = 1, present: Array | None = None) -> Release:
        """One contribution to a sum over parties; `contributors` devices or parties are in it.

        Where the sum as a whole carries the noise the contribution is made of whole numbers: a party adds its share of
        the noise and its masks, and a simulated cohort leaves both to the aggregation that alone opens it. Otherwise
        every party, and every device of a cohort, adds noise of its own.
        """
        event, request, protection = self._admitted(query, 1), self._serving(), self.protection
        grid = None if protection is None else protection.terms.grids.get(request.step)
        if protection is None or grid is None:
            answer = self._answer(query, {}, 0, max(1, contributors) if self._devices else 1)
            return self._let_out(Kind.SUM, answer, event, contributors, present=present)
        whole = self._whole(query, grid)
        if grid.shares is None or self._seals is None:
            sealed = {SEALED: pack(wrapped(whole, grid.bits), grid.bits)}
            return self._let_out(Kind.SUM, sealed, event, contributors, sealed=True, present=present)
        source = protection.source("noise", request.round, request.step, 0, request.hash)
        with self._recording_refusals():
            noised = self._seals.noised(whole, grid, source, request.hash)
            masked = self._seals.masked(wrapped(noised, grid.bits), grid.bits, request.hash)
        return self._let_out(Kind.SUM, masked, event, contributors, present=present)

    def report(self, query: Randomised, contributors: int = 1, present: Array | None = None) -> Release:
        """Single reports, one per entry of the arrays' first axis, that a shuffler may part from their sender."""
        request, protection = self._serving(), self.protection
        if protection is None:
            coins: Source = Seeded(stream_key(self._seed, self.party, request.round, "coins", request.hash))
            return self._let_out(Kind.REPORT, query.reports(self.stream("sample", 0), coins), None, contributors)
        event = protection.reported(request.step, query)
        protection.admit(request.step, event)
        reports = query.reports(self.stream("sample", 0), protection.source("coins", request.round, request.hash))
        return self._let_out(Kind.REPORT, reports, event, contributors, present=present)

    def public(self, fact: str, value: object = True) -> Release:
        """A fact that no data went into, by schema."""
        if fact not in PUBLIC_FACTS or type(value) is not bool or value not in PUBLIC_FACTS[fact]:
            raise PrivacyRefused(
                f'{self.party} tried to pass "{fact}" as a public fact; only {", ".join(PUBLIC_FACTS)} can leave so: '
                "let anything computed from data leave through gate.chain or gate.sum."
            )
        if self.protection is not None:
            self.protection.afford()
        return self._let_out(Kind.PUBLIC, {fact: True}, Public(), max(1, self._devices))

    def exchange(self, name: str, payload: Mapping[str, Any]) -> Release:
        """One exchange of a secure sum: keys, shares, and what unmasks it; random numbers alone, drawn by `Seals`."""
        if self._seals is None or self.protection is None or name not in EXCHANGES:
            raise PrivacyRefused(f'{self.party} takes part in no secure sum here; "{name}" was not answered.')
        self.protection.afford()
        with self._recording_refusals():
            answer = getattr(self._seals, name)(**payload)
        return self._let_out(Kind.PUBLIC, answer, Public())

    def disclose(self, **payload: Value) -> Release:
        """Data as it is. It exists for the baselines that pool data, and its name is meant to be noticed."""
        if self.protection is not None:
            raise PrivacyRefused(
                f"{self.party} was asked to disclose data as it is, and this run promises a guarantee; "
                "nothing was released."
            )
        return self._let_out(Kind.DISCLOSE, payload, None, max(1, self._devices))

    # -- inside -----------------------------------------------------------------------------------------------

    def _serving(self) -> Served:
        if self._request is None:
            raise PrivacyRefused(
                f"{self.party}'s gate was used outside a request; only a step of the party may use it."
            )
        return self._request

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
        """Refuse, under a protection, blocks that are secret, and names of what is."""
        if self.protection is None:
            return
        named = next((name for name in (*lets_out, *blocks) if name in self._kept.names), None)
        sent = {name: block for name, block in blocks.items() if name in received}
        own = {name: block for name, block in blocks.items() if name not in received}
        found = named or self._kept.found_in(own) or self._kept.found_in(sent, by_value=False)
        if found is not None:
            raise PrivacyRefused(
                f'{self.party} was about to let out "{found}", which it keeps at home for good; nothing was released: '
                "give a chain public and noised blocks only, and use what is kept inside a query."
            )

    def _admitted(self, query: Query, answers: int) -> Event | None:
        """The event of so many noisy answers."""
        step = self._serving().step
        return self._allowed(query, lambda protection: protection.event(step, query, answers))

    def _allowed(self, query: Sensitive, spends: Callable[[Protection], Event]) -> Event | None:
        """The event of a noisy release, once the schedule and the budget allow it; None without a protection."""
        request = self._serving()
        if self.protection is None:
            return None
        self.protection.scale(query)
        self.protection.fits(request.step, query)
        event = spends(self.protection)
        self.protection.admit(request.step, event)
        return event

    def _answer(self, query: Query, state: Mapping[str, Any], step: int, shares: int = 1) -> dict[str, Array]:
        """The query's answer, plus the sum of `shares` independent fresh noises on every cell."""
        request, stream = self._serving(), self.stream("sample", step)
        if self.protection is None:
            return query(state, stream)
        sigma = self.protection.scale(query) * math.sqrt(shares)
        return self.protection.noised(
            query.exact(state, stream), sigma, request.round, request.step, step, request.hash
        )

    def _whole(self, query: Query, grid: Grid) -> Array:
        """A query's answer in whole numbers, each piece rounded by itself; (size,) int64."""
        if self.protection is None or not hasattr(query, "chunks"):
            raise PrivacyRefused(
                f"A sum of {self.party} is no sum of bounded pieces, and cannot be sealed; nothing was released."
            )
        request, summable = self._serving(), cast(Summable, query)
        coins = self.protection.source("rounding", request.round, request.step, request.hash)
        parts = [grid.rounding.summed(part, coins) for part in summable.chunks({}, self.stream("sample", 0))]
        whole: Array = np.sum(parts, axis=0)
        return whole

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
        body, row = encode(payload), None
        if request.agreed is not None:
            request.agreed(kind, decode(body))
        self.home.update(state or {})
        if self.protection is not None:
            if event is None:
                raise PrivacyRefused(f"{self.party} tried to release something that no event accounts for.")
            row = self.protection.ledger.record(
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
                state=self._saved(payload),
                admit=None if isinstance(event, Public) else partial(self.protection.admit, request.step, event),
            )
            self.protection.count(request.step)
        self._made = self._sealed(kind, body, contributors, row)
        return self._made

    def _saved(self, payload: Mapping[str, Value | Array]) -> bytes:
        """What is at home, to start again from; a block that leaves as it is stands in the answer and is only named."""
        sent = [name for name, block in payload.items() if self.home.get(name) is block]
        rest = {name: block for name, block in self.home.items() if name not in sent}
        return encode({**rest, NAMES: json.dumps({"kept": self._kept.names, "sent": sent})})

    def _sealed(self, kind: Kind, body: bytes, contributors: int, row: Row | None) -> Release:
        if row is None or self.protection is None:
            return Release(self.party, kind, body, NON_PRIVATE, contributors, seal=_release._SEAL)
        promised = self.protection.terms.guarantee
        recorded = (row.event, row.payload, row.head)
        return Release(self.party, kind, body, promised, contributors, *recorded, seal=_release._SEAL)
