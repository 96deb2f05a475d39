"""The eICU Collaborative Research Database, and its demo: patients × medicines and laboratory tests.

Tables, each as .parquet, .csv or .csv.gz: `patient` and at least one of `medication`, `infusiondrug` and
`lab` (also under the name `lab_subset_pyhealth`); `hospital` where it is there.

The user is the patient (`uniquepid`), never the stay: a guarantee per user must cover all their stays.
An entry counts the orders, infusion records or results of that patient; there are no timestamps, because eICU
gives times within a stay only. Every patient is on the roster, with or without an entry.

`hospital`, `age`, `gender` and `ethnicity` are those of the patient's first stay (by discharge year, then
hospital stay, then unit visit, then stay id): a few patients were seen in two hospitals, and count as the
first one's. "> 89" becomes 90. `region`, `beds` and `teaching` describe the hospital.

An item's name is a function of its row alone, so that one patient's data cannot rename another's. Medicines:
lower case; container, strength, dose, diluent, bracketed remarks, route and form are cut off ("2 ML VIAL :
ONDANSETRON HCL 4 MG/2ML IJ SOLN" is "ondansetron"); brands and generics stay apart. An order without a name
but with an ingredient code is called "hicl 1234"; without both, or cancelled, it is left out. Tests are called
"lab: sodium".
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.data.arrow_tables import column_names, read_whole
from tacit.data.columns import Columns, Origin, Records
from tacit.errors import DataError

_EVENTS = {
    "medication": ("patientunitstayid", "drugname", "drughiclseqno", "drugordercancelled"),
    "infusiondrug": ("patientunitstayid", "drugname"),
    "lab": ("patientunitstayid", "labname"),
}
_STAY = ("patientunitstayid", "uniquepid", "hospitalid", "gender", "age", "ethnicity")
_ORDER = ("hospitaldischargeyear", "patienthealthsystemstayid", "unitvisitnumber", "patientunitstayid")

_FORMS = set(
    re.findall(
        r"\w+",
        """tab tabs tablet tablets cap caps capsule inj injection injectable iv ivpb po sl sc im ij soln
        solution solr susp syringe syr vial bag premix infusion infused ivf oral liquid liqd supp suppository
        chew crys drip prn orderable range er sr ec hcl hydrochloride lvp mbp neb pf""",
    )
)
_CONTAINER = re.compile(r"^[\d.,]+\s*(?:ml|l|g|gm|gram|each)\b[^:]*?(?::|\s-\s)\s*|^volume\s*(?:-\s*)?")
_REMARK = re.compile(r"\([^)]*\)|\*[^*]*\*")
_DOSE = re.compile(r"(?:^|[\s,:-])[\d.][\d.,/]*\s*(?:%|[a-z]).*$|(?:^|[\s,:-])[\d.][\d.,/%-]*(?:\s.*)?$")
_DILUENT = re.compile(r"\s+in\s.*$")
_STRENGTH_FIRST = re.compile(r"^[\d.,/]+\s*%?\s*")


def holds(folder: Path) -> bool:
    """Whether a folder has an eICU `patient` table and something to count."""
    return _file(folder, "patient") is not None and any(_file(folder, name) for name in _EVENTS)


def read(folder: Path) -> Records:
    """One row per patient and item, with its count."""
    stays, origin = _table(folder, "patient", (*_STAY, *_ORDER))
    stay_ids = stays["patientunitstayid"]
    if stays["uniquepid"].null_count:
        row = pc.index(stays["uniquepid"].is_null(), True).as_py()
        raise DataError(f"{origin.at(row)} has no uniquepid; fill in the patient, or delete the {origin.unit}.")
    parts, nameless = [], 0
    for name, columns in _EVENTS.items():
        if _file(folder, name) is None:
            continue
        events, where = _table(folder, name, columns)
        items = _items(name, events)
        nameless += items.null_count
        place = pc.index_in(events["patientunitstayid"], value_set=stay_ids)
        if place.null_count:
            row = pc.index(place.is_null(), True).as_py()
            stay = events["patientunitstayid"][row].as_py()
            raise DataError(
                f"{where.at(row)} belongs to stay {stay}, which {origin.name} "
                f"does not list; add the stay there, or delete the {where.unit}."
            )
        parts.append(pa.table({"user": stays["uniquepid"].take(place), "item": items}).drop_null())
    counted = pa.concat_tables(parts).group_by(["user", "item"]).aggregate([([], "count_all")])
    notes = (f"{nameless:,} records were cancelled orders or had no name, and are left out",) if nameless else ()
    return Records(
        counted,
        Origin(f'the counts of "{folder}"'),
        Columns("user", "item", "count_all"),
        users=_patients(stays, folder),
        counts=True,
        name=folder.name,
        notes=notes,
    )


def patients(folder: Path) -> pa.Table:
    """What describes patients; events are not read."""
    return _patients(_table(folder, "patient", (*_STAY, *_ORDER))[0], folder)


def medicine(name: str) -> str:
    """The medicine that an order or infusion names.

    >>> medicine("1000 ML FLEX CONT : SODIUM CHLORIDE 0.9 % IV SOLN"), medicine("Heparin (units/hr)")
    ('sodium chloride', 'heparin')
    """
    whole = " ".join(name.lower().split())
    short = _CONTAINER.sub("", _REMARK.sub(" ", whole).strip())
    short = _STRENGTH_FIRST.sub("", short)
    words = _DILUENT.sub("", _DOSE.sub("", short)).replace(",", " ").strip(" -:;.<").split()
    while len(words) > 1 and words[-1].strip(".") in _FORMS:
        words.pop()
    return " ".join(words) or whole


def _items(table: str, events: pa.Table) -> pa.ChunkedArray:
    """The item of every row, null where it names none. Names are looked at once each."""
    if table == "lab":
        return pc.binary_join_element_wise("lab: ", pc.utf8_trim_whitespace(events["labname"].cast(pa.string())), "")
    raw = events["drugname"].cast(pa.string()).combine_chunks().dictionary_encode()
    raw = raw.chunk(0) if isinstance(raw, pa.ChunkedArray) else raw
    named = pa.array([medicine(name) or None for name in raw.dictionary.to_pylist()], pa.string())
    items = named.take(raw.indices)
    if table == "medication":
        codes = events["drughiclseqno"].cast(pa.float64()).cast(pa.int64())
        coded = pc.binary_join_element_wise("hicl ", codes.cast(pa.string()), "")
        items = pc.coalesce(pa.chunked_array([items]), coded)
        cancelled = pc.fill_null(pc.equal(events["drugordercancelled"].cast(pa.string()), "Yes"), False)
        items = pc.if_else(cancelled, pa.scalar(None, pa.string()), items)
    return items if isinstance(items, pa.ChunkedArray) else pa.chunked_array([items])


def _patients(stays: pa.Table, folder: Path) -> pa.Table:
    ordered = stays.sort_by([(name, "ascending") for name in _ORDER])
    _, first = np.unique(ordered["uniquepid"].to_numpy(zero_copy_only=False).astype(str), return_index=True)
    stay = ordered.take(first)
    age = _text(stay["age"])
    age = pc.if_else(pc.equal(age, "> 89"), "90", age)
    age = pc.if_else(pc.match_substring_regex(age, "^[0-9]+$"), age, pa.scalar(None, pa.string()))
    patients = pa.table(
        {
            "user": stay["uniquepid"],
            "hospital": stay["hospitalid"],
            "age": age.cast(pa.int32()),
            "gender": _text(stay["gender"]),
            "ethnicity": _text(stay["ethnicity"]),
        }
    )
    if _file(folder, "hospital") is None:
        return patients
    hospitals, _ = _table(folder, "hospital", ("hospitalid", "region", "numbedscategory", "teachingstatus"))
    place = pc.index_in(patients["hospital"], value_set=hospitals["hospitalid"])
    for source, name in (("region", "region"), ("numbedscategory", "beds"), ("teachingstatus", "teaching")):
        patients = patients.append_column(name, hospitals[source].take(place))
    return patients


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    column = pc.utf8_trim_whitespace(column.cast(pa.string()))
    return pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)


def _file(folder: Path, name: str) -> Path | None:
    stems = (name, "lab_subset_pyhealth") if name == "lab" else (name,)
    paths = (folder / f"{stem}{ending}" for stem in stems for ending in (".parquet", ".csv", ".csv.gz"))
    return next((path for path in paths if path.is_file()), None)


def _table(folder: Path, name: str, columns: tuple[str, ...]) -> tuple[pa.Table, Origin]:
    path = _file(folder, name)
    if path is None:
        raise DataError(f'There is no table "{name}" in "{folder}"; add {name}.csv.gz or {name}.parquet.')
    wanted = list(dict.fromkeys(columns))
    lacking = sorted(set(wanted) - set(column_names(path)))
    if lacking:
        raise DataError(f'"{path}" has no column "{lacking[0]}"; give the table as eICU publishes it.')
    return read_whole(path, wanted)
