"""Drains an Envoy before its pod stops: clients are moved to other endpoints, requests in flight finish, and then
Envoy may stop. Also waits until an Envoy is ready.

Runs beside Envoy in its container, as kubelet's preStop hook, so it imports little: no asyncio, no aiohttp. Envoy
exits immediately on SIGTERM, so everything that must happen before is done here. The start of a pod waits for
`wait_until_ready`, so that function does not even import http.client.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable, Mapping

from weft.model.proxy import ADMIN_PORT

_OWN = "http.own-admin"  # stat prefix of the listeners for probes and metrics
_OF_WORKER = re.compile(r"\.worker_[0-9]+\.[a-z_]+$")
_EVERY = 0.1  # seconds between two polls
_LONGEST_ANSWER = 100  # bytes of an error response that are shown


class Gone(Exception):
    """Envoy does not answer, or its answer cannot be used."""


class Active:
    """What is in progress, computed from Envoy's gauges: HTTP requests, other streams (connections that are not HTTP),
    and all connections."""

    def __init__(self, gauges: Mapping[str, int]) -> None:
        connections = sum(_values(gauges, "listener.", ".downstream_cx_active"))
        over_http = sum(_values(gauges, "http.", ".downstream_cx_active"))
        self.requests = sum(_values(gauges, "http.", ".downstream_rq_active"))
        self.requests -= gauges.get(f"{_OWN}.downstream_rq_active", 0)
        # A connection without HTTP counts as busy until it is closed.
        self.streams = max(0, connections - over_http)
        self.connections = max(0, connections - gauges.get(f"{_OWN}.downstream_cx_active", 0))

    @property
    def busy(self) -> bool:
        return bool(self.requests or self.streams)

    def __str__(self) -> str:
        return f"{self.requests} requests, {self.streams} other streams, {self.connections} connections"


def drain(
    *,
    least: float,
    until_idle: bool = False,
    gateway: bool = False,
    port: int = ADMIN_PORT,
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """Drain Envoy, and return when it may stop. That is after at least `least` seconds, in which clients are moved to
    other endpoints, and not before all requests and other streams have ended (with `until_idle`: not before all clients
    have disconnected). Only kubelet's grace period limits the waiting; but if Envoy does not answer, return at once.
    `gateway`: drain all listeners, because a gateway's listeners are not marked as inbound. `tell` is called with
    progress messages."""
    began = time.monotonic()
    try:
        _ask(port, "POST", f"/drain_listeners?{'' if gateway else 'inboundonly&'}graceful&skip_exit")
        time.sleep(max(0.0, began + least - time.monotonic()))
        last_message = ""
        while True:
            active = _active(port)
            if not (active.connections if until_idle else active.busy):
                return
            if str(active) != last_message:
                last_message = str(active)
                tell(f"waiting for {last_message}")
            time.sleep(_EVERY)
    except Gone as error:
        tell(str(error))


def wait_until_ready(*, most: float, port: int = ADMIN_PORT) -> str:
    """Wait until Envoy has its configuration and return "". After `most` seconds, return why Envoy is not ready."""
    end = time.monotonic() + most
    while not _is_ready(port):
        if time.monotonic() >= end:
            try:
                _ask(port, "GET", "/ready")
            except Gone as gone:
                return str(gone)
            break
        time.sleep(_EVERY / 4)
    return ""


def _is_ready(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(b"GET /ready HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            with connection.makefile("rb") as answer:
                return answer.readline().split()[1:2] == [b"200"]
    except OSError:
        return False


def _active(port: int) -> Active:
    body = _ask(port, "GET", "/stats?format=json&filter=downstream_(cx|rq)_active$")
    try:
        entries = json.loads(body)["stats"]
        return Active({each["name"]: each["value"] for each in entries if isinstance(each.get("value"), int)})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Gone(f"Envoy's stats have an unknown format: {error!r}") from error


def _ask(port: int, method: str, path: str) -> bytes:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise Gone(f"Envoy does not answer: {error or type(error).__name__}") from error
    finally:
        connection.close()
    if answer.status != 200:
        text = body[:_LONGEST_ANSWER].decode(errors="replace").strip()
        raise Gone(f"Envoy answered {method} {path} with {answer.status} {text}".rstrip())
    return body


def _values(gauges: Mapping[str, int], prefix: str, suffix: str) -> list[int]:
    """Return the values of all gauges with this prefix and suffix, except those of the admin API. Values per worker
    are skipped, because the gauge of their listener includes them."""
    return [
        value
        for name, value in gauges.items()
        if name.startswith(prefix)
        and name.endswith(suffix)
        and not name.startswith(f"{prefix}admin.")
        and not _OF_WORKER.search(name)
    ]
