"""kill -9 at random moments of a private run, then resume: nothing lost, nothing spent twice, nothing forgotten."""

import os

import pytest
from kills import check_resumed, kill_children, kill_many

RUN = """
[data]
source = "demo"
users = 300
items = 80
ratings = 6000
[partition]
into = 3
[method]
name = "bias"
[privacy]
epsilon = 2.0
delta = 1e-6
"""

#: 4 in `make test`, 50 in `make e2e`.
TIMES = int(os.environ.get("TACIT_KILLS", "4"))


def test_a_killed_private_run_resumes_to_the_same_end(tmp_path):
    (tmp_path / "run.toml").write_text(RUN)
    whole, resumed, hits = kill_many(tmp_path, tmp_path / "run.toml", TIMES, seed=7)
    assert hits >= TIMES
    assert whole["guarantee"]["epsilon"] <= 2.0
    check_resumed(tmp_path, whole, resumed)


SGDMF = """
[data]
source = "demo"
users = 40
items = 15
ratings = 400
[partition]
by = "{by}"
into = 2
[method]
name = "sgdmf"
factors = 3
rounds = 2
local_steps = 2
{others}
[privacy]
epsilon = 4.0
delta = 1e-6
"""
#: Sums of which nobody sees a single contribution: keys and shares are written down between the exchanges.
MASKED = """
[data]
source = "demo"
users = 40
items = 15
ratings = 400
[partition]
into = 4
[method]
name = "sgdmf"
factors = 3
rounds = 2
local_steps = 1
sampling = 1.0
[privacy]
epsilon = 4.0
delta = 1e-6
[aggregation]
name = "secagg"
"""
#: Users' factors that move by coins of their own at a sample of users, and both blocks noised in two silos.
HORIZONTAL, VERTICAL = 'users = "together"\nsampling = 0.5', "final_steps = 1\nsampling = 1.0"


RUNS = {
    "horizontal": SGDMF.format(by="user", others=HORIZONTAL),
    "vertical": SGDMF.format(by="item", others=VERTICAL),
    "masked": MASKED,
}


@pytest.mark.parametrize("name", RUNS)
def test_a_private_sgdmf_run_killed_at_writes_and_at_moments_resumes_to_the_same_end(tmp_path, name):
    """Four points around writes and one moment in `make test`; every point and 12 moments in `make e2e`."""
    (tmp_path / "run.toml").write_text(RUNS[name])
    writes, moments = (4, 1) if TIMES < 50 else (1_000, TIMES // 4)
    whole, resumed, hits = kill_children(tmp_path, tmp_path / "run.toml", writes, moments, seed=7)
    assert hits >= min(writes, 40) + moments
    assert whole["guarantee"]["epsilon"] <= 4.0
    check_resumed(tmp_path, whole, resumed)
