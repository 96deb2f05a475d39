"""A federation on one machine: the coordinator in this process, and every site in a process of its own.

`tacit up --local` starts it, and tests compare methods on it: the same run as in one process, but over connections,
with keys, kits, ledgers and services as between organisations. One experimenter owns it and may read all sites' files
afterwards, so it is a simulation and is stamped so.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic

from tacit.config import PublicSection, RunFile
from tacit.data.catalogue import Catalogue
from tacit.deploy import site_files
from tacit.deploy.coordinator_service import Coordinator, RunResult
from tacit.deploy.keyring import Keyring
from tacit.deploy.logs import ServiceLog, quiet_engine
from tacit.deploy.offer import Offer, offered_file
from tacit.deploy.service_status import Status
from tacit.deploy.site_data import role_table_name, write_role_table
from tacit.engine.call_log import CallLog
from tacit.errors import PeerFailed, TacitError
from tacit.federation import Transcript
from tacit.model import Fitted, Part, Predictor, assemble
from tacit.partition import Parties, Setting
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.progress import RoundProgress, progress_reporter
from tacit.prepare.simulate import Trained

#: Seconds for all sites to start.
STARTING = 120.0


class LocalSites:
    """The processes of an experiment's sites, each with its folder under `folder`, and of a proxy if they need one."""

    def __init__(
        self, folder: Path, names: tuple[str, ...], ledgers: Path | None = None, proxied: bool = False
    ) -> None:
        self.proxy = "proxy" if proxied else None
        self.folder, self.ledgers = folder, ledgers
        self.names = ("proxy", *names) if proxied else names  # devices' kits name its address
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        keys = folder / "keys"
        if keys.exists():
            self.keyring = Keyring.open(keys)
        else:
            self.keyring = Keyring.make(keys, federation="local", host="localhost", port=free_port())
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._status: Status | None = None
        self._coordinator: Coordinator | None = None

    def coordinator(self, run: str) -> Coordinator:
        """The coordinator of these sites, serving a run."""
        if self._coordinator is None:
            log = ServiceLog(self.folder / "coordinator", "coordinator")
            quiet_engine(log)
            self._status = Status(self.folder / "coordinator", "coordinator", self.keyring.federation).__enter__()
            self._coordinator = Coordinator(self.keyring, run, log, self._status, relayed=self.proxy is not None)
            self._coordinator.open()
        else:
            self._coordinator.turn_to(run)
        return self._coordinator

    def start(self, name: str) -> None:
        """Start or restart a site's process."""
        home = self.folder / name
        kit = home / f"{name}.kit"
        if not kit.exists():
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
            at = ("localhost", free_port()) if name == self.proxy else None
            self.keyring.invite(name, at=at, device=self._is_device(name)).write(kit)
        ledgers = self.ledgers or home / "ledger"
        arguments = *map(str, (kit, home, ledgers, os.getpid())), *(["device"] if self._is_device(name) else [])
        command = [sys.executable, "-m", "tacit.deploy.process", *arguments]
        self._processes[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def start_all(self) -> None:
        for name in self.names:
            self.start(name)

    def _is_device(self, name: str) -> bool:
        """Whether a site takes part through the proxy."""
        return self.proxy is not None and name.startswith("party-")

    def started(self, name: str) -> bool:
        """Whether a site's process was ever started."""
        return name in self._processes

    def kill(self, name: str) -> None:
        """Kill a site's process, as a power cut would."""
        self._processes[name].kill()
        self._processes[name].wait()

    def dead(self) -> tuple[str, ...]:
        """The sites whose processes have ended by themselves."""
        return tuple(name for name, process in self._processes.items() if process.poll() is not None)

    def stop(self, error: BaseException | None = None) -> None:
        """Stop everything, because of `error` if there is one."""
        for process in self._processes.values():
            process.terminate()
        deadline = monotonic() + 5
        for process in self._processes.values():
            try:
                process.wait(max(0.1, deadline - monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.close_coordinator(error)

    def close_coordinator(self, error: BaseException | None = None) -> None:
        """Close the coordinator; the sites wait for the next one."""
        if self._coordinator is not None and self._status is not None:
            self._coordinator.close()
            self._status.__exit__(None if error is None else type(error), error, None)
        self._coordinator = self._status = None

    def store(self, run: str, parties: Parties, tables: Mapping[str, Catalogue] | None = None) -> None:
        """Store every party's share, and the tables of roles, in their sites' folders."""
        for share in parties:
            site_files.write_share(self.folder / share.name / f"{run}.share", share)
        for role, catalogue in (tables or {}).items():
            write_role_table(self.folder / role / role_table_name(run), catalogue)

    def clear(self) -> None:
        """Remove the sites' files for a run that is done: shares, keys, homes. Logs stay."""
        for name in self.names:
            home = self.folder / name
            for pattern in ("*.share", "*.parquet", "*.kit", "identity.key", "memory.tct"):
                for path in home.glob(pattern):
                    path.unlink()
            for inner in ("tls", "home"):
                shutil.rmtree(home / inner, ignore_errors=True)
        shutil.rmtree(self.folder / "keys", ignore_errors=True)

    def predictors(self, names: tuple[str, ...], which: str) -> list[Fitted] | None:
        """The sites' predictors in order; None where one of them has none of that kind."""
        paths = [self.folder / name / "home" / f"{which}.tct" for name in names]
        return [site_files.read_predictor(path) for path in paths] if all(path.exists() for path in paths) else None


def train_on_sites(
    folder: Path,
    ledgers: Path,
    file: RunFile,
    prepared: PreparedRun,
    parties: Parties,
    *,
    calls: CallLog | None,
    payloads: Path | None,
    watch: Callable[[RoundProgress], None] | None,
) -> Trained:
    """One run with every party in its own process, started for it and stopped after it."""
    sites = LocalSites(folder, (*parties.names, *prepared.roles), ledgers, prepared.proxied)
    try:
        sites.start_all()
        trained = train(sites, file, prepared, parties, calls=calls, payloads=payloads, watch=watch)
    except BaseException as error:
        sites.stop(error)
        raise
    finally:
        if calls is not None:
            calls.close()
    sites.stop()
    sites.clear()
    return trained


def train(
    sites: LocalSites,
    file: RunFile,
    prepared: PreparedRun,
    parties: Parties,
    *,
    calls: CallLog | None = None,
    payloads: Path | None = None,
    watch: Callable[[RoundProgress], None] | None = None,
    disturb: Callable[[int], None] | None = None,
    brought: Mapping[str, Catalogue] | None = None,
) -> Trained:
    """The same as `prepare.simulate.train`, with every party in its own process; `disturb` is called each round."""
    run = prepared.run
    sites.store(run, parties, brought)
    transcript = Transcript(payloads)
    history: list[RoundProgress] = []

    def see(progress: RoundProgress) -> None:
        history.append(progress)
        if watch is not None:
            watch(progress)
        if disturb is not None:
            disturb(progress.round)

    done = _conduct(sites.coordinator(run), sites, file, prepared, transcript, calls, progress_reporter(prepared, see))
    predictor, before = (_assembled(sites, parties, which) for which in ("predictor", "before"))
    if predictor is None:
        raise PeerFailed("A site did not save its predictor; see its log.")
    return Trained(
        model=done.model,
        parties=(),
        facts=prepared.facts,
        transcript=transcript,
        predictor=predictor,
        before_fine_tuning=before,
        rounds=done.rounds,
        history=tuple(history),
        seconds=done.seconds,
        void=done.void,
        rejected=done.rejected,
    )


def _conduct(
    coordinator: Coordinator,
    sites: LocalSites,
    file: RunFile,
    prepared: PreparedRun,
    transcript: Transcript,
    calls: CallLog | None,
    look: Callable[[int, int, Transcript], float | None],
) -> RunResult:
    """All messages of one run: hello, offer, begin, the method's own, end."""
    offer = offered(prepared, file)
    try:
        _wait_for_sites(coordinator, sites, offer.everybody)
        coordinator.offered(offer, stop_on_refusal=True)
        coordinator.begin(offer, prepared)
        done = coordinator.conduct(prepared, file.engine.timeout, transcript, calls, look)
    except TacitError as error:
        coordinator.give_up(offer.everybody, error)
        raise
    coordinator.end(offer.everybody, {"digest": transcript.digest}, done.shared)
    coordinator.done()
    return done


def offered(prepared: PreparedRun, file: RunFile) -> Offer:
    """The offer to an experiment's own sites."""
    facts, declared = prepared.facts, prepared.plan.context.facts
    public = PublicSection(
        scale=(facts.scale.low, facts.scale.high),
        users=declared.users,
        ratings=declared.ratings,
        features=facts.catalogue.columns,
    )
    names = tuple(member.name for member in facts.roster)
    data = file.data.model_copy(update={"feedback": str(facts.feedback)})  # the data set's own, whatever the file has
    file = file.model_copy(update={"data": data})
    place = (names, facts.setting, facts.catalogue)
    return Offer(prepared.run, offered_file(file, public), *place, local=True, roles=tuple(prepared.roles))


def _wait_for_sites(coordinator: Coordinator, sites: LocalSites, names: tuple[str, ...]) -> None:
    """Wait for all sites; raises at once if one of them dies."""
    deadline = monotonic() + STARTING
    while coordinator.channel.wait_for(names, 0.2):
        if dead := sites.dead():
            raise PeerFailed(f'{dead[0]} ended before it joined; see "{sites.folder / dead[0] / "log.jsonl"}".')
        if monotonic() > deadline:
            coordinator.gather(names, 0.0)


def _assembled(sites: LocalSites, parties: Parties, which: str) -> Predictor | None:
    found = sites.predictors(parties.names, which)
    if found is None:
        return None
    parts = [Part(share.users, share.items, p) for share, p in zip(parties, found, strict=True)]
    return assemble(parts, parties.n_users, parties.n_items, by_item=parties.setting is Setting.VERTICAL)


def free_port() -> int:
    """A free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])
