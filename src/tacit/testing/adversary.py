"""The worst that neighbours, a coordinator and noise can do, for the privacy contract.

A coordinator may request any step, with anything that the step's schema takes, and noise may come out as anything. So a
real party is asked, through its real gate, with payloads as bad as the schema allows, and chosen numbers replace noised
answers; the exact answer before the noise, and how much noise there was, are recorded.
"""

import math
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from tacit.boundary import mechanisms
from tacit.boundary.ledger import Ledger
from tacit.boundary.query import Exact, Mechanism, Query, Rows
from tacit.boundary.randomness import Source
from tacit.boundary.release import Kind
from tacit.boundary.spec import StepTerms, Terms
from tacit.boundary.wire import Array, Value, encode
from tacit.data.ratings import Ratings, Scale
from tacit.data.vocabulary import Vocabulary
from tacit.federation import Floats, Party
from tacit.federation.messages import Integer, Request, Step
from tacit.guarantee import Guarantee, Relation, Unit
from tacit.partition import Parties, Setting, partition
from tacit.prepare.plan import Plan
from tacit.rng import derive

USERS, ITEMS, SCALE = 4, 7, Scale(1, 5)
LOW, HIGH, EVERY = SCALE.low, SCALE.high, range(ITEMS)
#: One record: by item, the rating.
Record = Mapping[int, float]
#: What the search varies, one dial at a time, with the number of its options.
DIALS: Mapping[str, int] = {"rated": 6, "values": 4, "others": 4, "move": 3, "told": 8, "asked": 8, "noise": 4}
#: Where every search begins: a full record of the lowest ratings, and factors that predict the highest.
WORST = {"rated": 0, "values": 0, "others": 1, "move": 0, "told": 1, "asked": 1, "noise": 1}

_RATED: tuple[Sequence[int], ...] = (EVERY, EVERY[: ITEMS // 2], (0,), (0, ITEMS - 2, ITEMS - 1), (1, 3), ())
_VALUES: tuple[Callable[[int], float], ...] = (
    lambda item: LOW,
    lambda item: HIGH,
    lambda item: (LOW, HIGH)[item % 2],
    lambda item: (LOW + HIGH) / 2,
)


def neighbours(plan: Plan, at: Mapping[str, int]) -> tuple[list[Record], list[Record], int]:
    """All records, a neighbour's, and how many times the stated bound their distance may be.

    The neighbours are those of what is counted; where a rating is promised and its user counted, also the promised
    ones, which are then within replace.
    """
    terms, unit = plan.terms, promised(plan.terms)
    record = {item: _VALUES[at["values"]](item) for item in _RATED[at["rated"]]}
    others: tuple[Record, ...] = ({}, dict.fromkeys(EVERY, LOW), dict.fromkeys(EVERY, HIGH), {0: HIGH})
    rest = [others[at["others"]]] * (USERS - 1)
    opposite = {item: LOW + HIGH - value for item, value in record.items()}
    moved: Record
    if terms.unit is Unit.USER and (unit is Unit.USER or at["move"] == 2):
        moved, times = (({}, 1), (opposite, 2), (dict.fromkeys(EVERY, HIGH), 2))[at["move"]]
    else:
        first = min(record, default=0)
        gone = {item: value for item, value in record.items() if item != first}
        free = next((item for item in EVERY if item not in record), first)
        moved, times = ((gone, 1), ({**gone, free: HIGH}, 2), (opposite if len(record) == 1 else gone, 2))[at["move"]]
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


def requests(party: Party, plan: Plan, at: Mapping[str, int], last: Sequence[str]) -> Iterator[Request]:
    """What a coordinator requests: every step without noise once, then every noisy one, twice where that is planned."""
    for step in party.steps.values():
        if step.kind is Kind.PUBLIC and step.name not in last:
            yield request_of(party, step, 0, at["told"])
    for name, terms in plan.terms.steps.items():
        for round in range(1, asked_for(terms) + 1):
            yield request_of(party, party.steps[name], round, at["asked"])


def request_of(party: Party, step: Step, round: int, mode: int) -> Request:
    """One request, with the worst arrays of that mode."""
    payload: dict[str, Value] = {}
    sizes = {**party.dimensions, "any": 2}
    for name, wanted in step.takes.fields.items():
        if isinstance(wanted, Floats):
            shape = tuple(sizes[s] if isinstance(s, str) else s for s in wanted.shape)
            numbers = wild(mode, shape)
            if wanted.dtype.kind == "i":
                numbers = np.clip(numbers, -(2**31), 2**31 - 1)
            payload[name] = numbers.astype(wanted.dtype)
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
    cycled = corners[np.arange(rows) % p]
    x = (
        np.zeros((rows, p)),
        np.tile(corners[0], (rows, 1)),
        np.tile(corners[-1], (rows, 1)),
        cycled,
        np.where(np.arange(rows)[:, None] < 2, cycled, 0.0),
        size * derive(7, "wild").random((rows, p)),
        np.where(derive(8, "wild").random((rows, p)) < 0.5, -3e38, 3e38),
        -np.tile(corners[0], (rows, 1)),
    )[mode]
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


class InMemory(Ledger):
    """A ledger that is lost when the process ends; all else is as on disk."""

    def __init__(self, party: str) -> None:
        self.path, self.party, self._key = Path(f"{party}.sqlite"), party, bytes(32)
        self._database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._begin()


@dataclass
class Observed:
    """What one party was about to send.

    Attributes
    ----------
    asked : per release its step, what answers it over the party's data, and the stream that its sample is drawn from
    noised : per noisy answer its step, σ of the noise that each contributor added, and its exact blocks
    """

    asked: list[tuple[str, Any, Callable[[], np.random.Generator]]] = field(default_factory=list)
    noised: list[tuple[str, float, dict[str, Array]]] = field(default_factory=list)


class RecordedQuery(Query):
    """A query that also notes what answers it over whose data."""

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
def observing(party: Party, pin: Callable[[str, tuple[int, ...]], Array]) -> Iterator[Observed]:
    """While it lasts, what the party is asked is observed, `pin` replaces what was noised, and nothing is recorded."""
    observed, gate = Observed(), party.gate
    assert gate.protection is not None

    def asked(answering: Any) -> None:
        served = gate._serving()
        coins = partial(derive, 7, party.name, served.round, "sample", 0, served.hash)
        observed.asked.append((served.step, answering, coins))

    def noised(mechanism: mechanisms.Gaussian, blocks: Mapping[str, Exact], source: Source) -> dict[str, Array]:
        exact = {name: block.dense() if isinstance(block, Rows) else block.copy() for name, block in blocks.items()}
        step = gate._serving().step
        devices = gate._contributors(gate.present) if party.steps[step].kind is Kind.SUM else 1
        observed.noised.append((step, mechanism.sigma / math.sqrt(devices), exact))  # what each of them added
        return {name: pin(name, block.shape).astype(np.float32) for name, block in exact.items()}

    def nothing(*given: Any, **named: Any) -> None:
        return None

    steps = {
        name: replace(terms, spec=replace(terms.spec, query=RecordedQuery(terms.query, asked)))
        for name, terms in gate.terms.steps.items()
    }
    gate.terms = replace(gate.terms, steps=steps)
    vars(gate).update(_record=nothing)
    vars(gate.protection).update(admit=nothing, check_budget=nothing)
    with patch.object(mechanisms.Gaussian, "noised", noised):
        yield observed


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


def asked_for(terms: StepTerms) -> int:
    """How many releases of a step the contract asks for."""
    return min(terms.spec.releases, 2)
