"""The process of one site of an experiment on one machine; its arguments are kit, folder, ledgers and parent."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType

from tacit.deploy.kit import Kit
from tacit.deploy.logs import logger, quiet_engine
from tacit.deploy.part import Home
from tacit.deploy.policy import Policy
from tacit.deploy.site import Site, own_identity
from tacit.deploy.source import Laid
from tacit.deploy.status import Status


def main(kit: Path, folder: Path, ledgers: Path, parent: int) -> None:
    """Serve one run after another, as long as the experiment's own process is there."""
    site_kit = Kit.read(kit)
    log = logger(folder, site_kit.name)
    quiet_engine(log)
    signal.signal(signal.SIGTERM, _leave)
    with Status(folder, site_kit.name, site_kit.federation) as status:
        policy = Policy(local=True, shares_metrics=True)
        home = Home(site_kit, folder, ledgers, own_identity(folder), Laid(), policy)
        Site(home, log, status, stays=True).serve(wait=float("inf"), alive=lambda: os.getppid() == parent)


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
