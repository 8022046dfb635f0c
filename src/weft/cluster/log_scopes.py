"""The log levels of a running control plane, served as Istio's ControlZ serves them, for `istioctl admin log`.

A scope is a part of weft with a log level of its own. Scopes are read and changed over HTTP on port 9876, which listens
on the pod's loopback interface only: users with permission to open a port-forward to the pod can reach it, and no other
pod can.
Rules: levels last until the process ends, and a request for what weft cannot do is an error and changes nothing.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from weft.base.http_site import HttpSite

log = logging.getLogger("weft.cluster.log_scopes")

PORT = 9876
DEFAULT = "default"
# Each scope has the loggers below `weft.NAME`. istioctl accepts no dots in the names of scopes.
SCOPES: Mapping[str, str] = {
    DEFAULT: "the scopes that have no level of their own",
    "base": "connections to the control plane's ports",
    "ca": "tokens, certificates, roots and their rotation",
    "cluster": "the control plane's own objects on Kubernetes",
    "control": "reading objects, computing and sending configuration",
    "history": "the history of the mesh",
    "http": "HTTP and TLS servers",
    "inject": "the webhooks: injection and validation",
    "inspect": "debug pages",
    "kube": "requests to the API server, watches, status of objects",
    "xds": "the xDS streams of proxies and agents",
}
_LEVELS: Mapping[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "none": logging.CRITICAL + 1,
}
_LONGEST_REQUEST = 4096  # bytes
_LOOPBACK = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)


class LogScope(msgspec.Struct, frozen=True):
    """A scope in ControlZ's JSON. In a request, an empty level stays as it is."""

    name: str = ""
    description: str = ""
    output_level: str = ""
    stack_trace_level: str = ""
    log_callers: bool = False


class LogScopes:
    def __init__(self) -> None:
        self._site: HttpSite | None = None

    async def listen(self, host: str, port: int) -> int:
        """Listen on `host` and `port`, and return the port. Raises OSError."""
        app = web.Application(client_max_size=_LONGEST_REQUEST, middlewares=[_only_for_loopback])
        app.router.add_get("/", _text_page)
        app.router.add_get("/scopej", _all_scopes)
        app.router.add_get("/scopej/", _all_scopes)
        app.router.add_get("/scopej/{name}", _one_scope)
        app.router.add_put("/scopej/{name}", _change_scope)
        site = HttpSite(app)
        bound = await site.listen(host, port)
        self._site = site
        return bound

    async def close(self) -> None:
        if self._site is not None:
            await self._site.close()


def scope_of(name: str) -> LogScope:
    level = _logger(name).getEffectiveLevel()
    word = next((word for word, number in _LEVELS.items() if level <= number), "none")
    return LogScope(name, SCOPES[name], word, "none")


def _logger(name: str) -> logging.Logger:
    return logging.getLogger("weft" if name == DEFAULT else f"weft.{name}")


@web.middleware
async def _only_for_loopback(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Reject requests for other host names, so that a web page in the browser of a user with an open port-forward
    cannot reach this port under a name of its own (DNS rebinding)."""
    hosts = request.headers.getall("Host", [])
    if len(hosts) != 1 or not _LOOPBACK.fullmatch(hosts[0]):
        return web.Response(status=403, text="only for localhost\n")
    return await handler(request)


async def _text_page(_request: web.Request) -> web.Response:
    lines = (f"{each.name:10}{each.output_level:8}{each.description}\n" for each in map(scope_of, sorted(SCOPES)))
    return web.Response(text="".join(lines))


async def _all_scopes(_request: web.Request) -> web.Response:
    return _json([scope_of(name) for name in sorted(SCOPES)])


async def _one_scope(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    return _json(scope_of(name)) if name in SCOPES else _unknown(name)


async def _change_scope(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    if name not in SCOPES:
        return _unknown(name)
    try:
        wanted = msgspec.json.decode(await request.read(), type=LogScope)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return web.Response(status=400, text=f"the request is not a scope: {error}\n")
    if wanted.output_level not in ("", *_LEVELS):
        return web.Response(status=400, text=f"unknown level; the levels are {', '.join(_LEVELS)}\n")
    if wanted.stack_trace_level not in ("", "none") or wanted.log_callers:
        return web.Response(status=400, text="weft writes stack traces of internal errors only\n")
    if wanted.output_level:
        _logger(name).setLevel(_LEVELS[wanted.output_level])
        log.info("the log level of the scope %s is %s now", name, wanted.output_level)
    return web.Response(status=202)


def _unknown(name: str) -> web.Response:
    return web.Response(status=400, text=f"unknown scope {name[:100]!r}; the scopes are {', '.join(SCOPES)}\n")


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")
