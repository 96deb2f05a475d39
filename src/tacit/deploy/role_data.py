"""What a role's service has of its own: a table of items, and never ratings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tacit.data.catalogue import Catalogue
from tacit.data.side_tables import align, read_side
from tacit.data.vocabulary import Vocabulary
from tacit.deploy.offer import Offer
from tacit.deploy.site_data import Held
from tacit.errors import DataError, PrivacyRefused


@dataclass(frozen=True)
class NoRatings:
    """The ratings of a role: there are none, and a kit for a role cannot join as a party."""

    def held(self, offer: Offer, name: str, folder: Path) -> Held:
        raise PrivacyRefused(f"{name} is a role without ratings, and takes no party's part; ask for a kit for a party.")

    def unfit(self, held: Held, offer: Offer) -> str:
        return ""


@dataclass(frozen=True)
class Brought:
    """A role's own table of items, CSV or Parquet; None where it brings nothing."""

    path: Path | None = None

    def check(self) -> str:
        """What is there, in words; raises where it cannot be read."""
        if self.path is None:
            return "none: this role brings nothing of its own"
        table, _origin = read_side(self.path, "item")
        return f"{table.num_rows:,} items with {', '.join(table.column_names[1:]) or 'no attributes'}"

    def catalogue(
        self, items: Vocabulary, run: str, folder: Path, columns: Sequence[str] | None = None
    ) -> Catalogue | None:
        """The run's items with what the table says of them; `columns` are those that the role uses, None for all."""
        return None if self.path is None else _described(self.path, items, columns)


@dataclass(frozen=True)
class LaidBrought(Brought):
    """A table that an experimenter has laid ready for a role of its own, under the run's name."""

    def catalogue(
        self, items: Vocabulary, run: str, folder: Path, columns: Sequence[str] | None = None
    ) -> Catalogue | None:
        path = folder / laid_name(run)
        return _described(path, items, columns) if path.exists() else None


def laid_name(run: str) -> str:
    """The file of a table that lies ready for a role."""
    return f"{run}.parquet"


def write_laid(path: Path, catalogue: Catalogue) -> None:
    """Lay a table ready: items, and what the catalogue says of them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {} if catalogue.attributes is None else {name: catalogue.attributes[name] for name in catalogue.columns}
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    pq.write_table(pa.table({"item": catalogue.ids.ids, **columns}), path)


def _described(path: Path, items: Vocabulary, columns: Sequence[str] | None) -> Catalogue:
    table, origin = read_side(path, "item")
    known = table.column_names[1:]
    wanted = tuple(known if columns is None else columns)
    if missing := [name for name in wanted if name not in known]:
        raise DataError(f'{origin.name} has no column "{missing[0]}", which this role uses; add it, or name another.')
    return Catalogue(items, align(table.select(["item", *wanted]), items, origin), wanted)
