"""Without the package that carries messages, services say so at once; advice keeps its brackets."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError

import pytest
from typer.testing import CliRunner

from tacit.cli import app
from tacit.engine import cells

doctor_module = import_module("tacit.cli.doctor")  # the package has a command of that name


def missing(name):
    raise PackageNotFoundError(name)


@pytest.mark.parametrize(
    "arguments",
    [
        ["join", "no-such.kit", "--data", "none.csv"],
        ["join", "no-such.kit", "--check"],
        ["up", "no-such.toml", "--keys", "none"],
        ["up", "no-such.toml", "--local", "3"],
    ],
    ids=" ".join,
)
def test_services_say_at_once_which_package_is_missing(arguments, monkeypatch):
    monkeypatch.setattr(cells, "find_spec", lambda name: None)
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    sentence = "Services between sites need one more package; install it: pip install 'tacit[deploy]'"
    assert done.stderr.strip() == f"tacit: {sentence}"


def test_the_doctors_advice_keeps_its_brackets(monkeypatch):
    monkeypatch.setattr(doctor_module, "version", missing)
    monkeypatch.setattr(doctor_module, "_kernels", lambda: "")
    assert 'pip install "tacit[deploy]"' in CliRunner().invoke(app, ["doctor"]).stdout
