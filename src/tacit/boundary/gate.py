"""The gate: the only way out of a party. Here noise is added; `base_gate` records a release before its bytes leave.

A *chain* is a number of noisy queries with a pure update between them, or a convex problem solved with noise inside it.
A *sum* is one linear contribution, a *report* a set of single reports for the shuffler. A *public* fact and an
*exchange* of keys and shares contain no data; *disclose* releases data as it is. The step's query comes from the run's
terms: a step brings data and nothing else. With a protection every release is noised or refused, charged and recorded
before it leaves; without one it is NON-PRIVATE. *Private* state stays at home: under a protection it is never released.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from tacit.boundary import mechanisms
from tacit.boundary.base_gate import BaseGate
from tacit.boundary.clipped_sums import as_float32
from tacit.boundary.code import AVERAGED, on_public_grid
from tacit.boundary.endpoint import PartySide, Peers
from tacit.boundary.events import Event, Public
from tacit.boundary.query import Answering, Mechanism, Reporting, Solving, Update
from tacit.boundary.release import Kind, Release
from tacit.boundary.spec import StepTerms, Terms
from tacit.boundary.wire import Array, Value
from tacit.errors import PrivacyRefused

#: Facts that contain no data, and the only values they can have; keys and shares leave by `exchange`.
PUBLIC_FACTS: Mapping[str, frozenset[object]] = {"done": frozenset({True})}


class Gate(BaseGate):
    """The gate of one party or one cohort.

    Parameters
    ----------
    party : the party's name
    seed : the run's seed; streams derive from (seed, party, round, purpose, hash of the request)
    home : what the party stores between steps; a chain stores its final state there
    devices : how many devices a cohort has, 0 for a silo
    protection : the party's ledger and budget, or None for a run without privacy
    terms : what the run promises about each step; the protection's own, where there is one
    aggregation : the party's side of the run's aggregation
    peers : the parties of the run, with their keys
    weight : the party's public weight in a mean over parties
    users : its public number of users, which bounds a sum without noise

    Guarantee
    ---------
    With a protection: as the protection states, over every release of the run, against everyone who sees what left.
    Private state never leaves: neither itself, nor a view or copy of it, nor as part of a chain's state; a name once
    private stays so, over restarts too. Without a protection: none, and every release is stamped NON-PRIVATE. Either
    way a payload fits the step's schema, or nothing leaves, and the noise that was drawn is charged; it leaves as
    bytes, once per request; and a public fact is one of `PUBLIC_FACTS`.
    """

    ways = "gate.chain, gate.sum or gate.public"

    @property
    def noise(self) -> float:
        """σ of the noise on a cell of one answer of the present step; 0 where none is added."""
        terms = self.terms.steps.get(self._serving().step)
        return 0.0 if terms is None else terms.sigma

    def chain(
        self,
        *data: Any,
        update: Update | None = None,
        state: Mapping[str, Any] | None = None,
        release: Sequence[str] | None = None,
        **at_home: Any,
    ) -> Release:
        """As often as the step's spec says: state ← update(state, query(state) + noise); `release` names what leaves.

        `data` and `at_home` are what the query is answered over. Without an update, the noised answer is the state.

        Where an aggregation hides the parties' blocks of a mean, they leave sealed for this very request or not at
        all. Their noise is the party's own all the same: a chain is not linear, so no common noise could be shared.

        The final state stays in `home` as public and noised values, so under a protection no block of it may be
        private, or have the name of a private one. A received block may equal a private one, as a guess may.
        """
        terms = self.terms.step(self._serving().step, Kind.CHAIN)
        current = dict(state or {})
        received = [name for name in current if name in self._serving().received]
        self._refuse_private(current, release or (), received)
        if self._devices > 1 and (self.protection is not None or terms.sealed):
            raise PrivacyRefused(
                f"{self.party} is {self._devices:,} simulated devices, and a chain needs noise from each of them; make "
                "each a party of its own, or make the step a sum."
            )
        answering = terms.query.over(*data, **at_home, present=self._serving().present)
        self._check_can_seal(terms)
        event = self._admitted(terms)
        self._count_hidden(terms)
        self._charge_from_here(Kind.CHAIN, event)
        if terms.query.mechanism is Mechanism.PERTURBED:
            current |= self._solved(cast(Solving, answering), terms)
        else:
            for step in range(terms.spec.answers):
                noised = self._noised_answer(answering, terms, current, step)
                current = noised if update is None else update(current, noised, step)
        leaving = {name: current[name] for name in (current if release is None else release)}
        stored = {} if terms.query.mechanism is Mechanism.PERTURBED else current
        return self._release(Kind.CHAIN, self._averaged(leaving, terms), event, state=stored, received=received)

    def sum(self, *data: Any, present: Array | None = None, **at_home: Any) -> Release:
        """One contribution to a sum over parties, of the query that the step's spec names.

        `present` says which users take part, where not all do. The aggregation decides whose noise the sum carries:
        under `plain` every party, and every device of a cohort, adds all of it; else a share of it, or a simulation
        adds it to the sum.
        """
        terms = self.terms.step(self._serving().step, Kind.SUM)
        here = self._serving().present if present is None else present
        answering = terms.query.over(*data, **at_home, present=here)
        contributors = self._contributors(here)
        event, endpoint = self._admitted(terms), self._endpoint(contributors)
        with self._recording_refusals():
            self.aggregation.ready(terms, endpoint)
        self._count_hidden(terms)
        self._charge_from_here(Kind.SUM, event)
        users = contributors if self._devices else self._users
        exact = terms.code.exact(answering, self.stream("sample", 0), endpoint.source("rounding"), users)
        with self._recording_refusals():
            payload = self.aggregation.seal(self.aggregation.noised(exact, terms, endpoint), terms, endpoint)
        # In a simulation the sum as a whole may get the noise that this contribution lacks: then nobody may see it.
        unnoised = self.protection is not None and terms.sealed and not self.aggregation.seals(terms)
        return self._release(Kind.SUM, payload, event, contributors, sealed=unnoised, present=here)

    def report(self, *data: Any, **at_home: Any) -> Release:
        """Single reports, one per entry of the arrays' first axis, that a shuffler may separate from their sender."""
        terms, here = self.terms.step(self._serving().step, Kind.REPORT), self._serving().present
        answering = cast(Reporting, terms.query.over(*data, **at_home, present=here))
        event, endpoint = self._admitted(terms), self._endpoint(self._contributors(here))
        with self._recording_refusals():
            self.aggregation.ready(terms, endpoint)
        self._charge_from_here(Kind.REPORT, event)
        local = 1 / terms.multiplier if terms.multiplier else math.inf
        reports = answering.reports(self.stream("sample", 0), endpoint.source("coins"), local)
        sealed = self.aggregation.seals(terms)
        payload = self.aggregation.seal(reports, terms, endpoint) if sealed else reports
        return self._release(Kind.REPORT, payload, event, endpoint.contributors, present=here)

    def public(self, fact: str, value: object = True) -> Release:
        """A fact that contains no data, by schema."""
        if fact not in PUBLIC_FACTS or type(value) is not bool or value not in PUBLIC_FACTS[fact]:
            raise PrivacyRefused(
                f'{self.party} tried to release "{fact}" as a public fact; only {", ".join(PUBLIC_FACTS)} is one: '
                "release anything computed from data through gate.chain or gate.sum."
            )
        if self.protection is not None:
            self.protection.check_budget()
        return self._release(Kind.PUBLIC, {fact: True}, Public(), max(1, self._devices))

    def send(self, **blocks: Value) -> Release:
        """Refused: only a role that holds no ratings releases arrays this way."""
        raise PrivacyRefused(
            f"{self.party} has ratings, and gate.send is for roles that hold none; nothing was released: release "
            "anything computed from data through gate.chain or gate.sum."
        )

    def exchange(self, name: str, payload: Mapping[str, Any]) -> Release:
        """One exchange of a hidden sum: keys, shares, and what unmasks it; random numbers only."""
        if self.protection is not None:
            self.protection.check_budget()
        with self._recording_refusals():
            context, begins = str(payload.get("context", "")), name in self.aggregation.first
            if begins and self.protection is not None and self.protection.ledger.answered(context) is not None:
                raise PrivacyRefused(f"{self.party} has contributed to this sum already, and seals nothing twice.")
            follows = not begins and name in self.aggregation.last
            if follows and self.protection is not None and self.protection.ledger.answered(context) is None:
                raise PrivacyRefused(f"{self.party} has recorded no such release, so nothing of it may leave.")
            answer = self._exchanged(name, payload)
        return self._release(Kind.PUBLIC, answer, Public())

    def disclose(self, **payload: Value) -> Release:
        """Data as it is, for baselines that pool data; the name is meant to be noticed."""
        if self.protection is not None:
            raise PrivacyRefused(
                f"{self.party} was requested to disclose data as it is, and this run promises a guarantee; "
                "nothing was released."
            )
        return self._release(Kind.DISCLOSE, payload, None, max(1, self._devices))

    # -- noise ------------------------------------------------------------------------------------------------

    def _noised_answer(
        self, answering: Answering, terms: StepTerms, state: Mapping[str, Any], step: int
    ) -> dict[str, Array]:
        """The query's answer plus fresh noise on every cell of every block, sampled or not."""
        exact = answering.exact(state, self.stream("sample", step))
        if terms.sigma == 0 or self.protection is None:
            return {name: as_float32(block) for name, block in exact.items()}
        return mechanisms.Gaussian(terms.sigma).noised(exact, self._source("noise", step))

    def _solved(self, problem: Solving, terms: StepTerms) -> dict[str, Array]:
        """The minimisers of convex objectives with a random linear term, drawn here: the noise is inside them."""
        linear, multiplier = problem.blank(), None
        if self.protection is not None:
            linear = mechanisms.Gaussian(terms.sigma).noised(linear, self._source("noise", 0))
            multiplier = terms.multiplier
        return problem.minimisers(linear, multiplier, self.stream("sample", 0))

    def _contributors(self, present: Array | None) -> int:
        """How many devices are in a release; one silo is one."""
        if not self._devices:
            return 1
        return max(1, self._devices) if present is None else int(np.count_nonzero(present))

    def _check_can_seal(self, terms: StepTerms) -> None:
        """Before any noise is drawn, refuse blocks of a hidden mean that could not be sealed.

        That means are hidden is a term of the run, which no request changes: a coordinator that skips the exchange of
        keys gets nothing. A simulation of many devices, or of an ideal mean, runs no protocol, and says SIMULATED.
        """
        if not terms.sealed:
            return
        if self.aggregation.seals(terms):
            with self._recording_refusals():
                self.aggregation.ready(terms, self._endpoint(1))
        else:
            self._require_simulation("release by itself what only a mean may show")

    def _averaged(self, blocks: Mapping[str, Array], terms: StepTerms) -> Mapping[str, Value]:
        """What leaves of a chain, noised already: its blocks, or where a mean hides them, weighted and sealed."""
        if self.aggregation.seals(terms):
            return self.aggregation.seal(AVERAGED.encoded(blocks, self._weight), terms, self._endpoint(1))
        return blocks if self._seeded else {name: on_public_grid(block) for name, block in blocks.items()}

    def _charge_from_here(self, kind: Kind, event: Event | None) -> None:
        """From here on noise is drawn: what it costs is recorded, whether or not it is released."""
        self._uncharged = None if event is None else (kind, event)

    def _admitted(self, terms: StepTerms) -> Event | None:
        """What a release is charged with, once plan and budget allow it; None without a protection."""
        if self.protection is None:
            return None
        self.protection.admit(terms.spec.step)
        return terms.event

    def _count_hidden(self, terms: StepTerms) -> None:
        """Without a ledger too, a hidden sum is released only as often as was planned.

        The difference of two sums over different parties would show one party. The count is private and stays at home.
        """
        if self.protection is not None or not terms.sealed:
            return
        name, step = f"hidden {terms.spec.step}", terms.spec.step
        made, most = int(self.home.get(name, 0)), self.terms.releases[step]
        if made >= most:
            raise PrivacyRefused(
                f'{self.party} was requested to make release {made + 1} of step "{step}", which is hidden, and {most} '
                "were planned; nothing was released."
            )
        self.store_private(name, made + 1)


class RoleGate(BaseGate):
    """The gate of a role that holds no ratings: what it computes is public, or was public or noised before.

    Parameters
    ----------
    role : the role's name
    seed, home, terms, aggregation, peers : as in `Gate`
    seeded : whether this is a simulation, whose private draws come from the seed

    Guarantee
    ---------
    A role gets no ratings: its answers are computed from requests, which hold public and noised values only, and from
    data of its own that is nobody's record. So they cost nothing, and there is no ledger. Every answer fits its step's
    schema, one leaves per request, and in a deployment private draws come from the operating system.
    """

    ways = "gate.send"

    def __init__(
        self,
        role: str,
        seed: int,
        home: dict[str, Any],
        terms: Terms | None = None,
        aggregation: PartySide | None = None,
        peers: Peers | None = None,
        seeded: bool = True,
    ) -> None:
        super().__init__(role, seed, home, terms=terms, aggregation=aggregation, peers=peers)
        self._seeded = seeded

    def send(self, **blocks: Value) -> Release:
        """What the role computed, by its step's schema."""
        return self._release(Kind.PUBLIC, blocks, Public())

    def exchange(self, name: str, payload: Mapping[str, Any]) -> Release:
        """One exchange of a hidden sum, answered by the run's aggregation."""
        return self._release(Kind.PUBLIC, self._exchanged(name, payload), Public())
