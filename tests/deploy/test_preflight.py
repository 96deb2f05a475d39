"""What is looked at before joining, in its order, and whom a site takes for its coordinator, over real TLS."""

import socket
import ssl
import threading
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from unittest.mock import Mock

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from one_site import DATA, Sites, home_of, keyring_of, offer_of, rows_of, run_file

from tacit.deploy import certificates as made
from tacit.deploy import preflight as module
from tacit.deploy.keyring import Keyring
from tacit.deploy.policy import Policy
from tacit.deploy.preflight import NotThere, check_connection, preflight, wait_until_reachable
from tacit.deploy.site_data import Source
from tacit.errors import DataError, PeerFailed, PrivacyRefused, UsageError

OFFER, SIGNED = offer_of(run_file()), offer_of(run_file(aggregation={"name": "secagg", "signed": True}))
ALL = ["kit and certificate", "connection", "coordinator, versions and clocks", "this site's rules", "data", "privacy"]


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    folder = tmp_path_factory.mktemp("preflight") / "keys"
    return keyring_of(folder).invite("party-1")


@pytest.fixture
def there(monkeypatch):
    """A coordinator that offers; what it offers can be changed."""
    offered = {"offer": OFFER}
    monkeypatch.setattr(module, "check_connection", lambda kit, wait: "TLS")
    monkeypatch.setattr(module, "fetch_offer", lambda kit, state, wait: ("it is there", offered["offer"]))
    return offered


@pytest.fixture
def away(monkeypatch):
    def nobody(_kit, _wait):
        raise NotThere("There is no coordinator.")

    monkeypatch.setattr(module, "check_connection", nobody)


def look(kit, tmp_path, policy=None, source=None):
    home = home_of(tmp_path)
    return preflight(kit, home.folder, source or home.data, policy or Policy()), home


def failed(findings) -> dict[str, type]:
    return {finding.what: type(finding.error) for finding in findings if finding.error is not None}


def test_everything_is_looked_at_in_order_and_nothing_is_left_behind(kit, tmp_path, there):
    findings, home = look(kit, tmp_path)
    assert [finding.what for finding in findings] == ALL
    assert failed(findings) == {}
    assert findings[3].found == "the offered run satisfies them (bias, 3 parties)"
    assert "16 users" in findings[4].found
    assert "(4.00, 1e-06)-DP" in findings[5].found
    assert "1 × contribute" in findings[5].found
    assert not home.ledger.exists()
    assert {path.name for path in home.folder.iterdir()} <= {"ratings.csv", "items.parquet"}


def test_the_data_is_read_where_no_run_is_known(kit, tmp_path, away):
    source = home_of(tmp_path).data
    findings, home = look(kit, tmp_path)
    assert [finding.what for finding in findings] == [*ALL[:2], "data"]  # the rest would need a run
    assert not home.ledger.exists()
    found = findings[-1].found
    assert f"16 users × {source.ratings.n_items} items, {source.ratings.n_ratings} ratings on 1…5" in found
    assert "once a run is offered, or with --run" in found
    (tmp_path / "items.csv").write_text("item\n1\n2\n3\n")
    listing = replace(source, items=tmp_path / "items.csv")
    assert "3 items in the file of --items" in look(kit, tmp_path, source=listing)[0][-1].found
    bad = tmp_path / "bad.csv"
    bad.write_text("user,item,rating\n1,2,four\n")
    assert failed(look(kit, tmp_path, source=Source(str(bad)))[0]) == {"connection": NotThere, "data": DataError}


def test_with_a_run_file_of_its_own_a_site_can_look_before_the_coordinator_is_there(kit, tmp_path, away):
    (tmp_path / "items.csv").write_text("item\n" + "\n".join(map(str, DATA.item_ids.ids)) + "\n")
    catalogue = {"scale": [1, 5], "users": 48, "catalogue": str(tmp_path / "items.csv")}
    findings, home = look(kit, tmp_path, Policy(file=run_file(public=catalogue)))
    assert [finding.what for finding in findings] == [*ALL[:2], "run file", *ALL[3:]]
    assert findings[3].found.startswith("the run file satisfies them")
    assert failed(findings) == {"connection": NotThere}
    assert not home.ledger.exists()
    findings, _home = look(kit, tmp_path, Policy(file=run_file(engine={"seeded": True}, public=catalogue)))
    assert failed(findings) == {"connection": NotThere, "run file": PrivacyRefused}


@pytest.mark.parametrize(
    ("offer", "policy", "what", "kind"),
    [
        (offer_of(run_file(engine={"name": "flare", "seeded": True})), Policy(), "this site's rules", PrivacyRefused),
        (offer_of(run_file(privacy=None)), Policy(), "this site's rules", PrivacyRefused),
        (replace(OFFER, roster=("party-2",)), Policy(), "this site's rules", UsageError),
        (offer_of(run_file(public={"scale": [1, 2], "users": 48})), Policy(), "data", DataError),
        (OFFER, Policy(peers={"party-2": "2" * 64}), "this site's rules", PrivacyRefused),
        (SIGNED, Policy(peers={"party-3": "3" * 64}), "this site's rules", PrivacyRefused),
        (OFFER, Policy(max_epsilon=1.0), "privacy", PrivacyRefused),
        (OFFER, Policy(delta=1e-9), "privacy", PrivacyRefused),
    ],
)
def test_what_will_not_do_is_found(kit, tmp_path, there, offer, policy, what, kind):
    there["offer"] = offer
    findings, home = look(kit, tmp_path, policy)
    found = next(finding for finding in findings if finding.what == what)
    assert isinstance(found.error, kind)
    assert found.found == str(found.error)
    assert not home.ledger.exists()


def test_what_the_ledger_holds_already_counts_and_is_not_touched(kit, tmp_path, there):
    sites = Sites(tmp_path, OFFER).begin()
    sites.conduct()
    sites.leave()
    before = rows_of(sites.homes["party-1"])
    there["offer"] = replace(OFFER, run="run-2")
    findings, home = look(kit, tmp_path)
    assert set(failed(findings)) == {"privacy"}
    assert rows_of(home) == before


def test_a_kit_that_is_no_good_is_found(kit, tmp_path, there):
    findings, _home = look(replace(kit, name="party-2"), tmp_path)
    assert failed(findings) == {"kit and certificate": PeerFailed}


def test_ratings_that_do_not_fit_are_named_with_what_a_join_would_do(kit, tmp_path, there):
    listed = DATA.item_ids.ids[0]
    path = tmp_path / "odd.csv"

    def said(*rows):
        path.write_text("user,item,rating\n" + "".join(f"{row}\n" for row in (f"1,{listed},3", *rows)))
        findings, _home = look(kit, tmp_path, source=Source(str(path)))
        assert failed(findings) == {"data": DataError}
        assert findings[-1].error.exit_code == 3
        assert findings[-1].found.endswith(" A join goes on all the same, and reports it at this site only.")
        return findings[-1].found

    items = said("1,9999,3", "2,9999,4")
    assert "Left out: 2 of 3 ratings, since their items are not on the run's list of items (9999);" in items
    assert "[public] catalogue" in items
    assert "scale" not in items
    scale = said(f"2,{listed},7.5")
    assert f"1 of 2 ratings, since they are outside the run's scale 1…5 (such as 7.5 for item {listed}" in scale
    assert "[public] scale" in scale
    assert "catalogue" not in scale
    both = said("2,9999,9", f"3,{listed},-1")
    assert "Left out: 1 of 3 ratings" in both
    assert "Clipped: 1 of 3 ratings, since they are outside the run's scale 1…5 (such as -1 for" in both


@pytest.mark.parametrize(("parties", "warned"), [(3, True), (4, False)])
def test_a_secure_sum_that_tolerates_nobody_is_warned_of(kit, tmp_path, there, parties, warned):
    roster = [f"party-{k}" for k in range(1, parties + 1)]
    there["offer"] = offer_of(run_file(aggregation={"name": "secagg"}, partition={"into": parties}), roster)
    findings, _home = look(kit, tmp_path)
    assert failed(findings) == {}
    assert ("WARNING: Secure sums among 3 parties tolerate no loss: one lost site" in findings[5].found) is warned


def test_keys_without_encryption_are_called_so(kit, tmp_path, there):
    findings, _home = look(replace(kit, insecure=True), tmp_path)
    assert "INSECURE" in findings[1].found


def test_a_coordinator_that_may_come_is_waited_for_and_a_bad_certificate_is_not(kit, monkeypatch):
    clock, absent = iter(range(100)), NotThere("There is no coordinator.")
    monkeypatch.setattr(module.time, "sleep", lambda _seconds: None)
    monkeypatch.setattr(module, "monotonic", lambda: next(clock))
    looks = Mock()
    monkeypatch.setattr(module, "check_connection", looks)
    looks.side_effect = [absent, absent, "TLS"]
    wait_until_reachable(kit, 60.0)
    assert looks.call_count == 3
    looks.side_effect = absent
    with pytest.raises(NotThere):
        wait_until_reachable(kit, 5.0)
    looks.reset_mock()
    looks.side_effect = PeerFailed("The certificate is not good.")
    with pytest.raises(PeerFailed, match="not good"):
        wait_until_reachable(kit, 60.0)
    assert looks.call_count == 1


@pytest.fixture(scope="module")
def keyring(tmp_path_factory) -> Keyring:
    return keyring_of(tmp_path_factory.mktemp("reach") / "keys")


@contextmanager
def listening(ca, certificate, key):
    """A server with this certificate that lets in whom the authority vouches for; the port that it listens at."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(ca)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["h2"])

    def serve():
        try:
            visitor, _address = server.accept()
            with visitor, context.wrap_socket(visitor, server_side=True) as line:
                line.send(b"\0")
        except OSError:  # whoever came did not stay
            pass

    with socket.create_server(("localhost", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
    thread.join(10)


def coordinators(keyring, _folder):
    return keyring.folder / "coordinator.crt", keyring.folder / "coordinator.key"


def expired(keyring, folder, days=-1):
    """What a coordinator of this federation would have once its own time is over."""
    ca, ca_key = (keyring.folder / name for name in ("ca.pem", "ca.key"))
    key, begin = made.new_key(), made.now() + timedelta(days=days - 1)
    with pytest.MonkeyPatch.context() as then:
        then.setattr(made, "now", lambda: begin)
        certificate = made._signed(
            "coordinator",
            x509.DNSName("localhost"),
            (ExtendedKeyUsageOID.SERVER_AUTH,),
            key,
            made.read_certificate(ca.read_text()),
            made.read_key(ca_key.read_text()),
            begin + timedelta(days=1),
        )
    return written(folder, made.certificate_text(certificate), made.key_text(key))


def not_yet(keyring, folder):
    return expired(keyring, folder, days=3)


def another_sites(keyring, folder):
    """Another site's: of this federation, but for a client."""
    kit = keyring.invite("party-2")
    paths = kit.unpack(folder / "tls")
    return paths.certificate, paths.key


def another_federations(_keyring, folder):
    return coordinators(keyring_of(folder / "keys"), folder)


def written(folder, certificate, key):
    (folder / "c.crt").write_text(certificate)
    (folder / "c.key").write_text(key)
    return folder / "c.crt", folder / "c.key"


def test_the_coordinator_itself_is_reached(keyring, tmp_path):
    kit = keyring.invite("party-1")
    with listening(keyring.folder / "ca.pem", *coordinators(keyring, tmp_path)) as port:
        assert "both certificates are valid" in check_connection(replace(kit, port=port), 10.0)


@pytest.mark.parametrize(
    ("whose", "why"),
    [
        (expired, "certificate has expired"),
        (not_yet, "certificate is not yet valid"),
        (another_sites, "unsuitable certificate purpose"),
        (another_federations, "certificate"),
    ],
)
def test_nobody_else_is_taken_for_it(keyring, tmp_path, whose, why):
    kit = keyring.invite("party-1")
    with (
        listening(keyring.folder / "ca.pem", *whose(keyring, tmp_path)) as port,
        pytest.raises(PeerFailed, match=f"is not valid: .*{why}.*check this machine's clock") as refusal,
    ):
        check_connection(replace(kit, port=port), 10.0)
    assert not isinstance(refusal.value, NotThere)  # it is not waited for: a certificate does not mend


def test_a_kit_that_the_coordinator_does_not_know_is_told_so(keyring, tmp_path):
    stranger = keyring_of(tmp_path / "other").invite("party-1")
    kit = replace(stranger, ca=(keyring.folder / "ca.pem").read_text())
    with (
        listening(keyring.folder / "ca.pem", *coordinators(keyring, tmp_path)) as port,
        pytest.raises(PeerFailed, match="refuses this kit's certificate"),
    ):
        check_connection(replace(kit, port=port), 10.0)


def test_nobody_at_all_may_still_come(keyring):
    kit = keyring.invite("party-1")
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(NotThere, match="There is no coordinator"):
        check_connection(replace(kit, port=port), 2.0)
