"""Whole conversations of private SGDMF, with every noised answer pinned, and the cases in which they are held.

Composition argues so: *given the same noised answers so far*, everything that leaves is the same for two neighbours,
and the next answer, before its noise, moves by at most Δ. `converse` makes that happen: it holds the real conversation
(plan, coordinator, parties, gate, ledger) but for one thing, that noised answers are what `pin` says instead of what
the data says. Any numbers may come out of Gaussian noise, so the pin may steer factors wherever it hurts. What was
exact before the noise is written down.
"""

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from unittest.mock import patch

import numpy as np

from tacit.aggregation.plain import Plain
from tacit.boundary import Gate
from tacit.boundary.ledger import Row
from tacit.boundary.mechanisms import Gaussian
from tacit.boundary.protection import Budget
from tacit.boundary.query import Rows
from tacit.data.public_facts import PublicFacts
from tacit.data.ratings import Ratings, Scale
from tacit.data.vocabulary import Vocabulary
from tacit.federation import Facts
from tacit.guarantee import Unit
from tacit.methods import Sides
from tacit.methods.context import Context, Target
from tacit.methods.sgdmf import SGDMF
from tacit.methods.sgdmf.parameters import SGDMFParameters
from tacit.model import Model, NonNegative
from tacit.partition import Parties, Setting, partition
from tacit.prepare.plan import Plan, make_plan
from tacit.prepare.prepared import PreparedRun, Record
from tacit.prepare.simulate import Trained, train
from tacit.prepare.simulated_ledgers import Records as Kept
from tacit.rng import derive
from tacit.testing.adversary import InMemory

USERS, ITEMS, FACTORS, SILOS = 7, 10, 3, 2
ROUNDS, LOCAL, FINAL, THETA = 2, 2, 2, 3
EPSILON, DELTA = 4.0, 1e-6

Records = list[list[tuple[int, float]]]


# -- who is protected how ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One way to run private SGDMF.

    Attributes
    ----------
    by, unit, users : as in a run file
    stated : by step, Δ under zero-out in units of 2R^1.5, from the rule book and not from the code
    replaced : whether the guarantee rests on the replace relation
    sampling : η
    scale : of the ratings
    others : further parameters of the method
    """

    by: str
    unit: str
    users: str | None
    stated: Mapping[str, float]
    replaced: bool = False
    sampling: float = 0.5
    scale: tuple[float, float] = (1, 5)
    others: tuple[tuple[str, object], ...] = ()

    @property
    def setting(self) -> Setting:
        return Setting.HORIZONTAL if self.by == "user" else Setting.VERTICAL

    @property
    def trimmed(self) -> bool:
        return self.unit == "user" or self.replaced

    @property
    def span(self) -> float:
        return self.scale[1] - self.scale[0]

    @property
    def parameters(self) -> SGDMFParameters:
        table = {"rounds": ROUNDS, "local_steps": LOCAL, "factors": FACTORS, "sampling": self.sampling}
        if self.trimmed:
            table["trim"] = THETA
        own = {"users": self.users, "fine_tuning": 1} if self.by == "user" else {"final_steps": FINAL}
        return SGDMFParameters.model_validate({**table, **own, **dict(self.others)})

    def with_(self, **others: object) -> "Case":
        return replace(self, others=(*self.others, *others.items()))

    def sensitivity(self, step: str) -> float:
        """Δ under zero-out, as the rule book has it."""
        return 2 * self.span**1.5 * self.stated[step]

    def plan(self) -> Plan:
        return _plan(self.by, self.unit, self.scale, self.parameters.model_dump_json())


@cache
def _plan(by: str, unit: str, scale: tuple[float, float], parameters: str) -> Plan:
    """A run's plan; as many ratings are declared as there could be, since nothing may depend on how many there are."""
    setting = Setting.HORIZONTAL if by == "user" else Setting.VERTICAL
    facts = PublicFacts(USERS, ITEMS, Scale(*scale), USERS * ITEMS)
    context = Context(facts, setting, SILOS, Target(EPSILON, DELTA, Unit(unit)))
    asked = SGDMFParameters.model_validate_json(parameters)
    return make_plan(SGDMF, asked, context, Plain(setting, SILOS), seeded=True)


ROOT = math.sqrt(THETA)
CASES = {
    "horizontal, user, pretrained": Case("user", "user", "pretrained", {"improve": ROOT}),
    "horizontal, user, together": Case("user", "user", "together", {"improve": ROOT}),
    "horizontal, rating, noised": Case("user", "rating", "noised", {"improve": math.sqrt(2)}, sampling=1.0),
    "horizontal, rating, pretrained": Case("user", "rating", "pretrained", {"improve": ROOT}, replaced=True),
    "horizontal, rating, together": Case("user", "rating", "together", {"improve": ROOT}, replaced=True),
    "vertical, user": Case("item", "user", None, {"improve": math.sqrt(THETA**2 + THETA), "finish": ROOT}),
    "vertical, rating": Case("item", "rating", None, {"improve": math.sqrt(2), "finish": 1.0}, sampling=1.0),
}


def everybody(case: Case) -> Case:
    """The same case with η = 1, so that nobody's part is left to a coin, and with users fitted to the end."""
    return replace(case, sampling=1.0).with_(**({"pretraining": 10_000} if case.users == "pretrained" else {}))


# -- ratings ----------------------------------------------------------------------------------------------------------


def ratings_of(records: Records, scale: tuple[float, float] = (1, 5), items: int = ITEMS) -> Ratings:
    """Ratings from one list of (item, value) a user, taken as they are: nothing is checked here."""
    pairs = [pair for record in records for pair in record]
    return Ratings(
        indptr=np.cumsum([0, *map(len, records)]).astype(np.int64),
        items=np.array([j for j, _ in pairs], dtype=np.int32),
        values=np.array([r for _, r in pairs], dtype=np.float32),
        user_ids=Vocabulary(np.arange(len(records)), "user"),
        item_ids=Vocabulary(np.arange(items), "item"),
        scale=Scale(*scale),
    )


def parties_of(case: Case, records: Records, items: int = ITEMS) -> Parties:
    return partition(ratings_of(records, case.scale, items), into=SILOS, by=case.by)


def extreme_records(seed: int, scale: tuple[float, float], users: int = USERS, items: int = ITEMS) -> Records:
    """Nothing, one rating, some, or all items, mostly at the ends of the scale; the last item is rated by one user."""
    stream, records = derive(seed, "records"), []
    for _ in range(users):
        rated = np.sort(stream.choice(items - 1, int(stream.choice([0, 1, 4, items - 1, items - 1])), replace=False))
        choices = [*scale, *scale, sum(scale) / 2]
        same = float(stream.choice(choices))
        alike = stream.random() < 0.6
        records.append([(int(j), same if alike else float(stream.choice(choices))) for j in rated])
    records[int(stream.integers(users))].append((items - 1, float(stream.choice(scale))))
    return records


def neighbour_of(case: Case, records: Records, seed: int) -> Records:
    """A neighbour as the guarantee means it: one record emptied, or one rating gone or replaced."""
    stream = derive(seed, "neighbour")
    i = int(stream.choice([i for i, record in enumerate(records) if record]))
    gone = int(stream.integers(len(records[i])))
    rest = [pair for place, pair in enumerate(records[i]) if place != gone and case.unit == "rating"]
    if case.replaced and stream.random() < 0.5:
        free = sorted(set(range(ITEMS)) - {j for j, _ in rest})
        rest = sorted([*rest, (int(stream.choice(free)), float(stream.choice(case.scale)))])
    return [*records[:i], rest, *records[i + 1 :]]


# -- what noised answers are pinned to --------------------------------------------------------------------------------

Pin = Callable[[Callable, Mapping[str, np.ndarray]], dict[str, np.ndarray]]


def noise_alone(noised: Callable, exact: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The run's own noise on answers that are all 0."""
    return noised({name: np.zeros_like(block) for name, block in exact.items()})


def to_corner(noised: Callable, exact: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Gradients that send every row to √R·e₁."""
    away = np.array([-1e9, *[1e9] * (FACTORS - 1)], dtype=np.float32)
    return {name: np.tile(away, (len(block), 1)) for name, block in exact.items()}


def to_corners(noised: Callable, exact: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Gradients that send every row to a corner, users' and items' rows to many different ones."""
    return {
        name: np.where((np.arange(block.size).reshape(block.shape) * 7) % 3 == 0, -1e9, 1e9).astype(np.float32)
        for name, block in exact.items()
    }


PINS = {"noise": noise_alone, "one corner": to_corner, "corners": to_corners}


# -- coordinators -----------------------------------------------------------------------------------------------------


class Lying:
    """A coordinator that sends what it likes: `send(step, round, rows)` is the block, and never a mean of answers."""

    def __init__(self, send: Callable[[str, int, int], np.ndarray], parameters: SGDMFParameters, facts: object) -> None:
        self.send, self.parameters, self.facts = send, parameters, facts

    def run(self, federation):
        horizontal = self.facts.setting is Setting.HORIZONTAL
        block, rows = ("items", self.facts.items) if horizontal else ("users", self.facts.users)

        def lie(step: str, t: int) -> dict[str, np.ndarray]:
            return {block: np.asarray(self.send(step, t, rows), dtype=np.float32)}

        for t in federation.rounds(self.parameters.rounds):
            if horizontal and self.parameters.users != "noised":
                federation.ask("pretrain", **lie("pretrain", t))
            federation.ask("improve", **lie("improve", t), t=t)
        federation.ask("finish", **lie("finish", self.parameters.rounds))
        empty = np.zeros((self.facts.items, self.parameters.factors), dtype=np.float32)
        return Model("sgdmf", self.facts.scale, self.facts.item_ids, NonNegative(1.0, 5.0, empty))


def wild(seed: int, span: float) -> Callable[[str, int, int], np.ndarray]:
    """Rows at corners of Π's ball, beyond it, negative, huge, tiny, zero."""
    size = math.sqrt(span)

    def send(step: str, t: int, rows: int) -> np.ndarray:
        stream = derive(seed, "lies", step, t)
        axes = size * np.eye(FACTORS)[stream.integers(0, FACTORS, rows)]
        spread = np.array([1, 1, 1, 1e6, 3e38 / size, -1, 1e-30, 0])
        lies = axes * stream.choice(spread, (rows, 1))
        poisoned = stream.random((rows, 1)) < 0.2
        return np.where(poisoned, stream.choice([3e38, -3e38, size, 0.0, 1e-40], lies.shape), lies)

    return send


def axes(span: float, **of_step: int) -> Callable[[str, int, int], np.ndarray]:
    """In each step all rows at √R on one axis: axes(4, pretrain=0, improve=1)."""

    def send(step: str, t: int, rows: int) -> np.ndarray:
        return np.tile(math.sqrt(span) * np.eye(FACTORS)[of_step.get(step, 0)], (rows, 1))

    return send


# -- the conversation -------------------------------------------------------------------------------------------------


class Book(InMemory):
    """A ledger in memory whose rows outlive it."""

    kept: Sequence[Row] = ()

    def close(self) -> None:
        self.kept = self.rows()
        super().close()


@dataclass(frozen=True)
class Quick(Kept):
    """Records whose ledgers are in memory, so that many conversations can be held; `books` are kept by party."""

    books: dict[str, Book] = field(default_factory=dict)

    def of_party(self, share):
        book = self.books[share.name] = Book(share.name)
        return Record(book, self.budget, [str(user) for user in share.ratings.user_ids.ids])


@dataclass(frozen=True)
class Answered:
    """One answer: what it was before its noise, σ of the noise, and what became of it."""

    exact: Mapping[str, np.ndarray]
    sigma: float
    noised: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Heard:
    """One conversation: answers by (party, step, round, number); where chains started; what left; what was recorded."""

    plan: Plan
    answers: Mapping[tuple[str, str, int, int], Answered]
    started: Sequence[Mapping[str, np.ndarray]]
    trained: Trained
    rows: Mapping[str, Sequence[Row]]


@contextmanager
def written_down(pin: Pin | None):
    """While it lasts: every answer is written down, and pinned unless `pin` is None; where chains start, too."""
    answers: dict[tuple[str, str, int, int], Answered] = {}
    started: list[dict[str, np.ndarray]] = []
    place = threading.local()  # parties may answer at the same time
    noised, answer, chain, add = Gaussian.noised, Gate._noised_answer, Gate.chain, Gate.sum

    def here(gate, number):
        served = gate._serving()
        place.now = gate.party, served.step, served.round, number

    def answered(self, answering, terms, state, number):
        here(self, number)
        return answer(self, answering, terms, state, number)

    def summed(self, *data, **named):
        here(self, 0)
        return add(self, *data, **named)

    def note(self, blocks, source):
        def real(these):
            return noised(self, these, source)

        exact = {name: block.dense() if isinstance(block, Rows) else block.copy() for name, block in blocks.items()}
        given = real(blocks) if pin is None else pin(real, exact)
        answers[place.now] = Answered(exact, self.sigma, given)
        return given

    def begin(self, *data, state, **named):
        started.append({name: np.array(block) for name, block in state.items()})
        return chain(self, *data, state=state, **named)

    with (
        patch.object(Gate, "_noised_answer", answered),
        patch.object(Gaussian, "noised", note),
        patch.object(Gate, "chain", begin),
        patch.object(Gate, "sum", summed),
    ):
        yield answers, started


def converse(
    case: Case,
    records: Records,
    pin: Pin | None = noise_alone,
    send: Callable[[str, int, int], np.ndarray] | None = None,
    *,
    items: int = ITEMS,
    coordinator: Callable | None = None,
    party: type | None = None,
    books: dict[str, Book] | None = None,
) -> Heard:
    """A whole run over these records: with the method's own sides, with a coordinator that lies, or with others."""
    plan, own = case.plan(), SGDMF.sides[case.setting]
    asks = coordinator or (own.coordinator if send is None else partial(Lying, send))
    method = replace(SGDMF, sides={case.setting: Sides(asks, party or own.party, own.specs)})
    books = {} if books is None else books
    budget = Budget(plan.terms.guarantee.epsilon, DELTA)
    quick = Quick(Path(), budget, books=books)
    with written_down(pin) as (answers, started):
        parties = parties_of(case, records, items)
        run = PreparedRun.by_plan(method, Facts.of(parties, 7), plan, run="run")
        trained = train(run, parties, records=quick)
    return Heard(plan, answers, started, trained, {name: book.kept for name, book in books.items()})
