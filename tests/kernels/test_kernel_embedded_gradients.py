"""One call for a private gradient: the bits of the kernels that it stands for, and the numbers of its twin."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import make

from tacit.kernels.bounded import bounded_gradients, embedded_gradients, embedded_gradients_numpy
from tacit.kernels.embed import embed_rows
from tacit.kernels.entries import entries_of, looked_up, shifted

CASES = st.builds(
    make,
    seed=st.integers(0, 2**32),
    n=st.integers(1, 6),
    m=st.integers(1, 7),
    p=st.integers(1, 40),
    density=st.sampled_from([0.0, 0.5, 1.0]),
    size=st.sampled_from([0.0, 0.3, 1.0, 1e9]),
)


def parts(case, blocks):
    """What `embedded_gradients` takes."""
    pointers, entries = entries_of(case.indptr, case.rows)
    scale = (case.shift, case.span)
    return (pointers, entries, case.items, case.values, *scale, case.rows, case.users, case.factors, case.span, *blocks)


def one_by_one(case, blocks):
    """The same by a kernel for each thing."""
    pointers, entries = entries_of(case.indptr, case.rows)
    touched, places = looked_up(case.items, entries, len(case.factors))
    rated = shifted(case.values, entries, case.shift, case.span)
    u, v = embed_rows(case.users, case.rows, case.span), embed_rows(case.factors, touched, case.span)
    return touched, *bounded_gradients(pointers, places, rated, u, v, math.inf, *blocks)


@given(CASES, st.sampled_from([(True, True), (False, True), (True, False)]))
@settings(deadline=None, max_examples=150)
def test_one_call_gives_the_bits_of_five(case, blocks):
    for found, wanted in zip(embedded_gradients(*parts(case, blocks)), one_by_one(case, blocks), strict=True):
        np.testing.assert_array_equal(found, wanted)


@given(CASES)
@settings(deadline=None, max_examples=100)
def test_one_call_gives_the_numbers_of_the_twin(case):
    given_ = parts(case, (True, True))
    for found, wanted in zip(embedded_gradients(*given_), embedded_gradients_numpy(*given_), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)
