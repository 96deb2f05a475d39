"""`tacit plan`: what a private run will release, its noise and its cost; reads no ratings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from tacit.boundary.code import SEALED
from tacit.boundary.release import Kind
from tacit.boundary.wire import Value, encode
from tacit.cli.display import print_json, read_run_file
from tacit.config import RunFile
from tacit.errors import UsageError
from tacit.federation.messages import Choice, Floats, Integer, Schema
from tacit.methods import Method, Parameters
from tacit.partition import Setting
from tacit.prepare.plan import Plan
from tacit.prepare.run_file import check, setting_in_data, setting_of
from tacit.prepare.run_file import plan as planned
from tacit.report.folder import StatedGuarantee
from tacit.report.guarantee_words import (
    assumed_public,
    explained,
    in_several_silos,
    loss_warning,
    report_sentences,
    secagg_sentences,
)
from tacit.report.words import count, delta, epsilon, percent, plural, size

#: Other choices of ε that are shown, as multiples of the requested one.
INSTEAD = {"half": 0.5, "as requested": 1.0, "double": 2.0}


def plan(file: Path, changes: list[str] | None, as_json: bool) -> None:
    """Print what a private run will release, its noise and its cost. Reads no ratings."""
    run_file = read_run_file(file, changes)
    if run_file.privacy is None:
        raise UsageError(
            f'"{file}" has no [privacy] section, so the run is NON-PRIVATE and there is nothing to plan; add one, such '
            "as --set privacy.epsilon=1.0."
        )
    setting = _setting(run_file)
    method, parameters = check(run_file, setting=setting)
    made = planned(run_file, method, parameters, setting)
    table = _table(run_file, method, parameters, made)
    if as_json:
        print_json(table)
    else:
        console = Console(highlight=False, markup=False, soft_wrap=True)
        console.width = max(console.width, 120)  # tables stay whole; a narrow terminal wraps them itself
        _print(table, console)


def _setting(file: RunFile) -> Setting:
    setting = setting_in_data(file)
    if setting is None and file.engine.name == "flare":  # sites hold what they hold
        return setting_of(file)
    if setting is None:
        raise UsageError(
            f'No table of users or items has a column "{file.partition.by}", and a plan reads no ratings, so the '
            "setting is not known; correct it, or name the table with [data] user_table or item_table."
        )
    return setting


def _table(file: RunFile, method: Method, parameters: Parameters, made: Plan) -> dict[str, Any]:
    guarantee, facts, context = made.terms.guarantee, made.context.facts, made.context
    alone = made.epsilon_of_one()
    up, down = _bytes(method, made)
    warning = loss_warning(made.sealing(), context.setting is Setting.DEVICE)
    return {
        "method": method.name,
        "setting": str(context.setting),
        "parties": context.parties,
        "aggregation": file.aggregation.name,
        "users": facts.users,
        "items": facts.items,
        "features": facts.features,
        "scale": [facts.scale.low, facts.scale.high],
        "guarantee": guarantee.to_json(),
        "in_words": str(guarantee),
        "multiplier": made.multiplier,
        "sealing": made.sealing(),
        "reports": made.report_costs(),
        "steps": [
            {**one, "epsilon_of_one_answer": alone[one["step"]], "words": clarity(one["signal_to_noise"])}
            for one in made.noise_levels()
        ],
        "rounds": made.rounds,
        "forecast": {"bytes_up": up, "bytes_down": down},
        "instead": [
            _instead(file, method, parameters, context.setting, words, factor) for words, factor in INSTEAD.items()
        ],
        "notes": _notes(file, made),
        "warnings": [*made.warnings, *([] if warning is None else [warning])],
    }


def clarity(ratio: float) -> str:
    """What a signal-to-noise ratio means for the result.

    >>> clarity(0.002)
    'Noise is 500 × the signal per cell: expect no better than bias.'
    """
    if ratio >= 1:
        most = "a tenth of the signal" if ratio >= 10 else "a third of the signal" if ratio >= 3 else "the signal"
        return f"Noise is at most {most} per cell."
    times = f"Noise is {count(math.ceil(1 / ratio))} × the signal per cell" if ratio > 0 else "There is only noise"
    expect = "only results over many cells are reliable" if ratio >= 0.01 else "expect no better than bias"
    return f"{times}: {expect}."


def _instead(
    file: RunFile, method: Method, parameters: Parameters, setting: Setting, words: str, factor: float
) -> dict[str, Any]:
    privacy = file.privacy
    if privacy is None:
        raise UsageError("There is no [privacy] section to change.")
    other = privacy.model_copy(update={"epsilon": privacy.epsilon * factor})
    made = planned(file.model_copy(update={"privacy": other}), method, parameters, setting)
    return {
        "what": words,
        "epsilon": other.epsilon,
        "multiplier": made.multiplier,
        "signal_to_noise": made.signal_to_noise(),
    }


def _notes(file: RunFile, made: Plan) -> list[str]:
    by, context, facts = file.partition.by, made.context, made.context.facts
    notes = [assumed_public(facts.items, file.public.features)]
    if facts.features:
        notes.append(f"The items' attributes make {plural(facts.features, 'feature column')}.")
    if context.setting is not Setting.DEVICE and file.partition.into is None and by not in ("user", "item"):
        notes.append(
            f'How many parties [partition] by = "{by}" makes is only known from the data; '
            f"{context.parties} are assumed here."
        )
    own = any(made.mixed(terms) > 1 and not terms.retried for terms in made.terms.steps.values())
    if context.parties > 1 and own:
        who = "device" if context.setting is Setting.DEVICE else "party"
        notes.append(
            f"Every {who} adds its own noise, so a sum or mean over {count(context.parties)} of them carries "
            f"√{context.parties} times the noise of one; the signal-to-noise ratio includes that."
        )
    notes += made.forecast.notes
    notes.append("Signal is forecast from public facts for a typical cell; a rarely rated item has less.")
    return notes


def _bytes(method: Method, made: Plan) -> tuple[int, int]:
    """Bytes up and down over all parties, forecast from the shapes of the steps' messages; nobody drops out.

    A step without noise is counted once. Parties are taken to be of equal size.
    """
    parties, dimensions, public = made.context.parties, made.sizes(), made.forecast.public
    up = down = 0
    traffic, used = made.how.traffic, made.terms.releases
    for step in method.sides_in(made.context.setting, made.context.facts.feedback).party.steps.values():
        asked = step.kind is Kind.PUBLIC and (public is None or step.name in public)
        if not asked and step.name not in used:
            continue
        times = used.get(step.name, 1) * parties
        bits = made.terms.steps[step.name].code.bits if step.name in used else 0
        up += times * (_sealed(step.gives.cells(dimensions), bits) if bits else _message(step.gives, dimensions))
        down += times * _message(step.takes, dimensions)
        if traffic is not None and step.name in used:
            up, down = up + times * traffic.up, down + times * traffic.down
    return up, down


def _sealed(cells: int, bits: int) -> int:
    return len(encode({SEALED: np.zeros(cells * bits // 8, dtype=np.uint8)}))


def _message(schema: Schema, dimensions: Mapping[str, int]) -> int:
    """How long a message of that schema is in the wire format: cells and header."""
    payload: dict[str, Value] = {}
    for name, field in schema.fields.items():
        match field:
            case Floats():
                shape = tuple(dimensions.get(s, 1) if isinstance(s, str) else s for s in field.shape)
                payload[name] = np.zeros(shape, field.dtype)
            case Integer():
                payload[name] = field.high
            case Choice():
                payload[name] = field.values[0] if isinstance(field.values[0], str | int | float) else None
            case _:
                payload[name] = None
    return len(encode(payload))


def _print(table: Mapping[str, Any], console: Console) -> None:
    stated, setting = StatedGuarantee(**table["guarantee"]), table["setting"]
    parties = "devices" if setting == "device" else "parties"
    console.print(
        f"{table['method']} · {setting} · {count(table['parties'])} {parties} · {table['aggregation']} sums · "
        f"{plural(table['users'], 'user')} and {plural(table['items'], 'item')}, declared. No rating was read."
    )
    console.print(f"\nWhat it will promise: {table['in_words']}")
    for sentence in [*explained(stated), *in_several_silos(stated, setting)]:
        console.print(f"  {sentence}")
    total = epsilon(stated.epsilon or 0.0)
    console.print(
        f"\nNoise multiplier z = {table['multiplier']:g}: σ is z times the most that one {stated.unit} can change an "
        f"answer by. In total, ε = {total} at δ = {delta(stated.delta)}.\n"
    )
    console.print(_steps(table["steps"]))
    for step in table["steps"]:
        console.print(f"{step['step']}: signal over noise {step['signal_to_noise']:.3g} in a cell. {step['words']}")
    if table["reports"]:
        console.print("\nWhat reports cost:")
        for sentence in (one for costs in table["reports"] for one in report_sentences(costs)):
            console.print(f"· {sentence}")
    if table["sealing"] is not None:
        console.print("\nHow sums are masked:")
        for sentence in secagg_sentences(table["sealing"], setting == "device"):
            console.print(f"· {sentence}")
    up, down = table["forecast"]["bytes_up"], table["forecast"]["bytes_down"]
    rounds = plural(table["rounds"], "round")
    console.print(f"\nForecast: {rounds} · {size(up)} up, {size(down)} down, over all {parties} if none drops out.")
    console.print("\nWhat changes with ε:")
    console.print(_others(table["instead"]))
    for line in table["notes"]:
        console.print(f"· {line}")
    for line in table["warnings"]:
        console.print(f"WARNING: {line}")


def _steps(steps: list[dict[str, Any]]) -> Table:
    names = (
        "step",
        "sensitivity",
        "σ",
        "releases\n× answers",
        "sampling",
        "ε of one\nanswer",
        "cells",
        "signal/\nnoise",
    )
    table = _columns(names)
    for step in steps:
        often = f"{count(step['releases'])} × {count(step['answers'])}"
        sampling = "everyone" if step["sampling"] >= 1 else percent(step["sampling"])
        noise = (step["step"], f"{step['sensitivity']:.4g}", f"{step['sigma']:.4g}", often, sampling)
        alone = epsilon(step["epsilon_of_one_answer"])
        table.add_row(*noise, alone, count(step["cells"]), f"{step['signal_to_noise']:.3g}")
    return table


def _others(instead: list[dict[str, Any]]) -> Table:
    """One column for each ε: steps are in rows, since a method may have many."""
    table = _columns(("", *(other["what"] for other in instead)))
    table.add_row("ε", *(f"{other['epsilon']:g}" for other in instead))
    table.add_row("z", *(f"{other['multiplier']:g}" for other in instead))
    steps = dict.fromkeys(step for other in instead for step in other["signal_to_noise"])
    for step in steps:  # a method may leave out a step at one ε and not at another
        ratios = (other["signal_to_noise"].get(step) for other in instead)
        table.add_row(f"signal/noise, {step}", *("–" if ratio is None else f"{ratio:.3g}" for ratio in ratios))
    return table


def _columns(names: tuple[str, ...]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for place, name in enumerate(names):
        table.add_column(name, justify="left" if place == 0 else "right", no_wrap=True)
    return table
