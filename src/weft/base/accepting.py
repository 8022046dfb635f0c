"""Accepts TCP connections on a port. Each connection is handled in its own task, or closed if a limit is reached.

Rule: a connection over the limit is closed before any work is done for it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine

log = logging.getLogger(__name__)

_PAUSE = 0.1  # seconds after a failed accept: without free file descriptors an immediate retry would fail too

Enter = Callable[[socket.socket, str, int], Coroutine[None, None, None]]


class Acceptor:
    def __init__(self, listening: socket.socket, has_room: Callable[[str], bool], enter: Enter, *, name: str) -> None:
        """`listening`: the socket to accept on. `has_room(host)` returns whether one more connection from this host is
        allowed. `enter(connection, host, port)` is called for each accepted connection, with the peer's host and port.
        The coroutine that it returns runs as a task and must close the connection. `name` is the name of the accepting
        task."""
        self._listening, self._has_room, self._enter = listening, has_room, enter
        self.entering: dict[asyncio.Task[None], str] = {}  # by task: the peer's host
        self._accepting = asyncio.create_task(self._accept(), name=name)

    @property
    def port(self) -> int:
        port: int = self._listening.getsockname()[1]
        return port

    async def close(self) -> None:
        """Stop accepting connections, and cancel the tasks of connections that are still being set up."""
        tasks = (self._accepting, *self.entering)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listening.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, (host, port, *_) = await loop.sock_accept(self._listening)
            except OSError as error:  # for example: no file descriptors left
                log.warning("cannot accept a connection: %s", error)
                await asyncio.sleep(_PAUSE)
                continue
            try:
                self._start(connection, host, port)
            except Exception:  # an error in weft closes this connection; the port stays open
                log.exception("cannot serve a connection from %s", host)
                connection.close()

    def _start(self, connection: socket.socket, host: str, port: int) -> None:
        if not self._has_room(host):
            connection.close()
            return
        entering = asyncio.create_task(self._enter(connection, host, port))
        self.entering[entering] = host
        entering.add_done_callback(self.entering.pop)


def bind(host: str | None, port: int, *, backlog: int) -> socket.socket:
    """Return a socket that listens on `host` and `port`; without a host, on every address. `backlog`: the number of
    connections that may wait to be accepted. Raises OSError."""
    if not host:
        host = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server(
        (host, port), family=family, backlog=backlog, dualstack_ipv6=host == "::" and socket.has_dualstack_ipv6()
    )
    listening.setblocking(False)
    return listening
