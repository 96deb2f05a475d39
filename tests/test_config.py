"""The run file: what is read is what was written, and every mistake gets one sentence."""

import json
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import config
from tacit.config import RunFile
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


@pytest.mark.parametrize(("mark", "end"), [("\ufeff", "\n"), ("", "\r\n"), ("\ufeff", "\r\n")])
def test_a_byte_order_mark_and_other_line_ends_change_nothing(tmp_path, mark, end):
    """As editors on Windows save a file; requests are bound to what it says, not to how it was saved."""
    (tmp_path / "plain.toml").write_bytes(WHOLE.encode())
    (tmp_path / "saved.toml").write_bytes((mark + WHOLE.replace("\n", end)).encode())
    assert RunFile.read(tmp_path / "saved.toml") == RunFile.read(tmp_path / "plain.toml")


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
    assert read(tmp_path, run.to_toml()) == run
    assert set(tomllib.loads(run.to_toml())) == set(RunFile.model_fields)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
plain = st.one_of(texts, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))
tables = st.recursive(plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3))
runs = st.builds(
    RunFile,
    seed=st.integers(0, 2**63 - 1),
    data=st.builds(config.DataSection, source=texts, query=texts, columns=st.dictionaries(texts, texts, max_size=3)),
    public=st.builds(
        config.PublicSection,
        scale=st.none() | st.tuples(st.floats(-1e12, 0), st.floats(1, 1e12)),
        features=st.lists(texts.filter(bool), max_size=3, unique=True).map(tuple),
    ),
    method=st.dictionaries(texts, tables, max_size=4),
    privacy=st.none() | st.builds(config.PrivacySection, epsilon=st.floats(0, 1000, exclude_min=True)),
    engine=st.builds(config.EngineSection, seeded=st.none() | st.booleans()),
    evaluate=st.builds(config.EvaluateSection, k=st.lists(st.integers(1, 99), min_size=1, max_size=3, unique=True)),
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
        ('[data]\nsorce = "x"', "data.sorce", "source"),
        ("[privacy]\nepsilo = 1", "privacy.epsilo", "epsilon"),
        ("[engine]\nseed = true", "engine.seed", "seeded"),
        ("[evaluate]\nnegative = 9", "evaluate.negative", "negatives"),
    ],
)
def test_an_unknown_key_gets_a_suggestion_at_each_level(tmp_path, text, key, meant):
    sentence = complaint(tmp_path, text)
    assert f'"{key}" is not a known key' in sentence
    assert f'Did you mean "{meant}"?' in sentence
    assert "run.toml" in sentence
    assert "Known here: k, negatives, relevance, ranking, users, floor." in complaint(tmp_path, "[evaluate]\nxyzzy = 1")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[privacy]\n", ["privacy.epsilon", "missing"]),
        ("[privacy]\nepsilon = 0", ["privacy.epsilon = 0", "greater than 0"]),
        ("[privacy]\nepsilon = inf", ["privacy.epsilon", "finite"]),
        ("[privacy]\nepsilon = 1\ndelta = 1", ["privacy.delta = 1", "less than 1"]),
        ("[public]\nscale = [5, 1]", ["[5, 1]", "lower end first"]),
        ("[public]\nscale = [nan, 5]", ["public.scale", "finite"]),
        ('[split]\nby = "randon"', ["split.by", "randon", "'random'", "'cold-items'"]),
        ("[partition]\ninto = 0", ["partition.into = 0", "1"]),
        ('[data]\ncolumns = {user = 3}\nsource = "x"', ["data.columns.user = 3", "text"]),
        ("data = 5", ["data = 5", "section"]),
        ("[[method]]\nname = 1", ["method", "section"]),
        ("seed = -1", ["seed = -1", "greater than or equal to 0"]),
        (f"seed = {2**63}", [f"seed = {2**63}", "less than"]),
        ('seed = "x"', ['seed = "x"', "integer"]),
    ],
)
def test_a_value_that_is_not_possible_is_named_with_its_reason(tmp_path, text, words):
    sentence = complaint(tmp_path, text)
    for word in ["run.toml", *words]:
        assert word in sentence


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seed = ", ["not valid TOML"]),
        ("a = 1\n[data = 3", ["not valid TOML", "line 2"]),
        ("x = " + "[" * 5000, ["not valid TOML"]),
        (b"seed = 1 # caf\xe9", ["not UTF-8", "save it as UTF-8"]),
    ],
)
def test_a_file_that_is_no_toml_says_so(tmp_path, text, words):
    sentence = complaint(tmp_path, text)
    for word in ["run.toml", *words]:
        assert word in sentence


def test_a_missing_file_says_how_to_write_one(tmp_path):
    with pytest.raises(UsageError, match=r'no run file ".*none\.toml"; write one with: tacit new'):
        RunFile.read(tmp_path / "none.toml")
    with pytest.raises(UsageError, match="is a folder; name a run file"):
        RunFile.read(tmp_path)


# -- changes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "path", "value"),
    [
        ("seed=9", "seed", 9),
        ("split.test=0.5", "split.test", 0.5),
        ("engine.seeded=false", "engine.seeded", False),
        ("data.source=some file.csv", "data.source", "some file.csv"),
        ('data.source="7"', "data.source", "7"),
        ("data.source=", "data.source", ""),
        ("data.query=select a from b where c = 1", "data.query", "select a from b where c = 1"),
        ("data.columns.user=uid", "data.columns.user", "uid"),
        ("data.columns={user='u', item='i'}", "data.columns.item", "i"),
        ("public.scale=[0, 5]", "public.scale", (0, 5)),
        ("privacy.epsilon=2", "privacy.epsilon", 2),
        ("method.rounds=50", "method.rounds", 50),
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
        ("split.test=much", ['split.test = "much"']),
        ("data.source=true", ["data.source = true", "text"]),
        ("data.source=2020-01-01", ["data.source", "2020-01-01", "text"]),
        ("seed=1\nx=3", ["seed", "integer"]),
    ],
)
def test_a_change_is_checked_like_the_file(tmp_path, change, words):
    sentence = complaint(tmp_path, 'seed = 3\n[method]\nname = "sgdmf"', change)
    for word in words:
        assert word in sentence


# -- values that never change --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ('public.features="genres"', 'give a list, as in ["genres"].'),
        ("public.scale=3", "give a list, as in [1, 5]."),
        ('public.scale=[1,"b"]', "give a number."),
        ("privacy.epsilon=abc", "give a number."),
        ("public.users=many", "give an integer."),
        ("aggregation.signed=3", "give true or false."),
        ("data.source=3", "give text in quotes."),
    ],
)
def test_a_value_of_another_type_is_refused_in_words_about_toml(tmp_path, change, words):
    (tmp_path / "run.toml").write_text("[privacy]\nepsilon = 1\n")
    with pytest.raises(UsageError) as refusal:
        RunFile.read(tmp_path / "run.toml", [change])
    assert str(refusal.value).endswith(words)
