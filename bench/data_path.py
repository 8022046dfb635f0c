"""Measures what a request costs through both sidecars, compared with two bare Envoys and with no proxy at all.

The method is described in `ways.py`. The sidecars with default settings, which use mutual TLS, are compared with a
bare pair with mutual TLS. A second server has mTLS disabled: it shows the cost of mTLS and is compared with a bare
pair without TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench import mesh
from bench.bare import plain_proxy, start_envoy, wait_open
from bench.certificates import Credentials, Root
from bench.figure import Effort, Figure, Say
from bench.process import Failed, start_client, start_server
from bench.ways import LOAD_CORE, PROXY_CORE, Round, Way, added, calm, measure, middle, on_core, pin
from weft.local.engine import Engine
from weft.local.pod import LocalPod

_APP, _DIRECT = 8080, 8081

_WEFT, _WEFT_PLAIN, _DIRECTLY = "weft", "weft, plaintext", "direct"
_BARE, _BARE_HTTP2, _BARE_MTLS = "bare", "bare, HTTP/2 between", "bare, mTLS and HTTP/2 between"


class Pair(msgspec.Struct, frozen=True):
    """Two bare Envoys: the port of each, and the protocol between them."""

    near: int  # port in the client's pod
    far: int  # port in the server's pod
    http2: bool = False
    mtls: bool = False


_PAIRS = {
    _BARE: Pair(9001, 9002),
    _BARE_HTTP2: Pair(9011, 9012, http2=True),
    _BARE_MTLS: Pair(9021, 9022, http2=True, mtls=True),
}
_UNSEEN = (_DIRECT, *(port for pair in _PAIRS.values() for port in (pair.near, pair.far)))


class Match(msgspec.Struct, frozen=True):
    """A way, the baseline way that it is compared with, and the highest acceptable ratio of p50 and of CPU time.
    None: no goal."""

    name: str
    way: str
    baseline: str
    p50: float | None
    cpu: float | None


_MATCHES = (
    Match("sidecars to bare pair, mTLS and HTTP/2 between", _WEFT, _BARE_MTLS, None, 1.20),
    Match("plaintext sidecars to bare pair", _WEFT_PLAIN, _BARE, 1.15, 1.15),
    Match("sidecars, mTLS to plaintext", _WEFT, _WEFT_PLAIN, None, None),
    Match("bare pair, HTTP/2 between, mTLS to plaintext", _BARE_MTLS, _BARE_HTTP2, None, None),
)


def run(effort: Effort, say: Say) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as directory:
        rounds = asyncio.run(_measure(Path(directory), effort.of(40, 6), say))
    return [
        *_compare("at 1,000 req/s", [steady for steady, _ in rounds]),
        *_compare("at saturation", [flat_out for _, flat_out in rounds]),
        *_throughput([flat_out for _, flat_out in rounds]),
    ]


def _compare(when: str, rounds: list[Round]) -> list[Figure]:
    def mid(name: str, what: str) -> float:
        return calm(rounds, name, what) * 1e6

    def more(name: str, than: str, what: str) -> float:
        return mid(name, what) - mid(than, what)

    figures = []
    for match in _MATCHES:
        for label, what, goal in (("p50", "p50", match.p50), ("CPU per request", "cpu", match.cpu)):
            ratio = mid(match.way, what) / mid(match.baseline, what)
            name = f"{label} {when}, {match.name}"
            figures.append(Figure(name, ratio, "×", goal, 1))
            if goal is not None:
                # Only the calmer half of the rounds counts for the goal. The same ratio over all rounds shows the
                # effect of that choice.
                over_all = middle(rounds, match.way, what) / middle(rounds, match.baseline, what)
                figures.append(Figure(f"{name}, over all rounds", over_all, "×", None, 1))
    return [
        *figures,
        Figure(f"p50 {when}, through both sidecars", mid(_WEFT, "p50"), "µs", None, mid(_BARE_MTLS, "p50")),
        Figure(f"p99 {when}, through both sidecars", mid(_WEFT, "p99"), "µs", None, mid(_BARE_MTLS, "p99")),
        Figure(f"CPU per request {when}, both sidecars", mid(_WEFT, "cpu"), "µs", None, mid(_BARE_MTLS, "cpu")),
        Figure(f"p50 {when}, both plaintext sidecars", mid(_WEFT_PLAIN, "p50"), "µs", None, mid(_BARE, "p50")),
        Figure(f"CPU per request {when}, plaintext sidecars", mid(_WEFT_PLAIN, "cpu"), "µs", None, mid(_BARE, "cpu")),
        Figure(f"p50 {when}, bare pair, HTTP/2 between", mid(_BARE_HTTP2, "p50"), "µs", None, mid(_BARE, "p50")),
        Figure(f"CPU per request {when}, bare pair, HTTP/2", mid(_BARE_HTTP2, "cpu"), "µs", None, mid(_BARE, "cpu")),
        Figure(f"p50 {when}, direct", mid(_DIRECTLY, "p50"), "µs"),
        Figure(
            f"p50 {when}, added by both sidecars",
            more(_WEFT, _DIRECTLY, "p50"),
            "µs",
            None,
            more(_BARE_MTLS, _DIRECTLY, "p50"),
        ),
        *(
            Figure(
                f"{label} {when}, added by mTLS",
                added(rounds, _WEFT, _WEFT_PLAIN, what) * 1e6,
                "µs",
                None,
                added(rounds, _BARE_MTLS, _BARE_HTTP2, what) * 1e6,
            )
            for label, what in (("p50", "p50"), ("CPU per request", "cpu"))
        ),
    ]


def _throughput(rounds: list[Round]) -> list[Figure]:
    rates = {name: calm(rounds, name, "rate") for name in rounds[0]}
    return [
        Figure("requests/s, both sidecars on one core", rates[_WEFT], "/s", None, rates[_BARE_MTLS]),
        Figure("requests/s, both plaintext sidecars on one core", rates[_WEFT_PLAIN], "/s", None, rates[_BARE]),
        Figure("requests/s, bare pair on one core, HTTP/2 between", rates[_BARE_HTTP2], "/s", None, rates[_BARE]),
        Figure("requests/s, direct", rates[_DIRECTLY], "/s"),
    ]


async def _measure(directory: Path, rounds: int, say: Say) -> list[tuple[Round, Round]]:
    objects = directory / "objects"
    objects.mkdir()
    mesh.save(
        objects / "pods.yaml",
        *(
            mesh.workload(name, excludeInboundPorts=_UNSEEN, excludeOutboundPorts=_UNSEEN)
            for name in ("client", "server", "open")
        ),
        mesh.service("server", 80, _APP),
        mesh.service("open", 80, _APP),
        mesh.peer_authentication("open", "DISABLE"),
    )
    with on_core(LOAD_CORE):
        async with mesh.running(objects) as engine:
            await mesh.until_ready(engine, 3)
            client, server, without = (engine.find_pod(name) for name in ("client", "server", "open"))
            with (
                start_server(server.namespace, LOAD_CORE, [_APP, _DIRECT]),
                start_server(without.namespace, LOAD_CORE, [_APP]),
                start_client(client.namespace, LOAD_CORE) as load,
                contextlib.ExitStack() as stack,
            ):
                ways = [
                    _through_sidecars(_WEFT, engine, "server"),
                    _through_sidecars(_WEFT_PLAIN, engine, "open"),
                    Way(_DIRECTLY, str(server.plan.addresses.ipv4), _DIRECT),
                ]
                for way in ways[:2]:
                    await mesh.until_answered(client, (way.address, way.port), way.host)
                await _check_tls(client, {"server": True, "open": False})
                root = Root(directory)
                credentials = (root.credentials("near"), root.credentials("far"))
                for name, pair in _PAIRS.items():
                    pids = stack.enter_context(_bare_pair(engine, pair, credentials, directory))
                    ways.append(Way(name, "127.0.0.1", pair.near, pids))
                return await asyncio.to_thread(measure, load, ways, rounds, say)


async def _check_tls(client: LocalPod, wanted: dict[str, bool]) -> None:
    """Raise `Failed` unless Envoy's stats show HTTP/2 to each server, and TLS handshakes exactly where `wanted` is
    True. Without a handshake, the mTLS figures would be meaningless."""
    assert client.proxy is not None
    stats = await client.proxy.admin.stats(r"^cluster\.outbound.*\.(ssl\.handshake|upstream_cx_http2_total)$")
    for name, is_tls in wanted.items():
        of_cluster = {stat: count for stat, count in stats.values.items() if f"|{name}.bench." in stat}
        handshakes = sum(count for stat, count in of_cluster.items() if stat.endswith("handshake"))
        if bool(handshakes) != is_tls or not any(stat.endswith("http2_total") for stat in of_cluster):
            expected = f"HTTP/2 {'with' if is_tls else 'without'} TLS"
            raise Failed(f"calls to {name} must use {expected}, but Envoy's stats are {of_cluster}")


def _through_sidecars(name: str, engine: Engine, server: str) -> Way:
    pids = tuple(pin(engine.find_pod(each), PROXY_CORE) for each in ("client", server))
    return Way(name, mesh.service_address(engine, server), 80, pids, server)


@contextlib.contextmanager
def _bare_pair(
    engine: Engine, pair: Pair, credentials: tuple[Credentials, ...], directory: Path
) -> Iterator[tuple[int, ...]]:
    client, server = engine.find_pod("client"), engine.find_pod("server")
    address = str(server.plan.addresses.ipv4)
    caller, called = credentials if pair.mtls else (None, None)
    near, far, http2 = pair.near, pair.far, pair.http2
    first = plain_proxy(("127.0.0.1", near), (address, far), http2_in=False, http2_out=http2, tls_out=caller)
    second = plain_proxy(("0.0.0.0", far), ("127.0.0.1", _APP), http2_in=http2, http2_out=False, tls_in=called)
    with (
        start_envoy(f"far-{far}", second, namespace=server.namespace, core=PROXY_CORE, directory=directory) as behind,
        start_envoy(f"near-{near}", first, namespace=client.namespace, core=PROXY_CORE, directory=directory) as before,
    ):
        wait_open(server.namespace, ("127.0.0.1", far))
        wait_open(client.namespace, ("127.0.0.1", near))
        yield before.pid, behind.pid
