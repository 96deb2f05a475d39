"""The terms of a deployed run: the coordinator's offer, the sites' sizes, and the facts that all agree on.

An offer is a run file without its data, the roster, and the public catalogue of items. Each side computes method, plan
and guarantee from it with its own code, so no site's protection depends on the coordinator's computation.

The catalogue's ids and labels are JSON and its numbers float32, so that a forged offer meets no decoder but the wire's
and JSON's. The memory that it takes is bounded by its size, and features by `MOST_CELLS`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from tacit import config
from tacit.boundary.wire import Array, Value, reading
from tacit.config import DataSection, EngineSection, PublicSection, RunFile
from tacit.data.catalogue import LABELS, NUMBERS, Catalogue, id_bytes
from tacit.data.public_facts import TYPICAL_RATINGS, PublicFacts
from tacit.data.ratings import Feedback, Scale
from tacit.data.vocabulary import Vocabulary, as_ids
from tacit.engine.cells import COORDINATOR
from tacit.errors import BadMessage, DataError, PrivacyRefused, UsageError
from tacit.federation import Facts
from tacit.federation.facts import Member
from tacit.federation.role import ROLE
from tacit.partition import Setting
from tacit.prepare.plan import Plan
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.run_file import method_of, plan, prepared

#: The name of a run, which also names files.
_RUN = re.compile("[A-Za-z0-9_-]{1,64}")
_PARTY = re.compile("party-[1-9][0-9]{0,8}")


@dataclass(frozen=True, eq=False)
class Offer:
    """What the coordinator offers to sites.

    Attributes
    ----------
    run : the run's name
    file : the run file, without the place of its data
    roster : the parties, in order
    setting : horizontal, vertical or device
    catalogue : the public list of items, with the attributes of [public] features; None for the union of the sites'
        items, without privacy only
    local : whether all sites are processes of one experimenter
    roles : further participants of the run: a catalogue, decrypters, a proxy
    """

    run: str
    file: RunFile
    roster: tuple[str, ...]
    setting: Setting
    catalogue: Catalogue | None
    local: bool = False
    roles: tuple[str, ...] = ()

    @property
    def everybody(self) -> tuple[str, ...]:
        """The parties, and other roles after them."""
        return (*self.roster, *self.roles)

    @property
    def items(self) -> Vocabulary | None:
        return None if self.catalogue is None else self.catalogue.ids

    def content(self) -> dict[str, Value]:
        things = {} if self.catalogue is None else catalogue_content(self.catalogue)
        place: dict[str, Value] = {"roster": json.dumps(self.roster), "setting": str(self.setting), "local": self.local}
        return {"file": self.file.to_toml(), "roles": json.dumps(self.roles), **place, **things}

    @classmethod
    def of(cls, run: str, content: Mapping[str, Any]) -> Self:
        """The offer in a message; raises BadMessage where it is not one."""
        if not _RUN.fullmatch(run):
            raise BadMessage("The coordinator's offer has an invalid run name; it was damaged or forged.")
        try:
            with reading(COORDINATOR):
                file = config.checked(RunFile, config.toml_table(str(content["file"])), "the offered run file")
                roster, roles = (tuple(str(n) for n in json.loads(content[word])) for word in ("roster", "roles"))
                catalogue = read_catalogue_content(content, file.public.features)
                setting, local = Setting(str(content["setting"])), content["local"] is True
        except (UsageError, DataError) as error:
            raise BadMessage(f"The coordinator's offer cannot be read: {str(error).rstrip('.')}.") from None
        if not all(_PARTY.fullmatch(name) for name in roster):
            raise BadMessage("The coordinator's offer has an invalid party name; it was damaged or forged.")
        if len(set(roster)) != len(roster):
            raise BadMessage("The coordinator's offer names a party twice, which would count its noise twice.")
        if not all(ROLE.fullmatch(name) for name in roles) or len(set(roles)) != len(roles):
            raise BadMessage("The coordinator's offer has an invalid role, or one twice; it was damaged or forged.")
        return cls(run, file, roster, setting, catalogue, local, roles)

    @property
    def hash(self) -> str:
        """SHA-256 of these terms."""
        things = None if self.catalogue is None else self.catalogue.digest
        words = json.dumps([self.run, self.roster, self.roles, self.setting, self.local, self.file.to_toml(), things])
        return hashlib.sha256(words.encode()).hexdigest()

    def public(self, items: int) -> PublicFacts:
        """The public facts for a plan."""
        public = self.file.public
        if public.scale is None or public.users is None:
            raise UsageError("A deployed run declares [public] scale and users; ask the coordinator to add them.")
        ratings = public.ratings or public.users * min(TYPICAL_RATINGS, items)
        width = 0 if self.catalogue is None else self.catalogue.width
        return PublicFacts(public.users, items, Scale(*public.scale), ratings, width, Feedback(self.file.data.feedback))

    def planned(self, items: int, parties: int) -> Plan | None:
        """The plan among so many parties, before their sizes are known; None for NON-PRIVATE.

        Raises where the guarantee is impossible.
        """
        method, parameters = method_of(self.file)
        if self.file.privacy is None:
            return None
        made = plan(self.file, method, parameters, self.setting, parties, self.public(items))
        made.check_budget(self.file.privacy)
        return made

    def prepared(self, facts: Facts) -> PreparedRun:
        """The run over these facts; raises where its guarantee is impossible."""
        public = None if self.file.privacy is None else self.public(facts.items)
        made = prepared(self.file, facts, public, self.run)
        if tuple(made.roles) != self.roles:
            raise BadMessage(
                f"The run was offered with the roles {', '.join(self.roles) or 'none'}, and the code installed here "
                f"needs {', '.join(made.roles) or 'none'}; compare versions."
            )
        return made


def offered_file(file: RunFile, public: PublicSection) -> RunFile:
    """A run file as sites get it, without the places of the coordinator's own data and ledgers."""
    data = DataSection(feedback=file.data.feedback, duplicates=file.data.duplicates)
    privacy = None if file.privacy is None else file.privacy.model_copy(update={"ledger": None})
    engine = EngineSection(name="flare", seeded=file.engine.seeded, timeout=file.engine.timeout)
    changes = {"data": data, "public": public, "privacy": privacy, "engine": engine}
    return file.model_copy(update=changes)


@dataclass(frozen=True, eq=False)
class SiteSizes:
    """What a site sends when it accepts: sizes that are public by the guarantee's relation.

    `items` are those that it holds, in the vertical setting or without a public list. `ratings` is 0 with privacy.
    """

    users: int
    items: Vocabulary | None
    ratings: int = 0
    devices: int = 0

    def content(self) -> dict[str, Value]:
        ids = {} if self.items is None else {"items": ids_array(self.items)}
        return {"users": self.users, "ratings": self.ratings, "devices": self.devices, **ids}

    @classmethod
    def of(cls, content: Mapping[str, Any], name: str) -> Self:
        numbers = [content.get(word) for word in ("users", "ratings", "devices")]
        if not all(type(number) is int and 0 <= number < 2**31 for number in numbers) or numbers[0] == 0:
            raise BadMessage(f"{name} sent sizes that are not valid.")
        with reading(name):
            items = read_ids(content["items"]) if "items" in content else None
        return cls(int(content["users"]), items, int(content["ratings"]), int(content["devices"]))


def facts_of(offer: Offer, sizes: Mapping[str, SiteSizes], feedback: Feedback) -> Facts:
    """The public facts of a run among those that accepted, in the offer's order."""
    catalogue = offer.catalogue or Catalogue(union([member.items for member in sizes.values()]))
    items = catalogue.ids
    vertical, public = offer.setting is Setting.VERTICAL, offer.file.public
    roster = []
    for name in offer.roster:
        held = sizes[name].items or items if vertical else items
        columns = items.rows(held.ids)
        if np.any(columns < 0):
            raise BadMessage(f"{name} holds items that are not on the public list of items.")
        roster.append(Member(name, sizes[name].users, len(held), columns, sizes[name].devices))
    if public.scale is None:
        raise UsageError("A deployed run declares [public] scale.")
    return Facts(
        setting=offer.setting,
        scale=Scale(*public.scale),
        feedback=feedback,
        users=roster[0].users if vertical else sum(member.users for member in roster),
        catalogue=catalogue,
        ratings=sum(member.ratings for member in sizes.values()),
        roster=tuple(roster),
        seed=offer.file.seed,
    )


def facts_among(offer: Offer, sizes: Mapping[str, SiteSizes]) -> Facts:
    """The facts of a run among those that accepted; refuses more users than the run declares."""
    facts = facts_of(offer, sizes, Feedback(offer.file.data.feedback))
    declared = offer.file.public.users
    if declared is not None and facts.users > declared:
        raise PrivacyRefused(
            f"The sites have {facts.users:,} users together, and [public] users declares {declared:,}; declare at "
            "least as many, and plan again."
        )
    return facts


def facts_content(facts: Facts) -> dict[str, Value]:
    """The facts of a run as a message; columns are in it only where they differ between parties.

    Of the items' attributes, which the offer has, it has only the digest.
    """
    members = [[m.name, m.users, m.items, m.devices] for m in facts.roster]
    columns = {f"columns/{m.name}": m.columns.astype(np.int32) for m in facts.roster if len(m.columns) < facts.items}
    scale = [facts.scale.low, facts.scale.high]
    words: dict[str, Value] = {
        "feedback": str(facts.feedback),
        "ratings": facts.ratings,
        "users": facts.users,
        "roster": json.dumps(members),
        "scale": json.dumps(scale),
        "items": ids_array(facts.item_ids),
        "catalogue": facts.catalogue.digest,
    }
    return {**words, **columns}


@reading(COORDINATOR)
def read_facts(offer: Offer, content: Mapping[str, Any]) -> Facts:
    """The facts in a message; raises BadMessage where they differ from the accepted offer."""
    members, (low, high) = json.loads(content["roster"]), json.loads(content["scale"])
    items, feedback = read_ids(content["items"]), Feedback(str(content["feedback"]))
    every = np.arange(len(items), dtype=np.int64)
    roster = tuple(
        Member(str(name), _size(users), _size(held), _columns(content, name, every), _size(devices))
        for name, users, held, devices in members
    )
    users, ratings = _size(content["users"]), _size(content["ratings"], config.MOST_RATINGS)
    listed = tuple(member.name for member in roster)
    declared = offer.file.public.scale
    if listed != offer.roster or (offer.items is not None and items != offer.items):
        raise BadMessage("The run that begins is not the one that was offered: other parties or other items.")
    catalogue = offer.catalogue or Catalogue(items)
    if content["catalogue"] != catalogue.digest:
        raise BadMessage("The run that begins is not the one that was offered: the items have other attributes.")
    if not -1e12 <= low < high <= 1e12 or declared not in (None, (low, high)):
        raise BadMessage("The run that begins is not the one that was offered: another scale.")
    if feedback != offer.file.data.feedback:
        raise BadMessage("The run that begins is not the one that was offered: another kind of feedback.")
    together = {m.users for m in roster} if offer.setting is Setting.VERTICAL else {sum(m.users for m in roster)}
    if together != {users} or not all(_possible(member, offer, len(items)) for member in roster):
        raise BadMessage("The coordinator's list of the parties has inconsistent sizes.")
    return Facts(offer.setting, Scale(low, high), feedback, users, catalogue, ratings, roster, offer.file.seed)


def _size(number: object, most: int = config.MOST_USERS) -> int:
    if type(number) is not int or not 0 <= number <= most:
        raise BadMessage("The coordinator's list of the parties has an invalid size; it was damaged or forged.")
    return number


def _possible(member: Member, offer: Offer, items: int) -> bool:
    """Whether a party can have these sizes; only an experiment, or a run without privacy and masks, has cohorts.

    A cohort runs no protocol: if sites believed in one, every contribution would leave unmasked.
    """
    bare = offer.file.privacy is None and offer.file.aggregation.name == "plain"
    most = member.users if offer.local or bare else 1
    devices = 0 <= member.devices <= (most if offer.setting is Setting.DEVICE else 0)
    return member.users > 0 and devices and member.items == len(member.columns) and member.columns[-1] < items


def _columns(content: Mapping[str, Any], name: object, every: Array) -> Array:
    sent = content.get(f"columns/{name}")
    if sent is None:
        return every
    columns: Array = np.asarray(sent, dtype=np.int64)
    if columns.ndim != 1 or np.any(np.diff(columns) <= 0) or not len(columns) or columns[0] < 0:
        raise BadMessage("The coordinator's list of a party's items is invalid; it was damaged or forged.")
    return columns


def union(lists: Sequence[Vocabulary | None]) -> Vocabulary:
    """Every item of any site: without privacy only, since it reveals that somebody rated it."""
    ids = [held.ids for held in lists if held is not None]
    if not ids:
        raise UsageError("There is no public list of items, and no site sent its own; name one in [public] catalogue.")
    return Vocabulary.of(np.concatenate(ids), "item")


#: The keys of the ids and of the columns, by number, in a message.
IDS, COLUMN = "items", "features/{}"


def catalogue_content(catalogue: Catalogue) -> dict[str, Value]:
    """The catalogue as part of a message; the run file has the names of its columns."""
    content: dict[str, Value] = {IDS: ids_array(catalogue.ids)}
    for place, name in enumerate(catalogue.columns):
        numeric = catalogue.attributes is not None and catalogue.attributes.schema.field(name).type == NUMBERS
        dtype = np.float32 if numeric else np.uint8
        content[COLUMN.format(place)] = np.frombuffer(catalogue.column_bytes(name), dtype=dtype)
    return content


def read_catalogue_content(content: Mapping[str, Any], columns: tuple[str, ...]) -> Catalogue | None:
    """The catalogue in a message, None if there is none; columns that are not in canonical form are refused."""
    if IDS not in content:
        if columns:
            raise BadMessage("A run uses attributes of items, and its offer has no list of items.")
        return None
    ids = read_ids(content[IDS])
    if not columns:
        return Catalogue(ids)
    sent = {name: content[COLUMN.format(place)] for place, name in enumerate(columns)}
    found = Catalogue(ids, pa.table({name: _column(raw, len(ids)) for name, raw in sent.items()}), columns)
    if any(found.column_bytes(name) != raw.tobytes() for name, raw in sent.items()):
        raise BadMessage("The items' attributes are not in canonical form; they were damaged or forged.")
    return found


def ids_array(ids: Vocabulary) -> Array:
    """A list of ids as JSON bytes, which keep text and numbers apart."""
    return np.frombuffer(id_bytes(ids), dtype=np.uint8)


def read_ids(raw: object) -> Vocabulary:
    """The list of ids in a message."""
    found = _json(raw, "A list of items")
    if not isinstance(found, list) or not all(isinstance(id, (int, str)) and not isinstance(id, bool) for id in found):
        raise BadMessage("A list of items holds an invalid id; it was damaged or forged.")
    ids = as_ids(found)
    if len(ids) == 0 or np.any(ids[1:] <= ids[:-1]):
        raise BadMessage("A list of items is empty, or not in order; it was damaged or forged.")
    return Vocabulary(ids, "item")


def _column(raw: object, items: int) -> pa.Array:
    if isinstance(raw, np.ndarray) and raw.dtype == np.float32:
        if raw.shape != (items,) or np.isinf(raw).any():
            raise BadMessage(f"A column of the items' attributes is not {items:,} numbers; it was damaged or forged.")
        return pa.array(raw, NUMBERS, mask=np.isnan(raw))
    found = _json(raw, "A column of the items' attributes")
    if not isinstance(found, list) or len(found) != items or not all(map(_are_labels, found)):
        raise BadMessage(f"A column of the items' attributes is not {items:,} lists of text; it was damaged or forged.")
    return pa.array(found, LABELS)


def _are_labels(row: object) -> bool:
    return isinstance(row, list) and all(isinstance(label, str) for label in row)


def _json(raw: object, what: str) -> Any:
    if not isinstance(raw, np.ndarray) or raw.dtype != np.uint8:
        raise BadMessage(f"{what} is not bytes; it was damaged or forged.")
    try:
        return json.loads(raw.tobytes())
    except (ValueError, RecursionError):
        raise BadMessage(f"{what} is not JSON; it was damaged or forged.") from None
