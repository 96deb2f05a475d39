"""The parties' records in a simulated private run: a folder of ledgers, one budget for each, and the run's log."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tacit.boundary.ledger import Ledger, ledgers_in
from tacit.boundary.lock import exclusive
from tacit.boundary.protection import Budget, total_epsilon
from tacit.engine.call_log import CallLog
from tacit.engine.ledger_folder import Heads, check_division, check_not_restored, latest_heads, open_ledgers, people_of
from tacit.partition import Parties, Share
from tacit.prepare.prepared import PreparedRun, Record


@dataclass(frozen=True)
class Records:
    """Every party's ledger in `folder`, the budget of each, and what an interrupted run resumes from.

    `log` is the log of the run's calls, None where it cannot be resumed. `heads` are those of ledgers that persist from
    run to run, None for the ledgers of one run.
    """

    folder: Path
    budget: Budget
    log: CallLog | None = None
    heads: Heads | None = None

    @classmethod
    def of(cls, prepared: PreparedRun, folder: Path, log: CallLog | None = None) -> Self | None:
        """As [privacy] states, in `folder` unless it names another; None for NON-PRIVATE."""
        privacy, plan = prepared.privacy, prepared.plan
        if privacy is None:
            return None
        budget = Budget(privacy.budget or privacy.epsilon, plan.delta, privacy.period)
        if privacy.ledger is None:
            return cls(folder, budget, log)
        return cls(Path(privacy.ledger), budget, log, Heads.beside(Path(privacy.ledger)))

    @classmethod
    def unlimited(cls, prepared: PreparedRun, folder: Path) -> Self | None:
        """With an unlimited budget, for runs whose results are not released; None for NON-PRIVATE."""
        return cls(folder, Budget(math.inf, prepared.plan.delta)) if prepared.private else None

    @contextmanager
    def over(self, prepared: PreparedRun, parties: Parties) -> Iterator[None]:
        """Lock the ledgers, after checking them as a whole: see `engine.ledger_folder`."""
        with exclusive(self.folder, "the ledgers", "name another folder with [privacy] ledger"):
            try:
                with open_ledgers(self.folder) as ledgers:
                    if self.heads is not None:
                        check_not_restored(ledgers, self.heads)
                    check_division(ledgers, parties, prepared.plan.terms.unit, prepared.run)
                if self.heads is not None:
                    self.heads.begin(None if self.log is None else self.log.path)
            except BaseException:
                if self.log is not None:
                    self.log.close()
                raise
            try:
                yield
            finally:
                if self.heads is not None:
                    with open_ledgers(self.folder) as ledgers:
                        self.heads.end(latest_heads(ledgers, self.heads))

    def of_party(self, share: Share) -> Record:
        """One party's record, whose ledger is bound to the party's people."""
        ledger = Ledger(self.folder / f"{share.name}.sqlite", share.name)
        return Record(ledger, self.budget, people_of(share))

    def lifetime_notes(self, prepared: PreparedRun) -> tuple[str, ...]:
        """ε of all runs in the ledgers, where there are several; a budget for a period does not count them all."""
        reached, relation = 0.0, prepared.plan.terms.relation
        for path in ledgers_in(self.folder):
            ledger = Ledger.open(path)
            if len({row.run for row in ledger.rows()}) > 1:
                reached = max(reached, total_epsilon(ledger.rows(), self.budget.delta, relation))
            ledger.close()
        words = f"Over the lifetime of the ledgers, all runs together: ε = {math.ceil(reached * 100) / 100:.2f} at most"
        return (f"{words}, at δ = {self.budget.delta:g}.",) if reached else ()
