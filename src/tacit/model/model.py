"""`Model`: what a fit leaves behind for everyone: shared factors only, with ids."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data.ratings import Scale
from tacit.data.vocabulary import Vocabulary, as_ids
from tacit.errors import DataError, UsageError, check_integer, check_type

FORMAT = "tacit model 1"


@dataclass(frozen=True, eq=False)
class Model:
    """Shared factors, or shared item scores, and how to use them for somebody who brings their own ratings.

    Attributes
    ----------
    method : the method's name
    scale : the ratings' scale
    item_ids : Vocabulary, m ids
    item_factors : (m, p) float32, or None for a model that is the same for everyone
    item_scores : (m,) float32: what such a model predicts, or None
    user_factors : (n, p) float32 in the order of the roster where they are shared (the vertical setting), or None
    rates : whether predictions lie on the scale, or only rank
    stamp : the guarantee in words, or NON-PRIVATE
    """

    method: str
    scale: Scale
    item_ids: Vocabulary
    item_factors: np.ndarray | None = None
    item_scores: np.ndarray | None = None
    user_factors: np.ndarray | None = None
    rates: bool = True
    stamp: str = "NON-PRIVATE"

    def __repr__(self) -> str:
        width = "" if self.item_factors is None else f", {self.item_factors.shape[1]} factors"
        return f"Model({self.method}: {len(self.item_ids):,} items{width}; {self.stamp})"

    # -- somebody new -----------------------------------------------------------------------------------------

    @property
    def prior(self) -> np.ndarray:
        """Factors of a user of whom nothing is known: equal entries that predict the middle of the scale on average."""
        factors = self._factors()
        middle, reach = self.scale.span / 2, float(factors.sum(axis=1).mean())
        return np.full(factors.shape[1], middle / reach if reach > 0 else 0.0)

    def fold_in(
        self, indptr: np.ndarray, items: np.ndarray, values: np.ndarray, regularization: float = 1.0
    ) -> np.ndarray:
        """Factors of new users from their own ratings, in compressed rows; (n, p) float32. Nothing leaves them."""
        from tacit.kernels.users import fold_in

        return fold_in(
            np.asarray(indptr, dtype=np.int64),
            np.asarray(items, dtype=np.int32),
            np.asarray(values, dtype=np.float32),
            self.scale.low,
            self._factors(),
            self.prior,
            regularization,
            self.scale.span,
        )

    def scores(self, history: Mapping[Any, float]) -> np.ndarray:
        """A prediction for every item, for somebody with these ratings; (m,) float32."""
        if self.item_scores is not None:
            return self.item_scores
        rows, values = self._history(history)
        user = self.fold_in(np.array([0, len(rows)]), rows, values)[0]
        return self._factors() @ user + np.float32(self.scale.low)

    def predict(self, history: Mapping[Any, float], items: Sequence[Any]) -> np.ndarray:
        """Predictions for some item ids."""
        return self.scores(history)[item_rows(self.item_ids, items)]

    def recommend(self, history: Mapping[Any, float], n: int = 10) -> list[tuple[Any, float]]:
        """The n best items that are not in the history: (id, prediction) pairs, best first."""
        seen, _values = self._history(history)
        return best(self.scores(history), self.item_ids, seen, n)

    def _factors(self) -> np.ndarray:
        if self.item_factors is None:
            raise UsageError(
                f'A "{self.method}" model predicts the same for everyone; it has no factors to fold users into.'
            )
        return self.item_factors

    def _history(self, history: Mapping[Any, float]) -> tuple[np.ndarray, np.ndarray]:
        check_type(history, Mapping, "A shared model", "somebody's history, {item: rating, …}, since it knows no users")
        rows = np.array([self.item_ids.row(item) for item in history], dtype=np.int64)
        try:
            values = np.array([float(value) for value in history.values()])
        except (TypeError, ValueError):
            raise DataError("A rating in the history is not a number; correct it.") from None
        if not np.all((values >= self.scale.low) & (values <= self.scale.high)):
            raise DataError(f"A rating in the history is off the scale {self.scale}; correct it.")
        if len(np.unique(rows)) < len(rows):
            raise DataError("The history rates one item twice; keep one rating of it.")
        order = np.argsort(rows)
        return rows[order], values[order].astype(np.float32)

    # -- on disk ----------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> Path:
        """Write model.json and factors.npz into a folder; no pickle."""
        check_type(folder, str | PathLike, "save", "a folder's path")
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        ids = self.item_ids.ids
        arrays = {
            "item_ids": ids if ids.dtype == np.int64 else ids.astype(str),
            **{name: getattr(self, name) for name in _ARRAYS if getattr(self, name) is not None},
        }
        np.savez(folder / "factors.npz", **arrays)
        about = {
            "format": FORMAT,
            "method": self.method,
            "scale": [self.scale.low, self.scale.high],
            "declared": self.scale.declared,
            "rates": self.rates,
            "stamp": self.stamp,
        }
        (folder / "model.json").write_text(json.dumps(about, indent=2) + "\n")
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Model:
        """The model that `save`, `tacit run`, `tacit export` or a site wrote, by its folder."""
        check_type(folder, str | PathLike, "Model.load", "a folder's path")
        given, folder = Path(folder), Path(folder)
        if not (folder / "model.json").is_file():
            inside = [given / name for name in ("model", "home/model") if (given / name / "model.json").is_file()]
            folder = inside[0] if inside else folder
        try:
            if not (folder / "model.json").is_file() and (folder / "guarantee.json").is_file():
                return cls._exported(folder)
            about = json.loads((folder / "model.json").read_text())
            if about["format"] != FORMAT:
                raise DataError(
                    f'The model in "{folder}" has the format {about["format"]!r}; this version reads {FORMAT!r}.'
                )
            with (folder / "factors.npz").open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                ids, arrays = as_ids(file["item_ids"]), {name: file[name] for name in _ARRAYS if name in file}
            low, high = about["scale"]
            _check(ids, **arrays)
            return cls(
                method=about["method"],
                scale=Scale(low, high, about["declared"]),
                item_ids=Vocabulary(ids, "item"),
                rates=about["rates"],
                stamp=about["stamp"],
                **arrays,
            )
        except FileNotFoundError:
            raise DataError(
                f'There is no model in "{folder}"; name the folder of a run, of a site, or of an export.'
            ) from None
        except DataError:
            raise
        except Exception as error:  # JSON, zip and NumPy each have many ways to fail on damaged bytes
            problem = f"{type(error).__name__}: {error}".rstrip(".")
            raise DataError(f'The model in "{folder}" cannot be read ({problem}); save it again.') from None

    @classmethod
    def _exported(cls, folder: Path) -> Model:
        """What `tacit export` wrote: tables, and a guarantee that says what they are."""
        import pyarrow.parquet as pq

        about, items = json.loads((folder / "guarantee.json").read_text()), pq.read_table(folder / "items.parquet")
        users = pq.read_table(folder / "users.parquet") if (folder / "users.parquet").is_file() else None
        arrays = {"item_factors": _factor_columns(items), "user_factors": _factor_columns(users)}
        if "score" in items.column_names:
            arrays["item_scores"] = items["score"].to_numpy()
        ids = as_ids(items["item"])
        _check(ids, **arrays)
        return cls(
            method=about["method"],
            scale=Scale(*about["scale"]),
            item_ids=Vocabulary(ids, "item"),
            rates=about["rates"],
            stamp=about["stamp"],
            **arrays,
        )


def _factor_columns(table: Any) -> np.ndarray | None:
    """factor_1 … factor_p of an exported table, (rows, p) float32; None where it has none."""
    names = [] if table is None else [name for name in table.column_names if name.startswith("factor_")]
    return np.column_stack([table[name].to_numpy() for name in names]) if names else None


_ARRAYS = ("item_factors", "item_scores", "user_factors")


def _check(
    ids: np.ndarray,
    item_factors: np.ndarray | None = None,
    item_scores: np.ndarray | None = None,
    user_factors: np.ndarray | None = None,
) -> None:
    """Refuse arrays that cannot have been saved together."""
    if ids.ndim != 1 or not np.all(ids[1:] > ids[:-1]):
        raise ValueError("item ids are not in order")
    arrays = (item_factors, item_scores, user_factors)
    for array, dimensions in zip(arrays, (2, 1, 2), strict=True):
        if array is not None and (array.dtype != np.float32 or array.ndim != dimensions):
            raise ValueError("factors and scores are not float32 of the right shape")
    if any(array is not None and len(array) != len(ids) for array in (item_factors, item_scores)):
        raise ValueError("factors and ids differ in number")


def item_rows(item_ids: Vocabulary, items: Sequence[Any]) -> np.ndarray:
    """The columns of some items by id, (k,) int64; one id alone, or anything but a sequence, is refused."""
    if isinstance(items, str) or not isinstance(items, Sequence | np.ndarray):
        raise UsageError(f"predict takes a list of item ids, and got {items!r}; put it in brackets.")
    return np.array([item_ids.row(item) for item in items], dtype=np.int64)


def best(scores: np.ndarray, item_ids: Vocabulary, seen: np.ndarray, n: int) -> list[tuple[Any, float]]:
    """The n best items that were not seen, as (id, score), best first; equal scores in the order of their ids."""
    check_integer("n", n)
    allowed = np.ones(len(scores), dtype=bool)
    allowed[seen] = False
    candidates = np.flatnonzero(allowed)
    order = candidates[np.argsort(-scores[candidates], kind="stable")[:n]]
    return [(item_ids[j].item() if hasattr(item_ids[j], "item") else item_ids[j], float(scores[j])) for j in order]
