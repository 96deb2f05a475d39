"""What a run's numbers say: the headline, a sentence for each chart, and who sent what, by party, step and round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.report.floor_verdict import verdict, who
from tacit.report.folder import RunRecord
from tacit.report.metric_names import leading, meaning
from tacit.report.words import (
    count,
    decimals,
    listing,
    metric,
    percent,
    plural,
    plural_noun,
    seconds,
    sentence,
    size,
    spelled,
)


def lead_metric(record: RunRecord) -> str | None:
    """The metric that headline and charts are about; a finite one where there is any."""
    metrics = record.summary.metrics
    finite = [name for name, value in metrics.items() if value is not None and math.isfinite(value)]
    return leading(finite or metrics)


def headline(record: RunRecord) -> str:
    """The run in one line, as in "Ten silos learned together: test MSE 0.755, beats bias"."""
    did = _what_happened(record)
    lead = lead_metric(record)
    if lead is None:
        return did
    whose = f" at {record.summary.metrics_of}" if record.summary.metrics_of else ""
    found = verdict(record)
    verdict_words = f", {found.brief}" if found is not None and found.brief else ""
    return f"{did}: test {meaning(lead).short} {metric(record.summary.metrics[lead])}{whose}{verdict_words}"


def _what_happened(record: RunRecord) -> str:
    n, noun = who(record)
    name = record.about.method.name
    kinds = {crossing.kind for crossing in record.about.crossings}
    subject = f"{spelled(n)} {noun if n == 1 else plural_noun(noun)}"
    subject = subject[0].upper() + subject[1:]
    if n == 0:
        return "A model was trained"
    if name in ("central", "central-sgd"):
        return f"{subject} pooled {'its' if n == 1 else 'their'} ratings"
    if name in ("local", "local-sgd"):
        return f"{subject} learned alone" if n == 1 else f"{subject} each learned alone"
    if record.summary.bytes_up == 0 or kinds == {"public"}:
        return f"{subject} shared nothing"
    return f"{subject} took part" if n == 1 else f"{subject} learned together"


def lede(record: RunRecord) -> str:
    """Two sentences after the headline: what was learned from, and what it took."""
    about, summary = record.about, record.summary
    text = f"{about.method.title or about.method.name}, on {about.data.name}: {about.data.sizes}. "
    text += f"{plural(summary.rounds, 'round')} took {seconds(summary.seconds)}; "
    if summary.bytes_up == 0 and summary.bytes_down == 0:
        return text + "nothing was sent."
    text += f"{size(summary.bytes_up)} left the parties and {size(summary.bytes_down)} reached them"
    return f"{text} in it; {outside(record)}." if about.beside else f"{text}."


def data_sentence(record: RunRecord) -> str:
    """What was learned from, in one sentence."""
    data, deployed = record.about.data, record.about.deployed
    pairs, density = data.users * data.items, data.density
    if density is None and not deployed and pairs:  # the ratings of a deployment are only declared
        density = data.ratings / pairs
    text = f"{data.name} has {data.rated} of {plural(data.items, 'item')} by {plural(data.users, 'user')}"
    if deployed:
        text = sentence(f"{data.name}: {data.sizes}").removesuffix(".")
    if density is not None and math.isfinite(density):
        text += f", {percent(density)} of all pairs"
    if data.feedback:
        text += f"; feedback is {data.feedback}"
    if data.scale is not None:
        text += f", on the scale {_scale(data.scale)}"
    return f"{text}."


def _scale(scale: object) -> str:
    if isinstance(scale, (list, tuple)) and len(scale) == 2:
        return "…".join(f"{end:g}" if isinstance(end, (int, float)) else str(end) for end in scale)
    return str(scale)


def outside(record: RunRecord) -> str:
    """How much left the parties before the run and after it."""
    before, after = (record.about.bytes_sent(when) for when in ("before", "after"))
    return f"{size(before)} left them before it, {size(after) if after else 'nothing'} after it"


def read_convergence(name: str, rounds: np.ndarray, values: np.ndarray) -> str:
    """How a metric changed over the rounds."""
    known, short_name = np.isfinite(values), meaning(name).short
    if not known.any():
        return f"There is no finite value of {short_name} in any round."
    x, y = [int(r) for r in rounds[known]], values[known]
    gaps = int((~known).sum())
    tail = f" {plural(gaps, 'round')} gave no finite value." if gaps else ""
    if len(y) == 1:
        return f"After round {count(x[0])}, test {short_name} was {metric(float(y[0]))}.{tail}"
    places = decimals([float(y[0]), float(y[-1])])
    first, last = metric(float(y[0]), places), metric(float(y[-1]), places)
    if first == last:
        same = f"after round {count(x[0])}, and again after round {count(x[-1])}"
        return f"Test {short_name} was {first} {same}.{tail}"
    change, lower = float(y[-1] - y[0]), meaning(name).lower_is_better
    text = f"Test {short_name} {'fell' if change < 0 else 'rose'} from {first} after round {count(x[0])}"
    text += f" to {last} after round {count(x[-1])}"
    if lower is not None and (change < 0) != lower:
        return f"{text}: it got worse.{tail}"
    far = np.flatnonzero(np.abs(y - y[-1]) > 0.1 * abs(change))
    settled = int(far[-1]) + 1 if len(far) else 0
    if 0 < settled < len(y) - 1 and x[settled] <= x[0] + 0.7 * (x[-1] - x[0]):
        text += f", nine tenths of the way by round {count(x[settled])}"
    best = len(y) - 1 if lower is None else int(np.argmin(y) if lower else np.argmax(y))
    if best < len(y) - 1 and abs(y[best] - y[-1]) > 0.05 * abs(change):
        text += f". Its best, {metric(float(y[best]), places)}, came after round {count(x[best])}"
    return f"{text}.{tail}"


def read_final(values: np.ndarray, final: float) -> list[str]:
    """A remark where the last round's value is not the headline's; none where they agree."""
    known = values[np.isfinite(values)]
    if len(known) == 0 or metric(float(known[-1])) == metric(final):
        return []
    return [f"The final model, evaluated on all test ratings, has {metric(final)}."]


def read_histogram(name: str, values: np.ndarray) -> str:
    """How a metric is spread over users."""
    known = values[np.isfinite(values)]
    short_name, lower = meaning(name).short, meaning(name).lower_is_better
    without = len(values) - len(known)
    tail = f" {plural(without, 'user')} without a value left out." if without else ""
    if len(known) == 0:
        return "No user has a value."
    if len(known) == 1:
        return f"There is one user, whose {short_name} is {metric(float(known[0]))}.{tail}"
    low, middle, high = (float(q) for q in np.percentile(known, [10, 50, 90]))
    places = decimals([low, middle, high])
    if low == high:
        return f"{short_name} is {metric(middle, places)} for nearly all of {plural(len(known), 'user')}.{tail}"
    above = (lower is not False and high > middle) or low == middle
    edge = f"above {metric(high, places)}" if above else f"below {metric(low, places)}"
    text = f"The median {short_name} over {plural(len(known), 'user')} is {metric(middle, places)}; "
    text += f"for one user in ten it is {edge}."
    if name in {"mse", "rmse", "mae"}:
        text += " Every user counts once here, while the headline counts every test rating."
    return text + tail


def all_alike(rows: list[PartyTraffic]) -> bool:
    """Whether all parties sent and received the same."""
    return len({(row.up, row.down) for row in rows}) == 1


def read_parties(rows: list[PartyTraffic], others: PartyTraffic | None, noun: str) -> str:
    """Who sent most; `rows` by bytes sent, `others` those of them who are drawn as one."""
    up, down = sum(row.up for row in rows), sum(row.down for row in rows)
    if up == 0 and down == 0:
        return "No message passed between any two roles."
    first = rows[0]
    sent = f"sent {size(first.up)} and received {size(first.down)}"
    if len(rows) == 1 and first.devices:
        each = f"{size(first.up / first.devices)} up and {size(first.down / first.devices)} down"
        return f"{count(first.devices)} devices are one cohort here; for each of them, {each} on average."
    if len(rows) == 1:
        return f"{first.title} {sent}."
    if all_alike(rows):
        return f"Each of the {spelled(len(rows))} {'cohorts' if first.devices else plural_noun(noun)} {sent}."
    text = f"{first.title} sent most: {size(first.up)}, {percent(first.up / up)} of all bytes sent." if up else ""
    if others is not None:
        text += f" The last bar is the mean of the {count(others.parties)} others, "
        text += f"who sent {size(others.up)} and received {size(others.down)} in all."
    return text.strip() or f"No party sent anything; together they received {size(down)}."


def read_rounds(moved: RoundTraffic) -> str:
    """What a round cost, and which step it went to."""
    by_step = moved.up.sum(axis=0) + moved.down.sum(axis=0)
    if by_step.sum() == 0:
        return "No message passed between any two roles."
    up, down = (float(np.median(table.sum(axis=1))) for table in (moved.up, moved.down))
    text = f"A typical round carried {size(up)} up and {size(down)} down"
    if len(moved.rounds) == 1:
        text = f"There was one round: {size(up)} up and {size(down)} down"
    if len(moved.steps) == 1:
        return f"{text}, all of it in the step “{moved.steps[0]}”."
    share = percent(float(by_step[0] / by_step.sum()))
    return f"{text}; {share} of all bytes belong to the step “{moved.steps[0]}”."


def traffic_remarks(record: RunRecord) -> list[str]:
    """What else there is to know about the charts of bytes."""
    lost = [f"{count(n)} {status}" for status, n in troubles(record).items()]
    remarks = [
        f"Not all answers arrived in time: {sentence(listing(lost))}" if lost else "",
        _disagreement(record),
        f"These are the run's own messages; {outside(record)}." if record.about.beside else "",
    ]
    return [remark for remark in remarks if remark]


def _disagreement(record: RunRecord) -> str:
    """A remark where transcript and summary do not add up to the same; else empty."""
    arrived, moved = transcript_totals(record, arrived_only=True), transcript_totals(record)
    stated = (record.summary.bytes_up, record.summary.bytes_down)
    if moved == stated:
        return ""
    if arrived == stated:
        return "The summary counts the messages that arrived; these charts count lost and late ones too."
    transcript, summary = (f"{plural(up, 'byte')} up and {count(down)} down" for up, down in (moved, stated))
    return f"The transcript adds up to {transcript}, while the summary says {summary}."


@dataclass(frozen=True)
class PartyTraffic:
    """Bytes that left a party (`up`) and that reached it (`down`).

    `devices` > 0 marks a cohort; `parties` > 1 marks several parties put together.
    """

    title: str
    up: int
    down: int
    devices: int = 0
    parties: int = 1


class StepTraffic(NamedTuple):
    """One step's answers (copies counted), and its bytes."""

    step: str
    answered: int
    up: int
    down: int


@dataclass(frozen=True)
class RoundTraffic:
    """Bytes per round and step: rounds (r,) int64; up, down (r, s) float64; steps, the largest first."""

    rounds: np.ndarray
    steps: list[str]
    up: np.ndarray
    down: np.ndarray


def by_party(record: RunRecord) -> list[PartyTraffic]:
    """Every party on the roster or in the transcript, by bytes sent; equals keep the roster's order."""
    sent = {party: (up, down) for party, _answers, up, down in _sums(record.messages, "party")}
    sent.pop("sum", None)  # what the coordinator saw of masked contributions; no party sent it
    rows = []
    for party in record.about.partition.parties:
        title = party.label or party.name if party.devices else party.title
        rows.append(PartyTraffic(title, *sent.pop(party.name, (0, 0)), devices=party.devices))
    rows += [PartyTraffic(name, *sent[name]) for name in sorted(sent)]
    return sorted(rows, key=lambda row: -row.up)


def largest(rows: Sequence[PartyTraffic], most: int = 20) -> tuple[list[PartyTraffic], PartyTraffic | None]:
    """The `most` that sent most, and all others as one."""
    if len(rows) <= most:
        return list(rows), None
    up, down, devices = (sum(getattr(row, key) for row in rows[most:]) for key in ("up", "down", "devices"))
    return list(rows[:most]), PartyTraffic("", up, down, devices, len(rows) - most)


def by_step(record: RunRecord) -> list[StepTraffic]:
    """Every step that was requested, in the order of the first requests."""
    first = record.messages.group_by("step", use_threads=False).aggregate([("call", "min")])
    order = dict(zip(first["step"].to_pylist(), first["call_min"].to_pylist(), strict=True))
    rows = [StepTraffic(*row) for row in _sums(record.messages, "step")]
    return sorted(rows, key=lambda row: (order[row.step] or 0, row.step))


def by_round(record: RunRecord) -> RoundTraffic:
    """Bytes per round and step. Messages outside any round count as round 0."""
    found = [
        (round_ or 0, step, up, down) for round_, step, _answers, up, down in _sums(record.messages, "round", "step")
    ]
    total: dict[str, int] = {}
    for _round, step, up, down in found:
        total[step] = total.get(step, 0) + up + down
    steps = sorted(total, key=lambda step: (-total[step], step))
    rounds = np.unique(np.array([row[0] for row in found], dtype=np.int64))
    ups, downs = np.zeros((2, len(rounds), len(steps)))
    for number, step, up, down in found:
        place = np.searchsorted(rounds, number), steps.index(step)
        ups[place] += up
        downs[place] += down
    return RoundTraffic(rounds, steps, ups, downs)


def few_steps(moved: RoundTraffic, most: int) -> RoundTraffic:
    """At most so many steps; the smallest ones together as "other steps"."""
    if len(moved.steps) <= most:
        return moved
    k = most - 1
    up, down = (np.hstack([t[:, :k], t[:, k:].sum(axis=1, keepdims=True)]) for t in (moved.up, moved.down))
    return RoundTraffic(moved.rounds, [*moved.steps[:k], "other steps"], up, down)


def troubles(record: RunRecord) -> dict[str, int]:
    """How many messages did not arrive in time, by status ("lost", "late")."""
    found: dict[str, int] = {}
    table = record.messages.filter(pc.not_equal(record.messages["status"], "ok"))
    for status, copies in zip(table["status"].to_pylist(), table["copies"].to_pylist(), strict=True):
        found[status] = found.get(status, 0) + max(copies or 0, 1)
    return dict(sorted(found.items()))


def transcript_totals(record: RunRecord, arrived_only: bool = False) -> tuple[int, int]:
    """Bytes up and down according to the transcript."""
    table = record.messages
    if arrived_only:
        table = table.filter(pc.equal(pc.fill_null(table["status"], "ok"), "ok"))
    rows = list(_sums(table, "step"))
    return sum(row[-2] for row in rows), sum(row[-1] for row in rows)


def _sums(table: pa.Table, *keys: str) -> zip:
    up, copies, size = pc.equal(table["direction"], "up"), *(pc.fill_null(table[key], 0) for key in ("copies", "bytes"))
    columns = {"answers": pc.if_else(up, copies, 0), "up": pc.if_else(up, size, 0), "down": pc.if_else(up, 0, size)}
    parts = pa.table({**{key: table[key] for key in keys}, **columns})
    summed = parts.group_by(list(keys), use_threads=False).aggregate([(name, "sum") for name in columns])
    names = [*keys, *(f"{name}_sum" for name in columns)]
    return zip(*(summed[name].to_pylist() for name in names), strict=True)
