"""Whether a list of items may be public: it is where a list or a publisher says so, not where ratings do."""

import pytest

import tacit
from tacit.data import public_facts
from tacit.data.ratings import Scale

ROWS = "user,item,rating\na,1,4\nb,2,5\nb,1,3\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "ratings.csv").write_text(ROWS)
    (tmp_path / "items.csv").write_text("item\n1\n2\n3\n")
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "ratings.csv").write_text(ROWS)
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    return tmp_path


def test_rated_items_alone_are_no_list(folder):
    assert not tacit.load(folder / "ratings.csv").item_ids.listed
    assert tacit.load(folder / "ratings.csv", catalogue=folder / "items.csv").item_ids.listed
    assert tacit.load("demo").item_ids.listed


@pytest.mark.parametrize(("items", "listed"), [(2, True), (3, False)])
def test_a_publishers_count_makes_a_list_of_all_items(folder, monkeypatch, items, listed):
    monkeypatch.setitem(public_facts.PUBLISHED, "tiny", public_facts.PublicFacts(2, items, Scale(1, 5), 3))
    assert tacit.load("tiny").item_ids.listed is listed


def test_parts_of_a_list_are_listed(folder):
    ratings = tacit.load(folder / "ratings.csv", catalogue=folder / "items.csv", scale=(1, 5))
    assert all(share.ratings.item_ids.listed for share in tacit.partition(ratings, into=3, by="item"))
