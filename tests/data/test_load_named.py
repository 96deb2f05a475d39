"""Sets by name, side tables, catalogues, and MovieLens in each of its published forms, which give the same ratings."""

import numpy as np
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


def test_artists_are_a_list_only_where_the_publisher_lists_them(home):
    folder = home / "data" / "hetrec2011-lastfm-2k"
    assert not load("hetrec2011-lastfm-2k").item_ids.listed
    (folder / "artists.dat").write_text("id\tname\turl\n51\tDuran Duran\tx\n52\tMorcheeba\ty\n53\tAir\tz\n")
    ratings = load("hetrec2011-lastfm-2k")
    assert ratings.item_ids.listed
    assert ratings.item_ids.ids.tolist() == [51, 52, 53]


def test_jesters_jokes_are_numbered_whoever_rated_them(home):
    ratings = load("jester-1")
    assert ratings.item_ids.listed
    assert ratings.n_items == 100


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


RATINGS = [(1, 10, 5, 978300760), (1, 30, 3, 978302109), (2, 10, 4, 978301968), (3, 20, 1, 978300275)]
FILMS = [
    (10, "Toy Story (1995)", ["Animation", "Children's", "Comedy"]),
    (20, 'Misérables, Les: "Part 2" (1998)', ["Drama"]),
    (30, "2046: A Space (Odyssey) (2004)", ["Sci-Fi", "Western"]),
    (40, "unrated and undated", []),
]
PEOPLE = [(1, "F", 24, 10, "48067"), (2, "M", 56, 16, "V3N4P"), (3, "M", 25, 15, "01002")]
FLAGS = [
    *["unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama"],
    *["Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War"],
    "Western",
]


def put(folder, name, lines, encoding):
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes("".join(line + "\n" for line in lines).encode(encoding))


def write_100k(folder):
    put(folder, "u.data", ("\t".join(map(str, row)) for row in RATINGS), "latin-1")
    put(folder, "u.user", (f"{u}|{age}|{sex}|writer|{zip}" for u, sex, age, _, zip in PEOPLE), "latin-1")
    flags = {item: "|".join(str(int(flag in genres)) for flag in FLAGS) for item, _, genres in FILMS}
    films = (f"{i}|{title}|01-Jan-1995||http://us.imdb.com/M/{i}|{flags[i]}" for i, title, _ in FILMS)
    put(folder, "u.item", films, "latin-1")


def write_1m(folder):
    put(folder, "ratings.dat", ("::".join(map(str, row)) for row in RATINGS), "latin-1")
    put(folder, "users.dat", (f"{u}::{sex}::{age}::{work}::{zip}" for u, sex, age, work, zip in PEOPLE), "latin-1")
    put(folder, "movies.dat", (f"{i}::{title}::{'|'.join(genres)}" for i, title, genres in FILMS), "latin-1")


def write_10m(folder):
    put(folder, "ratings.dat", (f"{u}::{i}::{r - 0.5 if u == 2 else r}::{t}" for u, i, r, t in RATINGS), "utf-8")
    put(folder, "movies.dat", (f"{i}::{title}::{'|'.join(genres)}" for i, title, genres in FILMS), "utf-8")
    put(folder, "tags.dat", ["15::10::pixar::1215184630"], "utf-8")


def write_csv(folder):
    rows = (f"{u},{i},{r - 0.5 if u == 2 else float(r)},{t}" for u, i, r, t in RATINGS)
    put(folder, "ratings.csv", ["userId,movieId,rating,timestamp", *rows], "utf-8")

    def quoted(title):
        return '"' + title.replace('"', '""') + '"' if "," in title else title

    films = (f"{i},{quoted(t)},{'|'.join(genres) or '(no genres listed)'}" for i, t, genres in FILMS)
    put(folder, "movies.csv", ["movieId,title,genres", *films], "utf-8")
    put(folder, "tags.csv", ["userId,movieId,tag,timestamp", "2,10,funny,1445714994"], "utf-8")


def write_parquet(folder):
    folder.mkdir()
    users, items, values, times = zip(*RATINGS, strict=True)
    ratings = {"user": users, "item": items, "rating": pa.array(values, pa.float32()), "timestamp": times}
    pq.write_table(pa.table(ratings), folder / "ratings.parquet")
    people = dict(zip(("user", "gender", "age", "occupation", "zip"), zip(*PEOPLE, strict=True), strict=True))
    pq.write_table(pa.table(people), folder / "users.parquet")
    titles, genres = [t for _, t, _ in FILMS], ["|".join(g) for _, _, g in FILMS]
    pq.write_table(
        pa.table({"item": [i for i, _, _ in FILMS], "title": titles, "genres": genres}), folder / "items.parquet"
    )


FORMS = {
    "ml-100k": (write_100k, (1, 5)),
    "ml-1m": (write_1m, (1, 5)),
    "ml-10M100K": (write_10m, (0.5, 5)),
    "ml-25m": (write_csv, (0.5, 5)),
    "ml-1m-parquet": (write_parquet, None),
}


@pytest.fixture(params=FORMS)
def form(request, tmp_path):
    writer, scale = FORMS[request.param]
    writer(tmp_path / request.param)
    return tmp_path / request.param, scale


def test_ratings_and_times_are_those_of_the_files(form):
    folder, _ = form
    ratings = load(folder)
    assert ratings.user_ids.ids.tolist() == [1, 2, 3]
    assert ratings.indptr.tolist() == [0, 2, 3, 4]
    assert ratings.item_ids[ratings.items].tolist() == [10, 30, 10, 20]
    halves = "25m" in folder.name or "10M" in folder.name
    np.testing.assert_array_equal(ratings.values, [5, 3, 3.5 if halves else 4, 1])
    assert ratings.times.tolist() == [978300760, 978302109, 978301968, 978300275]
    assert ratings.name == folder.name


def test_the_published_scale_is_declared(form):
    folder, scale = form
    ratings = load(folder)
    assert ratings.scale.declared == (scale is not None)
    if scale is not None:
        assert (ratings.scale.low, ratings.scale.high) == scale
    implicit = load(folder, feedback="implicit")
    assert (implicit.scale.low, implicit.scale.high) == (0, 1)
    assert load(folder, feedback="count").scale.low == 0


def test_every_listed_film_is_in_the_catalogue_with_title_genres_and_year(form):
    folder, _ = form
    ratings = load(folder)
    assert ratings.item_ids.ids.tolist() == [10, 20, 30, 40]
    films = ratings.item_attributes
    assert films["title"].to_pylist() == [title for _, title, _ in FILMS]
    assert films["genres"].to_pylist()[:3] == ["Animation|Children's|Comedy", "Drama", "Sci-Fi|Western"]
    assert not films["genres"].to_pylist()[3]
    assert films["year"].to_pylist() == [1995, 1998, 2004, None]


def test_people_have_zip1_where_they_are_described(form):
    folder, _ = form
    people = load(folder).user_attributes
    if "10M" in folder.name or "25m" in folder.name:
        assert people is None
        return
    assert people["zip"].to_pylist() == ["48067", "V3N4P", "01002"]
    assert people["zip1"].to_pylist() == ["4", "other", "0"]
    assert people["gender"].to_pylist() == ["F", "M", "M"]
    assert people["age"].to_pylist() == [24, 56, 25]


def test_zip_codes_stay_text_even_if_all_are_digits(tmp_path):
    write_1m(tmp_path / "ml")
    put(tmp_path / "ml", "users.dat", ["1::F::1::10::48067", "2::M::1::1::55455", "3::M::1::1::98107"], "latin-1")
    people = load(tmp_path / "ml").user_attributes
    assert people["zip"].to_pylist() == ["48067", "55455", "98107"]
    assert people["zip1"].to_pylist() == ["4", "5", "9"]


def test_a_bad_line_of_a_published_file_is_named(tmp_path):
    write_1m(tmp_path / "ml")
    put(tmp_path / "ml", "ratings.dat", ["1::10::5::978300760", "1::30::six::978302109"], "latin-1")
    with pytest.raises(DataError, match=r'Line 2 of ".*ratings\.dat" has the rating "six"'):
        load(tmp_path / "ml")
    put(tmp_path / "ml", "ratings.dat", ["1::10::5::978300760", "1::30::6"], "latin-1")
    with pytest.raises(DataError, match=r"Line 2 of .* 3 values where 4 are expected \(separated by double colons\)"):
        load(tmp_path / "ml")
