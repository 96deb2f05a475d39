"""A run between sites that uses attributes of items: lists in several formats are one catalogue, another is refused."""

import json

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from services import Federation

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
name = "bias"
[privacy]
epsilon = 2.0
delta = 1e-6
"""


@pytest.fixture
def federation(tmp_path):
    made = Federation(tmp_path, RUN)
    items = made.ratings.item_attributes.add_column(0, "item", pa.array(made.ratings.item_ids.ids))
    pq.write_table(items, tmp_path / "items.parquet")
    csv.write_csv(items.select(["year", "item", "genres"]), tmp_path / "same.csv")
    years = [*items["year"].to_pylist()[:-1], 1900]
    csv.write_csv(items.set_column(3, "year", pa.array(years)), tmp_path / "other.csv")
    yield made
    made.stop()


def test_sites_that_were_given_the_same_attributes_take_part_and_another_refuses(federation):
    coordinator = federation.up()
    federation.until(lambda: federation.status("run").get("state") == "waiting")
    look = ("join", "party-1.kit", "--data", "party-1.csv", "--check", "--json", "--items")
    told = {}
    for name, code in (("other.csv", 4), ("items.csv", 4), ("same.csv", 0)):
        findings = json.loads(federation.tacit(*look, name, code=code).stdout)["findings"]
        told[name] = " ".join(finding["found"] for finding in findings)
    assert 'The offered item attribute "year" is not the one that this site was given (--items).' in told["other.csv"]
    assert 'uses the item attribute "genres", and the list of items' in told["items.csv"]
    assert "it uses the item attributes genres and year" in told["same.csv"]
    lists = {"party-1": ("--items", "same.csv"), "party-2": ("--items", "items.parquet"), "party-3": ()}
    sites = [federation.join(name, *more) for name, more in lists.items()]
    assert coordinator.wait() == 0, coordinator.err
    assert [site.wait() for site in sites] == [0, 0, 0]
    assert coordinator.summary["guarantee"]["epsilon"] <= 2.0
    card = (federation.folder / "run" / "card.md").read_text()
    assert "Assumed public: the list of 30 items and their attributes genres, year." in card
