from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.evaluate.positions import sample_negatives
from tacit.rng import id_keys


def draw(known: list[list[int]], items: int, negatives: int, seed: int = 7, ids: list[int] | None = None) -> np.ndarray:
    indptr = np.concatenate(([0], np.cumsum([len(k) for k in known]))).astype(np.int64)
    flat = np.array([i for k in known for i in k], dtype=np.int64)
    keys = id_keys(seed, "a test", range(len(known)) if ids is None else ids)
    return sample_negatives(indptr, flat, keys, items=items, negatives=negatives, seed=seed)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    known=st.lists(st.sets(st.integers(0, 11)), min_size=1, max_size=5),
    negatives=st.integers(1, 15),
    seed=st.integers(0, 2**31),
)
def test_draws_are_distinct_unknown_items_as_many_as_there_are(known, negatives, seed):
    drawn = draw([sorted(k) for k in known], 12, negatives, seed)
    assert drawn.shape == (len(known), negatives)
    for row, items in zip(drawn, known, strict=True):
        picked = row[row >= 0]
        assert len(picked) == min(negatives, 12 - len(items))
        assert len(set(picked)) == len(picked)
        assert not set(picked) & items
        assert picked.max(initial=0) < 12


def test_every_pair_of_items_is_drawn_equally_often():
    # All C(5, 2) = 10 subsets of 30,000 draws: Binomial(30000, 1/10), sd 52. Bounds at 4.9 sd: a false-alarm
    # rate of 1e-6 per subset, were the seed not fixed.
    drawn = np.sort(draw([[]] * 30_000, 5, 2), axis=1)
    _, counts = np.unique(drawn[:, 0] * 5 + drawn[:, 1], return_counts=True)
    assert len(counts) == 10
    assert np.all(np.abs(counts - 3000) < 4.9 * 52)


def test_a_draw_depends_on_the_users_id_not_on_the_others():
    known = [[0, 3], [1], [], [2, 5, 7]]
    together = draw(known, 50, 6, ids=[10, 11, 12, 13])
    backwards = draw(known[::-1], 50, 6, ids=[13, 12, 11, 10])
    np.testing.assert_array_equal(together, backwards[::-1])
    np.testing.assert_array_equal(together[2:3], draw([[]], 50, 6, ids=[12]))
    assert (together != draw(known, 50, 6, seed=8, ids=[10, 11, 12, 13])).any()
