"""A new ledger's key: whoever opens the ledger, at whatever moment, there is one key and it stays."""

import os
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Barrier

from tacit.boundary import sealed_database


def test_a_second_opener_at_the_worst_moment_gets_the_first_ones_key(tmp_path, monkeypatch):
    """The second comes when the first has found no key, and before it has put its own there."""
    path, second, replace = tmp_path / "party-1.sqlite", [], os.replace

    def late(source, target):
        monkeypatch.setattr(os, "replace", replace)
        second.append(pool.submit(sealed_database.key_of, path, True))
        wait(second, timeout=0.2)  # one that waits for nobody is done by then
        replace(source, target)

    monkeypatch.setattr(os, "replace", late)
    with ThreadPoolExecutor(1) as pool:
        first = sealed_database.key_of(path, True)
        assert second[0].result(30) == first
        assert len(first) == 32
    assert sealed_database.key_of(path, False) == first


def test_many_that_begin_a_ledger_together_have_one_key(tmp_path):
    def begin(_which):
        barrier.wait(30)
        return sealed_database.key_of(path, True)

    with ThreadPoolExecutor(4) as pool:
        for k in range(50):
            path, barrier = tmp_path / f"party-{k}.sqlite", Barrier(4)
            keys = set(pool.map(begin, range(4)))
            assert keys == {bytes.fromhex(path.with_suffix(".key").read_text())}
    assert not list(tmp_path.glob("*.part"))


def test_half_a_key_that_a_kill_left_is_not_the_key(tmp_path):
    (tmp_path / "party-1.key.part").write_text("abc" * 40)
    assert len(sealed_database.key_of(tmp_path / "party-1.sqlite", True)) == 32
