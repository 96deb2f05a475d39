"""Bounded gradients: neighbours' answers are within the claim, reach it, and leave it without a safeguard."""

import math
from dataclasses import replace

import numpy as np
import pytest
from bounded_cases import (
    ADD_REMOVE,
    CASES,
    RATING,
    REPLACE,
    SEEDS,
    USER,
    WORLDS,
    ZERO_OUT,
    World,
    assert_bounded,
    exactly,
    make_world,
    moved,
    neighbour,
    row,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import tacit.boundary.clipped_gradients as gradients
from tacit.boundary.clipped_gradients import ClippedGradient, EmbeddingGradient, GradientSum
from tacit.boundary.trim import Part
from tacit.data.ratings import Scale
from tacit.kernels.squared_error import factor_gradients
from tacit.rng import derive

BOTH, USERS, ITEMS = ("users", "items"), ("users",), ("items",)
PUBLIC = {"users_are_public": True}
AT_HOME = {"users_are_public": False}


def embedding(world, *arguments, asked=EmbeddingGradient, kind=GradientSum, at=None, present=None, **options):
    query = asked(Scale(*world.scale), *(arguments or (1.0,)), **{**PUBLIC, **options})
    return kind(query, world.ratings, at, present)


def clipped(world, *arguments, threshold=3.0, **options):
    query = ClippedGradient(
        Scale(*world.scale), *(arguments or (1.0,)), **{"threshold": threshold, **PUBLIC, **options}
    )
    return query.over(world.ratings)


def aligned(ratings, r, scale=(1, 5), m=12, others=2):
    """One user whose factors and items all lie on one axis at the norm bound, rating everything r; and some others."""
    size = np.float32(math.sqrt(scale[1] - scale[0]))
    axis = np.array([size, 0], dtype=np.float32)
    records = [[(j, r) for j in range(ratings)], *[[(j, scale[1]) for j in range(m)]] * others]
    return World(records, m, scale, np.tile(axis, (1 + others, 1)), np.tile(axis, (m, 1)))


@pytest.mark.parametrize(
    ("blocks", "rating", "user"), [(USERS, 1, 5), (ITEMS, 1, math.sqrt(5)), (BOTH, math.sqrt(2), math.sqrt(30))]
)
@pytest.mark.parametrize("scale", [(1, 5), (-10, 10)])
def test_embedding_claims_are_those_of_the_rule_book(blocks, rating, user, scale):
    world, one = make_world(1, scale=scale), 2 * (scale[1] - scale[0]) ** 1.5
    free, trimmed = embedding(world, 1.0, None, blocks).query, embedding(world, 1.0, 5, blocks).query
    for relation, times in ((ZERO_OUT, 1), (ADD_REMOVE, 1), (REPLACE, 2)):
        assert free.sensitivity(RATING, relation) == pytest.approx(times * rating * one)
        assert free.sensitivity(USER, relation) == math.inf
        assert trimmed.sensitivity(USER, relation) == pytest.approx(times * user * one)
        assert trimmed.sensitivity(RATING, relation) == pytest.approx(2 * rating * one)  # another takes its place
        home = embedding(world, 1.0, 5, blocks, **AT_HOME).query
        assert home.sensitivity(RATING, relation) == home.sensitivity(USER, REPLACE) == pytest.approx(2 * user * one)
        assert embedding(world, 1.0, None, blocks, **AT_HOME).query.sensitivity(RATING, relation) == math.inf


@pytest.mark.parametrize(("blocks", "user"), [(USERS, 5), (ITEMS, math.sqrt(5)), (BOTH, 5)])
def test_gradient_clipping_claims_follow_from_the_threshold(blocks, user):
    world = make_world(1)
    for relation, times in ((ZERO_OUT, 1), (ADD_REMOVE, 1), (REPLACE, 2)):
        assert clipped(world, 1.0, None, blocks).query.sensitivity(RATING, relation) == times * 3.0
        assert clipped(world, 1.0, 5, blocks).query.sensitivity(USER, relation) == pytest.approx(times * 3.0 * user)
        assert clipped(world, 1.0, None, blocks).query.sensitivity(USER, relation) == math.inf


def test_a_sample_amplifies_its_own_unit_only():
    """A sample of users leaves the unit rating to the replace case of the user; one of ratings bounds no user."""
    world = make_world(1)
    for make in (embedding, clipped):
        users, trimmed, all_users = (make(world, *how).query for how in ((0.1,), (0.1, 5), (1.0, 5)))
        assert users.sampling == trimmed.sampling == 0.1
        assert users.sensitivity(RATING, ZERO_OUT) == users.sensitivity(USER, ZERO_OUT) == math.inf
        assert trimmed.sensitivity(RATING, ZERO_OUT) == trimmed.sensitivity(USER, REPLACE) < math.inf
        assert trimmed.sensitivity(USER, ZERO_OUT) == all_users.sensitivity(USER, ZERO_OUT)
        ratings, all_ratings = make(world, 0.1, sampled=RATING).query, make(world, 1.0).query
        assert ratings.sensitivity(RATING, ZERO_OUT) == all_ratings.sensitivity(RATING, ZERO_OUT) < math.inf
        assert ratings.sensitivity(USER, ZERO_OUT) == math.inf
        assert make(world, 0.1, sampled=RATING, **AT_HOME).query.sensitivity(RATING, ZERO_OUT) == math.inf


def test_pieces_are_bounded_for_item_gradients_of_factors_fitted_at_home():
    for asked, more in ((EmbeddingGradient, {}), (ClippedGradient, {"threshold": 3.0})):
        for sampling in (0.2, 1.0):
            query = asked(Scale(1, 5), sampling, 5, ITEMS, **AT_HOME, **more)
            assert query.clip == query.sensitivity(USER, ZERO_OUT) < math.inf
            assert query.nonzero_coordinates({"items": (40, 3)}) == 15
            assert asked(Scale(1, 5), sampling, 5, ITEMS, **PUBLIC, **more).clip is None
            assert asked(Scale(1, 5), sampling, 5, BOTH, **AT_HOME, **more).clip is None
            assert asked(Scale(1, 5), sampling, None, ITEMS, **AT_HOME, **more).clip is None


def test_a_rating_is_counted_as_such_only_where_it_is_bounded_by_itself():
    """The replace case of its user otherwise; what is counted costs no less than what is promised."""
    for sampling, sampled, public, by_itself in (
        (1.0, USER, True, True),
        (0.2, RATING, True, True),
        (0.2, USER, True, False),
        (1.0, USER, False, False),
        (0.2, RATING, False, False),
    ):
        trim = None if sampled is RATING else 4
        query = EmbeddingGradient(Scale(1, 5), sampling, trim, users_are_public=public, sampled=sampled)
        assert query.counted(RATING) == ((RATING, ZERO_OUT) if by_itself else (USER, REPLACE))
        assert query.counted(USER) == (USER, ZERO_OUT)
        assert query.sensitivity(*query.counted(RATING)) >= query.sensitivity(RATING, ZERO_OUT)


@given(
    WORLDS,
    SEEDS,
    st.sampled_from(CASES),
    st.sampled_from([BOTH, USERS, ITEMS]),
    st.sampled_from([None, 1, 2, 5]),
    st.sampled_from([0.5, 1.0]),
    st.booleans(),
    st.sampled_from([embedding, clipped]),
)
@settings(deadline=None, max_examples=400)
def test_neighbours_are_within_the_claim(world, seed, case, blocks, trim, sampling, public, make):
    near, i = neighbour(world, seed, *case)
    if near is None:
        return
    if not public:  # what she fitted at home changes with any of her ratings
        p = world.users.shape[1]
        near = near.with_user(i, row(derive(seed, "refitted"), p, math.sqrt(world.scale[1] - world.scale[0]), True))
    query, other = (make(w, sampling, trim, blocks, users_are_public=public) for w in (world, near))
    if query.query.sensitivity(*case) < math.inf:
        assert_bounded(query, other, *case, world.state, near.state, seed=seed)


@pytest.mark.parametrize("blocks", [BOTH, USERS, ITEMS])
@pytest.mark.parametrize("scale", [(1, 5), (-10, 10), (0, 1)])
def test_embedding_claims_are_attained(blocks, scale):
    full = aligned(1, scale[0], scale)
    query, state = embedding(full, 1.0, None, blocks), full.state
    near = embedding(full.with_record(0, []), 1.0, None, blocks)
    assert moved(query, near, state) > 0.999 * query.query.sensitivity(RATING, ZERO_OUT)
    for kept in (1, 4, 9):
        full = aligned(12, scale[0], scale)  # more ratings than are kept
        query, near = (embedding(w, 1.0, kept, blocks) for w in (full, full.with_record(0, [])))
        assert moved(query, near, state) > 0.999 * query.query.sensitivity(USER, ZERO_OUT)


def test_replacing_a_user_goes_beyond_the_claim_for_emptying_her():
    """√2 of it with public factors: up where u·v = R and r = 0, or down where u ⊥ v and r = R."""
    world = aligned(4, 1.0)
    world.items[4:8] = [0, 2]
    near = world.with_record(0, [(j, 5.0) for j in range(4, 8)])
    for blocks in (USERS, ITEMS):
        query, other = (embedding(w, 1.0, 4, blocks) for w in (world, near))
        apart = moved(query, other, world.state)
        assert 1.41 * query.query.sensitivity(USER, ZERO_OUT) < apart <= query.query.sensitivity(USER, REPLACE)


@pytest.mark.parametrize("blocks", [BOTH, USERS, ITEMS])
def test_gradient_clipping_claims_are_attained(blocks):
    halfway = aligned(1, 1.0).with_user(0, [1, 0])  # u·v = 2: slopes of either sign
    down = halfway.with_record(0, [(0, 5.0)])
    query, opposite, nothing = (clipped(w, 1.0, None, blocks) for w in (halfway, down, halfway.with_record(0, [])))
    assert moved(query, nothing, halfway.state) > 0.999 * query.query.sensitivity(RATING, ZERO_OUT)
    assert moved(query, opposite, halfway.state) > 0.999 * query.query.sensitivity(RATING, REPLACE)
    # With u = 0 nothing goes to item rows, and all parts point the same way in hers; the other way round if v = 0.
    full = aligned(12, 5.0).with_user(0, [0, 0] if "users" in blocks else [2, 0])
    query, nothing = (clipped(w, 1.0, 4, blocks) for w in (full, full.with_record(0, [])))
    state = full.state if "users" in blocks else {**full.state, "items": np.zeros((12, 2), dtype=np.float32)}
    assert moved(query, nothing, state) > 0.999 * query.query.sensitivity(USER, ZERO_OUT)


def test_an_empty_record_adds_exactly_nothing_wherever_her_factors_are():
    world = aligned(0, 1.0, others=0)
    for make in (embedding, clipped):
        answer = exactly(make(world), {**world.state, "users": np.full((1, 2), np.inf, np.float32)}, derive(1, "x"))
        assert not answer["users"].any()
        assert not answer["items"].any()


@given(SEEDS)
@settings(deadline=None, max_examples=25)
def test_on_factors_that_need_no_clipping_it_is_the_gradient(seed):
    world = make_world(seed, n=5, poison=False)
    shrunk = {name: 0.7 * block for name, block in world.state.items()}
    ratings = world.ratings
    wanted = factor_gradients(
        ratings.indptr, ratings.items, ratings.values, 1.0, np.arange(5), shrunk["users"], shrunk["items"]
    )
    for query in (embedding(world), clipped(world, threshold=1e9)):
        answer = query(shrunk, derive(seed, "x"))
        np.testing.assert_allclose(answer["users"], wanted[0], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(answer["items"], wanted[1], rtol=1e-4, atol=1e-4)


def test_ratings_are_shifted_to_start_at_zero_and_clipped_to_the_scale():
    for r, shifted in ((1.0, 0), (5.0, 4), (9.0, 4), (-3.0, 0), (np.nan, 0), (np.inf, 4), (-np.inf, 0)):
        world = aligned(1, r, others=0).with_user(0, [0, 0])
        answer = exactly(embedding(world, 1.0, None, USERS), world.state, derive(1, "x"))
        np.testing.assert_allclose(answer["users"], [[-2 * shifted * 2, 0]], rtol=1e-5)


def test_a_sample_of_ratings_answers_as_if_the_others_were_not_there():
    world = make_world(4, n=6, m=13)
    query = embedding(world, 0.3, sampled=RATING)
    part = gradients.sample_ratings(world.ratings.indptr, 0.3, derive(9, "answer"))
    kept = np.zeros(world.ratings.n_ratings, dtype=bool)
    kept[part.entries] = True
    rest = EmbeddingGradient(Scale(*world.scale), 1.0, **PUBLIC).over(world.ratings.keep(kept))
    state = world.state
    for name, block in exactly(query, state, derive(9, "answer")).items():
        np.testing.assert_allclose(block, exactly(rest, state, derive(1, "x"))[name], atol=1e-12)


def test_a_sums_factors_can_be_given_beforehand_and_the_absent_stay_out():
    world = aligned(3, 1.0, others=1)
    here = embedding(world, at=world.state, present=np.array([False, True]))
    answer = here({}, derive(1, "x"))
    assert not answer["users"][0].any()
    alone = embedding(world.with_record(0, []))(world.state, derive(1, "x"))
    np.testing.assert_array_equal(answer["items"], alone["items"])


def within(tolerance=0.999, **how):
    """Whether every claim covers, and tightly, a suite of neighbours made by hand."""
    suite = []
    for blocks in (BOTH, USERS, ITEMS):
        for r in (1.0, 5.0):
            one, many = aligned(1, r), aligned(12, r)
            if r == 5:
                one, many = one.with_user(0, [0, 2]), many.with_user(0, [0, 2])
            suite.append((one, one.with_record(0, []), None, blocks, RATING))
            suite.append((many, many.with_record(0, []), 4, blocks, USER))
        poison = [[1e6, 0], [-2, 0], [np.nan, 1], [np.inf, -np.inf], [3e38, 3e38]]
        for bad in poison:
            for world in (aligned(1, 1.0), aligned(1, 5.0)):
                world.items[:] = bad
                for u in (bad, [2, 0]):
                    mine = world.with_user(0, u)
                    suite.append((mine, mine.with_record(0, []), None, blocks, RATING))
    reached = {}
    for world, near, trim, blocks, unit in suite:
        query, other = (embedding(w, 1.0, trim, blocks, **how) for w in (world, near))
        with np.errstate(all="ignore"):
            here = exactly(query, world.state, derive(1, "x"))
            there = exactly(other, near.state, derive(1, "x"))
            apart = math.sqrt(sum(np.square(here[name] - there[name]).sum() for name in here))
        share = apart / query.query.sensitivity(unit, ZERO_OUT)
        if not share <= 1:
            return False
        reached[blocks, unit] = max(share, reached.get((blocks, unit), 0))
    return all(share > tolerance for share in reached.values())


class NoFactorTwo(EmbeddingGradient):
    @staticmethod
    def _of_ratings(size, kept, blocks):
        return EmbeddingGradient._of_ratings(size, kept, blocks) / 2


class WrongWayRound(EmbeddingGradient):
    @staticmethod
    def _of_ratings(size, kept, blocks):
        return 2 * size**1.5 * math.sqrt(sum({"items": kept**2, "users": kept}[name] for name in blocks))


class ThetaForItems(EmbeddingGradient):
    """P0's own claim: not false, but √θ too large."""

    @staticmethod
    def _of_ratings(size, kept, blocks):
        return 2 * size**1.5 * kept * math.sqrt(len(blocks))


class NoProjection(EmbeddingGradient):
    def clipped(self, x, rows):
        return np.nan_to_num(x[rows].astype(np.float64), posinf=0, neginf=0)


class NoSign(EmbeddingGradient):
    def clipped(self, x, rows):
        x = np.nan_to_num(x[rows].astype(np.float64), posinf=0, neginf=0)
        return x / np.maximum(1, np.linalg.norm(x, axis=1) / 2)[:, None]


class LetsNaNThrough(EmbeddingGradient):
    def clipped(self, x, rows):
        x = np.maximum(x[rows].astype(np.float64), 0)
        return x / np.maximum(1, np.linalg.norm(x, axis=1) / 2)[:, None]


class ForgetsTheShift(GradientSum):
    def _rated(self, entries):
        return self.ratings.values[entries].astype(np.float64)


class ForgetsToTrim(GradientSum):
    def exact(self, state, stream):
        free = GradientSum(replace(self.query, trim=None), self.ratings, self._at, self.present)
        return free.exact(state, stream)


QUERIES = [NoFactorTwo, WrongWayRound, ThetaForItems, NoProjection, NoSign, LetsNaNThrough]


@pytest.mark.parametrize("planted", [*QUERIES, ForgetsTheShift, ForgetsToTrim])
def test_a_planted_bug_is_found(planted):
    assert within()
    assert not within(**{"asked" if planted in QUERIES else "kind": planted})


def test_trimming_that_depends_on_other_users_is_found(monkeypatch):
    """Keeping each user's least popular items: when one user goes, others keep other ratings."""

    def popular(part, items, limit, stream):
        counts = np.bincount(items[part.entries], minlength=items.max() + 1)
        kept = []
        for start, end in zip(part.indptr[:-1], part.indptr[1:], strict=True):
            mine = part.entries[start:end]
            kept.append(np.sort(mine[np.argsort(counts[items[mine]], kind="stable")[:limit]]))
        return Part(part.rows, np.cumsum([0, *map(len, kept)]), np.concatenate(kept))

    world = aligned(6, 1.0, others=9)
    for i in range(1, 10):
        world.records[i] = [(j, 1.0) for j in range(12)]
    near = world.with_record(0, [])

    def covered():
        query, other = (embedding(w, 1.0, 4, ITEMS) for w in (world, near))
        return all(
            moved(query, other, world.state, seed=seed) <= query.query.sensitivity(USER, ZERO_OUT) for seed in range(20)
        )

    assert covered()
    monkeypatch.setattr(gradients, "trim", popular)
    assert not covered()


def test_per_rating_claims_fail_where_factors_were_fitted_to_the_rating():
    """The reason for `users_are_public`: one rating moved u, and with it every row that the user touches."""
    world = aligned(9, 1.0)
    near = world.with_record(0, world.records[0][1:]).with_user(0, [0, 0])
    query, other = (embedding(w, 1.0, None, ITEMS) for w in (world, near))
    assert moved(query, other, world.state, near.state) > 2.9 * query.query.sensitivity(RATING, ZERO_OUT)
    query, other = (embedding(w, 1.0, 9, ITEMS, **AT_HOME) for w in (world, near))
    assert moved(query, other, world.state, near.state) <= query.query.sensitivity(RATING, ZERO_OUT)


def test_trimming_makes_one_rating_count_for_two():
    """The reason for 2a: the rating that takes the place of the one that is gone falls in another row."""
    world = aligned(12, 1.0)
    apart = []
    for gone in range(12):
        near = world.with_record(0, world.records[0][:gone] + world.records[0][gone + 1 :])
        query, other = (embedding(w, 1.0, 4, ITEMS) for w in (world, near))
        apart.append(moved(query, other, world.state))
    one = embedding(world, 1.0, None, ITEMS).query.sensitivity(RATING, ZERO_OUT)
    assert max(apart) == pytest.approx(math.sqrt(2) * one, rel=1e-5)
    assert sum(a > 0 for a in apart) == 4
    assert max(apart) <= query.query.sensitivity(RATING, ZERO_OUT)


def test_gradients_clipped_as_a_whole_are_found(monkeypatch):
    """Clipping the sum, not each part, lets one rating turn it around."""
    world = World([[(0, 1.0)], [(0, 5.0)]], 1, (1, 5), np.full((2, 1), 1.0, np.float32), np.full((1, 1), 2, np.float32))
    world = world.with_user(0, [2.0])
    kernel = gradients.bounded_gradients

    def whole(indptr, items, values, users, factors, threshold, *blocks):
        by_user, by_item = kernel(indptr, items, values, users, factors, math.inf, *blocks)
        norm = math.sqrt(np.square(by_user).sum() + np.square(by_item).sum())
        return by_user * min(1, threshold / norm), by_item * min(1, threshold / norm)

    def covered():
        query, other = (clipped(w, threshold=1.0) for w in (world, world.with_record(0, [])))
        return moved(query, other, world.state) <= query.query.sensitivity(RATING, ZERO_OUT)

    assert covered()
    monkeypatch.setattr(gradients, "bounded_gradients", whole)
    assert not covered()
