"""One process a folder."""

from pathlib import Path

import pytest

from tacit.boundary.lock import exclusive
from tacit.deploy.site_service import own_identity
from tacit.errors import PeerFailed, UsageError

STATE = "the state of party-1"


def test_a_second_service_in_one_folder_is_refused(tmp_path):
    folder = tmp_path / "new" / "site"
    with exclusive(folder, STATE, "name another --state"):
        with pytest.raises(PeerFailed, match="party-1") as found, exclusive(folder, STATE, "name another --state"):
            raise AssertionError("two were let in")
        assert str(folder) in str(found.value)
        with exclusive(tmp_path / "other", STATE, "name another --state"):
            pass
    with exclusive(folder, STATE, "name another --state"):
        assert (folder / "lock").stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_service_that_fails_lets_go(tmp_path):
    with pytest.raises(ZeroDivisionError), exclusive(tmp_path, STATE, "name another --state"):
        raise ZeroDivisionError
    with exclusive(tmp_path, STATE, "name another --state"):
        pass


def test_a_lock_that_a_dead_service_left_is_no_lock(tmp_path):
    (tmp_path / "lock").write_text("")
    with exclusive(tmp_path, STATE, "name another --state"):
        assert (tmp_path / "lock").exists()


@pytest.mark.parametrize("what", ["a plain file", "below a plain file", "where nothing can be made"])
def test_a_folder_that_cannot_be_is_one_sentence(tmp_path, what):
    (tmp_path / "file").write_text("")
    places = {"a plain file": tmp_path / "file", "below a plain file": tmp_path / "file" / "x"}
    folder = places.get(what, Path("/proc/x"))
    with (
        pytest.raises(UsageError, match="name another --state") as found,
        exclusive(folder, STATE, "name another --state"),
    ):
        raise AssertionError("it was let in")
    assert str(found.value).startswith(f'The state of party-1 cannot be stored in "{folder}": ')
    with pytest.raises(UsageError, match="name another --state"):
        own_identity(folder)
