"""`examples/device.py` as processes: they take part through the proxy with the core dependencies alone."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv
import pytest
from services import Federation, Service
from test_proxy_runs import DEPLOYED

from tacit.boundary.ledger import Ledger
from tacit.data.synthetic import demo
from tacit.deploy.local_sites import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "device.py"
#: Runs the example where neither FLARE nor aiohttp can be imported, and prints what of them was.
ALONE = """
import runpy, sys
del sys.argv[0]
sys.modules["nvflare"] = sys.modules["aiohttp"] = sys.modules["grpc"] = None
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    foreign = [m for m in sys.modules if m.partition(".")[0] in ("nvflare", "aiohttp", "grpc") and sys.modules[m]]
    print("foreign:", foreign)
"""


@pytest.fixture
def federation(tmp_path):
    """Four devices with kits for the proxy, and a proxy that runs."""
    made = Federation(tmp_path, DEPLOYED, parties=4, ratings=demo(users=4, items=10, ratings=32))
    for k, name in enumerate(made.names):
        csv.write_csv(made.ratings.keep(made.ratings.users == k).to_arrow(), tmp_path / f"{name}.csv")
        (tmp_path / f"{name}.kit").unlink()
    csv.write_csv(pa.table({"item": made.ratings.item_ids.ids}), tmp_path / "items.csv")
    made.tacit("keys", "invite", "keys", "--role", "proxy", "--at", f"localhost:{free_port()}")
    made.tacit("keys", "invite", "keys", *made.names, "--devices")
    made.proxy = proxy_of(made)
    yield made
    made.stop()


def proxy_of(federation) -> Service:
    return federation._started(Service(["proxy", "proxy.kit"], federation.folder, "proxy"))


class Process(Service):
    """One device."""

    def start(self):
        out, err = ((self.folder / f"{self.name}.{end}").open("ab") for end in ("out", "err"))
        with out, err:
            command = [sys.executable, "-c", ALONE, str(EXAMPLE), f"{self.name}.kit", *self.arguments]
            self.process = subprocess.Popen(command, cwd=self.folder, stdout=out, stderr=err, start_new_session=True)
        return self


def device(federation, name, *more) -> Process:
    arguments = ["--data", f"{name}.csv", "--max-epsilon", "8", *more]
    return federation._started(Process(arguments, federation.folder, name))


def spent(federation, name):
    with closing(Ledger.open(federation.folder / f"device-{name}" / "ledger" / f"{name}.sqlite")) as ledger:
        return ledger.rows()


def test_devices_take_part_with_the_core_dependencies_and_recommend_at_home(federation):
    devices = [device(federation, name, "-n", "3") for name in federation.names]
    up = federation.up("--wait", "100")
    assert up.wait() == 0, up.err
    assert [one.wait() for one in devices] == [0] * 4, [one.err for one in devices]
    digest = up.summary["digest"]
    asked = set()
    for one in devices:
        first, *best, foreign = one.out.splitlines()
        assert first.endswith(f"digest {digest}")
        assert foreign == "foreign: []"
        rated = {str(row["item"]) for row in csv.read_csv(federation.folder / f"{one.name}.csv").to_pylist()}
        assert len(best) == min(3, federation.ratings.n_items - len(rated))
        assert not rated & {line.split("\t")[0] for line in best}
        rows = spent(federation, one.name)
        assert [row.kind for row in rows].count("report") == 6
        asked.add(tuple(row.request for row in rows if row.step in ("reports", "send:report")))
    written = (federation.folder / "site-proxy" / "log.jsonl").read_text()
    assert "party-" not in written
    assert len(asked) == 1  # everybody was sent the same requests


def test_a_run_of_devices_goes_on_over_kills_of_the_proxy_and_of_a_device(federation):
    """Everybody sends the same bytes again, and is charged once."""
    devices = {name: device(federation, name) for name in federation.names}
    up = federation.up("--wait", "100")
    federation.until(lambda: federation.round() >= 1 or up.process.poll() is not None)
    federation.proxy.kill()
    proxy_of(federation)
    federation.until(lambda: federation.round() >= 3 or up.process.poll() is not None)
    devices["party-2"].kill()
    devices["party-2"] = device(federation, "party-2")
    assert up.wait() == 0, up.err
    assert [one.wait() for one in devices.values()] == [0] * 4, [one.err for one in devices.values()]
    for name in federation.names:
        assert [row.kind for row in spent(federation, name)].count("report") == 6


def test_kits_of_devices_need_a_proxy(tmp_path):
    made = Federation(tmp_path, DEPLOYED, parties=2, ratings=demo(users=2, items=10, ratings=16))
    refused = made.tacit("keys", "invite", "keys", "party-3", "--devices", code=2)
    assert "none is invited" in refused.stderr
    refused = made.tacit("keys", "invite", "keys", "catalogue", "--devices", code=2)
    assert "--devices is for parties" in refused.stderr
