"""A client of Envoy's admin API, used from outside the pod: readiness, stats, config dumps, draining, log levels.

The caller passes a function that opens a socket which can reach the admin port, usually in a pod's network
namespace. aiohttp accepts such a function, keeps connections alive between polls and decodes chunked responses, so
weft needs no HTTP client of its own. The size and duration of a response are limited, and every failure is an
EnvoyError.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec

from weft.envoy.binary import EnvoyError
from weft.model.proxy import ADMIN_PORT

_MOST_BYTES = 64 * 1024 * 1024


class Histogram(msgspec.Struct, frozen=True):
    """Quantiles of one histogram, in the unit of the stat (milliseconds for times), as a mapping from quantile to
    value. `recent` covers the time between the last two requests for stats, `total` the whole run of Envoy. The
    value None means that nothing was recorded."""

    recent: Mapping[float, float | None]
    total: Mapping[float, float | None]


class Stats(msgspec.Struct, frozen=True):
    values: Mapping[str, int]
    histograms: Mapping[str, Histogram]


class Admin:
    """A client of one Envoy's admin API. Close it, or use it as an asynchronous context manager."""

    def __init__(
        self,
        open_socket: Callable[[], socket.socket],
        *,
        port: int = ADMIN_PORT,
        timeout: float = 5.0,
        name: str = "Envoy",
    ) -> None:
        self._base = f"http://127.0.0.1:{port}"
        self._name = name
        self._open_socket = open_socket
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def ready(self) -> bool:
        """Return whether Envoy is ready. False also if the admin API does not answer yet."""
        try:
            status, _ = await self._ask("GET", "/ready", {})
        except EnvoyError:
            return False
        return status == 200

    async def wait_until_ready(self, *, every: float = 0.01) -> None:
        """Poll, with `every` seconds in between, until Envoy is ready. There is no time limit: the caller sets one with
        asyncio.timeout."""
        while not await self.ready():
            await asyncio.sleep(every)

    async def stats(self, pattern: str = "", *, used_only: bool = True) -> Stats:
        """Return the counters, gauges and histograms whose name contains a match of the regular expression
        `pattern`; all of them if it is empty. `used_only`: without the stats that Envoy has never changed."""
        query = {"format": "json"} | ({"filter": pattern} if pattern else {}) | ({"usedonly": ""} if used_only else {})
        document = await self._json("/stats", query)
        try:
            return parse_stats(document)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise EnvoyError(f"the answer to /stats has an unknown format: {error!r}", where=self._name) from error

    async def config_dump(self, *, resource: str = "", include_endpoints: bool = False) -> dict[str, Any]:
        query = {"resource": resource} if resource else {}
        return await self._json("/config_dump", query | ({"include_eds": ""} if include_endpoints else {}))

    async def live_listeners(self) -> frozenset[str]:
        """Return the names of the listeners that accept connections."""
        document = await self._json("/listeners", {"format": "json"})
        try:
            return frozenset(each["name"] for each in document.get("listener_statuses", ()))
        except (KeyError, TypeError) as error:
            raise EnvoyError(
                f"the listeners in Envoy's answer have an unknown format: {error!r}", where=self._name
            ) from error

    async def refused_listeners(self) -> dict[str, str]:
        """Return the listeners whose last version Envoy rejected: name → Envoy's reason."""
        document = await self.config_dump(resource="dynamic_listeners")
        try:
            failures = [each["error_state"] for each in document.get("configs", ()) if "error_state" in each]
            # A listener that was never accepted has its name only in the rejected configuration.
            return {each["failed_configuration"]["name"]: each.get("details", "") for each in failures}
        except (KeyError, TypeError, AttributeError) as error:
            raise EnvoyError(
                f"the listeners in Envoy's answer have an unknown format: {error!r}", where=self._name
            ) from error

    async def clusters(self) -> dict[str, Any]:
        """Return the JSON of /clusters: every cluster with its hosts, their health and their counters."""
        return await self._json("/clusters", {"format": "json"})

    async def server_info(self) -> dict[str, Any]:
        return await self._json("/server_info", {})

    async def drain(self, *, inbound_only: bool = True) -> None:
        """Drain the listeners gracefully, without ending Envoy, as Istio's agent does before a pod stops. At a
        gateway pass `inbound_only=False`: its listeners are not marked as inbound."""
        chosen = {"inboundonly": ""} if inbound_only else {}
        await self._text("POST", "/drain_listeners", {**chosen, "graceful": "", "skip_exit": ""})

    async def read(self, path: str, query: Mapping[str, str]) -> bytes:
        """Return the unchanged body of the response to GET `path`."""
        return await self._text("GET", path, query)

    async def post(self, path: str, query: Mapping[str, str]) -> bytes:
        """Return the unchanged body of the response to POST `path`."""
        return await self._text("POST", path, query)

    async def _json(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        text = await self._text("GET", path, query)
        try:
            document = json.loads(text)
        except ValueError as error:
            raise EnvoyError(f"the answer to {path} is not JSON: {error}", where=self._name) from error
        if not isinstance(document, dict):
            raise EnvoyError(f"the answer to {path} is not a JSON object", where=self._name)
        return document

    async def _text(self, method: str, path: str, query: Mapping[str, str]) -> bytes:
        status, body = await self._ask(method, path, query)
        if status != 200:
            text = body[:200].decode(errors="replace").strip()
            raise EnvoyError(f"Envoy answered {method} {path} with {status}: {text}", where=self._name)
        return body

    async def _ask(self, method: str, path: str, query: Mapping[str, str]) -> tuple[int, bytes]:
        if self._session is None:
            connector = aiohttp.TCPConnector(socket_factory=lambda _: self._fresh_socket(), limit=2)
            self._session = aiohttp.ClientSession(connector=connector, timeout=self._timeout)
        try:
            async with self._session.request(method, self._base + path, params=query) as answer:
                chunks, size = [], 0
                async for chunk in answer.content.iter_any():
                    size += len(chunk)
                    if size > _MOST_BYTES:
                        raise EnvoyError(f"the answer to {path} is longer than {_MOST_BYTES} bytes", where=self._name)
                    chunks.append(chunk)
                return answer.status, b"".join(chunks)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            why = str(error) or f"no answer within {self._timeout.total:g} s"  # a TimeoutError has no text
            hint = f"see the proxy's log: weft logs --proxy {self._name.removeprefix('proxy of ')}"
            raise EnvoyError(f"Envoy's admin API did not answer {path}: {why}", hint, where=self._name) from error

    def _fresh_socket(self) -> socket.socket:
        try:
            return self._open_socket()
        except Exception as error:
            raise OSError(str(error)) from error


def parse_stats(document: Mapping[str, Any]) -> Stats:
    """Parse the response of /stats?format=json. Text readouts are skipped, because they are not numbers."""
    values: dict[str, int] = {}
    histograms: dict[str, Histogram] = {}
    for entry in document["stats"]:
        if "histograms" not in entry:
            if isinstance(entry["value"], int):
                values[entry["name"]] = entry["value"]
            continue
        quantiles = entry["histograms"].get("supported_quantiles", [])
        for computed in entry["histograms"].get("computed_quantiles", []):
            pairs = computed["values"]
            histograms[computed["name"]] = Histogram(
                recent={at: pair["interval"] for at, pair in zip(quantiles, pairs, strict=True)},
                total={at: pair["cumulative"] for at, pair in zip(quantiles, pairs, strict=True)},
            )
    return Stats(values, histograms)
