"""Files of a coordinator and of a site that cannot be decoded are named as tampering."""

import pytest
from one_site import Sites, offer_of, run_file

from tacit.deploy.align import align_sites
from tacit.deploy.deployment import _roster
from tacit.deploy.site_service import own_identity
from tacit.errors import TamperingFound


def roster(folder):
    _roster(folder)


def aligned(folder):
    align_sites(offer_of(run_file()), {}, lambda *_sent: {}, folder / "transcript" / "aligned.tct")


def signing_key(folder):
    own_identity(folder)


def run_notes(folder):
    Sites(folder, offer_of(run_file())).begin()


FILES = {
    "transcript/roster.json": roster,
    "transcript/aligned.tct": aligned,
    "identity.key": signing_key,
    "party-1/ledger/runs.json": run_notes,
}


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"{", b"5", b"null"])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_tampering(tmp_path, name, content):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    with pytest.raises(TamperingFound, match=path.name):
        FILES[name](tmp_path)
