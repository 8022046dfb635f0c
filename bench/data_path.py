"""What a request costs on its way through both sidecars, next to two bare Envoys and to no proxy at all.

All ways lead between the same two pods, and every round takes each way once, in an order that turns, so that what
disturbs the machine disturbs all of them. Figures are medians over the calmer half of a way's rounds: those in which
its proxies, by the kernel's count, waited least for their core. The proxies have one core, the load and the server the
other; CPU time is the kernel's count for the proxies alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import msgspec

from bench import mesh
from bench.bare import plain_proxy, start_envoy, wait_open
from bench.figure import Effort, Figure, Say
from bench.process import Running, scheduled, start_client, start_server
from weft.local.engine import Engine

_PROXY_CORE, _LOAD_CORE = 0, 1
_APP, _DIRECT = 8080, 8081
# Listened on by the bare pairs: in the client's pod, in the server's pod.
_PAIRS = {"bare": (9001, 9002), "bare, HTTP/2 between": (9011, 9012)}
_UNSEEN = (_DIRECT, *(port for pair in _PAIRS.values() for port in pair))
_CONNECTIONS = 32
_RATE = 1000
_RATE_SECONDS, _FLAT_OUT_SECONDS = 0.5, 0.4
# Before the first round, so that every connection on the way is open and every cache is warm.
_WARM_SECONDS = 0.3
_WITHIN = 1.15


class Way(msgspec.Struct, frozen=True):
    name: str
    address: str
    port: int
    proxies: tuple[int, ...] = ()  # process ids


class Cost(msgspec.Struct, frozen=True):
    """Of one way in one round. Seconds."""

    p50: float
    p99: float
    cpu: float  # of all proxies on the way, per request
    waited: float  # for their core, all proxies, per request
    rate: float  # requests per second


def run(effort: Effort, say: Say) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as directory:
        rounds = asyncio.run(_measure(Path(directory), effort.of(40, 6), say))
    return [
        *_compare("at 1,000 req/s", [steady for steady, _ in rounds]),
        *_compare("at saturation", [flat_out for _, flat_out in rounds]),
        *_throughput([flat_out for _, flat_out in rounds]),
    ]


Round = dict[str, Cost]


def _compare(when: str, rounds: list[Round]) -> list[Figure]:
    bare, weft, direct, http2 = "bare", "weft", "direct", "bare, HTTP/2 between"

    def mid(name: str, what: str) -> float:
        return _calm(rounds, name, what) * 1e6

    def ratio(what: str) -> float:
        return mid(weft, what) / mid(bare, what)

    def plain(what: str) -> float:
        """Over all rounds: what the choice of the calmer half makes of the figure must be there to see."""
        mids = (median(getattr(each[name], what) for each in rounds) for name in (weft, bare))
        return float(next(mids) / next(mids))

    return [
        Figure(f"p50 {when}, sidecars to bare pair", ratio("p50"), "×", _WITHIN, 1),
        Figure(f"p50 {when}, sidecars to bare pair, over all rounds", plain("p50"), "×", None, 1),
        Figure(f"CPU per request {when}, sidecars to bare pair", ratio("cpu"), "×", _WITHIN, 1),
        Figure(f"CPU per request {when}, sidecars to bare pair, over all rounds", plain("cpu"), "×", None, 1),
        Figure(f"p50 {when}, through both sidecars", mid(weft, "p50"), "µs", None, mid(bare, "p50")),
        Figure(f"p50 {when}, direct", mid(direct, "p50"), "µs"),
        Figure(
            f"p50 {when}, added by both sidecars",
            mid(weft, "p50") - mid(direct, "p50"),
            "µs",
            None,
            mid(bare, "p50") - mid(direct, "p50"),
        ),
        Figure(f"p99 {when}, through both sidecars", mid(weft, "p99"), "µs", None, mid(bare, "p99")),
        Figure(f"CPU per request {when}, both sidecars", mid(weft, "cpu"), "µs", None, mid(bare, "cpu")),
        Figure(f"p50 {when}, bare pair, HTTP/2 between", mid(http2, "p50"), "µs", None, mid(bare, "p50")),
        Figure(f"CPU per request {when}, bare pair, HTTP/2 between", mid(http2, "cpu"), "µs", None, mid(bare, "cpu")),
    ]


def _throughput(rounds: list[Round]) -> list[Figure]:
    rates = {name: _calm(rounds, name, "rate") for name in rounds[0]}
    return [
        Figure("requests/s, both sidecars on one core", rates["weft"], "/s", None, rates["bare"]),
        Figure("requests/s, direct", rates["direct"], "/s"),
    ]


def _calm(rounds: list[Round], name: str, what: str) -> float:
    calmest = sorted((each[name] for each in rounds), key=lambda cost: cost.waited)[: (len(rounds) + 1) // 2]
    return float(median(getattr(cost, what) for cost in calmest))


async def _measure(directory: Path, rounds: int, say: Say) -> list[tuple[Round, Round]]:
    objects = directory / "objects"
    objects.mkdir()
    mesh.save(
        objects / "pods.yaml",
        mesh.workload("client", excludeInboundPorts=_UNSEEN, excludeOutboundPorts=_UNSEEN),
        mesh.workload("server", excludeInboundPorts=_UNSEEN, excludeOutboundPorts=_UNSEEN),
        mesh.service("server", 80, _APP),
    )
    with on_core(_LOAD_CORE):
        async with mesh.running(objects) as engine:
            await mesh.until_ready(engine, 2)
            client, server = engine.find_pod("client"), engine.find_pod("server")
            with (
                start_server(server.namespace, _LOAD_CORE, [_APP, _DIRECT]),
                start_client(client.namespace, _LOAD_CORE) as load,
                contextlib.ExitStack() as stack,
            ):
                ways = [_weft(engine), Way("direct", str(server.plan.addresses.ipv4), _DIRECT)]
                for name, (near, far) in _PAIRS.items():
                    pids = stack.enter_context(_bare_pair(engine, name, near, far, directory))
                    ways.append(Way(name, "127.0.0.1", near, pids))
                say(f"{len(ways)} ways, {rounds} rounds: {', '.join(way.name for way in ways)}")
                for way in ways:
                    await asyncio.to_thread(_drive, load, way, 0, _WARM_SECONDS)
                return [await asyncio.to_thread(_round, load, ways, number, say) for number in range(rounds)]


def _weft(engine: Engine) -> Way:
    pids = tuple(pod.proxy.pid for pod in engine.pods() if pod.proxy is not None)
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {_PROXY_CORE})
    return Way("weft", mesh.service_address(engine, "server"), 80, pids)


@contextlib.contextmanager
def _bare_pair(engine: Engine, name: str, near: int, far: int, directory: Path) -> Iterator[tuple[int, ...]]:
    client, server = engine.find_pod("client"), engine.find_pod("server")
    address = str(server.plan.addresses.ipv4)
    http2 = "HTTP/2" in name
    first = plain_proxy(("127.0.0.1", near), (address, far), http2_in=False, http2_out=http2)
    second = plain_proxy(("0.0.0.0", far), ("127.0.0.1", _APP), http2_in=http2, http2_out=False)
    with (
        start_envoy(f"far-{far}", second, namespace=server.namespace, core=_PROXY_CORE, directory=directory) as behind,
        start_envoy(f"near-{near}", first, namespace=client.namespace, core=_PROXY_CORE, directory=directory) as before,
    ):
        wait_open(server.namespace, ("127.0.0.1", far))
        wait_open(client.namespace, ("127.0.0.1", near))
        yield before.pid, behind.pid


def _round(load: Running, ways: list[Way], number: int, say: Say) -> tuple[Round, Round]:
    steady: Round = {}
    flat_out: Round = {}
    turned = ways[number % len(ways) :] + ways[: number % len(ways)]
    for way in turned:
        steady[way.name] = _drive(load, way, _RATE, _RATE_SECONDS)
        flat_out[way.name] = _drive(load, way, 0, _FLAT_OUT_SECONDS)
    if number % 10 == 9:
        say(f"round {number + 1}: {flat_out['weft'].cpu * 1e6:.0f} µs, bare {flat_out['bare'].cpu * 1e6:.0f} µs of CPU")
    return steady, flat_out


def _drive(load: Running, way: Way, rate: int, seconds: float) -> Cost:
    before = [scheduled(pid) for pid in way.proxies]
    got = load.ask(
        {
            "address": way.address,
            "port": way.port,
            "host": "server",
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
