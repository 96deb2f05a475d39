"""One person's device in a federation: it takes part in a run through the proxy, and recommends at home.

It is a site like any other, with the same gate, ledger, budget and rules; only its way to the coordinator differs. The
core dependencies are enough for it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.boundary.lock import exclusive
from tacit.deploy import site_files
from tacit.deploy.kit import Kit
from tacit.deploy.logs import ServiceLog
from tacit.deploy.policy import Policy
from tacit.deploy.relay_client import DeviceChannel
from tacit.deploy.service_status import Status
from tacit.deploy.site_data import Source
from tacit.deploy.site_run import Home
from tacit.deploy.site_service import Site, own_identity
from tacit.errors import PeerFailed, UsageError


@dataclass(frozen=True)
class Device:
    """A device: its kit, its own ratings, its rules, and the folder with its ledger and its model.

    Parameters
    ----------
    kit : made with `tacit keys invite KEYS party-1 … --devices`
    data : the ratings of one person
    policy : the device's rules, its budget among them
    folder : where everything stays
    """

    kit: Kit
    data: Source
    policy: Policy
    folder: Path

    def take_part(self, wait: float = 3600.0, report: Callable[[str], None] = lambda _sentence: None) -> dict[str, Any]:
        """Take part in one run to its end: its name and digest. `wait` is how long the coordinator may be absent.

        Raises what this device refuses, or why the run failed.
        """
        self._check()
        folder, ledgers = self.folder, self.folder / "ledger"
        with (
            exclusive(folder, f"the state of {self.kit.name}", "name another folder"),
            exclusive(ledgers, "the ledgers", "name another folder") if ledgers.is_dir() else nullcontext(),
            Status(folder, self.kit.name, self.kit.federation) as status,
        ):
            home = Home(self.kit, folder, ledgers, own_identity(folder), self.data, self.policy)
            log = ServiceLog(folder, self.kit.name)
            log.info("starting", federation=self.kit.federation)
            return Site(home, log, status, report=report, connect=DeviceChannel).serve(wait)

    def recommend(self, n: int = 10) -> list[tuple[Any, float]]:
        """The n best items that this person has not rated, as (id, score), from the latest run's model."""
        if not (self.folder / "home" / "predictor.tct").exists():
            raise PeerFailed(f'There is no model in "{self.folder}" yet; take part in a run first.')
        mine = self.data.ratings
        rated = set(mine.item_ids.ids.tolist())  # those held out for a test are not new to this person either
        best = site_files.recommend(self.folder / "home", mine.user_ids.ids[0], n + len(rated))
        return [(item, score) for item, score in best if item not in rated][:n]

    def _check(self) -> None:
        """Check kit and ratings before anybody learns that this device is there."""
        self.kit.check()
        if self.kit.insecure:
            raise UsageError("This kit's keys were made with --insecure; a device takes part over TLS alone.")
        if self.data.ratings.n_users != 1:
            raise UsageError(
                f"A device holds the ratings of one person, and these are of {self.data.ratings.n_users:,}; name "
                "another file."
            )
