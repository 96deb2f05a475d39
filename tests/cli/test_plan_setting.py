"""`tacit plan` and the run have one setting, whatever column [partition] names."""

import json

import pyarrow as pa
import pyarrow.csv as csv
import pytest
from typer.testing import CliRunner

from tacit.cli import app
from tacit.config import RunFile
from tacit.data.load import load, side_columns
from tacit.data.synthetic import demo
from tacit.errors import UsageError
from tacit.partition import partition
from tacit.prepare.loaded import prepare
from tacit.prepare.run_file import setting_in_data


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A folder with ratings and side tables, and the same tables under other names."""
    folder, made = tmp_path_factory.mktemp("shop"), demo(users=40, items=30, ratings=300)
    users = made.user_attributes.add_column(0, "user", pa.array(made.user_ids.ids.tolist()))
    items = made.item_attributes.add_column(0, "item", pa.array(made.item_ids.ids.tolist()))
    (folder / "set").mkdir()
    for path in (folder / "set" / "users.csv", folder / "people.csv"):
        csv.write_csv(users, path)
    for path in (folder / "set" / "items.csv", folder / "things.csv"):
        csv.write_csv(items, path)
    for path in (folder / "set" / "ratings.csv", folder / "bought.csv"):
        csv.write_csv(made.to_arrow(), path)
    return folder


def file_of(shop, by, source="set", method=None, **data):
    public = {"scale": (1, 5), "users": 40, "catalogue": str(shop / "things.csv")}
    table = {"data": {"source": str(shop / source), **data}, "partition": {"by": by, "into": 2}, "public": public}
    run = {**table, "method": method or {"name": "bias"}, "privacy": {"epsilon": 1.0}}
    path = shop / f"{by}.toml"
    path.write_text(RunFile.model_validate(run).to_toml())
    return path


def both(path) -> tuple[str, str]:
    """The setting that `tacit plan` prints, and that of the run, once its data is divided."""
    answer = CliRunner().invoke(app, ["plan", str(path), "--json"])
    assert answer.exit_code == 0, answer.output
    prepared = prepare(RunFile.read(path))
    assert prepared.run.facts.setting is prepared.parties.setting
    return json.loads(answer.stdout)["setting"], str(prepared.parties.setting)


@pytest.mark.parametrize(
    ("by", "setting"), [("age", "horizontal"), ("year", "vertical"), ("genre", "vertical"), ("genres", "vertical")]
)
def test_plan_and_run_agree(shop, by, setting):
    assert both(file_of(shop, by)) == (setting, setting)


@pytest.mark.parametrize(("by", "setting"), [("gender", "horizontal"), ("year", "vertical")])
def test_tables_that_the_run_file_names_count(shop, by, setting):
    tables = {"user_table": str(shop / "people.csv"), "item_table": str(shop / "things.csv")}
    assert both(file_of(shop, by, "bought.csv", **tables)) == (setting, setting)


def test_a_method_for_one_setting_is_not_refused_for_a_column_of_that_setting(shop):
    method = {"name": "local-private", "rounds": 1, "local_steps": 1, "sampling": 1.0, "factors": 2}
    assert both(file_of(shop, "year", method=method)) == ("vertical", "vertical")


def test_every_column_of_the_demo_is_decided_as_the_partition_does():
    made = load("demo", users=40, items=30, ratings=300)
    columns = side_columns("demo")
    assert columns == {"user": made.user_attributes.column_names, "item": made.item_attributes.column_names}
    for by in ("age", "zip1", "genres", "year"):
        file = RunFile.model_validate({"partition": {"by": by}, "privacy": {"epsilon": 1.0}})
        assert setting_in_data(file) is partition(made, by=by).setting


def test_a_table_that_is_not_there_is_one_sentence(shop):
    answer = CliRunner().invoke(app, ["plan", str(file_of(shop, "year", "elsewhere"))])
    assert answer.exit_code == 3
    assert 'by = "year" divides users or items is read off the data: There is no file' in answer.output


def test_a_column_that_nobody_has_is_one_sentence(shop):
    path = file_of(shop, "colour")
    answer = CliRunner().invoke(app, ["plan", str(path)])
    assert answer.exit_code == 2
    assert 'No table of users or items has a column "colour"' in answer.output
    with pytest.raises(UsageError, match="cannot be divided"):
        prepare(RunFile.read(path))
