"""`tacit export`: the shared model of a finished run as tables; nothing that a party stores is read."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from tacit.cli.display import print_json
from tacit.cli.verified_ledgers import check_finished
from tacit.errors import PrivacyRefused, UsageError
from tacit.model import Linear, Model, NonNegative, storage
from tacit.report.folder import RunRecord
from tacit.report.words import plural

README = """# {method}: the shared model

**{stamp}**

The part of one run that is shared. What a party stores is not in it.

- `items.parquet`: {items}, one row each: `item` is its id, {columns}.
{users}{large}- `guarantee.json`: what is promised about all of it, the ratings' scale, and the run's digest.

{use}
"""


def export(run: Path, to: Path | None, as_json: bool) -> None:
    """Write a run's shared model as Parquet, with its stamp and guarantee; nothing that a party stores."""
    record = RunRecord.read(run)
    check_finished(record.folder)
    model = Model.load(record.folder / "model")
    if model.user_factors is not None and record.summary.setting != "vertical":
        raise PrivacyRefused(
            f'The model in "{run}" holds user factors, which stay with the parties in the {record.summary.setting} '
            "setting; nothing was exported."
        )
    to = Path(f"{record.name}-model") if to is None else to
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise UsageError(f'"{to}" already exists; name a new folder with --out.')
    files = _write(record, model, to)
    if as_json:
        items = len(model.item_ids)
        print_json({"run": str(run), "out": str(to), "files": files, "items": items, "stamp": model.stamp})
    else:
        typer.echo(f"Exported to {to}: {', '.join(files)}.\n{model.stamp}")


def _write(record: RunRecord, model: Model, to: Path) -> list[str]:
    """Write all files to a temporary folder, then rename it; returns their names."""
    promised, large = _promised(record, model), storage.large_arrays(model.form)
    tables = {
        "items.parquet": pa.table({"item": pa.array(model.item_ids.ids), **storage.columns_of(model.form)}),
    }
    if model.user_factors is not None:
        rows = pa.array(np.arange(len(model.user_factors)), pa.int64())
        columns = {f"factor_{k}": column for k, column in enumerate(model.user_factors.T, start=1)}
        tables["users.parquet"] = pa.table({"row": rows, **columns})
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(mkdtemp(prefix=f".{to.name}-", dir=to.parent))
    except OSError as error:
        raise _refused(to, error) from None
    try:
        for name, table in tables.items():
            stamped = table.replace_schema_metadata({"tacit": json.dumps(promised, ensure_ascii=False)})
            pq.write_table(stamped, unfinished / name, compression="zstd")
        if large:
            np.savez(unfinished / "arrays.npz", **large)  # type: ignore[arg-type]
        text = json.dumps(promised, indent=2, ensure_ascii=False, allow_nan=False)
        (unfinished / "guarantee.json").write_text(text + "\n", encoding="utf-8")
        (unfinished / "README.md").write_text(_readme(model), encoding="utf-8")
        os.replace(unfinished, to)
    except OSError as error:
        raise _refused(to, error) from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return sorted([*tables, *(["arrays.npz"] if large else []), "guarantee.json", "README.md"])


def _promised(record: RunRecord, model: Model) -> dict[str, Any]:
    """guarantee.json, which is also in every table's metadata."""
    stated = record.summary.guarantee
    return {
        "stamp": model.stamp,
        "guarantee": None if stated is None else stated.model_dump(exclude_none=True),
        "method": model.method,
        "setting": record.summary.setting,
        "scale": [model.scale.low, model.scale.high],
        "rates": model.rates,
        "form": storage.described(model.form),
        "digest": record.summary.digest,
        "tacit": record.about.tacit,
    }


def _readme(model: Model) -> str:
    names, large = list(storage.columns_of(model.form)), storage.large_arrays(model.form)
    columns = "the others are its numbers" if len(names) > 1 else f"`{names[0]}` is its number"
    if len(names) > 1 and all(name.startswith("factor_") for name in names):
        columns = f"`{names[0]}` … `{names[-1]}` are its factors v"
    use = f"{_words(model)} Recommend to new users with `tacit.Model.load` on this folder, then "
    use += "`recommend({item: rating, …})`."
    users = ""
    if model.user_factors is not None:
        users = (
            f"- `users.parquet`: {plural(len(model.user_factors), 'user')}, one row each, without ids: `row` counts "
        )
        users += "from 0 in the order of users that all silos know; the factors u are shared by the protocol.\n"
    return README.format(
        method=model.method,
        stamp=model.stamp,
        items=plural(len(model.item_ids), "item"),
        columns=columns,
        users=users,
        large=f"- `arrays.npz`: {', '.join(large)}, for NumPy.\n" if large else "",
        use=use,
    )


def _words(model: Model) -> str:
    match model.form:
        case NonNegative(low=low):
            return f"A rating is predicted as {low:g} + u·v, where a user's u is fitted to their own ratings."
        case Linear(width=0):
            kind = "is the predicted rating" if model.rates else "only ranks items"
            return f"`base` {kind}, and is the same for everyone."
        case Linear(rates=True, order=order):
            ranked = "" if order is None else f" Items are ranked by order + {model.form.personal:g}·z·v."
            return f"A rating is predicted as base + z·v, where a user's z is fitted to their own ratings.{ranked}"
    return f'The form "{model.form.name}" says how to predict from them; its numbers are in `guarantee.json`.'


def _refused(to: Path, error: OSError) -> UsageError:
    return UsageError(f'"{to}" cannot be written: {error.strerror}; name another folder with --out.')
