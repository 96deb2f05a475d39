"""Generators that a kernel seeds are those of `tacit.rng.derive`, bit by bit."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import rng
from tacit.errors import UsageError
from tacit.kernels.streams import derive, expand, expand_numpy

PARTS = st.one_of(st.integers(-(2**70), 2**70), st.text(max_size=9), st.binary(max_size=9))


@given(st.integers(-(2**63), 2**63), st.lists(PARTS, max_size=5))
@settings(deadline=None, max_examples=200)
def test_a_derived_generator_draws_what_derive_makes_it_draw(seed, purpose):
    one, other = derive(seed, *purpose), rng.derive(seed, *purpose)
    np.testing.assert_array_equal(one.random(5), other.random(5))
    np.testing.assert_array_equal(one.bit_generator.random_raw(3), other.bit_generator.random_raw(3))


@pytest.mark.parametrize("zeros", range(33))
def test_a_key_that_ends_in_zeros_is_expanded_as_numpy_does_it(zeros):
    key = bytes(range(1, 33 - zeros)) + bytes(zeros)
    np.testing.assert_array_equal(expand(key, 3), expand_numpy(key, 3))


def test_a_derived_generator_can_be_pickled():
    stream = derive(7, "party-1")
    again = pickle.loads(pickle.dumps(stream))
    assert again.random() == stream.random()


@pytest.mark.parametrize("purpose", [(1.0,), (3, 3.0), ("a", None)])
def test_what_is_no_purpose_is_refused_even_after_an_equal_number(purpose):
    derive(7, 1, 3)
    with pytest.raises(TypeError):
        derive(7, *purpose)
    with pytest.raises(UsageError):
        derive(7.0, 1)
