"""Every decoder of what users write, fed with odd values and mutations: one sentence. Each seed was a bug once."""

import json
import random
import tomllib
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forgeries import damaged, one_sentence
from one_site import keyring_of

from tacit.config import RunFile
from tacit.data.load import load
from tacit.deploy.keyring import RECORD, read_record
from tacit.deploy.kit import Kit, _sum
from tacit.deploy.service_status import NAME as STATUS
from tacit.deploy.service_status import Status
from tacit.errors import TacitError, UsageError
from tacit.prepare.run_file import check


@pytest.fixture
def draw():
    return random.Random(7)


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz") / "keys"
    keyring = keyring_of(folder)
    return keyring, keyring.invite("party-1")


RUN = """\
seed = 7
[data]
source = "demo"
columns = {user = "uid"}
[public]
scale = [1, 5]
users = 48
[partition]
by = "user"
into = 3
[method]
name = "bias"
[privacy]
epsilon = 4.0
delta = 1e-6
[engine]
timeout = 5.0
[evaluate]
k = 10
"""
BIG = "9" * 5000
#: Each of them was a traceback, or did not end.
SEEDS = [
    f"seed = {BIG}",
    f"seed = 0x{'f' * 5000}",
    f"[method]\nname = 'bias'\nshrinkage = 0x{'f' * 5000}",
    "[privacy]\nepsilon = 1e308",
    "[privacy]\nepsilon = 1\nbudget = 1e308",
    "[engine]\ntimeout = 1e300",
    "[data]\nusers = 1000000000000000000",
    "[data]\nitems = 1000000000",
    "[public]\nusers = 1000000000000000000",
    "[public]\nscale = [-1e308, 1e308]",
    f"[public]\nfeatures = ['{'x' * 100_000}']",
    f"[public]\nfeatures = {[str(k) for k in range(9000)]}",
    f"[data]\nsource = '{'x' * 100_000}'",
    f"[public]\ncatalogue = '{'x' * 100_000}'",
    "[evaluate]\nk = 100000000000000000000",
    "[evaluate]\nnegatives = 100000000000000000000",
    "[partition]\ninto = 100000000000000000000",
    "[method]\nname = 'sgdmf'\ntrim = 100000000000000000000",
    ".".join("a" * 20_000) + " = 1",
    f"[{'.'.join('a' * 20_000)}]",
    f"x = {{y = '''a'''', {'.'.join('a' * 20_000)} = 1}}",
    f'x = {{y = """a"""", {".".join("a" * 20_000)} = 1}}',
    ". ".join(['"a"'] * 20_000) + " = 1",
    "a = " + "[" * 40_000,
    "a = " + "{a=" * 40_000,
    "a" * 900_000,
    '"' * 400_000,
    '"""\\' * 200_000,
    "[method]\n" + "\n".join(f"a{k} = 1" for k in range(9000)),
]


@pytest.mark.parametrize("text", SEEDS, ids=lambda text: text[:24])
def test_run_files_that_ended_badly(tmp_path, text):
    path = tmp_path / "run.toml"
    path.write_text(text)
    error = one_sentence(lambda: RunFile.read(path), "run")
    assert type(error) is UsageError or text.startswith("[method]")


def test_run_files(draw, tmp_path):
    path = tmp_path / "run.toml"

    def run(text):
        path.write_bytes(text)
        return check(RunFile.read(path))

    assert run(RUN.encode())
    for _ in range(400):
        text = damaged(draw, RUN.encode())
        one_sentence(lambda text=text: run(text), slow=3.0)  # a plan may be made


def test_an_ordinary_file_with_dots_in_its_texts_is_read(tmp_path):
    path = tmp_path / "run.toml"
    dots = ".".join(["a"] * 99)
    path.write_text(f"# {dots}\n[data]\nsource = \"{dots}\"\nquery = '''\nselect {dots}'''\n")
    assert RunFile.read(path).data.source == dots


@pytest.mark.parametrize("change", [f"seed={BIG}", f"{'.'.join('a' * 9000)}=1", "a=" + "[" * 9000, "seed=1979-05-27"])
def test_changes_of_a_run_file(tmp_path, change):
    path = tmp_path / "run.toml"
    path.write_text(RUN)
    assert type(one_sentence(lambda: RunFile.read(path, [change]))) is UsageError


def test_kits(draw, federation, tmp_path):
    path = tmp_path / "party-1.kit"
    federation[1].write(path)
    good = path.read_bytes()
    assert Kit.read(path) == federation[1]
    table = tomllib.loads(good.decode())
    seeds = [good.replace(b"8102", BIG.encode()), good.replace(b"8102", b"0x" + b"f" * 5000)]
    seeds += [good + b".".join([b"a"] * 20_000) + b" = 1\n", good + b"a = " + b"[" * 30_000]
    for name in table:  # whoever can change a kit can write another sum under it
        for value in (0, -1, 10**18, "", "x" * 9000, [], {}, True, "a\nb"):
            words = {key: v for key, v in {**table, name: value}.items() if key not in ("sha256", "format")}
            whole = {"format": table["format"], **words, "sha256": _sum(words)}
            seeds.append("\n".join(f"{k} = {_toml(v)}" for k, v in whole.items()).encode())
    for text in [*seeds, *(damaged(draw, good) for _ in range(300))]:
        path.write_bytes(text)
        one_sentence(lambda: Kit.read(path).check(datetime(2030, 1, 1, tzinfo=UTC)))


def _toml(value) -> str:
    return "{}" if value == {} else json.dumps(value)


def test_records_of_services(draw, federation, tmp_path):
    keyring, _kit = federation
    with Status(tmp_path, "party-1", "hearts"):
        good = (tmp_path / STATUS).read_bytes()
    seeds = [good.replace(b'"round": null', b'"round": ' + n) for n in (BIG.encode(), b"1e999", b"[]", b"NaN")]
    seeds += [good.replace(b'"pid": ', b'"pid": 9999999999999999999999999'), b"[" * 60_000]
    for text in [*seeds, *(damaged(draw, good) for _ in range(300))]:
        (tmp_path / STATUS).write_bytes(text)
        one_sentence(lambda: Status.read(tmp_path))
    record = (keyring.folder / RECORD).read_bytes()
    for text in [b"[" * 60_000, *(damaged(draw, record) for _ in range(200))]:
        (tmp_path / RECORD).write_bytes(text)
        one_sentence(lambda: read_record(tmp_path))


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parquet")
    rows = {"user": ["a", "b", "c", "d"] * 5, "item": list(range(20)), "rating": [1.0, 2.0, 3.0, 4.0] * 5}
    pq.write_table(pa.table(rows), folder / "good.parquet", compression="none")
    return folder


def test_parquet_files(draw, parquet):
    good, path = (parquet / "good.parquet").read_bytes(), parquet / "bad.parquet"
    for number in range(250):
        turned = bytearray(good)
        for _ in range(1 + draw.randrange(2)):  # the last third describes the rest
            turned[draw.randrange(len(good) * 2 // 3, len(good))] ^= 1 << draw.randrange(8)
        path.write_bytes(bytes(turned))
        one_sentence(lambda: load(path))
        if number % 5 == 0:
            one_sentence(lambda: load(parquet / "good.parquet", item_table=path))


def test_text_of_a_parquet_file_that_is_no_utf8(parquet):
    path = parquet / "text.parquet"
    text = pa.Array.from_buffers(pa.string(), 2, pa.array([b"\xff\xfe", b"a"], pa.binary()).buffers())
    pq.write_table(pa.table({"user": text, "item": [1, 2], "rating": [1.0, 2.0]}), path)
    assert isinstance(one_sentence(lambda: load(path), "text.parquet"), TacitError)


def test_csv_files(draw, tmp_path):
    good, path = b"user,item,rating,timestamp\n" + b"".join(b"u%d,%d,4.5,%d\n" % (k, k, k) for k in range(9)), "r.csv"
    for _ in range(150):
        (tmp_path / path).write_bytes(damaged(draw, good))
        one_sentence(lambda: load(tmp_path / path))


@pytest.mark.parametrize("source", ["x" * 100_000, "a/" + "x" * 300, "~nobody-here/x", "a\0b", "x" * 300 + ".db"])
def test_places_that_cannot_be(tmp_path, source):
    (tmp_path / "r.csv").write_text("user,item,rating\n1,1,1\n2,2,2\n")
    for act in (
        lambda: load(source),
        lambda: load(f"sqlite:{source}"),
        lambda: load(tmp_path / "r.csv", item_table=source),
        lambda: load(tmp_path / "r.csv", catalogue=source),
    ):
        assert isinstance(one_sentence(act), TacitError)
