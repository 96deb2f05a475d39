"""Hints about columns: they can be pasted, as TOML and as --set, and they guess what a person would."""

import re
import shlex
import tomllib

import pytest

from tacit.config import RunFile
from tacit.data.columns import resolve
from tacit.data.load import load
from tacit.data.ratings import Feedback
from tacit.errors import DataError


def hint_of(*names, asked=None, feedback=Feedback.EXPLICIT, tmp_path=None) -> dict[str, str]:
    """The columns that a message proposes, by each of its three ways to write them."""
    with pytest.raises(DataError) as found:
        resolve(names, asked, feedback, "the table")
    text = str(found.value).partition(", or use feedback")[0].rstrip(".")
    toml = re.search(r"as in (columns = \{.*?\}) in \[data\]", text).group(1)
    columns = tomllib.loads(f"[data]\n{toml}")["data"]["columns"]
    words = shlex.split(text[text.index("(or --set ") + 1 : text.rindex(")")].replace("; tacit join:", " ;"))
    change = words[words.index("--set") + 1]
    path = tmp_path / "run.toml"
    path.write_text("")
    assert RunFile.read(path, [change]).data.columns == columns
    options = [words[k + 1] for k, word in enumerate(words) if word == "--column"]
    assert dict(option.split("=", 1) for option in options) == columns
    assert set(columns.values()) <= {*names, "NAME"}
    return columns


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        (["patient", "hospital", "what was given", "dose"], {"item": "what was given", "rating": "dose"}),
        (["stay", "patient no", "visit", "drug name", "score"], {"user": "patient no", "item": "drug name"}),
        (["hospital", "patient", "stay", "thing", "rating"], {"item": "thing"}),
        (["admission", "client", "lab result code", "rating"], {"user": "client", "item": "lab result code"}),
        (["customer", "visit", "rating"], {"item": "NAME"}),
        (["track name", "listener", "stars"], {"user": "listener", "item": "track name"}),
        (["a", "b", "c"], {"user": "a", "item": "b", "rating": "c"}),
        (['say "who"', "it's", "ß = 1", "\\"], {"user": 'say "who"', "item": "it's", "rating": "ß = 1"}),
    ],
)
def test_a_hint_can_be_pasted_and_is_not_silly(tmp_path, names, columns):
    assert hint_of(*names, tmp_path=tmp_path) == columns


def test_a_hint_keeps_what_was_asked_for(tmp_path):
    columns = hint_of("x", "y", "rating", asked={"user": "y"}, tmp_path=tmp_path)
    assert columns == {"user": "y", "item": "x"}


@pytest.mark.parametrize("item", ["medicine", "drug", "lab", "product", "film", "track", "isbn"])
def test_usual_names_of_items_are_known(tmp_path, item):
    (tmp_path / "r.csv").write_text(f"hospital,patient,{item},rating\nA,p1,x,1\nB,p2,y,2\n")
    ratings = load(tmp_path / "r.csv")
    assert list(ratings.user_ids.ids) == ["p1", "p2"]
    assert list(ratings.item_ids.ids) == ["x", "y"]
