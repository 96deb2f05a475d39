"""Estimator classes, made from methods: constructor, signature and description come from the method's parameters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from inspect import Parameter, Signature
from textwrap import fill
from typing import Any

from pydantic.fields import FieldInfo

from tacit.errors import UsageError, check_type, did_you_mean
from tacit.estimator.base import DP, Estimator
from tacit.methods import Method, Parameters, find
from tacit.methods.method import DEPENDS

#: Class names that follow no rule: abbreviations.
NAMES = {
    "als": "ALS",
    "ease": "EASE",
    "sgdmf": "SGDMF",
    "am-dpsgd": "AMDPSGD",
    "dp-sgld": "DPSGLD",
    "synsgd": "SynSGD",
    "gd-dr": "GDDR",
    "dpals": "DPALS",
    "dplcf": "DPLCF",
}

#: What every estimator takes beside its method's parameters: type, default, description.
PRIVATE: Mapping[str, tuple[Any, Any, str]] = {
    "privacy": (DP | None, None, "DP(…), or None"),
    "aggregation": (
        str | Mapping[str, Any],
        "plain",
        'a name such as "plain", "ideal" or "secagg", or a table as in a run file\'s [aggregation]',
    ),
}
ALWAYS: Mapping[str, tuple[Any, Any, str]] = {"seed": (int, 7, "of everything")}

_made: dict[str, tuple[Method, type[Estimator]]] = {}


def estimator(method: str | Method) -> type[Estimator]:
    """The estimator class of an installed method, by its name, such as "gd-dr".

    >>> estimator("item-mean")(shrinkage=3)
    ItemMean(shrinkage=3)
    """
    check_type(method, str | Method, "estimator", 'a method\'s name, such as "sgdmf"')
    name = method if isinstance(method, str) else method.name
    found = find(name)
    if isinstance(method, Method) and found is not method:
        raise UsageError(f'Another method "{name}" is installed; an estimator is made of what is found by name.')
    if name not in _made or _made[name][0] is not found:
        _made[name] = found, _make(found)
    return _made[name][1]


def class_name(method: str) -> str:
    """What the estimator of a method is called.

    >>> class_name("global-mean"), class_name("sgdmf")
    ('GlobalMean', 'SGDMF')
    """
    return NAMES.get(method) or "".join(part[0].upper() + part[1:] for part in re.findall("[A-Za-z0-9]+", method))


def signature(method: Method) -> Signature:
    """What the constructor takes: the method's parameters, `privacy` and `aggregation` where it can be private, `seed`.

    A default that depends on the run is None, until the run resolves it.
    """
    fields = method.parameters.model_fields
    taken = [name for name in fields if name in _shared(method) or hasattr(Estimator, name) or name == "method"]
    if taken:
        raise UsageError(f'A parameter of the method "{method.name}" cannot be called "{taken[0]}"; rename it.')
    own = {name: _type_and_default(field) for name, field in fields.items()}
    shared = {name: (kind, default) for name, (kind, default, _) in _shared(method).items()}
    arguments = [
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default)
        for name, (kind, default) in {**own, **shared}.items()
    ]
    this = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    return Signature([this, *arguments], return_annotation=None)


def description(method: Method) -> str:
    """The class's docstring: title, what the method does, and what its parameters' docstring says."""
    sections = _sections(method.parameters)
    head = sections.pop("").partition("\n\n")[2]  # its first paragraph says whose parameters these are
    meanings = _meanings(method.parameters) | {name: text for name, (_, _, text) in _shared(method).items()}
    listed = [
        f"{name} : {meanings[name]}" if name in meanings else name for name in list(signature(method).parameters)[1:]
    ]
    sections["Parameters"] = "\n".join(listed)
    order = ["Parameters", "Attributes", *(title for title in sections if title != "Parameters")]
    sections["Attributes"] = _sections(Estimator)["Attributes"]
    parts = [f"{method.title}.", fill(method.what, 112, break_on_hyphens=False), head]
    parts += [f"{title}\n{'-' * len(title)}\n{sections[title]}" for title in dict.fromkeys(order)]
    return "\n\n".join(part for part in parts if part)


def _make(method: Method) -> type[Estimator]:
    takes = signature(method)
    defaults = {name: one.default for name, one in list(takes.parameters.items())[1:]}
    name = class_name(method.name)

    def __init__(self: Estimator, **given: Any) -> None:
        for key in given:
            if key not in defaults:
                raise TypeError(
                    f"{name} has no parameter {key!r}.{did_you_mean(key, defaults)} It has {', '.join(defaults)}."
                )
        for key, default in defaults.items():
            if key not in given and default is Parameter.empty:
                raise TypeError(f"{name} needs its parameter {key!r}, which has no default.")
            setattr(self, key, given.get(key, default))

    __init__.__signature__ = takes  # type: ignore[attr-defined]
    __init__.__annotations__ = {one.name: one.annotation for one in list(takes.parameters.values())[1:]} | {
        "return": None
    }
    __init__.__qualname__ = f"{name}.__init__"
    __init__.__module__ = "tacit.estimator"
    body = {
        "method": method.name,
        "__init__": __init__,
        "__doc__": description(method),
        "__module__": "tacit.estimator",
    }
    return type(name, (Estimator,), body)


def _shared(method: Method) -> dict[str, tuple[Any, Any, str]]:
    return {**(PRIVATE if method.guaranteed else {}), **ALWAYS}


def _type_and_default(field: FieldInfo) -> tuple[Any, Any]:
    if DEPENDS in field.metadata:
        return field.annotation | None, None  # type: ignore[operator]
    return field.annotation, Parameter.empty if field.is_required() else field.get_default(call_default_factory=True)


def _sections(documented: type) -> dict[str, str]:
    """Title → text of a docstring's sections; what stands before the first one has the title ""."""
    text = inspect.cleandoc(documented.__dict__.get("__doc__") or "")
    head, *parts = re.split(r"^(\S.*)\n-{3,}\n", text, flags=re.MULTILINE)
    sections = {title: body.strip("\n") for title, body in zip(parts[::2], parts[1::2], strict=True)}
    return {"": head.strip("\n"), **sections}


def _meanings(parameters: type[Parameters]) -> dict[str, str]:
    """What the docstring says of each parameter, "name : text"; a base class's, where the class itself says nothing."""
    meanings: dict[str, str] = {}
    for one in reversed(parameters.__mro__):
        text = inspect.cleandoc(one.__dict__.get("__doc__") or "")
        for names, meaning in re.findall(r"^(\w+(?:, \w+)*) : (.+(?:\n[ ]+.+)*)", text, flags=re.MULTILINE):
            meanings |= dict.fromkeys((name for name in names.split(", ") if name in parameters.model_fields), meaning)
    return meanings
