"""Models on disk: model.json and factors.npz, and the tables that `tacit export` writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data.ratings import Scale
from tacit.data.vocabulary import Vocabulary, as_ids
from tacit.errors import DataError, UsageError
from tacit.model import forms
from tacit.model.forms import Form
from tacit.model.linear import Linear
from tacit.model.model import Model
from tacit.model.nonnegative import NonNegative

FORMAT = "tacit model 2"
#: The first format, of factors or scores; it is still read.
FIRST = "tacit model 1"
#: The most numbers of an array that an export writes as JSON; larger ones are in arrays.npz.
MOST_IN_JSON = 10_000


def write(model: Model, folder: Path) -> Path:
    """model.json describes the model; factors.npz has the ids, the form's arrays by name, and states where shared."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = model.item_ids.ids
    arrays = {"item_ids": ids if ids.dtype == np.int64 else ids.astype(str), **forms.arrays_of(model.form)}
    if model.states is not None:
        arrays["states"] = model.states
    np.savez(folder / "factors.npz", **arrays)  # type: ignore[arg-type]
    about = {
        "format": FORMAT,
        "method": model.method,
        "form": model.form.name,
        "numbers": forms.numbers_of(model.form),
        "scale": [model.scale.low, model.scale.high],
        "declared": model.scale.declared,
        "stamp": model.stamp,
    }
    (folder / "model.json").write_text(json.dumps(about, indent=2) + "\n")
    return folder


def read(given: Path) -> Model:
    """The model in a folder, or in the folder of a run or of a site around it."""
    folder = given
    if not (folder / "model.json").is_file():
        inside = [given / name for name in ("model", "home/model") if (given / name / "model.json").is_file()]
        folder = inside[0] if inside else folder
    try:
        if not (folder / "model.json").is_file() and (folder / "guarantee.json").is_file():
            return _exported(folder)
        about = json.loads((folder / "model.json").read_text())
        if about["format"] not in (FORMAT, FIRST):
            written = f'The model in "{folder}" has the format {about["format"]!r}'
            raise _Foreign(f"{written}; this version reads {FORMAT!r} and {FIRST!r}.")
        with (folder / "factors.npz").open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = dict(file)
        low, high = about["scale"]
        ids, scale = as_ids(arrays.pop("item_ids")), Scale(low, high, about["declared"])
        if about["format"] == FIRST:
            form, states = _first(scale, about["rates"], arrays)
        else:
            states = arrays.pop("states", None)
            form = forms.build(about["form"], about["numbers"], arrays)
        return _checked(about, scale, ids, form, states)
    except FileNotFoundError:
        raise DataError(
            f'There is no model in "{folder}"; name the folder of a run, of a site, or of an export.'
        ) from None
    except (_Foreign, forms.NotInstalled):
        raise
    except Exception as error:  # JSON, zip and NumPy each have many ways to fail on damaged bytes
        problem = str(error) if isinstance(error, DataError) else f"{type(error).__name__}: {error}"
        raise DataError(f'The model in "{folder}" cannot be read ({problem.rstrip(".")}); save it again.') from None


class _Foreign(DataError):
    """Written by another version."""


def _checked(about: Mapping[str, Any], scale: Scale, ids: np.ndarray, form: Form, states: np.ndarray | None) -> Model:
    """The model, unless its arrays cannot have been saved together."""
    if ids.ndim != 1 or not np.all(ids[1:] > ids[:-1]):
        raise DataError("Item ids are not in order.")
    forms.check(form, len(ids), states)
    return Model(about["method"], scale, Vocabulary(ids, "item"), form, states, about["stamp"])


def _first(scale: Scale, rates: bool, arrays: dict[str, np.ndarray]) -> tuple[Form, np.ndarray | None]:
    """The first format's models: non-negative factors, or scores that are the same for everyone."""
    if "item_factors" in arrays:
        return NonNegative(scale.low, scale.high, arrays["item_factors"]), arrays.get("user_factors")
    return Linear.scores(arrays["item_scores"], scale, rates=rates), None


def columns_of(form: Form) -> dict[str, np.ndarray]:
    """A form's arrays over items as columns of a table: `factor_1` … for `items`, other arrays by their own names."""
    columns: dict[str, np.ndarray] = {}
    for name, array in forms.arrays_of(form).items():
        if form.arrays[name] == ("items",):
            columns[name] = array
        elif form.arrays[name][0] == "items":
            if array.ndim > 2:
                raise UsageError(f'"{name}" of the form "{form.name}" has too many dimensions to export.')
            prefix = _prefix(name)
            columns |= {f"{prefix}{k}": column for k, column in enumerate(array.T, start=1)}
    return columns


def described(form: Form) -> dict[str, Any]:
    """The rest of a form, as JSON: its name, its numbers, which arrays are columns, and the other, small ones."""
    arrays, large = forms.arrays_of(form), large_arrays(form)
    by_item = [name for name in arrays if form.arrays[name][0] == "items"]
    others = {name: array.tolist() for name, array in arrays.items() if name not in by_item and name not in large}
    return {"name": form.name, "numbers": forms.numbers_of(form), "columns": by_item, "arrays": others}


def large_arrays(form: Form) -> dict[str, np.ndarray]:
    """A form's arrays that are neither columns of a table nor small enough for JSON."""
    arrays = forms.arrays_of(form).items()
    return {name: array for name, array in arrays if form.arrays[name][0] != "items" and array.size > MOST_IN_JSON}


def _prefix(name: str) -> str:
    return "factor_" if name == "items" else f"{name}_"


def _exported(folder: Path) -> Model:
    import pyarrow.parquet as pq

    about, items = json.loads((folder / "guarantee.json").read_text()), pq.read_table(folder / "items.parquet")
    users = pq.read_table(folder / "users.parquet") if (folder / "users.parquet").is_file() else None
    states = None if users is None else _block(users, "factor_", "float32")
    large: dict[str, np.ndarray] = {}
    if (folder / "arrays.npz").is_file():
        with (folder / "arrays.npz").open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            large = dict(file)
    form = _form(about["form"], items, large)
    return _checked(about, Scale(*about["scale"]), as_ids(items["item"]), form, states)


def _form(about: Mapping[str, Any], items: Any, large: Mapping[str, np.ndarray]) -> Form:
    """The form that `columns_of`, `described` and `large_arrays` gave."""
    kind = forms.find(about["name"])
    arrays = dict(large)
    for name, block in about["arrays"].items():
        array = np.array(block, dtype=kind.dtype)
        dimensions = len(kind.arrays[name])  # an empty list has lost its number of dimensions
        arrays[name] = array if array.size else array.reshape((0,) * dimensions)
    for name in about["columns"]:
        flat = len(kind.arrays[name]) == 1
        arrays[name] = items[name].to_numpy() if flat else _block(items, _prefix(name), kind.dtype)
    return forms.build(about["name"], about["numbers"], arrays)


def _block(table: Any, prefix: str, dtype: str) -> np.ndarray:
    """prefix_1 … prefix_p of an exported table, (rows, p)."""
    names = [name for name in table.column_names if name.startswith(prefix) and name.removeprefix(prefix).isdigit()]
    columns = [table[name].to_numpy() for name in names]
    return np.column_stack(columns) if columns else np.empty((len(table), 0), dtype=dtype)
