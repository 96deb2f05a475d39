"""`tacit plan`: what a private run will do and cost, said before any data is touched."""

import json
import math

import pytest
from ledger_runs import RUN
from test_cli import process, refused, tacit

from tacit.boundary.account import epsilon
from tacit.boundary.events import Gaussian
from tacit.cli.plan_command import clarity
from tacit.guarantee import Relation

#: Data that is not there; all that a plan needs is declared.
ABSENT = """
[data]
source = "nowhere/ratings.csv"
[public]
users = 5000
scale = [1, 5]
catalogue = "items.csv"
[partition]
into = 4
[method]
name = "bias"
[privacy]
epsilon = 1
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "run.toml").write_text(RUN)
    (tmp_path / "absent.toml").write_text(ABSENT)
    (tmp_path / "there.toml").write_text(ABSENT.replace("nowhere/ratings.csv", "items.csv"))
    (tmp_path / "items.csv").write_text("item\n" + "\n".join(map(str, range(100))) + "\n")
    return tmp_path


def command(folder, *words, changes=()):
    answer = tacit("plan", *words, *(word for change in changes for word in ("--set", change)), cwd=folder)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def planned(folder, file="run.toml", *changes):
    return json.loads(command(folder, file, "--json", changes=changes))


def page(folder, *changes):
    return command(folder, "run.toml", changes=changes)


def test_no_data_is_touched_and_nothing_is_written(folder):
    before = sorted(folder.rglob("*"))
    answer = process("plan", "absent.toml", cwd=folder)
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr == ""
    assert "5,000 users and 100 items, declared. No rating was read." in answer.stdout
    assert sorted(folder.rglob("*")) == before
    refused(tacit("run", "absent.toml", "--quiet", cwd=folder), 3, "nowhere/ratings.csv")


def test_a_person_reads_guarantee_noise_cost_and_forecast(folder):
    text = page(folder)
    lines = text.splitlines()
    assert "(2.00, 1e-06)-DP · per user and silo · zero-out · against the coordinator and other silos" in text
    assert "SIMULATED" in text
    assert "by a factor of at most 7.39" in text
    assert "in two and at most" in text  # a person in several silos
    assert "Noise multiplier z = 2.23048" in text
    assert "In total, ε = 2.00 at δ = 1e-06" in text
    head = next(n for n, line in enumerate(lines) if line.startswith("step "))
    assert lines[head + 1].split() == ["contribute", "1", "2.23", "1", "×", "1", "everyone", "2.00", "60", "3.13"]
    assert "Noise is at most a third of the signal per cell" in text
    assert any(line.startswith("Forecast: 1 round · ") for line in lines)
    asked = next(n for n, line in enumerate(lines) if line.startswith("What changes with ε"))
    assert lines[asked + 1].split() == ["half", "as", "requested", "double"]
    assert [line.split()[0] for line in lines[asked + 2 : asked + 5]] == ["ε", "z", "signal/noise,"]
    assert "WARNING" not in text


def test_json_is_one_object_that_the_accountant_confirms(folder):
    plan = planned(folder)
    z, guarantee = plan["multiplier"], plan["guarantee"]
    assert guarantee["epsilon"] == epsilon([Gaussian(z)], 1e-6, Relation.ZERO_OUT) <= 2
    assert guarantee["epsilon"] > 1.999
    (step,) = plan["steps"]
    assert step["step"] == "contribute"
    assert step["sigma"] == z * step["sensitivity"]
    assert (step["releases"], step["answers"], step["sampling"], step["cells"]) == (1, 1, 1.0, 60)
    assert step["epsilon_of_one_answer"] == guarantee["epsilon"]
    assert (plan["rounds"], plan["parties"], plan["warnings"]) == (1, 3, [])


def test_the_plan_is_what_the_run_does(folder):
    for name, *changes in (("silos",), ("devices", "partition={by='device'}"), ("ideal", "aggregation.name=ideal")):
        plan = planned(folder, "run.toml", *changes)
        sets = [word for change in changes for word in ("--set", change)]
        answer = tacit("run", "run.toml", "--json", "--quiet", "--out", name, *sets, cwd=folder)
        summary = json.loads(answer.stdout)
        assert summary["guarantee"] == plan["guarantee"]
        assert summary["rounds"] == plan["rounds"]
        assert summary["setting"] == plan["setting"]
        ledger = json.loads(tacit("ledger", "show", name, "--json", cwd=folder).stdout)["ledgers"][0]
        event = ledger["releases"][0]["event"]
        noise = event["multiplier"] if name != "ideal" else math.sqrt(event["variance"]) / event["l2"]
        assert noise == pytest.approx(plan["multiplier"], rel=1e-12)
        assert ledger["epsilon"] == plan["guarantee"]["epsilon"]
        # bias's messages depend on the items alone, so for it the forecast is exact.
        assert {way: summary[way] for way in ("bytes_up", "bytes_down")} == plan["forecast"]


AUTO = ("method={name='auto'}", "public.features=['genres','year']")
SETTINGS = {
    "silos": (),
    "masked": ("aggregation.name=secagg", "partition.into=5"),
    "devices": ("partition={by='device'}", "aggregation.name=ideal"),
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize(
    "method",
    [
        pytest.param((), id="bias"),
        pytest.param(("method={name='als'}",), id="als without sweeps"),
        pytest.param(("method={name='als', sweeps=2}",), id="als with sweeps"),
        pytest.param(("method={name='ease', head=0}",), id="ease"),
        pytest.param(AUTO, id="auto"),
        pytest.param((*AUTO, "method.factors_share=0.3"), id="auto with factors"),
        pytest.param(("method={name='auto'}",), id="auto without features"),
    ],
)
def test_rounds_and_bytes_are_forecast_as_they_come(folder, method, setting):
    changes = (*SETTINGS[setting], *method, "evaluate={floor=false, ranking=false}")
    sets = [word for change in changes for word in ("--set", change)]
    summary = json.loads(tacit("run", "run.toml", "--json", "--quiet", "--out", "run", *sets, cwd=folder).stdout)
    plan = planned(folder, "run.toml", *changes)
    assert summary["rounds"] == plan["rounds"]
    for way, forecast in plan["forecast"].items():
        masks = 0.15 * forecast if setting == "masked" else 0  # what masks take is rounded up
        assert forecast - masks <= summary[way] <= forecast


def test_what_ease_sends_in_the_end_is_known_but_for_the_number_of_factors(folder):
    changes = ("method={name='ease', head=20}", "privacy.epsilon=50")
    sets = [word for change in changes for word in ("--set", change)]
    summary = json.loads(tacit("run", "run.toml", "--json", "--quiet", "--out", "run", *sets, cwd=folder).stdout)
    plan = planned(folder, "run.toml", *changes)
    assert (summary["rounds"], summary["bytes_up"]) == (plan["rounds"], plan["forecast"]["bytes_up"])
    factors = (summary["bytes_down"] - plan["forecast"]["bytes_down"]) / (3 * 20 * 4)  # beyond one, at three parties
    assert -1 <= round(factors) <= 19
    assert factors == pytest.approx(round(factors), abs=0.2)  # a header's own length varies


def test_half_and_double_epsilon_are_set_beside_the_one_asked_for(folder):
    plan = planned(folder)
    half, asked, double = plan["instead"]
    assert [other["epsilon"] for other in plan["instead"]] == [1, 2, 4]
    assert asked["multiplier"] == plan["multiplier"]
    assert half["multiplier"] > asked["multiplier"] > double["multiplier"]
    for other in plan["instead"]:
        assert epsilon([Gaussian(other["multiplier"])], 1e-6, Relation.ZERO_OUT) <= other["epsilon"]
        product = other["signal_to_noise"]["contribute"] * other["multiplier"]
        assert math.isclose(product, asked["signal_to_noise"]["contribute"] * asked["multiplier"])
    assert planned(folder, "run.toml", "privacy.epsilon=4")["multiplier"] == double["multiplier"]


def test_signal_to_noise_falls_with_devices_and_rises_with_sealed_sums(folder):
    silos, devices, ideal = (
        planned(folder, "run.toml", *changes)["steps"][0]["signal_to_noise"]
        for changes in ((), ("partition={by='device'}",), ("aggregation.name=ideal",))
    )
    assert devices < 1 < silos < ideal
    assert math.isclose(silos / devices, math.sqrt(200 / 3))


def test_every_signal_to_noise_ratio_gets_an_honest_sentence():
    for ratio in (0.0, 0.002, math.nan):
        assert "expect no better than bias" in clarity(ratio)
    assert "Noise is 2 × the signal per cell: only results over many cells" in clarity(0.6)
    for ratio, words in ((1, "the signal"), (2.9, "the signal"), (3, "a third"), (9.9, "a third"), (10, "a tenth")):
        assert clarity(ratio).split()[4:6] == words.split()
    assert clarity(math.inf) == clarity(10)


def test_delta_is_chosen_by_the_number_of_users_and_a_large_one_is_warned_of(folder):
    assert planned(folder, "absent.toml")["guarantee"]["delta"] == 1e-6
    assert planned(folder, "absent.toml", "public.users=1000000")["guarantee"]["delta"] == 1e-8
    assert "WARNING: delta = 0.001 is above" in page(folder, "privacy.delta=0.001")


def test_assumptions_are_stated(folder):
    notes = " ".join(planned(folder, "run.toml", "partition={by='zip'}")["notes"])
    assert "only known from the data; 10 are assumed" in notes
    assert "√3 times" in " ".join(planned(folder)["notes"])


CHAIN = ("method={name='sgdmf', rounds=3, local_steps=10}", "aggregation.name=secagg")


@pytest.mark.parametrize("parties", [3, 6])
def test_noise_that_is_each_partys_own_is_not_called_shared(folder, parties):
    words = page(folder, *CHAIN, f"partition.into={parties}")
    assert "each party adds all of the noise itself" in words
    assert f"over {parties} of them carries √{parties} times the noise of one" in words
    assert "shared:" not in words
    assert "level" not in words


def test_noise_that_is_shared_names_its_step_and_what_is_taken_out(folder):
    sealed = "aggregation.name=secagg"
    all_stay = page(folder, sealed)
    assert "All 3 parties must stay, or the round is void; c = 1 may collude." in all_stay
    assert "The noise of “contribute” is shared: each party adds enough" in all_stay
    assert "level" not in all_stay
    assert "its own" not in all_stay
    one = page(folder, sealed, "partition.into=6")
    assert "At least 5 parties must stay" in one
    assert "surplus is removed, in 1 level." in one
    assert "surplus is removed, in 5 levels." in page(folder, sealed, "partition.into=30")


@pytest.mark.parametrize("first", [(), CHAIN[:1]])
def test_a_secure_sum_that_tolerates_nobody_is_warned_of(folder, first):
    def warnings(*changes):
        return planned(folder, "run.toml", *first, "aggregation.name=secagg", *changes)["warnings"]

    (three,) = warnings()
    assert three.startswith("Secure sums among 3 parties tolerate no loss: one lost site voids every sum")
    assert "no [aggregation] tolerate is possible among so few, so add parties" in three
    too_many = ("--set", CHAIN[1], "--set", "aggregation.tolerate=0.34")
    refused(tacit("plan", "run.toml", *too_many, cwd=folder), 4, "tolerate")
    (four,) = warnings("partition.into=4", "aggregation.tolerate=0.1")
    assert "; raise [aggregation] tolerate, or add parties." in four
    assert warnings("partition.into=4") == []
    assert f"WARNING: {three}" in page(folder, *first, "aggregation.name=secagg")


@pytest.mark.parametrize(
    ("file", "change", "code", "words"),
    [
        ("run.toml", "privacy.epsilon=0", 2, ["epsilon"]),
        ("run.toml", "privacy.delta=0.005", 2, ["delta = 0.005", "1/users = 0.005"]),
        ("run.toml", "privacy.delta=0.5", 2, ["delta = 0.5", "1e-06 or less"]),
        ("run.toml", "privacy.unit=usr", 2, ["privacy.unit", "'user'", "'rating'"]),
        ("run.toml", "method={name='central'}", 4, ["central", "no guarantee", "NON-PRIVATE"]),
        ("run.toml", "privacy.accounting=paper", 4, ["paper"]),
        ("there.toml", "public={scale=[1,5], catalogue='items.csv'}", 2, ["users", "public fact"]),
        ("there.toml", "public={users=5000, catalogue='items.csv'}", 2, ["scale", "public fact"]),
        ("there.toml", "public={users=5000, scale=[1,5]}", 2, ["catalogue", "public fact"]),
        ("absent.toml", "public.catalogue=nowhere.csv", 3, ["nowhere.csv"]),
    ],
)
def test_what_cannot_be_promised_gets_one_sentence_and_its_exit_code(folder, file, change, code, words):
    for flags in ((), ("--json",)):
        refused(tacit("plan", file, "--set", change, *flags, cwd=folder), code, *words)


def test_a_run_without_privacy_has_no_plan(folder):
    (folder / "open.toml").write_text(RUN.split("[privacy]")[0])
    refused(tacit("plan", "open.toml", cwd=folder), 2, "open.toml", "[privacy]", "NON-PRIVATE")
    assert planned(folder, "open.toml", "privacy.epsilon=1")["guarantee"]["epsilon"] <= 1
    refused(tacit("plan", "nowhere.toml", cwd=folder), 2, "nowhere.toml")


def test_tables_fit_eighty_columns_however_many_steps_there_are(folder):
    text = page(folder, "method.name=auto", 'public.features=["genres", "year"]', "privacy.epsilon=4")
    tables = [line for line in text.splitlines() if line.startswith(("step ", "signal/noise, ", "means  "))]
    assert len(tables) > 4
    assert max(map(len, tables)) <= 80
    assert "…" not in text


def test_the_width_of_integers_is_said_once_for_all_steps(folder):
    text = page(folder, "method.name=auto", "privacy.epsilon=4", "aggregation.name=secagg", "partition.into=5")
    assert text.count(" are integers of ") == 1


def test_a_ranking_without_pairs_is_announced_with_what_does_better(folder):
    changes = ("method.name=auto", "data.users=200", "data.items=500")
    assert "Pairs and the vote are left out" in page(folder, *changes, "privacy.epsilon=0.1")
    assert "Pairs and the vote" not in page(folder, *changes, "privacy.epsilon=0.1", "method.objective=rating")


@pytest.mark.parametrize("method", ["als", "ease"])
def test_per_rating_a_method_that_counts_whole_users_is_warned_about(folder, method):
    text = page(folder, f"method.name={method}", "privacy.unit=rating")
    assert 'costs more than unit = "user" and protects less' in text
    assert 'costs more than unit = "user"' not in page(folder, f"method.name={method}")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["method.name=local", "aggregation.name=secagg"], "--set privacy=none --set aggregation.name=plain"),
        (
            ["method.name=auto", "partition.by=item", "aggregation.name=plain"],
            "needs parties that hold different users",
        ),
        (["partition.into=1", "aggregation.name=secagg"], "Secure sums need three parties or more; this run has one."),
        (["partition.into=2", "aggregation.name=secagg"], 'this run has two. Use [aggregation] name = "plain".'),
        (["data.source=nowhere.csv"], 'There is no file or folder "nowhere.csv"'),
        (["method.name=auto", 'public.features=["title:txt"]'], 'Did you mean "title:text"?'),
        (["privacy.epsilon=1e-6", "aggregation.name=secagg", "partition.into=5"], "epsilon = 1e-06 is too small for"),
        (["method.name=auto", "data.feedback=implicit", "method.objective=rating"], 'objective = "rating" is about'),
        (["data.source=hetrec2011-lastfm-2k"], 'feedback = "implicit"'),
    ],
)
def test_a_refusal_says_what_to_do(folder, changes, words):
    answer = tacit("plan", "run.toml", *(word for change in changes for word in ("--set", change)), cwd=folder)
    assert answer.returncode in (2, 3, 4)
    assert words in answer.stderr
