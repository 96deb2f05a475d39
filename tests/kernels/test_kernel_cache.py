"""Kernels compile where nothing can be kept: a package and a home that are read-only."""

from pathlib import Path

import numpy as np
import pytest
from numba.core import caching

from tacit.kernels import jit
from tacit.kernels.jit import compiled


@pytest.fixture
def nowhere(monkeypatch):
    """No folder takes a cache."""
    for locator in caching.CacheImpl._locator_classes:
        monkeypatch.setattr(locator, "from_function", classmethod(lambda cls, function, file: None))


def add(x, y):
    return x + y


def test_a_kernel_compiles_without_a_cache_where_there_is_no_place_for_one(nowhere):
    kernel = compiled(fastmath=True)(add)
    assert kernel(1, 2) == 3
    assert kernel.targetoptions.get("nogil") is True
    assert isinstance(kernel._cache, caching.NullCache)


def test_a_kernel_is_kept_where_there_is_a_place(tmp_path, monkeypatch):
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    kernel = compiled()(add)
    np.testing.assert_array_equal(kernel(np.ones(3), 1.0), np.full(3, 2.0))
    assert list(tmp_path.rglob("*.nbi"))


def test_every_kernel_is_compiled_in_one_place():
    """One that asks numba itself for a cache would not run where none can be written."""
    folder = Path(jit.__file__).parent
    asking = [path.name for path in folder.glob("*.py") if "njit(" in path.read_text() and path.name != "jit.py"]
    assert asking == []
