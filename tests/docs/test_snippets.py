"""Every snippet of README and docs runs, in the order of its page, in a folder of its own; so do all doctests.

    ```python           executed; one namespace per page. With >>> it is a doctest.
    ```text             right below a python block: what that block prints, with ... for what varies
    ```console          lines that start with "$ tacit" are executed and must exit with 0
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
LANGUAGES = ("python", "text", "console", "toml", "")
DOCTEST = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

BLOCK = re.compile(
    r"(?P<note><!-- no-run: \S[^\n]{3,} -->\s+)?^```(?P<language>\S*)\n(?P<text>.*?)^```\n", re.MULTILINE | re.DOTALL
)
COMMAND = re.compile(r"^(?:[A-Z_]+=\S+ )*tacit(?: |$)")


class BadPage(AssertionError):
    """A page that cannot be read, or a snippet that fails, with its place."""


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, the line of its first line.

    `follows` is True where nothing stands between it and the block before it.
    """

    language: str
    text: str
    line: int
    runs: bool = True
    follows: bool = False


def blocks(text, where="page"):
    """All fenced blocks of a page, in order."""
    found, end = [], 0
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("text")) + 1
        if match["language"] not in LANGUAGES:
            raise BadPage(f"{where}:{line}: a block is one of {', '.join(LANGUAGES)}")
        follows = bool(found) and not text[end : match.start()].strip()
        found.append(Block(match["language"], match["text"], line, match["note"] is None, follows))
        end = match.end()
    if "```" in BLOCK.sub("", text) or "no-run" in BLOCK.sub("", text):
        raise BadPage(f"{where}: close every block, and give a reason right above it: <!-- no-run: needs a server -->")
    return found


def commands(block, where="page"):
    """The commands of a console block: lines that start with "$ ", continued by a backslash. The rest is output."""
    lines = [line[2:].strip() for line in block.text.replace("\\\n", " ").splitlines() if line.startswith("$ ")]
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
        if block.language == "python":
            printed = run_python(block, namespace, where)
        elif block.language == "text" and before is not None:
            if not doctest.OutputChecker().check_output(block.text, before, DOCTEST):
                raise BadPage(f"{where}:{block.line}: the block above prints\n{before}")
        elif block.language == "console":
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
        assert all(commands(block, where) for block in ready if block.language == "console")
    else:
        run_page(text, folder, where)  # raises with the line


def test_there_are_pages_and_the_readme_has_snippets():
    assert set(PAGES) >= LONG
    assert any(block.language == "python" and block.runs for block in blocks((ROOT / "README.md").read_text("utf-8")))


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
    assert {test.name for test in doctests("tacit.errors")} == {
        "tacit.errors.did_you_mean",
        "tacit.errors.with_article",
    }


def fenced(language, *lines):
    return "\n".join([f"```{language}", *lines, "```", ""])


def test_blocks_are_left_out_for_a_reason_only():
    reason = "<!-- no-run: needs a server -->\n"
    assert [block.runs for block in blocks(f"{reason}\n" + 2 * fenced("python"))] == [False, True]
    for note in ("<!-- no-run -->\n", "<!-- no-run: -->\n", "<!-- no-run:  x -->\n", f"{reason}Text.\n"):
        with pytest.raises(BadPage, match="give a reason"):
            blocks(note + fenced("python"))
    for bad in ("```python\nx = 1", "````python\nx = 1\n```\n", fenced("sh", "tacit"), reason):
        with pytest.raises(BadPage):
            blocks(bad)


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
