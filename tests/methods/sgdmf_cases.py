"""Ways to run private SGDMF, each with what the rule book says of it, and ratings that are as bad as can be."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from tacit.aggregation.plain import Plain
from tacit.data.public_facts import PublicFacts
from tacit.data.ratings import Ratings, Scale
from tacit.data.vocabulary import Vocabulary
from tacit.guarantee import Unit
from tacit.methods.context import Context, Target
from tacit.methods.sgdmf import SGDMF
from tacit.methods.sgdmf.parameters import SGDMFParameters
from tacit.partition import Parties, Setting, partition
from tacit.prepare.plan import Plan, make_plan
from tacit.rng import derive

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
