"""kill -9 at random moments of a private run, then resume: nothing lost, nothing spent twice, nothing forgotten."""

import os

from kills import check_resumed, kill_many

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

#: 8 in `make test`, 50 in `make e2e`.
TIMES = int(os.environ.get("TACIT_KILLS", "8"))


def test_a_killed_private_run_resumes_to_the_same_end(tmp_path):
    (tmp_path / "run.toml").write_text(RUN)
    whole, resumed, hits = kill_many(tmp_path, tmp_path / "run.toml", TIMES, seed=7)
    assert hits >= TIMES
    assert whole["guarantee"]["epsilon"] <= 2.0
    check_resumed(tmp_path, whole, resumed)
