"""A site's files next to its ledger: shares and predictors, each one message in the wire format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tacit import files
from tacit.boundary.wire import Array, Value, decode, encode
from tacit.data.ratings import Feedback, Ratings, Scale
from tacit.data.vocabulary import Vocabulary, as_ids
from tacit.engine.serve import checking_file
from tacit.errors import DataError
from tacit.model import Fitted, Model, forms
from tacit.model.model import best
from tacit.partition import Share


def write_share(path: Path, share: Share) -> None:
    """Store one party's share of an experimenter's ratings for its site."""
    ratings = share.ratings
    words = {
        "name": share.name,
        "label": share.label,
        "devices": share.devices,
        "scale": [ratings.scale.low, ratings.scale.high, ratings.scale.declared],
        "feedback": str(ratings.feedback),
        "source": ratings.name,
        "listed": [ratings.user_ids.listed, ratings.item_ids.listed],
    }
    arrays: dict[str, Value] = {
        "indptr": ratings.indptr.astype(np.int64),
        "items": ratings.items.astype(np.int32),
        "values": ratings.values,
        "users": np.asarray(share.users, dtype=np.int64),
        "columns": np.asarray(share.items, dtype=np.int64),
        "user ids": _text(ratings.user_ids.ids.tolist()),
        "item ids": _text(ratings.item_ids.ids.tolist()),
    }
    files.write_private(path, encode({"about": json.dumps(words), **arrays}))


def read_share(path: Path) -> Share:
    with checking_file(path):
        saved: dict[str, Any] = decode(path.read_bytes())
        words = json.loads(saved["about"])
        users, items = (as_ids(json.loads(saved[f"{kind} ids"].tobytes())) for kind in ("user", "item"))
        ratings = Ratings(
            indptr=saved["indptr"],
            items=saved["items"],
            values=saved["values"],
            times=None,
            user_ids=Vocabulary(users, "user", words["listed"][0]),
            item_ids=Vocabulary(items, "item", words["listed"][1]),
            scale=Scale(*words["scale"]),
            feedback=Feedback(words["feedback"]),
            name=words["source"],
        )
        return Share(words["name"], ratings, saved["users"], saved["columns"], words["label"], words["devices"])


def write_predictor(path: Path, fitted: Fitted) -> None:
    """Store a site's predictor: its form's name, numbers and arrays, and its users' states."""
    words = {"form": fitted.form.name, "numbers": forms.numbers_of(fitted.form)}
    blocks: dict[str, Value] = {f"form/{name}": array for name, array in forms.arrays_of(fitted.form).items()}
    files.write_private(path, encode({"about": json.dumps(words), "states": fitted.states, **blocks}))


def write_model(folder: Path, fitted: Fitted, seen: Ratings, method: str, stamp: str) -> None:
    """Store a model for new users, for `Model.load`; it may be fine-tuned on this site's ratings, so it stays here."""
    made = Model(method, seen.scale, seen.item_ids, fitted.form, stamp=stamp)
    for path in made.save(folder).iterdir():
        path.chmod(0o600)


def write_seen(path: Path, seen: Ratings) -> None:
    """Store the site's users, and which items they rated, which are not recommended to them; without the ratings."""
    blocks: dict[str, Value] = {"indptr": seen.indptr.astype(np.int64), "items": seen.items.astype(np.int32)}
    ids = {"user ids": _text(seen.user_ids.ids.tolist()), "item ids": _text(seen.item_ids.ids.tolist())}
    files.write_private(path, encode({**blocks, **ids}))


def read_predictor(path: Path) -> Fitted:
    with checking_file(path):
        saved: dict[str, Any] = decode(path.read_bytes())
        words, states = json.loads(saved.pop("about")), saved.pop("states")
        arrays = {name.removeprefix("form/"): block for name, block in saved.items()}
        form = forms.build(words["form"], words["numbers"], arrays)
        forms.check(form, None, states)
        return Fitted(form, states)


def recommend(home: Path, user: Any, n: int = 10) -> list[tuple[Any, float]]:
    """The n best items that a user of this site has not rated, as (id, score), from the files in its `home` folder."""
    fitted, path = read_predictor(home / "predictor.tct"), home / "seen.tct"
    with checking_file(path):
        saved: dict[str, Any] = decode(path.read_bytes())
        users, items = (as_ids(json.loads(saved[f"{kind} ids"].tobytes())) for kind in ("user", "item"))
        indptr, seen = saved["indptr"], saved["items"]
        if not fits(fitted, len(users), len(items)) or len(indptr) != len(users) + 1:
            raise ValueError("its sizes are not the predictor's")
    row = Vocabulary(users, "user").row(user)
    scores = np.asarray(fitted.scores(np.array([row])))[0]
    return best(scores, Vocabulary(items, "item"), seen[indptr[row] : indptr[row + 1]], n)


def fits(fitted: Fitted, users: int, items: int) -> bool:
    """Whether a predictor has so many users and items, and finite numbers: else it must not be used."""
    try:
        forms.check(fitted.form, items, fitted.states, users)
    except DataError:
        return False
    return True


def _text(ids: list[Any]) -> Array:
    return np.frombuffer(json.dumps(ids, ensure_ascii=False).encode(), dtype=np.uint8)
