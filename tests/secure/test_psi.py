"""Blinding in turns: the plain join comes out, and nobody can test ids against a list without its owner's scalar."""

from itertools import combinations

import numpy as np
import pytest
from secure_rounds import FALSE_ALARM, SMALL_ORDER, uniform_p
from test_alignment import check_against_join, random_sites

from tacit.errors import BadMessage, DataError, UsageError
from tacit.rng import derive, stream_key
from tacit.secure.alignment import common_rows, travel
from tacit.secure.psi import A, Blinder, P, hash_to_curve, on_curve, ring


class ForgetsItsOwn(Blinder):
    """The planted bug: its own ids leave hashed, not blinded."""

    def first(self, ids):
        return table([hash_to_curve(str(i).encode()) for i in ids])


class NeverBlinds(ForgetsItsOwn):
    """The planted bug: the scalar 1, everywhere."""

    def again(self, blinded, owner="a peer"):
        return blinded


def table(values):
    return np.frombuffer(b"".join(values), np.uint8).reshape(-1, 32)


class Alignment:
    """All of it, with what the coordinator saw."""

    def __init__(self, ids, keep="shared", blinder=None, seed=7):
        self.blinders = {site: (blinder or {}).get(site, Blinder)(stream_key(seed, "scalar", site)) for site in ids}
        self.seen, done, places = [], {}, {}
        for owner, others in ring(list(ids)).items():
            values, places[owner] = travel(self.blinders[owner].first(ids[owner]))
            self.seen.append(values)
            for site in others:
                values = self.blinders[site].again(values, owner)
                self.seen.append(values)
            done[owner] = values
        self.count, rows = common_rows(done, keep, seed)
        self.by_row = {
            site: {int(r): i for i, r in zip(ids[site], rows[site][places[site]], strict=True) if r >= 0}
            for site in ids
        }


@pytest.mark.parametrize("keep", ["shared", "all"])
@pytest.mark.parametrize("sites", [2, 3, 5])
def test_rows_are_those_of_a_plain_join(sites, keep):
    for seed in range(2):
        ids = random_sites(seed, sites)
        played = Alignment(ids, keep, seed=seed)
        check_against_join(ids, keep, played.count, played.by_row)
        bugged = Alignment(ids, keep, blinder={"party-2": ForgetsItsOwn}, seed=seed)
        with pytest.raises(AssertionError):
            check_against_join(ids, keep, bugged.count, bugged.by_row)


def test_a_scalar_can_be_kept_and_restored():
    before = Blinder()
    again = Blinder(before.secret)
    assert np.array_equal(before.first(["a", 42]), again.first(["a", "42"]))
    assert not np.array_equal(before.first(["a"]), Blinder().first(["a"]))


def one_line(names):
    """The planted bug: after its owner, a list goes through the others in one order for all."""
    return {name: tuple(other for other in names if other != name) for name in names}


def comparable(path, names):
    """Whether some site gets to see two lists that the same sites have blinded."""
    arrivals = [
        (site, frozenset((owner, *others[: others.index(site)])))
        for owner, others in path(names).items()
        for site in others
    ]
    return len(set(arrivals)) < len(arrivals)


def test_no_site_can_compare_two_lists_of_others_unless_the_path_is_wrong():
    for n in range(2, 9):
        assert not comparable(ring, [f"party-{i}" for i in range(n)])
    assert comparable(one_line, ["a", "b", "c"])


def linked(played, dictionary, insiders=()):
    """The candidates for which a coordinator, with the scalars of these sites, finds a value that it saw: their
    hashes under every product of scalars that it knows."""
    seen = {value.tobytes() for values in played.seen for value in values}
    hashed = table([hash_to_curve(i.encode()) for i in dictionary])
    found = set()
    for k in range(len(insiders) + 1):
        for some in combinations(insiders, k):
            values = hashed
            for site in some:
                values = played.blinders[site].again(values)
            found |= {i for i, value in zip(dictionary, values, strict=True) if value.tobytes() in seen}
    return found


PEOPLE = [f"u{i:03d}" for i in range(60)]


def test_a_coordinator_with_all_ids_links_nobody_but_users_of_a_site_that_forgets_to_blind():
    ids = random_sites(4, 3)
    assert linked(Alignment(ids), PEOPLE) == set()
    assert linked(Alignment(ids, blinder={"party-2": ForgetsItsOwn}), PEOPLE) == set(ids["party-2"])


def test_one_honest_site_is_enough():
    """The coordinator with sites 1 and 2 against site 3; then the planted bug: site 3 has no scalar either."""
    ids = {"party-1": PEOPLE[:20], "party-2": PEOPLE[10:30], "party-3": PEOPLE[15:50]}
    insiders = ["party-1", "party-2"]
    known = set(PEOPLE[:30])
    assert linked(Alignment(ids), PEOPLE, insiders) == known  # their own users, in their own lists
    assert linked(Alignment(ids, blinder={"party-3": NeverBlinds}), PEOPLE, insiders) == set(PEOPLE[:50])


def bits(values):
    return [on_curve(int.from_bytes(bytes(value), "little")) for value in values]


def straight(text):
    """The planted bug: any 32 bytes as a u-coordinate, of the curve or of the twist as it happens."""
    digest = stream_key(7, text)
    return digest[:31] + bytes([digest[31] & 0x7F])


def test_a_hash_off_the_curve_would_tell_half_of_the_candidates_apart():
    """Whether u is on the curve survives blinding: after any number of scalars it is that of the bare hash."""
    texts = [i.encode() for i in PEOPLE]
    bare = table([straight(text) for text in texts])
    a, b = Blinder(), Blinder()
    blinded = a.again(b.again(bare))
    assert np.array_equal(blinded, b.again(a.again(bare)))
    assert bits(blinded) == bits(bare)
    assert 10 < sum(bits(bare)) < 50
    assert all(bits([hash_to_curve(text) for text in texts]))
    played = Alignment(random_sites(6, 3))
    assert all(all(bits(values)) for values in played.seen)


def test_on_curve_is_eulers_criterion():
    draw = derive(7, "u")
    some = [0, 1, 2, 9, P - 1, P - A, *(int.from_bytes(draw.bytes(32), "little") % P for _ in range(500))]
    for u in some:
        assert on_curve(u) == (pow(u * (u * u + A * u + 1) % P, (P - 1) // 2, P) == 1)


def test_hashes_are_spread_evenly_and_differ():
    """2,000 ids, bytes but the last (whose highest bit is 0). Seeded; false-alarm rate 1e-9 with other ids."""
    values = [hash_to_curve(str(i).encode()) for i in range(2000)]
    assert len(set(values)) == 2000
    assert uniform_p(b"".join(value[:31] for value in values)) > FALSE_ALARM
    assert uniform_p(Blinder(bytes(32)).first(range(2000))[:, :31].tobytes()) > FALSE_ALARM
    assert uniform_p(*(str(i).encode() for i in range(2000))) < FALSE_ALARM


def test_a_point_of_small_order_added_to_a_value_is_gone_after_blinding():
    """u and 1/u are P and P + (0, 0), of order 2: clamped scalars are multiples of 8, so nothing of it is left."""
    values = [hash_to_curve(i.encode()) for i in PEOPLE]
    moved = [pow(int.from_bytes(value, "little"), -1, P).to_bytes(32, "little") for value in values]
    blinder = Blinder()
    assert np.array_equal(blinder.again(table(values)), blinder.again(table(moved)))


GOOD = Blinder(stream_key(7, "good")).first(["a", "b", "c"])


@pytest.mark.parametrize("point", SMALL_ORDER)
def test_points_of_small_order_are_refused(point):
    with pytest.raises(BadMessage, match=r'"party-2" has a point of small order'):
        Blinder().again(np.vstack([GOOD, table([point])]), "party-2")


@pytest.mark.parametrize("value", [P, P + 1, P + 9, 2**255 - 1, 2**255 + 9, 2**256 - 1])
def test_values_that_x25519_never_gives_are_refused_and_the_largest_other_is_taken(value):
    with pytest.raises(BadMessage, match="which no blinding gives"):
        Blinder().again(np.vstack([GOOD, table([value.to_bytes(32, "little")])]))
    largest = next(u for u in range(P - 2, 0, -1) if on_curve(u))
    assert Blinder().again(table([largest.to_bytes(32, "little")])).shape == (1, 32)


def test_what_cannot_be_meant_is_refused():
    for names in ([], ["a"], ["a", "b", "a"]):
        with pytest.raises(UsageError, match="two sites or more"):
            ring(names)
    for secret in (b"", bytes(31), bytes(33)):
        with pytest.raises(UsageError, match=f"not {len(secret)}"):
            Blinder(secret)
    with pytest.raises(DataError, match="number 1 and 2"):
        Blinder().first(["x", "x"])
    with pytest.raises(BadMessage, match="16 bytes instead of 32"):
        Blinder().again(GOOD[:, :16])
    assert Blinder().first([]).shape == Blinder().again(GOOD[:0]).shape == (0, 32)
