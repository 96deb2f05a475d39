"""The run file: TOML ⇄ frozen models.

`RunFile.read(path)` checks all that can be checked before data is read; `[method]` is a plain table here and is
validated by the method's own parameters. An error is one sentence that names file, key and remedy.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from tacit.errors import UsageError, did_you_mean

#: Limits beyond which a run could only fail, or never end.
MOST_USERS, MOST_ITEMS, MOST_RATINGS, MOST_EPSILON = 2_000_000_000, 10_000_000, 10**12, 1e6
#: Limits of the parts of a dotted key, in which a parser's time grows quadratically, and of a run file's characters.
MOST_PARTS, MOST_TEXT = 32, 2**20
#: Limits of the characters of a path, and of a name.
PATH, NAME = 4096, 1000


class Frozen(BaseModel):
    """A validated value that never changes; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DataSection(Frozen):
    """[data]: where the ratings come from."""

    source: str = Field(default="demo", max_length=PATH)
    feedback: Literal["explicit", "implicit", "count"] = "explicit"
    query: str | None = Field(default=None, max_length=2**16)
    columns: dict[str, Annotated[str, Field(max_length=NAME)]] = Field(default_factory=dict)
    duplicates: Literal["error", "last", "mean"] = "error"
    bad_rows: Literal["error", "drop"] = "error"
    user_table: str | None = Field(default=None, max_length=PATH)
    item_table: str | None = Field(default=None, max_length=PATH)
    users: int | None = Field(default=None, ge=1, le=10_000_000)
    items: int | None = Field(default=None, ge=1, le=MOST_ITEMS)
    ratings: int | None = Field(default=None, ge=1, le=10**9)


class PublicSection(Frozen):
    """[public]: facts that everyone may know."""

    scale: tuple[float, float] | None = None
    users: int | None = Field(default=None, ge=1, le=MOST_USERS)
    ratings: int | None = Field(default=None, ge=1, le=MOST_RATINGS)
    catalogue: str | None = Field(default=None, max_length=PATH)
    features: tuple[Annotated[str, Field(min_length=1, max_length=NAME)], ...] = Field(default=(), max_length=100)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(set(self.features)) < len(self.features):
            raise ValueError("must name every column once in features")
        if self.scale is not None and not self.scale[0] < self.scale[1]:
            raise ValueError("must name its lower end first, as in scale = [1, 5]")
        if self.scale is not None and max(map(abs, self.scale)) > 1e12:
            raise ValueError("must end within 1e12 of zero")
        return self


class SplitSection(Frozen):
    """[split]: what is held out for the test."""

    by: Literal["random", "leave-one-out", "latest", "temporal", "cold-users", "cold-items"] = "random"
    test: float = Field(default=0.1, gt=0, lt=1)


class PartitionSection(Frozen):
    """[partition]: who holds what."""

    by: str = Field(default="user", max_length=NAME)
    into: int | None = Field(default=None, ge=1, le=MOST_USERS)
    size_skew: float = Field(default=0.0, ge=0, le=1)
    taste_skew: float = Field(default=0.0, ge=0, le=1)
    align: Literal["psi", "hashed"] = "psi"
    keep: Literal["shared", "all"] = "shared"


class PrivacySection(Frozen):
    """[privacy]: the required guarantee; without this section a run is NON-PRIVATE."""

    epsilon: float = Field(gt=0, le=MOST_EPSILON)
    delta: float | None = Field(default=None, gt=0, lt=1)
    unit: Literal["user", "rating"] = "user"
    accounting: Literal["sound", "paper"] = "sound"
    on_refusal: Literal["continue", "stop"] = "continue"
    ledger: str | None = Field(default=None, max_length=PATH)
    budget: float | None = Field(default=None, gt=0, le=1e6)
    period: float | None = Field(default=None, ge=1, le=36_500)


class AggregationSection(Frozen):
    """[aggregation]: how several parties' contributions become one sum."""

    name: str = Field(default="plain", max_length=NAME)
    tolerate: float = Field(default=0.3, ge=0, lt=1)
    collusion: float = Field(default=0.0, ge=0, lt=1)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    signed: bool = False
    retries: int = Field(default=0, ge=0, le=1000)


class EngineSection(Frozen):
    """[engine]: what carries the messages."""

    name: Literal["inprocess", "flare"] = "inprocess"
    seeded: bool | None = None
    transcript: Literal["digests", "full"] = "digests"
    timeout: float | None = Field(default=None, gt=0, le=1e6)


class EvaluateSection(Frozen):
    """[evaluate]: how the final model is evaluated."""

    k: int | tuple[int, ...] = 10
    negatives: int = Field(default=99, ge=1, le=MOST_ITEMS)
    relevance: float | None = None
    ranking: bool = True
    users: int = Field(default=20_000, ge=1, le=MOST_USERS)
    floor: bool = True

    @field_validator("k", mode="before")
    @classmethod
    def _cut_offs(cls, k: Any) -> Any:
        several = isinstance(k, list | tuple)
        if not all(type(one) is int and 1 <= one <= 100_000 for one in (k if several else [k])) or k in ([], ()):
            raise ValueError("give an integer from 1 to 100,000, or several, as in k = [2, 5, 10]")
        if several and len(set(k)) < len(k):
            raise ValueError("give every number once")
        return k


class RunFile(Frozen):
    """One run: the same file gives the same result."""

    seed: int = Field(default=7, ge=0, lt=2**63)
    data: DataSection = DataSection()
    public: PublicSection = PublicSection()
    split: SplitSection = SplitSection()
    partition: PartitionSection = PartitionSection()
    method: dict[str, Any] = Field(default_factory=lambda: {"name": "auto"})
    privacy: PrivacySection | None = None
    aggregation: AggregationSection = AggregationSection()
    engine: EngineSection = EngineSection()
    evaluate: EvaluateSection = EvaluateSection()

    @classmethod
    def read(cls, path: str | Path, changes: Sequence[str] = (), seed: int | None = None) -> RunFile:
        """The run file at `path`, with `changes` such as "method.rounds=50" made to it."""
        table = read_table(path)
        if any(change.startswith("method.") for change in changes):
            table.setdefault("method", {"name": "auto"})
        for change in changes:
            _apply(table, change)
        if seed is not None:
            table["seed"] = seed
        return checked(cls, table, where=f'the run file "{path}"')

    def to_toml(self) -> str:
        """The resolved file, as text that `read` takes back."""
        import tomli_w

        return tomli_w.dumps(self.model_dump(exclude_none=True))


def read_table(path: str | Path) -> dict[str, Any]:
    """The table of a run file, before its keys are checked."""
    path = Path(path)
    try:
        return toml_table(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise UsageError(f'There is no run file "{path}"; write one with: tacit new {path}') from None
    except IsADirectoryError:
        raise UsageError(f'"{path}" is a folder; name a run file, such as "{path}/run.toml".') from None
    except UnicodeDecodeError:
        raise UsageError(f'The run file "{path}" is not UTF-8 text; save it as UTF-8.') from None
    except OSError as error:
        raise UsageError(f'The run file "{path}" cannot be read: {error.strerror}.') from None
    except ValueError as error:
        raise UsageError(f'The run file "{path}" is not valid TOML: {str(error)[:400]}.') from None


Model = TypeVar("Model", bound=BaseModel)


def checked(model: type[Model], table: Mapping[str, Any], where: str) -> Model:
    """`model` made from `table`; the first mistake becomes one sentence."""
    try:
        return model.model_validate(dict(table))
    except ValidationError as error:
        raise UsageError(_sentence(error, model, where)) from None


#: What to give instead, where pydantic's own words are about Python.
_PLAIN = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "give an integer"),
    **dict.fromkeys(("float_type", "float_parsing"), "give a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "give true or false"),
    "string_type": "give text in quotes",
    **dict.fromkeys(("dict_type", "model_type"), "give a section with keys of its own"),
}


def _sentence(error: ValidationError, model: type[BaseModel], where: str) -> str:
    errors = error.errors()
    # A misspelt required key is both unknown and missing; report it as unknown.
    first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    path = [str(p) for p in first["loc"]]
    key = ".".join(path)[:200] or "it"
    if first["type"] == "extra_forbidden":
        known = _keys_at(model, path[:-1])
        hint = did_you_mean(path[-1], known) or f" Known here: {', '.join(known)}."
        return f'In {where}, "{key}" is not a known key.{hint}'
    if first["type"] == "missing":
        return f'In {where}, "{key}" is missing; add it.'
    problem = _PLAIN.get(first["type"]) or first["msg"].removeprefix("Value error, ")
    if first["type"] in ("tuple_type", "list_type"):
        text = isinstance(first["input"], str)
        problem = f"give a list, as in {_shortened([first['input']]) if text else '[1, 5]'}"
    return f"In {where}, {key} = {_shortened(first['input'])} is not possible: {problem[:1].lower()}{problem[1:]}."


def _shortened(value: object) -> str:
    """The beginning of a value, as a message shows it."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:100]}…"


def toml_table(text: str) -> dict[str, Any]:
    """The table of a TOML text; a ValueError for one that is malformed, too large or too costly to parse."""
    if len(text) > MOST_TEXT:
        raise ValueError(f"it has {len(text):,} characters, and at most {MOST_TEXT:,} are read")
    bare = _STRINGS.sub("x", text)
    if any(run.count(".") >= MOST_PARTS for run in _KEYS.findall(bare)):
        raise ValueError(f"a key has more than {MOST_PARTS} parts")
    try:
        table = tomllib.loads(text)
        _check_numbers(table)
        return table
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # some are too long for Python to read
        raise ValueError("an integer has too many digits") from None


def _check_numbers(value: object) -> None:
    """Refuse integers that are too long to be shown; a schema refuses others that are too large."""
    if isinstance(value, int) and abs(value) >= 2**128:
        raise ValueError
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_numbers(inner)


#: Strings and comments, to the end of the text where one is not closed; and runs of characters of keys.
_STRINGS = re.compile(
    r'"""(?:[^\\]|\\.)*?(?:"{3,5}|\Z)|\'\'\'.*?(?:\'{3,5}|\Z)|"(?:[^"\\\n]|\\.)*(?:"|\n|\Z)|\'[^\'\n]*(?:\'|\n|\Z)|#[^\n]*',
    re.DOTALL,
)
_KEYS = re.compile(r"[\w.\t -]+")


def _keys_at(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    for part in path:
        inner = model.model_fields[part].annotation
        candidates = [inner, *getattr(inner, "__args__", ())]
        model = next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), model)
    return list(model.model_fields)


def _apply(table: dict[str, Any], change: str) -> None:
    """Set one value: "a.b=c", where c is TOML, or else a plain string; "a=none" leaves out a section."""
    key, equals, text = change.partition("=")
    if not equals or not all(part.strip() for part in key.split(".")) or key.count(".") >= MOST_PARTS:
        raise UsageError(f'--set takes "section.key=value", as in --set method.rounds=50; this is {change[:200]!r}.')
    try:
        value = toml_table(f"x = {text}")["x"]
    except ValueError:
        value = text.strip()
    *sections, name = (part.strip() for part in key.split("."))
    if not sections and value == "none":  # as if it were not in the file
        table.pop(name, None)
        return
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise UsageError(f"--set {change[:200]!r} treats {section!r} as a section, but it is a value.")
    table[name] = value
