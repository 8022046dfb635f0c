"""Serves the mesh's Unix socket for the CLI on the same machine: status, logs, commands in pods, Envoy's admin API and
Istio's debug pages.

HTTP over a Unix socket that only root can open. All requests read the engine's state, except two: `POST /ca/rotate`
starts the rotation to a new root, and `POST /admin` sets the log level of a proxy.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import msgspec
from aiohttp import web

from weft.base.problem import Problem
from weft.ca.error import AuthorityError
from weft.ca.status import AuthorityStatus
from weft.envoy.binary import EnvoyError
from weft.inspect.debug.access import debug_page
from weft.inspect.debug.pages import LONGEST_QUESTION, Debug
from weft.local.error import CannotStart, LocalError
from weft.local.pod import LocalPod
from weft.local.status import CANNOT_START, Entrance, MeshStatus
from weft.netns import namespace
from weft.netns.namespace import NetworkError
from weft.netns.process import carried_environment, exec_argv

log = logging.getLogger("weft.local.server")

# The read-only paths of Envoy's admin API. All other paths change the proxy's state.
ADMIN_PATHS = frozenset(
    {"/certs", "/clusters", "/config_dump", "/init_dump", "/listeners", "/memory", "/ready", "/runtime", "/server_info"}
    | {"/stats", "/stats/prometheus", "/contention", "/hot_restart_version", "/help"}
)

# The paths of Envoy's admin API that may be changed with POST: the log level, until the proxy restarts.
ADMIN_CHANGES = frozenset({"/logging"})


class ServedMesh(Protocol):
    @property
    def debug(self) -> Debug: ...
    def status(self) -> MeshStatus: ...
    def problems(self) -> tuple[Problem, ...]: ...
    def find_pod(self, word: str) -> LocalPod: ...
    def ca_status(self) -> AuthorityStatus: ...
    def rotate_ca(self, propagation: timedelta | None = None) -> AuthorityStatus: ...


class MeshServer:
    def __init__(self, mesh: ServedMesh) -> None:
        self._mesh = mesh
        self._runner: web.AppRunner | None = None

    async def listen(self, path: Path) -> None:
        app = web.Application(middlewares=[_errors], client_max_size=LONGEST_QUESTION)
        app.add_routes(
            [
                web.get("/status", self._status),
                web.get("/problems", self._problems),
                web.get("/logs", self._logs),
                web.post("/exec", self._exec),
                web.get("/admin", self._admin),
                web.post("/admin", self._admin),
                web.get("/debug", self._debug),
                web.get("/debug/{name}", self._debug),
                web.post("/debug/{name}", self._debug),  # for requests that are too long for a query string
                web.get("/ca", self._ca),
                web.post("/ca/rotate", self._rotate_ca),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.UnixSite(self._runner, str(path)).start()
        path.chmod(0o600)

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _status(self, request: web.Request) -> web.Response:
        return _json(self._mesh.status())

    async def _problems(self, request: web.Request) -> web.Response:
        return _json(self._mesh.problems())

    async def _ca(self, request: web.Request) -> web.Response:
        return _json(self._mesh.ca_status())

    async def _rotate_ca(self, request: web.Request) -> web.Response:
        seconds = request.query.get("propagation", "")
        try:
            propagation = timedelta(seconds=float(seconds)) if seconds else None
        except (ValueError, OverflowError):
            raise LocalError(f"`{seconds}` is not a number of seconds", "for example: 30") from None
        return _json(self._mesh.rotate_ca(propagation))

    async def _exec(self, request: web.Request) -> web.Response:
        command = msgspec.json.decode(await request.read(), type=tuple[str, ...])
        pod = self._pod(request)
        if not namespace.exists(pod.namespace):
            raise LocalError(
                f"pod {pod.plan.key} is not running ({pod.phase})", f"see the pod's log: weft logs {pod.plan.name}"
            )
        wanted = pod.command(command)
        try:
            return _json(Entrance(exec_argv(wanted), carried_environment(wanted)))
        except NetworkError as error:
            problem = error.problem
            raise CannotStart(problem.what, problem.hint, where=f"pod {pod.plan.key}") from error

    async def _admin(self, request: web.Request) -> web.Response:
        pod = self._pod(request)
        path = request.query.get("path", "")
        if path not in (ADMIN_CHANGES if request.method == "POST" else ADMIN_PATHS):
            posts = request.method == "POST"
            allowed = "that accepts POST here" if posts else "that is read-only"
            hint = f"for example: {'/logging' if posts else '/config_dump'}"
            raise LocalError(f"`{path}` is not a path of Envoy's admin API {allowed}", hint)
        if pod.proxy is None:
            raise LocalError(f"pod {pod.plan.key} has no proxy", "the pod's Workload has `inject: false`")
        query = {name: value for name, value in request.query.items() if name not in ("pod", "path")}
        admin = pod.proxy.admin
        return web.Response(body=await (admin.post if request.method == "POST" else admin.read)(path, query))

    async def _debug(self, request: web.Request) -> web.Response:
        return await debug_page(self._mesh.debug, request)

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        pod = self._pod(request)
        # A gateway's pod has a proxy and no app.
        by_proxy = request.query.get("stream") == "proxy" or pod.plan.workload.gateway
        file = pod.log.proxy if by_proxy else pod.log.app
        lines = request.query.get("lines", "")
        response = web.StreamResponse(headers={"content-type": "text/plain; charset=utf-8"})
        await response.prepare(request)
        following: AsyncIterator[str] | None = file.follow() if request.query.get("follow") else None
        tail = file.tail(int(lines) if lines.isdigit() else None)
        with contextlib.suppress(ConnectionError):
            await response.write("".join(f"{line}\n" for line in tail).encode())
            if following is not None:
                async for line in following:
                    await response.write(f"{line}\n".encode())
            await response.write_eof()
        return response

    def _pod(self, request: web.Request) -> LocalPod:
        return self._mesh.find_pod(request.query.get("pod", ""))


@web.middleware
async def _errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Call the handler of a request. If the handler raises an error, answer with the error's problem as JSON."""
    try:
        return await handler(request)
    except CannotStart as error:
        return _json(error.problem, status=CANNOT_START)
    except (LocalError, NetworkError, EnvoyError, AuthorityError) as error:
        return _json(error.problem, status=400)
    except msgspec.DecodeError as error:
        return web.Response(status=400, text=str(error))


def _json(value: object, *, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json", status=status)
