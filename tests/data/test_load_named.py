"""Sets by name, side tables and catalogues: what is found where, and what is said when it is not."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit.data import Feedback, load
from tacit.errors import DataError


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A TACIT_DATA with three sets, and an empty working directory."""
    data = tmp_path / "data"
    for name in ("jester-1", "hetrec2011-lastfm-2k", "libimseti", "mine", "nothing"):
        (data / name).mkdir(parents=True)
    ratings = {"user": [1, 1, 2], "item": [1, 2, 1], "rating": pa.array([-9.95, 10.0, 0.5], pa.float32())}
    pq.write_table(pa.table(ratings), data / "jester-1" / "ratings.parquet")
    plays = {"user": [2, 2], "item": [51, 52], "plays": [13883, 11690]}
    pq.write_table(pa.table(plays), data / "hetrec2011-lastfm-2k" / "user_artists.parquet")
    (data / "libimseti" / "ratings.dat").write_text("1,133,8\n1,720,6\n2,133,10\n")
    (data / "libimseti" / "gender.dat").write_text("1,F\n2,U\n3,M\n")
    (data / "mine" / "ratings.csv").write_text("user,item,rating\nann,x,3\n")
    (data / "nothing" / "README").write_text("no ratings here")
    monkeypatch.setenv("TACIT_DATA", str(data))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_name_is_sought_under_tacit_data_first(home):
    assert load("jester-1").n_ratings == 3
    (home / "jester-1").mkdir()
    assert load("jester-1").n_ratings == 3
    with pytest.raises(DataError, match="holds no ratings"):
        load("./jester-1")


def test_named_sets_bring_their_scale(home):
    scale = load("jester-1").scale
    assert (scale.low, scale.high, scale.declared) == (-10, 10, True)
    assert not load("mine").scale.declared
    assert load("jester-1", scale=(-20, 20)).scale.high == 20


def test_last_fm_gives_plays(home):
    for feedback in ("explicit", "count"):
        ratings = load("hetrec2011-lastfm-2k", feedback=feedback)
        assert ratings.feedback is Feedback.COUNT
        assert ratings.values.tolist() == [13883.0, 11690.0]
        assert (ratings.scale.low, ratings.scale.declared) == (0, False)
    assert load("hetrec2011-lastfm-2k", feedback="implicit").values.tolist() == [1.0, 1.0]


def test_libimseti_as_published(home):
    ratings = load("libimseti")
    assert (ratings.scale.low, ratings.scale.high) == (1, 10)
    assert ratings.values.tolist() == [8.0, 6.0, 10.0]
    assert ratings.user_attributes["gender"].to_pylist() == ["F", "U", "M"]


def test_an_unknown_name_lists_the_known_ones(home):
    with pytest.raises(DataError) as error:
        load("jestor-1")
    message = str(error.value)
    assert 'no file "jestor-1"' in message
    assert "known sets under TACIT_DATA: hetrec2011-lastfm-2k, jester-1, libimseti, mine" in message
    assert 'Did you mean "jester-1"?' in message


def test_without_tacit_data_it_says_so(home, monkeypatch):
    monkeypatch.delenv("TACIT_DATA")
    with pytest.raises(
        DataError, match=r'no file "ml-1m" here, and TACIT_DATA is not set; .*set TACIT_DATA .*"demo", which is synth'
    ):
        load("ml-1m")
    with pytest.raises(DataError, match=r'Did you mean "demo"\?'):
        load("dmeo")
    monkeypatch.setenv("TACIT_DATA", str(home / "gone"))
    with pytest.raises(DataError, match="which is not a folder"):
        load("ml-1m")


@pytest.mark.parametrize("folder", [None, "gone"])
def test_a_missing_file_is_not_taken_for_the_name_of_a_set(home, monkeypatch, folder):
    if folder is None:
        monkeypatch.delenv("TACIT_DATA")
    else:
        monkeypatch.setenv("TACIT_DATA", str(home / folder))
    with pytest.raises(DataError) as error:
        load("patients.csv")
    assert str(error.value) == 'There is no file or folder "patients.csv"; check the path.'


def test_a_folder_without_ratings_says_what_it_holds(home):
    with pytest.raises(DataError, match=r'nothing" holds no ratings that Tacit knows \(README\)'):
        load("nothing")
    (home / "empty").mkdir()
    with pytest.raises(DataError, match=r"\(nothing\)"):
        load(home / "empty")


@pytest.fixture
def shop(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text("user,item,rating\nann,1,3\nbob,2,4\n")
    return path


def test_side_tables_are_joined_by_id_with_nulls_for_the_rest(shop, tmp_path):
    users = tmp_path / "users.csv"
    users.write_text("user_id,zip,age\ncarl,00501,7\nbob,01002,\n")
    pq.write_table(pa.table({"title": ["two"], "itemId": [2]}), tmp_path / "items.parquet")
    ratings = load(shop, user_table=users, item_table=tmp_path / "items.parquet")
    assert ratings.user_ids.ids.tolist() == ["ann", "bob"]
    assert ratings.user_attributes.to_pylist() == [{"zip": None, "age": None}, {"zip": "01002", "age": None}]
    assert ratings.item_attributes.to_pylist() == [{"title": None}, {"title": "two"}]


def test_side_tables_match_ids_of_another_type(shop, tmp_path):
    pq.write_table(pa.table({"item": ["1", "2"], "title": ["one", "two"]}), tmp_path / "items.parquet")
    ratings = load(shop, item_table=tmp_path / "items.parquet")
    assert ratings.item_attributes["title"].to_pylist() == ["one", "two"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("user,age\nann,3\nann,4\n", ["Line 3 of", 'user "ann" a second time', "one line per user"]),
        ("user,age\n,3\n", ["Line 2 of", "no user id"]),
        ("name,age\nann,3\n", ["no column of user ids", '"name", "age"']),
        ("user,age\n", ["no rows"]),
        ("user,age\nann,3,4\n", ["Line 2 of", "3 values where 2"]),
    ],
)
def test_a_bad_side_table_is_named(shop, tmp_path, text, words):
    path = tmp_path / "users.csv"
    path.write_text(text)
    with pytest.raises(DataError) as error:
        load(shop, user_table=path)
    assert all(word in str(error.value) for word in [str(path), *words]), error.value


@pytest.mark.parametrize("text", ["item\n1\n2\n3\n", "1\n2\n3\n2\n", "title,item\none,1\ntwo,2\nthree,3\n"])
def test_a_catalogue_is_the_item_vocabulary(shop, tmp_path, text):
    path = tmp_path / "catalogue.csv"
    path.write_text(text)
    ratings = load(shop, catalogue=path)
    assert ratings.item_ids.ids.tolist() == [1, 2, 3]
    assert ratings.item_counts.tolist() == [1, 1, 0]


def test_a_rating_outside_the_catalogue_is_named(shop, tmp_path):
    path = tmp_path / "catalogue.parquet"
    pq.write_table(pa.table({"item": [1, 3]}), path)
    with pytest.raises(DataError) as error:
        load(shop, catalogue=path)
    for word in ("Line 3 of", str(shop), "item 2", "2 items of the catalogue", "list it in the catalogue"):
        assert word in str(error.value)
