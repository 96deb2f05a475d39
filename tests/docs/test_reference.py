"""The reference pages say what the code does: keys, types, defaults, options, summary keys, exit codes, metrics."""

import json
import re
import types
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import pytest
import typer.main
from pydantic import BaseModel
from typer.testing import CliRunner

from tacit import errors
from tacit.boundary.events import KINDS
from tacit.cli import EXIT_CODES, app
from tacit.config import RunFile
from tacit.evaluate import METRICS
from tacit.experiment import run
from tacit.methods import known

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = DOCS / "reference"

WORDS = {str: "text", int: "integer", float: "number", bool: "true or false", dict: "table of text"}
BOUNDS = (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<"))


def sections(page: str, level: str = "##") -> dict[str, str]:
    """Heading → text below it, up to the next heading of that level or a higher one."""
    text = (REFERENCE / page).read_text(encoding="utf-8")
    parts = re.split(rf"^(#{{1,{len(level)}}}) (.+)$", text, flags=re.MULTILINE)[1:]
    return {title: body for marks, title, body in zip(*[iter(parts)] * 3, strict=True) if marks == level}


def rows(text: str) -> list[list[str]]:
    """The cells of all table rows but heads and rules; a bar in a cell is written \\|."""
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def type_in_words(annotation: Any, metadata: Any) -> str:
    """A field's type as the page writes it: "number, > 0, < 1"."""
    if annotation == int | tuple[int, ...]:
        return "integer, or several"
    if get_origin(annotation) in (Union, types.UnionType):
        (annotation,) = (part for part in get_args(annotation) if part is not type(None))
    if get_origin(annotation) is Literal:
        return " · ".join(f"`{value}`" for value in get_args(annotation))
    if annotation == tuple[float, float]:
        return "two numbers"
    if get_origin(annotation) is tuple:
        return "list of text"
    words = [WORDS[get_origin(annotation) or annotation]]
    for bound, sign in BOUNDS:
        values = [getattr(part, bound) for part in metadata if getattr(part, bound, None) is not None]
        words += [f"{sign} {'2^63' if value == 2**63 else format(value, 'g')}" for value in values]
    return ", ".join(words)


def default_in_words(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    return "–" if value is None else f"`{json.dumps(value)}`"


def documented(text: str) -> list[tuple[str, str, str]]:
    return [(names(key)[0], kind, default) for key, kind, default, _meaning in rows(text)]


def expected(model: type[BaseModel], but: tuple[str, ...] = ()) -> list[tuple[str, str, str]]:
    return [
        (name, type_in_words(field.annotation, field.metadata), default_in_words(field))
        for name, field in model.model_fields.items()
        if name not in but
    ]


def section_models() -> dict[str, type[BaseModel]]:
    found = {}
    for name, field in RunFile.model_fields.items():
        candidates = [field.annotation, *get_args(field.annotation)]
        inner = [c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)]
        if inner:
            found[name] = inner[0]
    return found


@pytest.mark.parametrize(("name", "model"), section_models().items())
def test_every_key_of_a_section_is_documented_with_its_type_and_default(name, model):
    assert documented(sections("run-file.md")[f"[{name}]"]) == expected(model)


def test_every_section_of_the_run_file_is_documented():
    page = sections("run-file.md")
    assert {title.strip("[]") for title in page if title.startswith("[")} == {*section_models(), "method"}
    others = (*section_models(), "method")
    assert documented(page["The file itself"]) == expected(RunFile, but=others)


def test_every_method_is_documented_with_its_parameters():
    page = sections("run-file.md", "###")
    methods = known.__wrapped__()  # without what other pages have added
    assert set(page) == set(methods)
    for name, method in methods.items():
        assert documented(page[name].partition("\n## ")[0]) == expected(method.parameters), name


def test_a_key_that_the_page_lacks_would_be_found():
    """The comparison itself can fail: one row less is not what the model has."""
    text = sections("run-file.md")["[split]"]
    shortened = "\n".join(line for line in text.splitlines() if not line.startswith("| `test`"))
    assert documented(text) == expected(section_models()["split"]) != documented(shortened)


def leaves(commands: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Commands by their whole name; a group such as `ledger` gives those within it."""
    found = {}
    for name, command in commands.items():
        found |= leaves(command.commands, f"{name} ") if hasattr(command, "commands") else {before + name: command}
    return found


def test_every_command_and_option_is_documented():
    page = sections("command-line.md")
    group: Any = typer.main.get_command(app)
    commands = leaves({name: group.get_command(None, name) for name in group.list_commands(None)})
    assert {title.removeprefix("tacit ") for title in page if title.startswith("tacit ")} == set(commands)
    for name, command in commands.items():
        options = {option for p in command.params for option in p.opts if option.startswith("--")}
        found = {names(row[0])[0].split()[0] for row in rows(page[f"tacit {name}"])}
        assert found == options - {"--help"}, name


def test_the_summary_and_the_run_folder_are_as_documented(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text("[data]\nusers = 20\nitems = 12\n[method]\nrounds = 1\nname = 'sgdmf'\n")
    line = ["run", "run.toml", "--set", "partition.into=2", "--out", "done", "--json", "--quiet"]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0
    page = sections("command-line.md")
    summary = [names(row[0])[0] for row in rows(page["The summary"])]
    assert summary == list(json.loads(result.stdout))
    listed = {name.rstrip("/") for row in rows(page["The run folder"]) for name in names(row[0])}
    files = {str(path.relative_to("done")) for path in Path("done").rglob("*") if path.is_file()}
    empty = {path.name for path in Path("done").iterdir() if path.is_dir() and not any(path.iterdir())}
    assert listed == files | empty


def test_the_further_files_and_the_guarantee_of_a_private_run_are_as_documented(tmp_path):
    wanted = {"data": {"users": 20, "items": 12}, "partition": {"into": 1}, "method": {"name": "bias"}}
    summary = run(RunFile.model_validate({**wanted, "privacy": {"epsilon": 1.0}}), tmp_path / "done")
    page = sections("command-line.md")
    (guarantee,) = (row[1] for row in rows(page["The summary"]) if names(row[0]) == ["guarantee"])
    assert [name for name in names(guarantee) if name != "null"] == list(summary["guarantee"])
    titles = ("The run folder", "Further files of a private run")
    listed = {name for title in titles for row in rows(page[title]) for name in names(row[0])}
    files = {str(path.relative_to(tmp_path / "done")) for path in (tmp_path / "done").rglob("*") if path.is_file()}
    assert listed - {"ledger/"} == files


def test_every_event_is_documented_with_its_fields_and_its_cost():
    page = sections("events.md")
    found = {names(kind)[0]: names(given) for kind, given, _what in rows(page["What each says"])}
    assert found == {name: [field.name for field in fields(kind)] for name, kind in KINDS.items()}
    assert [names(row[0])[0] for row in rows(page["What each costs"])] == list(KINDS)


def test_every_exit_code_has_a_section_that_names_its_errors():
    page = {int(title.split(":")[0]): body for title, body in sections("exit-codes.md").items()}
    assert set(page) == {int(code) for code in re.findall(r"(?<=[ ·])(\d+) ", EXIT_CODES)}
    raised = [value for value in vars(errors).values() if isinstance(value, type)]
    codes = {error.__name__: error.exit_code for error in raised if issubclass(error, errors.TacitError)}
    roots = {"TacitError", "UsageError", "DataError", "PrivacyRefused", "PeerFailed", "TamperingFound"}
    assert roots <= set(codes)
    for name in roots:
        assert f"`{name}`" in page[codes[name]], name


def test_every_metric_is_documented_with_its_direction():
    text = (REFERENCE / "metrics.md").read_text(encoding="utf-8")
    found = {names(cells[0])[0].partition("@")[0]: cells[1] for cells in rows(text)}
    assert found == {name: metric.better for name, metric in METRICS.items()}


@pytest.mark.parametrize("page", sorted({*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")}), ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if link.startswith("http"):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", sorted({DOCS.parent / "README.md", *DOCS.rglob("*.md")}), ids=lambda page: page.name)
def test_no_page_says_to_install_from_an_index_where_tacit_is_not(page):
    """Only the README names that command, to say that it does not work."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"pip install [\"']?tacit(?:\[[a-z,]+\])?[\"'`\s]", text)
    assert not found or (page.name == "README.md" and "not on a package index yet" in text)


def test_the_methods_that_can_give_a_guarantee_are_all_named():
    intro = sections("run-file.md")["[privacy]"].partition("can\ngive one")[0].partition("can give one")[0]
    assert set(names(intro.rpartition(").")[2])) == {
        name for name, method in known().working().items() if method.guaranteed
    }
