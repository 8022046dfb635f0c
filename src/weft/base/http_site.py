"""An HTTP port that anybody can reach, and nobody can fill: so many connections, of one host at most half of them, each
with a time by which it must have shaken hands and said what it wants.

An application comes in, a port leaves. Rule: who is one too many is closed before anything is computed for it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter

from aiohttp import web

log = logging.getLogger("weft.http")

MOST_CONNECTIONS = 1_000
MOST_OF_ONE_HOST = 500  # API servers come by few addresses, and one of them may ask about hundreds of pods at once
HANDSHAKE_SECONDS = 10.0
# For the header of a request, and between requests. Whoever waits longer than Go's clients keep a connection, 90 s,
# never closes one on which such a client is just asking.
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
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=shutdown_seconds,
            keepalive_timeout=IDLE_SECONDS,
        )
        self._tls = tls
        self._listening: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._entering: dict[asyncio.Task[None], str] = {}  # by whom: its host

    async def listen(self, host: str | None, port: int) -> int:
        """None: on every address. Returns the port, which is chosen if it is 0. Raises OSError."""
        await self._runner.setup()
        self._listening = _bind(host, port)
        self._accepting = asyncio.create_task(self._accept(self._listening), name=f"http-{port}")
        bound: int = self._listening.getsockname()[1]
        return bound

    def leave(self) -> None:
        """Answer on, and end each connection with its next answer: who keeps one would ask until the last moment."""
        self._leaving = True

    async def _part(self, _request: web.Request, response: web.StreamResponse) -> None:
        if self._leaving:
            response.force_close()
            response.headers["Connection"] = "close"  # its own header is written already

    async def close(self) -> None:
        """What has been asked is answered first."""
        tasks = [each for each in (self._accepting, *self._entering) if each is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._listening is not None:
            self._listening.close()
        await self._runner.cleanup()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listening)
            except OSError as error:  # no file descriptors left, say
                log.warning("cannot take a connection: %s", error)
                await asyncio.sleep(0.1)
                continue
            hosts = self._hosts()
            full = hosts.total() >= MOST_CONNECTIONS
            if hosts[address[0]] >= self._most_of_one_host or (full and not self._make_room(hosts)):
                connection.close()
                continue
            entering = asyncio.create_task(self._enter(connection))
            self._entering[entering] = address[0]
            entering.add_done_callback(self._entering.pop)

    def _make_room(self, hosts: Counter[str]) -> bool:
        """Close the connection that has been idle longest, of the host that has most: it does not miss it most."""
        server = self._runner.server
        (greediest, number), *_ = hosts.most_common(1)
        if server is None or number < 2:
            return False
        for each in server.connections:  # the oldest first
            if each.peername and each.peername[0] == greediest and each._current_request is None:
                each.force_close()
                return True
        return False

    async def _enter(self, connection: socket.socket) -> None:
        server = self._runner.server
        assert server is not None  # noqa: S101 - `listen` has set it up
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                server,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if self._tls is not None else None,
            )
        except (OSError, ssl.SSLError) as error:
            log.debug("a connection did not come about: %s", str(error) or type(error).__name__)
            connection.close()

    def _hosts(self) -> Counter[str]:
        server = self._runner.server
        peers = (each.peername for each in server.connections) if server is not None else ()
        return Counter([*(peer[0] for peer in peers if peer), *self._entering.values()])


def _bind(host: str | None, port: int) -> socket.socket:
    if host is None:
        host = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server(
        (host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=host == "::" and socket.has_dualstack_ipv6()
    )
    listening.setblocking(False)
    return listening
