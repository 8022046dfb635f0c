"""Measures what a TLS handshake costs a sidecar, full and resumed, compared with a bare Envoy and with a connection
without TLS.

The client does handshakes with the proxy of a server that accepts only mutual TLS (P-256, TLS 1.3) and sends no
requests. The proxy runs on one core, the client on the other. The main figure is the proxy's CPU time per handshake,
from the kernel's scheduler statistics. The rate that one core could reach follows from it, whereas the measured rate
also depends on the client's speed. Rounds alternate between the proxies, and figures are medians over the calmer
half of the rounds, as in `data_path.py`.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from statistics import median

import msgspec

from bench import mesh
from bench.bare import plain_proxy, start_envoy, wait_open
from bench.certificates import Credentials, Root
from bench.figure import Effort, Figure, Say
from bench.process import Failed, Running, scheduled
from bench.ways import on_core, pin
from weft.local.identities import Trust
from weft.model.proxy import PROXY_GID

_PROXY_CORE, _LOAD_CORE = 0, 1
_APP, _BARE = 8080, 9001
_PARALLEL = 8
_CLIENT = str(Path(__file__).with_name("handshake_client.py"))


class Way(msgspec.Struct, frozen=True):
    name: str
    address: str
    port: int
    alpn: tuple[str, ...]
    proxy: int  # process id of the proxy
    takes: tuple[str, ...]  # kinds of connection to measure: full, resumed, without TLS


class Cost(msgspec.Struct, frozen=True):
    """The cost of one handshake, in seconds of the proxy, and the rate of the run."""

    cpu: float
    waited: float  # time that the proxy was ready to run and waited for its core
    rate: float  # handshakes per second that the client reached


Round = dict[tuple[str, str], Cost]  # by name of the way, and kind of connection


def run(effort: Effort, say: Say) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as directory:
        rounds = asyncio.run(_measure(Path(directory), effort.of(12, 3), effort.of(600, 200), say))
    figures = []
    for kind in ("full", "resumed"):
        weft, bare = _calm(rounds, "sidecar", kind, "cpu"), _calm(rounds, "bare", kind, "cpu")
        figures += [
            Figure(f"CPU per {kind} handshake, sidecar", weft * 1e6, "µs", None, bare * 1e6),
            Figure(f"{kind} handshakes/s that one core of a sidecar can take", 1 / weft, "/s", None, 1 / bare),
            Figure(f"{kind} handshakes/s that the client reached", _calm(rounds, "sidecar", kind, "rate"), "/s"),
        ]
    plain, bare = _calm(rounds, "open sidecar", "without TLS", "cpu"), _calm(rounds, "open bare", "without TLS", "cpu")
    return [*figures, Figure("CPU per connection without TLS, sidecar", plain * 1e6, "µs", None, bare * 1e6)]


def _calm(rounds: list[Round], name: str, kind: str, what: str) -> float:
    costs = sorted((round_[name, kind] for round_ in rounds), key=lambda cost: cost.waited)
    return float(median(getattr(cost, what) for cost in costs[: (len(costs) + 1) // 2]))


async def _measure(directory: Path, rounds: int, count: int, say: Say) -> list[Round]:
    objects = directory / "objects"
    objects.mkdir()
    mesh.save(
        objects / "pods.yaml",
        *(
            mesh.workload(name, excludeInboundPorts=(_BARE, _BARE + 1), excludeOutboundPorts=())
            for name in ("client", "server", "open")
        ),
        mesh.service("server", 80, _APP),
        mesh.service("open", 80, _APP),
        mesh.peer_authentication("server", "STRICT"),
        mesh.peer_authentication("open", "DISABLE"),
    )
    root = Root(directory)
    client, own = root.credentials("client"), root.credentials("bare")
    with on_core(_LOAD_CORE):
        async with mesh.running(objects, trust=Trust(ca=root.save_as_ca(directory / "ca"))) as engine:
            await mesh.until_ready(engine, 3)
            caller, server, without = (engine.find_pod(name) for name in ("client", "server", "open"))
            address, place = str(server.plan.addresses.ipv4), server.namespace
            far = plain_proxy(("0.0.0.0", _BARE), ("127.0.0.1", _APP), http2_in=True, http2_out=False, tls_in=own)
            bare = plain_proxy(("0.0.0.0", _BARE + 1), ("127.0.0.1", _APP), http2_in=True, http2_out=False)
            with (
                start_envoy("tls", far, namespace=place, core=_PROXY_CORE, directory=directory) as tls,
                start_envoy("plain", bare, namespace=place, core=_PROXY_CORE, directory=directory) as plain,
                # The client has the proxy's group id, so its connections are not intercepted: it acts as the calling
                # proxy.
                Running([sys.executable, _CLIENT], namespace=caller.namespace, core=_LOAD_CORE, gid=PROXY_GID) as load,
            ):
                wait_open(place, ("127.0.0.1", _BARE))
                wait_open(place, ("127.0.0.1", _BARE + 1))
                ways = [
                    Way("sidecar", address, _APP, ("istio", "h2"), pin(server, _PROXY_CORE), ("full", "resumed")),
                    Way("bare", address, _BARE, ("h2",), tls.pid, ("full", "resumed")),
                    Way(
                        "open sidecar",
                        str(without.plan.addresses.ipv4),
                        _APP,
                        (),
                        pin(without, _PROXY_CORE),
                        ("without TLS",),
                    ),
                    Way("open bare", address, _BARE + 1, (), plain.pid, ("without TLS",)),
                ]
                say(f"{rounds} rounds of {count} handshakes: {', '.join(way.name for way in ways)}")
                await asyncio.to_thread(_round, load, ways, client, 20, 0)  # warms up caches
                return [await asyncio.to_thread(_round, load, ways, client, count, number) for number in range(rounds)]


def _round(load: Running, ways: list[Way], credentials: Credentials, count: int, number: int) -> Round:
    turned = ways[number % len(ways) :] + ways[: number % len(ways)]
    return {(way.name, kind): _shake(load, way, kind, credentials, count) for way in turned for kind in way.takes}


def _shake(load: Running, way: Way, kind: str, credentials: Credentials, count: int) -> Cost:
    before = scheduled(way.proxy)
    got = load.ask(
        {
            "address": way.address,
            "port": way.port,
            "name": "server",
            "tls": kind != "without TLS",
            "resumed": kind == "resumed",
            "chain": str(credentials.chain),
            "key": str(credentials.key),
            "alpn": way.alpn,
            "count": count,
            "parallel": _PARALLEL,
        }
    )
    after = scheduled(way.proxy)
    if got["resumed"] != (got["handshakes"] if kind == "resumed" else 0):
        raise Failed(
            f"{got['resumed']} of {got['handshakes']} handshakes with {way.name} were resumed; expected kind: {kind}"
        )
    ran, waited = ((late - early) / count for early, late in zip(before, after, strict=True))
    return Cost(ran, waited, got["handshakes"] / got["seconds"])
