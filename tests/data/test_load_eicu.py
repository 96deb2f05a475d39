"""eICU tables: patients and not stays, medicines by name, hospitals as an attribute."""

import gzip

import pyarrow.parquet as pq
import pytest
from pyarrow import csv as arrow_csv

from tacit.data import Feedback, load
from tacit.data.eicu import medicine
from tacit.errors import DataError

PATIENT = """patientunitstayid,patienthealthsystemstayid,gender,age,ethnicity,hospitalid,hospitaldischargeyear,\
unitvisitnumber,uniquepid
101,11,Female,87,Caucasian,59,2015,1,002-1
102,11,Female,87,Caucasian,59,2015,2,002-1
103,12,Female,86,Caucasian,68,2014,1,002-1
201,21,Male,> 89,,59,2014,1,002-2
301,31,,,Asian,71,2014,1,002-3
"""
MEDICATION = """medicationid,patientunitstayid,drugordercancelled,drugname,drughiclseqno
1,101,No,LISINOPRIL 10 MG PO TABS,132
2,103,No,lisinopril,132
3,101,Yes,HEPARIN,2810
4,201,No,,1866
5,201,No,,
6,201,No,2 ML VIAL : ONDANSETRON HCL 4 MG/2ML IJ SOLN,33598
"""
INFUSION = """infusiondrugid,patientunitstayid,drugname
1,102,Heparin (units/hr)
2,102,Heparin (ml/hr)
"""
LAB = """labid,patientunitstayid,labname
1,201,potassium
2,201,potassium
3,201,pH
"""
HOSPITAL = """hospitalid,numbedscategory,teachingstatus,region
59,<100,f,Midwest
68,100 - 249,t,South
"""
TABLES = {"patient": PATIENT, "medication": MEDICATION, "infusiondrug": INFUSION, "lab": LAB, "hospital": HOSPITAL}


@pytest.fixture(params=["csv", "csv.gz", "parquet"])
def folder(request, tmp_path):
    for name, text in TABLES.items():
        if request.param == "csv.gz":
            (tmp_path / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
            continue
        path = tmp_path / f"{name}.csv"
        path.write_text(text)
        if request.param == "parquet":
            table = arrow_csv.read_csv(path)
            stem = "lab_subset_pyhealth" if name == "lab" else name
            pq.write_table(table, tmp_path / f"{stem}.parquet")
            path.unlink()
    return tmp_path


def entries(ratings):
    users, items = ratings.user_ids[ratings.users], ratings.item_ids[ratings.items]
    return dict(zip(zip(users, items, strict=True), ratings.values.tolist(), strict=True))


def test_a_user_is_a_patient_and_entries_are_counted_over_stays(folder):
    ratings = load(folder, feedback="count")
    assert ratings.user_ids.ids.tolist() == ["002-1", "002-2", "002-3"]
    assert entries(ratings) == {
        ("002-1", "lisinopril"): 2.0,
        ("002-1", "heparin"): 2.0,
        ("002-2", "hicl 1866"): 1.0,
        ("002-2", "ondansetron"): 1.0,
        ("002-2", "lab: potassium"): 2.0,
        ("002-2", "lab: pH"): 1.0,
    }
    assert ratings.counts.tolist() == [2, 4, 0]
    assert ratings.times is None


def test_attributes_are_those_of_the_first_stay_and_its_hospital(folder):
    people = load(folder, feedback="implicit").user_attributes
    assert people["hospital"].to_pylist() == [68, 59, 71]
    assert people["age"].to_pylist() == [86, 90, None]
    assert people["gender"].to_pylist() == ["Female", "Male", None]
    assert people["region"].to_pylist() == ["South", "Midwest", None]
    assert people["beds"].to_pylist() == ["100 - 249", "<100", None]


def test_counts_are_counts_whatever_is_asked_and_left_out_rows_are_noted(folder):
    ratings = load(folder)
    assert ratings.feedback is Feedback.COUNT
    assert any("2 records were cancelled orders or had no name" in note for note in ratings.notes)
    assert any('feedback="count"' in note for note in ratings.notes)
    implicit = load(folder, feedback="implicit")
    assert set(implicit.values.tolist()) == {1.0}
    assert not any('feedback="count"' in note for note in implicit.notes)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("LISINOPRIL 10 MG PO TABS", "lisinopril"),
        ("1000 ML  -  SODIUM CHLORIDE 0.9 % IV SOLN", "sodium chloride"),
        ("Sodium Chloride 0.9% 1,000 ML BAG", "sodium chloride"),
        ("metoprolol tartrate (LOPRESSOR) inj 5 mg", "metoprolol tartrate"),
        ("HYDROCODONE-ACETAMINOPHEN 5-325 MG PO TABS", "hydrocodone-acetaminophen"),
        ("VANCOmycin 1 GM in NS 250 mL IVPB", "vancomycin"),
        ("3% Sodium Chloride IVF Infused (ml/hr)", "sodium chloride"),
        ("Volume (mL)-sodium chloride 0.9 % bolus 500 mL (ml/hr)", "sodium chloride"),
        ("Propofol ()", "propofol"),
        ("IV (ml/hr)", "iv"),
        ("()", "()"),
    ],
)
def test_a_medicine_loses_dose_route_and_form(written, meant):
    assert medicine(written) == meant
    assert medicine(medicine(written)) == meant


@pytest.mark.parametrize(
    ("patient", "lab", "words"),
    [
        (PATIENT, LAB + "4,999,sodium\n", r'Line 5 of ".*lab\.csv" belongs to stay 999, which'),
        (PATIENT + "401,41,Male,50,,59,2014,1,\n", LAB, r'Line 7 of ".*patient\.csv" has no uniquepid; fill in'),
        (PATIENT.replace("hospitalid", "hospital"), LAB, r'has no column "hospitalid"; give the table as eICU'),
    ],
)
def test_a_table_that_does_not_fit_is_named(tmp_path, patient, lab, words):
    (tmp_path / "patient.csv").write_text(patient)
    (tmp_path / "lab.csv").write_text(lab)
    with pytest.raises(DataError, match=words):
        load(tmp_path)
