"""The process of one site of an experiment on one machine; its arguments are kit, folder, ledgers and parent."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from functools import partial
from pathlib import Path
from types import FrameType

from tacit.deploy.certificates import read_certificate, serves
from tacit.deploy.kit import Kit
from tacit.deploy.logs import ServiceLog, quiet_engine
from tacit.deploy.policy import Policy
from tacit.deploy.relay_client import DeviceChannel
from tacit.deploy.service_status import FINAL, State, Status, ending_message
from tacit.deploy.site_data import NoRatings, StoredRoleTable, StoredShare
from tacit.deploy.site_run import Home
from tacit.deploy.site_service import Site, own_identity
from tacit.engine.site_channel import SiteChannel
from tacit.federation.role import ROLE


def main(kit: Path, folder: Path, ledgers: Path, parent: int, device: bool = False) -> None:
    """Serve one run after another, as long as the experiment's process exists; a device does so through the proxy."""
    site_kit = Kit.read(kit)
    if serves(read_certificate(site_kit.certificate)):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        shuffle(site_kit, folder, parent)
        return
    log = ServiceLog(folder, site_kit.name)
    quiet_engine(log)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the experiment handles Ctrl-C, and then ends its sites
    with Status(folder, site_kit.name, site_kit.federation) as status:
        signal.signal(signal.SIGTERM, partial(_leave, status))
        policy = Policy(local=True, shares_metrics=True)
        data, brings = (NoRatings(), StoredRoleTable()) if ROLE.fullmatch(site_kit.name) else (StoredShare(), None)
        home = Home(site_kit, folder, ledgers, own_identity(folder), data, policy, brings)
        connect = DeviceChannel if device else SiteChannel
        Site(home, log, status, stays=True, connect=connect).serve(
            wait=float("inf"), alive=lambda: os.getppid() == parent
        )


def shuffle(kit: Kit, folder: Path, parent: int) -> None:
    """Be the proxy, as long as the experiment's process exists."""
    from tacit.deploy.proxy_service import ProxyService

    async def serve() -> None:
        serving = asyncio.create_task(ProxyService(kit, folder, ServiceLog(folder, kit.name)).serve(lambda: None))
        while os.getppid() == parent and not serving.done():
            await asyncio.sleep(0.2)
        if not serving.done():
            os._exit(0)
        await serving

    asyncio.run(serve())


def _leave(status: Status, _number: int, _frame: FrameType | None) -> None:
    """Exit at once, as after a power cut: all releases are in the ledger."""
    if status.now()["state"] not in FINAL:
        status.set(state=State.STOPPED, message=ending_message(KeyboardInterrupt()))
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]), sys.argv[5:] == ["device"])
