"""The terms of a run as messages: what was said is what is read, and what cannot be meant is one sentence."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from one_site import DATA, NAMES, home_of, offer_of, run_file, write_csv

from tacit.boundary.wire import decode, encode
from tacit.config import RunFile
from tacit.data.catalogue import Catalogue, catalogue_of
from tacit.data.columns import Origin
from tacit.data.ratings import Feedback
from tacit.data.vocabulary import Vocabulary
from tacit.deploy.deployment import for_sites, public_items
from tacit.deploy.offer import (
    Offer,
    SiteSizes,
    catalogue_content,
    facts_content,
    facts_of,
    ids_array,
    offered_file,
    read_catalogue_content,
    read_facts,
    read_ids,
    union,
)
from tacit.deploy.site_data import Source
from tacit.deploy.site_run import SiteRun
from tacit.errors import BadMessage, PrivacyRefused, UsageError
from tacit.federation import Facts
from tacit.partition import Setting, partition

OFFER = offer_of(run_file())
VERTICAL = offer_of(run_file(partition={"by": "item", "into": 3}, privacy=None))


def sent(content):
    return decode(encode(content))


def vocabulary_of(*ids):
    return Vocabulary.of(list(ids), "item")


@pytest.mark.parametrize("offer", [OFFER, VERTICAL, replace(OFFER, catalogue=None, local=True)])
def test_an_offer_is_the_same_after_its_way(offer):
    read = Offer.of(offer.run, sent(offer.content()))
    for part in ("run", "file", "roster", "setting", "items", "local"):
        assert getattr(read, part) == getattr(offer, part)
    assert read.hash == offer.hash


@pytest.mark.parametrize("run", ["", "a/b", "run-1/../..", "run-1\n", "run 1", "r" * 65, "läufe", "."])
def test_a_run_is_called_so_that_files_can_be(run):
    """Its name is part of paths at every site."""
    with pytest.raises(BadMessage, match="an invalid run name"):
        Offer.of(run, sent(OFFER.content()))
    assert Offer.of("r" * 64, sent(OFFER.content())).run == "r" * 64


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


@pytest.mark.parametrize(
    "told", [SiteSizes(3, None), SiteSizes(3, vocabulary_of("a", "b"), 7, 2), SiteSizes(1, vocabulary_of(1, 2))]
)
def test_what_a_site_tells_is_the_same_after_its_way(told):
    read = SiteSizes.of(sent(told.content()), "party-1")
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
        read = read_facts(offer, sent(facts_content(facts)))
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


FEATURES = ("genres", "year")
PUBLIC = {"scale": [1, 5], "users": 48, "features": list(FEATURES)}
FEATURED = offer_of(run_file(public=PUBLIC))
FEATURED_VERTICAL = offer_of(run_file(public=PUBLIC, partition={"by": "item", "into": 3}))
#: The items with their attributes, as a file would list them.
ITEMS = DATA.item_attributes.add_column(0, "item", pa.array(DATA.item_ids.ids))


def source_of(folder, table: pa.Table, name="items.parquet", ratings=None) -> Source:
    """A site that was given a list of items."""
    path = folder / name
    (csv.write_csv if name.endswith("csv") else pq.write_table)(table, path)
    mine = partition(DATA, into=3)[0].ratings if ratings is None else ratings
    return Source(write_csv(folder / "own.csv", mine), items=path)


def test_an_offer_carries_ids_and_named_columns_and_its_hash_covers_them():
    read = Offer.of("run-1", sent(FEATURED.content()))
    assert read.hash == FEATURED.hash
    assert read.catalogue.digest == FEATURED.catalogue.digest
    assert read.catalogue.columns == FEATURES
    np.testing.assert_array_equal(read.catalogue.features(), FEATURED.catalogue.features())
    assert "title" not in read.catalogue.attributes.column_names
    assert read.public(16).features == FEATURED.catalogue.width > 5


def test_free_text_travels_as_words_and_is_compared_with_the_site_s_own(tmp_path):
    offer = offer_of(run_file(public={**PUBLIC, "features": ["title:text"]}))
    offer = replace(offer, catalogue=catalogue_of(ITEMS, Origin("items"), ["title:text"]))
    read = Offer.of("run-1", sent(offer.content()))
    assert read.catalogue.digest == offer.catalogue.digest
    np.testing.assert_array_equal(read.catalogue.features(), offer.catalogue.features())
    source_of(tmp_path, ITEMS).check(read)
    other = ITEMS.set_column(1, "title", pa.array([f"{title} again" for title in ITEMS["title"].to_pylist()]))
    with pytest.raises(PrivacyRefused, match='attribute "title:text" is not the one'):
        source_of(tmp_path, other).check(read)
    with pytest.raises(PrivacyRefused, match="has no such column"):
        source_of(tmp_path, ITEMS.drop_columns(["title"])).check(read)
    for column in (as_bytes([[""]] * 16), np.zeros(16, np.float32)):
        with pytest.raises(BadMessage, match="coordinator"):
            Offer.of("run-1", {**sent(offer.content()), "features/0": column})


@pytest.mark.parametrize("offer", [FEATURED, FEATURED_VERTICAL], ids=["horizontal", "vertical"])
def test_the_coordinator_and_every_site_have_the_catalogue_of_a_run_in_one_process(offer):
    told = {name: SiteSizes(16, DATA.item_ids) for name in NAMES}
    facts = facts_of(offer, told, Feedback.EXPLICIT)
    at_site = read_facts(Offer.of("run-1", sent(offer.content())), sent(facts_content(facts)))
    here = Facts.of(partition(replace(DATA, features=FEATURES), into=3), 7)
    assert facts.catalogue.digest == at_site.catalogue.digest == here.catalogue.digest
    np.testing.assert_array_equal(at_site.features_of("party-2"), here.catalogue.features())


def test_a_run_that_begins_with_other_attributes_than_were_offered_is_refused():
    facts = facts_of(FEATURED, {name: SiteSizes(16, None) for name in NAMES}, Feedback.EXPLICIT)
    other = replace(facts, catalogue=Catalogue(DATA.item_ids, DATA.item_attributes, ("year",)))
    with pytest.raises(BadMessage, match="the items have other attributes"):
        read_facts(FEATURED, facts_content(other))


def as_bytes(value) -> np.ndarray:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


@pytest.mark.parametrize(
    "column",
    [
        as_bytes([["War"]] * 15),
        as_bytes([["War", "Drama"]] * 16),
        as_bytes([["War", "War"]] * 16),
        as_bytes([[" War"]] * 16),
        as_bytes([[""]] * 16),
        as_bytes([None] * 16),
        as_bytes([["\ud800"]] * 16),
        as_bytes({"0": []}),
        as_bytes([[f"{item} {k}" for k in range(1000)] for item in range(16)]),
        np.zeros(15, np.float32),
        np.full(16, np.inf, np.float32),
        np.full(16, -0.0, np.float32),
        np.zeros(16, np.int64),
        "genres",
    ],
    ids=lambda column: str(getattr(column, "dtype", column)),
)
def test_a_column_that_is_not_as_it_leaves_is_refused(column):
    with pytest.raises(BadMessage, match="coordinator") as error:
        Offer.of("run-1", {**sent(FEATURED.content()), "features/0": column})
    assert str(error.value).isprintable()


def test_columns_that_are_missing_or_of_no_items_are_refused():
    content = sent(FEATURED.content())
    for gone in ("features/1", "items"):
        with pytest.raises(BadMessage, match="coordinator"):
            Offer.of("run-1", {name: value for name, value in content.items() if name != gone})


def test_columns_that_the_run_file_does_not_name_are_not_read():
    content = catalogue_content(FEATURED.catalogue)
    assert read_catalogue_content(content, ()).columns == ()
    assert read_catalogue_content(content, ("genres",)).names == tuple(
        name for name in FEATURED.catalogue.names if name.startswith("genres=")
    )


@pytest.mark.parametrize("name", ["items.csv", "items.parquet"])
def test_a_site_with_the_same_list_takes_part(tmp_path, name):
    source = source_of(tmp_path, ITEMS.take(np.arange(16)[::-1]), name)
    assert SiteRun(home_of(tmp_path, source=source), "run-1", sent(FEATURED.content())).sizes()["users"] == 16


CHANGED = {
    "ids": (ITEMS.slice(1), "The offered list of items is not the one"),
    "genres": (
        ITEMS.set_column(2, "genres", pa.array([*ITEMS["genres"].to_pylist()[:-1], "Western"])),
        'The offered item attribute "genres" is not the one',
    ),
    "year": (ITEMS.set_column(3, "year", pa.array(np.arange(16))), 'The offered item attribute "year" is not the one'),
    "no year": (ITEMS.drop_columns(["year"]), 'uses the item attribute "year", and the list'),
    "no attributes": (ITEMS.select(["item"]), 'uses the item attribute "genres", and the list'),
}


@pytest.mark.parametrize(("table", "words"), CHANGED.values(), ids=CHANGED)
def test_a_site_with_another_list_refuses_and_says_what_differs(tmp_path, table, words):
    source = source_of(tmp_path, table)
    with pytest.raises(PrivacyRefused, match=words):
        SiteRun(home_of(tmp_path, source=source), "run-1", sent(FEATURED.content()))


def test_a_vertical_site_compares_the_rows_of_the_items_that_it_holds(tmp_path):
    mine = partition(DATA, into=3, by="item")[0]
    held = ITEMS.take(mine.items)

    def part(table):
        source = source_of(tmp_path, table, ratings=mine.ratings)
        return SiteRun(home_of(tmp_path, source=source), "run-1", sent(FEATURED_VERTICAL.content()))

    assert part(held)
    assert part(held.select(["item"]))
    assert part(held.select(["item", "year"]))
    with pytest.raises(PrivacyRefused, match='attribute "year" is not the one'):
        part(held.set_column(3, "year", pa.array(np.arange(len(held)))))


def test_the_coordinator_reads_the_attributes_of_its_public_list(tmp_path):
    pq.write_table(ITEMS, tmp_path / "items.parquet")
    file = for_sites(run_file(public={**PUBLIC, "catalogue": str(tmp_path / "items.parquet")}))
    assert public_items(file).digest == FEATURED.catalogue.digest


def test_features_without_a_public_list_are_refused():
    with pytest.raises(UsageError, match=r"in \[public\], as in catalogue"):
        public_items(run_file(public=PUBLIC, privacy=None))
