"""Ways through proxies, and what a request costs on each: all from one pod, in rounds that take every way once.

The order turns from round to round, so that what disturbs the machine disturbs all of them. Figures are medians over
the calmer half of a way's rounds: those in which its proxies, by the kernel's count, waited least for their core. CPU
time is the kernel's count for the proxies alone, which have one core; the load and the servers have the other.
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
# Before the first round, so that every connection on the way is open and every cache is warm.
_WARM_SECONDS = 0.3


class Way(msgspec.Struct, frozen=True):
    name: str
    address: str
    port: int
    proxies: tuple[int, ...] = ()  # process ids
    host: str = "server"


class Cost(msgspec.Struct, frozen=True):
    """Of one way in one round. Seconds."""

    p50: float
    p99: float
    cpu: float  # of all proxies on the way, per request
    waited: float  # for their core, all proxies, per request
    rate: float  # requests per second


Round = dict[str, Cost]


def measure(load: Running, ways: list[Way], rounds: int, say: Say) -> list[tuple[Round, Round]]:
    """Each round twice: at 1,000 requests a second, and as many as go."""
    say(f"{len(ways)} ways, {rounds} rounds: {', '.join(way.name for way in ways)}")
    for way in ways:
        _drive(load, way, 0, _WARM_SECONDS)
    return [_round(load, ways, number, say) for number in range(rounds)]


def calm(rounds: list[Round], name: str, what: str) -> float:
    calmest = sorted((each[name] for each in rounds), key=lambda cost: cost.waited)[: (len(rounds) + 1) // 2]
    return float(median(getattr(cost, what) for cost in calmest))


def added(rounds: list[Round], name: str, than: str, what: str) -> float:
    """Round by round, in the half in which both had the calmest: a small difference drowns in how rounds differ."""
    calmest = sorted(rounds, key=lambda each: each[name].waited + each[than].waited)[: (len(rounds) + 1) // 2]
    return float(median(getattr(each[name], what) - getattr(each[than], what) for each in calmest))


def middle(rounds: list[Round], name: str, what: str) -> float:
    return float(median(getattr(each[name], what) for each in rounds))


def pin(pod: LocalPod, core: int) -> int:
    """The process id of the pod's proxy, which has this core from now on."""
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
    """This process and what it starts; its own threads that run already stay where they are."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
