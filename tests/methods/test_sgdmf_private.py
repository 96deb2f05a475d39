"""Private SGDMF seen from outside: how much noise is on what leaves, and what a run leaves behind."""

import json
from contextlib import closing

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tacit.boundary.ledger import Ledger, ledgers_in
from tacit.boundary.wire import decode
from tacit.cli import app
from tacit.config import RunFile
from tacit.experiment import run

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
    for path in ledgers_in(folder):
        with closing(Ledger.open(path)) as ledger:
            home = decode(ledger.state())
        kept |= {row.tobytes() for key in names for row in home[key]}
    kept = {row for row in kept - public if any(row)}
    assert bool(kept) is (name != "vertical")
    for path in folder.rglob("*"):
        if path.is_file() and path.parent.name != "ledger":
            body = path.read_bytes()
            assert not any(row in body for row in kept), path


# -- what is said about it --------------------------------------------------------------------------------------------


def test_a_kept_ledger_is_read_under_the_relation_it_was_kept_for(tmp_path):
    """Per rating at pre-trained factors replace is what counts: ε = 4, of which zero-out would show 1.9."""
    ledger = {"unit": "rating", "ledger": str(tmp_path / "kept")}
    summary = run(file(privacy=ledger, method={"users": "pretrained"}), tmp_path / "run")
    answer = CliRunner().invoke(app, ["ledger", "show", str(tmp_path / "kept"), "--json", "--delta", "1e-6"])
    reached = [entry["epsilon"] for entry in json.loads(answer.stdout)["ledgers"]]
    assert reached == [pytest.approx(summary["guarantee"]["epsilon"])] * 2
