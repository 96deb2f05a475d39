"""The gate: the only door out of a party.

A *chain* is a number of queries with a pure update between them, or a convex problem *solved* with noise inside it; a
*sum* is one linear contribution, a *report* is a set of single reports for the shuffler, a *public* fact has no data
in it, no more than an *exchange* of keys and shares for a hidden sum, and *disclose* hands out data as it is. What a
chain, a sum or a report asks stands in the run's terms under the step's name: a step brings data and nothing else.
With a protection every one of them is noised or refused, charged and recorded before it leaves; without one,
NON-PRIVATE. What a party *keeps* stays at home for good: under a protection the gate refuses to let it out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from tacit.boundary import mechanisms as mechanism
from tacit.boundary.clipped_sums import rounded
from tacit.boundary.code import AVERAGED, on_public_grid
from tacit.boundary.door import Door
from tacit.boundary.events import Event, Public
from tacit.boundary.query import Answering, Mechanism, Reporting, Solving, Update
from tacit.boundary.release import Kind, Release
from tacit.boundary.spec import StepTerms
from tacit.boundary.wire import Array, Value
from tacit.errors import PrivacyRefused, UsageError

#: Facts that no data goes into, and the only values they can have; keys and shares leave by `exchange`.
PUBLIC_FACTS: Mapping[str, frozenset[object]] = {"done": frozenset({True})}


class Gate(Door):
    """One party's door, one cohort's door.

    Parameters
    ----------
    party : the party's name
    seed : the run's seed; streams derive from (seed, party, round, purpose, hash of the request)
    home : what the party keeps between steps; a chain leaves its final state there
    devices : how many devices a cohort has, 0 for a silo
    protection : the party's ledger, budget and noise, or None for a run without privacy
    terms : what the run promises about each step; the protection's own, where there is one
    how : the party's side of the run's aggregation
    peers : among whom it is
    weight : the party's public weight in a mean over parties
    users : how many users it has, a public number: what bounds a sum without noise

    Guarantee
    ---------
    With a protection: as the protection states, over every release of the run, against everyone who sees what left.
    What was kept never leaves: neither itself, nor a view or copy of it, nor as part of a chain's state; a name once
    secret stays so, over restarts too. Without a protection: none, and every release is stamped NON-PRIVATE. Either
    way a payload is what the step was agreed to give, or nothing leaves, and the noise that was drawn is charged; it
    leaves as bytes, once per request; and a public fact is one of `PUBLIC_FACTS`.
    """

    ways = "gate.chain, gate.sum or gate.public"

    @property
    def noise(self) -> float:
        """σ of the noise on a cell of one answer of the step that is being served; 0 where none is added."""
        terms = self.terms.steps.get(self._serving().step)
        return 0.0 if terms is None else terms.sigma

    def chain(
        self,
        *data: Any,
        update: Update | None = None,
        state: Mapping[str, Any] | None = None,
        lets_out: Sequence[str] | None = None,
        **at_home: Any,
    ) -> Release:
        """As often as the step's spec says: state ← update(state, query(state) + noise); `lets_out` leaves.

        `data` and `at_home` are what the query is asked over. Without an update, what was noised is the state.

        Where an aggregation hides what is averaged over parties, blocks leave under this very request's seal or not at
        all. Their noise is the party's own all the same: a chain is not linear, so that no sum of parts of it could
        carry a common noise.

        All of the final state stays in `home`, as public and noised values, so under a protection no block of it may be
        a secret, or bear the name of one. That a block that came with the request equals a secret, as a guess may,
        changes nothing.
        """
        terms = self.terms.step(self._serving().step, Kind.CHAIN)
        current = dict(state or {})
        received = [name for name in current if name in self._serving().received]
        self._no_secret(current, lets_out or (), received)
        if self._devices > 1 and (self.protection is not None or terms.sealed):
            raise PrivacyRefused(
                f"{self.party} is {self._devices:,} simulated devices, each of which would add noise of its own to a "
                "chain; let each be a party, or make the step a sum."
            )
        answering = terms.query.over(*data, **at_home, present=self._serving().present)
        self._can_seal(terms)
        event = self._admitted(terms)
        self._count_hidden(terms)
        self._owe(Kind.CHAIN, event)
        if terms.query.mechanism is Mechanism.PERTURBED:
            current |= self._solved(cast(Solving, answering), terms)
        else:
            for step in range(terms.spec.answers):
                noised = self._answer(answering, terms, current, step)
                current = noised if update is None else update(current, noised, step)
        leaving = {name: current[name] for name in (current if lets_out is None else lets_out)}
        kept = {} if terms.query.mechanism is Mechanism.PERTURBED else current
        return self._let_out(Kind.CHAIN, self._averaged(leaving, terms), event, state=kept, received=received)

    def sum(self, *data: Any, present: Array | None = None, **at_home: Any) -> Release:
        """One contribution to a sum over parties, of the query that the step's spec names.

        `present` says who takes part, where fewer do than are there. The aggregation decides whose noise the sum
        carries: under `plain` every party, and every device of a cohort, adds all of it; else a share of it, or a
        simulation adds it to the sum.
        """
        terms = self.terms.step(self._serving().step, Kind.SUM)
        here = self._serving().present if present is None else present
        answering = terms.query.over(*data, **at_home, present=here)
        contributors = self._contributors(here)
        event, endpoint = self._admitted(terms), self._endpoint(contributors)
        with self._recording_refusals():
            self.how.ready(terms, endpoint)
        self._count_hidden(terms)
        self._owe(Kind.SUM, event)
        users = contributors if self._devices else self._users
        exact = terms.code.exact(answering, self.stream("sample", 0), endpoint.source("rounding"), users)
        with self._recording_refusals():
            payload = self.how.seal(self.how.noised(exact, terms, endpoint), terms, endpoint)
        return self._let_out(Kind.SUM, payload, event, contributors, sealed=self._left_to_sum(terms), present=here)

    def report(self, *data: Any, **at_home: Any) -> Release:
        """Single reports, one per entry of the arrays' first axis, that a shuffler may part from their sender."""
        terms, here = self.terms.step(self._serving().step, Kind.REPORT), self._serving().present
        answering = cast(Reporting, terms.query.over(*data, **at_home, present=here))
        event, endpoint = self._admitted(terms), self._endpoint(self._contributors(here))
        self._owe(Kind.REPORT, event)
        local = 1 / terms.multiplier if terms.multiplier else math.inf
        reports = answering.reports(self.stream("sample", 0), endpoint.source("coins"), local)
        return self._let_out(Kind.REPORT, reports, event, endpoint.contributors, present=here)

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

    def tell(self, **blocks: Value) -> Release:
        """Refused: arrays leave so from a role that holds nobody's ratings, and from no party."""
        raise PrivacyRefused(
            f"{self.party} has ratings, and gate.tell is for roles that hold none; nothing was released: let anything "
            "computed from data leave through gate.chain or gate.sum."
        )

    def exchange(self, name: str, payload: Mapping[str, Any]) -> Release:
        """One exchange in the course of a hidden sum: keys, shares, and what opens it; random numbers alone."""
        if self.protection is not None:
            self.protection.afford()
        with self._recording_refusals():
            context, begins = str(payload.get("context", "")), name in self.how.first
            if begins and self.protection is not None and self.protection.ledger.answered(context) is not None:
                raise PrivacyRefused(f"{self.party} has given what this sum is about, and seals nothing twice.")
            try:
                answer = self.how.answer(name, payload, self._endpoint(1, context))
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

    def _contributors(self, present: Array | None) -> int:
        """How many devices are in a release; one silo is one."""
        if not self._devices:
            return 1
        return max(1, self._devices) if present is None else int(np.count_nonzero(present))

    def _left_to_sum(self, terms: StepTerms) -> bool:
        """Whether a simulated sum as a whole gets the noise that this contribution lacks: then nobody may see it."""
        return self.protection is not None and terms.sealed and not self.how.seals(terms)

    def _can_seal(self, terms: StepTerms) -> None:
        """Refuse, before any noise is drawn, blocks of a hidden mean that could not be sealed.

        That means are hidden is a term of the run, which no request changes: whoever skips the exchange of keys gets
        nothing. A simulation of many devices, or of an ideal mean, runs no protocol, and says SIMULATED.
        """
        if not terms.sealed:
            return
        if self.how.seals(terms):
            with self._recording_refusals():
                self.how.ready(terms, self._endpoint(1))
        elif self.protection is not None:
            self.protection.only_simulated("let out by itself what only a mean may show")

    def _averaged(self, blocks: Mapping[str, Array], terms: StepTerms) -> Mapping[str, Value]:
        """What leaves of a chain: its blocks, or where a mean hides them, weighted and under the request's seal.

        They carry their noise already: encoding and sealing them is post-processing.
        """
        if self.how.seals(terms):
            encoded = AVERAGED.encoded(blocks, self._weight)
            return self.how.seal(encoded, terms, self._endpoint(1))
        deployed = self.protection is not None and not self.protection.simulated
        return {name: on_public_grid(block) for name, block in blocks.items()} if deployed else blocks

    def _owe(self, kind: Kind, event: Event | None) -> None:
        """From here on noise is drawn: what it costs is recorded, whatever becomes of it."""
        self._owed = None if event is None else (kind, event)

    def _admitted(self, terms: StepTerms) -> Event | None:
        """What a release is charged with, once plan and budget allow it; None without a protection."""
        if self.protection is None:
            return None
        self.protection.admit(terms.spec.step)
        return terms.event

    def _count_hidden(self, terms: StepTerms) -> None:
        """Without a ledger too, what is hidden is released as often as was planned and no oftener.

        Two sums over different parties, subtracted, would show one of them. How many there were is kept at home.
        """
        if self.protection is not None or not terms.sealed:
            return
        name, step = f"hidden {terms.spec.step}", terms.spec.step
        made, most = int(self.home.get(name, 0)), self.terms.releases[step]
        if made >= most:
            raise PrivacyRefused(
                f'{self.party} was asked for release {made + 1} of step "{step}", which is hidden, and {most} were '
                "planned; nothing was released."
            )
        self.keep(name, made + 1)

    def _answer(self, answering: Answering, terms: StepTerms, state: Mapping[str, Any], step: int) -> dict[str, Array]:
        """The query's answer plus fresh noise on every cell of every block, sampled or not."""
        exact = answering.exact(state, self.stream("sample", step))
        if terms.sigma == 0 or self.protection is None:
            return {name: rounded(block) for name, block in exact.items()}
        return mechanism.Gaussian(terms.sigma).noised(exact, self._source("noise", step))

    def _solved(self, problem: Solving, terms: StepTerms) -> dict[str, Array]:
        """The minimisers of convex objectives with a random linear term, drawn here: the noise is inside them."""
        linear, multiplier = problem.blank(), None
        if self.protection is not None:
            linear = mechanism.Gaussian(terms.sigma).noised(linear, self._source("noise", 0))
            multiplier = terms.multiplier
        return problem.minimisers(linear, multiplier, self.stream("sample", 0))
