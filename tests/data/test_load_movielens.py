"""MovieLens in each of its published forms: one small world written four ways gives the same ratings."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit.data import load
from tacit.errors import DataError

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
