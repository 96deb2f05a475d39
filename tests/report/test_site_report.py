"""The site report, “What left this site”: one offline page, escaped, bounded, its owner's alone, true to the ledger."""

import json
import math
import os
import re
import stat
from dataclasses import fields, replace
from pathlib import Path

import pytest
from page_reader import Page

from tacit.aggregation.secagg import EXCHANGES
from tacit.boundary.events import (
    KINDS,
    Gaussian,
    Metrics,
    NonPrivate,
    Public,
    Pure,
    Roster,
    SampledGaussian,
    Shuffled,
    Skellam,
)
from tacit.boundary.ledger import Ledger, Row, canonical
from tacit.boundary.protection import Budget
from tacit.errors import UsageError
from tacit.guarantee import Relation
from tacit.report.site_ledger import (
    RunNote,
    SiteLedger,
    event_text,
    first_page,
    masked_numbers,
    mechanism,
    recipient,
    run_notes,
    what_left,
)
from tacit.report.site_report import FREE, NOISED, OPEN, UNPROTECTED, site_page, write_site_report

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&{coordinator}\u202e\x07"
MADE = "2026-03-14T10:22:05+00:00"
NOISE, SUM = Gaussian(2.0), Skellam(4e6, 9000.0, 1000.0)
KNOWN = RunNote(guarantee="(1.00, 1e-06)-DP · against the coordinator")
SEEDED = RunNote(guarantee="(1.00, 1e-06)-DP · SIMULATED (seeded)")


def row(number=1, step="improve", event=NOISE, kind=None, **changes) -> Row:
    kind = kind or ("public" if event == Public() else "chain")
    values = (number, f"2026-03-14T09:{number % 60:02d}:00+00:00", "run-a", number, step, 0, kind, "", canonical(event))
    return replace(Row(*values, "", 1000, 1, None, "5ec2e7", f"{number:064x}"), **changes)


def secure_sum(start=1, **same) -> list[Row]:
    """One masked contribution, between the exchanges of its secure sum."""
    steps = ["advertise:give", "share:give", "collect:give", "give", "unmask:give"]
    kinds = {"give": {"event": SUM, "kind": "sum"}}
    same = {"round": 1, **same}
    return [row(n, step, **same, **kinds.get(step, {"event": Public()})) for n, step in enumerate(steps, start)]


def ledger(*rows: Row, reached=None, **changes) -> SiteLedger:
    values = [0.1 * n for n in range(1, len(rows) + 1)] if reached is None else reached
    whole = SiteLedger("party-1", Path("ledger/party-1.sqlite"), rows, values, 1e-6, Relation.ZERO_OUT, "user", MADE)
    return replace(whole, **changes)


def read(*rows: Row, **changes) -> Page:
    return Page(site_page(ledger(*rows, **changes), MADE, "0.0"))


def test_a_contribution_is_masked_only_by_exchanges_of_its_own_run_step_round_and_attempt():
    others = [{"round": 2}, {"round": 1, "run": "run-b"}, {"round": 1, "attempt": 1}]
    rows = [*secure_sum(), *(row(n, "give", SUM, "sum", **other) for n, other in enumerate(others, 6))]
    rows.append(row(9, "other", SUM, "sum", round=1))
    assert masked_numbers(rows) == {4}


def test_every_exchange_of_a_secure_sum_has_its_words():
    sent = {name: row(1, f"{name}:give", Public()) for name in EXCHANGES}
    assert len({what_left(message) for message in sent.values()}) == len(EXCHANGES)
    assert recipient(sent["share"], False, "C").startswith("neighbouring sites, through C")
    assert all("C" in recipient(message, False, "C") for message in sent.values())


@pytest.mark.parametrize(
    ("release", "masked", "words"),
    [
        (row(1, "give", SUM, "sum"), True, "the coordinator, masked: it sees only the sum of all"),
        (row(1, "share:give", NOISE), False, "the coordinator"),  # a step that costs is never an exchange
        (row(1, "report", Shuffled(1.0, 500), "report"), False, "a proxy, which mixes it"),
    ],
)
def test_a_release_names_its_recipient(release, masked, words):
    assert recipient(release, masked).startswith(words)


def test_every_event_that_a_ledger_can_hold_has_words():
    bare = mechanism(NonPrivate())
    for kind in KINDS.values():
        kinds = {f.name: "response" if f.name == "mechanism" else 2 if f.type == "int" else 0.5 for f in fields(kind)}
        stated = mechanism(kind(**kinds), "user")
        assert stated
        assert (stated == bare) == (kind is NonPrivate), kind


def test_mechanisms_name_noise_sample_and_unit():
    assert mechanism(SampledGaussian(0.8102, 0.01, 10), "user") == (
        "10 answers, each over a fresh, secret sample of 1 % of the users, with Gaussian noise: "
        "σ is 0.81 × the most that one user can change"
    )
    assert "σ is 2 × the most that one rating can change" in mechanism(SUM, "rating", shared=True)
    assert ["adds its share" in mechanism(SUM, "rating", shared) for shared in (True, False)] == [True, False]
    pure = canonical(Pure(0.123456789, "x"))
    assert event_text(pure, exact=True) == "Pure(count=1, epsilon=0.123456789, mechanism=x)"
    assert event_text(pure) == "Pure(count=1, epsilon=0.123457, mechanism=x)"


def test_the_notes_name_federation_and_coordinator(tmp_path):
    assert run_notes(tmp_path / "party-1.sqlite") == {}
    note = {"federation": "heart-study", "coordinator": "fl.example.org:8102", "budget": 2.0, "delta": 1e-6}
    (tmp_path / "runs.json").write_text(json.dumps({"run-a": {**note, "guarantee": "… SIMULATED (seeded)", "more": 1}}))
    notes = run_notes(tmp_path / "party-1.sqlite")
    assert notes["run-a"].simulated
    page = read(row(), notes=notes)
    assert "to the coordinator of heart-study (fl.example.org:8102)" in page.text
    assert "of a budget of 2" in page.text


@pytest.mark.parametrize("text", ["", "[]", '{"r": 3}', '{"r": {"budget": -1}}', '{"r": {"delta": 1}}', "\0"])
def test_notes_that_cannot_be_read_are_an_error(tmp_path, text):
    (tmp_path / "runs.json").write_text(text)
    with pytest.raises(UsageError, match=r"runs\.json.*repair it, or move it away"):
        run_notes(tmp_path / "party-1.sqlite")


def test_the_first_page_has_begin_unit_plan_and_budgets(tmp_path):
    path = tmp_path / "party-1.sqlite"
    kept = Ledger(path, "party-1")
    assert first_page(path).unit == ""
    kept.note("unit", "rating, replace", "was kept for another unit")
    kept.first_schedule([NOISE])
    budgets = (Budget(2.0, 1e-6), Budget(1.0, 1e-6, 30.0))
    for budget in (*budgets, budgets[0]):
        kept.add_budget(budget.epsilon, budget.delta, budget.days)
    assert kept.verify() == 0
    kept.close()
    page = first_page(path)
    assert (page.unit, page.planned, page.budgets) == ("rating", (NOISE,), budgets)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", page.begun)


def test_the_top_states_since_when_how_much_to_whom_and_at_what_cost():
    rows = (*secure_sum(), row(6))
    page = read(*rows, reached=[0, 0, 0, 1.2341, 1.2341, 1.5])
    top = page.text[: page.text.index("What it cost")]
    assert "Since 14 March 2026, 10:22 UTC, 6 releases with 6 KB left, to the coordinator." in top
    assert "Two were computed from ratings, with noise added; the other four were not." in top
    for stated in ("What left party-1", "ε = 1.50 at δ = 1e-06 · per user · zero-out", "all sites share the noise"):
        assert stated in top
    assert "Verified 14 March 2026, 10:22 UTC" in top
    assert rows[-1].head in top
    assert page.data["1.5"] == {"1.50"}
    assert f"tacit ledger verify ledger/party-1.sqlite \\ --head {rows[-1].head}" in page.text


def test_every_release_is_on_it_with_its_time_round_bytes_epsilon_and_head():
    rows = [row(n) for n in range(1, 9)]
    page = read(*rows, reached=[0.11 * n for n in range(1, 9)])
    for n, one in enumerate(rows, start=1):
        expected = [f"{n}", f"2026-03-14 09:0{n}:00", f"{n}", "1,000", f"{0.11 * n:.3f}", one.head[:12]]
        assert expected in page.rows


def test_what_costs_is_listed_apart_from_what_does_not():
    text = read(*secure_sum(), reached=[0, 0, 0, 1, 1]).text
    paid, free, end = (text.index(heading) for heading in (NOISED, FREE, "Every release"))
    assert "masked: it sees only the sum of all" in text[paid:free]
    assert "unmask" not in text[paid:free]
    assert "fresh public keys" in text[free:end]
    assert "contribution" not in text[free:end]


@pytest.mark.parametrize(("many", "shown_open"), [(OPEN, 1), (3000, 0)])
def test_few_releases_stand_open_and_thousands_stay_folded(many, shown_open):
    text = site_page(ledger(*(row(n) for n in range(1, many + 1))), MADE)
    assert text.count("<details open>") == shown_open
    assert len(text) < 100_000 + 400 * many


def test_a_cohort_counts_its_devices():
    page = read(row(1, contributors=70_000, present=b"x"))
    assert "70 MB" in page.text
    assert any("70,000" in row for row in page.rows)


def test_hostile_words_are_shown_as_text():
    note = RunNote(federation=HOSTILE, coordinator=HOSTILE, guarantee=HOSTILE)
    refusal = {"moment": HOSTILE, "run": HOSTILE, "round": 1, "step": HOSTILE, "request": "", "why": HOSTILE}
    rows = (row(1, HOSTILE, run=HOSTILE, moment=HOSTILE, kind=HOSTILE), row(2, f"share:{HOSTILE}", Public()))
    names = {"party": HOSTILE, "path": Path(HOSTILE.replace("\x07", "")), "unit": HOSTILE, "notes": {HOSTILE: note}}
    assert "alert(1)" in read(*rows, **names, refused={"number": 1, "told": [refusal]}).text


def test_nothing_of_a_partys_state_is_on_it():
    assert "5ec2e7" in repr(row())
    assert "5ec2e7" not in site_page(ledger(row()), MADE)


def test_without_ratings_nothing_is_spent():
    empty = read().text
    assert "Nothing has left party-1 since its ledger was begun, 14 March 2026, 10:22 UTC." in empty
    assert "No request was refused." in empty
    public = read(row(1, "finish", Public()), reached=[0.0]).text
    assert "None of it was computed from ratings." in public
    assert "ε = 0: nothing that left was computed from ratings" in public


def test_a_masked_chain_has_its_own_noise_and_a_masked_sum_shares_it():
    chain = [replace(one, kind="chain", event=canonical(NOISE)) if one.step == "give" else one for one in secure_sum()]
    for rows, masked, shared in (
        (chain, True, False),
        (secure_sum(), True, True),
        ([row(1, "give", SUM, "sum")], False, False),
    ):
        text = read(*rows).text
        assert ("masked: it sees only the sum of all" in text) == masked
        assert ("share the noise" in text) == ("adds its share" in text) == shared


@pytest.mark.parametrize(
    ("notes", "kind", "stated"),
    [
        ({"run-a": KNOWN, "run-b": KNOWN}, "holds", None),
        ({"run-a": KNOWN, "run-b": SEEDED}, "plain", "SIMULATED The noise"),
        ({"run-a": KNOWN}, "plain", "There is no record of how the noise of 1 run was drawn"),
        ({}, "plain", "There is no record of how the noise was drawn"),
    ],
)
def test_seeded_or_unknown_noise_is_not_called_a_guarantee(notes, kind, stated):
    page = read(row(), row(2, run="run-b"), notes=notes, budgets=(Budget(2.0, 1e-6),))
    (stamp,) = [kind for kind, heading in page.stamps if "ε = 2.00" in heading]
    assert stamp == kind
    assert stated is None or stated in page.text
    assert stated is not None or "SIMULATED" not in page.text


def test_shared_metrics_are_called_unprotected_everywhere():
    rows = row(1, "sizes:roster", Roster(), "public"), row(2), row(3, "metrics:own", Metrics(), "public", size=440)
    page = read(*rows, reached=[0, 2.0, 2.0], notes={"run-a": KNOWN})
    assert [kind for kind, _heading in page.stamps][:2] == ["none", "plain"]
    unprotected, noised, free = (page.text.index(heading) for heading in (UNPROTECTED, NOISED, FREE))
    assert unprotected < page.text.index("metrics: own") < noised < free
    for stated in (
        "One was computed from ratings, with noise added; one was computed from ratings, without any protection; ",
        "METRICS SHARED",
        "For all but the metrics: Every user is protected",
        "2 from ratings, 1 unprotected",
        "took the site to ε = 2.00, and no other one cost any.",
        "440 bytes computed from ratings, without any protection; 1 KB not computed from ratings",
        "metrics:own · 1 release · round 3 · 440 bytes · no ε covers it",
        "leaves with noise on it, except metrics:own.",
        "Metrics left without any noise",
    ):
        assert stated in page.text


def test_metrics_alone_are_not_called_nothing():
    text = read(row(1, "metrics:own", Metrics(), "public"), reached=[0.0]).text
    assert "METRICS SHARED" in text
    for stated in ("nothing that left was computed", "is protected from", "What it cost"):
        assert stated not in text


def test_data_without_noise_is_non_private():
    text = read(row(1, "dump", NonPrivate(), "disclose"), reached=[math.inf]).text
    for stated in ("NON-PRIVATE", "Data left without any noise, in dump", UNPROTECTED, "noise on it, except dump."):
        assert stated in text
    assert NOISED not in text
    protected = read(row(), row(2, "finish", Public()), notes={"run-a": KNOWN})
    for stated in (UNPROTECTED, "METRICS", "unprotected", "without any"):
        assert stated not in protected.text


TWO_RUNS = (row(1), row(2, run="run-b"))


def test_one_run_is_measured_as_a_fixed_list_and_several_by_their_budget():
    one = read(row(), reached=[0.8], budgets=(Budget(2.0, 1e-6),)).text
    assert "ε = 0.80 at δ = 1e-06 · per user" in one
    assert "of a budget of 2" in one
    assert "fixed list" not in one
    several = read(*TWO_RUNS, reached=[0.5, 0.8], budgets=(Budget(1.0, 1e-6), Budget(1.7, 1e-6))).text
    assert "ε = 1.70 at δ = 1e-06 · per user" in several
    assert "This is the budget that holds" in several
    assert "the reading for the fixed list of releases: ε = 0.80 at δ = 1e-06" in several


@pytest.mark.parametrize(
    ("budgets", "stated"),
    [
        ((), "No budget is known to hold"),
        ((Budget(3.0, 1e-6), Budget(1.0, 1e-6, 30.0)), "No budget is known to hold"),
        ((Budget(3.0, 1e-6), Budget(0.9, 1e-2)), "No budget is known to hold"),
        ((Budget(3.0, 1e-6, 30.0), Budget(1.0, 1e-6, 30.0)), "ε = 3 at δ = 1e-06 in any 30 days, by this machine's"),
    ],
)
def test_without_a_budget_for_the_lifetime_a_reading_is_called_one(budgets, stated):
    page = read(*TWO_RUNS, reached=[0.5, 0.8], budgets=budgets, notes={"run-a": RunNote(budget=9.0)})
    assert "This is the reading for the fixed list of releases" in page.text
    assert stated in page.text
    assert [kind for kind, heading in page.stamps if "ε = 0.80 at δ = 1e-06" in heading] == ["plain"]


def test_a_ledger_without_a_budget_goes_by_the_notes_if_all_runs_have_one():
    notes = {"run-a": RunNote(budget=2.0, delta=1e-6), "run-b": RunNote(budget=1.5)}
    assert ledger(*TWO_RUNS, notes=notes).budget == Budget(2.0, 1e-6)
    assert ledger(*TWO_RUNS, notes={**notes, "run-b": RunNote()}).budget is None


def test_refusals_are_listed_and_counted():
    refusal = {"moment": MADE, "run": "run-a", "round": 3, "step": "improve", "request": ""}
    latest = [{**refusal, "why": f"Budget spent {n}."} for n in range(50)]
    page = read(row(), refused={"number": 70, "told": latest})
    assert "70 requests refused; nothing left for them. The latest 50 are listed here." in page.text
    assert ["2026-03-14 10:22:05", "run-a", "3", "improve", "Budget spent 49."] in page.rows


def test_the_page_is_its_owners_alone_whatever_was_there_before(tmp_path):
    target = tmp_path / "left.html"
    for place in (target, tmp_path / "left.html.part"):
        place.write_text("old")
        os.chmod(place, 0o644)
    write_site_report(ledger(row()), target, MADE)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert target.read_text(encoding="utf-8") == site_page(ledger(row()), MADE)
    assert [path.name for path in tmp_path.iterdir()] == ["left.html"]
