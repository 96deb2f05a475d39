"""The estimators' signatures for editors and mypy, which cannot see classes that are made when they are used.

    python .ci/stubs.py src/tacit/estimator/__init__.pyi

Descriptions are there at run time: `help(tacit.SGDMF)`. The same methods give the same text on every version of Python.
"""

from __future__ import annotations

import sys
from inspect import Parameter
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from tacit.estimator.generate import class_name, signature
from tacit.methods import OWN, Method, find

HEAD = '''"""Written by `make stubs` from the methods' parameters: change those."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, overload

from tacit.estimator.base import DP as DP
from tacit.estimator.base import Estimator as Estimator
from tacit.methods import Method
'''


def stub() -> str:
    """The whole file."""
    methods = [find(name) for name in OWN]
    return "\n".join([HEAD, *map(one_class, methods), *map(one_overload, methods), LAST])


def one_class(method: Method) -> str:
    """An estimator's class: its fields are the constructor's arguments, as in a dataclass."""
    name, takes = class_name(method.name), list(signature(method).parameters.values())[1:]
    fields = "\n".join(f"    {one.name}: {in_words(one.annotation)}{default(one)}" for one in takes)
    head = (
        f'@dataclass(kw_only=True, eq=False)\nclass {name}(Estimator):\n    """{method.title}: see help({name})."""\n'
    )
    return f"{head}\n    method: ClassVar[str]\n{fields}\n"


def one_overload(method: Method) -> str:
    """What `estimator` returns for a name."""
    name = class_name(method.name)
    return f'@overload\ndef estimator(method: Literal["{method.name}"]) -> type[{name}]: ...'


#: A method of another package: its constructor takes what its parameters say.
LAST = "@overload\ndef estimator(method: str | Method) -> Callable[..., Estimator]: ...\n"


def default(one: Parameter) -> str:
    """A default as it is written, with the quotes that the formatter wants."""
    if one.default is Parameter.empty:
        return ""
    return f' = "{one.default}"' if isinstance(one.default, str) else f" = {one.default!r}"


def in_words(annotation: Any) -> str:
    """A type as it is written in a stub."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return " | ".join(in_words(part) for part in inner)
    if origin is Literal:
        values = (f'"{value}"' if isinstance(value, str) else repr(value) for value in inner)
        return f"Literal[{', '.join(values)}]"
    if origin is not None:
        return f"{origin.__name__}[{', '.join('...' if part is ... else in_words(part) for part in inner)}]"
    return "None" if annotation is NoneType else "Any" if annotation is Any else annotation.__name__


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(stub(), encoding="utf-8")
