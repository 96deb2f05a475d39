"""`dplcf`: similarities from flipped interactions, unbiased, at an ε that is of one interaction."""

import math

import numpy as np
import pytest
from method_runs import plan_of, rows_of, run_file

from tacit.boundary.events import Pure
from tacit.boundary.interaction_bits import InteractionBits, co_occurrences, packed, unpacked_bits
from tacit.boundary.randomness import Seeded
from tacit.config import RunFile
from tacit.data.split import split
from tacit.data.synthetic import demo
from tacit.errors import BadMessage, PrivacyRefused
from tacit.evaluate import evaluate
from tacit.experiment import run
from tacit.federation import Facts
from tacit.guarantee import Unit
from tacit.methods import chosen
from tacit.partition import partition
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.simulate import train
from tacit.rng import derive, stream_key
from tacit.testing.method_contract import MethodContract


class TestDPLCF(MethodContract):
    name, parameters = "dplcf", {"neighbours": 5}
    seeded = False
    refused = {("device", "secagg"): "dplcf has none here"}

    def ratings(self):
        return demo(users=60, items=40, ratings=900, feedback="implicit")

    def test_another_seed_gives_another_run(self, setting):
        """Reports are shuffled by the seed, and counted: nothing else is drawn."""

    def test_one_party_is_enough(self):
        assert self.fit(partition(self.ratings(), into=1, by="device")).rounds == 1


def file(aggregation="plain", epsilon=2.0, unit="rating", users=200) -> RunFile:
    return run_file(
        data={"source": "demo", "users": users, "items": 40, "ratings": 10 * users, "feedback": "implicit"},
        partition={"by": "device", "into": 2},
        method={"name": "dplcf"},
        privacy={"epsilon": epsilon, "delta": 1e-6, "unit": unit},
        aggregation={"name": aggregation},
    )


def test_epsilon_is_of_one_interaction_and_a_user_costs_one_for_every_item(tmp_path):
    by_rating, by_user = (plan_of(file(unit=unit)) for unit in ("rating", "user"))
    assert by_rating.terms.events == (Pure(1 / by_rating.multiplier, "randomised reports", 1),)
    assert 1 / by_rating.multiplier == pytest.approx(2.0, rel=1e-4)
    assert by_user.terms.events == (Pure(1 / by_user.multiplier, "randomised reports", 40),)
    assert 1 / by_user.multiplier < 2.0 / 20
    summary = run(file(), tmp_path / "run")
    assert summary["guarantee"]["unit"] == "rating"
    for rows in rows_of(tmp_path / "run").values():
        assert [row.kind for row in rows] == ["report", "public"]


def test_no_amplification_is_claimed_for_whole_rows():
    with pytest.raises(PrivacyRefused, match="no bound says what mixing such reports hides"):
        plan_of(file("shuffle"))


@pytest.mark.parametrize("items", [1, 31, 32, 33, 70])
def test_bits_travel_32_to_a_word(items):
    bits = derive(7, "bits").integers(0, 2, (5, items))
    words = packed(bits)
    assert words.dtype == np.int32
    np.testing.assert_array_equal(unpacked_bits(words, items), bits)


@pytest.mark.parametrize("wrong", [np.zeros((3, 2), np.int32), np.zeros(3, np.int32), np.full((3, 1), -1, np.int32)])
def test_forged_reports_are_refused(wrong):
    with pytest.raises(BadMessage, match="damaged or forged"):
        unpacked_bits(wrong, 9)


def test_counts_are_unbiased():
    """1,000 users, ten items, 200 reports of each: 55 counts within 5σ of the truth, a false alarm in 30,000."""
    ratings, found = demo(users=1000, items=10, ratings=3000, feedback="implicit"), []
    taken = np.zeros((1000, 10))
    taken[ratings.users, ratings.items] = 1
    query = InteractionBits(10).over(ratings)
    for r in range(200):
        made = query.reports(derive(7, "unused"), Seeded(stream_key(7, "unbiased", r)), 1.0)
        found.append(co_occurrences(made["bits"], 10, 1.0))
    error = np.abs(np.mean(found, axis=0) - taken.T @ taken) / (np.std(found, axis=0) / math.sqrt(200))
    assert error.max() < 5
    plain = query.reports(derive(7, "unused"), Seeded(stream_key(7, "plain")), math.inf)
    np.testing.assert_array_equal(co_occurrences(plain["bits"], 10, math.inf), taken.T @ taken)


def test_planted_bits_without_a_flip_are_noticed():
    """A bit is 1 with probability e^ε/(e^ε + 1) where it is 1: 100,000 bits within 5σ, and never all of them."""
    ratings = demo(users=1000, items=100, ratings=10_000, feedback="implicit")
    made = InteractionBits(100, Unit.RATING).over(ratings).reports(None, Seeded(stream_key(7, "flip")), 1.0)["bits"]
    bits = unpacked_bits(made, 100)
    kept = bits[ratings.users, ratings.items].mean()
    p = math.e / (math.e + 1)
    assert abs(kept - p) < 5 * math.sqrt(p * (1 - p) / 10_000)
    assert abs((bits.sum() - kept * 10_000) / 90_000 - (1 - p)) < 5 * math.sqrt(p * (1 - p) / 90_000)


def test_it_ranks_better_than_popularity():
    learned, held_out = split(demo(2000, 300, 60_000, feedback="implicit"), by="leave-one-out", seed=7)

    def found(name):
        parties = partition(learned, by="device", into=2)
        trained = train(PreparedRun.of(*chosen({"name": name}), Facts.of(parties, 7)), parties)
        return evaluate(trained.predictor, held_out, seen=learned, relevance=1, bootstrap=0).metrics["hr@10"]

    assert found("dplcf") > found("popularity")
