"""A site's own rules: budgets, noise, methods and peers. They are checked before any data is read."""

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

#: Sections of a site's own run file (--run) that the offered one must have too.
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
    max_epsilon : the budget of the site's ledger over its lifetime; None takes the first run's ε, up to `CEILING`
    delta : the largest δ of a run, and that of the budget; None takes what the number of users allows
    days : the period of that budget; None for the lifetime
    unit : "user" to refuse runs that protect less than all ratings of a user; None for any
    non_private : whether the site takes part in runs without any guarantee
    file : the run file that the coordinator must offer, or None for any; its [partition] into pins how many take part
    peers : by name, the other parties' public signing keys, from their owners; needed for signed sums; pins the roster
    shares_metrics : whether the site's own test metrics are sent to the coordinator
    align_key : the key of this site's hashes of user ids in vertical runs, which the coordinator does not have
    local : whether this is an experimenter's own process; then noise may be seeded
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
            raise UsageError(f"The coordinator offers a run without {name}, so it cannot take part.")
        if offer.local is not self.local:
            raise PrivacyRefused(
                "The coordinator offers a local experiment (up --local), and this site has data of its own."
                if offer.local
                else "This process is part of an experiment on one machine, and cannot join another run."
            )
        if role:
            self._check_role(offer, name)
        elif not self.local:
            self._check_deployed(offer)
        if self.file is not None and not _same(self.file, offer.file):
            raise PrivacyRefused(
                "The coordinator offers another run than the run file that this site was given (--run); compare the "
                "two with its sender."
            )
        if not role:
            self._check_roster(offer, name)

    def roster_option(self, offer: Offer) -> str:
        """The option that pins the roster, where the guarantee depends on the number of parties; empty for none.

        It does where parties hold the same users and users are protected: if fewer parties were reported than there
        are, each would add too little noise.
        """
        privacy = offer.file.privacy
        if self.local or offer.setting is not Setting.VERTICAL or privacy is None or privacy.unit != "user":
            return ""
        if self.peers is not None:
            return "--peers"
        return "--run" if self.file is not None and self.file.partition.into is not None else ""

    def stated(self, guarantee: Guarantee | NoGuarantee, offer: Offer) -> str:
        """The guarantee as this site states it: a roster that it pinned does not rest on the coordinator alone."""
        if not (pinned := self.roster_option(offer)) or isinstance(guarantee, NoGuarantee):
            return str(guarantee)
        own = f"if every site pins the roster as this one did ({pinned})"
        return str(replace(guarantee, against=guarantee.against.replace(ROSTER_REPORTED, own)))

    def _check_roster(self, offer: Offer, name: str) -> None:
        offered = set(offer.roster)
        if not self.roster_option(offer):
            return
        if self.peers is not None and offered != {name, *self.peers}:
            other = sorted(offered ^ {name, *self.peers})[0]
            raise PrivacyRefused(
                f"The offered roster {'has' if other in offered else 'lacks'} {other}, and this site was given another "
                "one (--peers): the noise of each party depends on who takes part; ask the others which roster they "
                "were offered."
            )
        into = None if self.file is None else self.file.partition.into
        if into is not None and len(offered) != into:
            raise PrivacyRefused(
                f"The offered roster has {len(offered)} parties, and the run file that this site was given (--run) "
                f"says [partition] into = {into}: the noise of each party depends on how many take part; ask the "
                "others which roster they were offered."
            )

    def _check_role(self, offer: Offer, name: str) -> None:
        if not self.local and offer.setting is not setting_of(offer.file):
            raise UsageError("The offered setting is not the one of the offered run file; it was damaged or forged.")
        if name not in roles_of(offer.file, offer.setting, len(offer.roster)):
            raise UsageError(
                f"The run is offered with a {name}, and its method and aggregation as installed here have none; "
                "compare versions."
            )

    def _check_deployed(self, offer: Offer) -> None:
        """Refuse what only an experiment may do."""
        file = offer.file
        if file.privacy is None and not self.non_private:
            raise PrivacyRefused(
                "The run has no [privacy], so nothing that leaves would have a guarantee; to take part anyway, join "
                "with --non-private."
            )
        if file.privacy is not None and seeded(file):
            raise PrivacyRefused(
                "The run draws its noise from a seed that everyone with the run file knows ([engine] seeded = true); "
                "that is for simulations: ask for a run without it."
            )
        if file.privacy is not None and file.privacy.accounting != "sound":
            raise PrivacyRefused("The run's ε is by a paper's own formulas, which do not hold; ask for a sound one.")
        if file.privacy is not None and offer.items is None:
            raise PrivacyRefused(
                "The run has [privacy] and no public list of items, so this site would reveal which ones its users "
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

    def check_plan(self, file: RunFile, plan: Plan, users: int) -> None:
        """Refuse a plan that alone exceeds what this site allows; `users` is the site's own number.

        Both the ε in the run file and the plan's are checked: the first becomes a budget.
        """
        if self.local:
            return
        promised, largest = plan.terms.guarantee, self.delta or min(1e-4, 1 / (100 * users))
        assert file.privacy is not None
        assert isinstance(promised, Guarantee)
        epsilon = max(promised.epsilon, file.privacy.epsilon)
        if promised.delta > largest * (1 + 1e-9):
            raise PrivacyRefused(
                f"The run's δ = {promised.delta:g} is above {largest:.2g}, the most that this site allows (--delta); "
                "ask for a smaller one."
            )
        if self.max_epsilon is None and epsilon > CEILING * (1 + 1e-9):
            raise BudgetSpent(
                f"The run has ε = {epsilon:.4g}, and without --max-epsilon a site takes part up to "
                f"{CEILING:g}; set --max-epsilon to allow more."
            )
        if self.max_epsilon is not None and epsilon > self.max_epsilon * (1 + 1e-9):
            raise BudgetSpent(
                f"The run has ε = {epsilon:.4g}, and this site allows {self.max_epsilon:g} (--max-epsilon)."
            )
        if self.unit is not None and promised.unit != self.unit:
            raise PrivacyRefused(
                f"The run protects every {promised.unit}, and this site requires every {self.unit} (--unit)."
            )
        if promised.simulated:
            raise PrivacyRefused("The run's guarantee is SIMULATED, and this site is not a simulation.")

    def budget(self, file: RunFile, plan: Plan, ledger: Ledger) -> Budget:
        """The budget of the site's ledger: the site's own, or else the first run's ε for good."""
        assert file.privacy is not None
        if self.local:
            return Budget(file.privacy.budget or file.privacy.epsilon, plan.delta)
        first = ledger.pinned("budget", json.dumps([file.privacy.epsilon, plan.delta]))
        epsilon, delta = json.loads(first)
        return Budget(self.max_epsilon or float(epsilon), self.delta or float(delta), self.days)

    def peer_keys(self, reported: Mapping[str, str], names: tuple[str, ...]) -> Mapping[str, str]:
        """The other parties' signing keys from their owners; the coordinator must report the same."""
        if self.local:
            return reported
        if self.peers is None:
            raise PrivacyRefused(NO_PEERS)
        missing = [name for name in names if name not in self.peers]
        if missing:
            raise PrivacyRefused(f"The file of --peers has no key for {missing[0]}; ask it for one and join again.")
        other = [name for name in names if reported.get(name) != self.peers[name]]
        if other:
            raise TamperingFound(
                f"The coordinator reports that {other[0]} signs with another key than the one in --peers; ask "
                f"{other[0]} which one is its own."
            )
        return self.peers


def _same(own: RunFile, offered: RunFile) -> bool:
    """Whether an offered file is the site's own, except for what the coordinator fills in."""
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
