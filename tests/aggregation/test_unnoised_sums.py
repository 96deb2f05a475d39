"""Sums without noise under every aggregation: the plain sum to a step, cut to public bounds, NON-PRIVATE, hidden."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from tacit.boundary.code import FINE, SEALED, Fixed
from tacit.boundary.query import Query, Unbounded
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec
from tacit.boundary.wire import decode
from tacit.config import AggregationSection
from tacit.data.synthetic import demo
from tacit.engine.inprocess import InProcess
from tacit.errors import PrivacyRefused
from tacit.federation import Facts, Floats, Party, Schema, Transcript, step
from tacit.guarantee import NoGuarantee
from tacit.methods.method import Method, Parameters, Sides
from tacit.partition import Setting, partition
from tacit.prepare.prepared import PreparedRun
from tacit.secure.masks import unpack
from tacit.secure.secagg_party import SecAggParty

USERS, ITEMS, SILOS, BOUND = 30, 16, 5, 3.0
DATA = demo(users=USERS, items=ITEMS, ratings=200)
STEP = BOUND / FINE


@dataclass(frozen=True)
class Given(Query):
    """A sum of anything, to which one user adds at most `largest` in a cell, so it says; no sensitivity is claimed."""

    largest: float | None = BOUND

    def sensitivity(self, unit, relation):
        return math.inf

    def over(self, values, present=None):
        here = slice(None) if present is None else present
        return Unbounded().over(lambda _state, _stream: {"x": values[here].sum(axis=0)})


class Adds(Party):
    """Adds up what its users have, one row each."""

    values = {}

    @step(Kind.SUM, takes=Schema(), gives=Schema(x=Floats("items")), what="the sum of its users' rows")
    def add(self):
        return self.gate.sum(self.values[self.name])


def method_of(query):
    """A method of one sum."""
    sides = Sides(lambda parameters, facts: None, Adds, lambda parameters, context: [Spec("add", query)])
    settings = {Setting.HORIZONTAL: sides, Setting.DEVICE: sides}
    return Method("adds", "Sums", "One sum.", Parameters, settings, guaranteed=False)


#: By name: the aggregation, and how the data is divided.
WAYS = {
    "plain": ("plain", "user"),
    "ideal": ("ideal", "user"),
    "ideal, a cohort": ("ideal", "device"),
    "secagg": ("secagg", "user"),
    "secagg, a cohort": ("secagg", "device"),
}
EVERY = pytest.mark.parametrize("way", WAYS)
HIDDEN = pytest.mark.parametrize("way", [way for way in WAYS if way != "plain"])


class Summed:
    """One sum of what users have, row by row."""

    def __init__(self, way, rows, payloads=None, query=None, dropout=0.0):
        name, by = WAYS[way]
        divided = partition(DATA, into=SILOS if by == "user" else 1, by=by)
        self.run = PreparedRun.of(
            method_of(query or Given()),
            Parameters(),
            Facts.of(divided, 7),
            aggregation=AggregationSection(name=name, tolerate=0.4, dropout=dropout),
            run="run",
        )
        sizes = np.cumsum([len(share.users) for share in divided])[:-1]
        self.rows = dict(zip((share.name for share in divided), np.split(rows, sizes), strict=True))
        Adds.values = self.rows
        self.parties = [self.run.party(share) for share in divided]
        self.transcript = Transcript(payloads)
        federation = self.run.federation(InProcess(self.parties, workers=1), transcript=self.transcript)
        (self.total,) = [federation.sum("add") for _ in federation.rounds(1)]

    @property
    def exact(self):
        """The sum, each party's part cut to what so many users may add."""
        parts = [np.clip(np.nan_to_num(r.sum(axis=0)), -BOUND * len(r), BOUND * len(r)) for r in self.rows.values()]
        return np.sum(parts, axis=0)


def close(found, exact, parties):
    """Equal but for half a step of each party, and the last bit of a float32."""
    return np.all(np.abs(found - exact) <= parties * STEP / 2 + np.abs(exact) * 2.0**-23)


@pytest.fixture
def rows():
    return np.random.default_rng(7).uniform(-BOUND, BOUND, (USERS, ITEMS))


@EVERY
def test_it_is_the_plain_sum_to_a_step(way, rows):
    done = Summed(way, rows)
    assert close(done.total["x"], rows.sum(axis=0), len(done.parties))
    assert done.total.contributors == (USERS if "cohort" in way else SILOS)
    assert done.total.noise == 0


@EVERY
@pytest.mark.parametrize("sign", [1, -1])
def test_everybody_at_the_bound_does_not_wrap(way, sign):
    """The largest sum that there can be, in every cell; and both ends beside each other."""
    rows = np.full((USERS, ITEMS), sign * BOUND)
    rows[:, ::2] *= -1
    found = Summed(way, rows).total["x"]
    assert close(found, rows.sum(axis=0), SILOS)
    assert np.abs(found).min() > USERS * BOUND * 0.999


@HIDDEN
def test_planted_a_cell_that_is_too_narrow_would_wrap(way, monkeypatch):
    right = Fixed.of.__func__
    monkeypatch.setattr(Fixed, "of", classmethod(lambda cls, largest, *_more: Fixed(largest, STEP, 24)))
    rows = np.full((USERS, ITEMS), BOUND)
    assert not close(Summed(way, rows).total["x"], rows.sum(axis=0), SILOS)
    monkeypatch.setattr(Fixed, "of", classmethod(right))
    assert close(Summed(way, rows).total["x"], rows.sum(axis=0), SILOS)


@HIDDEN
@pytest.mark.parametrize("liar", [1e30, -1e30, np.inf, np.nan])
def test_what_is_beyond_the_bound_is_cut_at_home(way, rows, liar):
    """One user's numbers are far too large, or none: her party's part is what so many users may add at most."""
    rows[4, 3] = liar
    done = Summed(way, rows)
    first = next(iter(done.rows.values()))
    part = first.sum(axis=0)[3]
    cut = 0.0 if np.isnan(part) else np.sign(part) * BOUND * len(first)
    others = sum(r.sum(axis=0)[3] for r in list(done.rows.values())[1:])
    assert done.total["x"][3] == pytest.approx(cut + others, abs=1e-4)
    untouched = np.arange(ITEMS) != 3
    assert close(done.total["x"][untouched], rows.sum(axis=0)[untouched], SILOS)


@HIDDEN
def test_planted_a_contribution_that_is_not_cut_would_be_noticed(way, rows, monkeypatch):
    rows[4, 3] = 1e6
    expected = Summed(way, rows).exact

    def uncut(self, blocks, weight, users=1):
        return np.rint(blocks["x"] * (weight / self.step)).astype(np.int64)

    monkeypatch.setattr(Fixed, "encoded", uncut)
    assert not close(Summed(way, rows).total["x"], expected, SILOS)


@EVERY
def test_it_is_stamped_and_says_what_is_hidden_from_whom(way, rows):
    done = Summed(way, rows)
    promised = done.run.guarantee
    assert isinstance(promised, NoGuarantee)
    assert str(promised).startswith("NON-PRIVATE")
    assert ("hidden from the coordinator" in str(promised)) == (way != "plain")
    for party in done.parties:
        assert isinstance(party.gate._made.guarantee, NoGuarantee)
        assert party.gate._made.event == ""


def unmasked_cells(done, folder):
    """By party, how many cells of what it sent are those of its own part; where none was sent, nothing."""
    code, found = done.run.plan.terms.steps["add"].code, {}
    for name, rows in done.rows.items():
        own = code.encoded({"x": rows.sum(axis=0)}, 1.0, len(rows)) % 2**code.bits
        for path in folder.glob(f"*-up-{name}.tct"):
            body = decode(path.read_bytes())
            if SEALED in body:
                seen = unpack(body[SEALED], ITEMS, code.bits).astype(np.int64)
                found[name] = int(np.count_nonzero(seen == own))
    return found


@HIDDEN
def test_nothing_but_the_sum_can_be_seen(way, rows, tmp_path):
    """No part is in the transcript, but under masks; one number of it would be enough to be found."""
    done = Summed(way, rows, payloads=tmp_path)
    shown = [path for path in tmp_path.glob("*-up-*.tct") if path.stem.endswith("-sum")]
    assert len(shown) == 1
    assert close(decode(shown[0].read_bytes())["x"], done.exact, SILOS)
    for path in set(tmp_path.glob("*-up-*.tct")) - set(shown):
        body = decode(path.read_bytes())
        assert all(isinstance(value, np.ndarray) and value.dtype == np.uint8 for value in body.values())
    assert all(alike <= 1 for alike in unmasked_cells(done, tmp_path).values())
    entries = [entry for entry in done.transcript.entries if entry.direction == "up" and entry.step == "add"]
    assert all(entry.digest == "" for entry in entries if entry.party != "sum")
    assert any(SEALED in decode(path.read_bytes()) for path in tmp_path.glob("*-up-*.tct")) == (way == "secagg")


def test_planted_masks_that_are_skipped_would_be_noticed(rows, tmp_path, monkeypatch):
    real = SecAggParty.mask

    def skipped(self, vector, bits):
        real(self, vector.copy(), bits)
        return vector

    monkeypatch.setattr(SecAggParty, "mask", skipped)
    done = Summed("secagg", rows, payloads=tmp_path)
    assert unmasked_cells(done, tmp_path) == dict.fromkeys(done.rows, ITEMS)


@pytest.mark.parametrize("way", ["plain", "ideal, a cohort", "secagg, a cohort"])
def test_the_sum_is_of_those_that_stayed(way, rows):
    done = Summed(way, np.ones((USERS, ITEMS)), dropout=0.2)
    assert done.total.contributors < (USERS if "cohort" in way else SILOS)
    if "cohort" in way:
        np.testing.assert_allclose(done.total["x"], done.total.contributors, atol=SILOS * STEP)


@pytest.mark.parametrize("largest", [None, math.inf, 0.0])
@HIDDEN
def test_a_sum_that_nothing_bounds_cannot_be_hidden(way, largest, rows):
    with pytest.raises(PrivacyRefused, match="no public bound"):
        Summed(way, rows, query=Given(largest))


def test_a_sum_that_nothing_bounds_can_be_plain(rows):
    np.testing.assert_allclose(Summed("plain", rows, query=Given(None)).total["x"], rows.sum(axis=0), rtol=1e-5)
