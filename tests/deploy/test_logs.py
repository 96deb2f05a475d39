"""The log: a closed vocabulary, one line an event, for its owner alone; and the engine is kept off the terminal."""

import json
import logging
import os
import re
import resource
import stat
import subprocess
import sys

import numpy as np
import pytest

from tacit.deploy import logs as module
from tacit.deploy.logs import ENGINE, NAME, ServiceLog, quiet_engine
from tacit.errors import UsageError


@pytest.fixture
def log(tmp_path):
    log = ServiceLog(tmp_path, "party-1")
    yield log
    log.close()


@pytest.fixture
def engine(monkeypatch):
    """The engine's loggers are afterwards as they were. Quiet them in the test: before it, pytest would join them."""
    monkeypatch.delenv("GRPC_VERBOSITY", raising=False)
    sources = [logging.getLogger(name) for name in ENGINE]
    before = [(list(source.handlers), source.level, source.propagate) for source in sources]
    yield
    for source, (handlers, level, propagate) in zip(sources, before, strict=True):
        source.handlers[:], source.propagate = handlers, propagate
        source.setLevel(level)


def lines(folder, name=NAME):
    return [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]


def test_an_event_is_one_line(tmp_path, log):
    log.info("sent", step="improve", round=3, bytes=1200)
    log.warning("absent", peer="party-2", seconds=1.5)
    log.error("failed", error="PeerFailed", code=5)
    first, second, third = lines(tmp_path)
    assert list(first) == ["time", "level", "event", "role", "step", "round", "bytes"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", first["time"])
    assert (first["level"], first["event"], first["role"], first["bytes"]) == ("info", "sent", "party-1", 1200)
    assert (second["level"], second["seconds"]) == ("warning", 1.5)
    assert (third["level"], third["error"]) == ("error", "PeerFailed")


@pytest.mark.parametrize(
    "fields",
    [
        *({name: "u42"} for name in ("user", "item", "rating", "user_id", "ids", "data", "message", "payload", "time")),
        *({"step": value} for value in (7, None, b"improve", ["u42"], {"u": 1}, "", "x" * 129)),
        *({"step": f"improve{c}"} for c in "\n\r\t\x00\x1b\x7f\x85\u2028\u202e\ud800"),
        *({"round": value} for value in (1.5, "3", True, None, [1], np.int64(3), 2**63)),
        *({"epsilon": value} for value in (float("nan"), float("inf"), "1", True, np.ones(2), 1j)),
    ],
    ids=repr,
)
def test_what_has_no_place_is_refused_and_not_written(tmp_path, log, fields):
    with pytest.raises(UsageError) as refusal:
        log.info("sent", **fields)
    assert "u42" not in str(refusal.value)
    assert lines(tmp_path) == []


@pytest.mark.parametrize("event", ["", "sent u42", "sending", "sent\n"])
def test_events_are_words_of_the_vocabulary(tmp_path, log, event):
    with pytest.raises(UsageError):
        log.info(event)
    assert lines(tmp_path) == []


FORGED = 'improve"}\n{"event": "done", "step": "improve'


def test_a_line_cannot_be_forged_even_where_the_check_is_forgotten(tmp_path, log, monkeypatch):
    monkeypatch.setattr(module, "_check", lambda *_args: None)
    log.info("sent", step=FORGED)
    assert [(line["event"], line["step"]) for line in lines(tmp_path)] == [("sent", FORGED)]


def test_a_log_that_joins_its_words_by_hand_is_forged(tmp_path, log, monkeypatch):
    """The planted bug: what the test above would find."""
    monkeypatch.setattr(module, "_check", lambda *_args: None)
    monkeypatch.setattr(module.json, "dumps", lambda line, **_how: f'{{"event": "sent", "step": "{line["step"]}"}}')
    log.info("sent", step=FORGED)
    assert [line["event"] for line in lines(tmp_path)] == ["sent", "done"]


def test_a_full_file_is_rotated_and_three_are_stored(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LARGEST", 1000)
    log = ServiceLog(tmp_path, "party-1")
    for n in range(60):
        log.info("sent", round=n)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [NAME, f"{NAME}.1", f"{NAME}.2", f"{NAME}.3"]
    told = [line["round"] for name in reversed(names) for line in lines(tmp_path, name)]
    assert told == list(range(60 - len(told), 60))
    assert all((tmp_path / name).stat().st_size <= 1000 for name in names)
    assert all(stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600 for name in names)


def test_only_the_owner_reads_it_whatever_lay_there_before(tmp_path):
    old = os.umask(0)
    try:
        (tmp_path / NAME).write_text("")
        (tmp_path / NAME).chmod(0o644)
        for folder in (tmp_path, tmp_path / "new"):
            ServiceLog(folder, "party-1").close()
            assert stat.S_IMODE((folder / NAME).stat().st_mode) == 0o600
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    finally:
        os.umask(old)


def test_a_restarted_service_goes_on_after_a_line_that_was_cut(tmp_path):
    (tmp_path / NAME).write_text('{"event": "sent"}\n{"event": "se')
    log = ServiceLog(tmp_path, "party-1")
    log.info("starting")
    log.info("done")
    log.close()
    kept = (tmp_path / NAME).read_text().splitlines()
    assert kept[1] == '{"event": "se'
    assert [json.loads(line)["event"] for line in kept[2:]] == ["starting", "done"]


def test_a_full_disk_costs_lines_and_their_number_is_logged(tmp_path, log):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        log.info("sent", round=1)
        log.info("sent", round=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    log.info("sent", round=3)
    log.info("sent", round=4)
    assert [(line["round"], line.get("lost")) for line in lines(tmp_path)] == [(3, 2), (4, None)]


def test_a_closed_log_is_silent(tmp_path, log):
    log.close()
    log.close()
    log.info("sent")
    assert lines(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        ServiceLog(tmp_path / "file", "party-1")


def test_a_link_in_its_place_is_not_followed(tmp_path):
    (tmp_path / "other").write_text("precious")
    (tmp_path / NAME).symlink_to(tmp_path / "other")
    with pytest.raises(UsageError):
        ServiceLog(tmp_path, "party-1")
    assert (tmp_path / "other").read_text() == "precious"


def test_the_engine_is_heard_in_the_log_alone(tmp_path, log, engine, capfd):
    quiet_engine(log)
    root = logging.StreamHandler(sys.stderr)
    logging.getLogger().addHandler(root)
    try:
        logging.getLogger("nvflare.fuel.f3.cellnet").info("connected to host-7")
        logging.getLogger("nvflare.fuel.f3.cellnet").warning("line\nbroken\x1b[2J by %s " + "x" * 300, "peer")
        logging.getLogger("grpc._channel").error("gone", exc_info=ValueError("never written"))
    finally:
        logging.getLogger().removeHandler(root)
    assert capfd.readouterr() == ("", "")
    warning, error = lines(tmp_path)
    assert (warning["event"], warning["level"], warning["source"]) == ("engine", "warning", "nvflare.fuel.f3.cellnet")
    assert warning["message"].startswith("line broken [2J by peer xxx")
    assert len(warning["message"]) == module.LONGEST_MESSAGE
    assert (error["level"], error["message"]) == ("error", "gone")


def test_an_engine_whose_words_do_not_fit_harms_nobody(tmp_path, log, engine, capfd):
    quiet_engine(log)
    logging.getLogger("nvflare").warning("%d of %d", "two")
    assert lines(tmp_path)[0]["message"] == "%d of %d"
    assert capfd.readouterr() == ("", "")


def test_quieting_twice_writes_once(tmp_path, log, engine):
    quiet_engine(log)
    quiet_engine(log)
    logging.getLogger("nvflare.x").warning("once")
    assert len(lines(tmp_path)) == 1


def test_a_failing_handshake_stays_off_the_terminal(tmp_path):
    """gRPC's core writes to stderr by itself; a plain client at a TLS port makes it complain."""
    code = """
import os, sys
from pathlib import Path
from tacit.deploy.logs import ServiceLog, quiet_engine
if sys.argv[2] == "quiet":
    quiet_engine(ServiceLog(Path(sys.argv[1]), "coordinator"))
import socket, threading, grpc
listening = socket.create_server(("127.0.0.1", 0))
def rude():
    while True:
        client, _ = listening.accept()
        client.sendall(b"no TLS here")
        client.close()
threading.Thread(target=rude, daemon=True).start()
where = f"127.0.0.1:{listening.getsockname()[1]}"
channel = grpc.secure_channel(where, grpc.ssl_channel_credentials())
try:
    channel.unary_unary("/a/b")(b"", timeout=2)
except grpc.RpcError as error:
    print(error.code().name, flush=True)
os._exit(0)
"""
    env = {k: v for k, v in os.environ.items() if not k.startswith("GRPC_")}
    said = {}
    for how in ("quiet", "loud"):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path), how], capture_output=True, text=True, timeout=300, env=env
        )
        assert done.stdout == "UNAVAILABLE\n"
        said[how] = done.stderr
    assert said["quiet"] == ""
    assert "Handshake failed" in said["loud"]  # the planted bug: left to itself, gRPC is heard
