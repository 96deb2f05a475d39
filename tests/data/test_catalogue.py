"""The catalogue: one digest however a file wrote it, features by plain rules, and one sentence for what cannot be."""

import datetime
import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from tacit.config import DataSection, PublicSection
from tacit.data import catalogue as module
from tacit.data.catalogue import Catalogue, read_catalogue
from tacit.data.load import load, public_items, side_columns
from tacit.data.public_facts import PUBLISHED, PublicFacts, public_facts
from tacit.data.ratings import Scale
from tacit.data.synthetic import demo
from tacit.data.vocabulary import Vocabulary
from tacit.errors import DataError, UsageError
from tacit.federation import Facts
from tacit.partition import partition

IDS = Vocabulary(np.array([1, 2, 3, 4]), "item")
TABLE = pa.table(
    {
        "item": [3, 1, 4, 2],
        "genres": ["War", "War|Drama", None, "Comedy | War"],
        "year": [1990, 2000, None, 2010],
        "title": ["c", "a", "d", "b"],
    }
)
NAMED = ("genres", "year")


def written(folder, table=TABLE, name="items.parquet"):
    path = folder / name
    (csv.write_csv if name.endswith("csv") else pq.write_table)(table, path)
    return path


def films(**columns):
    return Catalogue(Vocabulary(np.arange(len(next(iter(columns.values())))), "item"), pa.table(columns), (*columns,))


def test_labels_are_counted_once_and_sorted_and_numbers_are_standardised(tmp_path):
    made = read_catalogue(written(tmp_path), NAMED)
    assert made.ids == IDS
    assert made.names == ("genres=Comedy", "genres=Drama", "genres=War", "year")
    assert made.width == 4
    features = made.features()
    assert features.dtype == np.float32
    deviation = np.sqrt(200 / 3)
    years = [0, 10 / deviation, -10 / deviation, 0]
    np.testing.assert_allclose(features, np.c_[[[0, 1, 1], [1, 0, 1], [0, 0, 1], [0, 0, 0]], years], rtol=1e-6)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([True, False, None], [[0, 1], [1, 0], [0, 0]]),
        ([["b", "a", "a"], [], None], [[1, 1], [0, 0], [0, 0]]),
        ([["a|b"], ["", "a|b"], ["c", None]], [[1, 0], [1, 0], [0, 1]]),
        (pa.array(["y", "x", "y"]).dictionary_encode(), [[0, 1], [1, 0], [0, 1]]),
        (pa.array(["b|a", "|", " a "], pa.large_string()), [[1, 1], [0, 0], [1, 0]]),
        ([7, 7, 7], [[0], [0], [0]]),
        ([None, float("nan"), 2.5], [[0], [0], [0]]),
        ([0.0, -0.0, 2.0], [[-0.70710677], [-0.70710677], [1.4142135]]),
        ([2**60, 0, 0], [[1.4142135], [-0.70710677], [-0.70710677]]),
        (pa.nulls(3), np.zeros((3, 0))),
        (["Ωmega", "ß", "Ωmega"], [[0, 1], [1, 0], [0, 1]]),
    ],
    ids=str,
)
def test_every_kind_of_column(column, expected):
    np.testing.assert_allclose(films(a=pa.array(column) if isinstance(column, list) else column).features(), expected)


def test_free_text_is_unit_rows_of_shared_words():
    made = films(**{"plot:text": ["A dog, a CAT", "the cat", None, "dog! the fish", "the end"]})
    features = made.features()
    assert (made.width, made.names[9]) == (1024, "plot:text#9")
    np.testing.assert_allclose((features**2).sum(axis=1), [1, 1, 0, 1, 1], rtol=1e-6)
    like = features @ features.T
    assert like[0, 1] > 0.3  # the cat
    assert like[1, 3] > 0  # the
    assert like[0, 4] == 0
    np.testing.assert_array_equal(np.flatnonzero(features[4]), [module_bucket("the")])


def module_bucket(word):
    code = hashlib.blake2b(word.encode(), digest_size=8).digest()
    return int.from_bytes(code, "little") % 1024


def test_free_text_reads_the_column_of_its_name_and_has_a_digest_of_its_own(tmp_path):
    path = written(tmp_path, TABLE.set_column(3, "title", pa.array(["Red Cat", "cat (red)", None, "Dog"])))
    text, labels = read_catalogue(path, ["title:text"]), read_catalogue(path, ["title"])
    assert text.columns == ("title:text",)
    assert text._column("title:text").to_pylist() == [["cat", "red"], ["dog"], ["red", "cat"], []]
    assert len({text.digest, labels.digest, read_catalogue(path, ["title", "title:text"]).digest}) == 3
    words = read_catalogue(
        written(tmp_path, pa.table({"item": [1, 2], "title": ["CAT, red", "x"]}), "b.csv"), ["title:text"]
    )
    assert words.part(np.array([0])).differs(text.part(np.array([0]))) is None
    loaded = load(pa.table({"user": ["a"], "item": [1], "rating": [1.0]}), item_table=path, features=["title:text"])
    assert partition(loaded, into=1).catalogue.width == 1024
    assert "free text is text" in sentence(lambda: read_catalogue(path, ["year:text"]))
    assert 'no column "plot:text"' in sentence(lambda: read_catalogue(path, ["plot:text"]))


def test_digests_of_columns_without_text_are_those_that_run_folders_have():
    digest = "670ad4e1680fe8661fec89afc4b51ce6a9bd2ace7cef2ee7aabca737b0fb6490"
    assert Catalogue(IDS, TABLE, NAMED).digest == digest


def test_a_number_is_like_its_neighbours_and_missing_ones_are_like_nothing():
    rows = films(year=[1960, 1962, 1994, 1996, 2010, None]).unit_rows
    dense = np.zeros((6, rows.width))
    dense[np.repeat(np.arange(6), np.diff(rows.indptr)), rows.columns] = rows.values
    like = dense @ dense.T
    np.testing.assert_allclose(like.diagonal(), [1, 1, 1, 1, 1, 0])
    assert like[0, 1] > 0.95 < like[2, 3]
    assert like[0, 3] == 0 == like[0, 5]
    assert not len(films(year=[3, 3]).unit_rows.values)


def test_neither_format_nor_row_order_nor_other_columns_show_in_the_digest(tmp_path):
    digest = read_catalogue(written(tmp_path), NAMED).digest
    turned = TABLE.take([2, 0, 3, 1]).select(["year", "item", "genres"])
    lists = pa.array([["War"], ["Drama", "War"], [], ["War", "Comedy"]])
    listed = TABLE.set_column(1, "genres", lists).set_column(2, "year", TABLE["year"].cast(pa.float32()))
    for table, name in ((TABLE, "a.csv"), (turned, "b.parquet"), (turned, "c.csv"), (listed, "d.parquet")):
        assert read_catalogue(written(tmp_path, table, name), NAMED).digest == digest


def test_ids_values_names_and_their_order_show_in_the_digest():
    base = Catalogue(IDS, TABLE, NAMED)
    other = TABLE.set_column(2, "year", pa.array([1990, 2000, None, 2011]))
    renamed = TABLE.rename_columns(["item", "genre", "year", "title"])
    several = [
        base,
        Catalogue(IDS),
        Catalogue(Vocabulary(np.array(["1", "2", "3", "4"], dtype=object), "item"), TABLE, NAMED),
        Catalogue(IDS, other, NAMED),
        Catalogue(IDS, renamed, ("genre", "year")),
        Catalogue(IDS, TABLE, ("year", "genres")),
        Catalogue(IDS, TABLE, ("genres",)),
    ]
    assert len({made.digest for made in several}) == len(several)
    assert [base.differs(made) for made in several[:4]] == [None, "columns", "ids", "year"]


def sentence(act, kind=UsageError):
    with pytest.raises(kind) as error:
        act()
    assert "\n" not in str(error.value)
    return str(error.value)


def test_an_unknown_column_names_those_there_are(tmp_path):
    said = sentence(lambda: read_catalogue(written(tmp_path), ["genre"]))
    assert all(word in said for word in ('no column "genre"', '"genres", "year", "title"', "items.parquet"))
    said = sentence(lambda: Catalogue(IDS, TABLE, ("year",)).features(["genres"]))
    assert "it names year" in said


def test_a_column_named_twice_or_there_twice_is_refused():
    assert "twice" in sentence(lambda: Catalogue(IDS, TABLE, ("year", "year")))
    double = pa.Table.from_arrays([TABLE["year"], TABLE["year"]], names=["year", "year"])
    assert 'two columns called "year"' in sentence(lambda: Catalogue(IDS, double, ("year",)))


def test_an_item_described_twice_is_refused(tmp_path):
    path = written(tmp_path, pa.concat_tables([TABLE, TABLE.slice(0, 1)]))
    assert "describes item 3 a second time" in sentence(lambda: read_catalogue(path, NAMED), DataError)


def test_an_item_without_a_row_is_refused(tmp_path):
    ratings = pa.table({"user": ["a", "b"], "item": [1, 9], "rating": [1.0, 2.0]})
    said = sentence(lambda: load(ratings, item_table=written(tmp_path), features=["year"]), DataError)
    assert "Item 9 has no row in" in said
    assert "1 of 2 have none" in said


@pytest.mark.parametrize(
    ("column", "kind", "words"),
    [
        (pa.array([datetime.date(2000, 1, 1)]), UsageError, "is of type date32"),
        (pa.array([[1.5]]), UsageError, "is of type list<"),
        (pa.array([{"b": 1}]), UsageError, "is of type struct<"),
        (pa.array([float("inf")]), DataError, "not finite"),
        (pa.array([1e300]), DataError, "too large"),
        (pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"], pa.binary()).buffers()), DataError, "not UTF-8"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_columns_that_are_no_features(column, kind, words):
    assert words in sentence(lambda: films(a=column), kind)


def test_too_many_labels_are_one_sentence(monkeypatch):
    many = pa.array([f"t{k}" for k in range(module.MOST_FEATURES + 1)])
    assert '("a" 10,001)' in sentence(lambda: films(a=many))
    half = pa.array([f"t{k % 6000}" for k in range(12_000)])
    assert "make 12,000 feature columns" in sentence(lambda: films(a=half, b=half))
    monkeypatch.setattr(module, "MOST_CELLS", 20)
    assert "at most 5" in sentence(lambda: films(a=["1|2|3|4|5|6", None, None, None]))


def test_the_demo_brings_the_attributes_that_its_ratings_have():
    whole = load("demo", users=20, items=30, ratings=200, features=["genres", "year"], seed=3)
    listed = public_items("demo", items=30, features=["genres", "year"], seed=3)
    parties = partition(whole, into=2)
    assert parties.catalogue.digest == listed.digest
    assert parties.catalogue.columns == ("genres", "year")
    assert listed.digest != public_items("demo", items=30, features=["genres", "year"], seed=4).digest
    plain = demo(users=20, items=30, ratings=200, seed=3)
    np.testing.assert_array_equal(whole.values, plain.values)
    assert whole.item_attributes.select(["title", "genres", "year"]).equals(plain.item_attributes)


def test_the_catalogue_s_attributes_go_before_those_of_the_item_table(tmp_path):
    ratings = pa.table({"user": ["a", "b"], "item": [1, 2], "rating": [1.0, 2.0]})
    others = pa.table({"item": [1, 2], "year": [0, 0], "shelf": ["x", "y"]})
    path, beside = written(tmp_path), written(tmp_path, others, "beside.csv")
    loaded = load(ratings, catalogue=path, item_table=beside, features=["year"])
    assert loaded.item_attributes["year"].to_pylist() == [2000, 2010, 1990, None]
    assert loaded.item_attributes["shelf"].to_pylist() == ["x", "y", None, None]
    assert partition(loaded, into=2).catalogue.digest == read_catalogue(path, ["year"]).digest


def test_public_facts_know_the_width_and_read_no_rating(tmp_path, monkeypatch):
    public = PublicSection(features=("genres", "year"))
    facts = public_facts(DataSection(items=50), public)
    assert facts.features == public_items("demo", items=50, features=public.features).width > 10
    assert public_facts(DataSection(items=50), PublicSection()).features == 0
    own = PublicSection(scale=(1, 5), users=9, catalogue=str(written(tmp_path)), features=NAMED)
    assert (lambda f: (f.items, f.features))(public_facts(DataSection(source="nowhere.csv"), own)) == (4, 4)


def test_a_published_set_brings_its_own(tmp_path, monkeypatch):
    folder = tmp_path / "ml-1m"
    folder.mkdir()
    (folder / "movies.dat").write_text("1::Heat (1995)::Action|Crime\n2::Up (2009)::Comedy\n")
    (folder / "users.dat").write_text("7::F::1::10::48067\n")
    (folder / "ratings.dat").write_text("7::1::5::978300760\n")
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    features = ("genres", "year")
    facts = public_facts(DataSection(source="ml-1m"), PublicSection(features=features))
    assert (facts.items, facts.features) == (3_883, 4)
    parties = partition(load("ml-1m", features=features), into=1)
    assert parties.catalogue.digest == public_items("ml-1m", features=features).digest
    assert parties.catalogue.names[-1] == "year"


def test_movielens_brings_the_tags_of_its_own_or_of_the_folder_beside_it(tmp_path, monkeypatch):
    folder = tmp_path / "ml-1m"
    folder.mkdir()
    (folder / "movies.dat").write_text("".join(f"{k}::Film {k} (1995)::Drama\n" for k in range(1, 7)))
    (folder / "users.dat").write_text("7::F::1::10::48067\n")
    (folder / "ratings.dat").write_text("7::1::5::978300760\n")
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    assert "tags" not in side_columns("ml-1m")["item"]
    (tmp_path / "ml-10m-tags").mkdir()
    given = [(k, tag) for k in range(1, 6) for tag in (" Dark", "dark", "a|b")] + [(6, "rare"), (99, "dark"), (6, "")]
    table = pa.table({"user": [1] * len(given), "item": [k for k, _ in given], "tag": [tag for _, tag in given]})
    pq.write_table(table, tmp_path / "ml-10m-tags" / "tags.parquet")
    assert side_columns("ml-1m")["item"] == ["title", "genres", "year", "tags"]
    loaded = load("ml-1m", features=["tags"])
    assert loaded.item_attributes["tags"].to_pylist() == ["a b|dark"] * 5 + [None]
    (folder / "tags.dat").write_text("".join(f"1::{k}::own::1\n" for k in range(1, 7)))
    assert public_items("ml-1m", features=["tags"]).names == ("tags=own",)


@pytest.mark.parametrize("by", ["user", "item", "device"])
def test_a_party_has_the_features_of_the_items_that_it_holds(by):
    parties = partition(load("demo", users=20, items=30, ratings=200, features=["genres", "year"]), into=3, by=by)
    facts = Facts.of(parties, 7)
    assert (facts.items, facts.item_ids) == (30, parties.item_ids)
    assert facts.components(5).shape == (30, 5)
    assert facts.components(5) is facts.components(5)
    for share in parties:
        np.testing.assert_array_equal(facts.features_of(share.name), facts.catalogue.features()[share.items])
        rows = facts.features_of(share.name, ["year"])
        np.testing.assert_array_equal(rows, facts.catalogue.features(["year"])[share.items])


ROWS = "user,item,rating\na,1,4\nb,2,5\nb,1,3\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "ratings.csv").write_text(ROWS)
    (tmp_path / "items.csv").write_text("item\n1\n2\n3\n")
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "ratings.csv").write_text(ROWS)
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    return tmp_path


def test_rated_items_alone_are_no_list(folder):
    assert not load(folder / "ratings.csv").item_ids.listed
    assert load(folder / "ratings.csv", catalogue=folder / "items.csv").item_ids.listed
    assert load("demo").item_ids.listed


def test_a_count_never_makes_a_list(folder, monkeypatch):
    """Emptying the record of an item's only user would change the count, and with it whether a private run starts."""
    monkeypatch.setitem(PUBLISHED, "tiny", PublicFacts(2, 2, Scale(1, 5), 3))
    assert not load("tiny").item_ids.listed


def test_parts_of_a_list_are_listed(folder):
    ratings = load(folder / "ratings.csv", catalogue=folder / "items.csv", scale=(1, 5))
    assert all(share.ratings.item_ids.listed for share in partition(ratings, into=3, by="item"))


# -- scales -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "feedback", "scale"),
    [
        ("ml-1m", "explicit", Scale(1, 5)),
        ("ml-1m", "implicit", Scale(0, 1)),
        ("ml-1m", "count", Scale(0, 5)),
        ("hetrec2011-lastfm-2k", "implicit", Scale(0, 1)),
    ],
)
def test_a_known_set_has_the_scale_of_its_feedback(source, feedback, scale):
    found = public_facts(DataSection(source=source, feedback=feedback), PublicSection())
    assert found.scale == scale
    assert found.feedback == feedback


def test_counts_without_a_published_scale_must_declare_one():
    plays = DataSection(source="hetrec2011-lastfm-2k", feedback="count")
    with pytest.raises(UsageError, match="holds counts, whose scale nobody has published"):
        public_facts(plays, PublicSection())
    assert public_facts(plays, PublicSection(scale=(0, 50_000))).scale == Scale(0, 50_000)
