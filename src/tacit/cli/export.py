"""`tacit export`: the shared model of a finished run, as tables that other programs read.

Only what everybody may have is in it: what the run's `model` folder holds. Nothing that a party keeps is looked at.
"""

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

from tacit.cli.verified_ledgers import check_finished
from tacit.errors import PrivacyRefused, UsageError
from tacit.model import Linear, Model, NonNegative, storage
from tacit.report.record import RunRecord
from tacit.report.words import plural

README = """# {method}: the shared model

**{stamp}**

What everybody may have of one run. What a party keeps is not in it.

- `items.parquet`: {items}, one row each: `item` is its id, {columns}.
{users}- `guarantee.json`: what is promised about all of it, the ratings' scale, and the run's digest.

{use}
"""


def export(run: Path, to: Path | None, as_json: bool) -> None:
    """Write a finished run's shared model into a new folder."""
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
        raise UsageError(f'"{to}" is there already; name a folder that is not, with --out.')
    files = _write(record, model, to)
    if as_json:
        told = {"run": str(run), "out": str(to), "files": files, "items": len(model.item_ids), "stamp": model.stamp}
        typer.echo(json.dumps(told, ensure_ascii=False))
        return
    typer.echo(f"Exported to {to}: {', '.join(files)}.")
    typer.echo(model.stamp)


def _write(record: RunRecord, model: Model, to: Path) -> list[str]:
    """All files, in a folder that takes its name when everything is there; returns their names."""
    promised = _promised(record, model)
    tables = {"items.parquet": _items(model)}
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
        told = json.dumps(promised, indent=2, ensure_ascii=False, allow_nan=False)
        (unfinished / "guarantee.json").write_text(told + "\n", encoding="utf-8")
        (unfinished / "README.md").write_text(_readme(model), encoding="utf-8")
        os.replace(unfinished, to)
    except OSError as error:
        raise _refused(to, error) from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return sorted([*tables, "guarantee.json", "README.md"])


def _promised(record: RunRecord, model: Model) -> dict[str, Any]:
    """guarantee.json, which every table carries too."""
    stated, described = record.summary.guarantee, storage.described(model.form)
    return {
        "stamp": model.stamp,
        "guarantee": None if stated is None else stated.model_dump(exclude_none=True),
        "method": model.method,
        "setting": record.summary.setting,
        "scale": [model.scale.low, model.scale.high],
        "rates": model.rates,
        "form": described,
        "digest": record.summary.digest,
        "tacit": record.about.tacit,
    }


def _items(model: Model) -> pa.Table:
    columns = storage.columns_of(model.form)
    return pa.table({"item": pa.array(model.item_ids.ids), **columns})


def _readme(model: Model) -> str:
    names = list(storage.columns_of(model.form))
    columns = "the others are its numbers" if len(names) > 1 else f"`{names[0]}` is its number"
    if len(names) > 1 and all(name.startswith("factor_") for name in names):
        columns = f"`{names[0]}` … `{names[-1]}` are its factors v"
    use = f"{_words(model)} Somebody new uses it where they are: `tacit.Model.load` on this folder, then "
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
        use=use,
    )


def _words(model: Model) -> str:
    """How other programs predict from the tables."""
    match model.form:
        case NonNegative(low=low):
            return f"A rating is predicted as {low:g} + u·v, where a user's u is fitted to their own ratings."
        case Linear(width=0):
            kind = "is the predicted rating" if model.rates else "only ranks items"
            return f"`base` {kind}, and is the same for everybody."
        case Linear(rates=True, order=order):
            ranked = "" if order is None else f" Items are ranked by order + {model.form.personal:g}·z·v."
            return f"A rating is predicted as base + z·v, where a user's z is fitted to their own ratings.{ranked}"
    return f'The form "{model.form.name}" says what is predicted from them; its numbers are in `guarantee.json`.'


def _refused(to: Path, error: OSError) -> UsageError:
    return UsageError(f'"{to}" cannot be written: {error.strerror}; name another folder with --out.')
