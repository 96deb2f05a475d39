"""Everything that predicts agrees with itself: rows of scores, pairs, and many parties put together."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.data.ratings import Scale
from tacit.model import Fitted, Hashed, Linear, NonNegative, Part, assemble
from tacit.model.predictor import Assembled, WithNewUsers
from tacit.rng import derive, id_keys

N, M, P = 7, 6, 3
SCALE = Scale(1, 5)


def factors(seed=1, n=N, m=M, low=1.0):
    stream = derive(seed, "factors")
    states = stream.random((n, P), dtype=np.float32)
    return Fitted(NonNegative(low, low + 4, stream.random((m, P), dtype=np.float32)), states)


def flat(scores, rates=True, n=N):
    return Fitted.same_for_all(Linear.scores(np.asarray(scores, dtype=np.float32), SCALE, rates), n)


def random_order(users, items):
    return Fitted(Hashed(id_keys(1, "i", items)), id_keys(1, "u", users)[:, None])


def owners(seed, size, parts):
    """A division of range(size) into non-empty, increasing pieces."""
    owner = derive(seed, "owners").permutation(np.arange(size) % parts)
    return [np.flatnonzero(owner == k) for k in range(parts)]


def by_rows(whole, pieces, share=True):
    items = [whole.form.items if share else whole.form.items.copy() for _ in pieces]
    return [
        Part(rows, np.arange(M), Fitted(replace(whole.form, items=v), whole.states[rows]))
        for rows, v in zip(pieces, items, strict=True)
    ]


def by_columns(whole, pieces):
    of = [replace(whole.form, items=whole.form.items[columns]) for columns in pieces]
    return [Part(np.arange(N), columns, Fitted(form, whole.states)) for columns, form in zip(pieces, of, strict=True)]


def all_kinds():
    whole = factors()
    same = flat(1 + derive(2, "flat").random(M, dtype=np.float32))
    levels = 1 + derive(2, "users").random((N, 1), dtype=np.float32)
    return {
        "factors": whole,
        "item scores": same,
        "popularity": flat(np.arange(M), rates=False),
        "levels": Fitted(Linear.levels(np.linspace(-1, 4, M, dtype=np.float32), SCALE, 1.0), levels),
        "random": random_order(range(N), range(M)),
        "assembled rows": Assembled(by_rows(whole, owners(1, N, 3)), N, M, by_item=False),
        "assembled columns": Assembled(by_columns(whole, owners(1, M, 2)), N, M, by_item=True),
        "overlay": WithNewUsers(same, np.array([5, 1]), factors(9, n=2), N),
    }


@pytest.mark.parametrize("kind", all_kinds())
def test_pairs_are_cells_of_the_rows(kind):
    predictor = all_kinds()[kind]
    users, items = (x.ravel() for x in np.indices((N, M)))
    shuffled = derive(4, "shuffle").permutation(N * M)[:30]
    users, items = users[shuffled], items[shuffled]
    scores = predictor.scores(users)
    assert scores.shape == (30, M)
    found = predictor.predict(users, items)
    assert found.shape == (30,)
    assert found.dtype == scores.dtype == np.float32
    np.testing.assert_allclose(found, scores[np.arange(30), items], rtol=1e-6)
    np.testing.assert_allclose(predictor.scores(np.arange(N))[users], scores, rtol=1e-6)


@pytest.mark.parametrize("kind", all_kinds())
def test_nobody_and_nothing_are_answered_with_empty_arrays(kind):
    predictor, none = all_kinds()[kind], np.empty(0, dtype=np.int64)
    assert predictor.predict(none, none).shape == (0,)
    assert predictor.scores(none).shape == (0, M)


@given(seed=st.integers(0, 10**6), parts=st.integers(1, N), share=st.booleans())
@settings(deadline=None, max_examples=40)
def test_many_parties_by_user_or_item_are_the_whole(seed, parts, share):
    """As one factor model, where item factors are the same or copies of each other, and asked one by one."""
    whole = factors(seed)
    mine = by_rows(whole, owners(seed, N, parts), share)
    together, each = assemble(mine, N, M, by_item=False), Assembled(mine, N, M, by_item=False)
    assert isinstance(together, Fitted)
    columns = assemble(by_columns(whole, owners(seed, M, min(parts, M))), N, M, by_item=True)
    assert isinstance(columns, Assembled)
    users, items = (x.ravel() for x in np.indices((N, M)))
    for found in (together, each, columns):
        np.testing.assert_allclose(found.scores(np.arange(N)), whole.scores(np.arange(N)), rtol=1e-6)
        np.testing.assert_allclose(found.predict(users, items), whole.predict(users, items), rtol=1e-6)


def test_predictions_that_are_cut_to_the_scale_stay_so_together():
    whole = factors()
    mine = [
        Part(rows, np.arange(M), Fitted(Linear.factors(whole.form.items.copy(), SCALE), 9 * whole.states[rows]))
        for rows in owners(1, N, 2)
    ]
    together = assemble(mine, N, M, by_item=False)
    assert isinstance(together, Fitted)
    assert together.scores(np.arange(N)).max() == 5.0


def test_parties_with_item_factors_of_their_own_keep_them():
    mine = by_rows(factors(), owners(1, N, 2), share=False)
    mine[0].predictor.form.items[3] += 1
    together = assemble(mine, N, M, by_item=False)
    assert isinstance(together, Assembled)
    for part in mine:
        np.testing.assert_array_equal(together.scores(part.rows), part.predictor.scores(np.arange(len(part.rows))))


def test_a_party_misplaced_is_seen():
    """The comparisons above would notice rows that are swapped."""
    whole, pieces = factors(), owners(1, N, 2)
    parts = by_rows(whole, pieces, share=False)
    swapped = [Part(parts[0].rows[::-1], parts[0].columns, parts[0].predictor), parts[1]]
    together = assemble(swapped, N, M, by_item=False)
    assert not np.allclose(together.scores(np.arange(N)), whole.scores(np.arange(N)), rtol=1e-6)


def test_parties_that_only_rank_make_a_whole_that_only_ranks():
    for rates in (False, True):
        first, second = flat(np.ones(M), n=3), flat(np.ones(M), rates, n=N - 3)
        parts = [Part(np.arange(3), np.arange(M), first), Part(np.arange(3, N), np.arange(M), second)]
        assert assemble(parts, N, M, by_item=False).rates is rates


def test_an_overlay_answers_for_its_users_only():
    base, other = factors(1), factors(2, n=2)
    both = WithNewUsers(base, np.array([5, 1]), other, N)
    scores, expected = both.scores(np.arange(N)), base.scores(np.arange(N))
    expected[[5, 1]] = other.scores(np.array([0, 1]))
    np.testing.assert_allclose(scores, expected, rtol=1e-6)
    assert both.rates is base.rates


def test_random_scores_depend_on_the_two_ids_alone():
    a = random_order([10, 20, 30], ["a", "b"])
    b = random_order([30, 10], ["b", "a", "c"])
    np.testing.assert_array_equal(b.scores(np.array([1, 0]))[:, [1, 0]], a.scores(np.array([0, 2])))
    assert not a.rates
