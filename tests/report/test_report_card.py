"""The privacy card: stamped, exact, and never promising more than the run does."""

import math

import pytest
from fake_run import ABOUT, GUARANTEE, RUN, three_rounds, write_run

from tacit.federation.transcript import Entry, Transcript
from tacit.report import RunRecord, privacy_card
from tacit.report.describe import absences, void_sums

HOSTILE = "<script>alert(1)</script> | **x** [a](b) `c` # \n- d"


def card_of(tmp_path, **changes) -> str:
    return privacy_card(RunRecord.read(write_run(tmp_path / "run", **changes)))


def with_guarantee(tmp_path, **changes) -> str:
    return card_of(tmp_path, summary={"guarantee": {**GUARANTEE, **changes}})


def cells(card: str, step: str) -> list[str]:
    """The row of a table that begins with `step`."""
    line = next(line for line in card.splitlines() if line.startswith(f"| {step} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_without_a_guarantee_it_says_so_in_its_first_lines(tmp_path):
    text = card_of(tmp_path)
    lines = [line for line in text.splitlines() if line]
    assert lines[1] == "**NON-PRIVATE**"
    assert "Nothing limits what the coordinator or another party can learn" in lines[2]
    assert "-DP" not in text
    assert "gives the same digest" in text


def test_what_crossed_is_counted_by_step_in_the_order_it_happened(tmp_path):
    text = card_of(tmp_path / "a")
    assert cells(text, "improve")[1:] == ["The silo's item factors.", "chain", "coordinator", "6", "6.6 KB", "6 KB"]
    assert cells(text, "finish")[2:] == ["public", "coordinator", "2", "0 bytes", "0 bytes"]
    assert text.index("| improve |") < text.index("| finish |")
    assert "no message passed between any two roles" in card_of(tmp_path / "b", messages=[])


def test_a_step_that_the_run_does_not_describe_is_called_out(tmp_path):
    text = card_of(tmp_path, messages=[*three_rounds(), (9, 3, "whisper", "party-1", "up", "chain", 10, 1, "", "ok")])
    assert "NOT DESCRIBED by the run" in cells(text, "whisper")[1]
    assert "nothing here covers it: whisper." in text


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("chain", "ratings can be inferred from it"),
        ("sum", "ratings can be inferred from it"),
        ("disclose", "disclosed unprotected"),
        ("public", "only public facts were sent"),
    ],
)
def test_what_was_not_protected_depends_on_what_crossed(tmp_path, kind, words):
    crossings = [{"step": "improve", "kind": kind, "to": "the coordinator", "what": "x"}]
    assert words in card_of(tmp_path, about={"crossings": crossings})


@pytest.mark.parametrize(
    ("changes", "present", "absent"),
    [
        (
            {},
            [
                "**(1.00, 1e-06)-DP · per user and silo · zero-out · against coordinator and other silos**",
                "Every user is protected from the coordinator and other silos.",
                "by a factor of at most 2.72",
                "Trust model: silo.",
                "Membership: who is on the roster.",
                "Users from their own silo, which holds their ratings.",
                "a second run has another digest",
                "at most (2.00, 3.8e-06) in two and at most (3.00, 1.2e-05) in three",
            ],
            ["NON-PRIVATE", "SIMULATED", "raw ratings"],
        ),
        (
            {"simulated": True},
            [
                "SIMULATED (seeded)",
                "anyone who has the run file can recompute",
                "would be protected",
                "the same digest",
            ],
            ["very user is protected"],
        ),
        ({"epsilon": 800.0}, ["no bound in two and no bound in three", "e^800.00"], ["barely"]),
        ({"unit": "rating"}, ["per rating ·", "each is protected only by itself"], ["and silo ·"]),
        (
            {"epsilon": 6.4, "claimed_epsilon": 3.13},
            ["the paper's formulas claim ε = 3.13", "| ε that truly holds | 6.40 |", "truly holds is ε = 6.40"],
            [],
        ),
        (
            {"model": "distributed", "honest_survivors": 70, "against": ["coordinator", "one colluder"]},
            [
                "honest survivors: 70.",
                "against coordinator and one colluder",
                "there is no guarantee against one",
                "Users from their own silo, which holds their ratings.",
            ],
            [],
        ),
        ({"model": "distributed", "against": "a lying coordinator"}, [], ["there is no guarantee against one"]),
        (
            {"relation": "{x}", "model": "lunar"},
            ["relation “{x}”", "Trust model: lunar. The run states no more about it."],
            [],
        ),
    ],
)
def test_a_guarantee_is_printed_with_every_word_of_it_and_no_more(tmp_path, changes, present, absent):
    text = with_guarantee(tmp_path, **changes)
    assert [words for words in present if words not in text] == []
    assert [words for words in absent if words in text] == []


def test_several_silos_cost_what_group_privacy_says():
    assert 1e-6 * (1 + math.e) <= 3.8e-6
    assert 1e-6 * (1 + math.e + math.e**2) <= 1.2e-5


@pytest.mark.parametrize(("setting", "words"), [("vertical", "and silo ·"), ("device", "Users from their own silo")])
def test_other_settings_have_no_silo_to_speak_of(tmp_path, setting, words):
    stated = {**GUARANTEE, "model": "distributed"}
    assert words not in card_of(tmp_path, summary={"guarantee": stated, "setting": setting})


@pytest.mark.parametrize("change", [{"epsilon": math.inf}, {"epsilon": None}, {"model": "none"}])
def test_a_guarantee_that_does_not_hold_is_stamped_non_private(tmp_path, change):
    text = with_guarantee(tmp_path, claimed_epsilon=1.0, **change)
    assert "**NON-PRIVATE**" in text
    assert "which guarantees nothing" in text
    assert "claim ε = 1.00" in text
    assert "-DP" not in text


def test_what_the_guarantee_leaves_out_is_listed(tmp_path):
    method = {**ABOUT["method"], "parameters": {"fine_tuning": 20}}
    tuned = card_of(tmp_path / "a", about={"method": method}, summary={"guarantee": GUARANTEE})
    assert "raw ratings (fine\\_tuning = 20)" in tuned
    crossings = [*ABOUT["crossings"][:1], {"step": "improve", "kind": "disclose", "to": "all", "what": "tags"}]
    text = card_of(tmp_path / "c", about={"crossings": crossings}, summary={"guarantee": GUARANTEE})
    assert "disclosed outside the guarantee: improve." in text


def test_aggregation_and_void_sums_are_on_the_card(tmp_path):
    run = RUN.format(by="user") + '\n[aggregation]\nname = "secagg"\n'
    text = card_of(tmp_path / "a", run=run, summary={"void": 57})
    assert "the coordinator sees the sum only" in text
    assert cells(text, "Void sums")[1].startswith("57")
    assert "Void sums" not in card_of(tmp_path / "b")
    assert void_sums(57, 60)[0].startswith("57 sums in 60 rounds were void because too few parties stayed")


def test_data_cannot_write_markdown(tmp_path):
    about = {
        "notes": [HOSTILE],
        "crossings": [{"step": "improve", "kind": HOSTILE, "to": HOSTILE, "what": HOSTILE}],
        "data": {**ABOUT["data"], "name": HOSTILE},
    }
    text = card_of(tmp_path, about=about, summary={"guarantee": {**GUARANTEE, "against": HOSTILE, "note": HOSTILE}})
    assert "<script>" not in text
    assert "[a](b)" not in text
    (row,) = [line for line in text.splitlines() if line.startswith("| improve")]
    assert row.replace("\\|", "").count("|") == 8


def test_who_was_absent_is_told_by_name_with_the_rounds():
    transcript = Transcript()
    transcript.record(Entry(0, 0, "pretrain", "party-1", "up", "public", 0, 1, "", "lost"))  # before round 1
    for number in range(1, 31):
        for party in ("party-1", "party-2", "party-3"):
            late = (party == "party-2" and number > 18) or (party == "party-3" and number in (3, 9))
            status = "late" if late else "ok"
            transcript.record(Entry(number, number, "improve", party, "up", "chain", 0, 1, "", status))
    assert absences(transcript, 3) == [
        "1 of 3 parties dropped out at times: party-1 before the first round.",
        "2 of 3 parties were late at times: party-2 in 12 of 30 rounds (19 to 30) and party-3 in 2 of 30 rounds "
        "(between 3 and 9).",
    ]
    assert absences(Transcript(), 3) == []


def test_of_many_absent_parties_the_most_absent_are_named():
    transcript = Transcript()
    for number in range(1, 13):
        for k in range(number, 13):
            transcript.record(Entry(number, number, "improve", f"party-{k}", "up", "chain", 0, 1, "", "lost"))
    (note,) = absences(transcript, 20)
    assert note.startswith(
        "12 of 20 parties dropped out at times: party-12 in 12 of 12 rounds (1 to 12), party-11 in 11"
    )
    assert note.endswith("and 4 others less often.")
