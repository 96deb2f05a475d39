"""`tacit new`: a run file to start from."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from tacit.config import RunFile
from tacit.errors import UsageError, did_you_mean
from tacit.methods import known
from tacit.partition import Setting

#: By setting, the lines of the template that differ: [partition], rounds, and what matters with [privacy].
SETTINGS = {
    "horizontal": {
        "partition": """\
by = "user"               # user · group · a column of the users or of the ratings ("zip1", "hospital")
into = 10                 # parties""",
        "rounds": "rounds = 100",
        "method": """\
# trim = 10               # with [privacy]: ratings used of a user in a step
# fine_tuning = 20        # with [privacy]: passes of each silo over its own ratings at the end; they stay there
""",
        "privacy": "First: tacit plan {file}",
    },
    "vertical": {
        "partition": """\
by = "item"               # item · a column of the items ("genre")
into = 5                  # parties""",
        "rounds": "rounds = 100",
        "method": """\
# trim = 5                # with [privacy]: ratings used of a user in a step
# final_steps = 300       # with [privacy]: last steps on items' factors alone
""",
        "privacy": "First: tacit plan {file}",
    },
    "device": {
        "partition": 'by = "device"             # every user is a party',
        "rounds": "# rounds = 100            # 10 with [privacy]",
        "method": """\
# send = "rating"         # with [privacy]: what a device adds: one rating's gradient, or its "record"
""",
        "privacy": 'With "secagg" below all devices share one noise. First: tacit plan {file}',
    },
}

TEMPLATE = """\
# A Tacit run: `tacit run {file}`. Every key has a default; what is commented out shows it or an example.
seed = 7

[data]
source = {source}           # a file (CSV, TSV, Parquet), a folder, a name under TACIT_DATA, a database, or "demo"
feedback = "explicit"     # explicit · implicit · count
# query = "select …"      # for a database
# columns = {{user = "uid", item = "isbn", rating = "stars"}}
# duplicates = "error"    # error · last · mean
# bad_rows = "error"      # error · drop (rows that are not ratings)
# user_table = "users.csv"                # attributes of users or items, with an id column
# item_table = "items.csv"

[public]                  # facts that everyone may know; [privacy] needs the first three, unless a set brings them
# scale = [1, 5]          # without it the scale is read off the data, and the run says so
# users = 1000            # at least as many as the data has
# catalogue = "items.csv" # the item ids that there are, and their attributes
# features = ["genres"]   # which of these attributes a method may use: text, numbers, lists of text, "title:text"
# ratings = 50000         # about how many; private step sizes rest on it, the guarantee does not

[split]
by = "random"             # random · leave-one-out · latest · temporal · cold-users · cold-items
test = 0.1

[partition]
{partition}
# size_skew = 0.0         # 0 equal sizes … 1 very unequal
# taste_skew = 0.0        # 0 mixed … 1 people with like tastes in one party

[method]
name = "sgdmf"            # {methods}
factors = 20
{rounds}
local_steps = 10
# sampling = 0.1          # users per step; 0.01 with [privacy]
# rate = 600.0            # default: from public facts and the noise
# regularization = 0.0
{method}
# [privacy]               # absent: NON-PRIVATE. {privacy}
# epsilon = 1.0
# delta = 1e-6
# unit = "user"           # user · rating
# ledger = "DIR"          # the parties' ledgers, kept over runs

[aggregation]
name = "plain"            # plain · secagg (masks; with [privacy], sums carry one noise for all) · ideal (simulates
                          # that) · shuffle (simulates a shuffler, for single reports)
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


def new(file: Path, source: str, setting: str) -> None:
    """Write a run file to start from, with every key explained."""
    if setting not in SETTINGS:
        choices = ", ".join(SETTINGS)
        raise UsageError(f'There is no setting "{setting}"; choose {choices}.{did_you_mean(setting, SETTINGS)}')
    lines = {name: text.replace("{file}", str(file)) for name, text in SETTINGS[setting].items()}
    text = TEMPLATE.format(file=file, source=json.dumps(source, ensure_ascii=False), methods=_choices(setting), **lines)
    try:
        with file.open("x", encoding="utf-8") as new_file:
            new_file.write(text)
    except FileExistsError:
        raise UsageError(f'"{file}" already exists; name another file, or remove it first.') from None
    except OSError as error:
        raise UsageError(f'"{file}" cannot be written: {error.strerror}; name another place.') from None
    RunFile.read(file)
    typer.echo(f"Wrote {file}. Next: tacit run {file}")


def _choices(setting: str) -> str:
    names = [name for name, method in known().working().items() if Setting(setting) in method.sides]
    return f" ·\n{'':26}# ".join(" · ".join(names[at : at + 8]) for at in range(0, len(names), 8))
