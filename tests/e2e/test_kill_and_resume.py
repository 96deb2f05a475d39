"""kill -9 at random moments of a private run, then resume: nothing lost, nothing spent twice, nothing forgotten."""

import os

import pytest
from kills import MASKED, check_resumed, kill_children

TIMES = int(os.environ.get("TACIT_KILLS", "50"))


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
#: Users' factors that move by coins of their own at a sample of users, and both blocks noised in two silos.
HORIZONTAL, VERTICAL = 'users = "together"\nsampling = 0.5', "final_steps = 1\nsampling = 1.0"


RUNS = {
    "horizontal": SGDMF.format(by="user", others=HORIZONTAL),
    "vertical": SGDMF.format(by="item", others=VERTICAL),
    "masked": MASKED,
}


@pytest.mark.parametrize("name", RUNS)
def test_a_private_sgdmf_run_killed_at_writes_and_at_moments_resumes_to_the_same_end(tmp_path, name):
    (tmp_path / "run.toml").write_text(RUNS[name])
    writes, moments = 20 * TIMES, max(1, TIMES // 4)  # with 50 kills, every point around a write
    whole, resumed, hits = kill_children(tmp_path, tmp_path / "run.toml", writes, moments, seed=7)
    assert hits >= min(writes, 40) + moments
    assert whole["guarantee"]["epsilon"] <= 4.0
    check_resumed(tmp_path, whole, resumed)
