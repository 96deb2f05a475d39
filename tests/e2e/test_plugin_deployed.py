"""A method of another package between organisations: sites that have it take part, one that has not refuses."""

import secrets

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from plugged import installed, plugged
from services import Federation

from tacit.config import RunFile
from tacit.deploy.local_sites import LocalSites, train
from tacit.prepare.loaded import prepare
from tacit.prepare.simulate import train as simulate
from tacit.prepare.simulated_ledgers import Records

RUN = """
seed = 7
[public]
scale = [1, 5]
users = 90
catalogue = "items.parquet"
features = ["genres", "year"]
[partition]
into = 3
[method]
name = "feature-slopes"
[privacy]
epsilon = 4.0
delta = 1e-6
[aggregation]
name = "secagg"
tolerate = 0.0
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder of installed packages with the plugin in it."""
    return installed(tmp_path_factory.mktemp("site"))


@pytest.fixture
def federation(tmp_path):
    made = Federation(tmp_path, RUN)
    items = made.ratings.item_attributes.add_column(0, "item", pa.array(made.ratings.item_ids.ids))
    pq.write_table(items, tmp_path / "items.parquet")
    yield made
    made.stop()


@pytest.mark.parametrize("privacy", [None, {"epsilon": 4.0, "delta": 1e-4}], ids=["non-private", "seeded noise"])
@pytest.mark.parametrize("aggregation", ["plain", "secagg"])
def test_three_sites_say_what_is_said_in_one_process(site, tmp_path, monkeypatch, aggregation, privacy):
    monkeypatch.setenv("PYTHONPATH", str(site))
    file = RunFile.model_validate(
        {
            "data": {"users": 60, "items": 40, "ratings": 900},
            "public": {"features": ["genres", "year"]},
            "partition": {"into": 3},
            "method": {"name": "feature-slopes", "directions": 3},
            "privacy": privacy,
            "aggregation": {"name": aggregation, "tolerate": 0.0},
            "engine": {"name": "flare", "seeded": None if privacy is None else True},
        }
    )
    with plugged():
        made = prepare(file)
        run, parties = made.run.named(secrets.token_hex(16)), made.parties
        here = simulate(run, parties, records=Records.of(run, tmp_path / "ledgers"))
        sites = LocalSites(tmp_path / "sites", parties.names)
        try:
            sites.start_all()
            apart = train(sites, file, run, parties)
        finally:
            sites.stop()
    assert apart.transcript.digest == here.transcript.digest
    pairs = (made.test.users, made.test.items)
    assert (apart.predictor.predict(*pairs) == here.predictor.predict(*pairs)).all()


def test_sites_with_the_package_keep_a_promise_together(federation, site):
    coordinator = federation.up(PYTHONPATH=str(site))
    sites = [federation.join(name, PYTHONPATH=str(site)) for name in federation.names]
    assert coordinator.wait() == 0, coordinator.err
    assert [one.wait() for one in sites] == [0, 0, 0]
    promise = coordinator.summary["guarantee"]
    assert 3.9 < promise["epsilon"] <= 4.0
    assert promise["model"] == "distributed"
    card = (federation.folder / "run" / "card.md").read_text()
    assert all(f"`{step}`" in card or step in card for step in ("means", "tastes", "slopes"))
    assert "SIMULATED" not in card
