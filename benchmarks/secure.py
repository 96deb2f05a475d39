"""A secure sum: 50 parties, 1 million values of 32 bits, 5 drop-outs after the shares were exchanged.

Processor time of everybody's work in one process, beside the masks alone, which no such protocol can do without; and
what a party sends, beside the vector itself.
"""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np

from benchmarks.common.result import Result
from benchmarks.common.stopwatch import best_of
from tacit.rng import derive, stream_key
from tacit.secure.graph import choose
from tacit.secure.masks import add_mask, pack
from tacit.secure.secagg_party import SecAggParty
from tacit.secure.secagg_protocol import SecureSum
from tacit.secure.secagg_server import SecAggServer
from tacit.secure.shamir import _weights, joined, split

PARTIES, GONE, SIZE, BITS = 50, 5, 1_000_000, 32
REPETITIONS = 3


def measure() -> list[Result]:
    """Seconds of one core, milliseconds, kilobytes."""
    shape = choose(PARTIES, 0.3, 1)
    rounds = [play() for _ in range(REPETITIONS)]
    parties, coordinator = (min(seconds) for seconds in zip(*(times for times, _sent in rounds), strict=True))
    mask = best_of({"mask": one_mask()}, 25)["mask"]
    left = PARTIES - GONE
    own, pairs = left * (1 + shape.degree), left + GONE * shape.degree
    sent = rounds[0][1]
    seconds = best_of({"26 of 50": shared, "2 of 50": lambda: shared(2)}, 100)
    sharing = {name: 1e3 * time for name, time in seconds.items()}
    what = f"k = {shape.degree}, t = {shape.threshold}"
    return [
        Result(f"all parties' work, {what}", parties, "s", f"their {own} masks alone", own * mask, most=2.0),
        Result(f"the coordinator's work, {what}", coordinator, "s", f"about {pairs} masks alone", pairs * mask),
        Result("a mask of 1 M words", 1e3 * mask, "ms", "adding 1 M words", 1e3 * adding(), most=1.8),
        Result(
            "a secret split and joined, 26 of 50", sharing["26 of 50"], "ms", "2 of 50", sharing["2 of 50"], most=1.0
        ),
        Result("bytes up a party", sent / 1e3, "kB", "the vector alone", SIZE * BITS / 8e3, most_ratio=1.01),
    ]


def play() -> tuple[tuple[float, float], int]:
    """One round: processor seconds of all parties and of the coordinator, and the most bytes that a party sent."""
    shape, names = choose(PARTIES, 0.3, 1), [f"party-{i + 1}" for i in range(PARTIES)]
    vector = derive(7, "benchmarks", "secure").integers(0, 2**BITS, SIZE, dtype=np.uint32)
    spent, sent = {"party": 0.0, "coordinator": 0.0}, dict.fromkeys(names, 0)

    def timed(who: str, act: Callable[[], Any]) -> Any:
        began = process_time()
        result = act()
        spent[who] += process_time() - began
        return result

    about = SecureSum(tuple(names), shape, b"benchmark")
    parties = {name: timed("party", lambda name=name: SecAggParty(name, about)) for name in names}
    server = SecAggServer(about)
    advertised = {name: timed("party", party.advertise) for name, party in parties.items()}
    keys = timed("coordinator", lambda: server.keys(advertised))
    shared = {name: timed("party", lambda name=name: parties[name].share(keys[name])) for name in keys}
    mail = timed("coordinator", lambda: server.mail(shared))
    for name in mail:
        timed("party", lambda name=name: parties[name].collect(mail[name]))
    masked = {name: timed("party", lambda name=name: parties[name].mask(vector, BITS)) for name in names[GONE:]}
    survivors = timed("coordinator", lambda: server.survivors(masked))
    answers = {name: timed("party", lambda name=name: parties[name].unmask(survivors)) for name in survivors}
    total = timed("coordinator", lambda: added([masked[name] for name in survivors]))
    opened = timed("coordinator", lambda: server.unmasked(total, answers, BITS))
    if not np.array_equal(opened.total, vector * np.uint32(len(survivors))):
        raise AssertionError("The secure sum is not the sum.")
    for name in survivors:
        mailed = sum(map(len, shared[name].values()))
        sent[name] = len(advertised[name]) + mailed + pack(masked[name], BITS).size + len(answers[name])
    return (spent["party"], spent["coordinator"]), max(sent.values())


def added(vectors: list[np.ndarray]) -> np.ndarray:
    total = vectors[0].copy()
    for vector in vectors[1:]:
        np.add(total, vector, out=total)
    return total


def one_mask() -> Callable[[], None]:
    total, seed = np.zeros(SIZE, dtype=np.uint32), stream_key(7, "benchmarks", "mask")
    return lambda: add_mask(total, seed, BITS, 1)


def adding() -> float:
    total, vector = np.zeros(SIZE, dtype=np.uint32), np.ones(SIZE, dtype=np.uint32)
    return best_of({"adding": lambda: np.add(total, vector, out=total)}, 25)["adding"]


def shared(threshold: int = 26) -> None:
    """With nothing remembered from the last time."""
    _weights.cache_clear()
    shares = split(bytes(32), range(1, 51), threshold)
    joined({x: shares[x - 1] for x in range(10, 10 + threshold)}, threshold)
