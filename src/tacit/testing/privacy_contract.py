"""What every method with a guarantee must do, as tests to inherit: no neighbour moves an answer further than stated.

Two neighbours get the same requests and the same noised answers (`tacit.testing.adversary`). The distance of their
exact answers, over the noise that was added, is held to what the release is charged with. A hill climb over what the
record holds, what is asked and what noise made of it looks for the largest distance.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any, ClassVar, cast

import numpy as np

from tacit.boundary.account import epsilon as epsilon_of
from tacit.boundary.code import Grid
from tacit.boundary.events import Gaussian, PerturbedObjective, Pure, SampledGaussian, SampledSkellam, Shuffled, Skellam
from tacit.boundary.protection import Budget
from tacit.boundary.query import Mechanism, Reporting, Solving, Summable
from tacit.boundary.randomness import Seeded
from tacit.boundary.release import Kind
from tacit.boundary.spec import StepTerms
from tacit.config import AggregationSection, PrivacySection
from tacit.data.public_facts import PublicFacts
from tacit.data.ratings import Feedback, Ratings
from tacit.federation import Facts, Floats
from tacit.guarantee import Relation, Unit
from tacit.methods import chosen, find
from tacit.partition import Parties, Setting
from tacit.prepare.plan import Plan, plan_run
from tacit.prepare.prepared import PreparedRun, Record
from tacit.rng import derive, stream_key
from tacit.secure.quantize import Contributions, Repeated, Summands
from tacit.testing.adversary import (
    DIALS,
    ITEMS,
    SCALE,
    USERS,
    WORST,
    InMemory,
    Observed,
    asked_for,
    neighbours,
    observing,
    only_sums,
    pinned,
    promised,
    reports,
    requests,
    shares_of,
)

EPSILON, DELTA = 4.0, 1e-3
#: How many devices' reports are counted, and by how many standard deviations their frequencies may differ by chance.
CROWD, ALARM = 4000, 5.0
#: The part of the stated bound that may not be exceeded: rounding aside.
ENOUGH = 1 + 1e-9


class PrivacyContract:
    """Subclass it under a name that starts with Test, name the method and give quick parameters.

    class TestBias(PrivacyContract):
        name = "bias"

    Attributes
    ----------
    name, parameters : the method, and parameters that make it quick; sample with rate 1, so that no coin hides anybody
    settings : where to look; by default wherever the method can be held
    units : what to protect
    feedback : what the numbers mean
    last : steps without noise that end a run; what they keep at home is in no answer
    declared : |Ω| as everyone may know it, on which no guarantee may rest: small, it makes bounds that follow it small
    within : by setting and unit, the part of the stated bound that the climb must come to, so that it is known to climb
    """

    name: ClassVar[str]
    parameters: ClassVar[dict[str, Any]] = {}
    settings: ClassVar[tuple[Setting, ...]] = ()
    units: ClassVar[tuple[Unit, ...]] = (Unit.USER, Unit.RATING)
    feedback: ClassVar[Feedback] = Feedback.EXPLICIT
    last: ClassVar[tuple[str, ...]] = ("finish",)
    declared: ClassVar[int] = USERS * ITEMS
    within: ClassVar[Mapping[tuple[str, str], float]] = {}

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Every setting, every unit."""
        settings = self.settings or tuple(find(self.name).sides_for(self.feedback))
        metafunc.parametrize(("setting", "unit"), [(setting, unit) for setting in settings for unit in self.units])

    def test_no_neighbour_moves_an_answer_further_than_stated(self, setting: Setting, unit: Unit) -> None:
        """Zero-out within what is charged, replace within twice that, per step; also in sums of integers."""
        plan = self.plan(setting, unit)
        furthest = self.largest_distance(setting, plan)
        assert furthest <= ENOUGH, f"neighbours lie {furthest:.3g} times as far apart as the noise covers"
        assert furthest >= self.within.get((setting, unit), 0.5), f"the climb came to {furthest:.3g} of the bound only"
        if only_sums(plan.terms):
            sealed = self.largest_distance(setting, self.plan(setting, unit, sealed=True), tries=20)
            assert sealed <= ENOUGH, f"a sum of integers moves {sealed:.3g} times as far as its noise covers"

    def test_what_is_charged_is_what_was_asked_for(self, setting: Setting, unit: Unit) -> None:
        """All releases of a run together, as they are charged, cost the epsilon that was asked for, and no more."""
        plain = self.plan(setting, unit).terms
        for terms in (plain, *([self.plan(setting, unit, sealed=True).terms] if only_sums(plain) else [])):
            spent = [row for one in terms.steps.values() for row in [one.event] * one.spec.releases]
            assert epsilon_of(spent, DELTA, terms.relation) <= EPSILON * ENOUGH

    def test_what_is_counted_covers_what_is_promised(self, setting: Setting, unit: Unit) -> None:
        """A rating that is counted as a part of its user's record changes the record: that is replace, never less."""
        terms = self.plan(setting, unit).terms
        assert promised(terms) is unit
        reported = bool(reports(terms))  # a report hides a whole record among all others
        assert terms.unit is unit or terms.relation is Relation.REPLACE or reported

    # -- what a method may have to say ------------------------------------------------------------------------------

    def apart(self, here: Solving, there: Solving, stream: Callable[[], np.random.Generator], times: int) -> float:
        """How far the gradients of two neighbours' problems lie apart; for methods that solve problems.

        `times` is 1 where a unit goes and 2 where it changes.
        """
        raise NotImplementedError(f"{self.name} solves problems; say in `apart` how far its guarantee lets them move.")

    # -- the search ---------------------------------------------------------------------------------------------

    def plan(self, setting: Setting, unit: Unit, sealed: bool = False) -> Plan:
        """What a run over the contract's world promises."""
        method, parameters = chosen({"name": self.name, **self.parameters})
        parties = USERS if setting is Setting.DEVICE else 2
        public = PublicFacts(USERS, ITEMS, SCALE, self.declared, feedback=self.feedback)
        privacy = PrivacySection(epsilon=EPSILON, delta=DELTA, unit=str(unit))
        aggregation = AggregationSection(name="ideal" if sealed else "plain")
        return plan_run(method, parameters, setting, parties, public, privacy, aggregation, seeded=True)

    def largest_distance(self, setting: Setting, plan: Plan, tries: int = 60, seed: int = 7) -> float:
        """The largest distance found, in parts of what is stated: a dial at a time, from one bad place and then others.

        A climb ends where no dial helps, or where too much is found; `tries` is how many distances are looked at.
        """
        if reports(plan.terms):
            return self.reports_distance(setting, plan)
        stream, dials = derive(seed, "climb", self.name, setting), self.dials(setting, plan)
        known: dict[tuple[int, ...], float] = {}

        def look(at: Mapping[str, int]) -> float:
            key = tuple(at[dial] for dial in dials)
            if key not in known:
                known[key] = self.distance(setting, plan, at)
            return known[key]

        at = dict(WORST)
        while True:
            here, again = look(at), True
            while again:
                again = False
                for dial in map(str, stream.permutation(dials)):
                    for option in range(DIALS[dial]):
                        there = {**at, dial: option}
                        if len(known) >= tries or max(known.values()) > ENOUGH:
                            return max(known.values())
                        if look(there) > here * ENOUGH:
                            at, here, again = there, look(there), True
            at = {dial: int(stream.integers(options)) for dial, options in DIALS.items()}

    def reports_distance(self, setting: Setting, plan: Plan) -> float:
        """The largest |ln| ratio of two records' probabilities of one report, in parts of the stated ε₀.

        A crowd of devices that all hold one record, and one whose devices all hold a neighbour's, report once.
        """
        furthest = 0.0
        for asked, move in product((1, 5), (0, 1)):
            at = {**WORST, "asked": asked, "values": 2, "move": move}
            records, near, times = neighbours(plan, at)
            crowds = (shares_of([each[0]] * CROWD, setting) for each in (records, near))
            here, there = (self.converse(plan, crowd, [crowd[0].name], at) for crowd in crowds)
            for (step, query, coins), (_, other, _) in zip(
                *(next(iter(observed.values())).asked for observed in (here, there)), strict=True
            ):
                terms, event = plan.terms.steps[step], plan.terms.steps[step].event
                assert isinstance(event, (Pure, Shuffled))
                local = event.epsilon if isinstance(event, Pure) else event.local_epsilon
                most = local * (terms.query.sensitivity(plan.terms.unit, Relation.REPLACE) if times == 2 else 1.0)
                furthest = max(furthest, reports_apart(query, other, coins, local) / most)
        return furthest

    def dials(self, setting: Setting, plan: Plan) -> list[str]:
        """Those that can make a difference: what is told or asked only where a step takes numbers, and so on."""
        steps = find(self.name).sides_in(setting, self.feedback).party.steps
        noisy = set(plan.terms.steps)
        told = {name for name, step in steps.items() if step.kind is Kind.PUBLIC and name not in self.last}
        numbers = {
            name for name, step in steps.items() if any(isinstance(f, Floats) for f in step.takes.fields.values())
        }
        idle = set() if told & numbers else {"told"}
        idle |= set() if noisy & numbers else {"asked"}
        idle |= set() if any(steps[name].kind is Kind.CHAIN for name in noisy) else {"noise"}
        return [dial for dial in DIALS if dial not in idle]

    def distance(self, setting: Setting, plan: Plan, at: Mapping[str, int]) -> float:
        """How far two neighbours' answers lie apart at these dials, in parts of what is stated; the worst step."""
        records, near, times = neighbours(plan, at)
        mine, theirs = (shares_of(these, setting) for these in (records, near))
        changed = [a.name for a, b in zip(mine, theirs, strict=True) if not _same(a.ratings, b.ratings)]
        here, there = (self.converse(plan, shares, changed, at) for shares in (mine, theirs))
        furthest, answered = [0.0], Counter[str]()
        for (party, one), other in zip(here.items(), there.values(), strict=True):
            for (step, sigma, exact), (_step, _sigma, near_exact) in zip(one.noised, other.noised, strict=True):
                terms, answered[step] = plan.terms.steps[step], answered[step] + 1
                moved = math.sqrt(sum(float(np.square(exact[name] - near_exact[name]).sum()) for name in exact))
                assert sigma >= covered(terms) * (1 - 1e-9), f"{party}: less noise than {step} states"
                furthest.append(moved * multiplier(terms) / (times * sigma))
            for (step, asked, coins), (_, near_asked, _) in zip(one.asked, other.asked, strict=True):
                terms = plan.terms.steps[step]
                if isinstance(terms.code, Grid):
                    parts, near_parts = (list(cast(Summable, each).chunks({}, coins())) for each in (asked, near_asked))
                    furthest.append(integer_distance(parts, near_parts, terms) / times)
                elif terms.query.mechanism is Mechanism.PERTURBED:
                    furthest.append(self.apart(asked, near_asked, coins, times) / (times * terms.sensitivity))
        for step, terms in plan.terms.steps.items():
            if terms.query.mechanism is Mechanism.NORMAL and not isinstance(terms.code, Grid):
                count = answered[step]
                assert count or not (changed and terms.spec.answers), f"{step} was answered with no noise at all"
                charged = cast(Gaussian, terms.event).count * asked_for(terms) * times
                assert count <= charged, f"one unit is in {count} answers of {step}, and {charged} are charged"
        return max(furthest)

    def converse(self, plan: Plan, parties: Parties, whom: Sequence[str], at: Mapping[str, int]) -> dict[str, Observed]:
        """What these parties say when they are told `told` and asked `asked`, by party."""
        facts = replace(Facts.of(parties, 7), feedback=self.feedback)
        prepared = PreparedRun.by_plan(find(self.name), facts, plan, run="run")
        kept_for = str(plan.terms.unit), str(plan.terms.relation)
        observed = {}
        for share in parties:
            if share.name in whom:
                party = prepared.party(share, Record(_ledger(share.name, *kept_for), Budget(100.0, plan.delta)))
                with observing(party, pinned(at["noise"], share.name)) as observed[share.name]:
                    for request in requests(party, plan, at, self.last):
                        party.answer(request)
        return observed


@cache
def _ledger(party: str, *_kept_for: str) -> InMemory:
    """A ledger that nothing is recorded in, so that one does for all that are kept for the same."""
    return InMemory(party)


def _same(one: Ratings, other: Ratings) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("indptr", "items", "values"))


def multiplier(terms: StepTerms) -> float:
    """Noise over how far one unit moves an answer, as the step's releases are charged."""
    event = terms.event
    assert isinstance(event, Gaussian | SampledGaussian | PerturbedObjective), f"an unknown charge: {event}"
    return event.multiplier


def covered(terms: StepTerms) -> float:
    """σ that the charge asks for, if the sensitivity is as it is stated."""
    return multiplier(terms) * terms.sensitivity


def integer_distance(here: Sequence[Summands], there: Sequence[Summands], terms: StepTerms) -> float:
    """How far a sum of integers moves between neighbours, in parts of what is charged: the larger of Δ₂'s and Δ₁'s.

    Contributions that both have fall out, since each is rounded by its own coins; every other one can move the sum by
    all of its rounded length.
    """
    grid, event = terms.code, terms.event
    assert isinstance(grid, Grid)
    assert isinstance(event, Skellam | SampledSkellam), f"a sum of integers is charged as {event}"
    assert grid.variance >= event.variance * (1 - 1e-9), "less noise in integers than is charged"
    rounding, ours, theirs = grid.rounding, Counter(_single(here)), Counter(_single(there))
    l2 = l1 = 0.0
    for number, piece in enumerate([*(ours - theirs).elements(), *(theirs - ours).elements()]):
        values = np.frombuffer(piece, dtype=np.float64)
        cells = np.flatnonzero(values)
        assert len(cells) <= rounding.touched, (
            f"a contribution has {len(cells)} non-zero cells, and {rounding.touched} are stated"
        )
        assert np.linalg.norm(values) <= rounding.clip * (1 + 1e-9), "a contribution is longer than stated"
        alone = Contributions(np.array([0, len(cells)]), cells, values[cells], len(values))
        summed = rounding.summed(alone, Seeded(stream_key(7, "contract", number))).astype(np.float64)
        l2, l1 = l2 + float(np.linalg.norm(summed)), l1 + float(np.abs(summed).sum())
    return max(l2 / event.l2, l1 / event.l1)


def _single(parts: Sequence[Summands]) -> Iterator[bytes]:
    """Each piece that is not 0, as its cells."""
    for pieces in (part.each if isinstance(part, Repeated) else part for part in parts):
        for start, end in zip(pieces.starts, pieces.starts[1:], strict=False):
            whole = np.zeros(pieces.size)
            whole[pieces.cells[start:end]] = pieces.values[start:end]
            if whole.any():
                yield whole.tobytes()


def reports_apart(here: Reporting, there: Reporting, coins: Callable[[], np.random.Generator], epsilon: float) -> float:
    """The largest |ln| ratio of how often two crowds make one report, less what chance may add to it.

    What is drawn before the data is looked at falls the same way for both.
    """
    counts = []
    for query in (here, there):
        reports = query.reports(coins(), Seeded(stream_key(7, "contract", "reports")), epsilon)
        rows = zip(*(np.asarray(block).reshape(len(block), -1) for block in reports.values()), strict=True)
        counts.append(Counter(b"".join(part.tobytes() for part in row) for row in rows))
    one, other = counts
    ratios = [0.0]
    for report in one.keys() | other.keys():
        a, b = one[report] + 1, other[report] + 1
        ratios.append(abs(math.log(a / b)) - ALARM * math.sqrt(1 / a + 1 / b))
    return max(ratios)
