"""The walkthrough is followed word for word, by real processes, in as many terminals as it names.

    Save this as `NAME`   the next python or toml block becomes that file
    **Terminal N**        the next console block is typed there, line by line
    lines without "$ "    what is printed, with … for what varies

A terminal whose command has not ended is busy; whoever types there waits. All commands must end with 0.
"""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "walkthrough.md"
PARTS = re.compile(
    r"Save this as `(?P<file>[\w.]+)`[^`]*?\n```(?:python|toml)\n(?P<text>.*?)^```"
    r"|^\*\*Terminal (?P<terminal>\d)\*\*.*?\n```console\n(?P<lines>.*?)^```",
    re.DOTALL | re.MULTILINE,
)
#: Seconds for one command.
PATIENCE = 600.0


def steps(page):
    """What a reader does, in order: ("write", name, text) or ("type", terminal, command, lines that are printed)."""
    for part in PARTS.finditer(page):
        if part["file"]:
            yield "write", part["file"], part["text"], []
            continue
        for typed in re.split(r"^\$ ", part["lines"], flags=re.MULTILINE)[1:]:
            command, *printed = typed.splitlines()
            yield "type", part["terminal"], command, printed


def seen(printed, output):
    """Whether lines were printed in this order, where … stands for anything."""
    pattern = ".*".join(".*".join(map(re.escape, line.split("…"))) for line in printed)
    squeezed = re.sub(r"[ \n]+", " ", output)
    return re.search(re.sub(r"(\\ )+", " ", pattern), squeezed, re.DOTALL) is not None


class Terminal:
    """One terminal: a command at a time, whose output is kept."""

    def __init__(self, folder):
        self.folder, self.process, self.command, self.printed = folder, None, "", []
        binaries = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        self.environment = {**os.environ, "PATH": binaries, "PYTHONWARNINGS": "default"}

    def type(self, command, printed):
        self.wait()
        self.command, self.printed = command, printed
        with (self.folder / f".{id(self)}").open("w") as output:
            self.process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def wait(self):
        if self.process is None:
            return
        code, output = self.process.wait(PATIENCE), (self.folder / f".{id(self)}").read_text()
        self.process = None
        assert code == 0, f"$ {self.command}\nexit code {code}\n{output}"
        assert seen(self.printed, output), f"$ {self.command}\nprinted\n{output}"

    def end(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def follow(page, folder, port):
    """Do all that the page says; the terminals, whose processes have ended."""
    terminals = {}
    try:
        for what, where, text, printed in steps(page):
            if what == "write":
                (folder / where).write_text(text)
                continue
            terminal = terminals.setdefault(where, Terminal(folder))
            terminal.type(text, printed)
            if text.startswith("tacit up") and "--keys" in text:
                listening(terminal, port)
            elif not text.startswith("tacit join") or "--check" in text:
                terminal.wait()
        for terminal in terminals.values():
            terminal.wait()
    finally:
        for terminal in terminals.values():
            terminal.end()
    return terminals


def listening(terminal, port):
    """A reader's pause after the coordinator was started, as long as it needs to be there."""
    deadline = monotonic() + PATIENCE
    while terminal.process.poll() is None and monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("localhost", port)) == 0:
                return
        sleep(0.1)


@pytest.fixture
def port():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def test_the_walkthrough_can_be_followed_word_for_word(tmp_path, port):
    page = PAGE.read_text(encoding="utf-8")
    assert page.count("8102") >= 2
    terminals = follow(page.replace("8102", str(port)), tmp_path, port)
    assert set(terminals) == {"1", "2", "3"}
    assert (tmp_path / "left.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "model" / "items.parquet").is_file()
    # What the page says that the coordinator has not.
    customers = {line.split(",")[0] for line in (tmp_path / "harbour.csv").read_text().splitlines()[1:]}
    long = [name.encode() for name in customers if len(name) >= 4]
    held = [path.read_bytes() for top in ("together", "keys") for path in (tmp_path / top).rglob("*") if path.is_file()]
    assert len(long) > 20
    assert not [name for name in long for content in held if re.search(rb"\b" + name + rb"\b", content)]
    assert not list((tmp_path / "together" / "ledger").iterdir())
    assert '"metrics": {}' in (tmp_path / "together" / "summary.json").read_text()


def test_every_block_of_the_page_is_followed():
    page = PAGE.read_text(encoding="utf-8")
    found = list(steps(page))
    assert sum(what == "write" for what, *_rest in found) == len(re.findall(r"^```(?:python|toml)$", page, re.M)) == 3
    assert sum(what == "type" for what, *_rest in found) == len(re.findall(r"^\$ ", page, re.M)) > 10


BAD = [
    "**Terminal 1**\n\n```console\n$ tacit nonsense\n```\n",
    "**Terminal 1**\n\n```console\n$ tacit --version\ntacit 9.…\n```\n",
    "Save this as `a.py`:\n\n```python\n1 / 0\n```\n**Terminal 2**\n```console\n$ python a.py\n```\n",
]


@pytest.mark.parametrize("page", BAD)
def test_a_page_that_is_wrong_is_found(page, tmp_path, port):
    with pytest.raises(AssertionError, match=r"exit code|printed"):
        follow(page, tmp_path, port)


def test_what_is_printed_is_compared_where_it_does_not_vary():
    assert seen(["a b", "c …, d"], "a   b\nc 17, d\n")
    assert not seen(["a b", "c …, d"], "a   b\nc 17; d\n")
    assert not seen(["c", "a"], "a\nc\n")
