"""`tacit proxy`: the service that separates devices' reports from their senders."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import typer

from tacit.boundary.lock import exclusive
from tacit.cli.display import stoppable
from tacit.deploy.certificates import read_certificate, serves
from tacit.deploy.kit import Kit
from tacit.deploy.logs import ServiceLog
from tacit.errors import UsageError


def proxy(kit: Path, state: Path | None, listen: str | None, crowd: int, quiet: bool) -> None:
    """Shuffle the sealed reports of a federation's devices until it is stopped."""
    own, folder = read_proxy_kit(kit), state or Path("site-proxy")

    def ready() -> None:
        if not quiet:
            typer.echo(f"proxy: listening at {listen or own.host}:{own.port} for {own.federation}.", err=True)

    stopped = "tacit: Stopped; reports that were not forwarded are gone, and devices send them again."
    with exclusive(folder, "the state of proxy", "name another --state"), stoppable(stopped, 0):
        serve_until_stopped(own, folder, ServiceLog(folder, "proxy"), crowd, listen, ready)


def read_proxy_kit(path: Path) -> Kit:
    """The kit of a proxy that was invited with an address, if it is valid now."""
    if find_spec("aiohttp") is None:
        raise UsageError("A proxy needs one more package; install it: pip install 'tacit[deploy]'")
    own = Kit.read(path)
    own.check()
    if own.name != "proxy" or own.insecure or not serves(read_certificate(own.certificate)):
        raise UsageError(
            f'"{path}" is not the kit of a proxy that others can reach; make one with: tacit keys invite KEYS '
            "--role proxy --at HOST:PORT"
        )
    return own


def serve_until_stopped(
    kit: Kit, folder: Path, log: ServiceLog, crowd: int, listen: str | None, ready: Callable[[], None]
) -> None:
    """Serve until SIGINT, which is KeyboardInterrupt here, or SIGTERM."""
    from tacit.deploy.proxy_service import ProxyService

    async def serve() -> None:
        current = asyncio.current_task()
        assert current is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, current.cancel)
        await ProxyService(kit, folder, log, crowd, listen).serve(ready)

    log.info("starting", federation=kit.federation)
    try:
        asyncio.run(serve())
    except asyncio.CancelledError:
        return
