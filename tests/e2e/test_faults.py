"""Services that are killed, absent, late or out of budget: the run goes on or ends with a sentence, and nothing is
charged twice, lost or told that should stay at home.
"""

import json
import os
import random
import re
import secrets
import shutil
import signal
import time
import urllib.request

import pyarrow.parquet as pq
import pytest
from services import PATIENCE, Federation, Service

from tacit.boundary.ledger import Ledger
from tacit.config import RunFile
from tacit.deploy.local_sites import LocalSites, train
from tacit.experiment import run as simulate
from tacit.prepare.loaded import prepare

TIMES = int(os.environ.get("TACIT_KILLS", "50"))

METHOD = """
seed = 7
[public]
scale = [1, 5]
users = 90
catalogue = "items.csv"
[method]
name = "sgdmf"
factors = 3
rounds = {rounds}
local_steps = 1
sampling = 1.0
"""
PRIVACY = """
[privacy]
epsilon = 4.0
delta = 1e-6
"""
SECAGG = """
[aggregation]
name = "secagg"
tolerate = 0.3
"""


@pytest.fixture
def federation(tmp_path):
    made: list[Federation] = []

    def make(run_toml: str, parties: int = 2) -> Federation:
        made.append(Federation(tmp_path, run_toml, parties=parties))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def one_sentence(err: str) -> str:
    """What a service said last: a sentence, and no traceback above it."""
    last = err.strip().splitlines()[-1]
    assert last.startswith("tacit: ")
    assert last.endswith(".")
    assert "Traceback" not in err
    return last


def check_ledgers(federation: Federation, names: tuple[str, ...], rounds: int, whole: bool = True) -> None:
    """Every answer that the coordinator took is a row, once, in its order; no round was answered twice."""
    messages = pq.read_table(federation.folder / "run" / "transcript" / "messages.parquet").to_pylist()
    for name in names:
        ledger = Ledger.open(federation.folder / f"site-{name}" / "ledger" / f"{name}.sqlite")
        taken = [m["head"] for m in messages if (m["direction"], m["status"], m["party"]) == ("up", "ok", name)]
        assert taken
        ledger.verify(taken[-1])
        rows = ledger.rows()
        heads = [row.head for row in rows]
        assert [head for head in heads if head in set(taken)] == taken
        charged = [(row.round, row.attempt) for row in rows if row.step == "contribute"]
        assert len(set(charged)) == len(charged), "a round was charged twice"
        if whole:
            assert len(charged) == rounds
        ledger.close()


def test_services_of_a_private_run_that_are_killed_at_random_moments_go_on(federation):
    """Sites and coordinator in turn, kill -9, then started as before: one ledger row a round, and none too many."""
    kills, rounds = TIMES, max(150, 60 * TIMES)
    here = federation(METHOD.format(rounds=rounds) + PRIVACY)
    services = {"up": here.up(), **{name: here.join(name) for name in here.names}}
    moments, victims = random.Random(7), ["party-1", "up", "party-2"]
    here.until(lambda: here.round() >= 1)
    hits = 0
    for number in range(kills):
        name = victims[number % 3]
        reached = here.round() + moments.randint(1, 25)
        here.until(lambda reached=reached: here.round() >= reached or services["up"].process.poll() is not None)
        time.sleep(moments.uniform(0, 0.05))
        if services["up"].process.poll() is not None:
            break
        services[name].kill()
        hits += 1
        services[name] = here.up() if name == "up" else here.join(name)
        here.until(lambda reached=reached: here.round() > reached or services["up"].process.poll() is not None)
    assert hits >= min(kills, 3)
    assert services["up"].wait() == 0, services["up"].err
    assert [services[name].wait() for name in here.names] == [0, 0]
    assert services["up"].summary["rounds"] == rounds
    assert services["up"].summary["guarantee"]["epsilon"] <= 4.0
    check_ledgers(here, here.names, rounds)


LOCAL = """
seed = 7
[data]
source = "demo"
users = 60
items = 24
ratings = 900
[partition]
into = 3
[method]
name = "sgdmf"
factors = 3
rounds = 8
local_steps = 1
sampling = 1.0
"""
#: NON-PRIVATE sites go on from memory.tct, private ones from their ledgers.
KINDS = {
    "NON-PRIVATE": LOCAL,
    "private": LOCAL + PRIVACY + "[engine]\nseeded = true\n",
    "masked": LOCAL + PRIVACY + '[aggregation]\nname = "secagg"\n[engine]\nseeded = true\n',
}


@pytest.fixture(scope="module")
def local_sites(tmp_path_factory):
    sites = LocalSites(tmp_path_factory.mktemp("local"), ("party-1", "party-2", "party-3"))
    sites.start_all()
    yield sites
    sites.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_a_site_killed_in_any_round_changes_nothing_of_a_seeded_run(local_sites, tmp_path, kind):
    (tmp_path / "run.toml").write_text(KINDS[kind])
    file = RunFile.read(tmp_path / "run.toml")
    whole = simulate(file, tmp_path / "whole")
    prepared = prepare(file)
    moments, hits = random.Random(7), []
    for _time in range(max(1, TIMES // 4)):
        for ledger in local_sites.folder.glob("party-*/ledger"):
            shutil.rmtree(ledger)
        made = prepared.run.named(secrets.token_hex(16))
        when = {moments.randint(1, 7): f"party-{moments.randint(1, 3)}"}

        def disturb(round, when=when):
            if (name := when.pop(round, None)) is not None:
                local_sites.kill(name)
                local_sites.start(name)
                hits.append(round)

        trained = train(local_sites, file, made, prepared.parties, disturb=disturb)
        assert trained.transcript.digest == whole["digest"]
        for path in local_sites.folder.glob("party-*/ledger/*.sqlite"):
            ledger = Ledger.open(path)
            assert ledger.verify() == len(ledger.rows()) > 0
            assert len({(row.step, row.round, row.attempt) for row in ledger.rows()}) == len(ledger.rows())
            ledger.close()
    assert hits


def test_a_site_that_never_returns_is_left_out_and_the_card_tells_and_nobody_left_is_exit_5(federation):
    here = federation(METHOD.format(rounds=200) + "[engine]\ntimeout = 2\n")
    up = here.up()
    sites = {name: here.join(name, "--non-private") for name in here.names}
    here.until(lambda: here.round() >= 5)
    sites["party-2"].kill()
    reached = here.round()
    here.until(lambda: here.round() > reached + 2)
    # and now the other one
    sites["party-1"].kill()
    assert up.wait() == 5
    assert "No party answered" in one_sentence(up.err)
    assert not (here.folder / "run" / "summary.json").exists()
    # what was learned so far is not lost: both come back, and the run goes on from its log
    again = here.up(name="again")
    sites = {name: here.join(name, "--non-private") for name in here.names}
    here.until(lambda: "party-2 has joined" in again.err and here.round() > reached + 5)
    sites["party-2"].kill()
    assert again.wait() == 0, again.err
    assert sites["party-1"].wait() == 0
    assert json.loads(again.out)["rounds"] == 200
    messages = pq.read_table(here.folder / "run" / "transcript" / "messages.parquet").to_pylist()
    assert {m["party"] for m in messages if m["status"] == "late"} >= {"party-2"}
    assert "late at times" in (here.folder / "run" / "card.md").read_text()


def test_a_secure_sum_leaves_out_a_site_that_never_returns(federation):
    here = federation(METHOD.format(rounds=6) + PRIVACY + SECAGG + "[engine]\ntimeout = 3\n", parties=4)
    up = here.up()
    sites = {name: here.join(name) for name in here.names}
    here.until(lambda: here.round() >= 2)
    sites["party-4"].kill()
    assert up.wait() == 0, up.err
    assert [sites[name].wait() for name in here.names[:3]] == [0, 0, 0]
    assert up.summary["guarantee"]["epsilon"] <= 4.0
    messages = pq.read_table(here.folder / "run" / "transcript" / "messages.parquet").to_pylist()
    assert {m["party"] for m in messages if m["status"] == "late"} == {"party-4"}
    assert "late at times" in (here.folder / "run" / "card.md").read_text()
    check_ledgers(here, here.names[:3], 6, whole=False)


def test_a_coordinator_that_never_returns_ends_a_site_with_exit_5_and_a_whole_ledger(federation):
    here = federation(METHOD.format(rounds=300) + PRIVACY)
    up = here.up()
    here.until(lambda: "Listening" in up.err)  # or two seconds may be too few to find it
    site, other = here.join("party-1", "--wait", "2"), here.join("party-2", "--wait", "600")
    here.until(lambda: here.round() >= 5)
    up.kill()
    assert site.wait() == 5
    assert "was absent for 2 seconds" in one_sentence(site.err)
    assert other.process.poll() is None
    ledger = Ledger.open(here.folder / "site-party-1" / "ledger" / "party-1.sqlite")
    rows = ledger.rows()
    assert ledger.verify() == len(rows)
    ledger.close()
    other.kill()
    # it was not all for nothing: when both are back, the run goes on, and what left is not charged again
    again, back = here.up(name="again"), [here.join(name) for name in here.names]
    assert again.wait() == 0, again.err
    assert [site.wait() for site in back] == [0, 0]
    check_ledgers(here, here.names, 300)


def test_services_say_where_their_health_is_told(federation):
    here = federation(METHOD.format(rounds=2))
    for service in (here.up("--health", "0"), here.join("party-1", "--health", "0")):
        here.until(lambda said=service: "/health" in said.err)
        address = re.search(r"http://127\.0\.0\.1:\d+/health", service.err).group(0)
        with urllib.request.urlopen(address, timeout=10) as answer:
            told = json.load(answer)
        assert (told["status"], told["role"]) == ("ok", "coordinator" if service.name == "up" else "party-1")


def test_two_coordinators_do_not_share_a_port(federation):
    here = federation(METHOD.format(rounds=2))
    first = here.up()
    here.until(lambda: "Listening" in first.err)
    second = Service(["up", "run.toml", "--keys", "keys", "--out", "other", "--wait", "1"], here.folder, "second")
    here.services.append(second.start())
    assert second.wait() == 5
    assert "is another one running there?" in second.err
    assert not (here.folder / "other").exists()


#: Seconds within which a service stops, on a busy machine too; one that waits for its peers takes minutes.
SOON = 60


def stopped(service: Service, number: signal.Signals, times: int = 1) -> float:
    """Ask a service to stop, again and again; how many seconds it took."""
    began = time.monotonic()
    for _time in range(times):
        service.process.send_signal(number)
        time.sleep(0.05)
    service.wait()
    return time.monotonic() - began


def check_stopped(here: Federation, up: Service, number: signal.Signals, times: int = 1) -> None:
    assert stopped(up, number, times) < SOON
    assert up.process.returncode == 130
    assert "Stopped; sites wait, and the run goes on with --resume" in one_sentence(up.err)
    assert here.status("run")["state"] == "stopped"


def test_services_that_are_asked_to_stop_stop_soon_and_go_on_later(federation):
    """A coordinator while it waits for sites, and for the answer of one that was killed; a second signal is nothing."""
    here = federation(METHOD.format(rounds=60))
    up = here.up(name="first")
    here.until(lambda: "Listening" in up.err)
    check_stopped(here, up, signal.SIGTERM, times=3)
    up = here.up(name="second")
    sites = {name: here.join(name, "--non-private") for name in here.names}
    here.until(lambda: here.round() >= 3)
    sites["party-2"].kill()
    time.sleep(0.3)
    check_stopped(here, up, signal.SIGINT)
    assert stopped(sites["party-1"], signal.SIGINT) < SOON
    assert sites["party-1"].process.returncode == 0
    assert "Stopped; join again" in one_sentence(sites["party-1"].err)
    assert here.status("site-party-1")["state"] == "stopped"
    up, sites = here.up(name="third"), [here.join(name, "--non-private") for name in here.names]
    assert up.wait() == 0, up.err
    assert [site.wait() for site in sites] == [0, 0]
    assert up.summary["rounds"] == 60


def test_an_experiment_that_is_interrupted_says_so_and_leaves_no_site(tmp_path):
    (tmp_path / "run.toml").write_text(LOCAL.replace("rounds = 8", "rounds = 400"))
    up = Service(["up", "run.toml", "--local", "3", "--out", "run"], tmp_path, "up").start()
    try:
        path = tmp_path / "run" / "sites" / "coordinator" / "status.json"
        deadline = time.monotonic() + PATIENCE
        while not path.exists() or (json.loads(path.read_text())["round"] or 0) < 3:
            assert time.monotonic() < deadline, up.err
            time.sleep(0.02)
        assert stopped(up, signal.SIGINT) < SOON
    finally:
        if up.process.poll() is None:
            up.kill()
    assert up.process.returncode == 130
    assert 'Stopped; the run goes on with --resume and "run".' in one_sentence(up.err)
    states = [json.loads(path.read_text()) for path in (tmp_path / "run" / "sites").glob("*/status.json")]
    assert len(states) == 4
    assert {state["state"] for state in states} == {"stopped"}
    for state in states:
        with pytest.raises(ProcessLookupError):
            os.kill(state["pid"], 0)


def told_to_the_coordinator(here: Federation, *services: str) -> str:
    """Everything that a coordinator has of a run: its folder, its keys' record, what it printed."""
    files = [path for path in (here.folder / "run").rglob("*") if path.is_file()]
    texts = [path.read_bytes().decode("latin-1") for path in (*files, here.folder / "keys" / "federation.json")]
    return "\n".join(
        [*texts, *((here.folder / f"{name}.{end}").read_text() for name in services for end in ("out", "err"))]
    )


def test_a_site_whose_budget_is_too_small_refuses_and_the_coordinator_does_not_learn_it(federation):
    here = federation(METHOD.format(rounds=2) + PRIVACY, parties=3)
    up, frugal = here.up(), here.join("party-1", "--max-epsilon", "1.2345")
    other, third = here.join("party-2"), here.join("party-3")
    assert frugal.wait() == 4
    assert "1.2345" in one_sentence(frugal.err)
    assert up.wait() == 0, up.err
    assert other.wait() == 0, other.err
    assert third.wait() == 0, third.err
    assert "1.2345" not in told_to_the_coordinator(here, "up")
    shown = here.tacit("ledger", "show", "site-party-1/ledger", "--json")  # nothing left, and the refusal is kept
    (kept,) = json.loads(shown.stdout)["ledgers"]
    assert (kept["releases"], kept["refusals"]["number"]) == ([], 1)
    # the other one has spent what it allowed: a second run of another seed is refused, whatever the coordinator says
    shutil.move(here.folder / "run", here.folder / "first")
    (here.folder / "run.toml").write_text(METHOD.format(rounds=2) + PRIVACY + 'on_refusal = "stop"\n')
    stopped, waiting = here.up("--set", "seed=8", name="stopped"), here.join("party-1")
    here.join("party-3", "--max-epsilon", "9")
    spent = here.join("party-2")
    assert spent.wait() == 4
    reached = one_sentence(spent.err)
    assert "its budget is 4" in reached
    assert stopped.wait() == 4
    assert "its budget does not cover this run" in one_sentence(stopped.err)
    amount = reached.split("ε = ")[1].split(",")[0].split(" ")[0]
    assert amount not in told_to_the_coordinator(here, "stopped")
    assert waiting.wait() == 5
    assert "The coordinator ended the run" in one_sentence(waiting.err)
