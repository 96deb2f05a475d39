"""Estimators are made from their methods' parameters, with scikit-learn's manners, and the stub says what they are."""

import copy
import importlib.util
import inspect
import pickle
import subprocess
import sys
import typing
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import Field

import tacit
from tacit.errors import UsageError
from tacit.estimator import DP, Estimator, estimator
from tacit.methods import OWN, Parameters, find, known

ROOT = Path(__file__).parents[1]
NAMED = ["SGDMF", "Bias", "Central", "Local", "GlobalMean", "ItemMean", "Popularity", "Random"]
PRIVATE = ["privacy", "aggregation"]
PARTIES = tacit.partition(tacit.load("demo", users=40, items=20, ratings=400), into=2)


def clone(model):
    """What scikit-learn's `clone` does, and what it checks."""
    given = model.get_params(deep=False)
    made = type(model)(**given)
    for name, value in made.get_params(deep=False).items():
        assert value is given[name]
    return made


def defaults(made):
    return {name: one.default for name, one in inspect.signature(made).parameters.items()}


# -- from parameters --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OWN)
def test_an_estimator_takes_its_methods_parameters_and_what_a_run_has(name):
    method, made = find(name), estimator(name)
    wanted = [*method.parameters.model_fields, *(PRIVATE if method.guaranteed else []), "seed"]
    signature = inspect.signature(made)
    assert list(signature.parameters) == wanted
    assert {one.kind for one in signature.parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert list(made().get_params()) == wanted
    assert set(typing.get_type_hints(made.__init__)) == {*wanted, "return"}
    fields = method.parameters.model_fields
    for key, default in defaults(made).items():
        assert key not in fields or default in (None, fields[key].default)


def test_a_default_that_depends_on_the_run_is_none_until_there_is_one():
    assert defaults(tacit.SGDMF)["rounds"] is None
    assert defaults(estimator("synsgd"))["rounds"] == 1000
    devices = tacit.partition(tacit.load("demo", users=40, items=20, ratings=400), by="device")
    assert tacit.SGDMF(factors=2, privacy=DP(5, 1e-6)).fit(devices).history_[-1].rounds == 10


@pytest.mark.parametrize("name", OWN)
def test_the_description_says_what_each_parameter_means(name):
    method, made = find(name), estimator(name)
    text = inspect.getdoc(made)
    assert text.startswith(f"{method.title}.\n\n")
    assert method.what in " ".join(text.split())
    for parameter in inspect.signature(made).parameters:
        assert f"\n{parameter} : " in text
    assert "\nAttributes\n----------\nmodel_ : " in text
    assert max(map(len, text.splitlines())) <= 116


def test_the_description_of_sgdmf_has_its_equations_guarantee_and_paper():
    text = inspect.getdoc(tacit.SGDMF)
    for part in ("U_k ← Π(U_k", "Guarantee\n---------\n", "√θ·2R^1.5", "References\n----------\nLi, Ding", ">>> "):
        assert part in text
    assert "Guarantee" not in inspect.getdoc(tacit.Central)


def test_methods_without_a_guarantee_take_no_privacy():
    with pytest.raises(TypeError, match="Central has no parameter 'privacy'"):
        tacit.Central(privacy=None)
    assert "privacy" in defaults(estimator("gd-dr"))


# -- manners ----------------------------------------------------------------------------------------------------------


def test_the_usual_ones_have_names():
    for name in NAMED:
        made = getattr(tacit, name)
        assert (made.__name__, made.__qualname__, made.__module__) == (name, name, "tacit.estimator")
        assert made is estimator(made.method)
        assert issubclass(made, Estimator)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        tacit.estimator.Nothing  # noqa: B018


@pytest.mark.parametrize("name", OWN)
def test_classes_and_models_can_be_cloned_copied_and_pickled(name):
    made = estimator(name)
    assert pickle.loads(pickle.dumps(made)) is made
    model = made(**({"privacy": DP(1, 1e-6)} if find(name).guaranteed else {}), seed=3)
    for same in (clone(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(same) is made
        assert same.get_params() == model.get_params()
        assert repr(same) == repr(model)


def test_a_fitted_model_is_unpickled_where_no_estimator_was_made_yet(tmp_path):
    (tmp_path / "model").write_bytes(pickle.dumps(estimator("gradient-clipping")(factors=2, seed=5)))
    code = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')))"
    line = [sys.executable, "-c", code, str(tmp_path / "model")]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stdout == "GradientClipping(factors=2, seed=5)\n"


@pytest.mark.parametrize("wrong", [{"factor": 3}, {"self_": 1}])
def test_what_is_no_parameter_is_a_type_error_with_a_suggestion(wrong):
    with pytest.raises(TypeError, match=f"SGDMF has no parameter '{next(iter(wrong))}'"):
        tacit.SGDMF(**wrong)
    with pytest.raises(TypeError, match='Did you mean "factors"'):
        tacit.SGDMF(factor=3)
    with pytest.raises(TypeError, match="positional"):
        tacit.SGDMF(3)


def test_a_class_of_ones_own_can_be_derived():
    class Small(tacit.SGDMF):
        def __init__(self, *, size=2):
            super().__init__(factors=size, rounds=1)
            self.size = size

    assert (Small(size=3).factors, Small().get_params()) == (3, {"size": 2})


# -- other methods ----------------------------------------------------------------------------------------------------


class StrangeParameters(Parameters):
    """depth : how deep it goes."""

    depth: int
    names: list[str] = Field(default_factory=lambda: ["a"])
    unsaid: float = 1.0


@pytest.fixture
def added():
    """Adds a method in this process, with some parameters."""
    names = []

    def add(parameters, name="strange-one"):
        known()[name] = method = replace(find("item-mean"), name=name, parameters=parameters)
        names.append(name)
        return method

    yield add
    for name in set(names):
        del known()[name]


def test_parameters_without_a_default_or_a_word_are_taken_as_they_are(added):
    made = estimator(added(StrangeParameters))
    assert made.__name__ == "StrangeOne"
    assert "\ndepth : how deep it goes.\nnames\nunsaid\nseed : " in made.__doc__
    with pytest.raises(TypeError, match="StrangeOne needs its parameter 'depth'"):
        made()
    assert repr(made(depth=3)) == "StrangeOne(depth=3)"
    assert pickle.loads(pickle.dumps(made(depth=3))).names == ["a"]


def test_a_method_that_was_added_anew_gets_a_new_estimator(added):
    first = estimator(added(StrangeParameters))
    old = known()["strange-one"]
    second = estimator(added(find("bias").parameters))
    assert list(inspect.signature(second).parameters) == ["count_weight", "shrinkage", "seed"]
    assert first is not second
    with pytest.raises(UsageError, match='Another method "strange-one" is installed'):
        estimator(old)


@pytest.mark.parametrize("taken", ["seed", "fit", "method"])
def test_a_parameter_cannot_have_a_name_that_every_estimator_uses(added, taken):
    kind = type("TakenParameters", (Parameters,), {"__annotations__": {taken: int}, taken: 3})
    with pytest.raises(UsageError, match=f'cannot be called "{taken}"'):
        estimator(added(kind))


@pytest.mark.parametrize("wrong", ["gd-rd", 5, None])
def test_what_is_no_method_gets_a_sentence(wrong):
    with pytest.raises(UsageError) as caught:
        tacit.estimator(wrong)
    assert str(caught.value).endswith(".")


# -- the stub ---------------------------------------------------------------------------------------------------------


def stubs():
    spec = importlib.util.spec_from_file_location("ci_stubs", ROOT / ".ci" / "stubs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_stub_is_up_to_date():
    written = (ROOT / "src/tacit/estimator/__init__.pyi").read_text(encoding="utf-8")
    assert written == stubs().stub(), "Run `make stubs`."
    assert (ROOT / "src/tacit/py.typed").exists()
