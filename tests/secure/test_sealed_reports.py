"""Sealed reports: of equal length, open for one key and one request, and counted once."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tacit.errors import BadMessage
from tacit.secure.sealed_reports import OVERHEAD, Layout, binding, open_batch, seal

KEY = X25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key().public_bytes_raw()
ABOUT = binding("run", "ab" * 32)
REPORTS = {"coordinate": np.array([5, 0, 2**31 - 1], np.int32), "bit": np.array([1, 0, 1], np.int32)}
LAYOUT = Layout.of(REPORTS)


def opened(batch, key=KEY, about=ABOUT):
    return open_batch(batch, key, about, LAYOUT.size)


def sealed(rows=None, public=PUBLIC, about=ABOUT):
    return seal(LAYOUT.pack(REPORTS) if rows is None else rows, public, about)


def test_what_is_opened_is_what_was_sealed_whatever_the_order():
    found = opened(sealed()[[2, 0, 1]])
    read = LAYOUT.unpack(found.rows)
    pairs = sorted(zip(read["coordinate"].tolist(), read["bit"].tolist(), strict=True))
    assert pairs == [(0, 0), (5, 1), (2**31 - 1, 1)]
    assert (found.repeated, found.unreadable) == (0, 0)
    np.testing.assert_array_equal(found.rows, opened(sealed()).rows)


def test_sealed_reports_have_one_length_and_never_the_same_bytes():
    same = sealed(np.zeros((50, LAYOUT.size), np.uint8))
    assert same.shape == (50, LAYOUT.sealed_size) == (50, LAYOUT.size + OVERHEAD)
    assert len({row.tobytes() for row in same}) == 50


def test_planted_equal_bytes_for_equal_reports_are_noticed(monkeypatch):
    """A scheme without fresh keys would show which devices say the same."""
    once = sealed(np.zeros((1, LAYOUT.size), np.uint8))
    monkeypatch.setitem(globals(), "seal", lambda rows, *_rest: np.repeat(once, len(rows), axis=0))
    with pytest.raises(AssertionError):
        test_sealed_reports_have_one_length_and_never_the_same_bytes()


def test_a_repeat_is_counted_once():
    batch = sealed()
    found = opened(np.concatenate([batch, batch[:2]]))
    assert (len(found.rows), found.repeated, found.unreadable) == (3, 2, 0)


def test_equal_reports_of_two_devices_are_two():
    rows = np.repeat(LAYOUT.pack(REPORTS)[:1], 2, axis=0)
    assert len(opened(sealed(rows)).rows) == 2


@pytest.mark.parametrize("wrong", ["foreign key", "other request", "other run", "damaged", "other length"])
def test_what_was_sealed_otherwise_is_left_out_and_counted(wrong):
    batch = sealed()
    match wrong:
        case "foreign key":
            batch = sealed(public=X25519PrivateKey.generate().public_key().public_bytes_raw())
        case "other request":
            batch = sealed(about=binding("run", "cd" * 32))
        case "other run":
            batch = sealed(about=binding("another", "ab" * 32))
        case "damaged":
            batch = batch ^ np.uint8(1)
        case "other length":
            batch = batch[:, :40]
    found = opened(np.ascontiguousarray(batch))
    assert (len(found.rows), found.unreadable) == (0, 3)


@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("kind", [np.int32, np.float32, np.uint8])
def test_every_layout_comes_back(shape, kind):
    reports = {
        "b": np.arange(4 * int(np.prod(shape, dtype=int))).astype(kind).reshape(4, *shape),
        "a": np.ones(4, "<i8"),
    }
    layout = Layout.of(reports)
    back = layout.unpack(layout.pack(reports))
    for name, block in reports.items():
        np.testing.assert_array_equal(back[name], block)
        assert back[name].dtype == block.dtype


def test_no_reports_are_no_rows():
    empty = {name: block[:0] for name, block in REPORTS.items()}
    assert LAYOUT.pack(empty).shape == (0, 8)
    assert len(opened(np.zeros((0, LAYOUT.sealed_size), np.uint8)).rows) == 0
    assert len(LAYOUT.unpack(np.zeros((0, 8), np.uint8))["bit"]) == 0


def test_arrays_of_other_types_or_lengths_are_refused():
    for changed in ({"bit": REPORTS["bit"][:2]}, {"bit": REPORTS["bit"].astype(np.int64)}, {"more": REPORTS["bit"]}):
        with pytest.raises(BadMessage, match="differ in length"):
            LAYOUT.pack({**REPORTS, **changed})
