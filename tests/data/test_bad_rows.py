"""Bad rows: all are counted, the first five are shown, and they can be left out."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit.config import RunFile
from tacit.data.load import load
from tacit.errors import DataError, DuplicatePair, PrivacyRefused
from tacit.experiment import run
from tacit.prepare.loaded import prepare

ROWS = ["u1,a,4,10", ",a,3,11", "u2,,3,12", "u2,b,good,13", "u3,a,nan,14", "u3,b,9,15", "u4,a,2,noon", "u4,b,5,17"]


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text("user,item,rating,timestamp\n" + "".join(f"{row}\n" for row in ROWS))
    return path


def test_all_are_counted_and_the_first_five_are_shown(csv):
    with pytest.raises(DataError) as found:
        load(csv, scale=(1, 5))
    text = str(found.value)
    assert text.startswith("Line 3 of")
    shown = '3 (no user), 4 (no item), 5 (rating "good"), 6 (rating "nan"), 7 (rating "9.0")'
    assert f"In all 6 of 8 lines are bad, on lines {shown.replace('9.0', '9')}, …" in text
    assert 'bad_rows = "drop" in [data] (or --set data.bad_rows=drop' in text


def test_they_are_left_out_and_how_many_went_is_noted(csv):
    ratings = load(csv, scale=(1, 5), bad_rows="drop")
    assert ratings.n_ratings == 2
    assert list(ratings.user_ids.ids) == ["u1", "u4"]
    assert ratings.dropped == 6
    assert "6 of 8 lines were not ratings and were left out (bad_rows)" in ratings.notes


def test_what_is_dropped_depends_on_the_row_alone(csv, tmp_path):
    """So it is sound with [privacy]: without another row the same rows go."""

    def kept(path):
        return {tuple(row.values()) for row in load(path, scale=(1, 5), bad_rows="drop").to_arrow().to_pylist()}

    whole = kept(csv)
    for gone in range(1, len(ROWS) - 1):
        path = tmp_path / f"{gone}.csv"
        rows = [row for place, row in enumerate(ROWS) if place != gone]
        path.write_text("user,item,rating,timestamp\n" + "".join(f"{row}\n" for row in rows))
        assert kept(path) == whole


def test_lines_are_named_as_they_stand_in_the_file_after_some_went(tmp_path):
    (tmp_path / "r.csv").write_text("user,item,rating\nu1,a,1\n,b,2\nu1,a,3\n")
    with pytest.raises(DuplicatePair, match="Lines 2 and 4"):
        load(tmp_path / "r.csv", bad_rows="drop")


def test_rows_of_parquet_and_items_off_the_catalogue(tmp_path):
    table = {"user": ["u", None, "v", "w"], "item": ["a", "a", "z", "b"], "rating": [1.0, 2.0, 3.0, None]}
    pq.write_table(pa.table(table), tmp_path / "r.parquet")
    (tmp_path / "items.csv").write_text("item\na\nb\n")
    with pytest.raises(
        DataError, match=r"3 of 4 rows are bad, on rows 2 \(no user\), 3 \(item \"z\"\), 4 \(no rating\)"
    ):
        load(tmp_path / "r.parquet", catalogue=tmp_path / "items.csv")
    assert load(tmp_path / "r.parquet", catalogue=tmp_path / "items.csv", bad_rows="drop").n_ratings == 1


def test_a_run_says_how_many_went(tmp_path):
    lines = [f"u{k % 12},i{k // 12},{1 + k % 5}" for k in range(96)]
    (tmp_path / "r.csv").write_text("user,item,rating\n" + "\n".join([*lines[:50], "u1,i3,much", *lines[50:]]) + "\n")
    table = {"source": str(tmp_path / "r.csv"), "bad_rows": "drop"}
    file = RunFile.model_validate({"data": table, "method": {"name": "item-mean"}, "partition": {"into": 2}})
    summary = run(file, tmp_path / "run")
    assert summary["bad_rows"] == 1
    about = json.loads((tmp_path / "run" / "about.json").read_text())
    assert '1 rows were not ratings and were dropped: [data] bad_rows = "drop".' in about["notes"]
    assert "1 rows were not ratings" in (tmp_path / "run" / "card.md").read_text()


def prepared(tmp_path, rows, **sections):
    (tmp_path / "r.csv").write_text("\n".join(["patient,drug,rating,hospital", *rows]) + "\n")
    base = {
        "data": {"source": str(tmp_path / "r.csv")},
        "partition": {"by": "hospital"},
        "method": {"name": "item-mean"},
        "split": {"test": 0.3},
    }
    return prepare(RunFile.model_validate({**base, **sections}))


def rows(hospital):
    return [f"p{u},d{i},{1 + (u + i) % 5},{hospital(u, i)}" for u in range(9) for i in range(6)]


def test_a_column_that_describes_users_divides_them(tmp_path):
    made = prepared(tmp_path, rows(lambda u, i: f"H{u % 3}"))
    assert made.parties.setting == "horizontal"
    assert sorted(share.label for share in made.parties) == ["H0", "H1", "H2"]
    assert [len(share.users) for share in made.parties] == [3, 3, 3]


def test_a_column_that_describes_items_divides_them(tmp_path):
    made = prepared(tmp_path, rows(lambda u, i: f"H{i % 2}"))
    assert made.parties.setting == "vertical"
    assert [len(share.items) for share in made.parties] == [3, 3]


def test_a_column_that_describes_neither_names_a_user_with_two_values(tmp_path):
    with pytest.raises(DataError) as found:
        prepared(tmp_path, rows(lambda u, i: "H9" if (u, i) == (4, 5) else f"H{u % 3}"))
    assert 'user "p4" has "H1" and "H9"' in str(found.value)
    assert found.value.exit_code == 3


def test_a_table_of_the_users_comes_first(tmp_path):
    (tmp_path / "people.csv").write_text("patient,hospital\n" + "".join(f"p{u},K{u % 2}\n" for u in range(9)))
    data = {"source": str(tmp_path / "r.csv"), "user_table": str(tmp_path / "people.csv")}
    made = prepared(tmp_path, rows(lambda u, i: f"H{u % 3}"), data=data)
    assert sorted(share.label for share in made.parties) == ["K0", "K1"]


def test_with_privacy_what_describes_items_is_not_read_off_the_ratings(tmp_path):
    (tmp_path / "items.csv").write_text("drug\n" + "".join(f"d{i}\n" for i in range(6)))
    private = {
        "public": {"scale": [1, 5], "users": 20, "catalogue": str(tmp_path / "items.csv")},
        "privacy": {"epsilon": 4.0, "delta": 1e-6},
        "method": {"name": "bias"},
    }
    with pytest.raises(PrivacyRefused, match="item_table"):
        prepared(tmp_path, rows(lambda u, i: f"H{i % 2}"), **private)
    assert prepared(tmp_path, rows(lambda u, i: f"H{u % 3}"), **private).parties.setting == "horizontal"
