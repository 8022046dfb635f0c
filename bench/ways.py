"""Measures what a request costs on several *ways*: paths through different proxies, all from one pod, in rounds that
take every way once.

The order of the ways rotates from round to round, so that disturbances of the machine affect all ways. Figures are
medians over the calmer half of a way's rounds: the rounds in which its proxies waited least for their core, by the
kernel's scheduler statistics. CPU time is that of the proxies alone, from the same statistics. The proxies run on
one core, the client and the servers on the other.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import msgspec

from bench.figure import Say
from bench.process import Failed, Running, scheduled
from weft.local.pod import LocalPod

PROXY_CORE, LOAD_CORE = 0, 1
_CONNECTIONS = 32
_RATE = 1000
_RATE_SECONDS, _FLAT_OUT_SECONDS = 0.5, 0.4
# Duration of the requests before the first round, which open all connections and fill all caches.
_WARM_SECONDS = 0.3


class Way(msgspec.Struct, frozen=True):
    name: str
    address: str
    port: int
    proxies: tuple[int, ...] = ()  # process ids of the proxies
    host: str = "server"


class Cost(msgspec.Struct, frozen=True):
    """The cost of one way in one round. Times are in seconds."""

    p50: float
    p99: float
    cpu: float  # CPU time of all proxies of the way, per request
    waited: float  # time that the way's proxies were ready to run and waited for their core, per request
    rate: float  # requests per second


Round = dict[str, Cost]


def measure(load: Running, ways: list[Way], rounds: int, say: Say) -> list[tuple[Round, Round]]:
    """Run the rounds and return two results for each: at 1,000 requests per second, and at saturation."""
    say(f"{len(ways)} ways, {rounds} rounds: {', '.join(way.name for way in ways)}")
    for way in ways:
        _drive(load, way, 0, _WARM_SECONDS)
    return [_round(load, ways, number, say) for number in range(rounds)]


def calm(rounds: list[Round], name: str, what: str) -> float:
    calmest = sorted((each[name] for each in rounds), key=lambda cost: cost.waited)[: (len(rounds) + 1) // 2]
    return float(median(getattr(cost, what) for cost in calmest))


def added(rounds: list[Round], name: str, than: str, what: str) -> float:
    """Return the median, over rounds, of the difference between the two ways. Only the half of the rounds in which
    the proxies of both waited least counts. Differences within a round are used because rounds vary more than the
    ways differ."""
    calmest = sorted(rounds, key=lambda each: each[name].waited + each[than].waited)[: (len(rounds) + 1) // 2]
    return float(median(getattr(each[name], what) - getattr(each[than], what) for each in calmest))


def middle(rounds: list[Round], name: str, what: str) -> float:
    return float(median(getattr(each[name], what) for each in rounds))


def pin(pod: LocalPod, core: int) -> int:
    """Pin all threads of the pod's proxy to the core and return the proxy's process id."""
    if pod.proxy is None:
        raise Failed(f"{pod.plan.name} has no proxy")
    for task in Path(f"/proc/{pod.proxy.pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), {core})
    return pod.proxy.pid


def _round(load: Running, ways: list[Way], number: int, say: Say) -> tuple[Round, Round]:
    steady: Round = {}
    flat_out: Round = {}
    turned = ways[number % len(ways) :] + ways[: number % len(ways)]
    for way in turned:
        steady[way.name] = _drive(load, way, _RATE, _RATE_SECONDS)
        flat_out[way.name] = _drive(load, way, 0, _FLAT_OUT_SECONDS)
    if number % 10 == 9:
        costs = ", ".join(f"{name} {cost.cpu * 1e6:.0f}" for name, cost in sorted(flat_out.items()) if cost.cpu)
        say(f"round {number + 1}, µs of CPU per request: {costs}")
    return steady, flat_out


def _drive(load: Running, way: Way, rate: int, seconds: float) -> Cost:
    before = [scheduled(pid) for pid in way.proxies]
    got = load.ask(
        {
            "address": way.address,
            "port": way.port,
            "host": way.host,
            "connections": _CONNECTIONS,
            "rate": rate,
            "seconds": seconds,
        }
    )
    after = [scheduled(pid) for pid in way.proxies]
    ran, waited = (
        sum(late[kind] - early[kind] for early, late in zip(before, after, strict=True)) / got["requests"]
        for kind in (0, 1)
    )
    return Cost(got["p50"], got["p99"], ran, waited, got["requests"] / got["seconds"])


@contextlib.contextmanager
def on_core(core: int) -> Iterator[None]:
    """Pin the calling thread, and the processes and threads that it starts, to the core for the duration of the
    block. Other running threads of this process are not moved."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
