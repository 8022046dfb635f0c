"""Opens a connection to a port of a pod through the API server, like `kubectl port-forward`, for one request. No
local port is opened: one end of a socket pair is copied over a WebSocket (`v4.channel.k8s.io`) to the pod's node.

Rule: a request has a deadline and a response has a maximum size.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
from collections.abc import AsyncIterator, Mapping
from urllib.parse import urlencode

import aiohttp
import msgspec

from weft.kube.client import Client
from weft.kube.error import ApiUnavailable, KubeError
from weft.kube.resource import PODS

PROTOCOL = "v4.channel.k8s.io"
TIMEOUT = 30.0  # seconds without a byte
_DATA, _ERROR = 0, 1  # channels of the first port; a second one would have 2 and 3
_PORT_BYTES = 2  # each channel begins with the port's number
_CHUNK = 32 * 1024
_LONGEST_ANSWER = 256 << 20


class ForwardedResponse(msgspec.Struct, frozen=True):
    status: int
    body: bytes


class PortForward:
    """One connection to a port of a pod. `problem`: the reason why the node closed the connection, if it did."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self.problem = ""


@contextlib.asynccontextmanager
async def forward(client: Client, namespace: str, pod: str, port: int) -> AsyncIterator[PortForward]:
    """Open a connection to a port of a pod. Needs the permissions `get` and `create` on pods/portforward. Raises
    ApiError if the API server rejects the request."""
    path = PODS.path(namespace, pod, "portforward")
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    forwarded = PortForward(theirs)
    with ours, theirs:
        async with client.upgrade(path, protocol=PROTOCOL, query={"ports": str(port)}) as opened:
            pumps = [asyncio.create_task(_up(ours, opened)), asyncio.create_task(_down(opened, ours, forwarded))]
            try:
                yield forwarded
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)


async def ask(
    client: Client,
    namespace: str,
    pod: str,
    port: int,
    path: str,
    *,
    query: Mapping[str, str] | None = None,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> ForwardedResponse:
    """Send one HTTP request to a port of a pod and return the response."""
    where = f"port {port} of pod {pod}.{namespace}"
    target = f"{path}?{urlencode(query)}" if query else path
    async with forward(client, namespace, pod, port) as forwarded:
        try:
            # The standard library's HTTP client accepts an open socket, but blocks, so it runs in a thread.
            return await asyncio.to_thread(_exchange, forwarded.socket, method, target, dict(headers or {}), body)
        except _TooLong as error:
            raise KubeError(f"a response of over {_LONGEST_ANSWER:,} bytes", where=where) from error
        except (http.client.HTTPException, OSError) as error:
            reason = forwarded.problem or str(error) or type(error).__name__
            hint = f"check that its proxy runs: kubectl describe pod {pod} -n {namespace}"
            raise ApiUnavailable(f"no answer: {reason}", hint, where=where) from error


class _TooLong(Exception):
    pass


def _exchange(
    connected: socket.socket, method: str, target: str, headers: dict[str, str], body: bytes
) -> ForwardedResponse:
    connected.settimeout(TIMEOUT)
    connection = http.client.HTTPConnection("localhost")
    connection.sock = connected
    connection.request(method, target, body=body or None, headers={"Connection": "close", **headers})
    answer = connection.getresponse()
    body = answer.read(_LONGEST_ANSWER + 1)
    if len(body) > _LONGEST_ANSWER:
        raise _TooLong
    if answer.length:  # bytes are missing; a read with a limit does not raise IncompleteRead itself
        raise http.client.IncompleteRead(body, answer.length)
    return ForwardedResponse(answer.status, body)


async def _up(ours: socket.socket, opened: aiohttp.ClientWebSocketResponse) -> None:
    loop = asyncio.get_running_loop()
    while chunk := await loop.sock_recv(ours, _CHUNK):
        await opened.send_bytes(bytes([_DATA]) + chunk)


async def _down(opened: aiohttp.ClientWebSocketResponse, ours: socket.socket, forwarded: PortForward) -> None:
    """Copy data from the WebSocket `opened` to `ours`, one socket of a pair, until the connection ends or the node
    reports an error, which is stored in `forwarded`. Then the reader of the other socket sees EOF."""
    loop = asyncio.get_running_loop()
    begun: set[int] = set()
    try:
        async for message in opened:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel, payload = message.data[0], message.data[1:]
            if channel not in begun:
                begun.add(channel)
                payload = payload[_PORT_BYTES:]
            if channel == _DATA:
                await loop.sock_sendall(ours, payload)
            elif channel == _ERROR and payload:
                forwarded.problem = payload.decode(errors="replace").strip()
                return
    finally:
        with contextlib.suppress(OSError):
            ours.shutdown(socket.SHUT_RDWR)
