"""A catalogue in an offer: what sites read is what was offered, and a site with another one refuses."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from one_site import DATA, NAMES, Sites, home_of, offer_of, run_file, write_csv

from tacit.boundary.wire import decode, encode
from tacit.data.catalogue import Catalogue
from tacit.data.ratings import Feedback
from tacit.deploy.catalogue_message import catalogue_content, read_catalogue_content
from tacit.deploy.deployment import for_sites, public_items
from tacit.deploy.offer import Offer, SiteSizes, facts_content, facts_of, read_facts
from tacit.deploy.site_data import Source
from tacit.deploy.site_run import SiteRun
from tacit.errors import BadMessage, PrivacyRefused, UsageError
from tacit.federation import Facts
from tacit.partition import partition

FEATURES = ("genres", "year")
PUBLIC = {"scale": [1, 5], "users": 48, "features": list(FEATURES)}
OFFER = offer_of(run_file(public=PUBLIC))
VERTICAL = offer_of(run_file(public=PUBLIC, partition={"by": "item", "into": 3}))
#: The items with their attributes, as a file would list them.
ITEMS = DATA.item_attributes.add_column(0, "item", pa.array(DATA.item_ids.ids))


def sent(offer: Offer) -> dict:
    return decode(encode(offer.content()))


def source_of(folder, table: pa.Table, name="items.parquet", ratings=None) -> Source:
    """A site that was given a list of items."""
    path = folder / name
    (csv.write_csv if name.endswith("csv") else pq.write_table)(table, path)
    mine = partition(DATA, into=3)[0].ratings if ratings is None else ratings
    return Source(write_csv(folder / "own.csv", mine), items=path)


def test_an_offer_carries_ids_and_named_columns_and_its_hash_covers_them():
    read = Offer.of("run-1", sent(OFFER))
    assert read.hash == OFFER.hash
    assert read.catalogue.digest == OFFER.catalogue.digest
    assert read.catalogue.columns == FEATURES
    np.testing.assert_array_equal(read.catalogue.features(), OFFER.catalogue.features())
    assert "title" not in read.catalogue.attributes.column_names
    assert read.public(16).features == OFFER.catalogue.width > 5


def test_offers_of_other_attributes_have_other_hashes():
    years = DATA.item_attributes["year"].to_numpy()
    other = DATA.item_attributes.set_column(2, "year", pa.array(years + (np.arange(16) == 3)))
    changed = replace(OFFER, catalogue=Catalogue(DATA.item_ids, other, FEATURES))
    assert len({OFFER.hash, changed.hash, offer_of(run_file()).hash}) == 3


@pytest.mark.parametrize("offer", [OFFER, VERTICAL], ids=["horizontal", "vertical"])
def test_the_coordinator_and_every_site_have_the_catalogue_of_a_run_in_one_process(offer):
    told = {name: SiteSizes(16, DATA.item_ids) for name in NAMES}
    facts = facts_of(offer, told, Feedback.EXPLICIT)
    at_site = read_facts(Offer.of("run-1", sent(offer)), decode(encode(facts_content(facts))))
    here = Facts.of(partition(replace(DATA, features=FEATURES), into=3), 7)
    assert facts.catalogue.digest == at_site.catalogue.digest == here.catalogue.digest
    np.testing.assert_array_equal(at_site.features_of("party-2"), here.catalogue.features())


def test_a_party_at_a_site_reads_the_features(tmp_path):
    sites = Sites(tmp_path, OFFER).begin()
    for name, part in sites.parts.items():
        assert part.party.facts.catalogue.digest == sites.agreed.facts.catalogue.digest
        assert part.party.facts.features_of(name).shape == (16, OFFER.catalogue.width)
    assert sites.agreed.plan.context.facts.features == OFFER.catalogue.width
    assert sites.conduct().item_ids == DATA.item_ids
    sites.leave()


def test_a_run_that_begins_with_other_attributes_than_were_offered_is_refused():
    facts = facts_of(OFFER, {name: SiteSizes(16, None) for name in NAMES}, Feedback.EXPLICIT)
    other = replace(facts, catalogue=Catalogue(DATA.item_ids, DATA.item_attributes, ("year",)))
    with pytest.raises(BadMessage, match="the items have other attributes"):
        read_facts(OFFER, facts_content(other))


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
        Offer.of("run-1", {**sent(OFFER), "features/0": column})
    assert str(error.value).isprintable()


def test_columns_that_are_missing_or_of_no_items_are_refused():
    content = sent(OFFER)
    for gone in ("features/1", "items"):
        with pytest.raises(BadMessage, match="coordinator"):
            Offer.of("run-1", {name: value for name, value in content.items() if name != gone})


def test_columns_that_the_run_file_does_not_name_are_not_read():
    content = catalogue_content(OFFER.catalogue)
    assert read_catalogue_content(content, ()).columns == ()
    assert read_catalogue_content(content, ("genres",)).names == tuple(
        name for name in OFFER.catalogue.names if name.startswith("genres=")
    )


@pytest.mark.parametrize("name", ["items.csv", "items.parquet"])
def test_a_site_with_the_same_list_takes_part(tmp_path, name):
    source = source_of(tmp_path, ITEMS.take(np.arange(16)[::-1]), name)
    assert SiteRun(home_of(tmp_path, source=source), "run-1", sent(OFFER)).sizes()["users"] == 16


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
        SiteRun(home_of(tmp_path, source=source), "run-1", sent(OFFER))


def test_a_vertical_site_compares_the_rows_of_the_items_that_it_holds(tmp_path):
    mine = partition(DATA, into=3, by="item")[0]
    held = ITEMS.take(mine.items)

    def part(table):
        source = source_of(tmp_path, table, ratings=mine.ratings)
        return SiteRun(home_of(tmp_path, source=source), "run-1", sent(VERTICAL))

    assert part(held)
    assert part(held.select(["item"]))
    assert part(held.select(["item", "year"]))
    with pytest.raises(PrivacyRefused, match='attribute "year" is not the one'):
        part(held.set_column(3, "year", pa.array(np.arange(len(held)))))


def test_the_coordinator_reads_the_attributes_of_its_public_list(tmp_path):
    pq.write_table(ITEMS, tmp_path / "items.parquet")
    file = for_sites(run_file(public={**PUBLIC, "catalogue": str(tmp_path / "items.parquet")}))
    assert public_items(file).digest == OFFER.catalogue.digest


def test_features_without_a_public_list_are_refused():
    with pytest.raises(UsageError, match=r"in \[public\], as in catalogue"):
        public_items(run_file(public=PUBLIC, privacy=None))
