"""Card and report of a deployed run tell all that left the sites, and nothing that is not so."""

import json
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from one_site import BIAS, CHAIN, NAMES, Sites, item_sources, offer_of, rows_of, run_file

from tacit.deploy import deployment as deployed
from tacit.deploy.coordinator_service import RunResult
from tacit.deploy.policy import Policy
from tacit.deploy.site_run import SiteRun
from tacit.evaluate.metrics import METRICS
from tacit.federation import Transcript
from tacit.report.folder import RunFolder

PUBLIC = {"scale": [1, 5], "users": 60, "ratings": 8000}
VERTICAL = {"name": "sgdmf", "factors": 2, "rounds": 2, "local_steps": 1, "sampling": 1.0}
INSECURE, SAFE = (SimpleNamespace(insecure=insecure, federation="hearts") for insecure in (True, False))


@dataclass
class Run:
    """A deployed run whose sites are here: its ledgers' bytes, and what the coordinator wrote."""

    folder: object
    ledgers: dict[str, list]
    summary: dict
    card: str
    about: dict
    report: str

    @property
    def left(self) -> int:
        """Bytes that left all sites, by their own ledgers."""
        return sum(row.size for rows in self.ledgers.values() for row in rows)

    @property
    def beside(self) -> dict[str, tuple[int, int]]:
        return {row["step"]: (row["answers"], row["bytes"]) for row in self.about["beside"]}


def policy_of(file) -> Policy:
    return Policy(shares_metrics=True, align_key=b"k" * 32, non_private=file.privacy is None)


def run_of(folder, file, *, sources=None, tellers=(), refuse=False, keyring=SAFE, void=0) -> Run:
    """One run to its end without any service: `tellers` tell their metrics, and `refuse` adds a site that refuses."""
    offer = offer_of(file)
    if refuse:  # all others have accepted a first offer with it
        first = offer_of(file, (*NAMES, "party-4"))
        for name, home in Sites(folder, offer, policy_of(file), sources).homes.items():
            assert home.name == name
            SiteRun(home, first.run, first.content()).sizes()
    sites = Sites(folder, offer, policy_of(file), sources)
    told = sites.told
    if file.partition.by == "item":
        sites.align(folder / "aligned.tct")
    sites.begin()
    transcript = Transcript()
    model, latest = sites.conduct(transcript), sites.shared
    replies = {
        name: {"ended": True, **(part.save(latest) if name in tellers else {})} for name, part in sites.parts.items()
    }
    done = RunResult(model, transcript, latest, sites.federation.rounds_done, 1.25, void, {})
    held = deployed.Finished(sites.agreed, done, told, replies, 1 + refuse)
    refused = ["party-4 did not take part: it refuses."] if refuse else []
    with RunFolder.make(folder / "run", file.method["name"], file) as made:
        summary = deployed._written(made, file, held, refused, keyring)
    sites.leave()
    read = {name: (made.path / name).read_text() for name in ("card.md", "about.json", "report.html")}
    ledgers = {name: rows_of(home) for name, home in sites.homes.items()}
    return Run(made.path, ledgers, summary, read["card.md"], json.loads(read["about.json"]), read["report.html"])


@pytest.fixture(scope="module")
def halves(tmp_path_factory):
    """Each site has a third of the items, and not all of the users."""
    return item_sources(tmp_path_factory.mktemp("tables"), has=lambda user, site: int(user[1:]) % 7 != site)


def vertical(way="psi", keep="all", **sections):
    partitioned = {"by": "item", "into": 3, "align": way, "keep": keep}
    return run_file(partition=partitioned, public=PUBLIC, **{"method": VERTICAL, **sections})


@pytest.fixture(scope="module")
def silos(tmp_path_factory) -> Run:
    """Three sites with users of their own; one tells its metrics, and a fourth had refused."""
    file = run_file(method=CHAIN, public=PUBLIC)
    return run_of(tmp_path_factory.mktemp("silos"), file, tellers=("party-1",), refuse=True)


@pytest.fixture(scope="module")
def shops(tmp_path_factory, halves) -> Run:
    """Three sites with the same users, aligned by blinding."""
    return run_of(tmp_path_factory.mktemp("shops"), vertical(), sources=halves)


def test_run_and_beside_together_are_what_the_ledgers_say_left(silos, shops):
    for run in (silos, shops):
        asked = {row.step for rows in run.ledgers.values() for row in rows if ":" in row.step}
        assert set(run.beside) == asked
        for step, told in run.beside.items():
            sizes = [row.size for rows in run.ledgers.values() for row in rows if row.step == step]
            assert told == (len(sizes), sum(sizes))
        assert run.summary["bytes_up"] + sum(size for _n, size in run.beside.values()) == run.left
        assert run.summary["bytes_up"] < run.left


def test_every_step_of_an_alignment_is_a_row_of_the_card(tmp_path, halves, shops):
    hashed = run_of(tmp_path, vertical("hashed"), sources=halves)
    for run, steps in ((shops, ("sizes", "first", "again", "rows")), (hashed, ("sizes", "tags", "rows"))):
        assert list(run.beside) == [f"{step}:roster" for step in steps]
        assert all(f"| {step}:roster (before the run) |" in run.card for step in steps)


def test_the_card_says_which_total_is_which(silos):
    for words in (
        "| Left the parties in the run |",
        "| Left them before the run | 288 bytes |",
        "| Left them after the run | ",
        "| Left them in total | ",
        "| sizes:roster (before the run) | How many users it has, once for each offer. | roster | coordinator | 6 |",
        "| metrics:own (after the run) |",
        "The digest and the bytes in the summary are of the run's own messages",
    ):
        assert words in silos.card
    assert "outside the run" in silos.report
    assert "288 bytes left them before it" in silos.report.replace("\xa0", " ")


def test_without_a_guarantee_sizes_and_items_are_told_too(tmp_path):
    run = run_of(tmp_path, run_file(privacy=None, method=BIAS), keyring=INSECURE, void=2)
    assert deployed.INSECURE in run.about["notes"]
    assert "| Void sums | 2: what left for them is charged |" in run.card
    assert "How many users it has and how many ratings." in run.card
    assert not any(run.ledgers.values())
    assert run.about["data"]["density"] == pytest.approx(run.about["data"]["ratings"] / (48 * 16))
    assert "tacit up run.toml --keys" in run.card


def test_metrics_that_were_told_are_said_to_be_outside_the_guarantee(silos, shops):
    assert "METRICS SHARED: sites also chose to report metrics, which no ε covers." in silos.card[:400]
    assert "Metrics that sites reported after the run are not covered." in silos.card
    assert 'class="stamp simulated"' in silos.report
    assert "METRICS SHARED" not in shops.card
    assert 'class="stamp holds"' in shops.report


def test_the_card_says_that_silos_predict_with_factors_of_raw_ratings(silos, tmp_path):
    assert "its raw ratings (fine\\_tuning = 1)" in silos.card
    plain = run_of(tmp_path, run_file(method={**CHAIN, "fine_tuning": 0}, public=PUBLIC))
    assert "raw ratings" not in plain.card


def test_a_vertical_card_says_that_items_are_told(silos, shops):
    words = "From the coordinator and the other sites: which items each site holds"
    assert words in shops.card
    assert "How many users it has and which items." in shops.card
    assert words not in silos.card


def test_under_a_secure_sum_users_are_not_protected_from_their_own_silo(tmp_path):
    run = run_of(tmp_path, run_file(public=PUBLIC, aggregation={"name": "secagg"}))
    assert run.summary["guarantee"]["model"] == "distributed"
    assert "Users from their own silo, which holds their ratings." in run.card
    assert run.summary["bytes_up"] + sum(size for _n, size in run.beside.values()) == run.left


def test_declared_ratings_are_said_to_be_declared_and_have_no_density(silos, shops):
    for run in (silos, shops):
        assert "users, about 8,000 ratings declared |" in run.card
        assert "about 8,000 ratings declared; feedback is explicit" in run.report
        assert "of all pairs" not in run.report
        assert "<p>The sites' own data: 48 users" in run.report.replace("&#x27;", "'").replace("&#39;", "'")


def test_ratings_that_nobody_declared_are_no_number(tmp_path):
    run = run_of(tmp_path, run_file(method=BIAS))
    assert "48 users, an uncounted number of ratings |" in run.card


def test_ratings_of_aligned_users_are_not_those_that_were_counted(tmp_path, halves):
    run = run_of(tmp_path, vertical(keep="shared", privacy=None), sources=halves)
    assert run.about["data"]["density"] is None
    assert "ratings before users were aligned |" in run.card
    assert "of all pairs" not in run.report


def test_a_vertical_party_has_its_own_users_and_not_the_common_lists(shops):
    listed = {party["name"]: party["users"] for party in shops.about["partition"]["parties"]}
    assert shops.about["data"]["users"] == 48
    assert max(listed.values()) < 48
    assert "The common list has 48 rows, the users of any site" in shops.report


def test_metrics_stand_in_their_usual_order_with_whose_they_are(silos):
    found = [name.partition("@")[0] for name in silos.summary["metrics"]]
    assert found == sorted(found, key=list(METRICS).index)
    assert found[:3] == ["mse", "rmse", "mae"]
    assert silos.summary["metrics_of"] == "1 of 3 sites"
    assert "at 1 of 3 sites</h1>" in silos.report
