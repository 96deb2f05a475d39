"""`load`: text and Parquet files in every shape that people keep them in."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv as arrow_csv

from tacit.data import Feedback, Ratings, load
from tacit.errors import DataError, UsageError

ROWS = [(7, 30, 4.0, 100), (7, 10, 5.0, 200), (3, 10, 1.0, 300)]


def dense(ratings):
    """{(user, item): value}, whatever the order."""
    users, items = ratings.user_ids[ratings.users], ratings.item_ids[ratings.items]
    return {(u, i): v for u, i, v in zip(users.tolist(), items.tolist(), ratings.values.tolist(), strict=True)}


EXPECTED = {(u, i): r for u, i, r, _ in ROWS}


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "userId,movieId,rating,timestamp\n7,30,4.0,100\n7,10,5.0,200\n3,10,1,300\n"),
        ("a.csv", "\ufeffuser,item,rating,time\r\n7,30,4,100\r\n7,10,5,200\r\n3,10,1,300"),
        ("a.csv", "\n\nuser, item, rating, ts\n7, 30, 4, 100\n\n7, 10, 5, 200\n\n3, 10, 1, 300\n\n"),
        ("a.csv", 'user;item;rating;date\n"7";"30";"4";100\n7;10;5;200\n3;10;1;300\n'),
        ("a.csv", 'review,uid,isbn,stars,ts\n"so,\nso",7,30,4,100\n"good",7,10,5,200\n,3,10,1,300\n'),
        ("a.tsv", "user\titem\trating\ttimestamp\n7\t30\t4\t100\n7\t10\t5\t200\n3\t10\t1\t300\n"),
        ("a.data", "7\t30\t4\t100\n7\t10\t5\t200\n3\t10\t1\t300\n"),
        ("a.dat", "7::30::4::100\n7::10::5::200\n3::10::1::300\n"),
        ("a.dat", "7,30,4,100\n7,10,5,200\n3,10,1,300\n"),
        ("a.txt", "7|30|4|100\n7|10|5|200\n3|10|1|300\n"),
        ("u1.base", "7 30 4 100\n7 10 5 200\n3 10 1 300\n"),
    ],
)
def test_every_usual_text_layout_gives_the_same_ratings(tmp_path, name, text):
    ratings = load(write(tmp_path / name, text))
    assert dense(ratings) == EXPECTED
    assert ratings.user_ids.ids.dtype == np.int64
    assert sorted(ratings.times.tolist()) == [100, 200, 300]
    assert (ratings.scale.low, ratings.scale.high, ratings.scale.declared) == (1, 5, False)
    assert ratings.name == name


def test_columns_are_named_and_others_are_left_out(tmp_path):
    path = write(tmp_path / "x.csv", "rating,a,b,c\n9,7,30,4\n9,7,10,5\n9,3,10,1\n")
    assert dense(load(path, columns={"user": "a", "item": "b", "rating": "c"})) == EXPECTED
    bare = write(tmp_path / "bare.csv", "30,7,4\n10,7,5\n10,3,1\n")
    assert dense(load(bare, columns={"user": "2", "item": "1"})) == EXPECTED


@pytest.mark.parametrize(
    "times",
    [
        ["1577836800", "1577836801"],
        ["1577836800.0", "1577836801.9"],
        ["2020-01-01 00:00:00", "2020-01-01 00:00:01"],
        ["2020-01-01T00:00:00Z", "2020-01-01T00:00:01Z"],
        ["2020-01-01", "2020-01-01 00:00:01"],
        ["1577836800", "2020-01-01T01:00:01+01:00"],
        pa.array([1577836800, 1577836801], pa.timestamp("s")).cast(pa.timestamp("ns")),
        pa.array([1577836800, 1577836801], pa.timestamp("s")).cast(pa.timestamp("ms", "America/New_York")),
    ],
)
def test_times_become_seconds(tmp_path, times):
    table = pa.table({"user": pa.array([1.0, 1.0]), "item": pa.array(["a", "b"]).dictionary_encode(), "n": [4, 4]})
    pq.write_table(table.append_column("time", pa.array(times)), tmp_path / "x.parquet")
    ratings = load(tmp_path / "x.parquet", columns={"rating": "n"})
    assert ratings.times.tolist() == [1577836800, 1577836801]
    assert (ratings.user_ids.ids.tolist(), ratings.item_ids.ids.tolist()) == ([1], ["a", "b"])
    if isinstance(times, list):
        path = write(tmp_path / "x.csv", f"user,item,rating,timestamp\n1,1,4,{times[0]}\n1,2,4,{times[1]}\n")
        assert load(path).times.tolist() == [1577836800, 1577836801]


def test_ids_come_out_as_they_went_in(tmp_path):
    path = write(tmp_path / "x.csv", "user,isbn,rating\n007,0195153448,3\n12, 1.5,4\n-4,é,5\n")
    ratings = load(path)
    assert ratings.user_ids.ids.tolist() == ["-4", "007", "12"]
    assert ratings.item_ids.ids.tolist() == ["0195153448", "1.5", "é"]
    huge = load(write(tmp_path / "y.csv", f"user,item,rating\n{2**63 - 1},{2**63},3\n{-(2**63)},0,4\n"))
    assert huge.user_ids.ids.tolist() == [-(2**63), 2**63 - 1]
    assert huge.item_ids.ids.tolist() == ["0", str(2**63)]


def test_implicit_feedback_needs_no_rating_and_is_one(tmp_path):
    path = write(tmp_path / "log.csv", "user,item\nann,x\nbob,y\n")
    ratings = load(path, feedback="implicit")
    assert ratings.feedback is Feedback.IMPLICIT
    assert dense(ratings) == {("ann", "x"): 1.0, ("bob", "y"): 1.0}
    assert (ratings.scale.low, ratings.scale.high, ratings.scale.declared) == (0, 1, True)
    rated = write(tmp_path / "rated.csv", "user,item,rating\n1,2,oops\n")
    assert load(rated, feedback="implicit").values.tolist() == [1.0]


def test_counts_start_at_zero_and_are_found_by_their_usual_names(tmp_path):
    path = write(tmp_path / "plays.csv", "user,artist,plays\n1,2,0\n1,3,17\n")
    ratings = load(path, feedback="count")
    assert ratings.values.tolist() == [0.0, 17.0]
    assert (ratings.scale.low, ratings.scale.high, ratings.scale.declared) == (0, 17, False)
    assert load(path, feedback="count", scale=(0, 100)).scale.declared
    exact = write(tmp_path / "x.csv", "user,item,rating\n1,1,4.7\n1,2,0.1\n")  # ratings are float32
    assert load(exact, scale=(0.1, 4.7)).n_ratings == 2
    with pytest.raises(DataError, match=r"\.xlsx.*CSV or Parquet"):
        load(write(tmp_path / "x.xlsx", "PK"))


ids = st.one_of(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=8, unique=True),
                st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=5),
                         min_size=1, max_size=8, unique=True))  # fmt: skip


@st.composite
def small_ratings(draw):
    users, items = draw(ids), draw(ids)
    pairs = st.tuples(st.sampled_from(users), st.sampled_from(items))
    chosen = draw(st.lists(pairs, min_size=1, max_size=20, unique=True))
    count = {"min_size": len(chosen), "max_size": len(chosen)}
    values = draw(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), **count))
    times = draw(st.none() | st.lists(st.integers(0, 2**40), **count))
    return Ratings.from_columns([u for u, _ in chosen], [i for _, i in chosen], values, times)


@settings(max_examples=40, deadline=None)
@given(ratings=small_ratings(), order=st.randoms(use_true_random=False), text=st.booleans())
def test_what_is_written_is_read_back_in_any_order_of_rows(tmp_path_factory, ratings, order, text):
    rows = list(range(ratings.n_ratings))
    order.shuffle(rows)
    table = ratings.to_arrow().take(pa.array(rows))
    folder = tmp_path_factory.mktemp("round")
    if text:
        arrow_csv.write_csv(table, folder / "r.csv")
        back = load(folder / "r.csv")
    else:
        pq.write_table(table, folder / "r.parquet")
        back = load(folder / "r.parquet")
    as_text = [(str(u), str(i), v) for (u, i), v in dense(ratings).items()]
    assert sorted((str(u), str(i), v) for (u, i), v in dense(back).items()) == sorted(as_text)
    if not text:  # types are kept, so that nothing at all may differ
        assert back.user_ids == ratings.user_ids
        assert back.item_ids == ratings.item_ids
        np.testing.assert_array_equal(back.indptr, ratings.indptr)
        np.testing.assert_array_equal(back.items, ratings.items)
        np.testing.assert_array_equal(back.values, ratings.values)
    if ratings.times is not None:
        assert sorted(back.times.tolist()) == sorted(ratings.times.tolist())


rows_with_repeats = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.floats(0, 5, width=16), st.integers(0, 10**9)),
    min_size=1,
    max_size=30,
    unique_by=lambda row: row[3],
)


def test_without_distinct_times_the_last_duplicate_in_the_file_wins(tmp_path):
    path = write(tmp_path / "x.csv", "user,item,rating,timestamp\n1,1,2,5\n1,1,4,5\n1,1,3,5\n")
    assert load(path, duplicates="last").values.tolist() == [3.0]
    assert load(path, duplicates="last", columns={"timestamp": ""}).values.tolist() == [3.0]


@settings(max_examples=40, deadline=None)
@given(rows=rows_with_repeats, order=st.randoms(use_true_random=False), keep=st.sampled_from(["last", "mean"]))
def test_duplicates_do_not_depend_on_the_order_of_rows(tmp_path_factory, rows, order, keep):
    folder = tmp_path_factory.mktemp("order")

    def loaded(rows):
        text = "".join(f"{u}\t{i}\t{r!r}\t{t}\n" for u, i, r, t in rows)
        return load(write(folder / "x.tsv", text), duplicates=keep)

    shuffled = list(rows)
    order.shuffle(shuffled)
    one, two = loaded(rows), loaded(shuffled)
    assert dense(one) == dense(two)
    np.testing.assert_array_equal(one.times, two.times)
    latest = {(u, i): r for u, i, r, _ in sorted(rows, key=lambda row: row[3])}
    means = {p: np.mean([r for u, i, r, _ in rows if (u, i) == p]) for p in latest}
    assert dense(one) == pytest.approx(latest if keep == "last" else means, rel=1e-6)


def test_many_blocks_and_a_colon_at_a_block_edge(tmp_path):
    rows = [f"{u}::{i}::{(u + i) % 5 + 1}::{u * 1000 + i}" for u in range(300) for i in range(400)]
    ratings = load(write(tmp_path / "big.dat", "\n".join(rows) + "\n"))
    assert ratings.n_ratings == 300 * 400
    assert dense(ratings)[(299, 399)] == (299 + 399) % 5 + 1
    np.testing.assert_array_equal(ratings.times, ratings.users * 1000 + ratings.items)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"feedback": "explict"}, ["feedback", "explict", "Did you mean"]),
        ({"duplicates": "first"}, ["duplicates", "error, last, mean"]),
        ({"query": "select 1"}, ["not a database", "leave it out"]),
        ({"query": "  "}, ["query is empty"]),
        ({"users": 5}, ["users", "demo"]),
        ({"columns": {"usr": "user"}}, ["usr", "Did you mean", "user"]),
        ({"scale": (5, 1)}, ["scale", "lower end first"]),
        ({"scale": (1, float("inf"))}, ["not finite"]),
        ({"scale": (1, 5), "feedback": "implicit"}, ["implicit", "leave out scale"]),
        ({"scale": (-1, 5), "feedback": "count"}, ["start at 0", "scale=(0, 5)"]),
    ],
)
def test_options_that_cannot_be_meant_so_are_usage_errors(tmp_path, options, words):
    path = write(tmp_path / "x.csv", "user,item,rating\n1,2,3\n")
    with pytest.raises(UsageError) as error:
        load(path, **options)
    assert all(word in str(error.value) for word in words), error.value


@pytest.mark.parametrize("option", ["columns", "query", "user_table", "item_table", "catalogue"])
def test_the_demo_takes_no_files(option):
    with pytest.raises(UsageError, match=option):
        load("demo", **{option: {"user": "u"} if option == "columns" else "select"})
    with pytest.raises(UsageError, match="leave out scale"):
        load("demo", scale=(0, 9))


def test_loading_a_file_imports_no_database_driver(tmp_path):
    path = write(tmp_path / "x.csv", "user,item,rating\n1,2,3\n")
    program = (
        f"import sys, tacit.data; tacit.data.load({str(path)!r});"
        "print([m for m in sys.modules if m.startswith(('adbc', 'duckdb', 'numba', 'scipy'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
