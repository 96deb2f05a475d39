"""Which column is which, and where a row came from: what every reader shares before a value is read."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tacit.data.ratings import Feedback, Scale
from tacit.errors import DataError, UsageError, did_you_mean

ROLES = ("user", "item", "rating", "timestamp")

# Names are compared in lower case and without punctuation, so "userId", "user_id" and "User-ID" are one.
# Earlier names win: a file with both "user_id" and "username" is read by the first.
_OPINIONS = "rating ratings stars star score value bookrating overall preference"
_COUNTS = "plays playcount count counts quantity weight times listens views clicks"
_NAMES = {
    "user": "user userid users uid user1 customer customerid member memberid patient patientid account "
    "accountid visitor visitorid reviewer reviewerid person personid username",
    "item": "item itemid items iid movie movieid film filmid product productid asin isbn book bookid song "
    "songid track trackid artist artistid joke jokeid article articleid business businessid profile "
    "profileid sku medicine medicineid drug drugid medication medicationid lab labid labname",
    "timestamp": "timestamp timestamps time ts unixtime unixreviewtime datetime date ratedat createdat",
}

# For the suggestion in a message: words in the names of such columns, and in those of neither users nor items.
_HINTS = {
    "user": "user customer member patient person people client subject reader viewer listener student buyer uid who",
    "item": "item movie film product medicine medication drug lab isbn book song track artist title game article "
    "course recipe sku code what",
    "rating": "rating star score value result grade points opinion vote number amount",
}
_NEITHER = (
    "hospital ward site clinic stay visit encounter admission session date time year age sex gender country city zip"
)
#: The key, among the requested columns, of one that describes its row's user or item.
ATTRIBUTE = "[partition] by"


@dataclass(frozen=True)
class Origin:
    """Where rows came from, for messages: `at(0)` is the first row's place.

    Parameters
    ----------
    name : of the source, quoted as a message shows it
    line : the line of a text file (counted from 1) of a row; None where rows have no lines
    rows : which of the source's rows these are, where some were left out
    """

    name: str
    line: Callable[[int], int] | None = None
    rows: Sequence[int] | None = None

    def at(self, row: int) -> str:
        """
        >>> Origin('"ratings.parquet"').at(0)
        'Row 1 of "ratings.parquet"'
        """
        return f"{self.unit.capitalize()} {self.number(row)} of {self.name}"

    def number(self, row: int) -> int:
        """The number by which a reader finds that row again."""
        row = row if self.rows is None else int(self.rows[row])
        return row + 1 if self.line is None else self.line(row)

    @property
    def unit(self) -> str:
        return "row" if self.line is None else "line"


@dataclass(frozen=True)
class Columns:
    """The names of a table's columns of users, items, ratings and timestamps; None where it has no such column.

    `attribute` is a further column, which describes the user or the item of its row.
    """

    user: str
    item: str
    rating: str | None = None
    timestamp: str | None = None
    attribute: str | None = None

    @property
    def names(self) -> list[str]:
        every = (self.user, self.item, self.rating, self.timestamp, self.attribute)
        return [name for name in every if name is not None]


@dataclass(frozen=True)
class Records:
    """Rows of a source before any check, with what is publicly known of them.

    Attributes
    ----------
    table : the rows, under the source's own column names
    columns : which column is which
    users, items : side tables with an id column "user" or "item", or None; listed ids need no rating
    scale : the published scale, or None
    counts : True where the numbers count events and are not opinions
    """

    table: pa.Table
    origin: Origin
    columns: Columns
    users: pa.Table | None = None
    items: pa.Table | None = None
    scale: Scale | None = None
    counts: bool = False
    name: str = "ratings"
    notes: tuple[str, ...] = ()


def resolve(
    names: Sequence[str],
    requested: Mapping[str, str] | None,
    feedback: Feedback,
    where: str,
    *,
    positional: bool = False,
) -> Columns:
    """Find the four columns among `names`: the `requested` ones, else by the usual names.

    A file without a header has columns called "1", "2", …; `positional` then takes them in the order user, item,
    rating, timestamp. An empty name, as in `{"timestamp": ""}`, leaves the column out.

    >>> resolve(["movieId", "userId", "rating"], None, Feedback.EXPLICIT, "a table")
    Columns(user='userId', item='movieId', rating='rating', timestamp=None, attribute=None)
    """
    requested = dict(requested or {})
    attribute = requested.pop(ATTRIBUTE, None)
    for role, name in requested.items():
        if role not in ROLES:
            known = "user, item, rating and timestamp"
            raise UsageError(f'columns has the key "{role}"; it takes {known} only.{did_you_mean(role, ROLES)}')
        if name and name not in names:
            hint = did_you_mean(name, names)
            raise DataError(f'{capital(where)} has no column "{name}"; its columns are {_listed(names)}.{hint}')
    free = [name for name in names if name not in requested.values()]
    found: dict[str, str | None] = {}
    for place, role in enumerate(ROLES, start=1):
        if role in requested:
            found[role] = requested[role] or None
        elif positional:
            found[role] = str(place) if str(place) in free else None
        else:
            found[role] = _guess(role, free, feedback)
    twice = next((name for name in found.values() if name is not None and list(names).count(name) > 1), None)
    if twice is not None:
        raise DataError(f'{capital(where)} has two columns called "{twice}"; rename one of them.')
    needed = ["user", "item", "rating"]
    if feedback is Feedback.IMPLICIT:
        found["rating"] = None
        needed.remove("rating")
    missing = [role for role in needed if found[role] is None]
    if missing:
        raise DataError(_missing(missing, found, requested, names, feedback, where))
    attribute = attribute if attribute in names and attribute not in found.values() else None
    return Columns(str(found["user"]), str(found["item"]), found["rating"], found["timestamp"], attribute)


def id_column(names: Sequence[str], kind: str, where: str) -> str:
    """The column of a side table that names the user or item; the only column always does."""
    if len(names) == 1:
        return names[0]
    name = _guess(kind, names, Feedback.EXPLICIT) or next((n for n in names if _plain(n) == "id"), None)
    if name is None:
        listed = _listed(names)
        raise DataError(f'{capital(where)} has no column of {kind} ids among {listed}; call one of them "{kind}".')
    return name


def option_hint(name: str, value: str) -> str:
    """A setting of [data], as a run file, `--set` and `tacit join` take it.

    >>> print(option_hint("duplicates", "last"))
    duplicates = "last" in [data] (or --set data.duplicates=last; tacit join: --duplicates last)
    """
    changed, option = shlex.quote(f"data.{name}={value}"), name.replace("_", "-")
    return f"{name} = {_toml(value)} in [data] (or --set {changed}; tacit join: --{option} {shlex.quote(value)})"


def columns_hint(names: Mapping[str, str]) -> str:
    """The same for names of columns.

    >>> print(columns_hint({"user": "uid"}))
    columns = {user = "uid"} in [data] (or --set 'data.columns={user = "uid"}'; tacit join: --column user=uid)
    """
    table = "{" + ", ".join(f"{role} = {_toml(name)}" for role, name in names.items()) + "}"
    options = " ".join(f"--column {shlex.quote(f'{role}={name}')}" for role, name in names.items())
    return f"columns = {table} in [data] (or --set {shlex.quote(f'data.columns={table}')}; tacit join: {options})"


def capital(where: str) -> str:
    return where[:1].upper() + where[1:]


def _toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _guess(role: str, names: Sequence[str], feedback: Feedback) -> str | None:
    ratings = f"{_COUNTS} {_OPINIONS}" if feedback is Feedback.COUNT else _OPINIONS
    by_plain = {_plain(name): name for name in reversed(names)}
    return next((by_plain[word] for word in _NAMES.get(role, ratings).split() if word in by_plain), None)


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _missing(
    missing: Sequence[str],
    found: Mapping[str, str | None],
    requested: Mapping[str, str],
    names: Sequence[str],
    feedback: Feedback,
    where: str,
) -> str:
    """That columns are missing, with a hint to paste: all that were requested, and a guess for each missing one."""
    taken = {name for name in found.values() if name}
    hint = {role: name for role, name in requested.items() if role in ROLES}
    for role in missing:
        hint[role] = _likely(role, [name for name in names if name and name not in taken])
        taken.add(hint[role])
    mend = f"name {'it' if len(missing) == 1 else 'them'}, as in {columns_hint(hint)}"
    if "rating" in missing and feedback is Feedback.EXPLICIT:
        mend += f", or use {option_hint('feedback', 'implicit')} if a row only records that something happened"
    what = f"{' and no '.join(missing)} column"
    return f"{capital(where)} has no {what} that Tacit knows among {_listed(names)}; {mend}."


def _likely(role: str, names: Sequence[str]) -> str:
    """The column that may hold a role: by a word in its name, else one whose name fits nothing else."""

    def holds(name: str, words: str) -> bool:
        return any(word in _plain(name) for word in words.split())

    own = [name for name in names if holds(name, _HINTS[role])]
    others = [words for other, words in _HINTS.items() if other != role]
    free = [name for name in names if not any(holds(name, words) for words in (*others, _NEITHER))]
    return next(iter([*(name for name in own if name in free), *own, *free]), "NAME")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f'"{name[:60]}"' for name in list(names)[:12])
    return f"{shown}, … ({len(names)} in all)" if len(names) > 12 else shown
