"""Every snippet of README and docs runs, in the order of its page, in a folder of its own; so do all doctests.

    ```python           executed; one namespace per page. With >>> it is a doctest.
    ```text             right below a python block: what that block prints, with ... for what varies
    ```console, ```sh   lines that start with "$ tacit" are executed and must exit with 0
    ```toml             must be a valid run file where it has [data] or [method]

A block after `<!-- no-run: reason -->` is left out; the reason is not optional.
"""

import contextlib
import doctest
import importlib
import io
import os
import pkgutil
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import tacit
from tacit.config import RunFile
from tacit.methods import chosen

ROOT = Path(__file__).parents[2]
PAGES = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if path.is_file()]
#: Pages that train for seconds: tests/e2e runs them, and here they must be well formed.
LONG = {
    ROOT / page
    for page in (
        "README.md",
        "docs/tutorial.md",
        "docs/explanation/sgdmf.md",
        "docs/how-to/compare-runs.md",
        "docs/how-to/run-privately.md",
        "docs/how-to/verify-a-ledger.md",
    )
}
SHELLS = ("console", "sh", "shell", "bash")
DOCTEST = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>.*)$")
NO_RUN = re.compile(r"<!--\s*no-run\b(?P<rest>.*?)-->")
COMMAND = re.compile(r"^(?:[A-Z_]+=\S+ )*tacit(?: |$)")


class BadPage(AssertionError):
    """A page that cannot be read, or a snippet that fails, with its place."""


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text without the common indent, the line of its first line.

    `follows` is True where nothing stands between it and the block before it.
    """

    language: str
    text: str
    line: int
    runs: bool = True
    follows: bool = False


def blocks(text, where="page"):
    """All fenced blocks of a page, in order."""
    found, lines, at, comment, end = [], text.splitlines(), 0, None, None
    while at < len(lines):
        note, fence = NO_RUN.search(lines[at]), FENCE.match(lines[at])
        at += 1
        if note:
            if len(note["rest"].strip(" :")) < 5 or not note["rest"].startswith(":"):
                raise BadPage(f"{where}:{at}: give a reason, as in <!-- no-run: needs a server -->")
            comment = at
        elif fence:
            start, indent = at, len(fence["indent"])
            closing = re.compile(rf"^ *{re.escape(fence['fence'][0])}{{{len(fence['fence'])},}} *$")
            while at < len(lines) and not closing.match(lines[at]):
                at += 1
            if at == len(lines):
                raise BadPage(f"{where}:{start}: this block is not closed")
            body = [line[min(indent, len(line) - len(line.lstrip(" "))) :] for line in lines[start:at]]
            language = (fence["info"].split() or [""])[0].strip("{}.").lower()
            follows = end is not None and not any(line.strip() for line in lines[end : start - 1])
            found.append(Block(language, "\n".join(body) + "\n", start + 1, runs=comment is None, follows=follows))
            at, comment, end = at + 1, None, at + 1
        elif lines[at - 1].strip() and comment is not None:
            raise BadPage(f"{where}:{comment}: no-run stands before no block")
    if comment is not None:
        raise BadPage(f"{where}:{comment}: no-run stands before no block")
    return found


def commands(block, where="page"):
    """The commands of a console block: lines that start with "$ ", continued by a backslash. The rest is output."""
    text = block.text.replace("\\\n", " ")
    lines = [line[2:].strip() for line in text.splitlines() if line.startswith("$ ")]
    if not lines and block.language != "console":
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for line in lines:
        if not COMMAND.match(line):
            raise BadPage(f'{where}:{block.line}: "{line}" is no tacit command; mark the block <!-- no-run: reason -->')
    return lines


def run_python(block, namespace, where):
    """Execute the block; returns what it printed."""
    if re.search(r"^\s*>>> ", block.text, re.MULTILINE):
        test = doctest.DocTestParser().get_doctest(block.text, namespace, where, where, block.line)
        report = []
        outcome = doctest.DocTestRunner(optionflags=DOCTEST).run(test, out=report.append, clear_globs=False)
        namespace.update(test.globs)
        if outcome.failed:
            raise BadPage("".join(report))
        return ""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        # Empty lines in front make a traceback's line number that of the page.
        exec(compile("\n" * (block.line - 1) + block.text, where, "exec"), namespace)
    return printed.getvalue()


def run_console(block, folder, where):
    for command in commands(block, where):
        binaries = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        environment = {**os.environ, "PATH": binaries}
        environment.pop("TACIT_DATA", None)
        done = subprocess.run(
            command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        if done.returncode:
            raise BadPage(f"{where}:{block.line}: $ {command}\nexit code {done.returncode}\n{done.stdout}{done.stderr}")


def run_toml(block, folder, where):
    path = folder / "snippet.toml"
    path.write_text(block.text, encoding="utf-8")
    try:
        chosen(RunFile.read(path).method)
    except tacit.errors.UsageError as error:
        raise BadPage(f"{where}:{block.line}: {error}") from None
    finally:
        path.unlink()


def run_page(text, folder, where="page"):
    """Run all that runs; returns the blocks that did."""
    namespace, ran, printed = {"__name__": "__main__"}, [], None
    for block in blocks(text, where):
        before, printed = printed if block.follows else None, None
        if not block.runs:
            continue
        if block.language in ("python", "py"):
            printed = run_python(block, namespace, where)
        elif block.language == "text" and before is not None:
            if not doctest.OutputChecker().check_output(block.text, before, DOCTEST):
                raise BadPage(f"{where}:{block.line}: the block above prints\n{before}")
        elif block.language in SHELLS:
            run_console(block, folder, where)
        elif block.language == "toml" and re.search(r"^\s*\[(data|method)\]", block.text, re.MULTILINE):
            run_toml(block, folder, where)
        else:
            continue
        ran.append(block)
    return ran


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TACIT_DATA", raising=False)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_snippets_of_a_page_run(page, folder):
    text, where = page.read_text(encoding="utf-8"), str(page.relative_to(ROOT))
    if page in LONG:
        ready = [block for block in blocks(text, where) if block.runs]
        assert ready
        assert all(commands(block, where) for block in ready if block.language in SHELLS)
    else:
        run_page(text, folder, where)  # raises with the line


def test_there_are_pages_and_the_readme_has_snippets():
    assert set(PAGES) >= LONG
    assert any(block.language == "python" and block.runs for block in blocks((ROOT / "README.md").read_text("utf-8")))


# -- doctests ------------------------------------------------------------------------------------------------------

MODULES = ["tacit", *sorted(module.name for module in pkgutil.walk_packages(tacit.__path__, "tacit."))]


def doctests(name):
    module = importlib.import_module(name)
    return [test for test in doctest.DocTestFinder().find(module, name) if test.examples]


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__main__")])
def test_the_doctests_of_a_module_hold(name, folder):
    report = []
    runner = doctest.DocTestRunner(optionflags=DOCTEST)
    for test in doctests(name):
        runner.run(test, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)


def test_doctests_are_found():
    assert len(MODULES) > 80
    assert {test.name for test in doctests("tacit.errors")} == {"tacit.errors.did_you_mean"}


# -- the runner itself ---------------------------------------------------------------------------------------------


def fenced(language, *lines):
    return "\n".join([f"```{language}", *lines, "```", ""])


def test_blocks_are_found_with_their_language_and_line_and_left_out_for_a_reason_only():
    text = (
        fenced("python", "x = 1") + "- a list\n\n  ~~~~ toml title=x\n  [data]\n\n    a = 1\n  ```\n  ~~~~\n```\n```\n"
    )
    found = blocks(text)
    assert [(b.language, b.line, b.follows) for b in found] == [
        ("python", 2, False),
        ("toml", 7, False),
        ("", 13, True),
    ]
    assert found[1].text == "[data]\n\n  a = 1\n```\n"
    assert [block.runs for block in blocks("<!-- no-run: needs a server -->\n\n" + 2 * fenced("python"))] == [
        False,
        True,
    ]
    for note in ("<!-- no-run -->", "<!-- no-run: -->", "<!-- no-run:  x -->", "<!--no-run needs a server-->"):
        with pytest.raises(BadPage, match="give a reason"):
            blocks(note + "\n" + fenced("python"))
    reason = "<!-- no-run: needs a server -->\n"
    for bad in ("```python\nx = 1", "````python\nx = 1\n```\n", reason + "Text.\n" + fenced("python"), reason):
        with pytest.raises(BadPage):
            blocks(bad)


def test_the_blocks_of_a_page_share_names_and_folder(folder):
    text = "".join(
        [
            fenced("python", "from pathlib import Path", "Path('a.txt').write_text('7')"),
            "Not the output of anything:\n" + fenced("text", "1 / 0"),
            fenced("python", "print('seen', 3.14159)") + "\n" + fenced("text", "seen  3.1..."),
            fenced("py", "y = 2 * int(Path('a.txt').read_text())", "assert y == 14"),
            fenced("python", ">>> 3 * y", "42", ">>> z = 3") + fenced("python", "assert z == 3"),
            fenced("console", "$ tacit new run.toml \\", "    --source demo", "Wrote it."),
            fenced("sh", "# a comment", "tacit --version"),
            fenced("python", "assert Path('run.toml').is_file()"),
            fenced("toml", "[method]", 'name = "central"') + fenced("toml", "[project]"),
        ]
    )
    assert len(run_page(text, folder)) == 10
    assert not (folder / "snippet.toml").exists()


@pytest.mark.parametrize(
    ("snippet", "error"),
    [
        (fenced("python", "1 / 0"), ZeroDivisionError),
        (fenced("python", "x = "), SyntaxError),
        (fenced("python", "import warnings", "warnings.warn('old')"), UserWarning),
        (fenced("python", ">>> 1 + 1", "3"), BadPage),
        (fenced("python", "print(1)") + fenced("text", "2"), BadPage),
        (fenced("console", "$ tacit --version", "$ tacit nonsense"), BadPage),
        (fenced("console", "$ make demo"), BadPage),
        (fenced("toml", "[method]", 'name = "sgdfm"'), BadPage),
        (fenced("toml", "[method]", 'name = "sgdmf"', "facters = 3"), BadPage),
        (fenced("toml", "[data]", 'sorce = "demo"'), BadPage),
        (fenced("toml", "[data]", "source = "), BadPage),
    ],
)
def test_a_snippet_that_fails_is_found(folder, snippet, error):
    with pytest.raises(error):
        run_page(fenced("python", "fine = 1") + snippet, folder)


def test_a_failure_names_the_line_of_the_page(folder):
    with pytest.raises(ZeroDivisionError) as error:
        run_page("# Title\n" + fenced("python", "x = 1", "x / 0"), folder, "docs/x.md")
    last = error.traceback[-1]
    assert (str(last.path).endswith("x.md"), last.lineno + 1) == (True, 4)
