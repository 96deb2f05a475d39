"""Which column is which, and where a row came from: what every reader shares before a value is looked at."""

from __future__ import annotations

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
    "profileid sku",
    "timestamp": "timestamp timestamps time ts unixtime unixreviewtime datetime date ratedat createdat",
}


@dataclass(frozen=True)
class Origin:
    """Where rows came from, for messages: `at(0)` is the first row's place.

    Parameters
    ----------
    name : what holds the rows, quoted as a message shows it
    line : the line of a text file (counted from 1) on which a row stands; None where rows have no lines
    """

    name: str
    line: Callable[[int], int] | None = None

    def at(self, row: int) -> str:
        """
        >>> Origin('"ratings.parquet"').at(0)
        'Row 1 of "ratings.parquet"'
        """
        return f"Row {row + 1} of {self.name}" if self.line is None else f"Line {self.line(row)} of {self.name}"

    def number(self, row: int) -> int:
        """The number by which a reader finds that row again."""
        return row + 1 if self.line is None else self.line(row)

    @property
    def unit(self) -> str:
        return "row" if self.line is None else "line"


@dataclass(frozen=True)
class Columns:
    """The names that a table gives to users, items, ratings and timestamps; None where it has none."""

    user: str
    item: str
    rating: str | None = None
    timestamp: str | None = None

    @property
    def names(self) -> list[str]:
        return [name for name in (self.user, self.item, self.rating, self.timestamp) if name is not None]


@dataclass(frozen=True)
class Records:
    """Rows as a source holds them, not checked yet, with what is publicly known of them.

    Attributes
    ----------
    table : the rows, under the source's own column names
    origin : where they came from
    columns : which column is which
    users, items : side tables with an id column "user" or "item", or None; listed ids need no rating
    scale : the published scale, or None
    counts : True where the numbers count events and are no opinions
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
    asked: Mapping[str, str] | None,
    feedback: Feedback,
    where: str,
    *,
    positional: bool = False,
) -> Columns:
    """Find the four columns among `names`: those `asked` for, else by the usual names.

    A file without a header has its columns called "1", "2", …; `positional` then takes them in the order
    user, item, rating, timestamp. An empty name, as in `{"timestamp": ""}`, leaves the column out.

    >>> resolve(["movieId", "userId", "rating"], None, Feedback.EXPLICIT, "a table")
    Columns(user='userId', item='movieId', rating='rating', timestamp=None)
    """
    asked = dict(asked or {})
    for role, name in asked.items():
        if role not in ROLES:
            raise UsageError(
                f'columns has the key "{role}"; it takes user, item, rating and timestamp only.'
                f"{did_you_mean(role, ROLES)}"
            )
        if name and name not in names:
            raise DataError(
                f'{_capital(where)} has no column "{name}"; its columns are {_listed(names)}.'
                f"{did_you_mean(name, names)}"
            )
    taken = {name for name in asked.values() if name}
    found: dict[str, str | None] = {}
    for place, role in enumerate(ROLES, start=1):
        if role in asked:
            found[role] = asked[role] or None
        elif positional:
            found[role] = str(place) if str(place) in names and str(place) not in taken else None
        else:
            found[role] = _guess(role, [name for name in names if name not in taken], feedback)
    twice = next((name for name in found.values() if name is not None and list(names).count(name) > 1), None)
    if twice is not None:
        raise DataError(f'{_capital(where)} has two columns called "{twice}"; rename one of them.')
    if feedback is Feedback.IMPLICIT:
        found["rating"] = None
    for role in ("user", "item", "rating"):
        if found[role] is None and not (role == "rating" and feedback is Feedback.IMPLICIT):
            raise DataError(_missing(role, names, feedback, where))
    return Columns(str(found["user"]), str(found["item"]), found["rating"], found["timestamp"])


def id_column(names: Sequence[str], kind: str, where: str) -> str:
    """The column of a side table that names the user or item; the only column always does."""
    if len(names) == 1:
        return names[0]
    name = _guess(kind, names, Feedback.EXPLICIT) or next((n for n in names if _plain(n) == "id"), None)
    if name is None:
        raise DataError(
            f'{_capital(where)} has no column of {kind} ids among {_listed(names)}; call one of them "{kind}".'
        )
    return name


def either(name: str, value: str) -> str:
    """An argument of `load` as messages show it, beside the option of `tacit join` that says the same.

    >>> print(either("duplicates", "last"))
    duplicates="last" (tacit join: --duplicates last)
    """
    return f'{name}="{value}" (tacit join: --{name} {shlex.quote(value)})'


def called(role: str, name: str) -> str:
    """The same for what a column is called.

    >>> print(called("user", "customer number"))
    columns={"user": "customer number"} (tacit join: --column 'user=customer number')
    """
    return f'columns={{"{role}": "{name}"}} (tacit join: --column {shlex.quote(f"{role}={name}")})'


def _guess(role: str, names: Sequence[str], feedback: Feedback) -> str | None:
    if role == "rating":
        usual = f"{_COUNTS} {_OPINIONS}" if feedback is Feedback.COUNT else _OPINIONS
    else:
        usual = _NAMES[role]
    by_plain = {_plain(name): name for name in reversed(names)}
    return next((by_plain[word] for word in usual.split() if word in by_plain), None)


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _missing(role: str, names: Sequence[str], feedback: Feedback, where: str) -> str:
    example = next((name for name in names if name), "…")
    mend = f"name it, as in {called(role, example)}"
    if role == "rating" and feedback is Feedback.EXPLICIT:
        mend += f", or use {either('feedback', 'implicit')} if a row only says that something happened"
    return f"{_capital(where)} has no {role} column that Tacit knows among {_listed(names)}; {mend}."


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f'"{name}"' for name in list(names)[:12])
    return f"{shown}, … ({len(names)} in all)" if len(names) > 12 else shown


def _capital(where: str) -> str:
    return where[:1].upper() + where[1:]
