"""Methods of other packages are found by name, and say clearly what is wrong with them."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tacit
from tacit import aggregation
from tacit.errors import UsageError
from tacit.methods import OWN, Method, chosen, find, known
from tacit.model import forms
from tacit.registry import Registry

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]

PLUGIN = """\
from dataclasses import replace
from tacit.methods.baselines.means import ITEM_MEAN
PLUGGED = replace(ITEM_MEAN, name="plugged")
OTHER = replace(ITEM_MEAN, name="another")
NOTHING = 5
"""


def install(folder, distribution, entries, **modules):
    """A distribution as an installer leaves it: metadata with entry points, and modules."""
    info = folder / f"{distribution}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[tacit.methods]\n" + "".join(f"{k} = {v}\n" for k, v in entries.items()))
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    return folder


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of installed packages that Python sees; the registry of this process starts anew."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    known.cache_clear()
    yield tmp_path
    known.cache_clear()
    for name in [name for name, module in sys.modules.items() if str(tmp_path) in str(getattr(module, "__file__", ""))]:
        del sys.modules[name]


# -- Tacit's own ------------------------------------------------------------------------------------------------------


def test_the_names_in_the_code_are_those_in_the_project_file():
    assert set(PROJECT["entry-points"]["tacit.methods"]) == set(OWN)
    assert set(PROJECT["entry-points"]["tacit.aggregations"]) == set(aggregation.OWN)
    assert set(PROJECT["entry-points"]["tacit.forms"]) == set(forms.OWN)


def test_every_method_of_tacit_is_found_under_its_name():
    methods = Registry("tacit.methods", "method", Method, OWN)
    assert list(methods)[: len(OWN)] == list(OWN)
    for name in OWN:
        assert methods[name].name == name
        assert methods.origin(name) == f"tacit {tacit.__version__}"


def test_one_method_is_imported_when_it_is_asked_for_and_no_other():
    code = (
        "import sys; from tacit.methods import find, known; list(known()); print(find('random').name); "
        "print([m for m in sys.modules if 'methods.sgdmf' in m or 'methods.bias' in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["random", "[]"]


def test_help_reads_no_entry_points():
    code = (
        "import importlib.metadata as metadata\n"
        "def refused(**group): raise AssertionError('entry points were read')\n"
        "metadata.entry_points = refused\n"
        "from tacit.cli import app\n"
        "app(['--help'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, "Usage" in done.stdout) == (0, True), done.stderr


# -- other packages ---------------------------------------------------------------------------------------------------


def test_a_method_of_another_package_is_found_by_name(site):
    install(site, "plugin", {"plugged": "plugin_module:PLUGGED"}, plugin_module=PLUGIN)
    assert list(known()) == [*OWN, "plugged"]
    assert "plugin_module" not in sys.modules
    method, parameters = chosen({"name": "plugged", "shrinkage": 2})
    assert (method.name, parameters.shrinkage) == ("plugged", 2)
    assert find("plugged") is method
    assert known().origin("plugged") == "plugin 1.2"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("no_such_module:PLUGGED", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("plugin_module:MISSING", "AttributeError: .*MISSING"),
        ("raises:PLUGGED", "RuntimeError: no licence"),
        ("not a place", "cannot be imported"),
        ("plugin_module:NOTHING", "is a int, and should be a Method"),
        ("plugin_module:OTHER", '"another" as "plugged"'),
    ],
)
def test_a_broken_package_gets_one_sentence_that_names_it(site, entry, words):
    install(site, "plugin", {"plugged": entry}, plugin_module=PLUGIN, raises="raise RuntimeError('no licence.')")
    with pytest.raises(UsageError, match=words) as caught:
        find("plugged")
    assert "plugin 1.2" in str(caught.value)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)
    assert find("bias").name == "bias"


def test_no_package_replaces_a_method_of_tacit(site):
    install(site, "plugin", {"item-mean": "plugin_module:PLUGGED"}, plugin_module=PLUGIN)
    with pytest.warns(UserWarning, match='plugin 1.2 claims the method "item-mean", which is Tacit\'s own'):
        method = find("item-mean")
    assert method.name == "item-mean"
    assert "plugin_module" not in sys.modules


def test_a_name_that_two_packages_claim_is_refused(site):
    install(site, "plugin", {"plugged": "plugin_module:PLUGGED"}, plugin_module=PLUGIN)
    install(site, "zweiter", {"plugged": "plugin_module:PLUGGED"})
    with pytest.raises(UsageError, match=r'provide a method "plugged": (plugin|zweiter) 1\.2, (plugin|zweiter) 1\.2;'):
        find("plugged")


@pytest.mark.parametrize("entries", [{}, {"bias": "tacit.methods.before:BIAS"}, {"bias": "tacit.methods:BEFORE"}])
def test_an_installation_older_than_the_code_is_told_from_an_unknown_name(site, entries):
    """The first distribution called tacit on the path counts; here it is one that lacks names, or has old places."""
    install(site, "tacit", entries)
    for name in ("bias", "sgdmf"):
        with pytest.raises(UsageError, match=f'"{name}" is in Tacit\'s code .* `make setup`'):
            find(name)


# -- tests of one's own -----------------------------------------------------------------------------------------------


def test_other_kinds_of_things_are_found_alike(site):
    install(site, "plugin", {}, shapes="class Round: ...")
    (site / "plugin-1.2.dist-info" / "entry_points.txt").write_text("[tacit.shapes]\nround = shapes:Round\n")
    shapes = Registry("tacit.shapes", "shape", type)
    assert shapes.find("round").__name__ == "Round"
    with pytest.raises(
        UsageError, match=r'There is no shape "rond"\. Did you mean "round"\? Known shapes: round; install'
    ):
        shapes.find("rond")
    with pytest.raises(KeyError):
        shapes["rond"]
    assert (len(shapes), "rond" in shapes) == (1, False)
