"""A role in a process of its own: the same run as in one process, over kills of the role and of the coordinator."""

import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from services import Federation

from tacit.config import RunFile
from tacit.data.catalogue import Catalogue
from tacit.data.synthetic import demo
from tacit.deploy.local_sites import LocalSites
from tacit.deploy.local_sites import train as train_apart
from tacit.federation import Facts
from tacit.methods import known
from tacit.partition import partition
from tacit.prepare.run_file import prepared
from tacit.prepare.simulate import train
from tacit.prepare.simulated_ledgers import Records
from tacit.testing.role_method import WEIGHED, install

NAME, ROUNDS = WEIGHED.name, 4


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The method with a role, installed for every process that is started, and known to this one."""
    place = install(tmp_path / "installed")
    paths = [str(place), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    known()[NAME] = WEIGHED
    yield tmp_path
    del known()[NAME]


@pytest.fixture
def world():
    parties = partition(demo(users=40, items=20, ratings=400), into=2)
    ids = parties.catalogue.ids
    years = pa.table({"year": np.arange(len(ids), dtype=np.float32), "kind": ["a|b", "b"] * (len(ids) // 2)})
    return parties, {"catalogue": Catalogue(ids, years, ("year", "kind"))}


def run_of(parties, privacy):
    sections = {"privacy": {"epsilon": 8.0, "delta": 1e-4}} if privacy else {}
    file = RunFile.model_validate(
        {
            "data": {"source": "demo", "users": 40, "items": 20, "ratings": 400},
            "partition": {"into": 2},
            "method": {"name": NAME, "rounds": ROUNDS},
            "engine": {"name": "flare", **({"seeded": True} if privacy else {})},
            **sections,
        }
    )
    return file, prepared(file, Facts.of(parties, file.seed), run="run-1")


@pytest.mark.parametrize("privacy", [False, True], ids=["without privacy", "private"])
def test_a_role_apart_gives_the_same_digest_and_so_it_does_when_it_is_killed(installed, world, privacy):
    parties, brought = world
    file, made = run_of(parties, privacy)
    records = Records.unlimited(made, installed / "ledgers")
    here = train(made, parties, records=records, brought=brought)
    sites = LocalSites(installed / "sites", (*parties.names, *made.roles))

    def disturb(round):
        if round == 2:
            sites.kill("catalogue")
            sites.start("catalogue")

    try:
        sites.start_all()
        apart = train_apart(sites, file, made, parties, disturb=disturb, brought=brought)
    finally:
        sites.stop()
    assert apart.transcript.digest == here.transcript.digest
    assert {e.party for e in apart.transcript.entries if e.step == "weigh"} == {"catalogue"}
    answered = [line for line in _log(sites.folder / "catalogue") if line["event"] == "answered"]
    told = [e.digest for e in here.transcript.entries if e.step == "weigh" and e.direction == "up"]
    assert list(dict.fromkeys(line["digest"] for line in answered)) == told
    assert not list((sites.folder / "catalogue").rglob("*.sqlite"))


def _log(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


RUN = f"""
seed = 3
[method]
name = "{NAME}"
rounds = 60
[partition]
into = 2
[public]
scale = [1, 5]
users = 60
catalogue = "items.csv"
"""
PRIVACY = """
[privacy]
epsilon = 8.0
delta = 1e-4
"""


def federation(folder, run=RUN):
    """Keys, kits and data of two parties and a catalogue."""
    folder.mkdir()
    made = Federation(folder, run, parties=2, ratings=demo(users=60, items=20, ratings=900))
    made.tacit("keys", "invite", "keys", "catalogue")
    items = made.ratings.item_ids.ids
    pq.write_table(pa.table({"item": items, "year": np.arange(len(items))}), folder / "own.parquet")
    return made


def joined(made, *more):
    for name in made.names:
        made.join(name, *more)
    return made.join("catalogue", data="own.parquet")


def whole(made, *more):
    """The summary of a run that nobody disturbs."""
    up, role = made.up(), joined(made, *more)
    try:
        made.until(lambda: up.process.poll() is not None or role.process.poll() not in (None, 0))
        assert role.wait() == 0, role.err
        assert up.wait() == 0, up.err
    finally:
        made.stop()
    return up.summary


def test_a_run_goes_on_when_the_role_and_then_the_coordinator_are_killed(installed):
    undisturbed = whole(federation(installed / "whole"), "--non-private")
    made = federation(installed / "cut")
    up, role = made.up(), joined(made, "--non-private")
    try:
        made.until(lambda: made.round() >= 3)
        role.kill()
        made.until(lambda: made.status("run")["peers"]["catalogue"]["state"] == "absent")
        role = made.join("catalogue", data="own.parquet")
        made.until(lambda: made.round() >= 8)
        up.kill()
        up = made.up(name="again")
        assert up.wait() == 0, up.err
        assert role.wait() == 0, role.err
    finally:
        made.stop()
    assert up.summary["digest"] == undisturbed["digest"]
    assert "What catalogue answered, by digest" in role.out
    assert not (made.folder / "site-catalogue" / "ledger").exists()


def test_a_private_run_with_a_role_ends_and_parties_alone_have_ledgers(installed):
    made = federation(installed / "private", RUN.replace("rounds = 60", "rounds = 3") + PRIVACY)
    assert whole(made)["guarantee"]["epsilon"] <= 8.0
    about = json.loads((made.folder / "run" / "about.json").read_text())
    assert [party["name"] for party in about["partition"]["parties"]] == list(made.names)
    for name in made.names:
        made.tacit("ledger", "verify", f"site-{name}/ledger")
    assert not (made.folder / "site-catalogue" / "ledger").exists()


def test_what_a_role_s_kit_is_for_is_said_before_anything_starts(installed):
    made = federation(installed / "refused")
    refused = made.tacit("join", "catalogue.kit", "--max-epsilon", "3", code=2)
    assert "--max-epsilon is for sites with ratings, and the kit is for catalogue" in refused.stderr
    assert "--data" in made.tacit("join", "party-1.kit", code=2).stderr
    made.tacit("keys", "revoke", "keys", "catalogue")
    uninvited = made.tacit("up", "run.toml", "--keys", "keys", code=2)
    assert "The run needs catalogue, which is not invited" in uninvited.stderr
    assert "tacit keys invite keys catalogue" in uninvited.stderr


def test_a_role_can_look_before_it_joins(installed):
    made = federation(installed / "look")
    up = made.up()
    try:
        made.until(lambda: made.status("run").get("state") == "waiting")
        seen = made.tacit("join", "catalogue.kit", "--data", "own.parquet", "--check", "--json")
        findings = {found["what"]: found["found"] for found in json.loads(seen.stdout)["findings"]}
        assert "20 items with year" in findings["data"]
        assert f"satisfies them ({NAME}" in findings["this site's rules"]
        assert "privacy" not in findings
        assert "party-1" not in up.err.split("waiting for")[0]
    finally:
        made.stop()
