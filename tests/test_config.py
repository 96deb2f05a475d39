"""The run file: what is read is what was written, and every mistake gets one sentence."""

import json
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from tacit import config
from tacit.config import Frozen, RunFile, checked
from tacit.errors import UsageError

WHOLE = """
seed = 11
[data]
source = "ratings.csv"
feedback = "count"
query = "select * from r where x = 'ä'"
columns = {user = "uid", item = "isbn", rating = "stars"}
duplicates = "last"
bad_rows = "drop"
user_table = "users.csv"
item_table = "items.csv"
users = 30
items = 20
ratings = 100
[public]
scale = [0.5, 5]
users = 6040
ratings = 1000209
catalogue = "items.parquet"
features = ["genres", "year"]
[split]
by = "leave-one-out"
test = 0.25
[partition]
by = "zip1"
into = 4
size_skew = 0.5
taste_skew = 1
align = "hashed"
keep = "all"
[method]
name = "sgdmf"
factors = 3
deep = {a = [1, 2.5, "x"], b = true}
[privacy]
epsilon = 1
delta = 1e-6
unit = "rating"
accounting = "paper"
on_refusal = "stop"
ledger = "L"
budget = 3.0
period = 30.0
[aggregation]
name = "secagg"
tolerate = 0.1
collusion = 0.2
dropout = 0.3
signed = true
retries = 2
[engine]
name = "flare"
seeded = false
transcript = "full"
timeout = 2.5
[evaluate]
k = [2, 5]
negatives = 50
relevance = 4
ranking = false
users = 500
floor = false
"""

SECTIONS = ("data", "public", "split", "partition", "privacy", "aggregation", "engine", "evaluate")


def read(folder, text, *changes, seed=None):
    path = folder / "run.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return RunFile.read(path, changes, seed)


def complaint(folder, text, *changes, seed=None):
    """The one sentence that a bad run file gets."""
    with pytest.raises(UsageError) as error:
        read(folder, text, *changes, seed=seed)
    sentence = str(error.value)
    assert "\n" not in sentence
    assert "pydantic" not in sentence
    return sentence


# -- round trips ---------------------------------------------------------------------------------------------------


def test_a_file_with_every_key_is_read_as_written(tmp_path):
    run = read(tmp_path, WHOLE)
    written = tomllib.loads(WHOLE)
    for section in SECTIONS:
        model = getattr(run, section)
        assert set(written[section]) == set(type(model).model_fields), f"WHOLE names every key of [{section}]"
        for key, value in written[section].items():
            read_back = getattr(model, key)
            assert (list(read_back) if isinstance(read_back, tuple) else read_back) == value
    assert run.method == written["method"]
    assert run.seed == 11


def test_every_section_round_trips(tmp_path):
    run = read(tmp_path, WHOLE)
    assert read(tmp_path, run.to_toml()) == run
    assert set(tomllib.loads(run.to_toml())) == set(RunFile.model_fields)


def test_an_empty_file_is_the_default_and_round_trips(tmp_path):
    run = read(tmp_path, "")
    assert run == RunFile()
    assert (run.seed, run.privacy, run.method) == (7, None, {"name": "sgdmf"})
    assert read(tmp_path, run.to_toml()) == run


def one_of(model, key):
    return st.sampled_from(model.model_fields[key].annotation.__args__)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
fractions = st.floats(0, 1, exclude_max=True)
counts = st.integers(1, 10**5)
plain = st.one_of(texts, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))
tables = st.recursive(plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3))
maybe = lambda strategy: st.none() | strategy  # noqa: E731

runs = st.builds(
    RunFile,
    seed=st.integers(0, 2**63 - 1),
    data=st.builds(
        config.DataSection,
        source=texts,
        feedback=one_of(config.DataSection, "feedback"),
        query=maybe(texts),
        columns=st.dictionaries(texts, texts, max_size=3),
        duplicates=one_of(config.DataSection, "duplicates"),
        user_table=maybe(texts),
        items=maybe(counts),
    ),
    public=st.builds(
        config.PublicSection,
        scale=maybe(
            st.lists(st.floats(-1e12, 1e12), min_size=2, max_size=2, unique=True).map(lambda ends: tuple(sorted(ends)))
        ),
        users=maybe(counts),
        catalogue=maybe(texts),
        features=st.lists(texts.filter(bool), max_size=3, unique=True).map(tuple),
    ),
    split=st.builds(
        config.SplitSection,
        by=one_of(config.SplitSection, "by"),
        test=st.floats(0, 1, exclude_min=True, exclude_max=True),
    ),
    partition=st.builds(config.PartitionSection, by=texts, into=maybe(counts), size_skew=st.floats(0, 1)),
    method=st.dictionaries(texts, tables, max_size=4),
    privacy=maybe(
        st.builds(
            config.PrivacySection,
            epsilon=st.floats(0, 1000, exclude_min=True),
            delta=maybe(st.floats(0, 1, exclude_min=True, exclude_max=True)),
            unit=one_of(config.PrivacySection, "unit"),
            ledger=maybe(texts),
        )
    ),
    aggregation=st.builds(config.AggregationSection, name=texts, dropout=fractions),
    engine=st.builds(
        config.EngineSection,
        name=one_of(config.EngineSection, "name"),
        seeded=maybe(st.booleans()),
        timeout=maybe(st.floats(0, 1e6, exclude_min=True)),
    ),
    evaluate=st.builds(
        config.EvaluateSection,
        k=counts | st.lists(counts, min_size=1, max_size=3, unique=True),
        relevance=maybe(st.floats(-10, 10)),
    ),
)


def types_and_values(run):
    """JSON tells 1, 1.0 and true apart, which == does not."""
    return json.dumps(run.model_dump(), sort_keys=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@given(run=runs)
@settings(deadline=None, max_examples=100)
def test_any_run_file_round_trips(folder, run):
    again = read(folder, run.to_toml())
    assert again == run
    assert types_and_values(again) == types_and_values(run)


# -- mistakes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key", "meant"),
    [
        ("sed = 3", "sed", "seed"),
        ("[privcy]\nepsilon = 1", "privcy", "privacy"),
        ('[data]\nsorce = "x"', "data.sorce", "source"),
        ("[public]\nscal = [1, 5]", "public.scal", "scale"),
        ("[split]\ntset = 0.1", "split.tset", "test"),
        ("[partition]\nint = 3", "partition.int", "into"),
        ("[privacy]\nepsilon = 1\ndelt = 1e-6", "privacy.delt", "delta"),
        ("[privacy]\nepsilo = 1", "privacy.epsilo", "epsilon"),
        ("[aggregation]\ntolerat = 0.1", "aggregation.tolerat", "tolerate"),
        ("[engine]\nseed = true", "engine.seed", "seeded"),
        ("[evaluate]\nnegative = 9", "evaluate.negative", "negatives"),
    ],
)
def test_an_unknown_key_gets_a_suggestion_at_each_level(tmp_path, text, key, meant):
    sentence = complaint(tmp_path, text)
    assert f'"{key}" is not a known key' in sentence
    assert f'Did you mean "{meant}"?' in sentence
    assert "run.toml" in sentence


def test_an_unknown_key_far_from_all_gets_the_list(tmp_path):
    assert "Known here: k, negatives, relevance, ranking, users, floor." in complaint(tmp_path, "[evaluate]\nxyzzy = 1")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[privacy]\n", ["privacy.epsilon", "missing"]),
        ("[privacy]\nepsilon = 0", ["privacy.epsilon = 0", "greater than 0"]),
        ("[privacy]\nepsilon = inf", ["privacy.epsilon", "finite"]),
        ("[privacy]\nepsilon = nan", ["privacy.epsilon", "finite"]),
        ("[privacy]\nepsilon = 1\ndelta = 1", ["privacy.delta = 1", "less than 1"]),
        ("[public]\nscale = [5, 1]", ["[5, 1]", "lower end first"]),
        ("[public]\nscale = [5, 5]", ["[5, 5]", "lower end first"]),
        ("[public]\nscale = [nan, 5]", ["public.scale", "finite"]),
        ("[public]\nscale = [1]", ["public.scale"]),
        ("[split]\ntest = 1.0", ["split.test = 1.0", "less than 1"]),
        ('[split]\nby = "randon"', ["split.by", "randon", "'random'", "'cold-items'"]),
        ("[partition]\ninto = 0", ["partition.into = 0", "1"]),
        ('[data]\ncolumns = {user = 3}\nsource = "x"', ["data.columns.user = 3", "string"]),
        ("data = 5", ["data = 5", "dictionary"]),
        ("[[method]]\nname = 1", ["method", "dictionary"]),
        ("seed = -1", ["seed = -1", "greater than or equal to 0"]),
        (f"seed = {2**63}", [f"seed = {2**63}", "less than"]),
        ("seed = 1.5", ["seed = 1.5", "integer"]),
        ('seed = "x"', ['seed = "x"', "integer"]),
    ],
)
def test_a_value_that_is_not_possible_is_named_with_its_reason(tmp_path, text, words):
    sentence = complaint(tmp_path, text)
    for word in ["run.toml", *words]:
        assert word in sentence


@pytest.mark.parametrize("seed", [0, 2**63 - 1])
def test_seeds_may_be_anything_that_63_bits_hold(tmp_path, seed):
    assert read(tmp_path, f"seed = {seed}").seed == seed
    assert read(tmp_path, "", seed=seed).seed == seed
    assert read(tmp_path, read(tmp_path, f"seed = {seed}").to_toml()).seed == seed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seed = ", ["not valid TOML"]),
        ("seed = 1\nseed = 2", ["not valid TOML"]),
        ("a = 1\n[data = 3", ["not valid TOML", "line 2"]),
        ("x = " + "[" * 5000, ["not valid TOML"]),
        (b"seed = 1 # caf\xe9", ["not UTF-8", "save it as UTF-8"]),
        (b"\xff\xfes\x00", ["not UTF-8"]),
    ],
)
def test_a_file_that_is_no_toml_says_so(tmp_path, text, words):
    sentence = complaint(tmp_path, text)
    for word in ["run.toml", *words]:
        assert word in sentence


def test_a_byte_order_mark_and_windows_line_ends_are_read_over(tmp_path):
    assert read(tmp_path, "\ufeffseed = 3\r\n[split]\r\ntest = 0.2\r\n").split.test == 0.2


def test_a_missing_file_says_how_to_write_one(tmp_path):
    with pytest.raises(UsageError, match=r'no run file ".*none\.toml"; write one with: tacit new'):
        RunFile.read(tmp_path / "none.toml")


def test_a_folder_is_no_run_file(tmp_path):
    with pytest.raises(UsageError, match="is a folder; name a run file"):
        RunFile.read(tmp_path)


def test_a_file_below_a_file_cannot_be_read(tmp_path):
    (tmp_path / "run.toml").write_text("")
    with pytest.raises(UsageError, match=r"cannot be read: .*\."):
        RunFile.read(tmp_path / "run.toml" / "run.toml")


# -- changes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "path", "value"),
    [
        ("seed=9", "seed", 9),
        ("  seed  =  9  ", "seed", 9),
        ("split.test=0.5", "split.test", 0.5),
        ("engine.seeded=false", "engine.seeded", False),
        ("data.source=some file.csv", "data.source", "some file.csv"),
        ('data.source="7"', "data.source", "7"),
        ("data.source=", "data.source", ""),
        ("data.query=select a from b where c = 1", "data.query", "select a from b where c = 1"),
        ("data.users=1_000", "data.users", 1000),
        ("data.columns.user=uid", "data.columns.user", "uid"),
        ("data.columns={user='u', item='i'}", "data.columns.item", "i"),
        ("public.scale=[0, 5]", "public.scale", (0, 5)),
        ("privacy.epsilon=2", "privacy.epsilon", 2),
        ("method.rounds=50", "method.rounds", 50),
        ("method.rate=1e-3", "method.rate", 1e-3),
        ("method.name=central", "method.name", "central"),
        ("method.a.b.c=[1, 'x']", "method.a.b.c", [1, "x"]),
        ("method={name='local'}", "method", {"name": "local"}),
    ],
)
def test_a_change_sets_one_value_of_its_type(tmp_path, change, path, value):
    found = read(tmp_path, "", change)
    for part in path.split("."):
        found = found[part] if isinstance(found, dict) else getattr(found, part)
    assert found == value
    assert type(found) is type(value) or path in ("privacy.epsilon", "public.scale")


def test_changes_leave_the_rest_of_a_section_alone_and_the_last_one_wins(tmp_path):
    text = '[method]\nname = "sgdmf"\nfactors = 3\n'
    run = read(tmp_path, text, "method.rounds=5", "method.rounds=6", "seed=1")
    assert run.method == {"name": "sgdmf", "factors": 3, "rounds": 6}
    assert run.seed == 1
    assert read(tmp_path, text, "seed=1", seed=2).seed == 2


@pytest.mark.parametrize("change", ["", "x", "method.rounds", "=3", " =3", "..=3", "a..b=1", "method.=5", ".seed=1"])
def test_a_change_without_key_or_value_is_explained(tmp_path, change):
    sentence = complaint(tmp_path, "", change)
    assert sentence.startswith('--set takes "section.key=value", as in --set method.rounds=50;')
    assert repr(change) in sentence


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("seed.x=1", ["'seed'", "it is a value"]),
        ("method.name.x=1", ["'name'", "it is a value"]),
        ("split.tset=0.1", ['Did you mean "test"']),
        ("split.test=much", ['split.test = "much"']),
        ("data.source=true", ["data.source = true", "string"]),
        ("data.source=2020-01-01", ["data.source", "2020-01-01", "string"]),
        ("seed=1\nx=3", ["seed", "integer"]),
        ("data=5", ["data = 5"]),
    ],
)
def test_a_change_is_checked_like_the_file(tmp_path, change, words):
    sentence = complaint(tmp_path, 'seed = 3\n[method]\nname = "sgdmf"', change)
    for word in words:
        assert word in sentence


# -- values that never change --------------------------------------------------------------------------------------


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_is_frozen_and_closed(tmp_path, section):
    model = getattr(read(tmp_path, WHOLE), section)
    assert isinstance(model, Frozen)
    for name in type(model).model_fields:
        with pytest.raises(ValidationError):
            setattr(model, name, getattr(model, name))
    with pytest.raises(ValidationError):
        type(model)(**{**model.model_dump(), "unheard": 1})


def test_the_run_file_is_frozen_and_shares_nothing_with_the_next(tmp_path):
    run = RunFile()
    with pytest.raises(ValidationError):
        run.seed = 8
    run.method["rounds"] = 1
    run.data.columns["user"] = "u"
    assert RunFile() == RunFile(method={"name": "sgdmf"})
    assert RunFile().data.columns == {}


def test_checked_names_the_place_and_ends_the_chain():
    class Point(BaseModel):
        x: int

    assert checked(Point, {"x": 3}, where="there").x == 3
    with pytest.raises(UsageError, match=r'In there, "x" is missing; add it\.') as error:
        checked(Point, {}, where="there")
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__
