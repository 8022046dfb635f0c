"""Redirects kubelet's probes of the application to the proxy: with STRICT mTLS the application's port accepts only
callers of the mesh, and kubelet is not one.

`rewrite` changes the probes and lifecycle hooks of a pod's containers in place, and returns the checks that the proxy
has to make instead. `restore` undoes it with the originals that `rewrite` returned, so that a pod may be injected any
number of times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from weft.inject.json_patch import copied
from weft.inject.sidecar import variable
from weft.model.app_probe import AppProbe, GrpcCheck, HttpCheck, TcpCheck
from weft.model.proxy import PROMETHEUS_PORT, READINESS_PORT

Originals = dict[str, dict[str, Any]]  # by the path that kubelet now requests

_PROBES = {"readinessProbe": "readyz", "livenessProbe": "livez", "startupProbe": "startupz"}
_HOOKS = {"postStart": "poststartz", "preStop": "prestopz"}
_HANDLERS = ("httpGet", "tcpSocket", "grpc")
_HOOK_SECONDS = 3600  # kubelet limits a hook by the pod's grace period, which is not known here


def rewrite(containers: list[dict[str, Any]], *, port: int, ipv6: bool) -> tuple[tuple[AppProbe, ...], Originals]:
    """Point the probes and HTTP hooks of the containers at `port` of the proxy, in place. Return the checks that the
    proxy has to make instead, and the original handlers by the path that kubelet now requests. `ipv6`: whether
    the pod's first address is IPv6."""
    probes: list[AppProbe] = []
    originals: Originals = {}
    for container, handler, path, seconds in _handlers(containers):
        kind = next((each for each in _HANDLERS if isinstance(handler.get(each), dict)), None)
        if kind is None:
            continue
        check = _check(kind, handler[kind], container, own=port, ipv6=ipv6)
        if check is None:
            continue
        probes.append(AppProbe(path=path, check=check, timeout=seconds[0], period=seconds[1]))
        original = handler.pop(kind)
        originals[path] = {kind: copied(original)}
        handler["httpGet"] = _proxy_handler(original, path, port)
    return tuple(probes), originals


def restore(containers: list[dict[str, Any]], originals: Mapping[str, Any]) -> None:
    for _, handler, path, _ in _handlers(containers):
        rewritten = handler.get("httpGet")
        original = originals.get(path)
        # Only probes that still point at the proxy: another webhook may have replaced a probe since.
        if isinstance(rewritten, dict) and rewritten.get("path") == path and isinstance(original, dict):
            del handler["httpGet"]
            handler.update(copied(original))


def encode(originals: Originals) -> str:
    return msgspec.json.encode(originals, order="sorted").decode()


def decode(text: str) -> dict[str, Any]:
    """Return the original handlers that `encode` wrote to `text`; an empty dict if `text` is anything else."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError):
        return {}


def _handlers(
    containers: list[dict[str, Any]],
) -> Iterator[tuple[dict[str, Any], dict[str, Any], str, tuple[int, int]]]:
    """Yield a tuple for each probe and HTTP hook: its container, its handler, its path on the proxy, and (timeout,
    period) in seconds."""
    for container in containers:
        name = container.get("name")
        for field, word in _PROBES.items():
            probe = container.get(field)
            if isinstance(probe, dict):
                seconds = (_whole(probe.get("timeoutSeconds"), 1), _whole(probe.get("periodSeconds"), 10))
                yield container, probe, f"/app-health/{name}/{word}", seconds
        lifecycle = container.get("lifecycle")
        for field, word in _HOOKS.items():
            hook = lifecycle.get(field) if isinstance(lifecycle, dict) else None
            if isinstance(hook, dict) and "httpGet" in hook:  # tcpSocket does nothing in a hook
                yield container, hook, f"/app-lifecycle/{name}/{word}", (_HOOK_SECONDS, 10)


def _check(
    kind: str, handler: dict[str, Any], container: dict[str, Any], *, own: int, ipv6: bool
) -> HttpCheck | TcpCheck | GrpcCheck | None:
    """Return the check that the proxy makes instead of a handler of the given `kind` (httpGet, tcpSocket or grpc).
    `container`: the container of the handler. `own`: the proxy's port for these checks. `ipv6`: whether the pod's first
    address is IPv6. Return None if the handler must not be rewritten: it is for another host or for a port of the
    proxy, or its port is unknown."""
    number = _port(handler.get("port"), container)
    # A probe of another host is not redirected to the proxy, and the proxy's own ports need no check of the
    # application.
    if number is None or handler.get("host") or number in (own, READINESS_PORT, PROMETHEUS_PORT):
        return None
    if kind == "tcpSocket":
        return TcpCheck(port=number)
    if kind == "grpc":
        service = handler.get("service")
        return GrpcCheck(port=number, service=service if isinstance(service, str) else "")
    address = variable("INSTANCE_IP")
    named = any(isinstance(each, dict) and str(each.get("name", "")).lower() == "host" for each in _headers(handler))
    return HttpCheck(
        port=number,
        path=_path(handler.get("path")),
        tls=str(handler.get("scheme", "")).upper() == "HTTPS",
        host="" if named else f"{f'[{address}]' if ipv6 else address}:{number}",
    )


def _proxy_handler(original: dict[str, Any], path: str, port: int) -> dict[str, Any]:
    rewritten: dict[str, Any] = {"path": path, "port": port, "scheme": "HTTP"}
    if _headers(original):
        rewritten["httpHeaders"] = copied(original["httpHeaders"])
    return rewritten


def _headers(handler: dict[str, Any]) -> list[Any]:
    headers = handler.get("httpHeaders")
    return headers if isinstance(headers, list) else []


def _path(text: Any) -> str:
    """Return the path of a probe (`text`) as kubelet parses it: a URL without a host, and without its fragment."""
    if not isinstance(text, str) or not text:
        return "/"
    try:
        parts = urlsplit(text)
    except ValueError:
        return text if text.startswith("/") else f"/{text}"
    path = parts.path if parts.path.startswith("/") else f"/{parts.path}"
    return f"{path}?{parts.query}" if parts.query else path


def _port(port: Any, container: dict[str, Any]) -> int | None:
    if isinstance(port, int) and not isinstance(port, bool):
        return port if 0 < port < 65536 else None
    for each in container.get("ports") or ():
        if isinstance(each, dict) and each.get("name") == port and isinstance(each.get("containerPort"), int):
            return int(each["containerPort"])
    return int(port) if isinstance(port, str) and port.isascii() and port.isdigit() and len(port) <= 5 else None


def _whole(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else default
