"""A client that only does TLS handshakes: mutual TLS 1.3, several connections in parallel, and no requests.

It runs as a separate process in a pod's namespace and imports only the standard library. Commands arrive as JSON
lines on standard input, and each command gets one JSON line as its reply. A handshake counts when the server has
replied to the client's HTTP/2 SETTINGS frame with its own, which it does after it has verified the client's
certificate. The server's session tickets arrive together with that reply. Then the client closes the connection
without a request. A command can request that an earlier TLS session is resumed, or that no TLS is used, to measure
the cost of the connection alone.
"""

from __future__ import annotations

import json
import os
import select
import socket
import ssl
import sys
import time
from collections.abc import Callable
from enum import Enum
from typing import Any

_STALLED_SECONDS = 5.0
# The HTTP/2 connection preface and an empty SETTINGS frame: the minimum to which an HTTP/2 server replies.
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


class Failed(Exception):
    """The server did not complete a handshake or did not issue a session ticket."""


def run() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = _shake(order)
        except (OSError, Failed) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


def _shake(order: dict[str, Any]) -> dict[str, Any]:
    context = _context(order) if order["tls"] else None
    session = _first_session(context, order) if context is not None and order["resumed"] else None
    started, cpu = time.perf_counter(), time.process_time()
    resumed: list[bool] = []
    _connect_all(context, session, order, lambda connection: resumed.append(connection.is_resumed))
    return {
        "handshakes": len(resumed),
        "resumed": sum(resumed),
        "seconds": time.perf_counter() - started,
        "client_cpu": time.process_time() - cpu,
    }


def _context(order: dict[str, Any]) -> ssl.SSLContext:
    """Return the client's TLS context. It does not verify the server's certificate: verification would be CPU time
    of the client, and the rig measures the proxy."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(order["chain"], order["key"])
    context.set_alpn_protocols(order["alpn"])
    return context


def _first_session(context: ssl.SSLContext, order: dict[str, Any]) -> ssl.SSLSession:
    sessions: list[ssl.SSLSession | None] = []
    _connect_all(context, None, {**order, "count": 1}, lambda connection: sessions.append(connection.session))
    if not sessions or sessions[0] is None or not sessions[0].has_ticket:
        raise Failed("the server issues no session tickets")
    return sessions[0]


def _connect_all(
    context: ssl.SSLContext | None,
    session: ssl.SSLSession | None,
    order: dict[str, Any],
    done: Callable[[_Connection], None],
) -> None:
    poll = select.epoll()
    connections: dict[int, _Connection] = {}
    left = order["count"]
    try:
        while left or connections:
            while left and len(connections) < order["parallel"]:
                connection = _Connection(order, context, session)
                connections[connection.number] = connection
                poll.register(connection.number, connection.wants)
                left -= 1
            events = poll.poll(_STALLED_SECONDS)
            if not events:
                raise Failed(f"no connection made progress for {_STALLED_SECONDS} s")
            for number, _ in events:
                connection = connections[number]
                wanted = connection.wants
                if connection.is_done():
                    done(connection)
                    poll.unregister(number)
                    connections.pop(number).close()
                elif connection.wants != wanted:
                    poll.modify(number, connection.wants)
    finally:
        poll.close()
        for connection in connections.values():
            connection.close()


class _Step(Enum):
    CONNECTING = 1
    SHAKING = 2
    WAITING = 3  # for the server's SETTINGS frame


class _Connection:
    """One connection on a non-blocking socket. `wants` is the epoll event to wait for before the next call of
    `is_done`."""

    def __init__(self, order: dict[str, Any], context: ssl.SSLContext | None, session: ssl.SSLSession | None) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.connect_ex((order["address"], order["port"]))
        self._context, self._session, self._name = context, session, order["name"]
        self._step = _Step.CONNECTING
        self.number = self._socket.fileno()
        self.wants = select.EPOLLOUT

    def is_done(self) -> bool:
        try:
            return self._go_on()
        except ssl.SSLWantReadError:
            self.wants = select.EPOLLIN
        except ssl.SSLWantWriteError:
            self.wants = select.EPOLLOUT
        return False

    def _go_on(self) -> bool:
        if self._step is _Step.CONNECTING:
            if error := self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(error, os.strerror(error))
            if self._context is not None:
                self._socket = self._context.wrap_socket(
                    self._socket, do_handshake_on_connect=False, server_hostname=self._name, session=self._session
                )
            self._step = _Step.SHAKING
        if self._step is _Step.SHAKING:
            if isinstance(self._socket, ssl.SSLSocket):
                self._socket.do_handshake()
            self._socket.send(_HELLO)
            self._step, self.wants = _Step.WAITING, select.EPOLLIN
            return False
        if not self._socket.recv(65536):
            raise Failed("the server closed the connection")
        return True

    @property
    def session(self) -> ssl.SSLSession | None:
        return self._socket.session if isinstance(self._socket, ssl.SSLSocket) else None

    @property
    def is_resumed(self) -> bool:
        return isinstance(self._socket, ssl.SSLSocket) and bool(self._socket.session_reused)

    def close(self) -> None:
        self._socket.close()


if __name__ == "__main__":
    run()
