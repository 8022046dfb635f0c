"""An HTTP port that any client can reach and none can exhaust: a limited number of connections, at most half of them
for one host, each with a deadline for its TLS handshake and its request.

It serves an aiohttp application. Rule: a connection over the limit is closed before any work is done for it.
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
MOST_OF_ONE_HOST = 500  # API servers have few addresses, and one of them may send hundreds of reviews at once
HANDSHAKE_SECONDS = 10.0
# For the header of a request, and between requests. Go's clients keep an idle connection for 90 s: a server that waits
# longer never closes one on which such a client is just sending a request.
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
        self._answering: set[web.RequestHandler] = set()  # connections with a request that is being handled
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
        """None: on every address. Returns the port, which is chosen if it is 0. Raises OSError."""
        await self._runner.setup()
        listening = bind(host, port, backlog=_BACKLOG)
        self._acceptor = Acceptor(listening, self._has_room, self._enter, name=f"http-{port}")
        return self._acceptor.port

    def leave(self) -> None:
        """Keep serving, and close each connection with its next response: clients would use it to the end."""
        self._leaving = True

    async def _part(self, _request: web.Request, response: web.StreamResponse) -> None:
        if self._leaving:
            response.force_close()
            response.headers["Connection"] = "close"  # its own header is written already

    async def close(self) -> None:
        """Requests under way are answered first."""
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
        """Close the longest idle connection of the host that has most connections."""
        server = self._runner.server
        (greediest, number), *_ = hosts.most_common(1)
        if server is None or number < 2:
            return False
        for each in server.connections:  # the oldest first
            if each.peername and each.peername[0] == greediest and each not in self._answering:
                each.force_close()
                return True
        return False

    async def _enter(self, connection: socket.socket, _host: str, _port: int) -> None:
        server = self._runner.server
        assert server is not None  # noqa: S101 - `listen` has set it up
        try:
            if self._tls is not None:
                await accept_tls(server(), connection, self._tls, handshake_seconds=HANDSHAKE_SECONDS)
            else:
                await asyncio.get_running_loop().connect_accepted_socket(server, connection)
        except OSError as error:
            log.debug("a connection did not come about: %s", str(error) or type(error).__name__)
            connection.close()

    def _hosts(self) -> Counter[str]:
        server = self._runner.server
        peers = (each.peername for each in server.connections) if server is not None else ()
        entering = self._acceptor.entering.values() if self._acceptor is not None else ()
        return Counter([*(peer[0] for peer in peers if peer), *entering])
