"""Sites' parts in a run without any service around them: their folders, an offer, and a coordinator of plain calls."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.boundary.events import Public
from tacit.boundary.ledger import Ledger
from tacit.boundary.wire import decode, encode
from tacit.config import RunFile
from tacit.data.catalogue import Catalogue
from tacit.data.ratings import Feedback, Ratings
from tacit.data.synthetic import demo
from tacit.data.vocabulary import Vocabulary
from tacit.deploy.align import align_sites, rows_content
from tacit.deploy.certificates import identity_text
from tacit.deploy.keyring import Keyring
from tacit.deploy.kit import Kit
from tacit.deploy.logs import ServiceLog
from tacit.deploy.offer import Offer, SiteSizes, facts_content, facts_of, offered_file
from tacit.deploy.policy import Policy
from tacit.deploy.service_status import Status
from tacit.deploy.site_data import Source
from tacit.deploy.site_run import Home, SiteRun
from tacit.deploy.site_service import Site
from tacit.engine.envelope import TimedRequest
from tacit.federation import Transcript
from tacit.federation.messages import Request
from tacit.partition import partition
from tacit.prepare.prepared import Keys
from tacit.prepare.run_file import setting_of

NAMES = ("party-1", "party-2", "party-3")
DATA = demo(users=48, items=16, ratings=500)
BIAS = {"name": "bias"}
CHAIN = {"name": "sgdmf", "factors": 3, "rounds": 2, "local_steps": 2, "sampling": 1.0, "fine_tuning": 1}


def run_file(**sections) -> RunFile:
    """A private run of `bias`, as a coordinator reads it."""
    base = {
        "public": {"scale": [1, 5], "users": 48},
        "partition": {"into": 3},
        "method": BIAS,
        "privacy": {"epsilon": 4.0, "delta": 1e-6},
        "engine": {"name": "flare"},
    }
    table = {**base, **sections}
    return RunFile.model_validate({name: value for name, value in table.items() if value is not None})


def offer_of(file: RunFile, roster=NAMES, items: Vocabulary | None = DATA.item_ids, run="run-1", local=False) -> Offer:
    features = file.public.features
    catalogue = None if items is None else Catalogue(items, DATA.item_attributes if features else None, features)
    return Offer(run, offered_file(file, file.public), tuple(roster), setting_of(file), catalogue, local)


def kit_of(name: str) -> Kit:
    return Kit(name, "hearts", "localhost", 8102, True, "", "", "", "0" * 64)


def write_csv(path: Path, ratings: Ratings) -> str:
    csv.write_csv(ratings.to_arrow(), path)
    return str(path)


def home_of(folder: Path, name: str = "party-1", policy: Policy | None = None, source: Source | None = None) -> Home:
    """One site with its third of the ratings; the same folder gives the same site."""
    place = folder / name
    place.mkdir(exist_ok=True)
    if source is None:
        path = place / "ratings.csv"
        if not path.exists():
            write_csv(path, next(s for s in partition(DATA, into=3) if s.name == name).ratings)
        source = Source(str(path))
    identity = Ed25519PrivateKey.from_private_bytes(name.encode().ljust(32))
    return Home(kit_of(name), place, place / "ledger", identity, source, policy or Policy())


def item_sources(folder: Path, user_of=str, has=lambda user, site: True) -> dict[str, Source]:
    """By site, a third of the items; the ids of its users, and which of them it has, can be chosen."""
    sources = {}
    for site, share in enumerate(partition(DATA, by="item", into=3)):
        table, path, items = share.ratings.to_arrow(), folder / f"{share.name}.csv", folder / f"{share.name}-items.csv"
        users = [user_of(user) for user in table["user"].to_pylist()]
        table = table.set_column(0, "user", pa.array(users)).filter(pa.array([has(user, site) for user in users]))
        csv.write_csv(table, path)
        csv.write_csv(pa.table({"item": share.ratings.item_ids.ids}), items)
        sources[share.name] = Source(str(path), items=items)
    return sources


def rows_of(home: Home) -> list:
    """The ledger's rows, once it verifies; none where there is no ledger."""
    if not home.ledger.exists():
        return []
    ledger = Ledger.open(home.ledger)
    try:
        ledger.verify()
        return ledger.rows()
    finally:
        ledger.close()


def costly(home: Home) -> list:
    return [row for row in rows_of(home) if not isinstance(row.spent, Public)]


def facts_told(offer: Offer, told: dict) -> object:
    """The facts among sites of these sizes."""
    return facts_of(offer, told, Feedback(offer.file.data.feedback))


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def keyring_of(folder: Path, **terms) -> Keyring:
    """A new federation."""
    return Keyring.make(folder, **{"federation": "hearts", "host": "localhost", "port": 8102, **terms})


def sentence(kinds, action, *args, **named) -> str:
    """The one sentence of a refusal."""
    with pytest.raises(kinds) as found:
        action(*args, **named)
    text = str(found.value)
    assert "\n" not in text
    assert text[-1] in ".?"
    return text


def service_of(folder: Path, home: Home, **options) -> Site:
    return Site(home, ServiceLog(folder, home.name), Status(folder, home.name, "hearts"), **options)


def request_of(agreed, step: str, round: int = 1, **payload) -> TimedRequest:
    return TimedRequest(Request(agreed.method.name, agreed.bound, step, round, 0, encode(payload)), 9.0)


class Sites:
    """All sites of an offer, each through `Part` alone; also an engine that asks them one after the other."""

    def __init__(self, folder: Path, offer: Offer, policy: Policy | None = None, sources: dict | None = None) -> None:
        self.offer = offer
        self.homes = {name: home_of(folder, name, policy, (sources or {}).get(name)) for name in offer.roster}
        self.parts = {name: SiteRun(home, offer.run, offer.content()) for name, home in self.homes.items()}
        self.told = {name: SiteSizes.of(part.sizes(), name) for name, part in self.parts.items()}
        self.asked: list[tuple[str, TimedRequest]] = []
        self.answers: list = []
        self.shared: dict = {}

    def align(self, path: Path, send=None) -> tuple[int, dict]:
        """Align all sites' users; the size of the common list, and each site's rows of it."""
        send = send or (lambda name, _id, content: decode(encode(self.parts[name].align(decode(encode(content))))))
        count, rows = align_sites(self.offer, {name: told.users for name, told in self.told.items()}, send, path)
        for name in self.offer.roster:
            assert send(name, "", rows_content(count, rows[name])) == {"aligned": True}
        self.told = {name: replace(told, users=count) for name, told in self.told.items()}
        return count, rows

    @property
    def begin_content(self) -> dict:
        identities = {name: identity_text(home.identity.public_key()) for name, home in self.homes.items()}
        return {**facts_content(facts_told(self.offer, self.told)), "identities": json.dumps(identities)}

    def begin(self) -> "Sites":
        self.agreed = self.offer.prepared(facts_told(self.offer, self.told))
        for part in self.parts.values():
            part.begin(self.begin_content)
        return self

    def again(self, name: str) -> SiteRun:
        """The site's service was killed: a new one in the same folder, offered and begun as before."""
        self.parts[name].leave()
        self.parts[name] = part = SiteRun(self.homes[name], self.offer.run, self.offer.content())
        part.sizes()
        part.begin(self.begin_content)
        return part

    def deliver(self, requests, _attendance) -> list:
        found = []
        for name, request in requests.items():
            ask = TimedRequest.of(TimedRequest(request, 10.0).content())
            self.asked.append((name, ask))
            found.append(self.parts[name].answer(ask))
        self.answers += found
        return found

    def conduct(self, transcript: Transcript | None = None):
        """The whole conversation; the coordinator's model. What it shared last is in `shared`."""
        keys = Keys({n: h.identity.public_key() for n, h in self.homes.items()})
        look = {"transcript": transcript, "observer": lambda _round, _rounds, shared: self.shared.update(shared)}
        self.federation = self.agreed.federation(self, keys=keys, **look)
        return self.agreed.coordinate(self.federation)

    def leave(self) -> None:
        for part in self.parts.values():
            part.leave()
