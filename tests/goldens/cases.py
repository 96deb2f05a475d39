"""The runs whose every number is kept: each method in each setting, under each aggregation, for each unit."""

from __future__ import annotations

from itertools import product
from typing import Any

from tacit.config import RunFile

SHORT = {"factors": 3, "rounds": 2, "local_steps": 2, "sampling": 0.5, "pretraining": 3}
LONGER = {name: value for name, value in SHORT.items() if name != "pretraining"}
SILOS = dict.fromkeys(("sgdmf", "gradient-clipping", "dp-sgld"), SHORT)
DIVIDED = {"horizontal": ("user", 5), "vertical": ("item", 3), "device": ("device", 2), "devices": ("device", 60)}

#: Methods that refuse [privacy], and the one run that shows it.
WITHOUT_GUARANTEE = ("central-sgd", "local-sgd", "global-mean", "item-mean", "popularity", "random")
ONE = ("user", "plain")

#: By setting, the methods that run there and what makes them quick.
METHODS: dict[str, dict[str, dict[str, Any]]] = {
    "horizontal": {
        **SILOS,
        "synsgd": {"factors": 3, "rounds": 3, "sampling": 0.5, "pretraining": 3},
        "objective-perturbation": {"factors": 3, "pretraining": 3},
        "bias": {},
        "central-sgd": {"factors": 3, "epochs": 2},
        "local-sgd": {"factors": 3, "epochs": 2},
        "global-mean": {},
        "item-mean": {},
        "popularity": {},
        "random": {},
    },
    "vertical": {
        **dict.fromkeys(SILOS, LONGER),
        "local-private": {"factors": 3, "rounds": 2, "local_steps": 2, "sampling": 0.5},
        "bias": {},
        "item-mean": {},
    },
    "device": {
        "sgdmf": {"factors": 3, "rounds": 2, "pretraining": 3},
        "gd-dr": {"factors": 3, "rounds": 2, "pretraining": 3, "local_steps": 2},
        "bias": {},
        "item-mean": {},
        "popularity": {},
    },
    "devices": {"bias": {}, "sgdmf": {"factors": 3, "rounds": 2, "pretraining": 3}},
}

#: Further runs: what else a run file can say of a step's noise, its sums, and who stays.
BESIDE: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "T'=1": ("horizontal", {"name": "sgdmf", **SHORT, "local_steps": 1}, {}),
    "T'=1, secagg": ("horizontal", {"name": "sgdmf", **SHORT, "local_steps": 1}, {"aggregation": {"name": "secagg"}}),
    "together": ("horizontal", {"name": "sgdmf", **SHORT, "users": "together"}, {}),
    "pretrained per rating": (
        "horizontal",
        {"name": "sgdmf", **SHORT, "users": "pretrained"},
        {"privacy": {"epsilon": 4.0, "delta": 1e-4, "unit": "rating"}},
    ),
    "paper": (
        "horizontal",
        {"name": "sgdmf", **SHORT},
        {"privacy": {"epsilon": 4.0, "delta": 1e-4, "accounting": "paper"}},
    ),
    "projected": ("horizontal", {"name": "gradient-clipping", **SHORT, "projected": True}, {}),
    "record": ("device", {"name": "sgdmf", "factors": 3, "rounds": 2, "pretraining": 3, "send": "record"}, {}),
    "record, secagg": (
        "device",
        {"name": "sgdmf", "factors": 3, "rounds": 2, "pretraining": 3, "send": "record"},
        {"aggregation": {"name": "secagg"}},
    ),
    "drop-outs, plain": ("devices", {"name": "bias"}, {"aggregation": {"dropout": 0.2}}),
    "drop-outs, secagg": (
        "devices",
        {"name": "bias"},
        {"aggregation": {"name": "secagg", "dropout": 0.1, "tolerate": 0.4}},
    ),
    "drop-outs of a cohort": (
        "device",
        {"name": "bias"},
        {"aggregation": {"name": "secagg", "dropout": 0.1, "tolerate": 0.4}},
    ),
    "drop-outs, shuffle": (
        "device",
        {"name": "gd-dr", "factors": 3, "rounds": 2},
        {"aggregation": {"name": "shuffle", "dropout": 0.1, "tolerate": 0.4}},
    ),
    "drop-outs, without privacy": (
        "device",
        {"name": "sgdmf", "factors": 3, "rounds": 2},
        {"privacy": None, "aggregation": {"dropout": 0.3}},
    ),
    "signed": ("horizontal", {"name": "bias"}, {"aggregation": {"name": "secagg", "signed": True, "tolerate": 0.0}}),
    "retries": (
        "horizontal",
        {"name": "sgdmf", **SHORT, "local_steps": 1, "rounds": 4},
        {"aggregation": {"name": "secagg", "retries": 6, "dropout": 0.2, "tolerate": 0.2}},
    ),
    "masked mean": ("horizontal", {"name": "sgdmf", **SHORT}, {"aggregation": {"name": "secagg", "collusion": 0.4}}),
    "unseeded": ("horizontal", {"name": "bias"}, {"engine": {"seeded": False}}),
    "unseeded chain": ("horizontal", {"name": "sgdmf", **SHORT}, {"engine": {"seeded": False}}),
    "unseeded, secagg": (
        "horizontal",
        {"name": "bias"},
        {"engine": {"seeded": False}, "aggregation": {"name": "secagg"}},
    ),
}


def file_of(setting: str, method: dict[str, Any], sections: dict[str, Any]) -> RunFile:
    """A run of the goldens' own small world."""
    by, into = DIVIDED[setting]
    table = {
        "data": {"source": "demo", "users": 60, "items": 40, "ratings": 900},
        "partition": {"by": by, "into": into},
        "method": method,
        "evaluate": {"floor": False, "ranking": False},
        "privacy": {"epsilon": 4.0, "delta": 1e-4},
        **sections,
    }
    return RunFile.model_validate({name: section for name, section in table.items() if section is not None})


def cases() -> dict[str, RunFile]:
    """All runs, by what they are."""
    found: dict[str, RunFile] = {}
    for setting, methods in METHODS.items():
        for name, parameters in methods.items():
            found[f"{name} · {setting}"] = file_of(setting, {"name": name, **parameters}, {"privacy": None})
            promised = name not in WITHOUT_GUARANTEE
            ways = product(("user", "rating"), ("plain", "ideal", "secagg", "shuffle")) if promised else [ONE]
            for unit, how in ways:
                sections = {
                    "privacy": {"epsilon": 4.0, "delta": 1e-4, "unit": unit},
                    "aggregation": {"name": how},
                }
                found[f"{name} · {setting} · {unit} · {how}"] = file_of(setting, {"name": name, **parameters}, sections)
    for what, (setting, method, sections) in BESIDE.items():
        found[f"{method['name']} · {setting} · {what}"] = file_of(setting, method, sections)
    return found
