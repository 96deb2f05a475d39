"""Keyed hashes: the common roster is the plain join of ids, in an order that tells nothing."""

import hashlib
import hmac
from itertools import pairwise

import numpy as np
import pytest

from tacit.errors import BadMessage, DataError, UsageError
from tacit.rng import derive, id_keys, stream_key
from tacit.secure.alignment import checked, common_rows, id_texts, tags, travel

KEY = stream_key(7, "the sites' key")


def random_sites(seed, sites, people=60):
    """By site some of the people, in an order of its own; each is at a site with probability 0.7."""
    draw = derive(seed, "sites")
    return {
        f"party-{k + 1}": draw.permutation([f"u{i:03d}" for i in range(people) if draw.random() < 0.7]).tolist()
        for k in range(sites)
    }


def plain_join(ids, keep):
    """The ids that the common roster must have."""
    sets = [set(own) for own in ids.values()]
    return set.intersection(*sets) if keep == "shared" else set.union(*sets)


def aligned(ids, keep, seed=7, make=lambda site, own: tags(KEY, own)):
    """What every site ends up with: its ids by row; and the number of rows."""
    sent, places = {}, {}
    for site, own in ids.items():
        sent[site], places[site] = travel(make(site, own))
    count, rows = common_rows(sent, keep, seed)
    mine = {site: rows[site][places[site]] for site in ids}
    return count, {site: {int(r): i for i, r in zip(ids[site], mine[site], strict=True) if r >= 0} for site in ids}


def check_against_join(ids, keep, count, by_row):
    joined = plain_join(ids, keep)
    assert count == len(joined)
    roster = {}
    for site, mine in by_row.items():
        assert set(mine.values()) == joined & set(ids[site])
        for row, user in mine.items():
            assert roster.setdefault(row, user) == user
    assert sorted(roster) == list(range(count))
    assert set(roster.values()) == joined


@pytest.mark.parametrize("keep", ["shared", "all"])
@pytest.mark.parametrize("size", [16, 32])
@pytest.mark.parametrize("sites", [1, 2, 3, 7])
def test_rows_are_those_of_a_plain_join(sites, size, keep):
    for seed in range(5):
        ids = random_sites(seed, sites)
        got = aligned(ids, keep, make=lambda site, own: tags(KEY, own, size=size))
        check_against_join(ids, keep, *got)


def test_a_wrong_row_is_noticed():
    """The planted bug: two rows of one site are swapped; or rows are read in the order in which they travelled."""
    ids = random_sites(1, 3)
    count, by_row = aligned(ids, "shared")
    mine = by_row["party-2"]
    mine[0], mine[1] = mine[1], mine[0]
    with pytest.raises(AssertionError):
        check_against_join(ids, "shared", count, by_row)
    sent = {site: travel(tags(KEY, own))[0] for site, own in ids.items()}
    count, rows = common_rows(sent, "shared", 7)
    unplaced = {site: {int(r): i for i, r in zip(ids[site], rows[site], strict=True) if r >= 0} for site in ids}
    with pytest.raises(AssertionError):
        check_against_join(ids, "shared", count, unplaced)


@pytest.mark.parametrize("keep", ["shared", "all"])
def test_rows_depend_neither_on_the_order_of_ids_nor_of_sites(keep):
    ids = random_sites(3, 4)
    count, by_row = aligned(ids, keep)
    other = {site: sorted(ids[site]) for site in reversed(ids)}
    assert aligned(other, keep) == (count, by_row)
    assert aligned(ids, keep, seed=8) != (count, by_row)


def test_the_order_of_rows_is_that_of_no_ids():
    """400 ids whose order is known: rank correlation with rows. Seeded; with other keys a false alarm once in 10⁷."""
    ids = [f"u{i:04d}" for i in range(400)]
    rows = aligned({"a": ids, "b": ids}, "shared")[1]["a"]
    by_id = np.array([row for _, row in sorted((i, r) for r, i in rows.items())])
    assert abs(np.corrcoef(by_id, np.arange(400))[0, 1]) < 5.3 / np.sqrt(400)
    sent, place = travel(tags(KEY, ids))
    assert abs(np.corrcoef(place, np.arange(400))[0, 1]) < 5.3 / np.sqrt(400)
    assert [bytes(tag) for tag in sent] == sorted(bytes(tag) for tag in sent)


def test_empty_lists_are_aligned():
    some, none = tags(KEY, ["a", "b"]), tags(KEY, [])
    assert none.shape == (0, 32)
    count, rows = common_rows({"x": some, "y": none}, "shared", 7)
    assert (count, rows["x"].tolist(), rows["y"].tolist()) == (0, [-1, -1], [])
    count, rows = common_rows({"x": some, "y": none}, "all", 7)
    assert (count, sorted(rows["x"].tolist()), rows["x"].dtype) == (2, [0, 1], np.int64)
    assert common_rows({"x": none, "y": none}, "all", 7)[0] == 0


def test_tags_that_end_in_zeros_are_told_apart():
    """NumPy's text drops zeros at the end; whole rows must not be confused for it."""
    lists = {"x": np.array([[1] + [0] * 15, [0] * 16], np.uint8), "y": np.array([[0] * 15 + [1], [0] * 16], np.uint8)}
    count, rows = common_rows(lists, "shared", 7)
    assert (count, rows["x"].tolist(), rows["y"].tolist()) == (1, [-1, 0], [-1, 0])
    assert common_rows(lists, "all", 7)[0] == 3


def test_ids_are_text_exactly_as_written():
    same = tags(KEY, [42, np.int64(43), np.str_("44")]), tags(KEY, ["42", "43", "44"])
    assert np.array_equal(*same)
    different = tags(KEY, ["7", "07", "a", "A", "a ", "é", "e\u0301"])
    assert len({bytes(tag) for tag in different}) == 7


def test_tags_are_hmac_and_every_context_has_its_own():
    expected = hmac.new(KEY, b"tacit alignment tag 1" + bytes([3] + [0] * 7) + b"run" + b"ann", hashlib.sha256).digest()
    assert bytes(tags(KEY, ["ann"], context=b"run")[0]) == expected
    assert bytes(tags(KEY, ["ann"], context=b"run", size=16)[0]) == expected[:16]
    assert bytes(tags(KEY, ["nann"], context=b"ru")[0]) != expected  # where the context ends is part of what is hashed


def test_a_user_who_is_there_twice_is_an_error_that_does_not_name_her():
    with pytest.raises(DataError, match=r"number 1 and 3 of this site") as caught:
        tags(KEY, ["secret-42", "b", "secret-42"])
    assert "secret-42" not in str(caught.value)
    with pytest.raises(DataError, match="same text"):
        id_texts([42, "42"])


@pytest.mark.parametrize(
    ("key", "size", "said"), [(b"", 32, "not 0"), (bytes(31), 32, "not 31"), (KEY, 20, "16 or 32 bytes, not 20")]
)
def test_weak_keys_and_odd_sizes_are_refused(key, size, said):
    with pytest.raises(UsageError, match=said):
        tags(key, ["a"], size=size)


GOOD = tags(KEY, ["a", "b", "c"])


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (GOOD.astype(np.int64), "no table of bytes"),
        (None, "no table of bytes"),
        (GOOD[:, :31], "31 bytes instead of 16 or 32"),
        (GOOD[[0, 1, 0]], "a tag twice"),
    ],
)
def test_lists_that_no_honest_site_sends_are_refused(bad, said):
    with pytest.raises(BadMessage, match=said) as caught:
        common_rows({"party-1": GOOD, "party-2": bad}, "shared", 7)
    assert '"party-2"' in str(caught.value)


def test_lists_of_another_length_or_size_and_unknown_joins_are_refused():
    assert np.array_equal(checked(GOOD, "party-1", rows=3), GOOD)
    with pytest.raises(BadMessage, match="3 tags instead of 4"):
        checked(GOOD, "party-1", rows=4)
    with pytest.raises(BadMessage, match="different sizes"):
        common_rows({"x": GOOD, "y": np.ascontiguousarray(GOOD[:, :16])}, "shared", 7)
    with pytest.raises(UsageError, match='Did you mean "shared"'):
        common_rows({"x": GOOD}, "share", 7)
    with pytest.raises(UsageError, match="no list"):
        common_rows({}, "all", 7)


def members(seen, key, dictionary):
    """Of all candidates those whose tag under this key was seen."""
    seen = {bytes(tag) for tag in seen}
    return {i for i in dictionary if bytes(tags(key, [i])[0]) in seen}


def test_a_coordinator_tests_candidates_with_the_key_and_cannot_without():
    dictionary = [f"u{i:03d}" for i in range(60)]
    own = random_sites(5, 1)["party-1"]
    sent = travel(tags(KEY, own))[0]
    assert members(sent, KEY, dictionary) == set(own)
    assert members(sent, stream_key(8, "another key"), dictionary) == set()


def resolved(seed_known, seed_used):
    """A site with the key, 200 of 400 possible users and its own rows of the union: how many of the other 200 it can
    say for certain to be on the roster or not, having sorted everybody by a seed that it knows or guesses; and how
    many of these it gets wrong."""
    draw = derive(11, "people")
    people = [f"u{i:03d}" for i in range(400)]
    first, second = (draw.permutation(people)[:200].tolist() for _ in range(2))
    rows = aligned({"a": first, "b": second}, "all", seed=seed_used)[1]["a"]
    texts = [tag.tobytes().hex() for tag in tags(KEY, people)]
    rank = dict(zip(people, id_keys(seed_known, "alignment: row of a tag", texts), strict=True))
    strangers = [i for i in people if i not in set(first)]
    certain = wrong = 0
    for (low, a), (high, b) in pairwise(sorted(rows.items())):
        between = [i for i in strangers if rank[a] < rank[i] < rank[b]]
        others = high - low - 1  # rows of users whom only the other site has
        if others in (0, len(between)):
            certain += len(between)
            wrong += sum((i in set(second)) != (others > 0) for i in between)
    return certain, wrong


def test_rows_tell_a_site_nothing_only_if_it_does_not_know_their_seed():
    """With a public seed, a site that can compute tags reads off its own rows who is at the other site and who not."""
    certain, wrong = resolved(seed_known=7, seed_used=7)
    assert certain > 60
    assert wrong == 0
    certain, wrong = resolved(seed_known=7, seed_used=int.from_bytes(stream_key(7, "private"), "little"))
    assert wrong > certain / 4
