"""“What left my site”: one offline page from a verified ledger, for whoever must prove what left the building."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

import numpy as np

from tacit.report import guarantee_words, left_rows, page
from tacit.report.charts import Reference, Series, line_chart
from tacit.report.description import StatedGuarantee
from tacit.report.left import Left, free, told
from tacit.report.markup import Child, Markup, tag
from tacit.report.page import save
from tacit.report.svg import both
from tacit.report.words import (
    count,
    decimals,
    epsilon,
    listing,
    moment,
    plural,
    sentence,
    short,
    size,
    spelled,
    unbroken,
)
from tacit.report.words import delta as small

#: What is said where a site told its metrics.
METRICS = (
    "The site chose to tell metrics of its own test ratings (--share-metrics). They are computed from ratings and left "
    "without any protection: no noise is on them, and no ε covers what they tell."
)


def write_left(left: Left, path: Path, made: str, version: str = "") -> Path:
    """Write the page, whole or not at all, for its owner's eyes only: it is about one site."""
    return save(path, left_page(left, made, version))


def left_page(left: Left, made: str, version: str = "") -> str:
    """The page as HTML; `made` is when its ledger was verified, as an ISO time."""
    title = f"What left {short(left.party, 80)}"
    return page.page(
        title,
        tag(
            "header",
            tag("p", f"Tacit ledger · {short(left.party, 80)} · {moment(made)}", class_="eyebrow"),
            tag("h1", title),
            tag("p", unbroken(_lede(left)), class_="lede"),
            *_stamps(left),
            _verified(left, made),
            _numbers(left),
        ),
        _cost(left),
        left_rows.by_step(left) if left.rows else None,
        left_rows.releases(left),
        left_rows.refusals(left),
        _stayed(left),
        _checking(left),
        version=version,
    )


# -- the top --------------------------------------------------------------------------------------------------


def _lede(left: Left) -> str:
    if not left.rows:
        since = f" since its ledger was begun, {moment(left.begun)}" if left.begun else ""
        return f"Nothing has left {left.party}{since}."
    since = moment(left.begun or left.rows[0].moment)
    sent = f"Since {since}, {plural(len(left.rows), 'release')} with {size(left.bytes)} left, to {left.recipients}."
    data, rest = len(left.rated), len(left.rows) - len(left.rated)
    if not data:
        return f"{sent} None of it was computed from ratings."
    bare = len(left.exposed)
    kinds = ((data - bare, "with noise added"), (bare, "without any protection"))
    parts = [f"{spelled(n)} {'was' if n == 1 else 'were'} computed from ratings, {how}" for n, how in kinds if n]
    if rest:
        parts.append(f"the other {'one holds' if rest == 1 else f'{spelled(rest)} hold'} nothing of the ratings")
    return f"{sent} {sentence('; '.join(parts))}"


def _stamps(left: Left) -> list[Markup]:
    """What all of it cost, where it cannot be missed; before it, what takes the worth out of that."""
    unit = left.unit or "unit"
    if not math.isfinite(left.epsilon):
        bad = "At least one release carried nothing that protects it: no ε holds for what left this site."
        return [_note("none", "NON-PRIVATE", bad)]
    metrics = [_note("none", "METRICS SHARED", METRICS)] if any(map(told, left.rows)) else []
    if metrics and all(free(row) or told(row) for row in left.rows):
        return metrics
    if not left.rated:
        return [
            _note(
                "holds",
                "ε = 0: nothing that left was computed from ratings",
                "Keys, sealed shares and “done” cost nothing.",
            )
        ]
    # Runs that were chosen one after another are held by the budget; the reading holds for a list that was fixed.
    held = left.held if len(left.runs) > 1 and left.held is not None and left.held.days is None else None
    promised, delta = (left.epsilon, left.delta) if held is None else (held.epsilon, held.delta)
    stated = StatedGuarantee(
        epsilon=promised,
        delta=delta,
        unit=unit,
        relation=str(left.relation),
        model="silo",
        against="whoever got what left",
        simulated=left.simulated,
    )
    said = [
        *guarantee_words.explained(stated),
        "That is for this site; what other sites let out about the same person adds to it.",
    ]
    if any(map(left.shared, left.rows)):
        said.append(
            "Sums left masked, and all sites share the noise that is on the sum of all: for them this rests on the "
            "secure sum, and on as many honest sites as the run's guarantee names."
        )
    if metrics:
        said.insert(0, "For all but the metrics:")
    if len(left.runs) > 1:
        reading = f"the reading for the fixed list of releases: ε = {epsilon(left.epsilon)} at δ = {small(left.delta)}"
        said.append(
            f"This is {reading}. It would hold for runs that were all fixed beforehand. {left.budget_in_words}"
            if held is None
            else f"This is the budget that holds, whatever made anyone ask for the next run; {reading}."
        )
    kind, before = "plain" if metrics or (len(left.runs) > 1 and held is None) else "holds", metrics
    if left.simulated:
        seeded = _note("simulated", "SIMULATED", guarantee_words.SIMULATED.partition(": ")[2].capitalize())
        kind, before = "plain", [*metrics, seeded]
    elif left.unknown:
        which = "" if len(left.unknown) == len(left.runs) else f" of {plural(len(left.unknown), 'run')}"
        said.append(f"Nothing beside the ledger says how the noise{which} was drawn: if from a seed, it is SIMULATED.")
        kind = "plain"
    title = f"ε = {epsilon(promised)} at δ = {small(delta)} · per {unit} · {left.relation}"
    return [*before, _note(kind, title, " ".join(said))]


def _verified(left: Left, made: str) -> Markup:
    """That the ledger was found whole, and the head to be kept."""
    said = (
        f"Just before this page was made: the chain of {plural(len(left.rows), 'release')} is whole; every row, the "
        "refusals and the site's state are as its key sealed them. Keep this head elsewhere: whoever has it can prove "
        "later that nothing was cut off."
    )
    head = tag("p", tag("code", left.head, class_="long"))
    return tag("div", tag("b", f"Verified {moment(made)}"), tag("p", said), head, class_="stamp holds", role="note")


def _note(kind: str, title: str, said: str) -> Markup:
    return tag("div", tag("b", title), tag("p", said), class_=f"stamp {kind}", role="note")


def _numbers(left: Left) -> Markup:
    """The key numbers, as tiles."""
    held = left.held
    reached: list[Child] = [tag("div", f"at δ = {small(left.delta)}", class_="more")]
    if held is not None:
        other = "" if held.delta == left.delta else f" at δ = {small(held.delta)}"
        span = "" if held.days is None else f" in any {held.days:g} days"
        reached = [tag("div", f"of a budget of {held.epsilon:g}{span}{other}", class_="more")]
    shown = tag("span", "∞") if math.isinf(left.epsilon) else page.number(left.epsilon, epsilon(left.epsilon))
    refused = int(left.refused["number"])
    bare = f", {count(len(left.exposed))} unprotected" if left.exposed else ""
    data = tag("div", f"{count(len(left.rated))} from ratings{bare}", class_="more")
    tiles = [
        _tile("ε reached", shown, *reached),
        _tile("Releases", page.number(len(left.rows), count(len(left.rows))), data),
        _tile("Left the site", page.number(left.bytes, unbroken(size(left.bytes)))),
        _tile(
            "Refused",
            page.number(refused, count(refused)),
            tag("div", "request" if refused == 1 else "requests", class_="more"),
        ),
    ]
    return tag("dl", *tiles, class_="numbers", style="--columns: 4")


def _tile(title: str, figure: Markup, *more: Child) -> Markup:
    return tag("div", tag("dt", title), tag("dd", tag("div", figure, class_="figure"), *more))


# -- charts ---------------------------------------------------------------------------------------------------


def _cost(left: Left) -> Markup | None:
    """The ε reached, over the releases."""
    costs = [place for place, row in enumerate(left.rows) if not free(row) and not told(row)]
    if not costs:
        return None
    dearest = epsilon(left.epsilon)
    reading = f"The first release from ratings took the site to ε = {epsilon(left.reached[costs[0]])}"
    only = ", and no other one cost any." if any(map(told, left.rows)) else ", and no other one was computed from them."
    reading += f", all {count(len(costs))} together to {dearest}." if len(costs) > 1 else only
    budget = None if left.held is None or left.held.days is not None else left.held.epsilon
    references = [] if budget is None else [Reference(f"budget {budget:g}", budget)]
    series = Series("ε", np.arange(len(left.rows) + 1), np.array([0.0, *map(_drawn, left.reached)]))
    drawing = both(
        lambda width: line_chart(
            [series],
            label=f"Line chart of the ε reached after each release. {reading}",
            x_title="Release",
            y_title=f"ε reached, at δ = {small(left.delta)}",
            references=references,
            width=width,
            height=260.0,
        )
    )
    return page.section("What it cost", page.figure(reading, drawing))


def _drawn(value: float) -> float:
    """ε rounded up to the digits that a chart prints, so that none says less than what holds."""
    tens = 10.0 ** decimals([value])
    return math.ceil(value * tens - 1e-9) / tens if math.isfinite(value) else value


# -- what did not leave ---------------------------------------------------------------------------------------


def _stayed(left: Left) -> Markup:
    """What no release holds, with what this ledger says to the contrary."""
    computed = "What is computed from them leaves with noise on it"
    if left.exposed:
        computed += f", but for {listing(dict.fromkeys(short(row.step, 60) for row in left.exposed))}"
    points: list[Child] = [
        tag("li", f"Ratings: who rated what, and how. {computed}."),
        tag("li", "User ids, names and anything else that the site's own tables say about a person."),
        tag(
            "li",
            "What was learned about single users (their factors), where sites hold different users. Where they "
            "hold the same users, users' factors are learned together: they leave with noise, and count above.",
        ),
        tag("li", "The site's keys, and the state that it keeps in its ledger: neither is on this page."),
    ]
    warning = None
    if steps := listing(dict.fromkeys(short(row.step, 60) for row in left.exposed if not told(row))):
        warning = _note(
            "none", "Not so here", f"Data left without any noise, in {steps}: nothing limits what that tells."
        )
    elif left.exposed:
        warning = _note("none", "Metrics left without any noise", METRICS)
    return page.section("What never leaves", warning, tag("ul", *points))


def _checking(left: Left) -> Markup:
    place = shlex.quote(str(left.path))
    lines = (
        f"tacit ledger verify {place} \\",
        f"  --head {left.head}",
        f"tacit ledger show {place} --delta {left.delta:g}",
        f"tacit ledger show {place} --html again.html",
    )
    head = (
        "The first command checks the ledger from its first row to its last, and that it still holds all that is on "
        "this page; exit code 0 says so, 6 that something was changed. The second prints the same releases and the "
        "same ε, and the third makes this page anew."
    )
    told = (
        "The head also left with the latest answer, so that the coordinator can show it too. "
        "This page by itself proves nothing: the ledger does, with its key."
    )
    return page.section(
        "How to check this page", tag("pre", tag("code", "\n".join(lines))), tag("p", head), tag("p", told)
    )
