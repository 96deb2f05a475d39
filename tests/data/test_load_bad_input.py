"""Every kind of bad input gets one sentence with the file, the row and a remedy, as a `DataError`."""

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit.data import load
from tacit.errors import DataError, DuplicatePair


def complaint(path, **options):
    with pytest.raises(DataError) as error:
        load(path, **options)
    message = str(error.value)
    assert "\n" not in message
    assert message.endswith((".", "?"))
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
        ("2,11,-inf,100", ["rating -inf", "finite"]),
        ("2,11,1e300,100", ["1e+300", "finite"]),
        ("2,11,4,", ["no timestamp", 'columns = {timestamp = ""}', "tacit join: --column timestamp=)"]),
        ("2,11,4,noon", ['timestamp "noon"', 'columns = {timestamp = ""}', "tacit join: --column timestamp=)"]),
        ("2,11,4,1e300", ["not a time"]),
        ("2,11,4", ["3 values where 4 are expected", "commas", "correct the line"]),
        ("2,11,4,100,5", ["5 values where 4 are expected"]),
        ("1,10,3,200", ["Lines 2 and 3", "item 10", "user 1", 'duplicates="last"', 'duplicates="mean"']),
        ("1,10,3,200", ["(tacit join: --duplicates last, or mean)"]),
    ],
)
def test_a_bad_line_is_named(tmp_path, row, words):
    path = tmp_path / "ratings.csv"
    path.write_text(HEAD + row + "\n3,12,5,100\n")
    message = complaint(path)
    says(message, str(path), *words)
    if "Lines" not in message:
        says(message, "Line 3 of")


def test_a_line_is_counted_as_an_editor_counts_it(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text('\nuser,item,rating,review\n\n1,1,3,"two\nlines"\n\n2,1,x,short\n')
    says(complaint(path), "Line 7 of")
    headerless = tmp_path / "r.dat"
    headerless.write_text("1::1::3\n\n2::1::x\n")
    says(complaint(headerless), "Line 3 of")
    zipped = tmp_path / "r.csv.gz"
    zipped.write_bytes(gzip.compress(b"user,item,rating\n1,1,3\n1,2,x\n"))
    says(complaint(zipped), "Line 3 of")


def test_a_bad_value_far_down_is_found(tmp_path):
    path = tmp_path / "long.csv"
    rows = [f"{k},{k},3,{k}" for k in range(200_000)]
    rows[150_000] = "150000,1,three,5"
    path.write_text("user,item,rating,timestamp\n" + "\n".join(rows) + "\n")
    says(complaint(path), "Line 150002 of", '"three"')
    rows[150_000] = "150000,1,3,late"
    path.write_text("user,item,rating,timestamp\n" + "\n".join(rows) + "\n")
    says(complaint(path), "Line 150002 of", '"late"')


def test_a_rating_off_the_declared_scale_is_named(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("user,item,rating\n1,1,5\n1,2,7\n1,3,0\n")
    says(complaint(path, scale=(1, 5)), "Line 3 of", str(path), "rating 7", "1…5", "scale=(0, 7)")
    says(complaint(path, scale=(1, 7)), "Line 4 of", "rating 0")
    path.write_text("user,item,count\n1,1,5\n1,2,-2\n")
    says(complaint(path, feedback="count"), "Line 3 of", "-2", "start at 0", "tacit join: --feedback explicit)")


def test_duplicates_in_an_implicit_log_are_errors_too(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("user,item\nann,x\nbob,x\nann,x\n")
    with pytest.raises(DuplicatePair) as error:
        load(path, feedback="implicit")
    says(str(error.value), "Lines 2 and 4", '"ann"', '"x"')
    assert (error.value.first, error.value.second, error.value.user) == (0, 2, "ann")
    assert load(path, feedback="implicit", duplicates="last").n_ratings == 2


@pytest.mark.parametrize("text", ["", "\n\n", "\ufeff"])
def test_an_empty_file_is_named(tmp_path, text):
    path = tmp_path / "none.csv"
    path.write_text(text, encoding="utf-8")
    says(complaint(path), str(path), "is empty", "one rating per line")


def test_a_header_without_rows_is_named(tmp_path):
    path = tmp_path / "none.csv"
    path.write_text("user,item,rating\n")
    says(complaint(path), str(path), "no ratings", "at least one row")
    pq.write_table(pa.table({"user": pa.array([], pa.int64()), "item": [], "rating": []}), tmp_path / "e.parquet")
    says(complaint(tmp_path / "e.parquet"), "no ratings")


def test_a_wrong_encoding_is_named_with_its_line(tmp_path):
    path = tmp_path / "latin.csv"
    path.write_bytes("user,item,rating\nann,x,3\njosé,y,4\n".encode("latin-1"))
    says(complaint(path), "Line 3 of", str(path), "not UTF-8", "iconv")
    path.write_bytes("user,item,rating\nann,x,3\n".encode("utf-16"))
    says(complaint(path), str(path), "not UTF-8", "save it as UTF-8")


def test_latin_1_in_a_column_that_is_not_read_does_no_harm(tmp_path):
    path = tmp_path / "latin.csv"
    path.write_bytes("user,item,rating,remark\n1,2,3,déjà vu\n".encode("latin-1"))
    assert load(path).n_ratings == 1


def test_missing_columns_are_named_with_those_there(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("who,item,rating\nx,y,3\nz,y,4\n")
    says(complaint(path), str(path), "no user column", '"who", "item", "rating"', 'columns = {user = "who"}')
    says(complaint(path), "tacit join: --column user=who)")
    says(complaint(path, columns={"user": "whom"}), 'no column "whom"', 'Did you mean "who"?')
    path.write_text("user,item\nx,y\n")
    says(complaint(path), "no rating column", 'feedback = "implicit"', "tacit join: --feedback implicit)")
    path.write_text("user,item,rating,rating\nx,y,3,4\n")
    says(complaint(path), 'two columns called "rating"', "rename")
    path.write_text("user,artist,plays\nx,y,3\n")
    says(complaint(path), "no rating column")


PARQUET = {"user": [1, 2, 3], "item": [1, 1, 1], "rating": [1.0, 2.0, 3.0]}


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("user", [1, None, 3], ["Row 2 of", "no user id"]),
        ("user", [1.0, 2.5, 3.0], ["Row 2 of", "2.5", "integers or text"]),
        ("user", [1.0, 2.0, float("nan")], ["Row 3 of", "no user id"]),
        ("user", pa.array([1, 2, 2**63], pa.uint64()), ["Row 3 of", str(2**63), "64 bits"]),
        ("item", [[1], [2], [3]], ["item ids", "type list", "integers or text"]),
        ("item", pa.array(["a", None, "b"]).dictionary_encode(), ["Row 2 of", "no item id"]),
        ("rating", [1.0, 2.0, None], ["Row 3 of", "no rating"]),
        ("rating", ["1", "two", "3"], ["Row 2 of", '"two"', "not a number"]),
        ("rating", [float("nan"), 2.0, 3.0], ["Row 1 of", "nan"]),
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
    path = tmp_path / "r.csv"
    path.write_text('user,item,rating\nu1,i1,3\nu1,i7,"3\n' + "".join(f"u{k},secret{k},4\n" for k in range(300)))
    sentence = str(complaint(path))
    assert "\n" not in sentence
    assert len(sentence) < 400
    assert "secret1" not in sentence
