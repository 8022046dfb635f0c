"""Measures requests per second and core through one sidecar and through both, compared with nginx, HAProxy and a
bare Envoy as plain proxies: HTTP/1.1 in and out, without any checks or changes of requests.

All plain proxies run in the caller's pod, and all proxies use the same core, one after the other. With one sidecar,
the server has no proxy. With both sidecars, the call uses mutual TLS and HTTP/2 between the sidecars, which the
plain proxies do not have to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import mesh
from bench.bare import plain_proxy, start_envoy, wait_open
from bench.figure import Effort, Figure, Say
from bench.process import Failed, Running, start_client, start_server
from bench.ways import LOAD_CORE, PROXY_CORE, Round, Way, calm, measure, on_core, pin
from weft.local.engine import Engine
from weft.model.proxy import PROXY_GID
from weft.netns.namespace import NetworkNamespace

_APP, _DIRECT = 8080, 8081
_ENVOY_PORT, _NGINX_PORT, _HAPROXY_PORT = 9001, 9002, 9003
_UNSEEN = (_DIRECT, _ENVOY_PORT, _NGINX_PORT, _HAPROXY_PORT)
_SIDECAR, _PAIR, _DIRECTLY = "one sidecar", "both sidecars", "direct"
_ENVOY, _NGINX, _HAPROXY = "bare Envoy", "nginx", "HAProxy"
_PLAIN = (_ENVOY, _NGINX, _HAPROXY)

# A single nginx process is also the worker. It keeps connections open for as long as the client does.
_NGINX_CONFIG = """
daemon off; master_process off; worker_processes 1;
pid {directory}/nginx.pid; error_log stderr error;
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 1000000000;
  client_body_temp_path {directory}; proxy_temp_path {directory}; fastcgi_temp_path {directory};
  uwsgi_temp_path {directory}; scgi_temp_path {directory};
  upstream next {{ server {address}:{upstream}; keepalive 64; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://next; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host;
    }}
  }}
}}
"""
_HAPROXY_CONFIG = """
global
  nbthread 1
  maxconn 1024
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  http-reuse always
frontend in
  bind 127.0.0.1:{port}
  default_backend next
backend next
  server next {address}:{upstream}
"""


def run(effort: Effort, say: Say) -> list[Figure]:
    programs = {name: shutil.which(name, path="/usr/sbin:/usr/bin:/usr/local/sbin") for name in ("nginx", "haproxy")}
    if missing := [name for name, path in programs.items() if path is None]:
        raise Failed(f"{', '.join(missing)} not paths: apt-get install nginx-light haproxy, or run `make bench`")
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as directory:
        paths = {name: str(path) for name, path in programs.items()}
        rounds = asyncio.run(_measure(Path(directory), paths, effort.of(40, 6), say))
    steady, flat_out = [each for each, _ in rounds], [each for _, each in rounds]
    return [*_throughput(flat_out), *_ratios(flat_out), *_latency(steady)]


def _throughput(rounds: list[Round]) -> list[Figure]:
    return [
        *(
            Figure(f"requests/s and core, {name}", 1 / calm(rounds, name, "cpu"), "/s")
            for name in (_SIDECAR, _PAIR, *_PLAIN)
        ),
        *(
            Figure(f"requests/s, {name} on one core", calm(rounds, name, "rate"), "/s")
            for name in (_SIDECAR, _PAIR, *_PLAIN, _DIRECTLY)
        ),
    ]


def _ratios(rounds: list[Round]) -> list[Figure]:
    return [
        Figure(
            f"CPU per request, {way} to {other}", calm(rounds, way, "cpu") / calm(rounds, other, "cpu"), "×", None, 1
        )
        for way in (_SIDECAR, _PAIR)
        for other in _PLAIN
    ]


def _latency(rounds: list[Round]) -> list[Figure]:
    return [
        Figure(f"p50 at 1,000 req/s, {name}", calm(rounds, name, "p50") * 1e6, "µs")
        for name in (_SIDECAR, _PAIR, *_PLAIN, _DIRECTLY)
    ]


async def _measure(directory: Path, programs: dict[str, str], rounds: int, say: Say) -> list[tuple[Round, Round]]:
    objects = directory / "objects"
    objects.mkdir()
    lone = mesh.workload("lone", excludeInboundPorts=_UNSEEN)
    lone["metadata"]["annotations"] = {"sidecar.istio.io/inject": "false"}
    mesh.save(
        objects / "pods.yaml",
        *(
            mesh.workload(name, excludeInboundPorts=_UNSEEN, excludeOutboundPorts=_UNSEEN)
            for name in ("client", "server")
        ),
        lone,
        mesh.service("server", 80, _APP),
        mesh.service("lone", 80, _APP),
    )
    with on_core(LOAD_CORE):
        async with mesh.running(objects) as engine:
            await mesh.until_ready(engine, 3)
            client, server, alone = (engine.find_pod(name) for name in ("client", "server", "lone"))
            with (
                start_server(server.namespace, LOAD_CORE, [_APP]),
                start_server(alone.namespace, LOAD_CORE, [_APP, _DIRECT]),
                start_client(client.namespace, LOAD_CORE) as load,
                contextlib.ExitStack() as stack,
            ):
                sidecar = pin(client, PROXY_CORE)
                ways = [
                    Way(_SIDECAR, mesh.service_address(engine, "lone"), 80, (sidecar,), "lone"),
                    Way(
                        _PAIR, mesh.service_address(engine, "server"), 80, (sidecar, pin(server, PROXY_CORE)), "server"
                    ),
                    Way(_DIRECTLY, str(alone.plan.addresses.ipv4), _DIRECT),
                ]
                for way in ways[:2]:
                    await mesh.until_answered(client, (way.address, way.port), way.host)
                ways += [stack.enter_context(each) for each in _plain(engine, programs, directory)]
                return await asyncio.to_thread(measure, load, ways, rounds, say)


def _plain(
    engine: Engine, programs: dict[str, str], directory: Path
) -> Iterator[contextlib.AbstractContextManager[Way]]:
    here = engine.find_pod("client").namespace
    address = str(engine.find_pod("lone").plan.addresses.ipv4)
    values = {"address": address, "upstream": _DIRECT, "directory": directory}
    envoy = plain_proxy(("127.0.0.1", _ENVOY_PORT), (address, _DIRECT), http2_in=False, http2_out=False)
    nginx, haproxy = directory / "nginx.conf", directory / "haproxy.cfg"
    nginx.write_text(_NGINX_CONFIG.format(port=_NGINX_PORT, **values))
    haproxy.write_text(_HAPROXY_CONFIG.format(port=_HAPROXY_PORT, **values))
    started = (
        (_ENVOY, _ENVOY_PORT, start_envoy("plain", envoy, namespace=here, core=PROXY_CORE, directory=directory)),
        (_NGINX, _NGINX_PORT, _start([programs["nginx"], "-c", str(nginx)], here, directory / "nginx.log")),
        (_HAPROXY, _HAPROXY_PORT, _start([programs["haproxy"], "-db", "-f", str(haproxy)], here, directory / "ha.log")),
    )
    for name, port, running in started:
        yield _listening(name, port, running, here)


def _start(argv: list[str], namespace: NetworkNamespace, log: Path) -> Running:
    return Running(argv, namespace=namespace, core=PROXY_CORE, gid=PROXY_GID, log=log)


@contextlib.contextmanager
def _listening(name: str, port: int, running: Running, namespace: NetworkNamespace) -> Iterator[Way]:
    with running:
        wait_open(namespace, ("127.0.0.1", port))
        yield Way(name, "127.0.0.1", port, (running.pid,))
