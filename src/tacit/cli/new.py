"""`tacit new`: a run file to start from, private from its first section on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import typer

from tacit.config import RunFile
from tacit.data.load import check_source
from tacit.data.public_facts import PUBLISHED
from tacit.data.ratings import Feedback
from tacit.errors import DataError, TacitError, UsageError, did_you_mean
from tacit.methods import find, known
from tacit.partition import Setting

#: A column of text becomes a feature if it has at most so many labels, and two items for each: no titles, no ids.
MOST_LABELS = 100
#: Where a comment starts.
COLUMN = 26

#: By setting, the lines of the template that differ. Where items are divided `auto` does not run, and of the private
#: methods that do `bias` is the best at this ε on demo data.
SETTINGS = {
    "horizontal": {
        "partition": """\
by = "user"               # user · group · a column of the users or of the ratings ("zip1", "hospital")
into = 10                 # parties""",
        "name": "auto",
        "method": "{objective}",
        "aggregation": "secagg",
    },
    "vertical": {
        "partition": """\
by = "item"               # item · a column of the items ("genre")
into = 5                  # parties""",
        "name": "bias",
        "method": "",
        "aggregation": "plain",
    },
    "device": {
        "partition": 'by = "device"             # every user is a party',
        "name": "auto",
        "method": "{objective}",
        "aggregation": "secagg",
    },
}

TEMPLATE = """\
# A Tacit run. `tacit plan {file}` says what it promises and costs; `tacit run {file}` trains.
# Every key has a default; what is commented out shows it or an example.
seed = 7

[privacy]                 # without this section a run is NON-PRIVATE; for one run: --set privacy=none
epsilon = 1.0             # an observer's odds that a person's ratings were used shift by at most e^1 = 2.7 ×
# delta = 1e-6            # about how likely more than that may leak; far below 1/users
# unit = "user"           # user: all ratings of a person · rating: each rating by itself, which protects far less
# ledger = "DIR"          # the parties' ledgers, kept over runs

[data]
{source} # a file (CSV, TSV, Parquet), a folder, a name under TACIT_DATA, a database, or "demo"
{feedback} # explicit · implicit · count
# query = "select …"      # for a database
# columns = {{user = "uid", item = "isbn", rating = "stars"}}
# duplicates = "error"    # error · last · mean
# bad_rows = "error"      # error · drop (rows that are not ratings)
# user_table = "users.csv"                # attributes of users or items, with an id column
# item_table = "items.csv"

[public]                  # facts that everyone may know: with [privacy] nothing is read off the ratings
{public}
# ratings = 50000         # about how many; step sizes and forecasts rest on it, the guarantee does not

[split]
by = "random"             # random · leave-one-out · latest · temporal · cold-users · cold-items
test = 0.1

[partition]
{partition}
# size_skew = 0.0         # 0 equal sizes … 1 very unequal
# taste_skew = 0.0        # 0 mixed … 1 people with like tastes in one party

[method]
{name} # {methods}
{method}
[aggregation]
{aggregation} # secagg (masks: sums carry one noise for all) · plain (each party adds its own) ·
                          # ideal (simulates secagg) · shuffle (single reports, mixed by a proxy)
# tolerate = 0.3          # secagg: the fraction that may drop out; noise is sized for it, and beyond it a round is void
# collusion = 0.0         # the fraction that may collude; at least one always may
# signed = false          # secagg: survivors sign who stayed, against a coordinator that lies
# retries = 0             # secagg: void rounds that are tried again; each is planned for, and charged
# dropout = 0.0           # injected: each party and round independently, in sums

[engine]
name = "inprocess"
transcript = "digests"    # digests · full (keeps every message)
# timeout = 60.0          # seconds for one step; without it a deployment (tacit up) waits 600, a simulation for ever

[evaluate]
k = 10
negatives = 99
# relevance = 4.0         # a test rating from which on an item counts as relevant
# floor = false           # do not train `bias` beside the run, nor the other references
"""


def new(file: Path, source: str, items: Path | None, setting: str) -> None:
    """Write a private run file to start from, with every key explained; reads the items' table and no rating."""
    if setting not in SETTINGS:
        choices = ", ".join(SETTINGS)
        raise UsageError(f'There is no setting "{setting}"; choose {choices}.{did_you_mean(setting, SETTINGS)}')
    lines = dict(SETTINGS[setting])
    lines["method"] = lines["method"].replace("{objective}", _objective())
    lines["name"] = _line("name", lines["name"])
    lines["aggregation"] = _line("name", lines["aggregation"])
    open_facts, public = _public(source, items, lines["name"])
    feedback = PUBLISHED[source].feedback if source in PUBLISHED else Feedback.EXPLICIT
    lines |= {"source": _line("source", source), "feedback": _line("feedback", feedback)}
    text = TEMPLATE.format(file=file, public=public, methods=_choices(setting), **lines)
    try:
        with file.open("x", encoding="utf-8") as new_file:
            new_file.write(text)
    except FileExistsError:
        raise UsageError(f'"{file}" already exists; name another file, or remove it first.') from None
    except OSError as error:
        raise UsageError(f'"{file}" cannot be written: {error.strerror}; name another place.') from None
    written = RunFile.read(file)
    assert written.privacy is not None
    first = f"declare {_listed(open_facts)} in [public], and then: " if open_facts else ""
    typer.echo(
        f"Wrote {file}: {written.method['name']}, private, ε = {written.privacy.epsilon:g} for every user. "
        f"Next: {first}tacit plan {file}"
    )
    try:
        check_source(source)
    except DataError as error:
        typer.echo(f"tacit: warning: {error}", err=True)


def _line(key: str, value: str) -> str:
    return f"{key} = {json.dumps(value, ensure_ascii=False)}".ljust(COLUMN - 1)


def _public(source: str, items: Path | None, method: str) -> tuple[list[str], str]:
    """What is left to be declared before a private run, and the lines of [public]."""
    brought = source == "demo" or source in PUBLISHED
    features = _features(source, items) if "auto" in method else []
    declare = "" if brought else "declare it: "
    left = [] if brought else ["scale", "users"]
    lines = [
        f"# scale = [1, 5]          # {declare}the ends of the scale",
        f"# users = 1000            # {declare}at least as many as the data has",
    ]
    if items is not None:
        lines.append(f"{_line('catalogue', str(items))} # the item ids that there are, and their attributes")
    else:
        lines.append(f'# catalogue = "items.csv" # {declare}the item ids that there are, and their attributes')
        left += [] if brought else ["catalogue"]
    if brought:
        lines.insert(0, f'# "{source}" brings its own scale, number of users and list of items.')
    if features:
        lines.append(
            '# attributes of items that a method may use, assumed public; "title:text" would read the words of a title'
        )
        lines.append(f"features = {json.dumps(features, ensure_ascii=False)}")
    else:
        lines.append('# features = ["genres"]   # which of these attributes a method may use; they are assumed public')
    return left, "\n".join(lines)


def _features(source: str, items: Path | None) -> list[str]:
    """The attributes of items that make good features: numbers, and labels that many items share. No ids."""
    from tacit.data.catalogue import read_side
    from tacit.data.load import public_items, side_columns

    try:
        names = side_columns(source)["item"] if items is None else read_side(items, "item")[0].column_names[1:]
    except DataError:
        if items is not None:
            raise
        return []  # the data may come later
    found = []
    for name in names:
        try:
            listed = public_items(source, catalogue=items, features=[name])
        except TacitError:
            continue
        if 0 < listed.width <= min(MOST_LABELS, len(listed) // 2) and not name.lower().endswith("id"):
            found.append(name)
    return found


def _objective() -> str:
    field = find("auto").parameters.model_fields["objective"]
    shown = f"# objective = {json.dumps(field.default)}".ljust(COLUMN - 1)
    return f"{shown} # what the budget is spent on: {' · '.join(get_args(field.annotation))}\n"


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]])


def _choices(setting: str) -> str:
    names = [name for name, method in known().working().items() if Setting(setting) in method.sides]
    return f" ·\n{'':{COLUMN}}# ".join(" · ".join(names[at : at + 8]) for at in range(0, len(names), 8))
