"""Private SGDMF seen from outside: how much noise is on what leaves, and what a run leaves behind."""

import json
import math
from contextlib import chdir
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from sgdmf_cases import CASES
from sgdmf_talks import converse
from typer.testing import CliRunner

from tacit.boundary.ledger import Ledger
from tacit.boundary.wire import decode
from tacit.cli import app
from tacit.config import RunFile
from tacit.errors import PrivacyRefused
from tacit.experiment import run
from tacit.methods import chosen
from tacit.methods.factors import start_factors
from tacit.prepare.run_file import plan

# -- noise on what leaves ---------------------------------------------------------------------------------------------

#: Users, items, factors and γ of runs over no ratings at all: what moves there is noise.
CROWD, CATALOGUE, WIDE, RATE = 600, 700, 8, 1e-3


@pytest.mark.parametrize(
    ("name", "kappa"),
    [
        ("horizontal, user, pretrained", None),
        ("horizontal, user, together", None),
        ("horizontal, rating, noised", None),
        ("horizontal, rating, pretrained", None),
        ("vertical, user", 0),
        ("vertical, user", 1),
        ("vertical, rating", 1),
    ],
)
def test_the_noise_on_every_released_block_is_as_planned(tmp_path, name, kappa):
    """Measured on payloads alone, against σ = z·Δ of the rule book: at least 1,000 cells of every block of every silo.

    A step moves a cell by c times its noise, with c = γ/(η·|Ω|), times n/n_k or m/m_k where the block is shared. γ is
    so small that Π does nothing but near 0 and √R, and such cells are left out. Within 5 standard deviations of a
    sample variance: one false alarm in 1.7 million blocks.
    """
    case = replace(CASES[name], sampling=1.0).with_(rounds=1, local_steps=1, factors=WIDE, rate=RATE)
    case = case if kappa is None else case.with_(final_steps=kappa)
    heard = converse(case, [[] for _ in range(CROWD)], pin=None, items=CATALOGUE, payloads=tmp_path)
    z, facts, c = heard.plan.multiplier, heard.trained.facts, RATE / heard.plan.context.facts.ratings
    seen = 0
    for member in facts.roster:
        sent = [decode(path.read_bytes()) for path in sorted(tmp_path.glob(f"*-up-{member.name}.tct"))]
        for block, after in ((b, x) for body in sent for b, x in body.items() if b != "done"):
            weight = facts.weight(member.name) if block == case.shared else 1
            whose = () if block == case.shared else (member.name,)
            before = start_factors(facts, len(after), WIDE, block, *whose)
            variance = (c / weight * z * case.sensitivity("improve")) ** 2
            if block != case.shared and kappa:
                variance += (c * z * case.sensitivity("finish")) ** 2
            if heard.plan.parameters.summed and case.by == "user":  # one step: the gradient itself leaves
                before, variance = np.zeros_like(before), (z * case.sensitivity("improve")) ** 2
            free = (
                (before == 0)
                if not before.any()
                else (before > 0.1) & (np.square(before).sum(axis=1, keepdims=True) < 0.9 * case.span)
            )
            moved = (after.astype(np.float64) - before)[free]
            assert moved.size > 1000
            assert abs(np.var(moved) / variance - 1) < 5 * math.sqrt(2 / moved.size), block
            assert abs(np.mean(moved)) < 5 * math.sqrt(variance / moved.size)
            assert np.count_nonzero(moved) > 0.99 * moved.size
            rows = np.array([np.any(a != b) for a, b in zip(after, before, strict=True)])
            assert rows.all()  # nobody was sampled, and nothing rated: every row has noise all the same
            seen += 1
    assert seen == len(facts.roster) * (1 if case.by == "user" else 2)


# -- what a run leaves behind -----------------------------------------------------------------------------------------


def file(**sections) -> RunFile:
    base = {
        "data": {"source": "demo", "users": 40, "items": 15, "ratings": 400},
        "partition": {"into": 2},
        "method": {"name": "sgdmf", "factors": 3, "rounds": 2, "local_steps": 2, "sampling": 1.0},
        "privacy": {"epsilon": 4.0, "delta": 1e-6, "unit": "user"},
        "engine": {"transcript": "full"},
    }
    return RunFile.model_validate({name: {**base.get(name, {}), **sections.get(name, {})} for name in base | sections})


RUNS = {
    "pretrained": file(),
    "together": file(method={"users": "together"}),
    "noised": file(privacy={"unit": "rating"}),
    "vertical": file(partition={"by": "item"}),
}


@pytest.fixture(scope="module", params=RUNS)
def done(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("done") / "run"
    run(RUNS[request.param], folder)
    return request.param, folder


def test_the_model_holds_shared_factors_and_nothing_else(done):
    name, folder = done
    files = {path.name for path in (folder / "model").rglob("*")}
    assert files == {"model.json", "factors.npz"}
    with np.load(folder / "model" / "factors.npz") as arrays:
        shapes = {key: arrays[key].shape for key in arrays}
    users = {"states": (40, 3)} if name == "vertical" else {}
    assert shapes == {"item_ids": (15,), "items": (15, 3), **users}
    about = json.loads((folder / "model" / "model.json").read_text())
    assert sorted(about) == ["declared", "form", "format", "method", "numbers", "scale", "stamp"]
    assert "-DP · per" in about["stamp"]


def test_an_export_holds_no_more_than_the_model(done):
    name, folder = done
    with chdir(folder.parent):
        answer = CliRunner().invoke(app, ["export", "run", "--out", f"out-{name}"])
    assert answer.exit_code == 0, answer.stderr
    tables = {path.name: pq.read_table(path) for path in (folder.parent / f"out-{name}").glob("*.parquet")}
    assert set(tables) == {"items.parquet"} | ({"users.parquet"} if name == "vertical" else set())
    assert (tables["items.parquet"].num_rows, tables["items.parquet"].num_columns) == (15, 4)


def test_the_full_transcript_holds_copies_of_shared_factors_and_public_facts(done):
    name, folder = done
    messages = pq.read_table(folder / "transcript" / "messages.parquet").to_pylist()
    payloads = {path.name: decode(path.read_bytes()) for path in (folder / "transcript" / "payloads").iterdir()}
    up = [body for file, body in payloads.items() if "-up-" in file]
    assert len(up) == sum(message["direction"] == "up" for message in messages)
    shared, rows = ("users", 40) if name == "vertical" else ("items", 15)
    for body in up:
        if "done" in body:
            assert body == {"done": True}
        elif name == "vertical" and list(body) == ["items"]:
            assert body["items"].shape in ((7, 3), (8, 3))
        else:
            assert {block: array.shape for block, array in body.items()} == {shared: (rows, 3)}
    for body in (body for file, body in payloads.items() if "-down" in file):
        assert body.keys() <= {shared, "t"}
    improved = sum(shared in body for body in up)
    assert improved == 2 * 2  # T rounds of two silos
    steps = {message["step"] for message in messages}
    assert steps == {"improve", "finish"} | ({"pretrain"} if name == "pretrained" else set())


def test_what_silos_keep_is_in_no_file_but_their_ledgers(done):
    """Rows of U and of fine-tuned V_k, byte for byte; unrated items' rows of V_k are V's, and are left out."""
    name, folder = done
    with np.load(folder / "model" / "factors.npz") as arrays:
        public = {row.tobytes() for key in ("items", "states") if key in arrays for row in arrays[key]}
    kept, own = set(), {"own users", "own items"}
    names = {"pretrained": own | {"users"}, "together": own | {"users"}, "noised": own, "vertical": set()}[name]
    for path in sorted((folder / "ledger").glob("*.sqlite")):
        ledger = Ledger.open(path)
        home = decode(ledger.state())
        ledger.close()
        kept |= {row.tobytes() for key in names for row in home[key]}
    kept = {row for row in kept - public if any(row)}
    assert bool(kept) is (name != "vertical")
    for path in folder.rglob("*"):
        if path.is_file() and path.parent.name != "ledger":
            body = path.read_bytes()
            assert not any(row in body for row in kept), path


# -- what is said about it --------------------------------------------------------------------------------------------


def test_an_ideal_sum_that_no_step_uses_is_refused():
    """`bias` refuses it where items are divided; here the guarantee speaks of one colluding party instead."""
    with pytest.raises(PrivacyRefused, match="hides contributions to a sum alone, and sgdmf has none here"):
        plan(file(aggregation={"name": "ideal"}), *chosen({"name": "sgdmf", "sampling": 1.0}))


def test_a_kept_ledger_is_read_under_the_relation_it_was_kept_for(tmp_path):
    """Per rating at pre-trained factors replace is what counts: ε = 4, of which zero-out would show 1.9."""
    ledger = {"unit": "rating", "ledger": str(tmp_path / "kept")}
    summary = run(file(privacy=ledger, method={"users": "pretrained"}), tmp_path / "run")
    answer = CliRunner().invoke(app, ["ledger", "show", str(tmp_path / "kept"), "--json", "--delta", "1e-6"])
    reached = [entry["epsilon"] for entry in json.loads(answer.stdout)["ledgers"]]
    assert reached == [pytest.approx(summary["guarantee"]["epsilon"])] * 2
