"""Whether a run's model beats its floor, `bias` at the same guarantee, and where charts draw that floor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tacit.report import guarantee_words
from tacit.report.bars import Estimate
from tacit.report.charts import Reference
from tacit.report.description import AboutFloor, AboutPaired, StatedGuarantee
from tacit.report.folder import RunRecord
from tacit.report.guarantee_words import brief
from tacit.report.metric_names import leading, meaning
from tacit.report.words import INTERVAL, decimals, epsilon, metric, sentence, short


@dataclass(frozen=True)
class Verdict:
    """Whether a run beats its floor.

    `standing` is "beats", "alone" (so does each party alone, and by more), "level" (no clear difference), "fails",
    "tuned" (only after local fine-tuning), or "unknown".
    """

    standing: str
    title: str
    words: str

    @property
    def brief(self) -> str:
        """The verdict in a headline; empty where nothing is known."""
        return "" if self.standing == "unknown" else f"{self.title[:1].lower()}{self.title[1:]}"


def who(record: RunRecord) -> tuple[int, str]:
    """How many took part, and what they are called: silo, group or device."""
    parties = record.about.partition.parties
    by = record.run_file.partition.by
    if record.summary.setting == "device" or by == "device":
        return sum(party.devices or 1 for party in parties), "device"
    return len(parties), "group" if by == "group" else "silo"


def verdict(record: RunRecord) -> Verdict | None:
    """Whether a run beats its floor; None for a run without one."""
    floor = record.about.floor
    if floor is None:
        return None
    mine, its = record.summary.metrics, floor.metrics
    name = leading(m for m in mine if m in its and _known(mine[m]) and _known(its[m]))
    if name is None:
        why = short(floor.missing, 300) or "the two have no metric in common"
        return Verdict(
            "unknown", f"Not compared with {floor.name}", sentence(f"There is no floor to compare with: {why}")
        )
    return _compared(record, floor, name)


def reference(record: RunRecord, name: str) -> list[Reference]:
    """The floor as a level of a chart of that metric; none where it is not known."""
    floor = record.about.floor
    value = None if floor is None else floor.metrics.get(name)
    if floor is None or value is None or not math.isfinite(value):
        return []
    return [Reference(f"{floor.name}, the floor: {metric(value)}", value)]


def user_mean(record: RunRecord, name: str) -> list[Reference]:
    """The floor's mean over users, for a chart that counts every user once."""
    floor = record.about.floor
    value = None if floor is None else floor.user_means.get(name)
    return [] if floor is None or value is None else [Reference(f"{floor.name} mean {metric(value)}", value)]


def levels(records: Sequence[RunRecord], names: Sequence[str], name: str) -> list[Estimate]:
    """The different floors of several runs, each once, but for those that are among the runs."""
    found: dict[float, Estimate] = {}
    drawn = [r.summary.metrics.get(name) for r, mine in zip(records, among(records, name), strict=True) if mine]
    for record, run in zip(records, names, strict=True):
        floor = record.about.floor
        value = None if floor is None else floor.metrics.get(name)
        if floor is None or value is None or not math.isfinite(value) or value in drawn:
            continue
        its = floor.guarantee
        words = f"floor: {floor.name}, "
        words += "no privacy" if its is None else f"ε = {epsilon(its.epsilon or math.inf)}"
        if any(level.name == words and level.value != value for level in found.values()):
            words += f", of {run}"
        found.setdefault(value, Estimate(words, value, *floor.intervals.get(name, (None, None)), floor=True))
    return list(found.values())


def among(records: Sequence[RunRecord], name: str) -> list[bool]:
    """For each run, whether it is the floor of another by that metric."""
    floors = [record.about.floor for record in records]
    known = {(floor.method, floor.metrics.get(name)) for floor in floors if floor is not None}
    return [(record.about.method.name, record.summary.metrics.get(name)) in known for record in records]


def verdicts(records: Sequence[RunRecord], names: Sequence[str]) -> list[tuple[str, str]]:
    """For every private run with a floor its name, and whether it beats it."""
    pairs = zip(names, records, strict=True)
    found = [(name, verdict(record)) for name, record in pairs if record.guarantee is not None]
    return [(name, one.words) for name, one in found if one is not None]


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _compared(record: RunRecord, floor: AboutFloor, name: str) -> Verdict:
    """By one metric that both have. Local fine-tuning does not count for what was learned together."""
    value, its = float(record.summary.metrics[name] or 0), float(floor.metrics[name] or 0)
    short_name, terms = f"test {meaning(name).short}", _terms(record.guarantee, floor)
    lower, paired = meaning(name).lower_is_better, floor.paired.get(name)
    standing, difference = _standing(value, its, lower, paired), _difference(paired, floor.name)
    before = record.summary.metrics_shared.get(name)
    together = "" if before is None else _standing(before, its, lower, None)
    if before is not None and standing == "beats" and together != "beats":
        words = f"What was learned together does not beat {floor.name}{terms}: {short_name} {_both(before, its)}. "
        words += f"Only local fine-tuning, each party by itself, brings it to {metric(value)}{difference}."
        return Verdict("tuned", f"Does not beat {floor.name} before local fine-tuning", words)
    does = {"beats": "beats", "level": "does not clearly beat", "fails": "does not beat"}[standing]
    title = f"{does[:1].upper()}{does[1:]} {floor.name}"
    words = f"This model {does} {floor.name}{terms}: {short_name} {_both(value, its)}{difference}."
    if before is not None:
        words += f" Before local fine-tuning it has {metric(before)}."
    if standing == "beats" and (ranked := _ranked_worse(record, floor, name)):
        title = f"Beats {floor.name} by {meaning(name).short}, not by {meaning(ranked).short}"
        mine, theirs = float(record.summary.metrics[ranked] or 0), float(floor.metrics[ranked] or 0)
        words += f" It ranks worse than {floor.name}: {meaning(ranked).short} {_both(mine, theirs)}."
    alone = _alone(record, name)
    if standing == "beats" and record.guarantee is not None and alone is not None:
        noun = who(record)[1]
        title = f"Better than {floor.name}, worse than each {noun} alone"
        words += f" Each {noun} alone, without sending anything, does better: {short_name} {_both(alone, value)}."
        return Verdict("alone", title, words)
    return Verdict(standing, title, words)


def _alone(record: RunRecord, name: str) -> float | None:
    """What every party reaches alone, where that is better than the run."""
    lower, mine = meaning(name).lower_is_better, record.summary.metrics[name]
    its = next((one.metrics.get(name) for one in record.about.references if one.name == "local"), None)
    if its is None or mine is None or not math.isfinite(its) or its == mine or lower is None:
        return None
    return its if (its < mine) == lower else None


def _ranked_worse(record: RunRecord, floor: AboutFloor, name: str) -> str | None:
    """The ranking metric by which a run is behind its floor, where the verdict is by another one."""
    mine, its = record.summary.metrics, floor.metrics
    found = next((m for m in mine if m.startswith("ndcg@") and _known(mine[m]) and _known(its.get(m))), None)
    if found is None or found == name:
        return None
    worse = _standing(float(mine[found] or 0), float(its[found] or 0), False, floor.paired.get(found)) == "fails"
    return found if worse else None


def _standing(value: float, floor: float, lower: bool | None, paired: AboutPaired | None) -> str:
    """By the interval of the difference where there is one, else by the two numbers; equal is not better."""
    gain = floor - value if lower is not False else value - floor
    if paired is None or paired.interval is None:
        return "beats" if gain > 0 else "fails"
    low, high = paired.interval if lower is False else (-paired.interval[1], -paired.interval[0])
    return "beats" if low > 0 else "fails" if high < 0 or gain <= 0 else "level"


def _both(value: float, floor: float) -> str:
    places = decimals([value, floor])
    return f"{metric(value, places)} against {metric(floor, places)}"


def _difference(paired: AboutPaired | None, floor: str) -> str:
    if paired is None or paired.interval is None:
        return ""
    places = decimals([paired.difference, *paired.interval])
    ends = " to ".join(_signed(end, places) for end in paired.interval)
    return f", a difference of {_signed(paired.difference, places)} from {floor} ({INTERVAL} {ends})"


def _signed(value: float, places: int) -> str:
    return f"{'+' if value > 0 else ''}{metric(value, places)}"


def _terms(stated: StatedGuarantee | None, floor: AboutFloor) -> str:
    its = floor.guarantee
    if its is None:
        return ", both without privacy" if stated is None else " as it is without privacy"
    close = stated is not None and math.isclose(stated.epsilon or math.inf, its.epsilon or math.inf, rel_tol=0.01)
    if stated is not None and (stated.unit, stated.delta) == (its.unit, its.delta) and close:
        return " at the same guarantee"
    return f" at {guarantee_words.bounds(its)} per {its.unit}"


#: The guarantee of references, wherever they are shown.
NON_PRIVATE = "NON-PRIVATE, for comparison; stays with the experimenter"
_RATING = ("mse", "rmse", "mae")


@dataclass(frozen=True)
class Contender:
    """The run, or what it is compared with; `missing` is the reason why there are no metrics."""

    name: str
    what: str
    guarantee: str
    metrics: Mapping[str, float | None]
    intervals: Mapping[str, tuple[float | None, float | None]]
    missing: str = ""

    def value(self, name: str) -> float | None:
        """A metric's value; None where it is not known."""
        value = self.metrics.get(name)
        return value if value is not None and math.isfinite(value) else None

    def interval(self, name: str) -> tuple[float, float] | None:
        low, high = self.intervals.get(name, (None, None))
        return None if low is None or high is None else (low, high)


def contenders(record: RunRecord) -> list[Contender]:
    """This run, its floor and its references; empty where there are no others."""
    summary, floor = record.summary, record.about.floor
    found = [
        Contender("this run", record.about.method.name, brief(record.guarantee), summary.metrics, summary.intervals)
    ]
    if floor is not None:
        name, what, why = f"{floor.name}, the floor", "item and user biases of all parties", short(floor.missing, 300)
        found.append(Contender(name, what, brief(floor.guarantee), floor.metrics, floor.intervals, why))
    if summary.metrics_shared and len(record.about.references) + (floor is not None):
        what = "this run, before each party fine-tuned it locally"
        found.append(Contender("before tuning", what, brief(record.guarantee), summary.metrics_shared, {}))
    found += [
        Contender(
            short(one.name, 40), short(one.what, 120), NON_PRIVATE, one.metrics, one.intervals, short(one.missing, 300)
        )
        for one in record.about.references[:10]
    ]
    return found if len(found) > 1 else []


def compared_metrics(record: RunRecord) -> list[str]:
    """The metrics that they are compared by: the leading error, and the leading measure of rankings."""
    known = [name for name, value in record.summary.metrics.items() if value is not None and math.isfinite(value)]
    rating = leading(name for name in known if name in _RATING)
    ranking = leading(name for name in known if name not in _RATING)
    return [name for name in (rating, ranking) if name is not None]


def remarks(record: RunRecord) -> list[str]:
    """Which references without any learning together do better than the run, and by what."""
    found = contenders(record)
    found_better = []
    for name in compared_metrics(record):
        lower = meaning(name).lower_is_better
        for one in found[1:]:
            its, mine = one.value(name), found[0].value(name)
            if one.name not in ("local", "popularity") or its is None or mine is None or lower is None:
                continue
            if its != mine and (its < mine) == lower:
                places = decimals([its, mine])
                numbers = f"{metric(its, places)} against {metric(mine, places)}"
                found_better.append(sentence(f"{one.name} does better by {meaning(name).short}: {numbers}"))
    return found_better


def missing(record: RunRecord) -> list[str]:
    """Why some of them have no metrics."""
    return [sentence(f"{one.name}: {one.missing}") for one in contenders(record) if one.missing]
