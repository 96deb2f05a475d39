"""What a site allows, whatever a coordinator offers: budgets, noise, code, company. Checked before any data is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tacit import aggregation as aggregations
from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import Budget, BudgetSpent
from tacit.config import RunFile
from tacit.deploy.offer import Offer
from tacit.errors import PrivacyRefused, TamperingFound, UsageError
from tacit.federation.role import ROLE
from tacit.guarantee import Guarantee, NoGuarantee
from tacit.partition import Setting
from tacit.prepare.plan import ROSTER_REPORTED, Plan
from tacit.prepare.run_file import roles_of, seeded, setting_of

#: Sections of a run file that a site which was given one holds the coordinator to.
_HELD = ("seed", "public", "split", "partition", "method", "privacy", "aggregation", "evaluate")

#: The ε up to which a site that names no --max-epsilon takes part.
CEILING = 10.0

NO_PEERS = (
    "The run's secure sums are signed, so this site must know the other parties' signing keys from themselves; collect "
    "what their `tacit join --identity` prints in a file and join with --peers FILE."
)


@dataclass(frozen=True)
class Policy:
    """A site's own rules.

    Attributes
    ----------
    max_epsilon : the budget of the site's ledger over its lifetime; None takes the first run's own ε, up to `CEILING`
    delta : the largest δ of a run, and that of the budget; None takes what the number of users allows
    days : the period of that budget; None for the lifetime
    unit : "user" where nothing less than a whole user may be what a run protects; None for what it says
    non_private : whether runs without any guarantee are taken part in
    file : the run file that the coordinator must offer, or None for any that fits; its [partition] into pins how many
        parties there are
    peers : by name, the public signing keys of the other parties, as their owners gave them; needed for signed sums;
        it pins the roster
    shares_metrics : whether the site's own test metrics are sent to the coordinator
    align_key : what this site's keyed hashes of user ids are made with, in vertical runs; not the coordinator's
    local : whether this is an experimenter's own process, on a share laid ready for it; then noise may be seeded
    """

    max_epsilon: float | None = None
    delta: float | None = None
    days: float | None = None
    unit: str | None = None
    non_private: bool = False
    file: RunFile | None = None
    peers: Mapping[str, str] | None = None
    shares_metrics: bool = False
    align_key: bytes | None = None
    local: bool = False

    def check(self, offer: Offer, name: str) -> None:
        """Refuse an offer that breaks a rule of this site."""
        if name not in (offer.roles if (role := ROLE.fullmatch(name)) else offer.roster):
            raise UsageError(f"The coordinator offers a run without {name}; it has nothing to do in it.")
        if offer.local is not self.local:
            raise PrivacyRefused(
                "The coordinator offers an experiment of its own (up --local), and this site has data of its own."
                if offer.local
                else "This process is part of an experiment on one machine, and joins nothing else."
            )
        if role:
            self._known_role(offer, name)
        elif not self.local:
            self._deployed(offer)
        if self.file is not None and not _same(self.file, offer.file):
            raise PrivacyRefused(
                "The coordinator offers another run than the run file that this site was given (--run); compare the "
                "two with whoever sent it."
            )
        if not role:
            self._same_roster(offer, name)

    def pins(self, offer: Offer) -> str:
        """Which option holds the coordinator to a roster, where the guarantee counts the parties; empty for none.

        That is so where parties hold the same users, and users are protected: told of fewer parties than there are,
        each would add too little noise.
        """
        privacy = offer.file.privacy
        if self.local or offer.setting is not Setting.VERTICAL or privacy is None or privacy.unit != "user":
            return ""
        if self.peers is not None:
            return "--peers"
        return "--run" if self.file is not None and self.file.partition.into is not None else ""

    def stated(self, guarantee: Guarantee | NoGuarantee, offer: Offer) -> str:
        """The guarantee as this site states it: a roster that it pinned is not the coordinator's word alone."""
        if not (pinned := self.pins(offer)) or isinstance(guarantee, NoGuarantee):
            return str(guarantee)
        own = f"if every site pins the roster as this one did ({pinned})"
        return str(replace(guarantee, against=guarantee.against.replace(ROSTER_REPORTED, own)))

    def _same_roster(self, offer: Offer, name: str) -> None:
        """Refuse a roster that is not the one which this site pinned."""
        told = set(offer.roster)
        if not self.pins(offer):
            return
        if self.peers is not None and told != {name, *self.peers}:
            other = sorted(told ^ {name, *self.peers})[0]
            raise PrivacyRefused(
                f"The offered roster {'has' if other in told else 'lacks'} {other}, and this site was given another "
                "one (--peers): how much noise each party adds rests on who takes part; ask the others which roster "
                "they were offered."
            )
        into = None if self.file is None else self.file.partition.into
        if into is not None and len(told) != into:
            raise PrivacyRefused(
                f"The offered roster has {len(told)} parties, and the run file that this site was given (--run) says "
                f"[partition] into = {into}: how much noise each party adds rests on how many take part; ask the "
                "others which roster they were offered."
            )

    def _known_role(self, offer: Offer, name: str) -> None:
        """Refuse a role that the code installed here does not have: what it would answer is not the offer's to say."""
        if not self.local and offer.setting is not setting_of(offer.file):
            raise UsageError("The offered setting is not the one of the offered run file; it was damaged or forged.")
        if name not in roles_of(offer.file, offer.setting, len(offer.roster)):
            raise UsageError(
                f"The run is offered with a {name}, and its method and aggregation as installed here have none; "
                "compare versions."
            )

    def _deployed(self, offer: Offer) -> None:
        """What only an experiment may do."""
        file = offer.file
        if file.privacy is None and not self.non_private:
            raise PrivacyRefused(
                "The run has no [privacy]: what leaves would carry no guarantee at all; to take part all the same, "
                "join with --non-private."
            )
        if file.privacy is not None and seeded(file):
            raise PrivacyRefused(
                "The run draws its noise from a seed that whoever holds the run file knows ([engine] seeded = true); "
                "that is for simulations: ask for a run without it."
            )
        if file.privacy is not None and file.privacy.accounting != "sound":
            raise PrivacyRefused("The run counts by a paper's own formulas, which do not hold; ask for a sound one.")
        if file.privacy is not None and offer.items is None:
            raise PrivacyRefused(
                "The run has [privacy] and no public list of items, so that this site would tell which ones its users "
                "rated; ask for a run with [public] catalogue."
            )
        if aggregations.find(file.aggregation.name).only_simulated:
            raise PrivacyRefused(
                f'[aggregation] name = "{file.aggregation.name}" exists in simulations only: between organisations it '
                'would hide nothing; ask for "secagg".'
            )
        if file.aggregation.signed and self.peers is None:
            raise PrivacyRefused(NO_PEERS)
        if file.aggregation.name == "secagg" and not file.aggregation.signed and self.peers is not None:
            raise PrivacyRefused(
                "The run's secure sums are not signed, so that the coordinator could play the parties of --peers; ask "
                "for [aggregation] signed = true, or join without --peers."
            )
        if offer.setting is not setting_of(file):
            raise UsageError("The offered setting is not the one of the offered run file; it was damaged or forged.")
        if offer.setting is Setting.VERTICAL and file.partition.align == "hashed" and self.align_key is None:
            raise UsageError(
                "The run aligns users by keyed hashes, and this site has no key for them; agree on one with the other "
                "sites, without the coordinator, and join with --align-key FILE."
            )
        if file.split.by in ("temporal", "cold-users"):
            raise UsageError(f'The split "{file.split.by}" cannot be made by a site for itself; ask for another one.')
        if file.split.test > 0.5:
            raise UsageError("The run holds more than half of all ratings out; ask for [split] test of 0.5 or less.")
        if file.aggregation.dropout:
            raise UsageError("[aggregation] dropout injects drop-outs, which is for simulations; ask for none.")

    def allow(self, file: RunFile, plan: Plan, users: int) -> None:
        """Refuse a plan that alone is more than this site allows; `users` are the site's own.

        Both what a run file asks for and what its plan reaches are held to it: the first becomes a budget.
        """
        if self.local:
            return
        promised, largest = plan.terms.guarantee, self.delta or min(1e-4, 1 / (100 * users))
        assert file.privacy is not None
        assert isinstance(promised, Guarantee)
        asked = max(promised.epsilon, file.privacy.epsilon)
        if promised.delta > largest * (1 + 1e-9):
            raise PrivacyRefused(
                f"The run's δ = {promised.delta:g} is above {largest:.2g}, the most that this site allows (--delta); "
                "ask for a smaller one."
            )
        if self.max_epsilon is None and asked > CEILING * (1 + 1e-9):
            raise BudgetSpent(
                f"The run asks for ε = {asked:.4g}, and without --max-epsilon a site takes part up to "
                f"{CEILING:g}; type --max-epsilon if more is meant."
            )
        if self.max_epsilon is not None and asked > self.max_epsilon * (1 + 1e-9):
            raise BudgetSpent(
                f"The run asks for ε = {asked:.4g}, and this site allows {self.max_epsilon:g} (--max-epsilon)."
            )
        if self.unit is not None and promised.unit != self.unit:
            raise PrivacyRefused(
                f"The run protects every {promised.unit}, and this site asks for every {self.unit} (--unit)."
            )
        if promised.simulated:
            raise PrivacyRefused("The run's guarantee says SIMULATED, and this site is no simulation.")

    def budget(self, file: RunFile, plan: Plan, ledger: Ledger) -> Budget:
        """What the site's ledger may reach: what the site says, or else what the first run asked for, for good."""
        assert file.privacy is not None
        if self.local:
            return Budget(file.privacy.budget or file.privacy.epsilon, plan.delta)
        first = ledger.pinned("budget", json.dumps([file.privacy.epsilon, plan.delta]))
        epsilon, delta = json.loads(first)
        return Budget(self.max_epsilon or float(epsilon), self.delta or float(delta), self.days)

    def known(self, told: Mapping[str, str], names: tuple[str, ...]) -> Mapping[str, str]:
        """The other parties' signing keys: those that their owners gave, which the coordinator must not change."""
        if self.local:
            return told
        if self.peers is None:
            raise PrivacyRefused(NO_PEERS)
        missing = [name for name in names if name not in self.peers]
        if missing:
            raise PrivacyRefused(f"The file of --peers has no key for {missing[0]}; ask it for one and join again.")
        other = [name for name in names if told.get(name) != self.peers[name]]
        if other:
            raise TamperingFound(
                f"The coordinator says that {other[0]} signs with another key than the one it gave (--peers); "
                "one of the two is not what it seems."
            )
        return self.peers


def _same(own: RunFile, offered: RunFile) -> bool:
    """Whether an offered file is the one that was given, but for what the coordinator fills in."""
    for section in _HELD:
        mine, theirs = getattr(own, section), getattr(offered, section)
        if section == "public" and mine is not None:
            declared = mine.model_dump(exclude_none=True, exclude={"catalogue"})
            if any(getattr(theirs, key) != value for key, value in declared.items()):
                return False
        elif section == "privacy" and mine is not None and theirs is not None:
            if mine.model_copy(update={"ledger": None}) != theirs:
                return False
        elif mine != theirs:
            return False
    return True
