"""Every error Tacit raises on purpose, and the exit code that the command line gives it.

    TacitError (1)
    ├── UsageError (2)       an invalid parameter, run file or command line
    ├── DataError (3)        data that is missing or cannot be read
    │   └── DuplicatePair    one user rated one item twice
    ├── PrivacyRefused (4)   the request would break, or lacks, a guarantee
    │   └── UngatedRelease   something tried to leave a party other than through its gate
    ├── PeerFailed (5)       a party or the coordinator failed, or did not answer in time
    │   └── BadMessage       a peer sent what its schema forbids
    └── TamperingFound (6)   a record was changed after it was written

A message is one sentence: what is wrong, where, and how to correct it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any


class TacitError(Exception):
    """The root of all errors that Tacit raises on purpose."""

    exit_code = 1


class UsageError(TacitError, ValueError):
    """An invalid parameter, run file or command line."""

    exit_code = 2


class DataError(TacitError, ValueError):
    """Data that is missing, or that cannot be read as ratings."""

    exit_code = 3


class DuplicatePair(DataError):
    """One user rated one item more than once; `first` and `second` are positions in the input."""

    def __init__(self, message: str, *, first: int, second: int, user: object, item: object) -> None:
        super().__init__(message)
        self.first, self.second, self.user, self.item = first, second, user, item


class PrivacyRefused(TacitError):
    """A request that would break a guarantee, or requires an impossible one."""

    exit_code = 4


class UngatedRelease(PrivacyRefused):
    """Something tried to leave a party without passing its gate."""


class PeerFailed(TacitError):
    """A party or the coordinator failed, or did not answer in time."""

    exit_code = 5


class BadMessage(PeerFailed):
    """A peer sent something that its schema forbids."""


class TamperingFound(TacitError):
    """A record was changed after it was written."""

    exit_code = 6


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A suggestion to append to a message, or nothing.

    >>> did_you_mean("sgdfm", ["sgdmf", "central"])
    ' Did you mean "sgdmf"?'
    """
    close = difflib.get_close_matches(str(word)[:200], [str(k) for k in known], n=1)
    return f' Did you mean "{close[0]}"?' if close else ""


def with_article(noun: str) -> str:
    """A noun with its indefinite article, by how its first sound is written.

    >>> with_article("int"), with_article("EASE"), with_article("SGDMF"), with_article("Bias")
    ('an int', 'an EASE', 'an SGDMF', 'a Bias')
    """
    spelled_out = noun.isupper() and noun[:1] in "FHLMNRSX"  # "ess-gee-…"
    return f"an {noun}" if noun[:1].lower() in "aeio" or spelled_out else f"a {noun}"


def check_type(value: object, wanted: Any, caller: str, takes: str) -> None:
    """UsageError unless `value` is what a function takes: for arguments that a person passes by hand."""
    if not isinstance(value, wanted):
        raise UsageError(f"{caller} takes {takes}, and got {with_article(type(value).__name__)}.")


def check_integer(name: str, value: object, least: int = 1) -> None:
    """UsageError unless `value` is an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise UsageError(f"{name} = {value!r} is not possible; give an integer, {least} or more.")


def is_number(value: object) -> bool:
    """Whether a value is a real number, and not a truth value."""
    return isinstance(value, Real) and not isinstance(value, bool)
