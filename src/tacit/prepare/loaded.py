"""The data of a run file, loaded, split and divided, and the run that was prepared over it."""

from dataclasses import dataclass, replace
from typing import Any

from tacit.config import RunFile
from tacit.data.ratings import Ratings
from tacit.errors import DataError, UsageError
from tacit.federation import Facts
from tacit.partition import Parties
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.progress import Phase, ignore_phase
from tacit.prepare.run_file import expected_plan, prepared, setting_in_data


@dataclass(frozen=True, eq=False)
class LoadedRun:
    """A run file whose method, data, split and partition were found valid; nothing has been written yet.

    Attributes
    ----------
    file, run : the run file, and the run prepared from it over these parties
    about : what about.json states of the data as a whole
    train, test, support, split : the parts of the data, and how it was split in words
    parties : who holds what of `train`
    """

    file: RunFile
    run: PreparedRun
    about: dict[str, Any]
    train: Ratings
    test: Ratings
    support: Ratings | None
    split: str
    parties: Parties


def prepare(file: RunFile, phase: Phase = ignore_phase) -> LoadedRun:
    """Check the run file, then load, split and partition the data."""
    from tacit.data.load import load
    from tacit.data.split import split
    from tacit.partition import partition
    from tacit.partition.divide import WAYS

    expected = expected_plan(file, setting_in_data(file))
    data, public = file.data, file.public
    declared = None if expected is None else expected.context.facts
    phase("reading data", None)
    ratings = load(
        data.source,
        feedback=data.feedback,
        columns=data.columns or None,
        duplicates=data.duplicates,
        bad_rows=data.bad_rows,
        query=data.query,
        scale=public.scale if declared is None else (declared.scale.low, declared.scale.high),
        user_table=data.user_table,
        item_table=data.item_table,
        catalogue=public.catalogue,
        features=public.features,
        users=data.users,
        items=data.items,
        ratings=data.ratings,
        seed=file.seed,
        attribute=None if file.partition.by in WAYS else file.partition.by,
        private=file.privacy is not None,
    )
    users = public.users if declared is None else declared.users
    if users is not None and users < ratings.n_users:
        raise UsageError(
            f"[public] users = {users:,} is fewer than the {ratings.n_users:,} users in the data; "
            "declare at least as many."
        )
    if declared is not None and not ratings.item_ids.listed:
        raise DataError(
            f'The items of "{data.source}" are known from ratings alone, and with [privacy] ids may not come from '
            "ratings: one user's record would decide which there are. Name a list of all items with [public] catalogue."
        )
    if declared is not None and ratings.n_items != declared.items:
        raise DataError(
            f'"{data.source}" gave {ratings.n_items:,} items where {declared.items:,} are public: with [privacy] ids '
            "may not come from ratings; restore its list of items, or name one with [public] catalogue."
        )
    described = about(ratings)
    phase("splitting and dividing the data", None)
    parts = split(ratings, by=file.split.by, test=file.split.test, seed=file.seed)
    del ratings  # the parts are copies, and so are the parties' shares: three of everything would be too many
    training = replace(parts.train, times=None)  # half of a rating's bytes, and of no use after the split
    division = file.partition
    parties = partition(
        training,
        into=division.into,
        by=division.by,
        size_skew=division.size_skew,
        taste_skew=division.taste_skew,
        seed=file.seed,
    )
    if expected is not None:
        phase("planning the noise", None)
    run = prepared(file, Facts.of(parties, file.seed), declared, expected=expected)
    return LoadedRun(file, run, described, training, parts.test, parts.support, parts.description, parties)


def about(ratings: Ratings) -> dict[str, Any]:
    """What about.json states of the data."""
    return {
        "name": ratings.name,
        "users": ratings.n_users,
        "items": ratings.n_items,
        "ratings": ratings.n_ratings,
        "scale": str(ratings.scale),
        "feedback": str(ratings.feedback),
        "features": list(ratings.features),
        "density": ratings.n_ratings / (ratings.n_users * ratings.n_items),
        "notes": list(ratings.notes),
    }
