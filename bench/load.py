"""The two ends of the data path: a server that responds with 1 KB, and a client that sends requests at a fixed rate
or as fast as possible.

Each runs as a separate process in a pod's namespace. It implements HTTP/1.1 with keep-alive itself, so that its cost
is small next to a proxy's, and imports only the standard library, so that it starts fast. The client reads commands
as JSON lines from standard input and writes one JSON line per command. It keeps its connections open between
commands, so that the figures are of requests and not of handshakes. Both processes exit when standard input ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import socket
import sys
import time
from typing import Any

BODY = b"x" * 1024
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY
_END = b"\r\n\r\n"
_STALLED_SECONDS = 5.0


class Failed(Exception):
    """The peer did not reply as the server in this file does."""


def serve(ports: list[int]) -> None:
    """Respond to requests on these ports until standard input ends. Print `ready` once all ports are open."""
    poll = select.epoll()
    poll.register(0, select.EPOLLIN | select.EPOLLHUP)
    listeners: dict[int, socket.socket] = {}
    for port in ports:
        listener = socket.create_server(("0.0.0.0", port), backlog=256)
        listener.setblocking(False)
        listeners[listener.fileno()] = listener
        poll.register(listener.fileno(), select.EPOLLIN)
    connections: dict[int, socket.socket] = {}
    waiting: dict[int, bytes] = {}
    print("ready", flush=True)
    while True:
        for number, _ in poll.poll():
            if number == 0:
                if not os.read(0, 4096):
                    return
            elif number in listeners:
                accepted, _address = listeners[number].accept()
                accepted.setblocking(False)
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connections[accepted.fileno()] = accepted
                poll.register(accepted.fileno(), select.EPOLLIN)
            else:
                connection = connections[number]
                try:
                    received = connection.recv(65536)
                    if received:
                        received = waiting.pop(number, b"") + received
                        whole = received.count(_END)
                        if whole:
                            connection.sendall(_ANSWER * whole)
                        if not received.endswith(_END):
                            waiting[number] = received[received.rfind(_END) + 4 :] if whole else received
                        continue
                except OSError:
                    pass
                poll.unregister(number)
                waiting.pop(number, None)
                del connections[number]
                connection.close()


def run_client() -> None:
    # Timer slack of 1 ns (PR_SET_TIMERSLACK). With the default, the kernel may wake a sleeping process 50 µs late,
    # which is as long as a whole direct request takes.
    ctypes.CDLL(None).prctl(29, 1, 0, 0, 0)
    pools: dict[tuple[str, int], dict[int, _Connection]] = {}
    for line in sys.stdin:
        order = json.loads(line)
        address = (order["address"], order["port"])
        try:
            if address not in pools:
                pools[address] = _connect(address, order["connections"])
            answer = _drive(pools[address], order)
        except (OSError, Failed) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


class _Connection:
    __slots__ = ("buffer", "sent", "socket")

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=_STALLED_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.sent = 0

    def receive(self) -> bool:
        """Read from the socket and return whether the response is complete. Each connection has at most one request
        in flight, so no other response can follow."""
        received = self.socket.recv(65536)
        if not received:
            raise Failed("the connection was closed before the response was complete")
        buffer = self.buffer + received if self.buffer else received
        end = buffer.find(_END)
        if end < 0 or len(buffer) < end + 4 + len(BODY):
            if end >= 0 and not buffer.startswith(b"HTTP/1.1 200"):
                raise Failed(f"unexpected response: {buffer[:end].decode(errors='replace')!r}")
            self.buffer = buffer
            return False
        if not buffer.startswith(b"HTTP/1.1 200"):
            raise Failed(f"unexpected response: {buffer[:200].decode(errors='replace')!r}")
        self.buffer = b""
        return True


def _connect(address: tuple[str, int], count: int) -> dict[int, _Connection]:
    connections = [_Connection(address) for _ in range(count)]
    return {each.socket.fileno(): each for each in connections}


def _drive(connections: dict[int, _Connection], order: dict[str, Any]) -> dict[str, Any]:
    request = f"GET / HTTP/1.1\r\nhost: {order['host']}\r\nuser-agent: weft-bench\r\naccept: */*\r\n\r\n".encode()
    started, cpu = time.perf_counter(), time.process_time()
    if order["rate"]:
        latencies, late = _at_rate(connections, request, order["rate"], order["seconds"])
    else:
        latencies, late = _flat_out(connections, request, order["seconds"]), 0
    took, cpu = time.perf_counter() - started, time.process_time() - cpu
    latencies.sort()
    return {
        "requests": len(latencies),
        "seconds": took,
        "client_cpu": cpu,
        "late": late,
        "p50": latencies[len(latencies) // 2] / 1e9,
        "p99": latencies[len(latencies) * 99 // 100] / 1e9,
    }


def _flat_out(connections: dict[int, _Connection], request: bytes, seconds: float) -> list[int]:
    """Send requests as fast as possible for `seconds`: each connection sends its next request as soon as it has the
    response. Return the latencies in nanoseconds."""
    poll = select.epoll()
    now = time.perf_counter_ns
    latencies: list[int] = []
    try:
        for number, connection in connections.items():
            poll.register(number, select.EPOLLIN)
            connection.sent = now()
            connection.socket.send(request)
        until = now() + int(seconds * 1e9)
        out = len(connections)
        while out:
            events = poll.poll(_STALLED_SECONDS)
            if not events:
                raise Failed(f"no response for {_STALLED_SECONDS} s")
            for number, _ in events:
                connection = connections[number]
                if connection.receive():
                    at = now()
                    latencies.append(at - connection.sent)
                    if at < until:
                        connection.sent = at
                        connection.socket.send(request)
                    else:
                        out -= 1
        return latencies
    finally:
        poll.close()


def _at_rate(connections: dict[int, _Connection], request: bytes, rate: int, seconds: float) -> tuple[list[int], int]:
    """Send requests at a fixed rate, independent of the responses. Return the latencies in nanoseconds, and how many
    requests were late because no connection was free. The latency of a late request counts from the time at which
    it should have been sent."""
    now = time.perf_counter_ns
    step = 1_000_000_000 // rate
    total = int(rate * seconds)
    free = list(connections.values())
    numbers = list(connections)
    latencies: list[int] = []
    sent = late = 0
    due = now() + step
    while len(latencies) < total:
        while sent < total and free and (at := now()) >= due:
            connection = free.pop(0)
            # A delay of more than one step was caused by slow responses, not by this loop.
            connection.sent = at if at - due < step else due
            late += at - due >= step
            connection.socket.send(request)
            sent += 1
            due += step
        waiting = (due - now()) / 1e9 if sent < total and free else _STALLED_SECONDS
        # The timeout of `select` has microseconds, that of `epoll` only milliseconds.
        readable, _, _ = select.select(numbers, (), (), max(0.0, waiting))
        if not readable and waiting == _STALLED_SECONDS:
            raise Failed(f"no response for {_STALLED_SECONDS} s")
        for number in readable:
            connection = connections[number]
            if connection.receive():
                latencies.append(now() - connection.sent)
                free.append(connection)
    return latencies, late


if __name__ == "__main__":
    if sys.argv[1] == "server":
        serve([int(port) for port in sys.argv[2:]])
    else:
        run_client()
