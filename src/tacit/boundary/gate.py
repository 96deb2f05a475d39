"""The gate: the only door out of a party.

A *chain* is a number of queries with a pure update between them, or a convex problem *solved* with noise inside it; a
*sum* is one linear contribution, a *report* is a set of single reports for the shuffler, a *public* fact has no data
in it, no more than an *exchange* of keys and shares for a secure sum, and *disclose* hands out data as it is.
With a protection every one of them is noised or refused, charged and recorded before it leaves; without one,
NON-PRIVATE. What a party *keeps* stays at home for good: under a protection the gate refuses to let it out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from tacit.boundary.door import Door
from tacit.boundary.events import Event, Public
from tacit.boundary.noise import Skellam
from tacit.boundary.objective import Problem
from tacit.boundary.protection import Protection
from tacit.boundary.query import Query, Randomised, Sensitive, Summable, Update
from tacit.boundary.release import Kind, Release
from tacit.boundary.sealed import SEALED, Fixed, Grid, on_public_grid
from tacit.boundary.source import Seeded, Source
from tacit.boundary.wire import Array, Value
from tacit.errors import PrivacyRefused, UsageError
from tacit.rng import stream_key
from tacit.secure.masks import pack
from tacit.secure.quantize import wrapped

#: Facts that no data goes into, and the only values they can have; keys and shares leave by `exchange`.
PUBLIC_FACTS: Mapping[str, frozenset[object]] = {"done": frozenset({True})}

#: What a party can be asked in the course of a secure sum, beside the contribution itself.
EXCHANGES = ("advertise", "share", "collect", "confirm", "unmask")


class Gate(Door):
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
    way a payload is what the step was agreed to give, or nothing leaves, and the noise that was drawn is charged; it
    leaves as bytes, once per request; and a public fact is one of `PUBLIC_FACTS`.
    """

    def chain(
        self,
        query: Query,
        update: Update,
        state: Mapping[str, Any],
        steps: int,
        lets_out: Sequence[str],
        received: Sequence[str] = (),
        weight: float | None = None,
    ) -> Release:
        """`steps` times state ← update(state, query(state) + noise); the blocks named in `lets_out` leave.

        `weight` is the public weight that the blocks have in a mean over parties; None where they are in no mean. Where
        a run masks its means, blocks with a weight leave under the masks of this very request, or not at all. Their
        noise is the party's own all the same: a chain is not linear, so that no sum of parts of it could carry a common
        noise.

        All of the final state stays in `home`, as public and noised values, so under a protection no block of it may be
        a secret, or bear the name of one. Blocks that came with the request are named in `received`: that one of these
        equals a secret, as a guess may, must change nothing.
        """
        self._no_secret(state, lets_out, received)
        self._can_mask(weight)
        current, event = dict(state), self._admitted(query, steps)
        self._owe(Kind.CHAIN, event)
        sigma = self._sigma(query)
        for step in range(steps):
            current = update(current, self._answer(query, current, step, sigma), step)
        payload = self._masked({name: current[name] for name in lets_out}, weight)
        return self._let_out(Kind.CHAIN, payload, event, state=current, received=received)

    def solve(self, problem: Problem, weight: float | None = None) -> Release:
        """The minimisers of convex objectives with a random linear term, drawn here: the noise is inside them.

        With a `weight` in a mean they leave masked, or not at all, as the blocks of a chain do.
        """
        self._can_mask(weight)
        event = self._allowed(problem, lambda protection: problem.event(protection.terms.multiplier))
        self._owe(Kind.CHAIN, event)
        request, linear, multiplier = self._serving(), problem.blank(), None
        if self.protection is not None:
            sigma, multiplier = self.protection.scale(problem), self.protection.terms.multiplier
            linear = self.protection.noised(linear, sigma, request.round, request.step, 0, request.hash)
        found = problem.minimisers(linear, multiplier, self.stream("sample", 0))
        return self._let_out(Kind.CHAIN, self._masked(found, weight), event)

    def sum(self, query: Query, contributors: int = 1, present: Array | None = None) -> Release:
        """One contribution to a sum over parties; `contributors` devices or parties are in it.

        Where the sum as a whole carries the noise the contribution is made of whole numbers: a party adds its share of
        the noise and its masks, and a simulated cohort leaves both to the aggregation that alone opens it. Otherwise
        every party, and every device of a cohort, adds noise of its own.
        """
        event, request, protection = self._admitted(query, 1), self._serving(), self.protection
        grid = None if protection is None else protection.terms.grids.get(request.step)
        if protection is None or grid is None:
            self._owe(Kind.SUM, event)
            shares = max(1, contributors) if self._devices else 1
            answer = self._answer(query, {}, 0, self._sigma(query) * math.sqrt(shares))
            return self._let_out(Kind.SUM, answer, event, contributors, present=present)
        whole = self._whole(query, grid)
        if grid.own:
            self._owe(Kind.SUM, event)
            noise = Skellam(grid.variance * (max(1, contributors) if self._devices else 1))
            source = protection.source("noise", request.round, request.step, 0, request.hash)
            own = {SEALED: pack(wrapped(noise.add(whole, source), grid.bits), grid.bits)}
            return self._let_out(Kind.SUM, own, event, contributors, present=present)
        if grid.shares is None or self._seals is None:
            protection.only_simulated("leave the noise of a sum to the aggregation")
            sealed = {SEALED: pack(wrapped(whole, grid.bits), grid.bits)}
            return self._let_out(Kind.SUM, sealed, event, contributors, sealed=True, present=present)
        source = protection.source("noise", request.round, request.step, 0, request.hash)
        with self._recording_refusals():
            self._seals.check(request.hash)
            noised = self._seals.noised(whole, grid, source, request.hash)
            self._owe(Kind.SUM, event)
            masked = self._seals.masked(wrapped(noised, grid.bits), grid.bits, request.hash)
        return self._let_out(Kind.SUM, masked, event, contributors, present=present)

    def report(self, query: Randomised, contributors: int = 1, present: Array | None = None) -> Release:
        """Single reports, one per entry of the arrays' first axis, that a shuffler may part from their sender."""
        request, protection = self._serving(), self.protection
        if protection is None:
            coins: Source = Seeded(stream_key(self._seed, self.party, request.round, "coins", request.hash))
            return self._let_out(Kind.REPORT, query.reports(self.stream("sample", 0), coins), None, contributors)
        event = protection.charged(request.step, protection.reported(request.step, query))
        protection.admit(request.step, event)
        self._owe(Kind.REPORT, event)
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
            if name == "advertise" and self.protection.ledger.answered(payload["context"]) is not None:
                raise PrivacyRefused(f"{self.party} has given what this secure sum is about, and masks nothing twice.")
            try:
                answer = getattr(self._seals, name)(**payload)
            except UsageError as wrong:  # asked in the wrong order, or for what there is not
                raise PrivacyRefused(f"{self.party} refuses an exchange: {wrong}") from None
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

    def _can_mask(self, weight: float | None) -> None:
        """Refuse, before any noise is drawn, blocks of a masked mean for which no masks were agreed on.

        That means are masked is a term of the run, which no request changes: whoever skips the exchange of keys gets
        nothing. A simulation of many devices, or of an ideal mean, runs no protocol, and says SIMULATED.
        """
        if weight is None or self.protection is None:
            return
        if self._seals is not None:
            with self._recording_refusals():
                self._seals.check(self._serving().hash)
        elif self.protection.terms.masked:
            self.protection.only_simulated("let out by itself what only a mean may show")

    def _masked(self, blocks: Mapping[str, Array], weight: float | None) -> Mapping[str, Value]:
        """Blocks times their weight in a mean, under this request's masks where such were agreed on; else as they are.

        They carry their noise already: encoding and masking them is post-processing.
        """
        if self._seals is None or not self._seals.ready(context := self._serving().hash):
            deployed = self.protection is not None and not self.protection.simulated
            return {name: on_public_grid(block) for name, block in blocks.items()} if deployed else blocks
        return self._seals.masked(Fixed.encoded(blocks, 1.0 if weight is None else weight), Fixed.BITS, context)

    def _owe(self, kind: Kind, event: Event | None) -> None:
        """From here on noise is drawn: what it costs is recorded, whatever becomes of it."""
        self._owed = None if event is None else (kind, event)

    def _admitted(self, query: Query, answers: int) -> Event | None:
        """The event of so many noisy answers."""
        step = self._serving().step
        return self._allowed(query, lambda protection: protection.event(step, query, answers))

    def _allowed(self, query: Sensitive, spends: Callable[[Protection], Event]) -> Event | None:
        """What a noisy release is charged with, once the schedule and the budget allow it; None without a protection.

        `spends` gives this party's own share of it.
        """
        request = self._serving()
        if self.protection is None:
            return None
        self.protection.scale(query)
        self.protection.fits(request.step, query)
        event = self.protection.charged(request.step, spends(self.protection))
        self.protection.admit(request.step, event)
        return event

    def _sigma(self, query: Query) -> float:
        """σ of one answer; 0 without a protection."""
        return 0.0 if self.protection is None else self.protection.scale(query)

    def _answer(self, query: Query, state: Mapping[str, Any], step: int, sigma: float) -> dict[str, Array]:
        """The query's answer, plus fresh noise on every cell."""
        request, stream = self._serving(), self.stream("sample", step)
        if self.protection is None:
            return query(state, stream)
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
