"""The design's invariants: each is kept, and each test here is seen to fail when the invariant is broken on purpose."""

import ast
import importlib
import json
import pkgutil
from pathlib import Path

import numpy as np
import pytest

import tacit
import tacit.kernels
from tacit.boundary import Gate, Release
from tacit.boundary.release import Kind
from tacit.config import RunFile
from tacit.engine import InProcess
from tacit.errors import TacitError, UngatedRelease
from tacit.experiment import run
from tacit.federation import Schema
from tacit.guarantee import NON_PRIVATE
from tacit.testing.engine_contract import EngineContract

SOURCE = Path(tacit.__file__).parent
SMALL = RunFile(
    data={"source": "demo", "users": 60, "items": 40, "ratings": 900},
    partition={"by": "user", "into": 3},
    method={"name": "sgdmf", "factors": 4, "rounds": 3, "local_steps": 2},
)


class Contract(EngineContract):
    def make(self, parties, timeout=None):
        return InProcess(parties, timeout)


def fails(test, *args) -> bool:
    """Whether a contract's test notices what was broken."""
    try:
        test(*args)
    except (Exception, pytest.fail.Exception):
        return True
    return False


# -- 1 · one door ---------------------------------------------------------------------------------------------


def test_nobody_but_the_gate_makes_a_release():
    with pytest.raises(UngatedRelease, match="outside its gate"):
        Release("party-1", Kind.SUM, b"", NON_PRIVATE, 1, seal=object())


def test_a_gate_that_vouches_for_anything_is_noticed(monkeypatch):
    """A forgery is a release in all but who made it; what is no release at all the engine refuses by itself."""
    contract = Contract()
    assert not fails(contract.test_what_the_gate_did_not_make_never_crosses, "forged")
    monkeypatch.setattr(Gate, "made", lambda self, thing: True)
    assert fails(contract.test_what_the_gate_did_not_make_never_crosses, "forged")


def test_a_gate_that_forgets_is_noticed(monkeypatch):
    contract = Contract()
    monkeypatch.setattr(Gate, "made", lambda self, thing: isinstance(thing, Release))
    assert fails(contract.test_an_earlier_release_does_not_cross_again)


def test_a_gate_that_takes_any_fact_for_public_is_noticed(monkeypatch):
    monkeypatch.setattr("tacit.boundary.gate.PUBLIC_FACTS", {"ratings": frozenset({True}), "done": frozenset({True})})
    assert fails(Contract().test_data_is_no_public_fact)


# -- 5 · names do not lie -------------------------------------------------------------------------------------


def unstamped(folder: Path) -> list[str]:
    """Artefacts of a run without a mechanism that do not say NON-PRIVATE."""
    missing = [
        name
        for name in ("card.md", "report.html", "model/model.json")
        if "NON-PRIVATE" not in (folder / name).read_text()
    ]
    if json.loads((folder / "summary.json").read_text())["guarantee"] is not None:
        missing.append("summary.json")
    return missing


def test_every_artefact_of_a_run_without_a_mechanism_is_stamped(tmp_path):
    run(SMALL, tmp_path / "run")
    assert unstamped(tmp_path / "run") == []


def test_a_model_that_hides_its_stamp_is_noticed(tmp_path, monkeypatch):
    from tacit.model import Model

    save = Model.save

    def quiet(self, folder):
        path = save(self, folder)
        about = json.loads((path / "model.json").read_text())
        (path / "model.json").write_text(json.dumps({**about, "stamp": "private"}))
        return path

    monkeypatch.setattr(Model, "save", quiet)
    run(SMALL, tmp_path / "run")
    assert unstamped(tmp_path / "run") == ["model/model.json"]


# -- 8 · seeds derive -----------------------------------------------------------------------------------------


def test_a_stream_with_a_state_of_its_own_is_noticed(monkeypatch):
    contract = Contract()
    assert not fails(contract.test_the_same_seed_gives_the_same_digest_and_another_one_another)
    shared = np.random.default_rng(0)
    monkeypatch.setattr(Gate, "stream", lambda self, *purpose: shared)
    assert fails(contract.test_the_same_seed_gives_the_same_digest_and_another_one_another)


def test_another_request_never_meets_the_same_stream():
    gate = Gate("party-1", 7, {})
    draws = []
    for number, request in ((1, "a"), (1, "a"), (1, "b"), (2, "a")):
        with gate.serving("s", number, 0, request):
            draws.append(gate.stream("sample", 0).random())
    assert draws[0] == draws[1]
    assert len(set(draws)) == 3


def test_nothing_in_the_package_touches_global_randomness(tmp_path):
    """np.random.<function> and random.<function> are out; generators are derived by tacit.rng."""
    assert global_draws(SOURCE) == []
    (tmp_path / "bad.py").write_text("import numpy as np\n\ndef f():\n    return np.random.normal()\n")
    assert global_draws(tmp_path) == ["bad.py:4 np.random.normal"]


def global_draws(folder: Path) -> list[str]:
    """Calls of np.random.* and random.* in a tree, but for the types that derived generators are made of."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                name = ast.unparse(node.func)
                if name.startswith(("np.random.", "numpy.random.", "random.")) and name.rsplit(".", 1)[1] not in (
                    "Generator",
                    "SFC64",
                ):
                    found.append(f"{path.relative_to(folder)}:{node.lineno} {name}")
    return found


# -- 9 · every fast kernel has a twin -------------------------------------------------------------------------


#: Compiled functions, or all of a module, that are steps of one kernel, which has the face and the twin.
ONE_KERNEL = {
    "tacit.kernels.components": "components",
    "tacit.kernels.tastes._factored": "posteriors",
    "tacit.kernels.tastes._own": "posteriors",
}


def without_twin(modules) -> list[str]:
    """Compiled kernels that have no public face, or whose face has no NumPy twin beside it."""
    missing = []
    for module in modules:
        for name, thing in vars(module).items():
            if hasattr(thing, "py_func") and thing.__module__ == module.__name__:
                part_of = ONE_KERNEL.get(f"{module.__name__}.{name}", ONE_KERNEL.get(module.__name__))
                face = part_of or name.removeprefix("_")
                missing += [f"{module.__name__}.{n}" for n in (face, f"{face}_numpy") if not hasattr(module, n)]
    return missing


def test_every_kernel_has_a_numpy_twin_beside_it():
    modules = [importlib.import_module(f"tacit.kernels.{m.name}") for m in pkgutil.iter_modules(tacit.kernels.__path__)]
    assert any(hasattr(thing, "py_func") for module in modules for thing in vars(module).values())
    assert without_twin(modules) == []


def test_a_kernel_without_a_twin_is_noticed():
    from types import SimpleNamespace

    from tacit.kernels.predict import _predict_pairs, predict_pairs

    bare = SimpleNamespace(
        __name__=_predict_pairs.__module__, _predict_pairs=_predict_pairs, predict_pairs=predict_pairs
    )
    assert without_twin([bare]) == ["tacit.kernels.predict.predict_pairs_numpy"]


# -- 10 · bad input gets one sentence and leaves nothing ------------------------------------------------------


def left_behind(file: RunFile, folder: Path) -> list[str]:
    """What a refused run wrote; the refusal itself must be one of ours."""
    with pytest.raises(TacitError) as refusal:
        run(file, folder)
    assert len(str(refusal.value)) > 20
    assert "\n" not in str(refusal.value)
    return [str(p) for p in folder.rglob("*")] if folder.exists() else []


BAD = {
    "no such data": {"data": {"source": "nowhere.csv"}},
    "no such column": {"partition": {"by": "shoe size", "into": 2}},
    "too many parties": {"partition": {"by": "user", "into": 9999}, "data": SMALL.data.model_dump(exclude_none=True)},
    "no such method": {"method": {"name": "sgdfm"}},
    "no mechanism": {"method": {"name": "item-mean"}, "privacy": {"epsilon": 1.0, "delta": 1e-6}},
    "unseeded, and no noise": {"engine": {"name": "flare", "seeded": False}},
}


@pytest.mark.parametrize("mistake", BAD)
def test_a_refused_run_writes_nothing(mistake, tmp_path):
    file = RunFile.model_validate({**SMALL.model_dump(exclude_none=True), **BAD[mistake]})
    assert left_behind(file, tmp_path / "run") == []


def test_a_run_that_writes_before_it_checks_is_noticed(tmp_path, monkeypatch):
    import tacit.experiment as experiment

    prepare = experiment.prepare

    def hasty(file, phase):
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "run.toml").write_text("")
        return prepare(file, phase)

    monkeypatch.setattr(experiment, "prepare", hasty)
    file = RunFile.model_validate({**SMALL.model_dump(exclude_none=True), **BAD["no such data"]})
    assert left_behind(file, tmp_path / "run") != []


# -- 11 · ids in, ids out; no pickle; peers are checked -------------------------------------------------------


def picklers(folder: Path) -> list[str]:
    """Imports of anything that pickles, and loads that would allow it."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(
                name.split(".")[0] in ("pickle", "cPickle", "dill", "joblib", "shelve", "marshal") for name in names
            ):
                found.append(f"{path.relative_to(folder)}:{node.lineno}")
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
                found.append(f"{path.relative_to(folder)}:{node.value.lineno}")
    return found


def test_nothing_pickles(tmp_path):
    assert picklers(SOURCE) == []
    (tmp_path / "bad.py").write_text("import pickle\nimport numpy as np\nnp.load('x', allow_pickle=True)\n")
    assert picklers(tmp_path) == ["bad.py:1", "bad.py:3"]


@pytest.mark.parametrize("trick", ["poison", "misshapen"])
def test_a_schema_that_is_not_checked_is_noticed(monkeypatch, trick):
    contract = Contract()
    assert not fails(contract.test_answers_against_the_schema_are_refused_with_the_partys_name, trick)
    monkeypatch.setattr(Schema, "check", lambda *args, **kwargs: None)
    assert fails(contract.test_answers_against_the_schema_are_refused_with_the_partys_name, trick)


def test_ids_come_back_as_they_went_in():
    ratings = tacit.load("demo")
    model = tacit.SGDMF(factors=3, rounds=2).fit(tacit.partition(ratings, into=2))
    items = [item for item, _score in model.recommend("u42", n=5)]
    assert set(items) <= set(ratings.item_ids.ids.tolist())
    assert all(type(item) is int for item in items)
