"""What one device of private SGDMF can change of what leaves, and what is charged for it."""

import math
from functools import cache

import numpy as np
import pytest
from sgdmf_conversations import extreme_records, ratings_of, wild

from tacit.boundary.code import SEALED, Grid
from tacit.boundary.events import Public, Skellam
from tacit.boundary.protection import Budget
from tacit.boundary.release import Kind
from tacit.boundary.wire import decode, encode
from tacit.config import AggregationSection, PrivacySection
from tacit.data.public_facts import PublicFacts
from tacit.data.ratings import Scale
from tacit.errors import PrivacyRefused
from tacit.federation import Facts
from tacit.federation.messages import Request
from tacit.kernels.embed import embed
from tacit.methods.sgdmf import SGDMF
from tacit.methods.sgdmf.device import DeviceCohort
from tacit.methods.sgdmf.parameters import SGDMFParameters
from tacit.partition import Setting, partition
from tacit.prepare.plan import plan_run
from tacit.prepare.prepared import PreparedRun, Record
from tacit.rng import derive
from tacit.secure.masks import unpack
from tacit.secure.quantize import Rounding, centred
from tacit.testing.adversary import InMemory

USERS, ITEMS, FACTORS, ROUNDS, SPAN = 6, 9, 3, 3, 4.0
SENDS = pytest.mark.parametrize("send", ["rating", "record"])
#: What one record may add, from the rule book and not from the code.
CLIPS = {"rating": 2 * SPAN**1.5, "record": SPAN**1.5}


# -- devices that answer, one request after the other -----------------------------------------------------------------


@cache
def planned(send: str, unit: str = "user", sealed: bool = True):
    """Under an ideal sum a device's contribution is whole numbers, and the noise comes after."""
    parameters = SGDMFParameters(factors=FACTORS, rounds=ROUNDS, send=send)
    privacy, facts = PrivacySection(epsilon=4.0, delta=1e-6, unit=unit), PublicFacts(USERS, ITEMS, Scale(1, 5), 54)
    how = AggregationSection(name="ideal" if sealed else "plain")
    return plan_run(SGDMF, parameters, Setting.DEVICE, USERS, facts, privacy, how, seeded=True)


def grid_of(made) -> Grid:
    return made.terms.steps["contribute"].code


def devices(made, records, into: int = USERS) -> list[DeviceCohort]:
    """Parties over these records: every device by itself, or cohorts of several."""
    parties = partition(ratings_of(records, items=ITEMS), into=into, by="device")
    ready, members = PreparedRun.by_plan(SGDMF, Facts.of(parties, 7), made, run="run"), []
    for share in parties:
        people = [str(user) for user in share.ratings.user_ids.ids]
        members.append(ready.party(share, Record(InMemory(share.name), Budget(4.0, 1e-6), people)))
    return members


def honest(step: str, t: int, rows: int) -> np.ndarray:
    """Item factors as rounds might leave them."""
    return 1.2 * derive(t, "honest").random((rows, FACTORS))


def requests(send=honest):
    """All that a coordinator asks, with the item factors that it likes to send."""
    for t, step in enumerate(("pretrain", *["contribute"] * ROUNDS, "finish")):
        payload = {"items": np.asarray(send(step, t, ITEMS), dtype=np.float32)}
        payload |= {"t": t - 1} if step == "contribute" else {}
        yield Request("sgdmf", "", step, min(t, ROUNDS), 0, encode(payload))


def contributed(made, records, send=honest) -> np.ndarray:
    """The whole numbers that leave before any noise, (devices, rounds, cells) int64; devices in order of users."""
    grid, told = grid_of(made), np.zeros((USERS, ROUNDS, ITEMS * FACTORS), dtype=np.int64)
    for party in devices(made, records):
        (user,) = (int(x) for x in party.ratings.user_ids.ids)
        for request in requests(send):
            body = decode(party.answer(request).body)
            if request.step == "contribute":
                told[user, request.round - 1] = centred(unpack(body[SEALED], ITEMS * FACTORS, grid.bits), grid.bits)
    return told


def changed(records, i: int, how: str, seed: int):
    """A neighbour: the record emptied, another one in its place, or one rating at the other end of the scale."""
    stream, mine = derive(seed, "changed"), list(records[i])
    if how == "emptied":
        mine = []
    elif how == "replaced":
        rated = sorted(stream.choice(ITEMS, int(stream.choice([1, 4, ITEMS])), replace=False).tolist())
        mine = [(j, float(stream.choice([1, 5]))) for j in rated]
    elif mine:
        k = int(stream.integers(len(mine)))
        mine[k] = (mine[k][0], 1.0 if mine[k][1] > 3 else 5.0)
    return [*records[:i], mine, *records[i + 1 :]]


def check_whole_numbers(made, records, near, i: int, times: int, send=honest) -> float:
    """In every round one device moves the sum by at most times·Δ, and no other device's part moves; the largest/Δ₂."""
    grid, here, there = grid_of(made), contributed(made, records, send), contributed(made, near, send)
    assert np.array_equal(np.delete(here, i, axis=0), np.delete(there, i, axis=0))
    moved = (here - there).sum(axis=0)
    l2, l1 = np.sqrt(np.square(moved).sum(axis=1)), np.abs(moved).sum(axis=1)
    assert l2.max() <= times * grid.l2
    assert l1.max() <= times * grid.l1
    return float(l2.max() / grid.l2)


@SENDS
@pytest.mark.parametrize(("how", "times"), [("emptied", 1), ("replaced", 2), ("one rating", 2)])
def test_one_device_moves_the_sum_by_at_most_what_the_noise_covers(send, how, times):
    """Also at item factors that are negative, huge, tiny or zero. Twice Δ where a record is replaced, which is counted
    as such."""
    largest = []
    for seed in range(3):
        records = extreme_records(seed, (1, 5), USERS, ITEMS)
        i = seed % USERS
        near = changed(records, i, how, seed)
        for sent in (honest, wild(seed, SPAN)):
            largest.append(check_whole_numbers(planned(send), records, near, i, times, sent))
    assert max(largest) > (0.3 if how == "emptied" else 0.1)  # something was there to be seen


def one_axis(step: str, t: int, rows: int) -> np.ndarray:
    return np.tile([2.0, 0.0, 0.0], (rows, 1))


# -- cohorts ----------------------------------------------------------------------------------------------------------


@SENDS
def test_item_factors_are_projected_before_a_device_fits_to_them(send):
    """What a coordinator sends and what Π leaves of it come to the same in what is fitted and kept."""
    records, lies, kept = extreme_records(2, (1, 5), USERS, ITEMS), wild(3, SPAN), []

    def projected(step: str, t: int, rows: int) -> np.ndarray:
        return embed(lies(step, t, rows).astype(np.float32), SPAN)

    for sent in (lies, projected):
        (cohort,) = devices(planned(send, sealed=False), records, into=1)
        for request in requests(sent):
            cohort.answer(request)
        kept.append((cohort.home["users"], cohort.home["items"]))
        assert np.linalg.norm(cohort.home["items"], axis=1).max() <= math.sqrt(SPAN) * (1 + 1e-6)
    for here, there in zip(*kept, strict=True):
        np.testing.assert_allclose(here, there, atol=1e-4)


@SENDS
def test_who_is_absent_adds_exactly_nothing(send):
    """Devices 1 and 4 alone have rated the last two items, whose rows are 0 while they are away."""
    away = np.isin(np.arange(USERS), [1, 4])
    records = [[(j, 1.0 + j % 5) for j in (range(7, 9) if gone else range(7))] for gone in away]
    grid, rows = grid_of(planned(send)), {}
    for there in (~away, None):
        (cohort,) = devices(planned(send), records, into=1)
        for request in requests():
            release = cohort.answer(request, there if request.step == "contribute" else None)
            if request.step == "contribute":
                assert release.contributors == (USERS if there is None else 4)
                cells = centred(unpack(decode(release.body)[SEALED], ITEMS * FACTORS, grid.bits), grid.bits)
                rows[there is None, request.round] = cells.reshape(ITEMS, FACTORS).any(axis=1)
    assert all(touched[7:].any() == everybody for (everybody, _round), touched in rows.items())
    assert all(touched[:7].any() for touched in rows.values())


def test_the_rating_is_drawn_anew_each_round():
    """Six devices, three rounds, nine ratings: were one drawn for good, each device would touch one row in all rounds;
    a false alarm in 9^12 seeds."""
    records = [[(j, 1.0 + j % 5) for j in range(ITEMS)]] * USERS
    told = contributed(planned("rating"), records).reshape(USERS, ROUNDS, ITEMS, FACTORS).any(axis=3)
    assert (told.sum(axis=2) == 1).all()
    assert told.any(axis=1).sum(axis=1).max() > 1


@SENDS
def test_only_the_sum_leaves_and_the_devices_factors_are_kept(send):
    for sealed, block in ((True, {SEALED}), (False, {"items"})):
        (cohort,) = devices(planned(send, sealed=sealed), extreme_records(1, (1, 5), USERS, ITEMS), into=1)
        left = [(request.step, set(decode(cohort.answer(request).body))) for request in requests()]
        assert left == [("pretrain", {"done"}), *[("contribute", block)] * ROUNDS, ("finish", {"done"})]
        users = cohort.home["users"]
        assert users.shape == (USERS, FACTORS)
        with cohort.gate.serving("contribute", 9, 0, "ab" * 32), pytest.raises(PrivacyRefused, match="stays at home"):
            cohort.gate._release(Kind.SUM, {"mine": users.copy()}, Public())


# -- the plan ---------------------------------------------------------------------------------------------------------


@SENDS
@pytest.mark.parametrize("unit", ["user", "rating"])
def test_all_rounds_are_plain_answers_of_the_grids_sensitivity(send, unit):
    made = planned(send, unit)
    (event,), grid = made.terms.events, grid_of(made)
    assert event == Skellam(grid.variance, grid.l1, grid.l2, ROUNDS)
    assert made.terms.steps["contribute"].sensitivity == pytest.approx(CLIPS[send])
    assert CLIPS[send] < grid.l2 * grid.rounding.step < 1.01 * CLIPS[send]
    assert grid.variance == pytest.approx((made.multiplier * grid.l2) ** 2)
    assert made.terms.steps["contribute"].query.sampling == 1.0


CORNERED = [[(j, 1.0 if j == i else 5.0) for j in range(ITEMS)] for i in range(USERS)]


def test_a_contribution_that_is_longer_than_the_grid_is_noticed(monkeypatch):
    """Planted: whole numbers that were not held to their length."""
    real = Rounding.summed
    monkeypatch.setattr(Rounding, "summed", lambda self, *given: 3 * real(self, *given))
    with pytest.raises(AssertionError):
        check_whole_numbers(planned("record"), CORNERED, changed(CORNERED, 0, "emptied", 1), 0, 1, one_axis)
