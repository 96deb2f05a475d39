"""What `make test` shows with real processes: a masked federation whose site is killed, and a killed run that resumes.

`make e2e` runs everything in tests/e2e: many kills, intruders, absences and deployments.
"""

import pyarrow.parquet as pq
import pytest
from kills import MASKED, check_resumed, kill_children
from services import Federation

from tacit.boundary.ledger import Ledger

RUN = """
seed = 7
[public]
scale = [1, 5]
users = 90
catalogue = "items.csv"
[method]
name = "sgdmf"
factors = 3
rounds = 12
local_steps = 1
sampling = 1.0
[privacy]
epsilon = 4.0
delta = 1e-6
[aggregation]
name = "secagg"
tolerate = 0.3
"""


@pytest.fixture
def federation(tmp_path):
    made = Federation(tmp_path, RUN)
    yield made
    made.stop()


def test_a_masked_federation_whose_site_is_killed_goes_on_and_every_ledger_is_whole(federation):
    services = {"up": federation.up(), **{name: federation.join(name) for name in federation.names}}
    federation.until(lambda: federation.round() >= 2 or services["up"].process.poll() is not None)
    services["party-2"].kill()
    services["party-2"] = federation.join("party-2")
    assert [services[name].wait() for name in ("up", *federation.names)] == [0, 0, 0, 0], services["up"].err
    summary = services["up"].summary
    assert summary["rounds"] == 12
    assert summary["guarantee"]["epsilon"] <= 4.0
    assert summary["guarantee"]["simulated"] is False
    messages = pq.read_table(federation.folder / "run" / "transcript" / "messages.parquet").to_pylist()
    for name in federation.names:
        ledger = Ledger.open(federation.folder / f"site-{name}" / "ledger" / f"{name}.sqlite")
        taken = [m["head"] for m in messages if (m["direction"], m["status"], m["party"]) == ("up", "ok", name)]
        assert taken
        ledger.verify(taken[-1])
        assert set(taken) <= {row.head for row in ledger.rows()}
        ledger.close()


def test_a_masked_run_killed_at_writes_and_at_a_moment_resumes_to_the_same_end(tmp_path):
    (tmp_path / "run.toml").write_text(MASKED)
    whole, resumed, hits = kill_children(tmp_path, tmp_path / "run.toml", writes=3, moments=1, seed=7)
    assert hits >= 4
    check_resumed(tmp_path, whole, resumed)
