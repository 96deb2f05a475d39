"""`shuffle` between real processes: devices, coordinator and proxy, with kills of the proxy."""

import json
from contextlib import closing

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pytest
from services import Federation, Service
from test_local import finished

from tacit.boundary.ledger import Ledger
from tacit.config import RunFile
from tacit.data.synthetic import demo
from tacit.deploy.local_sites import free_port
from tacit.experiment import run

SEEDED = """
seed = 7
[data]
source = "demo"
users = 5
items = 12
ratings = 50
[partition]
by = "device"
into = 5
[method]
name = "gd-dr"
factors = 2
rounds = 2
[privacy]
epsilon = 8.0
delta = 1e-4
[aggregation]
name = "shuffle"
tolerate = 0.4
[engine]
seeded = true
"""
DEPLOYED = """
seed = 7
[data]
feedback = "explicit"
[public]
scale = [1, 5]
users = 4
catalogue = "items.csv"
[partition]
by = "device"
into = 4
[method]
name = "gd-dr"
factors = 2
rounds = 6
[privacy]
epsilon = 8.0
delta = 1e-4
[aggregation]
name = "shuffle"
tolerate = 0.25
"""


def test_a_run_with_a_proxy_of_its_own_is_the_run_of_one_process(tmp_path):
    (tmp_path / "run.toml").write_text(SEEDED)
    one = run(RunFile.read(tmp_path / "run.toml"), tmp_path / "one")
    apart = finished(tmp_path, "apart", "up", "run.toml", "--local", "5", "--out", str(tmp_path / "apart-run")).summary
    for part in ("digest", "metrics", "guarantee", "bytes_up", "bytes_down", "rounds"):
        assert apart[part] == one[part], part
    log = (tmp_path / "apart-run" / "sites" / "proxy" / "log.jsonl").read_text()
    assert [json.loads(line)["event"] for line in log.splitlines()].count("sent") == 2
    assert "party-" not in log


@pytest.fixture
def federation(tmp_path):
    """Four devices, one user each, and a proxy that is invited."""
    made = Federation(tmp_path, DEPLOYED, parties=4, ratings=demo(users=4, items=10, ratings=32))
    for k, name in enumerate(made.names):
        mine = made.ratings.keep(made.ratings.users == k).to_arrow()
        csv.write_csv(mine, tmp_path / f"{name}.csv")
    csv.write_csv(pa.table({"item": made.ratings.item_ids.ids}), tmp_path / "items.csv")
    yield made
    made.stop()


def proxy_of(federation, port) -> Service:
    return federation._started(Service(["proxy", "proxy.kit"], federation.folder, "proxy"))


def test_a_run_needs_a_proxy_that_is_invited(federation):
    refused = federation.tacit("up", "run.toml", "--keys", "keys", code=2)
    assert "go through a proxy, and none is invited" in refused.stderr
    refused = federation.tacit("keys", "invite", "keys", "--role", "proxy", code=2)
    assert "--role proxy --at HOST:PORT" in refused.stderr


def test_a_deployed_run_goes_on_over_kills_of_its_proxy_and_charges_every_device_once(federation):
    port = free_port()
    federation.tacit("keys", "invite", "keys", "--role", "proxy", "--at", f"localhost:{port}")
    proxy, up = proxy_of(federation, port), federation.up("--wait", "300")
    sites = [federation.join(name, "--max-epsilon", "8") for name in federation.names]
    for round in (1, 3):
        federation.until(lambda now=round: federation.round() >= now or up.process.poll() is not None)
        proxy.kill()
        proxy = proxy_of(federation, port)
    assert up.wait() == 0, up.err
    assert [site.wait() for site in sites] == [0] * 4, [site.err for site in sites]
    summary = up.summary
    assert summary["guarantee"]["model"] == "shuffled"
    assert summary["guarantee"]["simulated"] is False
    assert "without the proxy's help" in (federation.folder / "run" / "card.md").read_text()
    for name in federation.names:
        with closing(Ledger.open(federation.folder / f"site-{name}" / "ledger" / f"{name}.sqlite")) as ledger:
            rows = ledger.rows()
        assert [row.kind for row in rows].count("report") == 6  # one a round, whatever was handed over again
        assert sum(row.step == "send:report" for row in rows) >= 6
    written = (federation.folder / "site-proxy" / "log.jsonl").read_text()
    assert "party-" not in written
    federation.tacit("ledger", "verify", "site-party-1/ledger")
    assert np.isfinite(summary["guarantee"]["epsilon"])
