"""Files of a coordinator and of a site that cannot be decoded are named as tampering."""

import pytest
from one_site import Sites, offer_of, run_file

from tacit.deploy.align import align_sites
from tacit.deploy.deployment import _roster
from tacit.deploy.site_service import own_identity
from tacit.errors import TamperingFound

DAMAGED = [b"", b"\xff\xfe\x00", b"{", b"5", b"null"]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_roster_is_tampering(tmp_path, content):
    (tmp_path / "transcript").mkdir()
    (tmp_path / "transcript" / "roster.json").write_bytes(content)
    with pytest.raises(TamperingFound, match=r"roster\.json"):
        _roster(tmp_path)


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_common_list_is_tampering(tmp_path, content):
    (tmp_path / "aligned.tct").write_bytes(content)
    with pytest.raises(TamperingFound, match=r"aligned\.tct"):
        align_sites(offer_of(run_file()), {}, lambda *said: {}, tmp_path / "aligned.tct")


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_signing_key_is_tampering(tmp_path, content):
    (tmp_path / "identity.key").write_bytes(content)
    with pytest.raises(TamperingFound, match=r"identity\.key"):
        own_identity(tmp_path)


@pytest.mark.parametrize("content", DAMAGED)
def test_damaged_notes_about_runs_are_tampering(tmp_path, content):
    sites = Sites(tmp_path, offer_of(run_file()))
    (sites.homes["party-1"].ledgers / "runs.json").write_bytes(content)
    with pytest.raises(TamperingFound, match=r"runs\.json"):
        sites.begin()
    sites.leave()
