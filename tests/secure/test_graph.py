"""The graph: bounds against exact counts, thresholds that fit, and a ring that everybody computes alike."""

import math
from fractions import Fraction
from itertools import combinations

import pytest

from tacit.errors import PrivacyRefused, UsageError
from tacit.rng import derive
from tacit.secure.graph import AVAILABLE, NEVER, SECURE, SMALL, _split, choose, neighbours

CASES = [(n, w, c) for n in (3, 4, 5, 8, 16, 17, 30, 50, 200, 1000) for w in (0, 0.1, 0.3) for c in (1, n // 10)]


def possible(n, w, c):
    return n - math.floor(w * n + 1e-9) - c >= 2


def shapes():
    return [(n, w, c, choose(n, w, c)) for n, w, c in CASES if possible(n, w, c)]


def names_of(n):
    return [f"party-{i}" for i in range(n)]


def tail(others, marked, drawn, at_least):
    """P[Hypergeometric ≥ at_least], exactly."""
    top = sum(
        math.comb(marked, j) * math.comb(others - marked, drawn - j) for j in range(at_least, min(marked, drawn) + 1)
    )
    return Fraction(top, math.comb(others, drawn))


def log2(p):
    return NEVER if p == 0 else math.log2(p.numerator) - math.log2(p.denominator)


def falls_apart(n, degree, removed):
    """Whether the survivors of a ring 0 … n − 1 are not connected."""
    left = [i for i in range(n) if i not in removed]
    seen, todo = {left[0]}, [left[0]]
    while todo:
        at = todo.pop()
        for offset in range(1, degree // 2 + 1):
            for other in ((at + offset) % n, (at - offset) % n):
                if other not in removed and other not in seen:
                    seen.add(other)
                    todo.append(other)
    return len(seen) < len(left)


def test_every_shape_keeps_its_bounds_as_exact_counts_give_them():
    for n, w, c, shape in shapes():
        dropped, k, t = math.floor(w * n + 1e-9), shape.degree, shape.threshold
        assert shape.fewest == n - dropped == math.ceil(Fraction(str(1 - w)).limit_denominator(100) * n)
        assert 1 <= t <= k <= n - 1
        assert k == n - 1 or k % 2 == 0
        hidden = log2(n * tail(n - 1, c, k, t))
        recovers = log2(n * tail(n - 1, dropped, k, k - t + 1))
        assert hidden <= SECURE
        assert recovers <= AVAILABLE
        assert shape.hidden == pytest.approx(hidden, abs=1e-6) or hidden == shape.hidden == NEVER
        assert shape.recovers == pytest.approx(recovers, abs=1e-6) or recovers == shape.recovers == NEVER
        assert shape.connected <= SECURE


def test_a_ring_is_the_smallest_that_does():
    """Two neighbours fewer break one of the bounds, for every threshold."""
    for n, w, c, shape in shapes():
        k, dropped = shape.degree - 2, math.floor(w * n + 1e-9)
        if shape.complete or k < 2:
            continue
        fits = [
            t
            for t in range(1, k + 1)
            if log2(n * tail(n - 1, c, k, t)) <= SECURE and log2(n * tail(n - 1, dropped, k, k - t + 1)) <= AVAILABLE
        ]
        assert _split(n, k, dropped + c) > SECURE or not fits, (n, w, c)


@pytest.mark.parametrize(("n", "k", "r"), [(9, 4, 5), (10, 4, 4), (10, 4, 6), (11, 6, 7), (12, 4, 5), (12, 2, 3)])
def test_the_bound_on_falling_apart_holds_over_all_ways_to_remove(n, k, r):
    """A uniform ring and fixed removals are the same as a fixed ring and uniform removals: count them all."""
    apart = sum(falls_apart(n, k, set(removed)) for removed in combinations(range(n), r))
    true = apart / math.comb(n, r)
    assert 0 < true <= 2 ** _split(n, k, r)


@pytest.mark.parametrize(("n", "k"), [(9, 4), (10, 6), (12, 4)])
def test_fewer_removed_than_neighbours_never_fall_apart(n, k):
    for r in range(k):
        assert _split(n, k, r) == NEVER
        assert not any(falls_apart(n, k, set(removed)) for removed in combinations(range(n), r))


def test_that_check_notices_a_degree_that_is_one_step_too_small():
    """The planted bug: k ≥ r taken for k > r."""
    assert any(falls_apart(10, 4, set(removed)) for removed in combinations(range(10), 4))
    assert _split(10, 4, 4) > NEVER


def test_few_parties_are_all_neighbours():
    for n in range(3, SMALL + 1):
        assert choose(n, 0, 1).complete
    assert not choose(50, 0.3, 1).complete


@pytest.mark.parametrize(("n", "w", "c"), [(4, 0.25, 1), (10, 0.3, 1), (10, 0.3, 2), (50, 0.2, 5), (7, 0.1, 0)])
def test_signed_shapes_leave_room_for_one_list_only(n, w, c):
    shape = choose(n, w, c, signed=True)
    assert shape.complete
    assert shape.signed
    assert 2 * shape.threshold > n + c
    assert 2 * (shape.threshold - 1) <= n + c
    assert shape.threshold <= shape.fewest


def test_what_cannot_be_signed_says_how_many_may_drop_out():
    with pytest.raises(PrivacyRefused, match=r"tolerate at most 0\.4"):
        choose(10, 0.5, 1, signed=True)
    assert choose(10, 0.4, 1, signed=True).threshold == 6
    for n in range(3, 40):
        for c in range(n - 1):
            with pytest.raises(PrivacyRefused, match=r"tolerate at most|hide among") as refused:
                choose(n, (n - 1) / n, c, signed=True)
            if c == 0:
                assert "hide among" in str(refused.value)
            most = (n - (n + c) // 2 - 1) / n
            assert choose(n, most, c, signed=True).threshold == (n + c) // 2 + 1 <= n - round(most * n)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((2, 0, 0), UsageError, "three parties or more"),
        ((3, 0.34, 1), PrivacyRefused, "leaves 1 to hide among"),
        ((10, 0.3, 100), PrivacyRefused, "leaves 0"),
        ((10, 1.0, 1), UsageError, "tolerate = 1"),
        ((10, math.nan, 1), UsageError, "tolerate = nan"),
        ((10, 0.1, -1), UsageError, "negative"),
    ],
)
def test_what_cannot_be_is_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        choose(*arguments)
    for names in (names_of(4), ["a", "b", "c", "d", "a"]):
        with pytest.raises(UsageError, match="4 different names"):
            neighbours(names, choose(5, 0, 1), b"")


def test_everything_that_may_be_asked_has_a_shape():
    for n in range(3, 24):
        for dropped in range(n - 2):
            for c in range(n - dropped - 1):
                shape = choose(n, dropped / n, c)
                assert shape.fewest == n - dropped
                assert shape.threshold > c or shape.hidden <= SECURE


@pytest.mark.parametrize("n", [3, 16, 17, 30, 51])
def test_neighbours_are_mutual_regular_and_not_oneself(n):
    shape, names = choose(n, 0.1 if n > 9 else 0, 1), names_of(n)
    near = neighbours(names, shape, b"seed")
    assert list(near) == names
    for name, others in near.items():
        assert len(set(others)) == len(others) == shape.degree
        assert name not in others
        assert all(name in near[other] for other in others)
        assert list(others) == sorted(others, key=names.index)


def test_the_ring_is_a_function_of_the_seed_and_of_names_alone():
    shape, names = choose(30, 0.1, 1), names_of(30)
    near = neighbours(names, shape, b"seed")
    assert near == neighbours(names, shape, b"seed")
    assert near != neighbours(names, shape, b"other")
    mixed = list(derive(7, "order").permutation(names))
    assert {name: set(others) for name, others in neighbours(mixed, shape, b"seed").items()} == {
        name: set(others) for name, others in near.items()
    }


def test_every_pair_is_as_likely_as_every_other():
    """Pearson's statistic over 435 pairs and 400 fixed seeds: mean 434; no false alarms, since seeds are fixed."""
    shape, names = choose(30, 0.1, 1), names_of(30)
    counts = dict.fromkeys(combinations(names, 2), 0)
    for seed in range(400):
        for name, others in neighbours(names, shape, seed.to_bytes(4, "little")).items():
            for other in others:
                if (name, other) in counts:
                    counts[name, other] += 1
    chance = shape.degree / 29
    pearson = sum((x - 400 * chance) ** 2 for x in counts.values()) / (400 * chance * (1 - chance))
    assert pearson < 435 + 6 * math.sqrt(2 * 435)
