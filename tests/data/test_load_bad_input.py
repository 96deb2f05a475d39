"""Every kind of bad input gets one sentence with the file, the row and a remedy, as a `DataError`."""

import gzip
import re
import shlex
import tomllib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit.config import RunFile
from tacit.data import load
from tacit.data.columns import resolve
from tacit.data.ratings import Feedback
from tacit.errors import DataError


def complaint(path, **options):
    with pytest.raises(DataError) as error:
        load(path, **options)
    message = str(error.value)
    assert "\n" not in message
    assert message.endswith((".", "?"))
    return message


def complaint_about(tmp_path, text, **options):
    """What is said of a CSV file with this text, or these bytes."""
    path = tmp_path / "r.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    message = complaint(path, **options)
    says(message, str(path))
    return message


def says(message, *words):
    missing = [word for word in words if word not in message]
    assert not missing, f"{missing} not in: {message}"


HEAD = "user,item,rating,timestamp\n1,10,4,100\n"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (",11,4,100", ["no user id", "fill it in", "delete"]),
        ("   ,11,4,100", ["no user id", "fill it in"]),
        ("2,,4,100", ["no item id"]),
        ("2,11,,100", ["no rating"]),
        ("2,11,great,100", ['"great"', "not a number", "correct the line"]),
        ('2,11,"4,5",100', ['"4,5"', "decimals with a point"]),
        ("2,11,nan,100", ["rating nan", "finite"]),
        ("2,11,1e300,100", ["1e+300", "finite"]),
        ("2,11,4,", ["no timestamp", 'columns = {timestamp = ""}', "tacit join: --column timestamp=)"]),
        ("2,11,4,noon", ['timestamp "noon"', 'columns = {timestamp = ""}', "tacit join: --column timestamp=)"]),
        ("2,11,4", ["3 values where 4 are expected", "commas", "correct the line"]),
        ("2,11,4,1e300", ["not a time"]),
        (
            "1,10,3,200",
            ["Lines 2 and 3", "item 10", "user 1", 'duplicates="last"', "(tacit join: --duplicates last, or mean)"],
        ),
    ],
)
def test_a_bad_line_is_named(tmp_path, row, words):
    message = complaint_about(tmp_path, HEAD + row + "\n3,12,5,100\n")
    says(message, *words)
    if "Lines" not in message:
        says(message, "Line 3 of")


def test_a_line_is_counted_as_an_editor_counts_it(tmp_path):
    says(complaint_about(tmp_path, '\nuser,item,rating,review\n\n1,1,3,"two\nlines"\n\n2,1,x,short\n'), "Line 7 of")
    headerless = tmp_path / "r.dat"
    headerless.write_text("1::1::3\n\n2::1::x\n")
    says(complaint(headerless), "Line 3 of")
    zipped = tmp_path / "r.csv.gz"
    zipped.write_bytes(gzip.compress(b"user,item,rating\n1,1,3\n1,2,x\n"))
    says(complaint(zipped), "Line 3 of")


def test_a_bad_value_far_down_is_found(tmp_path):
    rows = [f"{k},{k},3,{k}" for k in range(200_000)]
    for bad, word in (("150000,1,three,5", '"three"'), ("150000,1,3,late", '"late"')):
        rows[150_000] = bad
        text = "user,item,rating,timestamp\n" + "\n".join(rows) + "\n"
        says(complaint_about(tmp_path, text), "Line 150002 of", word)


def test_a_rating_off_the_declared_scale_is_named(tmp_path):
    text = "user,item,rating\n1,1,5\n1,2,7\n1,3,0\n"
    says(complaint_about(tmp_path, text, scale=(1, 5)), "Line 3 of", "rating 7", "1…5", "scale=(0, 7)")
    counted = complaint_about(tmp_path, "user,item,count\n1,1,5\n1,2,-2\n", feedback="count")
    says(counted, "Line 3 of", "-2", "start at 0", "tacit join: --feedback explicit)")


@pytest.mark.parametrize("text", ["", "\n\n", "\ufeff"])
def test_an_empty_file_is_named(tmp_path, text):
    says(complaint_about(tmp_path, text), "is empty", "one rating per line")


def test_a_header_without_rows_is_named(tmp_path):
    says(complaint_about(tmp_path, "user,item,rating\n"), "no ratings", "at least one row")
    pq.write_table(pa.table({"user": pa.array([], pa.int64()), "item": [], "rating": []}), tmp_path / "e.parquet")
    says(complaint(tmp_path / "e.parquet"), "no ratings")


def test_a_wrong_encoding_is_named_with_its_line(tmp_path):
    latin = "user,item,rating\nann,x,3\njosé,y,4\n".encode("latin-1")
    says(complaint_about(tmp_path, latin), "Line 3 of", "not UTF-8", "iconv")
    wide = "user,item,rating\nann,x,3\n".encode("utf-16")
    says(complaint_about(tmp_path, wide), "not UTF-8", "save it as UTF-8")


def test_latin_1_in_a_column_that_is_not_read_does_no_harm(tmp_path):
    path = tmp_path / "latin.csv"
    path.write_bytes("user,item,rating,remark\n1,2,3,déjà vu\n".encode("latin-1"))
    assert load(path).n_ratings == 1


def test_missing_columns_are_named_with_those_there(tmp_path):
    said = complaint_about(tmp_path, "who,item,rating\nx,y,3\nz,y,4\n")
    says(said, "no user column", '"who", "item", "rating"', 'columns = {user = "who"}', "join: --column user=who)")
    said = complaint_about(tmp_path, "who,item,rating\nx,y,3\nz,y,4\n", columns={"user": "whom"})
    says(said, 'no column "whom"', 'Did you mean "who"?')
    said = complaint_about(tmp_path, "user,item\nx,y\n")
    says(said, "no rating column", 'feedback = "implicit"', "tacit join: --feedback implicit)")
    says(complaint_about(tmp_path, "user,item,rating,rating\nx,y,3,4\n"), 'two columns called "rating"', "rename")


PARQUET = {"user": [1, 2, 3], "item": [1, 1, 1], "rating": [1.0, 2.0, 3.0]}


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("user", [1, None, 3], ["Row 2 of", "no user id"]),
        ("user", [1.0, 2.5, 3.0], ["Row 2 of", "2.5", "integers or text"]),
        ("user", [1.0, 2.0, float("nan")], ["Row 3 of", "no user id"]),
        ("user", pa.array([1, 2, 2**63], pa.uint64()), ["Row 3 of", str(2**63), "64 bits"]),
        ("item", [[1], [2], [3]], ["item ids", "type list", "integers or text"]),
        ("rating", [1.0, 2.0, None], ["Row 3 of", "no rating"]),
        ("item", pa.array(["a", None, "b"]).dictionary_encode(), ["Row 2 of", "no item id"]),
        ("rating", ["1", "two", "3"], ["Row 2 of", '"two"', "not a number"]),
        ("rating", [[1.0], [2.0], [3.0]], ["ratings of", "type list", "numbers"]),
        ("timestamp", [1, None, 3], ["Row 2 of", "no timestamp"]),
        ("timestamp", [[1], [2], [3]], ["timestamps of", "type list"]),
        ("user", ["b", "a", "b"], ["Rows 1 and 3", 'user "b"', "item 1"]),
    ],
)
def test_a_bad_row_of_parquet_is_named(tmp_path, column, values, words):
    path = tmp_path / "ratings.parquet"
    pq.write_table(pa.table({**PARQUET, column: values}), path)
    says(complaint(path), str(path), *words)


def test_files_that_are_not_what_they_claim_are_named(tmp_path):
    path = tmp_path / "r.parquet"
    path.write_text("user,item,rating\n1,2,3\n")
    says(complaint(path), str(path), "not a Parquet file")
    path.write_bytes(b"PAR1" + b"\0" * 100 + b"PAR1")
    says(complaint(path), str(path))
    zipped = tmp_path / "r.csv.gz"
    zipped.write_bytes(b"user,item,rating\n1,2,3\n")
    says(complaint(zipped), str(zipped), "cannot be read")
    zipped.write_bytes(gzip.compress(b"user,item,rating\n" + b"1,2,3\n" * 100_000)[:-200])
    says(complaint(zipped), str(zipped))


def test_a_damaged_parquet_page_is_named(tmp_path):
    path = tmp_path / "r.parquet"
    table = pa.table({"user": range(1000), "item": range(1000), "rating": [1.0] * 1000})
    pq.write_table(table, path, compression="zstd", write_page_checksum=True)
    data = bytearray(path.read_bytes())
    data[40:400] = bytes(360)
    path.write_bytes(bytes(data))
    says(complaint(path), str(path), "damaged", "again")


def test_an_open_quote_does_not_spill_the_file_into_the_message(tmp_path):
    text = 'user,item,rating\nu1,i1,3\nu1,i7,"3\n' + "".join(f"u{k},secret{k},4\n" for k in range(300))
    sentence = complaint_about(tmp_path, text)
    assert len(sentence) < 400
    assert "secret1" not in sentence


def hint_of(*names, asked=None, feedback=Feedback.EXPLICIT, tmp_path=None) -> dict[str, str]:
    """The columns that a message proposes, by each of its three ways to write them."""
    with pytest.raises(DataError) as found:
        resolve(names, asked, feedback, "the table")
    text = str(found.value).partition(", or use feedback")[0].rstrip(".")
    toml = re.search(r"as in (columns = \{.*?\}) in \[data\]", text).group(1)
    columns = tomllib.loads(f"[data]\n{toml}")["data"]["columns"]
    words = shlex.split(text[text.index("(or --set ") + 1 : text.rindex(")")].replace("; tacit join:", " ;"))
    change = words[words.index("--set") + 1]
    path = tmp_path / "run.toml"
    path.write_text("")
    assert RunFile.read(path, [change]).data.columns == columns
    options = [words[k + 1] for k, word in enumerate(words) if word == "--column"]
    assert dict(option.split("=", 1) for option in options) == columns
    assert set(columns.values()) <= {*names, "NAME"}
    return columns


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        (["patient", "hospital", "what was given", "dose"], {"item": "what was given", "rating": "dose"}),
        (["stay", "patient no", "visit", "drug name", "score"], {"user": "patient no", "item": "drug name"}),
        (["hospital", "patient", "stay", "thing", "rating"], {"item": "thing"}),
        (["admission", "client", "lab result code", "rating"], {"user": "client", "item": "lab result code"}),
        (["customer", "visit", "rating"], {"item": "NAME"}),
        (["track name", "listener", "stars"], {"user": "listener", "item": "track name"}),
        (["a", "b", "c"], {"user": "a", "item": "b", "rating": "c"}),
        (['say "who"', "it's", "ß = 1", "\\"], {"user": 'say "who"', "item": "it's", "rating": "ß = 1"}),
    ],
)
def test_a_hint_can_be_pasted_and_is_not_silly(tmp_path, names, columns):
    assert hint_of(*names, tmp_path=tmp_path) == columns


def test_a_hint_keeps_what_was_asked_for(tmp_path):
    columns = hint_of("x", "y", "rating", asked={"user": "y"}, tmp_path=tmp_path)
    assert columns == {"user": "y", "item": "x"}


@pytest.mark.parametrize("item", ["medicine", "drug", "lab", "product", "film", "track", "isbn"])
def test_usual_names_of_items_are_known(tmp_path, item):
    (tmp_path / "r.csv").write_text(f"hospital,patient,{item},rating\nA,p1,x,1\nB,p2,y,2\n")
    ratings = load(tmp_path / "r.csv")
    assert list(ratings.user_ids.ids) == ["p1", "p2"]
    assert list(ratings.item_ids.ids) == ["x", "y"]
