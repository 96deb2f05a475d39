"""“What left my site”: one offline page, escaped, bounded, private to its owner, and true to the ledger."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from dataclasses import fields, replace

import pytest
from page_reader import Page

from tacit.aggregation.secagg import EXCHANGES
from tacit.boundary import events
from tacit.boundary.events import (
    KINDS,
    Gaussian,
    Metrics,
    NonPrivate,
    Public,
    Roster,
    SampledGaussian,
    Shuffled,
    Skellam,
)
from tacit.boundary.ledger import Ledger, Row, canonical
from tacit.boundary.protection import Budget
from tacit.errors import UsageError
from tacit.guarantee import Relation
from tacit.report.left import Left, RunNote, first_page, masked, mechanism, parameters, run_notes, to_whom, what
from tacit.report.left_page import left_page, write_left
from tacit.report.left_rows import COSTLY, EXPOSED, FREE, OPEN

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&{coordinator}\u202e\x07"
MADE = "2026-03-14T10:22:05+00:00"
NOISE = Gaussian(2.0)
SUM = Skellam(4e6, 9000.0, 1000.0)


def row(number=1, step="improve", event=NOISE, kind=None, **changes) -> Row:
    kind = kind or ("public" if event == Public() else "chain")
    values = (number, f"2026-03-14T09:{number % 60:02d}:00+00:00", "run-a", number, step, 0, kind, "", canonical(event))
    return replace(Row(*values, "", 1000, 1, None, "5ec2e7", f"{number:064x}"), **changes)


def secure_sum(start=1, round=1, run="run-a", attempt=0) -> list[Row]:
    """One masked contribution, between its letters."""
    steps = ["advertise:give", "share:give", "collect:give", "give", "unmask:give"]
    same = {"round": round, "run": run, "attempt": attempt}
    return [
        row(n, step, **same, **({"event": SUM, "kind": "sum"} if step == "give" else {"event": Public()}))
        for n, step in enumerate(steps, start)
    ]


def left(*rows: Row, reached=None, **changes) -> Left:
    values = [0.1 * n for n in range(1, len(rows) + 1)] if reached is None else reached
    whole = Left("party-1", "ledger/party-1.sqlite", rows, values, 1e-6, Relation.ZERO_OUT, "user", MADE)
    return replace(whole, **changes)


def read(one: Left) -> tuple[str, Page]:
    text = left_page(one, MADE, "0.0")
    return text, Page(text)


# -- to whom --------------------------------------------------------------------------------------------------


def test_a_contribution_is_masked_only_where_letters_of_its_own_round_and_attempt_are():
    rows = [
        *secure_sum(),
        row(6, "give", SUM, "sum", round=2),  # another round
        row(7, "give", SUM, "sum", round=1, run="run-b"),  # another run
        row(8, "give", SUM, "sum", round=1, attempt=1),  # another attempt
        row(9, "other", SUM, "sum", round=1),  # another step
    ]
    assert masked(rows) == {4}
    assert to_whom(rows[3], True) == "the coordinator, masked: it sees only the sum of all"
    assert to_whom(rows[5], False) == "the coordinator"


def test_every_letter_of_a_secure_sum_has_its_words():
    told = {name: row(1, f"{name}:give", Public()) for name in EXCHANGES}
    assert len({what(letter) for letter in told.values()}) == len(EXCHANGES)
    assert to_whom(told["share"], False, "C").startswith("neighbouring sites, through C: each letter is sealed")
    assert all("C" in to_whom(letter, False, "C") for letter in told.values())


def test_only_letters_are_told_as_letters():
    """A step that costs, whatever its name, is never told as one that goes sealed to neighbours."""
    assert to_whom(row(1, "share:give", NOISE), False) == "the coordinator"
    assert "computation" in what(row(1, "share:give", NOISE))
    assert what(row(1, "finish", Public())).startswith("a fact that no data went into")


def test_reports_through_a_proxy_say_so():
    assert to_whom(row(1, "report", Shuffled(1.0, 500), "report"), False).startswith("a proxy, which mixes it")


def test_the_notes_beside_a_ledger_name_federation_and_coordinator(tmp_path):
    assert run_notes(tmp_path / "party-1.sqlite") == {}
    note = {"federation": "heart-study", "coordinator": "fl.example.org:8102", "budget": 2.0, "delta": 1e-6}
    (tmp_path / "runs.json").write_text(json.dumps({"run-a": {**note, "guarantee": "… SIMULATED (seeded)", "more": 1}}))
    notes = run_notes(tmp_path / "party-1.sqlite")
    assert notes["run-a"].whom == "the coordinator of heart-study (fl.example.org:8102)"
    assert (notes["run-a"].budget, notes["run-a"].simulated) == (2.0, True)
    _, page = read(left(row(), notes=notes))
    assert "to the coordinator of heart-study (fl.example.org:8102)" in page.text
    assert "of a budget of 2" in page.text


@pytest.mark.parametrize("text", ["", "[]", '{"r": 3}', '{"r": {"budget": -1}}', '{"r": {"delta": 1}}', "\0"])
def test_notes_that_cannot_be_read_are_said_to_be(tmp_path, text):
    (tmp_path / "runs.json").write_text(text)
    with pytest.raises(UsageError, match=r"runs\.json.*mend it, or move it away"):
        run_notes(tmp_path / "party-1.sqlite")


# -- mechanisms -----------------------------------------------------------------------------------------------


def test_every_event_that_a_ledger_can_hold_has_words():
    bare = mechanism(NonPrivate())
    for kind in KINDS.values():
        values = {
            f.name: "randomised response" if f.name == "mechanism" else 2 if f.type == "int" else 0.5
            for f in fields(kind)
        }
        said = mechanism(kind(**values), "user")
        assert said
        assert (said == bare) == (kind is NonPrivate), kind


def test_mechanisms_name_noise_sample_and_unit():
    assert mechanism(SampledGaussian(0.8102, 0.01, 10), "user") == (
        "10 answers, each over a fresh, secret sample of 1 % of the users, with Gaussian noise: "
        "σ is 0.81 × the most that one user can change"
    )
    assert "σ is 2 × the most that one rating can change" in mechanism(SUM, "rating", shared=True)
    assert "of which the site adds its share" in mechanism(SUM, "rating", shared=True)
    assert "share" not in mechanism(SUM, "rating")
    assert parameters(canonical(events.Pure(0.123456789, "x"))) == "Pure(count=1, epsilon=0.123456789, mechanism=x)"


# -- the page -------------------------------------------------------------------------------------------------


def test_the_page_is_one_offline_well_formed_file_without_scripts():
    text, page = read(left(*secure_sum()))
    assert text.startswith("<!doctype html>")
    assert not re.search(r"https?:|//[a-z]|url\(|@import|<link|<script|<iframe", text)
    assert page.references == []
    assert page.policy.startswith("default-src 'none';")
    assert {"svg", "figure", "details", "table", "h1"} <= page.tags


def test_the_top_says_who_since_when_how_much_to_whom_and_at_what_cost():
    one = left(*secure_sum(), row(6), reached=[0, 0, 0, 1.2341, 1.2341, 1.5])
    _, page = read(one)
    top = page.text[: page.text.index("What it cost")]
    assert "What left party-1" in top
    assert "Since 14 March 2026, 10:22 UTC, 6 releases with 6 KB left, to the coordinator." in top
    assert "Two were computed from ratings, with noise added; the other four hold nothing of the ratings." in top
    assert "ε = 1.50 at δ = 1e-06 · per user · zero-out" in top
    assert "Sums left masked, and all sites share the noise" in top
    assert "Verified 14 March 2026, 10:22 UTC" in top
    assert one.head in top
    assert page.data["1.5"] == {"1.50"}
    assert f"tacit ledger verify ledger/party-1.sqlite \\ --head {one.head}" in page.text


def test_every_release_is_on_it_with_its_time_round_bytes_epsilon_and_head():
    rows = [row(n) for n in range(1, 9)]
    text, _ = read(left(*rows, reached=[0.11 * n for n in range(1, 9)]))
    for n, one in enumerate(rows, start=1):
        before, shown, _after = text.partition(f'<code title="{one.head}">')
        assert shown
        line = re.sub(r"<[^>]+>", " ", before[before.rindex("<tr>") :]).split()
        assert line == [f"{n}", "2026-03-14", f"09:0{n}:00", f"{n}", "1,000", f"{0.11 * n:.3f}"]


def test_what_costs_is_told_apart_from_what_does_not():
    _, page = read(left(*secure_sum(), reached=[0, 0, 0, 1, 1]))
    paid, gratis = (page.text.index(words) for words in (COSTLY, FREE))
    end = page.text.index("Every release")
    assert "masked: it sees only the sum of all" in page.text[paid:gratis]
    assert "unmask" not in page.text[paid:gratis]
    assert "fresh public keys" in page.text[gratis:end]
    assert "contribution" not in page.text[gratis:end]


def test_thousands_of_releases_stay_folded_and_few_stand_open():
    many = [row(n, "improve" if n % 2 else "finish", NOISE if n % 2 else Public()) for n in range(1, 4001)]
    text, _ = read(left(*many, reached=[n / 4000 for n in range(1, 4001)]))
    assert len(text) < 1_600_000
    assert text.count("<details") == 2
    assert "<details open" not in text
    assert text.count("<details open") < read(left(*many[:OPEN]))[0].count("<details open")


def test_hostile_words_cannot_act():
    note = RunNote(federation=HOSTILE, coordinator=HOSTILE, guarantee=HOSTILE)
    told = {"moment": HOSTILE, "run": HOSTILE, "round": 1, "step": HOSTILE, "request": "", "why": HOSTILE}
    rows = (row(1, HOSTILE, run=HOSTILE, moment=HOSTILE, kind=HOSTILE), row(2, f"share:{HOSTILE}", Public()))
    one = left(*rows, party=HOSTILE, path=HOSTILE, notes={HOSTILE: note}, refused={"number": 1, "told": [told]})
    text, page = read(replace(one, unit=HOSTILE))
    assert not re.search(r"<script|<img|\u202e|\x07", text)
    assert page.references == []
    assert not {"script", "img"} & page.tags
    assert "alert(1)" in page.text  # it is told, as text


def test_nothing_of_a_partys_state_is_on_it():
    assert "5ec2e7" in repr(row())
    text, _ = read(left(row()))
    assert "5ec2e7" not in text


def test_an_empty_ledger_has_a_page_too():
    _, page = read(left())
    assert "Nothing has left party-1 since its ledger was begun, 14 March 2026, 10:22 UTC." in page.text
    assert "ε = 0" in page.text
    assert "No request was refused." in page.text


def test_public_facts_alone_cost_nothing():
    _, page = read(left(row(1, "finish", Public()), reached=[0.0]))
    assert "None of it was computed from ratings." in page.text
    assert "ε = 0: nothing that left was computed from ratings" in page.text


def test_a_masked_chain_keeps_its_own_noise_and_a_masked_sum_shares_it():
    rows = [replace(one, kind="chain", event=canonical(NOISE)) if one.step == "give" else one for one in secure_sum()]
    _, chain = read(left(*rows))
    assert "masked: it sees only the sum of all" in chain.text
    assert "share the noise" not in chain.text
    assert "adds its share" not in chain.text
    _, summed = read(left(*secure_sum()))
    assert "share the noise" in summed.text
    assert "on the sum of all, of which the site adds its share: σ is 2 ×" in summed.text
    _, plain = read(left(row(1, "give", SUM, "sum")))
    assert "share the noise" not in plain.text
    assert "One answer in whole numbers with Skellam noise: σ is 2 ×" in plain.text


def test_stamps_say_what_takes_the_worth_out_of_an_epsilon():
    _, bare = read(left(row(1, "dump", NonPrivate(), "disclose"), reached=[math.inf]))
    assert "NON-PRIVATE" in bare.text
    assert "Data left without any noise, in dump" in bare.text
    known = RunNote(guarantee="(1.00, 1e-06)-DP · against the coordinator")
    seeded = RunNote(guarantee="(1.00, 1e-06)-DP · SIMULATED (seeded)")
    rows = row(), row(2, run="run-b")
    assert "SIMULATED" not in read(left(*rows, notes={"run-a": known, "run-b": known}))[1].text
    assert "SIMULATED The noise was seeded" in read(left(*rows, notes={"run-a": known, "run-b": seeded}))[1].text
    assert (
        "Nothing beside the ledger says how the noise of 1 run was drawn"
        in read(left(*rows, notes={"run-a": known}))[1].text
    )
    assert "Nothing beside the ledger says how the noise was drawn" in read(left(*rows))[1].text


def test_metrics_that_a_site_told_are_called_unprotected_wherever_the_page_speaks_of_them():
    known = {"run-a": RunNote(guarantee="(1.00, 1e-06)-DP · against the coordinator")}
    rows = row(1, "sizes:roster", Roster(), "public"), row(2), row(3, "metrics:own", Metrics(), "public", size=440)
    text, page = read(left(*rows, reached=[0, 2.0, 2.0], notes=known))
    assert (
        "One was computed from ratings, with noise added; one was computed from ratings, without any protection; "
        in page.text
    )
    assert '<div class="stamp none" role="note"><b>METRICS SHARED</b>' in text
    assert '<div class="stamp plain" role="note"><b>ε = 2.00' in text
    assert "For all but the metrics: Every user is protected" in page.text
    assert "2 from ratings, 1 unprotected" in page.text
    assert "took the site to ε = 2.00, and no other one cost any." in page.text
    exposed, costly, free = (page.text.index(words) for words in (EXPOSED, COSTLY, FREE))
    assert exposed < page.text.index("metrics: own") < costly < page.text.index("noised in every step") < free
    assert "440 bytes computed from ratings, without any protection; 1 KB with nothing" in page.text.replace(
        "\xa0", " "
    )
    assert "metrics:own · 1 release · round 3 · 440 bytes · no ε covers it" in page.text.replace("\xa0", " ")
    assert "leaves with noise on it, but for metrics:own." in page.text
    assert "Metrics left without any noise" in page.text


def test_without_metrics_or_bare_data_the_page_has_nothing_unprotected():
    known = {"run-a": RunNote(guarantee="(1.00, 1e-06)-DP · against the coordinator")}
    text, page = read(left(row(), row(2, "finish", Public()), notes=known))
    assert '<div class="stamp holds" role="note"><b>ε = 0.20' in text
    assert "leaves with noise on it." in page.text
    for words in (EXPOSED, "METRICS", "unprotected", "without any"):
        assert words not in page.text


def test_metrics_alone_are_not_said_to_be_nothing():
    text, page = read(left(row(1, "metrics:own", Metrics(), "public"), reached=[0.0]))
    assert "<b>METRICS SHARED</b>" in text
    assert "nothing that left was computed" not in page.text
    assert "is protected from" not in page.text
    assert "What it cost" not in page.text


def test_data_as_it_is_stands_among_what_nothing_protects():
    _, page = read(left(row(1, "dump", NonPrivate(), "disclose"), reached=[math.inf]))
    assert EXPOSED in page.text
    assert COSTLY not in page.text
    assert "leaves with noise on it, but for dump." in page.text


def test_refusals_are_told_and_counted():
    told = [
        {"moment": MADE, "run": "run-a", "round": 3, "step": "improve", "request": "", "why": f"Budget spent {n}."}
        for n in range(50)
    ]
    _, page = read(left(row(), refused={"number": 70, "told": told}))
    assert "70 requests refused; nothing left for them. The latest 50 are told here." in page.text
    assert "2026-03-14 10:22:05 run-a 3 improve Budget spent 49." in page.text


# -- on disk --------------------------------------------------------------------------------------------------


def test_the_page_is_its_owners_alone_whatever_lay_there_before(tmp_path):
    target = tmp_path / "left.html"
    for place in (target, tmp_path / "left.html.part"):
        place.write_text("old")
        os.chmod(place, 0o644)
    write_left(left(row()), target, MADE)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert target.read_text(encoding="utf-8") == left_page(left(row()), MADE)
    assert [path.name for path in tmp_path.iterdir()] == ["left.html"]


def test_a_page_that_cannot_be_written_leaves_nothing(tmp_path):
    with pytest.raises(UsageError, match="cannot be written"):
        write_left(left(row()), tmp_path / "missing" / "left.html", MADE)
    (tmp_path / "left.html").mkdir()
    with pytest.raises(UsageError, match="cannot be written"):
        write_left(left(row()), tmp_path / "left.html", MADE)
    assert [path.name for path in tmp_path.iterdir()] == ["left.html"]


def test_the_first_page_says_since_when_and_for_whom(tmp_path):
    ledger = Ledger(tmp_path / "party-1.sqlite", "party-1")
    assert first_page(tmp_path / "party-1.sqlite").unit == ""
    ledger.note("unit", "rating, replace", "was kept for another unit")
    ledger.first_schedule([NOISE])
    for budget in (Budget(2.0, 1e-6), Budget(1.0, 1e-6, 30.0), Budget(2.0, 1e-6)):
        ledger.add_budget(budget.epsilon, budget.delta, budget.days)
    assert ledger.verify() == 0
    ledger.close()
    page = first_page(tmp_path / "party-1.sqlite")
    assert (page.unit, page.planned) == ("rating", (NOISE,))
    assert page.budgets == (Budget(2.0, 1e-6), Budget(1.0, 1e-6, 30.0))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", page.begun)


TWO_RUNS = (row(1), row(2, run="run-b"))


def test_a_single_run_is_held_by_its_fixed_list():
    _, page = read(left(row(), reached=[0.8], budgets=(Budget(2.0, 1e-6),)))
    assert "ε = 0.80 at δ = 1e-06 · per user" in page.text
    assert "of a budget of 2" in page.text
    assert "fixed list" not in page.text


def test_runs_chosen_one_after_another_are_held_by_their_budget():
    _, page = read(left(*TWO_RUNS, reached=[0.5, 0.8], budgets=(Budget(1.0, 1e-6), Budget(1.7, 1e-6))))
    assert "ε = 1.70 at δ = 1e-06 · per user" in page.text
    assert "the budget that holds, whatever made anyone ask for the next run" in page.text
    assert "the reading for the fixed list of releases: ε = 0.80 at δ = 1e-06" in page.text


@pytest.mark.parametrize(
    ("budgets", "words"),
    [
        ((), "No budget is known to hold"),
        ((Budget(3.0, 1e-6), Budget(1.0, 1e-6, 30.0)), "No budget is known to hold"),
        ((Budget(3.0, 1e-6), Budget(0.9, 1e-2)), "No budget is known to hold"),
        ((Budget(3.0, 1e-6, 30.0), Budget(1.0, 1e-6, 30.0)), "ε = 3 at δ = 1e-06 in any 30 days, by this machine's"),
    ],
)
def test_without_a_budget_for_the_lifetime_a_reading_is_called_one(budgets, words):
    text, page = read(left(*TWO_RUNS, reached=[0.5, 0.8], budgets=budgets, notes={"run-a": RunNote(budget=9.0)}))
    assert "ε = 0.80 at δ = 1e-06 · per user" in page.text
    assert "This is the reading for the fixed list of releases" in page.text
    assert words in page.text
    assert '<div class="stamp holds" role="note"><b>ε' not in text


def test_a_ledger_that_names_no_budget_goes_by_the_notes_if_all_runs_have_one():
    notes = {"run-a": RunNote(budget=2.0, delta=1e-6), "run-b": RunNote(budget=1.5)}
    assert left(*TWO_RUNS, notes=notes).held == Budget(2.0, 1e-6)
    assert left(*TWO_RUNS, notes={**notes, "run-b": RunNote()}).held is None
