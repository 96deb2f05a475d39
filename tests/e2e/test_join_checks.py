"""What a site refuses before anything of its data leaves, what a look at an offer leaves behind, and runs without any
guarantee, which must be asked for on both sides."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pytest
from services import Federation

from tacit.config import RunFile
from tacit.data.synthetic import demo
from tacit.experiment import run
from tacit.model import Model

PRIVATE = """
seed = 7
[public]
scale = [1, 5]
users = 90
catalogue = "items.csv"
[partition]
into = 3
[method]
name = "bias"
[privacy]
epsilon = 2.0
delta = 1e-6
[aggregation]
name = "secagg"
"""
OPEN = """
seed = 7
[public]
scale = [1, 5]
{catalogue}
[method]
name = "sgdmf"
factors = 3
rounds = 2
local_steps = 2
"""


def contents(*folders: Path) -> dict[str, bytes]:
    """Every file with its bytes; a status's own heartbeat is left out."""
    files = {str(path): path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}
    for path, raw in files.items():
        if path.endswith("status.json"):
            files[path] = json.dumps({**json.loads(raw), "updated": None}).encode()
    return files


def with_items(path: Path, *items: int) -> None:
    """A user more at a site, who rated these items."""
    table = csv.read_csv(path).select(["user", "item", "rating"])
    more = {"user": ["u9999"] * len(items), "item": list(items), "rating": [4.0] * len(items)}
    csv.write_csv(pa.concat_tables([table, pa.table(more).cast(table.schema)]), path.with_name(f"more-{path.name}"))


def looked(federation: Federation, code: int, *more: str, data: str = "party-1.csv") -> dict:
    """The findings of one look, by what was looked at; nothing is ever begun by it."""
    done = federation.tacit("join", "party-1.kit", "--data", data, "--check", "--json", *more, code=code)
    told = json.loads(done.stdout)
    assert told["good"] is (code == 0)
    assert not (federation.folder / "site-party-1").exists()
    return {finding["what"]: finding for finding in told["findings"]}


def failed(findings: dict) -> list[str]:
    return [what for what, finding in findings.items() if not finding["good"]]


def test_a_look_finds_what_will_not_do_and_sends_nothing(tmp_path):
    federation = Federation(tmp_path, PRIVATE)
    with_items(tmp_path / "party-1.csv", 1, 777_777)
    try:
        up = federation.up()
        federation.until(lambda: federation.status("run").get("state") == "waiting")
        before = contents(tmp_path / "run", tmp_path / "keys")
        good = looked(federation, 0)
        outside = looked(federation, 3, data="more-party-1.csv")
        too_much = looked(federation, 4, "--max-epsilon", "1")
        assert contents(tmp_path / "run", tmp_path / "keys") == before
        up.kill()
        absent = looked(federation, 5, "--run", "run.toml")
    finally:
        federation.stop()
    assert list(good) == [
        "kit and certificate",
        "connection",
        "coordinator, versions and clocks",
        "this site's rules",
        "data",
        "privacy",
    ]
    assert "budget is ε = 2 " in good["privacy"]["found"]
    assert (failed(good), failed(outside), failed(too_much)) == ([], ["data"], ["privacy"])
    assert "777777" in outside["data"]["found"]
    assert "--max-epsilon" in too_much["privacy"]["found"]
    assert failed(absent) == ["connection"]  # the rest is held to the run file that the site was given
    assert absent["data"]["good"]


def test_a_run_without_a_guarantee_goes_on_without_whoever_did_not_allow_it(tmp_path):
    """And without a public list of items, what there is to rate is what somebody has who stayed."""
    federation = Federation(tmp_path, OPEN.format(catalogue=""))
    with_items(tmp_path / "party-1.csv", 777_777)
    with_items(tmp_path / "party-3.csv", 888_888)
    try:
        up = federation.up()
        one = federation.join("party-1", "--non-private", data="more-party-1.csv")
        other = federation.join("party-2", "--non-private")
        refusing = federation.join("party-3", data="more-party-3.csv")
        assert refusing.wait() == 4
        assert "--non-private" in refusing.err
        assert (one.wait(), other.wait(), up.wait()) == (0, 0, 0), (up.err, one.err, other.err)
    finally:
        federation.stop()
    assert up.summary["guarantee"] is None
    card = (tmp_path / "run" / "card.md").read_text()
    assert "NON-PRIVATE" in card
    stayed = [csv.read_csv(tmp_path / name)["item"] for name in ("more-party-1.csv", "party-2.csv")]
    rated = {item for column in stayed for item in column.to_pylist()}
    assert set(Model.load(tmp_path / "run" / "model").item_ids.ids.tolist()) == rated
    assert 777_777 in rated
    assert 888_888 not in rated
    assert not (tmp_path / "site-party-3" / "home").exists()


def test_a_run_without_noise_has_the_digest_and_the_error_of_one_process(tmp_path):
    ratings = demo(users=90, items=30, ratings=1500)
    federation = Federation(tmp_path, OPEN.format(catalogue='catalogue = "items.csv"'), ratings=ratings)
    try:
        up = federation.up()
        sites = [federation.join(name, "--non-private", "--share-metrics") for name in federation.names]
        assert [service.wait() for service in (up, *sites)] == [0, 0, 0, 0], (up.err, [site.err for site in sites])
    finally:
        federation.stop()
    csv.write_csv(ratings.to_arrow(), tmp_path / "all.csv")
    changes = [f"data.source={tmp_path / 'all.csv'}", f"public.catalogue={tmp_path / 'items.csv'}", "partition.into=3"]
    whole = run(RunFile.read(tmp_path / "run.toml", changes), tmp_path / "whole")
    assert up.summary["digest"] == whole["digest"]
    assert (up.summary["bytes_up"], up.summary["bytes_down"]) == (whole["bytes_up"], whole["bytes_down"])
    assert up.summary["metrics"]["mse"] == pytest.approx(whole["metrics"]["mse"], rel=1e-6)
    assert np.isfinite(up.summary["metrics"]["ndcg@10"])
