"""The terms of a run as messages: what was said is what is read, and what cannot be meant is one sentence."""

from dataclasses import replace

import numpy as np
import pytest
from one_site import DATA, NAMES, offer_of, run_file

from tacit.boundary.wire import decode, encode
from tacit.config import RunFile
from tacit.data.catalogue import Catalogue
from tacit.data.ratings import Feedback
from tacit.data.vocabulary import Vocabulary
from tacit.deploy.catalogue_message import ids_array, read_ids
from tacit.deploy.offer import (
    Offer,
    SiteSizes,
    facts_content,
    facts_of,
    offered_file,
    read_facts,
    union,
)
from tacit.errors import BadMessage, UsageError
from tacit.guarantee import NON_PRIVATE
from tacit.partition import Setting

OFFER = offer_of(run_file())
VERTICAL = offer_of(run_file(partition={"by": "item", "into": 3}, privacy=None))


def through_the_wire(content):
    return decode(encode(content))


def vocabulary_of(*ids):
    return Vocabulary.of(list(ids), "item")


@pytest.mark.parametrize("offer", [OFFER, VERTICAL, replace(OFFER, catalogue=None, local=True)])
def test_an_offer_is_the_same_after_its_way(offer):
    read = Offer.of(offer.run, through_the_wire(offer.content()))
    for part in ("run", "file", "roster", "setting", "items", "local"):
        assert getattr(read, part) == getattr(offer, part)
    assert read.hash == offer.hash


@pytest.mark.parametrize("run", ["", "a/b", "run-1/../..", "run-1\n", "run 1", "r" * 65, "läufe", "."])
def test_a_run_is_called_so_that_files_can_be(run):
    """Its name is part of paths at every site."""
    with pytest.raises(BadMessage, match="an invalid run name"):
        Offer.of(run, through_the_wire(OFFER.content()))
    assert Offer.of("r" * 64, through_the_wire(OFFER.content())).run == "r" * 64


def test_terms_that_differ_in_anything_have_another_hash():
    others = [
        replace(OFFER, run="run-2"),
        replace(OFFER, roster=NAMES[:2]),
        replace(OFFER, roster=NAMES[::-1]),
        replace(OFFER, setting=Setting.VERTICAL),
        replace(OFFER, local=True),
        replace(OFFER, catalogue=None),
        replace(OFFER, catalogue=Catalogue(Vocabulary(DATA.item_ids.ids[1:], "item"))),
        replace(OFFER, file=OFFER.file.model_copy(update={"seed": 8})),
    ]
    assert len({offer.hash for offer in (OFFER, *others)}) == 1 + len(others)


def test_where_the_coordinator_s_data_and_ledgers_are_is_not_offered():
    file = RunFile.model_validate(
        {
            "data": {"source": "/secret/place.csv", "query": "select secret", "columns": {"user": "secret"}},
            "public": {"scale": [1, 5], "users": 9, "catalogue": "/secret/items.csv"},
            "privacy": {"epsilon": 1.0, "ledger": "/secret/ledgers"},
            "engine": {"timeout": 3.0, "transcript": "full"},
        }
    )
    offered = offered_file(file, file.public.model_copy(update={"catalogue": None}))
    assert "secret" not in offered.to_toml()
    assert (offered.engine.name, offered.engine.timeout, offered.privacy.epsilon) == ("flare", 3.0, 1.0)


def test_public_facts_come_from_what_is_declared():
    declared = OFFER.public(16)
    assert (declared.users, declared.items, declared.ratings) == (48, 16, 48 * 16)
    assert offer_of(run_file(public={"scale": [1, 5], "users": 48, "ratings": 99})).public(16).ratings == 99
    with pytest.raises(UsageError, match="scale and users"):
        offer_of(run_file(public={"scale": [1, 5]}, privacy=None)).public(16)


def test_an_agreement_is_reckoned_from_the_offer_alone():
    told = dict.fromkeys(NAMES, SiteSizes(16, None))
    agreed = OFFER.prepared(facts_of(OFFER, told, Feedback.EXPLICIT))
    assert agreed.plan.terms.guarantee.epsilon <= 4.0
    assert not agreed.plan.terms.guarantee.simulated
    assert agreed.run == "run-1"
    free = offer_of(run_file(privacy=None))
    assert free.prepared(facts_of(free, told, Feedback.EXPLICIT)).guarantee == NON_PRIVATE
    assert free.planned(16, 3) is None


@pytest.mark.parametrize(
    "told", [SiteSizes(3, None), SiteSizes(3, vocabulary_of("a", "b"), 7, 2), SiteSizes(1, vocabulary_of(1, 2))]
)
def test_what_a_site_tells_is_the_same_after_its_way(told):
    read = SiteSizes.of(through_the_wire(told.content()), "party-1")
    assert (read.users, read.items, read.ratings, read.devices) == (told.users, told.items, told.ratings, told.devices)


@pytest.mark.parametrize(
    "change",
    [
        {"users": 0},
        {"users": 2**31},
        {"users": True},
        {"users": "3"},
        {"ratings": -1},
        {"devices": -1},
        {"items": "a"},
        {"items": np.frombuffer(b"\xff\xfe", np.uint8)},
        {"items": np.frombuffer(b"[" * 100_000, np.uint8)},
        {"items": np.frombuffer(b'{"a": 1}', np.uint8)},
        {"items": np.frombuffer(b"[true]", np.uint8)},
        {"items": np.frombuffer(b"[]", np.uint8)},
    ],
)
def test_sizes_that_cannot_be_are_one_sentence(change):
    with pytest.raises(BadMessage) as found:
        SiteSizes.of({**SiteSizes(3, None).content(), **change}, "party-1")
    assert str(found.value).endswith(".")


def test_facts_are_the_same_after_their_way():
    thirds = np.array_split(DATA.item_ids.ids, 3)
    told = {name: SiteSizes(48, Vocabulary(ids, "item"), 10) for name, ids in zip(NAMES, thirds, strict=True)}
    for offer, said in ((VERTICAL, told), (OFFER, dict.fromkeys(NAMES, SiteSizes(16, None)))):
        facts = facts_of(offer, said, Feedback.EXPLICIT)
        read = read_facts(offer, through_the_wire(facts_content(facts)))
        for part in ("setting", "scale", "feedback", "users", "items", "ratings", "item_ids", "seed"):
            assert getattr(read, part) == getattr(facts, part)
        for one, other in zip(read.roster, facts.roster, strict=True):
            for part in ("name", "users", "items", "devices"):
                assert getattr(one, part) == getattr(other, part)
            np.testing.assert_array_equal(one.columns, other.columns)


def test_users_are_added_up_where_they_are_divided_and_shared_where_items_are():
    told = {name: SiteSizes(number, None) for name, number in zip(NAMES, (5, 6, 7), strict=True)}
    assert facts_of(OFFER, told, Feedback.EXPLICIT).users == 18
    assert facts_of(VERTICAL, dict.fromkeys(NAMES, SiteSizes(9, None)), Feedback.EXPLICIT).users == 9


def test_items_beyond_the_public_list_are_refused():
    told = {**dict.fromkeys(NAMES, SiteSizes(48, None)), "party-2": SiteSizes(48, vocabulary_of("nowhere"))}
    with pytest.raises(BadMessage, match="party-2 holds items"):
        facts_of(VERTICAL, told, Feedback.EXPLICIT)


def test_vertical_sites_of_different_sizes_cannot_begin():
    told = dict.fromkeys(NAMES, SiteSizes(48, None))
    content = facts_content(facts_of(VERTICAL, {**told, "party-2": SiteSizes(47, None)}, Feedback.EXPLICIT))
    with pytest.raises(BadMessage, match="inconsistent sizes"):
        read_facts(VERTICAL, content)


def test_a_cohort_is_for_experiments_and_for_runs_without_privacy_that_hide_nothing():
    """A cohort runs no protocol, so that a made-up one would take everybody's masks off."""
    devices, hidden = {"by": "device", "into": 3}, {"name": "secagg"}
    told = dict.fromkeys(NAMES, SiteSizes(16, None, devices=16))
    for offer, fine in (
        (offer_of(run_file(partition=devices)), False),
        (offer_of(run_file(partition=devices), local=True), True),
        (offer_of(run_file(partition=devices, privacy=None)), True),
        (offer_of(run_file(partition=devices, privacy=None, aggregation=hidden)), False),
    ):
        content = facts_content(facts_of(offer, told, Feedback.EXPLICIT))
        if fine:
            assert read_facts(offer, content).roster[0].devices == 16
        else:
            with pytest.raises(BadMessage, match="inconsistent sizes"):
                read_facts(offer, content)


@pytest.mark.parametrize("ids", [(1, 2, 30), ("a", "b", "ß"), ("1", "10", "2"), (-5, 2**62)])
def test_text_and_numbers_stay_apart(ids):
    made = vocabulary_of(*ids)
    read = read_ids(ids_array(made))
    assert read == made
    assert read.ids.dtype == made.ids.dtype


def test_a_union_has_everybody_s_items():
    assert union([vocabulary_of("b"), None, vocabulary_of("a", "b")]).ids.tolist() == ["a", "b"]
    with pytest.raises(UsageError, match="no public list"):
        union([None, None])
