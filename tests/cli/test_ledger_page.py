"""`tacit ledger show --html`: a page of one verified site, and nothing about a single user."""

import gc
import json
import re
import shutil
import stat
from contextlib import chdir, closing
from pathlib import Path

import pytest
from ledger_runs import RUN, edit
from test_cli import tacit

import tacit as package
from tacit.boundary.ledger import Ledger
from tacit.cli.ledger_command import show
from tacit.cli.verified_ledgers import verified
from tacit.errors import TamperingFound, UsageError

SUMS = ("partition.into=4", "aggregation.name=secagg")
CHAINS = ("partition.into=4", "method={name='sgdmf', rounds=3, factors=4}", "privacy.delta=1e-5")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two private runs: `sums` under masks, and `chains` without."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "run.toml").write_text(RUN)
    for name, changes in (("sums", SUMS), ("chains", CHAINS)):
        sets = [part for change in changes for part in ("--set", change)]
        answer = tacit("run", "run.toml", "--quiet", "--out", name, *sets, cwd=folder)
        assert answer.returncode == 0, answer.stderr
    gc.collect()  # closes the runs' logs
    return folder


@pytest.fixture
def site(made, tmp_path):
    """A copy of one site's ledger and key, away from its run."""
    for ending in ("sqlite", "key"):
        shutil.copy(made / "sums" / "ledger" / f"party-2.{ending}", tmp_path)
    return tmp_path / "party-2.sqlite"


def page_of(place: Path, target: Path, delta=None) -> str:
    show(place, delta, False, target)
    return target.read_text(encoding="utf-8")


def words(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def test_the_page_of_a_masked_run_names_recipients_and_noise(made, tmp_path, capsys):
    text = words(page_of(made / "sums/ledger/party-1.sqlite", tmp_path / "left.html"))
    (ledger,) = verified(made / "sums/ledger/party-1.sqlite")[1]
    for stated in ("masked: it sees only the sum of all", "through the coordinator", "SIMULATED", "of a budget of 2"):
        assert stated in text
    assert "if 2 honest parties stay" in text
    assert all(row.head[:12] in text for row in ledger.rows)
    assert "Wrote what left party-1" in capsys.readouterr().out
    assert stat.S_IMODE((tmp_path / "left.html").stat().st_mode) == 0o600


def test_chains_go_to_the_coordinator_at_the_runs_own_delta(made, tmp_path):
    place = made / "chains/ledger/party-3.sqlite"
    text = words(page_of(place, tmp_path / "left.html"))
    assert "ε = 2.00 at δ = 1e-05 · per user · zero-out" in text
    assert "masked" not in text
    assert "at δ = 1e-03" in words(page_of(place, tmp_path / "b.html", delta=1e-3))
    (ledger,) = json.loads(tacit("ledger", "show", place, "--json", cwd=made).stdout)["ledgers"]
    assert ({release["to"] for release in ledger["releases"]}, ledger["delta"]) == ({"the coordinator"}, 1e-5)


def test_no_user_and_no_state_is_on_the_page(made, tmp_path):
    ids = {str(user) for user in package.load("demo", users=200, items=30, ratings=2000).user_ids}
    for run in ("sums", "chains"):
        ledger = made / run / "ledger" / "party-1.sqlite"
        html = page_of(ledger, tmp_path / f"{run}.html")
        assert not set(re.findall(r"[\w-]+", html)) & ids
        with closing(Ledger.open(ledger)) as kept:
            secrets = {kept.state().hex(), ledger.with_suffix(".key").read_text().strip()}
            secrets |= {row.state for row in kept.rows()}
        assert not any(secret in html for secret in secrets)
    assert set(re.findall(r"[\w-]+", f"{html}<td>{min(ids)}</td>")) & ids  # one would be found


def test_what_was_tampered_with_gets_no_page(made, site, tmp_path):
    edit(site, "update releases set size = 1 where number = 4")
    run = Path(shutil.copytree(made / "sums", tmp_path / "run"))
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps({**summary, "guarantee": {"delta": 1e-6, "epsilon": "small"}}))
    for place, stated in ((site, "release 4 was changed"), (run / "ledger/party-1.sqlite", "guarantee is not valid")):
        with pytest.raises(TamperingFound, match=stated):
            show(place, None, False, tmp_path / "left.html")
    assert not list(tmp_path.glob("left*"))


@pytest.mark.parametrize(
    ("place", "target", "stated"),
    [
        ("sums", "left.html", 'holds 4 ledgers, and a page is about one site; name one ledger, such as "sums/ledger/p'),
        ("sums/ledger/party-1.sqlite", "party-1.sqlite", "should end in .html"),
        ("sums/ledger/party-1.sqlite", "missing/left.html", "cannot be written"),
        ("nowhere", "left.html", 'There is no "nowhere"'),
        ("open", "left.html", "NON-PRIVATE: it has no ledgers"),
    ],
)
def test_a_page_that_cannot_be_made_is_refused(made, place, target, stated):
    if place == "open":
        (made / "open.toml").write_text((made / "run.toml").read_text().partition("[privacy]")[0])
        assert tacit("run", "open.toml", "--quiet", "--out", "open", cwd=made).returncode == 0
    with chdir(made), pytest.raises(UsageError, match=re.escape(stated)):
        show(Path(place), None, False, Path(target))
    assert not list(made.glob("left*"))


def test_show_prints_to_whom_everything_went(made):
    printed = tacit("ledger", "show", "sums", cwd=made).stdout
    assert printed.count("To the coordinator, masked: it sees only the sum of all: contribute\n") == 4
    assert printed.count("To the coordinator: collect:contribute, unmask:contribute and finish\n") == 4
