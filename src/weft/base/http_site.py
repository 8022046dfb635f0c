"""An HTTP port that any client can reach and no client can exhaust. The number of connections is limited, in total and
for each client host. The TLS handshake and the headers of each request have a deadline.

It serves an aiohttp application. Rules: a connection over the limit of its host is closed before any work is done for
it. At the total limit, an idle connection of the host with the most connections is closed to make room; if there is
none, the new connection is closed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter

from aiohttp import web
from aiohttp.typedefs import Handler

from weft.base.accepting import Acceptor, bind
from weft.base.tls_transport import accept_tls

log = logging.getLogger("weft.http")

MOST_CONNECTIONS = 1_000
MOST_OF_ONE_HOST = 500  # API servers have few addresses, and one of them may send hundreds of admission reviews at once
HANDSHAKE_SECONDS = 10.0
# The limit for the headers of a request, and between two requests. Go's clients keep an idle connection for 90 s. A
# server that waits longer than that never closes a connection on which such a client is just sending a request.
IDLE_SECONDS = 100.0
_BACKLOG = 128


class HttpSite:
    def __init__(
        self,
        app: web.Application,
        *,
        tls: ssl.SSLContext | None = None,
        shutdown_seconds: float = 5.0,
        most_of_one_host: int | None = None,
    ) -> None:
        self._most_of_one_host = most_of_one_host or MOST_OF_ONE_HOST
        self._leaving = False
        app.on_response_prepare.append(self._part)
        self._answering: set[web.RequestHandler] = set()  # connections whose request is being handled
        app.middlewares.append(self._note_request)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=shutdown_seconds,
            keepalive_timeout=IDLE_SECONDS,
        )
        self._tls = tls
        self._acceptor: Acceptor | None = None

    async def listen(self, host: str | None, port: int) -> int:
        """Listen on `host` and `port`, and return the port, which the kernel chooses if `port` is 0. Without a host,
        listen on every address. Raises OSError."""
        await self._runner.setup()
        listening = bind(host, port, backlog=_BACKLOG)
        self._acceptor = Acceptor(listening, self._has_room, self._enter, name=f"http-{port}")
        return self._acceptor.port

    def leave(self) -> None:
        """Continue to serve, but close each connection after its next response: otherwise clients would reuse their
        connections until the process ends."""
        self._leaving = True

    async def _part(self, _request: web.Request, response: web.StreamResponse) -> None:
        if self._leaving:
            response.force_close()
            response.headers["Connection"] = "close"  # aiohttp has already set its own Connection header

    async def close(self) -> None:
        """Close the port, then wait for the requests in progress, but at most `shutdown_seconds`."""
        if self._acceptor is not None:
            await self._acceptor.close()
        await self._runner.cleanup()

    @web.middleware
    async def _note_request(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._answering.add(request.protocol)
        try:
            return await handler(request)
        finally:
            self._answering.discard(request.protocol)

    def _has_room(self, host: str) -> bool:
        hosts = self._hosts()
        if hosts[host] >= self._most_of_one_host:
            return False
        return hosts.total() < MOST_CONNECTIONS or self._make_room(hosts)

    def _make_room(self, hosts: Counter[str]) -> bool:
        """Make room for one more connection: close the longest idle connection of the host that has the most
        connections. Connections without unsent data are preferred. Return whether a connection was closed.
        `hosts` counts the connections of each host."""
        server = self._runner.server
        (greediest, number), *_ = hosts.most_common(1)
        if server is None or number < 2:
            return False
        idle = [
            transport
            for connection in server.connections  # the oldest first
            if connection.peername and connection.peername[0] == greediest and connection not in self._answering
            if (transport := connection.transport) is not None and not transport.is_closing()
        ]
        if not idle:
            return False
        # A client that does not read would delay any other end of its connection.
        min(idle, key=lambda transport: transport.get_write_buffer_size() > 0).abort()
        return True

    async def _enter(self, connection: socket.socket, _host: str, _port: int) -> None:
        server = self._runner.server
        assert server is not None  # noqa: S101 - `listen` has set it up
        try:
            if self._tls is not None:
                await accept_tls(server(), connection, self._tls, handshake_seconds=HANDSHAKE_SECONDS)
            else:
                await asyncio.get_running_loop().connect_accepted_socket(server, connection)
        except OSError as error:
            log.debug("a connection could not be set up: %s", str(error) or type(error).__name__)
            connection.close()

    def _hosts(self) -> Counter[str]:
        server = self._runner.server
        peers = (each.peername for each in server.connections) if server is not None else ()
        entering = self._acceptor.entering.values() if self._acceptor is not None else ()
        return Counter([*(peer[0] for peer in peers if peer), *entering])
