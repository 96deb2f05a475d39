"""What every method with a guarantee must do, as tests to inherit: no neighbour moves an answer further than stated.

A coordinator may ask any step, with anything that the step's schema takes, and noise may come out as anything. So the
contract asks a real party, through its real gate, with payloads as bad as the schema allows, and puts its own numbers
in the place of noised answers; the exact answer before the noise, and how much noise there was, are written down. Two
neighbours get the same requests and the same noised answers, and the distance of what was exact, over the noise that
was added to it, is held to what the release is charged with. A climb over what the record holds, what is asked and what
noise made of it looks for the largest distance.
"""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, cast
from unittest.mock import patch

import numpy as np

from tacit.boundary import mechanisms
from tacit.boundary.account import epsilon as epsilon_of
from tacit.boundary.code import Grid
from tacit.boundary.events import Gaussian, PerturbedObjective, Pure, SampledGaussian, SampledSkellam, Shuffled, Skellam
from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import Budget
from tacit.boundary.query import Exact, Mechanism, Query, Reporting, Rows, Solving, Summable
from tacit.boundary.randomness import Seeded, Source
from tacit.boundary.release import Kind
from tacit.boundary.spec import StepTerms, Terms
from tacit.boundary.wire import Array, Value, encode
from tacit.config import AggregationSection, PrivacySection
from tacit.data.public_facts import PublicFacts
from tacit.data.ratings import Ratings, Scale
from tacit.data.vocabulary import Vocabulary
from tacit.federation import Facts, Floats, Party
from tacit.federation.messages import Integer, Request, Step
from tacit.guarantee import Guarantee, Relation, Unit
from tacit.methods import chosen, find
from tacit.partition import Parties, Setting, partition
from tacit.prepare.plan import Plan, plan_run
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.prepared import Record as Kept
from tacit.rng import derive, stream_key
from tacit.secure.quantize import Contributions

USERS, ITEMS, SCALE = 4, 7, Scale(1, 5)
EPSILON, DELTA = 4.0, 1e-3
#: One record: by item, the rating.
Record = Mapping[int, float]
#: How many devices' reports are counted, and by how many standard deviations their frequencies may differ by chance.
CROWD, ALARM = 4000, 5.0

_LOW, _HIGH = SCALE.low, SCALE.high
#: From where on a part of what is stated is too much: rounding aside.
ENOUGH = 1 + 1e-9
#: What the climb turns, one dial at a time.
DIALS: Mapping[str, int] = {"rated": 6, "values": 4, "others": 4, "move": 3, "told": 8, "asked": 8, "noise": 4}


class InMemory(Ledger):
    """A ledger that forgets when the process ends; all else is as on disk."""

    def __init__(self, party: str) -> None:
        self.path, self.party, self._key = Path(f"{party}.sqlite"), party, bytes(32)
        self._database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._begin()


@dataclass
class Heard:
    """What one party was about to say.

    Attributes
    ----------
    asked : per release its step, what answers it over the party's data, and the stream that its sample is drawn from
    noised : per noisy answer its step, σ of the noise that each contributor added, and its exact blocks
    """

    asked: list[tuple[str, Any, Callable[[], np.random.Generator]]] = field(default_factory=list)
    noised: list[tuple[str, float, dict[str, Array]]] = field(default_factory=list)


class PrivacyContract:
    """Subclass it under a name that starts with Test, name the method and give quick parameters.

    class TestBias(PrivacyContract):
        name = "bias"

    Attributes
    ----------
    name, parameters : the method, and parameters that make it quick; sample with rate 1, so that no coin hides anybody
    settings : where to look; by default wherever the method can be held
    units : what to protect
    last : steps without noise that end a run; what they keep at home is in no answer
    declared : |Ω| as everyone may know it, on which no guarantee may rest: small, it makes bounds that follow it small
    within : by setting and unit, the part of the stated bound that the climb must come to, so that it is known to climb
    """

    name: ClassVar[str]
    parameters: ClassVar[dict[str, Any]] = {}
    settings: ClassVar[tuple[Setting, ...]] = ()
    units: ClassVar[tuple[Unit, ...]] = (Unit.USER, Unit.RATING)
    last: ClassVar[tuple[str, ...]] = ("finish",)
    declared: ClassVar[int] = USERS * ITEMS
    within: ClassVar[Mapping[tuple[str, str], float]] = {}

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Every setting, every unit."""
        settings = self.settings or tuple(find(self.name).sides)
        metafunc.parametrize(("setting", "unit"), [(setting, unit) for setting in settings for unit in self.units])

    # -- the tests ----------------------------------------------------------------------------------------------

    def test_no_neighbour_moves_an_answer_further_than_stated(self, setting: Setting, unit: Unit) -> None:
        """Zero-out within what is charged, replace within twice that, per step; also in sums of integers."""
        plan = self.plan(setting, unit)
        furthest = self.climbed(setting, plan)
        assert furthest <= ENOUGH, f"neighbours lie {furthest:.3g} times as far apart as the noise covers"
        assert furthest >= self.within.get((setting, unit), 0.5), f"the climb came to {furthest:.3g} of the bound only"
        if only_sums(plan.terms):
            sealed = self.climbed(setting, self.plan(setting, unit, sealed=True), tries=20)
            assert sealed <= ENOUGH, f"a sum of whole numbers moves {sealed:.3g} times as far as its noise covers"

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
        public = PublicFacts(USERS, ITEMS, SCALE, self.declared)
        privacy = PrivacySection(epsilon=EPSILON, delta=DELTA, unit=str(unit))
        aggregation = AggregationSection(name="ideal" if sealed else "plain")
        return plan_run(method, parameters, setting, parties, public, privacy, aggregation, seeded=True)

    def climbed(self, setting: Setting, plan: Plan, tries: int = 60, seed: int = 7) -> float:
        """The largest distance found, in parts of what is stated: a dial at a time, from one bad place and then others.

        A climb ends where no dial helps, or where too much is found; `tries` is how many distances are looked at.
        """
        if reports(plan.terms):
            return self.told_apart(setting, plan)
        stream, dials = derive(seed, "climb", self.name, setting), self.dials(setting, plan)
        known: dict[tuple[int, ...], float] = {}

        def look(at: Mapping[str, int]) -> float:
            key = tuple(at[dial] for dial in dials)
            if key not in known:
                known[key] = self.distance(setting, plan, at)
            return known[key]

        at = dict(_WORST)
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

    def told_apart(self, setting: Setting, plan: Plan) -> float:
        """The largest |ln| ratio of two records' probabilities of one report, in parts of the stated ε₀.

        A crowd of devices that all hold one record, and one whose devices all hold a neighbour's, report once.
        """
        furthest = 0.0
        for asked, move in product((1, 5), (0, 1)):
            at = {**_WORST, "asked": asked, "values": 2, "move": move}
            records, near, _times = neighbours(plan, at)
            crowds = (shares_of([each[0]] * CROWD, setting) for each in (records, near))
            here, there = (self.converse(plan, crowd, [crowd[0].name], at) for crowd in crowds)
            for (step, query, coins), (_, other, _) in zip(
                *(next(iter(heard.values())).asked for heard in (here, there)), strict=True
            ):
                event = plan.terms.steps[step].event
                assert isinstance(event, (Pure, Shuffled))
                local = event.epsilon if isinstance(event, Pure) else event.local_epsilon
                furthest = max(furthest, reports_apart(query, other, coins, local) / local)
        return furthest

    def dials(self, setting: Setting, plan: Plan) -> list[str]:
        """Those that can make a difference: what is told or asked only where a step takes numbers, and so on."""
        steps = find(self.name).sides_in(setting).party.steps
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
                    furthest.append(whole_moves(parts, near_parts, terms) / times)
                elif terms.query.mechanism is Mechanism.PERTURBED:
                    furthest.append(self.apart(asked, near_asked, coins, times) / (times * terms.sensitivity))
        for step, terms in plan.terms.steps.items():
            if terms.query.mechanism is Mechanism.NORMAL and not isinstance(terms.code, Grid):
                count = answered[step]
                assert count or not (changed and terms.spec.answers), f"{step} was answered with no noise at all"
                charged = cast(Gaussian, terms.event).count * asked_for(terms) * times
                assert count <= charged, f"one unit is in {count} answers of {step}, and {charged} are charged"
        return max(furthest)

    def converse(self, plan: Plan, parties: Parties, whom: Sequence[str], at: Mapping[str, int]) -> dict[str, Heard]:
        """What these parties say when they are told `told` and asked `asked`, by party."""
        prepared = PreparedRun.by_plan(find(self.name), Facts.of(parties, 7), plan, run="run")
        kept_for = str(plan.terms.unit), str(plan.terms.relation)
        heard = {}
        for share in parties:
            if share.name in whom:
                party = prepared.party(share, Kept(_ledger(share.name, *kept_for), Budget(100.0, plan.delta)))
                with listening(party, pinned(at["noise"], share.name)) as heard[share.name]:
                    for request in requests(party, plan, at, self.last):
                        party.answer(request)
        return heard


@cache
def _ledger(party: str, *_kept_for: str) -> InMemory:
    """A ledger that nothing is recorded in, so that one does for all that are kept for the same."""
    return InMemory(party)


def _same(one: Ratings, other: Ratings) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("indptr", "items", "values"))


class Overheard(Query):
    """A query as it is, but for a note of what answers it over whose data."""

    def __init__(self, query: Query, note: Callable[[Any], None]) -> None:
        self._query, self._note = query, note

    def __getattribute__(self, name: str) -> Any:
        if name in ("_query", "_note", "over"):
            return object.__getattribute__(self, name)
        return getattr(self._query, name)

    def over(self, *data: Any, **options: Any) -> Any:
        answering = self._query.over(*data, **options)
        self._note(answering)
        return answering


@contextmanager
def listening(party: Party, pin: Callable[[str, tuple[int, ...]], Array]) -> Iterator[Heard]:
    """While it lasts, what the party is asked is written down, and `pin` takes the place of what was noised.

    Nothing is recorded or held to a schedule or a budget, since nothing leaves.
    """
    heard, gate = Heard(), party.gate
    assert gate.protection is not None

    def asked(answering: Any) -> None:
        served = gate._serving()
        coins = partial(derive, 7, party.name, served.round, "sample", 0, served.hash)
        heard.asked.append((served.step, answering, coins))

    def noised(mechanism: mechanisms.Gaussian, blocks: Mapping[str, Exact], source: Source) -> dict[str, Array]:
        exact = {name: block.dense() if isinstance(block, Rows) else block.copy() for name, block in blocks.items()}
        step = gate._serving().step
        devices = gate._contributors(gate.present) if party.steps[step].kind is Kind.SUM else 1
        heard.noised.append((step, mechanism.sigma / math.sqrt(devices), exact))  # what each of them added
        return {name: pin(name, block.shape).astype(np.float32) for name, block in exact.items()}

    def nothing(*given: Any, **named: Any) -> None:
        return None

    steps = {
        name: replace(terms, spec=replace(terms.spec, query=Overheard(terms.query, asked)))
        for name, terms in gate.terms.steps.items()
    }
    gate.terms = replace(gate.terms, steps=steps)
    vars(gate).update(_record=nothing)
    vars(gate.protection).update(admit=nothing, afford=nothing)
    with patch.object(mechanisms.Gaussian, "noised", noised):
        yield heard


def promised(terms: Terms) -> Unit:
    """The unit that the guarantee is about."""
    assert isinstance(terms.guarantee, Guarantee)
    return terms.guarantee.unit


def only_sums(terms: Terms) -> bool:
    """Whether all that is asked of data is sums, so that these may be hidden."""
    return all(one.kind is Kind.SUM for one in terms.steps.values())


def reports(terms: Terms) -> list[str]:
    """The steps that end in randomised reports."""
    return [name for name, one in terms.steps.items() if one.query.mechanism is Mechanism.RESPONSE]


def multiplier(terms: StepTerms) -> float:
    """Noise over how far one unit moves an answer, as the step's releases are charged."""
    event = terms.event
    assert isinstance(event, Gaussian | SampledGaussian | PerturbedObjective), f"an unknown charge: {event}"
    return event.multiplier


def covered(terms: StepTerms) -> float:
    """σ that the charge asks for, if the sensitivity is as it is stated."""
    return multiplier(terms) * terms.sensitivity


def asked_for(terms: StepTerms) -> int:
    """How many releases of a step the contract asks for."""
    return min(terms.spec.releases, 2)


# -- neighbours -----------------------------------------------------------------------------------------------------

_ALL = range(ITEMS)
_RATED: tuple[Sequence[int], ...] = (_ALL, _ALL[: ITEMS // 2], (0,), (0, ITEMS - 2, ITEMS - 1), (1, 3), ())
_VALUES: tuple[Callable[[int], float], ...] = (
    lambda item: _LOW,
    lambda item: _HIGH,
    lambda item: (_LOW, _HIGH)[item % 2],
    lambda item: (_LOW + _HIGH) / 2,
)
#: Where every climb begins: a full record of the lowest ratings, and factors that predict the highest.
_WORST = {"rated": 0, "values": 0, "others": 1, "move": 0, "told": 1, "asked": 1, "noise": 1}


def neighbours(plan: Plan, at: Mapping[str, int]) -> tuple[list[Record], list[Record], int]:
    """Everybody's records, a neighbour's, and how often the stated bound covers their distance.

    The neighbours are those of what is counted; where a rating is promised and its user counted, also the promised
    ones, which are then within replace.
    """
    terms, unit = plan.terms, promised(plan.terms)
    record = {item: _VALUES[at["values"]](item) for item in _RATED[at["rated"]]}
    others: tuple[Record, ...] = ({}, dict.fromkeys(_ALL, _LOW), dict.fromkeys(_ALL, _HIGH), {0: _HIGH})
    rest = [others[at["others"]]] * (USERS - 1)
    opposite = {item: _LOW + _HIGH - value for item, value in record.items()}
    moved: Record
    if terms.unit is Unit.USER and (unit is Unit.USER or at["move"] == 2):
        moved, times = (({}, 1), (opposite, 2), (dict.fromkeys(_ALL, _HIGH), 2))[at["move"]]
    else:
        first = min(record, default=0)
        gone = {item: value for item, value in record.items() if item != first}
        free = next((item for item in _ALL if item not in record), first)
        moved, times = ((gone, 1), ({**gone, free: _HIGH}, 2), (opposite if len(record) == 1 else gone, 2))[at["move"]]
        if terms.unit is not unit:
            times = 2 if terms.relation is Relation.REPLACE else 1
    return [record, *rest], [moved, *rest], times


@cache
def _vocabularies(users: int) -> tuple[Vocabulary, Vocabulary]:
    return Vocabulary.of(list(range(users)), "user"), Vocabulary.of(list(range(ITEMS)), "item")


def shares_of(records: Sequence[Record], setting: Setting) -> Parties:
    """These records, divided as the setting has it."""
    users, items = _vocabularies(len(records))
    rows = [sorted(record.items()) for record in records]
    ratings = Ratings(
        indptr=np.cumsum([0, *map(len, rows)]).astype(np.int64),
        items=np.array([item for row in rows for item, _ in row], dtype=np.int32),
        values=np.array([value for row in rows for _, value in row], dtype=np.float32),
        user_ids=users,
        item_ids=items,
        scale=SCALE,
    )
    by, into = {"horizontal": ("user", 2), "vertical": ("item", 2), "device": ("device", 1)}[setting]
    return partition(ratings, by=by, into=into)


# -- requests -------------------------------------------------------------------------------------------------------


def requests(party: Party, plan: Plan, at: Mapping[str, int], last: Sequence[str]) -> Iterator[Request]:
    """What a coordinator asks: every step without noise once, then every noisy one, twice where that is planned."""
    for step in party.steps.values():
        if step.kind is Kind.PUBLIC and step.name not in last:
            yield request_of(party, step, 0, at["told"])
    for name, terms in plan.terms.steps.items():
        for round in range(1, asked_for(terms) + 1):
            yield request_of(party, party.steps[name], round, at["asked"])


def request_of(party: Party, step: Step, round: int, mode: int) -> Request:
    payload: dict[str, Value] = {}
    for name, wanted in step.takes.fields.items():
        if isinstance(wanted, Floats):
            shape = tuple(party.dimensions[s] if isinstance(s, str) else s for s in wanted.shape)
            payload[name] = wild(mode, shape).astype(np.float32)
        elif isinstance(wanted, Integer):
            payload[name] = min(max(wanted.low, round - 1), wanted.high)
        else:
            raise NotImplementedError(f'The contract does not know what "{name}" of step "{step.name}" can be.')
    return Request("contract", "", step.name, round, 0, encode(payload))


def wild(mode: int, shape: tuple[int, ...]) -> Array:
    """Numbers that a schema takes: corners of Π's ball, all on one axis or on many, beyond it, negative, huge, none."""
    p = shape[-1] if len(shape) > 1 else 1
    rows, size = math.prod(shape) // p, math.sqrt(SCALE.span)
    corners = size * np.eye(p)
    if mode == 0:
        x = np.zeros((rows, p))
    elif mode in (1, 2):
        x = np.tile(corners[0 if mode == 1 else -1], (rows, 1))
    elif mode == 3:
        x = corners[np.arange(rows) % p]
    elif mode == 4:
        x = np.where(np.arange(rows)[:, None] < 2, corners[np.arange(rows) % p], 0.0)
    elif mode == 5:
        x = size * derive(7, "wild").random((rows, p))
    elif mode == 6:
        x = np.where(derive(8, "wild").random((rows, p)) < 0.5, -3e38, 3e38)
    else:
        x = -np.tile(corners[0], (rows, 1))
    return x.reshape(shape)


def pinned(mode: int, party: str) -> Callable[[str, tuple[int, ...]], Array]:
    """What noise makes of every answer: nothing, a push of every row to a corner, pushes to many, large numbers."""

    def pin(name: str, shape: tuple[int, ...]) -> Array:
        if mode == 0:
            return np.zeros(shape)
        if mode == 1:
            return np.where(np.arange(shape[-1]) == 0, -1e9, 1e9) * np.ones(shape)
        if mode == 2:
            return np.where(np.arange(math.prod(shape)).reshape(shape) * 7 % 3 == 0, -1e9, 1e9)
        return 1e4 * derive(9, "pin", party, name).standard_normal(shape)

    return pin


# -- how far ----------------------------------------------------------------------------------------------------------


def whole_moves(here: Sequence[Contributions], there: Sequence[Contributions], terms: StepTerms) -> float:
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
        assert len(cells) <= rounding.touched, f"a piece touches {len(cells)} cells, and {rounding.touched} are stated"
        assert np.linalg.norm(values) <= rounding.clip * (1 + 1e-9), "a piece is longer than stated"
        alone = Contributions(np.array([0, len(cells)]), cells, values[cells], len(values))
        whole = rounding.summed(alone, Seeded(stream_key(7, "contract", number))).astype(np.float64)
        l2, l1 = l2 + float(np.linalg.norm(whole)), l1 + float(np.abs(whole).sum())
    return max(l2 / event.l2, l1 / event.l1)


def _single(parts: Sequence[Contributions]) -> Iterator[bytes]:
    """Each piece that is not 0, as its cells."""
    for pieces in parts:
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
