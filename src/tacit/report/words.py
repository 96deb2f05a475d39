"""Numbers and lists as people write them: the one place where report, card and comparison get their text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

INTERVAL = "95 % interval"  # what `tacit.evaluate` computes
MISSING = "–"  # shown where a number is missing, infinite or not a number

_SMALL = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
# Not from the locale: a report reads the same wherever it was made.
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_IRREGULAR = {"party": "parties"}


def count(n: int) -> str:
    """An integer with separators between its thousands.

    >>> count(1000209)
    '1,000,209'
    """
    return f"{n:,}"


def plural(n: int, noun: str) -> str:
    """A count and its noun.

    >>> plural(1, "party"), plural(6040, "party")
    ('1 party', '6,040 parties')
    """
    return f"{count(n)} {noun if n == 1 else plural_noun(noun)}"


def plural_noun(noun: str) -> str:
    return _IRREGULAR.get(noun, noun + "s")


def spelled(n: int) -> str:
    """A small number as a word, a larger one in figures.

    >>> spelled(10), spelled(70000)
    ('ten', '70,000')
    """
    return _SMALL[n] if 0 <= n < len(_SMALL) else count(n)


def listing(things: Iterable[object]) -> str:
    """A list in words.

    >>> listing(["coordinator", "silos", "devices"])
    'coordinator, silos and devices'
    """
    parts = [str(t) for t in things]
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)


def size(n: float) -> str:
    """Bytes in decimal units (1 KB = 1,000 bytes), three digits.

    >>> size(12345678), size(999), size(1), size(999999)
    ('12.3 MB', '999 bytes', '1 byte', '1 MB')
    """
    if not math.isfinite(n):
        return MISSING
    if abs(n) < 1000:
        shown = f"{n:.3g}"
        return f"{shown} byte{'' if shown == '1' else 's'}"
    for unit in ("KB", "MB", "GB", "TB", "PB"):
        n /= 1000
        if abs(n) < 999.5 or unit == "PB":
            break
    return f"{_three_digits(n)} {unit}"


def seconds(s: float) -> str:
    """A duration.

    >>> seconds(0.0421), seconds(41.26), seconds(200), seconds(3840)
    ('42 ms', '41 s', '3 min 20 s', '1 h 4 min')
    """
    if not math.isfinite(s):
        return MISSING
    if s < 0.9995:
        return f"{1000 * s:.0f} ms"
    if s < 59.5:
        return f"{s:.1f} s" if s < 9.95 else f"{s:.0f} s"
    whole = round(s)
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    minutes = round(s / 60)
    return f"{count(minutes // 60)} h" + (f" {minutes % 60} min" if minutes % 60 else "")


def percent(fraction: float) -> str:
    """A share, one digit after the point where that is informative.

    >>> percent(0.0447), percent(0.5), percent(0.00004)
    ('4.5 %', '50 %', 'under 0.1 %')
    """
    if not math.isfinite(fraction):
        return MISSING
    if 0 < fraction < 0.001:
        return "under 0.1 %"
    shown = f"{100 * fraction:.1f}" if fraction < 0.1 or 0.99 < fraction < 1 else f"{100 * fraction:.0f}"
    return shown.removesuffix(".0") + " %"


def decimals(values: Sequence[float | None]) -> int:
    """Digits after the point with which these values, and small differences between them, can be seen.

    >>> decimals([0.755]), decimals([0.7551, 0.7553, 0.7556]), decimals([23.4]), decimals([1200.0])
    (3, 4, 2, 0)
    """
    known = [abs(v) for v in values if v is not None and math.isfinite(v)]
    largest = max(known, default=0.0)
    places = 3 if largest < 10 else 2 if largest < 100 else 1 if largest < 1000 else 0
    if 0 < largest < 0.1:
        places = min(8, 2 - math.floor(math.log10(largest)))
    spread = largest - min(known, default=0.0)
    if len(known) > 1 and 0 < spread < 2 * 10.0**-places:
        places = min(8, max(places, -math.floor(math.log10(spread))), places + 2)
    return places


def metric(value: float | None, places: int | None = None) -> str:
    """A metric's value; `places` digits after the point, or as many as suit it.

    >>> metric(0.75512), metric(float("nan")), metric(0.7, 2), metric(-2.5e12)
    ('0.755', '–', '0.70', '−2.5e+12')
    """
    if value is None or not math.isfinite(value):
        return MISSING
    if abs(value) >= 1e9:
        return f"{value:.3g}".replace("-", "−")
    shown = f"{value:,.{decimals([value]) if places is None else places}f}"
    return shown.replace("-", "−") if float(shown.replace(",", "")) else shown.replace("-", "")


def epsilon(value: float) -> str:
    """ε, rounded up: what is printed is never less than what holds.

    >>> epsilon(1.0), epsilon(1.2341), epsilon(0.00123), epsilon(float("inf"))
    ('1.00', '1.235', '0.00123', '∞')
    """
    if not math.isfinite(value):
        return "∞"
    if value <= 0:
        return "0"
    places = 2 if value >= 0.1 else 1 - math.floor(math.log10(value))
    if round(value, places) < value:
        places += 1
    return f"{_rounded_up(value, places):.{places}f}"


def epsilon_so_far(value: float) -> str:
    """ε in a column, rounded up, with the same number of decimals on every line.

    >>> epsilon_so_far(1.0), epsilon_so_far(0.1412), epsilon_so_far(1e-9), epsilon_so_far(float("inf"))
    ('1.000', '0.142', '0.001', '∞')
    """
    return f"{max(_rounded_up(value, 3), 0.001 if value > 0 else 0.0):.3f}" if math.isfinite(value) else "∞"


def delta(value: float) -> str:
    """δ, rounded up, in powers of ten.

    >>> delta(1e-6), delta(3.7183e-6), delta(0)
    ('1e-06', '3.8e-06', '0')
    """
    if not math.isfinite(value) or value <= 0:
        return "0" if value == 0 else MISSING
    power = math.floor(math.log10(value))
    return f"{_rounded_up(value / 10.0**power, 1):.1f}e{power:+03d}".replace(".0e", "e")


def moment(text: str) -> str:
    """An ISO time in words; anything else as it is.

    >>> moment("2026-03-14T10:22:05+00:00")
    '14 March 2026, 10:22 UTC'
    """
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return text
    zone = " UTC" if when.tzinfo else ""
    when = when.astimezone(UTC) if when.tzinfo else when
    return f"{when.day} {_MONTHS[when.month - 1]} {when.year}, {when:%H:%M}{zone}"


def unbroken(text: str) -> str:
    """The text, with no line break between a number and its unit, nor within "ε = 1"."""
    return re.sub(r"(?<=\d) (?=(?:bytes?|[KMGTP]B|m?s|min|h|%)(?:\W|$))|(?<=[εδ]) (?==)|(?<=[εδ] =) ", "\u00a0", text)


def sentence(text: str) -> str:
    """The text with a capital first and a full stop last."""
    text = text.strip()
    if not text:
        return ""
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?…:" else ".")


def short(text: object, length: int) -> str:
    """The text, cut to `length` with an ellipsis."""
    whole = str(text)
    return whole if len(whole) <= length else whole[: max(length - 1, 0)].rstrip() + "…"


def _three_digits(n: float) -> str:
    places = 2 if abs(n) < 9.995 else 1 if abs(n) < 99.95 else 0
    shown = f"{n:.{places}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def _rounded_up(value: float, places: int) -> float:
    return math.ceil(value * 10**places - 1e-9) / 10**places
