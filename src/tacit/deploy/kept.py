"""What a site's service keeps on disk as files of its own, beside its ledger: shares, memories, predictors.

Each is one message in the wire format, written beside its name, synced, and then renamed: no pickle, no half files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from tacit.boundary.release import Kind
from tacit.boundary.wire import Array, Value, decode, encode
from tacit.data.ratings import Feedback, Ratings, Scale
from tacit.data.vocabulary import Vocabulary, as_ids
from tacit.deploy.files import write_private
from tacit.errors import BadMessage, DataError, TamperingFound
from tacit.federation.messages import Answer
from tacit.model import Fitted, Model, forms
from tacit.model.model import best
from tacit.partition import Share


@contextmanager
def as_written(path: Path) -> Iterator[None]:
    """While a file of this site's own is read: one that is not as it was written is named in one sentence."""
    try:
        yield
    except forms.NotInstalled:
        raise
    except (BadMessage, LookupError, TypeError, ValueError, AttributeError):
        raise TamperingFound(
            f'"{path}" is not as it was written: it was damaged or changed; put it back, or remove it to start anew.'
        ) from None


# -- shares: what an experimenter lays ready for sites of its own -----------------------------------------------------


def write_share(path: Path, share: Share) -> None:
    """One party's share of an experimenter's ratings."""
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
    write_private(path, encode({"about": json.dumps(words), **arrays}))


def read_share(path: Path) -> Share:
    """The share that was laid ready."""
    with as_written(path):
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


# -- memory: what a party without a ledger goes on from ---------------------------------------------------------------


class Memory:
    """The latest answer of a party that keeps no ledger, and what it had at home then."""

    def __init__(self, path: Path, run: str) -> None:
        self._path, self._run = path, run
        self._latest: tuple[str, Answer] | None = None

    def recall(self, home: dict[str, Any]) -> None:
        """Put back what was at home, if this is the same run."""
        if not self._path.exists():
            return
        with as_written(self._path):
            saved: dict[str, Any] = decode(self._path.read_bytes())
            words = json.loads(saved.pop("about"))
            if words.pop("run") != self._run:
                return
            request, kind = words.pop("request"), Kind(words.pop("kind"))
            self._latest = request, Answer(**words, kind=kind, body=saved.pop("body").tobytes())
        home.update({name.removeprefix("home/"): np.array(block) for name, block in saved.items()})

    def answered(self, request: str) -> Answer | None:
        """The answer to the latest request, if this is that."""
        return self._latest[1] if self._latest is not None and self._latest[0] == request else None

    def keep(self, request: str, answer: Answer, home: Mapping[str, Any]) -> None:
        """Write the answer and what is at home down before the answer leaves."""
        self._latest = request, answer
        words = {f.name: getattr(answer, f.name) for f in fields(Answer) if f.name != "body"}
        words |= {"kind": str(answer.kind), "run": self._run, "request": request}
        blocks: dict[str, Value] = {f"home/{name}": np.asarray(block) for name, block in home.items()}
        write_private(self._path, encode({"about": json.dumps(words), "body": _bytes(answer.body), **blocks}))


# -- predictors: what a site predicts with at home --------------------------------------------------------------------


def write_predictor(path: Path, fitted: Fitted) -> None:
    """What a site predicts with: the name of its form, the form's numbers and arrays, and its users' states."""
    words = {"form": fitted.form.name, "numbers": forms.numbers_of(fitted.form)}
    blocks: dict[str, Value] = {f"form/{name}": array for name, array in forms.arrays_of(fitted.form).items()}
    write_private(path, encode({"about": json.dumps(words), "states": fitted.states, **blocks}))


def write_model(folder: Path, fitted: Fitted, seen: Ratings, method: str, stamp: str) -> None:
    """What this site can use for somebody new, for `Model.load`.

    It may be fine-tuned on this site's ratings: it stays here, and only its owner may read it.
    """
    made = Model(method, seen.scale, seen.item_ids, fitted.form, stamp=stamp)
    for path in made.save(folder).iterdir():
        path.chmod(0o600)


def write_seen(path: Path, seen: Ratings) -> None:
    """Whose states a site keeps, and what they rated, which is not recommended to them; no ratings are in it."""
    blocks: dict[str, Value] = {"indptr": seen.indptr.astype(np.int64), "items": seen.items.astype(np.int32)}
    ids = {"user ids": _text(seen.user_ids.ids.tolist()), "item ids": _text(seen.item_ids.ids.tolist())}
    write_private(path, encode({**blocks, **ids}))


def read_predictor(path: Path) -> Fitted:
    """The predictor in a file."""
    with as_written(path):
        saved: dict[str, Any] = decode(path.read_bytes())
        words, states = json.loads(saved.pop("about")), saved.pop("states")
        arrays = {name.removeprefix("form/"): block for name, block in saved.items()}
        form = forms.build(words["form"], words["numbers"], arrays)
        forms.check(form, None, states)
        return Fitted(form, states)


def recommend(home: Path, user: Any, n: int = 10) -> list[tuple[Any, float]]:
    """The n best items that a user of this site has not rated, as (id, score): from the files in its `home` folder."""
    fitted, path = read_predictor(home / "predictor.tct"), home / "seen.tct"
    with as_written(path):
        saved: dict[str, Any] = decode(path.read_bytes())
        users, items = (as_ids(json.loads(saved[f"{kind} ids"].tobytes())) for kind in ("user", "item"))
        indptr, seen = saved["indptr"], saved["items"]
        if not fits(fitted, len(users), len(items)) or len(indptr) != len(users) + 1:
            raise ValueError("it is of others than the predictor")
    row = Vocabulary(users, "user").row(user)
    scores = np.asarray(fitted.scores(np.array([row])))[0]
    return best(scores, Vocabulary(items, "item"), seen[indptr[row] : indptr[row + 1]], n)


def fits(fitted: Fitted, users: int, items: int) -> bool:
    """Whether a predictor is of so many users and items, and of finite numbers: else it must not be asked anything."""
    try:
        forms.check(fitted.form, items, fitted.states, users)
    except DataError:
        return False
    return True


def _text(ids: list[Any]) -> Array:
    return _bytes(json.dumps(ids, ensure_ascii=False).encode())


def _bytes(raw: bytes) -> Array:
    return np.frombuffer(raw, dtype=np.uint8)
