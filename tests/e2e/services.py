"""Real services on loopback: a coordinator and sites as processes of the command line, for tests that disturb them."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv

from tacit.data.ratings import Ratings
from tacit.data.synthetic import demo
from tacit.deploy.local_sites import free_port
from tacit.partition import partition

TACIT = Path(sys.executable).with_name("tacit")
#: Seconds that a test waits for something that must happen: never a measure, so that a busy machine changes nothing.
PATIENCE = 300.0


@dataclass
class Service:
    """One process of `tacit`, its output in files."""

    arguments: list[str]
    folder: Path
    name: str
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen | None = None

    def start(self) -> "Service":
        out, err = ((self.folder / f"{self.name}.{end}").open("ab") for end in ("out", "err"))
        with out, err:
            self.process = subprocess.Popen(
                [TACIT, *self.arguments],
                cwd=self.folder,
                stdout=out,
                stderr=err,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )
        return self

    def kill(self) -> None:
        """As a power cut would."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait(self, seconds: float = PATIENCE) -> int:
        """Its exit code."""
        return self.process.wait(seconds)

    @property
    def out(self) -> str:
        return (self.folder / f"{self.name}.out").read_text()

    @property
    def err(self) -> str:
        return (self.folder / f"{self.name}.err").read_text()

    @property
    def summary(self) -> dict:
        return json.loads(self.out)


class Federation:
    """Keys, kits, data and services of one federation in a folder."""

    def __init__(self, folder: Path, run_toml: str, parties: int = 3, ratings: Ratings | None = None) -> None:
        self.folder, self.names = folder, tuple(f"party-{k}" for k in range(1, parties + 1))
        self.ratings = demo(users=90, items=30, ratings=1500) if ratings is None else ratings
        self.port = free_port()
        (folder / "run.toml").write_text(run_toml)
        csv.write_csv(pa.table({"item": self.ratings.item_ids.ids}), folder / "items.csv")
        for share in partition(self.ratings, into=parties):
            csv.write_csv(share.ratings.to_arrow(), folder / f"{share.name}.csv")
        self.tacit("keys", "init", "keys", "--federation", "test", "--host", "localhost", "--port", str(self.port))
        self.tacit("keys", "invite", "keys", *self.names)
        self.services: list[Service] = []

    def tacit(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess:
        """One command, to its end."""
        done = subprocess.run([TACIT, *arguments], cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return done

    def up(self, *more: str, name: str = "up", **environment: str) -> Service:
        arguments = ["up", "run.toml", "--keys", "keys", "--resume", "run", "--json", *more]
        return self._started(Service(arguments, self.folder, name, environment))

    def join(self, party: str, *more: str, data: str | None = None, **environment: str) -> Service:
        arguments = ["join", f"{party}.kit", "--data", data or f"{party}.csv", *more]
        return self._started(Service(arguments, self.folder, party, environment))

    def _started(self, service: Service) -> Service:
        self.services.append(service.start())
        return service

    def stop(self) -> None:
        for service in self.services:
            if service.process.poll() is None:
                service.kill()

    def status(self, place: str) -> dict:
        """What a service says of itself; nothing before it has said anything."""
        path = self.folder / place / "status.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def until(self, condition, seconds: float = PATIENCE) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, {s.name: s.err[-500:] for s in self.services}
            time.sleep(0.02)

    def round(self, place: str = "run") -> int:
        return self.status(place).get("round") or 0
