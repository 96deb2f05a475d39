"""Every query: a frozen value without data, parameters that bound something, and an `over` that refuses misfits."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
from bounded_cases import RATING, REPLACE, USER, ZERO_OUT, by_user, exactly, ratings_of, rows_of

from tacit.boundary.cell_reports import CellReports
from tacit.boundary.clipped_gradients import ClippedGradient, EmbeddingGradient
from tacit.boundary.clipped_records import RecordGradient
from tacit.boundary.clipped_sums import Clipped, ClippedWhole, Normalised
from tacit.boundary.co_occurrence import ItemCounts, PairCounts, PairShares
from tacit.boundary.deviations import Deviations
from tacit.boundary.interaction_bits import InteractionBits
from tacit.boundary.item_counts import RatingCounts
from tacit.boundary.item_gradients import ItemGradients
from tacit.boundary.least_squares import Weighted
from tacit.boundary.normalised_rows import NormalisedRows
from tacit.boundary.objective_perturbation import Objectives
from tacit.boundary.projected import ProjectedBit
from tacit.boundary.query import Mechanism, Query, Unbounded
from tacit.boundary.scaled_records import ScaledRecords
from tacit.data.ratings import Scale
from tacit.errors import DataError, PrivacyRefused, UsageError
from tacit.guarantee import Relation, Unit
from tacit.rng import derive

SCALE, HOME = Scale(1, 5), {"users_are_public": False}
#: How each is made, anew every time.
MADE = {
    "rating counts": RatingCounts,
    "normalised": lambda: Normalised(("a", "b")),
    "clipped": lambda: Clipped(("a",), 2.0),
    "clipped whole": lambda: ClippedWhole(2.0),
    "deviations": lambda: Deviations(SCALE, 0.7),
    "embedding": lambda: EmbeddingGradient(SCALE, 0.5, 3, ("items",), **HOME),
    "gradient clipping": lambda: ClippedGradient(SCALE, 0.5, 3, ("items",), threshold=2.0, **HOME),
    "record": lambda: RecordGradient(SCALE, 8.0),
    "weighted": lambda: Weighted(4.0, 2.0, 3.0),
    "projected": lambda: ProjectedBit((2, 3), 0.5),
    "objectives": lambda: Objectives(SCALE, 3, 1.0),
    "rows": lambda: NormalisedRows("slopes"),
    "scaled records": lambda: ScaledRecords(("joint",), 0.1, 2.0),
    "item gradients": lambda: ItemGradients(1.0),
    "cell reports": lambda: CellReports((3, 3), 1.0, 2),
    "interaction bits": lambda: InteractionBits(3),
    "pair shares": PairShares,
    "pair counts": PairCounts,
    "item counts": ItemCounts,
    "unbounded": Unbounded,
}
#: Those that bound nothing, for runs without privacy.
FREE = ("pair counts", "item counts", "unbounded")
#: Those that are answered by reports.
REPORTED = ("projected", "cell reports", "interaction bits")
EVERY = pytest.mark.parametrize("name", MADE)


def made(name):
    return MADE[name]()


def families(kind):
    """All classes below one."""
    return {kind} | {below for child in kind.__subclasses__() for below in families(child)}


def test_every_query_of_the_package_is_here():
    found = {kind for kind in families(Query) if kind.__module__.startswith("tacit.boundary.")}
    assert found - {Query} == {type(made(name)) for name in MADE} | {EmbeddingGradient.__base__, PairCounts.__base__}


PLAIN = (bool, int, float, str, Scale, type(None))


@EVERY
def test_a_public_half_is_frozen_and_nothing_in_it_is_data(name):
    query = made(name)
    assert type(query).__dataclass_params__.frozen
    for field in fields(query):
        value = getattr(query, field.name)
        assert all(isinstance(part, PLAIN) for part in (value if isinstance(value, tuple) else (value,)))
    assert set(vars(query)) <= {field.name for field in fields(query)}


WRONG = (0, -1, math.inf, math.nan)
NAMES = ((), ("x", "x"), "x")
REFUSED = {
    "each of them once": [
        case for n in NAMES for case in ((Normalised, (n,)), (Clipped, (n, 1.0)), (ScaledRecords, (n, 0.1, 1.0)))
    ],
    "choose from": [(Weighted, (1, 1, 1, ("both",))), (EmbeddingGradient, (SCALE, 1.0, None, ("items", "x")))],
    "bounds nothing": [
        case
        for c in WRONG
        for case in (
            *((Clipped, (("x",), c)), (ClippedWhole, (c,)), (Deviations, (SCALE, c)), (RecordGradient, (SCALE, c))),
            (ScaledRecords, (("x",), 0.1, c)),
            *((Weighted, (c, 1, 1)), (Weighted, (1, c, 1)), (Weighted, (1, 1, c)), (ClippedGradient, (SCALE, 1.0), c)),
        )
    ],
    "not possible": [
        *((EmbeddingGradient, (SCALE, rate)) for rate in (0.0, 1.5, math.nan)),
        *((EmbeddingGradient, (SCALE, 1.0, theta)) for theta in (0, 2.5)),
        *((Objectives, (SCALE, theta, least)) for theta, least in ((0, 1.0), (3, 0.0), (3, -1.0), (3, math.nan))),
        *((ProjectedBit, ((2, 2), bound)) for bound in WRONG),
        *((ScaledRecords, (("x",), share, 1.0)) for share in (*WRONG, 1.0)),
    ],
    "no coordinates": [(ProjectedBit, ((0, 2), 1.0)), (ProjectedBit, ((2,), 1.0))],
}


@pytest.mark.parametrize(("words", "case"), [(words, case) for words, some in REFUSED.items() for case in some])
def test_parameters_that_bound_nothing_are_refused(words, case):
    kind, arguments, *threshold = case
    more = HOME if issubclass(kind, EmbeddingGradient.__base__) else {}
    with pytest.raises(UsageError, match=words):
        kind(*arguments, **more, **({"threshold": threshold[0]} if threshold else {}))


def test_where_users_factors_are_from_must_be_stated_and_trimming_bounds_no_sample_of_ratings():
    with pytest.raises(TypeError, match="users_are_public"):
        EmbeddingGradient(SCALE, 1.0)
    with pytest.raises(UsageError, match="leave trim out"):
        EmbeddingGradient(SCALE, 0.1, 5, sampled=Unit.RATING, **HOME)


@pytest.mark.parametrize("name", ["deviations", "embedding", "gradient clipping", "record", "objectives"])
def test_a_scale_read_off_the_data_bounds_nothing(name):
    query = replace(made(name), scale=Scale(1, 5, declared=False))
    assert {query.sensitivity(unit, relation) for unit in Unit for relation in Relation} == {math.inf}


@EVERY
def test_what_is_counted_costs_no_less_than_what_is_promised(name):
    """A promise of one rating may be counted as its user's replaced record; never as less."""
    query = made(name)
    assert query.counted(Unit.USER) == (USER, ZERO_OUT)
    counted = query.counted(Unit.RATING)
    assert counted in ((RATING, ZERO_OUT), (USER, REPLACE))
    assert query.sensitivity(*counted) >= query.sensitivity(RATING, ZERO_OUT)


@EVERY
def test_replacing_moves_no_less_than_emptying(name):
    query = made(name)
    for unit in Unit:
        empty, added, replaced = (query.sensitivity(unit, relation) for relation in Relation)
        assert 0 < empty == added <= replaced <= math.inf


@EVERY
def test_mechanisms_are_those_of_the_closed_set_and_only_sums_have_a_clip(name):
    query = made(name)
    noised = {**dict.fromkeys(REPORTED, Mechanism.RESPONSE), "objectives": Mechanism.PERTURBED}
    assert query.mechanism is noised.get(name, Mechanism.NORMAL)
    assert (query.clip is None) == (name in ("clipped whole", *REPORTED, "objectives", *FREE))
    assert query.clip is None or 0 < query.clip < math.inf
    assert query.sampling == (0.5 if name in ("embedding", "gradient clipping") else 1.0)


def test_one_piece_has_other_than_zeros_in_so_many_coordinates():
    assert made("normalised").nonzero_coordinates({"a": (9,), "b": (9,)}) == 18
    assert made("deviations").nonzero_coordinates({"errors": (9,), "weights": (9,)}) == 2
    assert made("embedding").nonzero_coordinates({"items": (9, 5)}) == 15
    assert made("record").nonzero_coordinates({"items": (9, 5)}) == 45


RATINGS = ratings_of([[(0, 1.0), (2, 5.0)], [(1, 3.0)]], 3)
U, V, SIGNS = np.ones((2, 3)), np.ones((3, 3)), np.ones((2, 3), dtype=np.int8)
FITTING = {
    "normalised": (RATINGS, {"a": np.ones(3), "b": np.ones(3)}),
    "clipped": ({"a": np.ones((2, 4))}, np.ones(2)),
    "deviations": (RATINGS,),
    "embedding": (RATINGS, {"users": U, "items": V}),
    "gradient clipping": (RATINGS, {"users": U, "items": V}),
    "record": (RATINGS, U, V),
    "weighted": (RATINGS, np.ones(3), np.ones(3), U),
    "projected": (RATINGS, U, V, SIGNS),
    "objectives": (RATINGS, U, V),
    "rows": (RATINGS, np.ones((3, 2))),
    "scaled records": (RATINGS, U, U, np.ones(3), {"joint": U}),
    "item gradients": (RATINGS, U, V),
    "cell reports": (RATINGS, U, V),
    "interaction bits": (RATINGS,),
    "pair shares": (RATINGS, np.arange(2)),
    "pair counts": (RATINGS, np.arange(2)),
    "item counts": (RATINGS,),
}


@pytest.mark.parametrize("name", FITTING)
def test_who_answers_holds_the_very_query_and_is_the_same_whoever_made_it(name):
    """The half in a plan and the one at a party are two objects of one value."""
    planned, here = made(name), made(name)
    answering = here.over(*FITTING[name])
    assert answering.query is here
    assert answering.query == planned
    assert not hasattr(answering, "sensitivity")  # there is one statement of it


@pytest.mark.parametrize("name", FITTING)
def test_attendance_must_be_one_entry_a_user(name):
    made(name).over(*FITTING[name], present=np.array([True, False]))
    with pytest.raises(DataError, match="present"):
        made(name).over(*FITTING[name], present=np.ones(5, dtype=bool))


#: Ratings of four users; a draw, seeded with `DRAWN`, has one of those who are present in it and one who is absent.
RECORDS = [[(0, 1.0), (2, 5.0)], [(1, 3.0), (3, 4.0)], [(0, 2.0), (1, 5.0), (4, 4.0)], [(2, 1.0), (3, 2.0)]]
PRESENT, DRAWN = np.array([True, False, False, True]), 3


def data_of(name, kept):
    """What a query is answered over: the records of those who are kept, and nothing of the others' ratings."""
    stream, counts = derive(1, "absent"), np.array([len(record) for record in RECORDS])
    here, total = np.repeat(kept, counts), counts.sum()
    x, y, pairs = stream.random(total)[here] + 0.5, stream.random(total)[here] + 0.5, stream.random((total, 2))[here]
    users, more, items = stream.random((4, 3)) + 0.1, stream.random((4, 6)) + 0.1, stream.random((5, 3)) + 0.1
    ratings = ratings_of([record if k else [] for record, k in zip(RECORDS, kept, strict=True)], 5)
    return {
        "normalised": (ratings, {"a": x, "b": y}),
        "clipped": ({"a": more}, counts * kept),
        "embedding": (ratings, {"users": users, "items": items}),
        "gradient clipping": (ratings, {"users": users, "items": items}),
        "record": (ratings, users, items),
        "weighted": (ratings, x, y, users),
        "objectives": (ratings, users, items),
        "rows": (ratings, pairs),
        "scaled records": (ratings, more, users, x, {"joint": users}),
        "item gradients": (ratings, users, items),
        "pair shares": (ratings, np.array([0, 1, 3])),
        "pair counts": (ratings, np.array([0, 1, 3])),
    }.get(name, (ratings,))


def told(name, kept, present=None):
    """The exact answer as one vector, and what each adds to it who adds anything; None where it is not a sum."""
    answering = made(name).over(*data_of(name, kept), present=present)
    if name == "objectives":
        return np.concatenate([part.ravel() for part in answering.squares(derive(DRAWN, "x"))]), None
    answer = np.concatenate([block.ravel() for block in exactly(answering, {}, derive(DRAWN, "x")).values()])
    try:
        each = by_user(answering.contributions({}, derive(DRAWN, "x")))
    except PrivacyRefused:
        return answer, None
    return answer, each[each.any(axis=1)]


@pytest.mark.parametrize("name", [name for name in FITTING if name not in REPORTED])  # those have reports, and no sum
@pytest.mark.parametrize("present", [PRESENT, PRESENT & False], ids=["some", "nobody"])
def test_who_is_absent_adds_as_much_as_an_empty_record(name, present):
    everyone = np.ones(4, dtype=bool)
    (found, adds), (wanted, added) = told(name, everyone, present), told(name, present)
    assert not np.array_equal(wanted, told(name, everyone)[0])  # whoever is absent would have added something
    np.testing.assert_array_equal(found, wanted)
    assert wanted.any() == present.any()
    assert (adds is None) == (added is None) == (name in ("objectives", "item counts"))
    if adds is not None:
        np.testing.assert_array_equal(adds, added)
        assert bool(len(added)) == present.any()


@pytest.mark.parametrize("name", ["deviations", "embedding", "gradient clipping", "record", "objectives"])
def test_ratings_are_clipped_to_the_querys_scale_whatever_their_own_says(name):
    answers = []
    for rating, scale in ((9.0, (-9, 9)), (5.0, (1, 5))):
        answering = made(name).over(ratings_of([[(0, rating)]] * 2, 3, scale), *FITTING[name][1:])
        if name == "objectives":
            answers.append(answering.squares(derive(1, "x"))[1])
        else:
            answers.append(np.concatenate([block.ravel() for block in exactly(answering, {}, derive(1, "x")).values()]))
    assert answers[0].any()
    np.testing.assert_array_equal(*answers)


TWICE = ratings_of([[(0, 1.0), (0, 5.0)], [(1, 3.0)]], 3)
SHORT = rows_of(np.array([0, 3]), RATINGS.items, 3)
SHORT.n_users = 2


@pytest.mark.parametrize("name", [name for name in FITTING if name != "clipped"])
@pytest.mark.parametrize("rows", [TWICE, SHORT], ids=["an item twice", "fewer rows than users"])
def test_rows_that_break_the_bound_are_refused(name, rows):
    with pytest.raises(DataError):
        made(name).over(rows, *FITTING[name][1:])


WRONG_FACTORS = [(RATINGS, U[:1], V), (RATINGS, U, V[:2]), (RATINGS, U[:, :2], V)]
MISFITS = {
    "normalised": [
        (RATINGS, {"a": np.ones(3)}),
        (RATINGS, {"a": np.ones(3), "b": np.ones(3), "c": np.ones(3)}),
        (RATINGS, {"a": np.ones(3), "b": np.ones(2)}),
    ],
    "clipped": [({"b": np.ones((2, 4))}, np.ones(2)), ({"a": np.ones((3, 4))}, np.ones(2))],
    "clipped whole": [({},)],
    "deviations": [(replace(RATINGS, values=np.ones(2, np.float32)),)],
    "record": [(RATINGS, U[:1], V), (RATINGS, U, V[:2]), (RATINGS, U[:, :2], V)],
    "weighted": [(RATINGS, np.ones(2), np.ones(3), U), (RATINGS, np.ones(3), np.ones(3), U[:1])],
    "scaled records": [
        (RATINGS, U[:1], U, np.ones(3), {"joint": U}),
        (RATINGS, U, U[:1], np.ones(3), {"joint": U}),
        (RATINGS, U, U, np.ones(2), {"joint": U}),
        (RATINGS, U, U, np.ones(3), {"joint": U[:1]}),
        (RATINGS, U, U, np.ones(3), {"other": U}),
    ],
    "projected": [(RATINGS, U[:, :2], V[:, :2], SIGNS), (RATINGS, U, V, SIGNS[:1]), (RATINGS, U, V[:2], SIGNS)],
    "objectives": WRONG_FACTORS,
    "item gradients": WRONG_FACTORS,
    "cell reports": WRONG_FACTORS,
}


@pytest.mark.parametrize(("name", "data"), [(name, data) for name, some in MISFITS.items() for data in some])
def test_data_that_does_not_fit_is_refused(name, data):
    with pytest.raises(DataError):
        made(name).over(*data)


@pytest.mark.parametrize("name", ["embedding", "gradient clipping"])
def test_factors_that_do_not_fit_are_refused_when_they_come(name):
    for wrong in ({"users": U[:1]}, {"items": V[:2]}, {"items": V[:, :2]}):
        with pytest.raises(DataError, match="do not fit"):
            made(name).over(RATINGS, {"users": U, "items": V, **wrong}).exact({}, derive(1, "x"))
