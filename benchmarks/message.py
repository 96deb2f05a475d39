"""What a message costs in one process, beside the SHA-256 of its bytes, which no transcript can do without.

A party that does nothing but send back what it got is asked again and again; each party's request and answer are two
messages. The limit hashes the request once and each answer once.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from benchmarks.common.result import Result
from benchmarks.common.stopwatch import best_of
from tacit.aggregation.plain import Plain
from tacit.boundary import Gate, Release
from tacit.boundary.release import Kind
from tacit.boundary.spec import unprotected
from tacit.boundary.wire import encode
from tacit.data.synthetic import demo
from tacit.engine import InProcess
from tacit.federation import Facts, Federation, Floats, Party, Schema, step
from tacit.methods import Parameters
from tacit.partition import partition
from tacit.rng import derive

REPETITIONS = 25
BLOCK = Schema(block=Floats("any"))
SIZES = {"40 bytes": 10, "300 kB": 75_000}


class Echo(Party):
    """Sends back what it gets."""

    @step(Kind.DISCLOSE, takes=BLOCK, gives=BLOCK, what="what it was sent")
    def echo(self, block: np.ndarray) -> Release:
        return self.gate.disclose(block=block)


def nothing_stated(facts: Facts) -> dict[str, Any]:
    """What a federation needs whose steps look at no data."""
    return {"terms": unprotected({}), "how": Plain(facts.setting, len(facts.roster))}


def measure() -> list[Result]:
    """Microseconds a message."""
    cases = ((1, None), (10, 1), (10, None))
    return [one(parties, workers, words) for parties, workers in cases for words in SIZES]


def one(count: int, workers: int | None, words: str) -> Result:
    """Exchanges of one size with `count` parties, in `workers` threads; None is the engine's own choice."""
    shares = partition(demo(users=100, items=50), into=count)
    facts = Facts.of(shares, seed=7)
    members = [Echo(share, Parameters(), facts, Gate(share.name, facts.seed, {})) for share in shares]
    engine = InProcess(members, workers=workers)
    federation = Federation(engine, facts, Echo.steps, **nothing_stated(facts))
    block = derive(7, "benchmarks", "message").random(SIZES[words], dtype=np.float32)
    body = encode({"block": block})
    exchanges = max(10, 1000 // count // (1 if len(body) < 1000 else 10))

    def exchange() -> None:
        for _ in range(exchanges):
            federation.ask("echo", block=block)

    def hashing() -> None:
        for _ in range(exchanges * (count + 1)):
            hashlib.sha256(body).hexdigest()

    seconds = best_of({"exchange": exchange, "hashing": hashing}, REPETITIONS)
    engine.close()
    microseconds = {name: 1e6 * time / (exchanges * 2 * count) for name, time in seconds.items()}
    threads = "" if count == 1 else ", in threads" if workers is None else ", one by one"
    return Result(
        f"a message of {words}, {count} part{'y' if count == 1 else 'ies'}{threads}",
        microseconds["exchange"],
        "µs",
        "hashing alone",
        microseconds["hashing"],
        most=microseconds["hashing"] + 50,
    )
