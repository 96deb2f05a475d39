"""The shuffler: whole batches of enough devices, in an order that says nothing, and every limit."""

import os

import numpy as np
import pytest
from orders import check_independent

from tacit.errors import BadMessage, PeerFailed, PrivacyRefused, TacitError
from tacit.secure import shuffler as module
from tacit.secure.shuffler import BatchTerms, Closed, Shuffler, TooFew, UnknownBatch, random_order

CONTEXT, LENGTH = "ab" * 32, 56
DEVICES = tuple(f"party-{k}" for k in range(1, 6))


def message(device: str, reports: int = 2) -> bytes:
    return b"".join(f"{device}/{k}".encode().ljust(LENGTH, b".") for k in range(reports))


def opened(crowd=3, devices=DEVICES, **settings) -> Shuffler:
    made = Shuffler(os.urandom, **settings)
    made.open(BatchTerms(CONTEXT, crowd, LENGTH), devices)
    return made


def filled(names=DEVICES, **settings) -> Shuffler:
    made = opened(**settings)
    for name in names:
        assert made.accept(name, CONTEXT, message(name)) == 2
    return made


def reports_of(names, reports=2):
    return sorted(message(name, reports)[k * LENGTH :][:LENGTH] for name in names for k in range(reports))


def test_a_batch_has_every_report_once_and_nothing_else():
    batch = filled().close(CONTEXT)
    assert batch.shape == (10, LENGTH)
    assert sorted(row.tobytes() for row in batch) == reports_of(DEVICES)


def test_fewer_devices_than_the_crowd_are_not_forwarded_however_many_reports_they_sent():
    made = opened()
    for name in DEVICES[:2]:
        made.accept(name, CONTEXT, message(name, 50))
    with pytest.raises(TooFew, match="2 devices sent their reports, and the proxy passes nothing on below 3"):
        made.close(CONTEXT)
    made.accept(DEVICES[2], CONTEXT, message(DEVICES[2]))  # it is open still
    assert len(made.close(CONTEXT)) == 102


def test_the_same_message_again_changes_nothing_and_another_one_is_refused():
    made = filled()
    assert made.accept(DEVICES[0], CONTEXT, message(DEVICES[0])) == 2
    with pytest.raises(BadMessage, match="one message a batch"):
        made.accept(DEVICES[0], CONTEXT, message(DEVICES[0], 3))
    assert len(made.close(CONTEXT)) == 10


def test_a_closed_batch_comes_out_in_the_same_order_again_and_takes_nothing_more():
    made = filled(DEVICES[:4])
    first = made.close(CONTEXT)
    np.testing.assert_array_equal(first, made.close(CONTEXT))
    with pytest.raises(Closed):
        made.accept(DEVICES[4], CONTEXT, message(DEVICES[4]))
    with pytest.raises(Closed):  # a late repeat learns that it came too late or in time alike
        made.accept(DEVICES[0], CONTEXT, message(DEVICES[0]))


def test_a_closed_batch_has_forgotten_who_sent_what():
    made = filled()
    made.close(CONTEXT)
    (batch,) = made._batches.values()
    assert batch.messages == {}
    assert vars(batch).keys() == {"terms", "devices", "messages", "shuffled", "size"}


def test_a_forgotten_batch_is_unknown_and_takes_no_room():
    made = filled()
    assert made.held == 10 * LENGTH
    made.forget(CONTEXT)
    made.forget(CONTEXT)
    assert made.held == 0
    for what in (lambda: made.close(CONTEXT), lambda: made.accept(DEVICES[0], CONTEXT, message(DEVICES[0]))):
        with pytest.raises(UnknownBatch):
            what()


def test_terms_can_be_repeated_and_not_changed():
    made = filled()
    made.open(BatchTerms(CONTEXT, 3, LENGTH), DEVICES)
    for terms, devices in ((BatchTerms(CONTEXT, 2, LENGTH), DEVICES), (BatchTerms(CONTEXT, 3, LENGTH), DEVICES[:4])):
        with pytest.raises(PrivacyRefused, match="cannot be changed"):
            made.open(terms, devices)
    assert len(made.close(CONTEXT)) == 10


@pytest.mark.parametrize(
    ("sent", "refusal"),
    [
        ((DEVICES[0], CONTEXT, b""), "no number of reports"),
        ((DEVICES[0], CONTEXT, bytes(LENGTH + 1)), "no number of reports of 56 bytes"),
        ((DEVICES[0], CONTEXT, bytes(LENGTH * 4097)), "4,097 reports where at most 4,096"),
        (("party-9", CONTEXT, bytes(LENGTH)), "not on the batch's list"),
        ((DEVICES[0], "cd" * 32, bytes(LENGTH)), "No such batch"),
    ],
)
def test_what_is_not_agreed_is_refused_in_one_sentence(sent, refusal):
    made = opened()
    with pytest.raises(PeerFailed, match=refusal) as refused:
        made.accept(*sent)
    assert str(refused.value).endswith(".")
    assert made.held == 0


@pytest.mark.parametrize(
    ("terms", "devices", "refusal"),
    [
        (BatchTerms("ab", 3, LENGTH), DEVICES, "not possible"),
        (BatchTerms("AB" * 32, 3, LENGTH), DEVICES, "not possible"),
        (BatchTerms(CONTEXT, 0, LENGTH), DEVICES, "not possible"),
        (BatchTerms(CONTEXT, 3, 0), DEVICES, "not possible"),
        (BatchTerms(CONTEXT, 3, 5000), DEVICES, "not possible"),
        (BatchTerms(CONTEXT, 6, LENGTH), DEVICES, "cannot come from 5"),
        (BatchTerms(CONTEXT, 2, LENGTH), DEVICES, "none of fewer than 3"),
    ],
)
def test_a_batch_under_impossible_terms_is_not_opened(terms, devices, refusal):
    with pytest.raises(TacitError, match=refusal):
        Shuffler(os.urandom, least=3).open(terms, devices)


def test_a_list_that_names_a_device_twice_does_not_make_it_a_crowd():
    made = opened(crowd=2, devices=("party-1", "party-1", "party-2"))
    made.accept("party-1", CONTEXT, message("party-1"))
    with pytest.raises(TooFew):
        made.close(CONTEXT)


def test_there_is_room_for_so_many_batches_and_bytes(monkeypatch):
    made = opened()
    for k in range(3):
        made.open(BatchTerms(f"{k}" * 64, 3, LENGTH), DEVICES)
    made.open(BatchTerms("9" * 64, 3, LENGTH), DEVICES)
    with pytest.raises(UnknownBatch):  # the oldest made room
        made.close(CONTEXT)
    made = opened()
    made.open(BatchTerms("0" * 64, 3, LENGTH), DEVICES)
    monkeypatch.setattr(module, "MOST_BYTES", 3 * LENGTH)
    made.accept(DEVICES[0], CONTEXT, message(DEVICES[0]))
    with pytest.raises(BadMessage, match="no room"):
        made.accept(DEVICES[1], "0" * 64, message(DEVICES[1]))


# -- the order ------------------------------------------------------------------------------------------------------

MANY, EACH = 1000, 100


def order_of(randomness) -> np.ndarray:
    """Where each of 100,000 reports of 1,000 devices was on its arrival, in the order of the batch."""
    made, names = Shuffler(randomness), [f"party-{k}" for k in range(1, MANY + 1)]
    made.open(BatchTerms(CONTEXT, MANY, LENGTH), names)
    numbers = np.zeros((MANY * EACH, LENGTH), np.uint8)
    numbers[:, :8] = np.arange(MANY * EACH, dtype="<u8").view(np.uint8).reshape(-1, 8)
    for k, name in enumerate(names):
        made.accept(name, CONTEXT, numbers[k * EACH : (k + 1) * EACH].tobytes())
    return np.ascontiguousarray(made.close(CONTEXT)[:, :8]).view("<u8").ravel().astype(np.int64)


def test_the_order_of_100_000_reports_says_nothing_about_their_arrival():
    """Three tests, n = 100,000, each with a false alarm less than once in a million times."""
    check_independent(order_of(os.urandom), EACH)


def test_the_order_is_the_same_with_the_same_numbers_and_another_with_others():
    first, again, other = (order_of(np.random.default_rng(seed).bytes) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.mean(first == other) < 0.001


def planted(kind: str):
    """An order that depends on arrival."""

    def wrong(n, randomness):
        rng = np.random.default_rng(3)
        match kind:
            case "as it came":
                return np.arange(n)
            case "messages whole":
                return (EACH * rng.permutation(n // EACH)[:, None] + np.arange(EACH)).ravel()
            case "by halves":
                return np.concatenate([rng.permutation(n // 2), n // 2 + rng.permutation(n - n // 2)])
            case "a little":  # one in fifty keeps its place
                kept, order = rng.random(n) < 0.02, np.arange(n)
                order[~kept] = rng.permutation(order[~kept])
                return order

    return wrong


@pytest.mark.parametrize("kind", ["as it came", "messages whole", "by halves", "a little"])
def test_planted_an_order_that_depends_on_arrival_is_noticed(monkeypatch, kind):
    monkeypatch.setattr(module, "random_order", planted(kind))
    with pytest.raises(AssertionError):
        test_the_order_of_100_000_reports_says_nothing_about_their_arrival()


def test_all_orders_of_four_are_equally_frequent():
    """24,000 draws; chi² with 23 degrees of freedom, false alarm once in a million times."""
    from scipy import stats

    codes = [int("".join(map(str, random_order(4, os.urandom)))) for _ in range(24_000)]
    _orders, counts = np.unique(codes, return_counts=True)
    assert len(counts) == 24
    assert stats.chi2.sf(((counts - 1000) ** 2 / 1000).sum(), 23) > 1e-6
