"""Sends HTTP requests to one API server: a request and its response in bytes, a stream, or a WebSocket.

The client passes a method and a path. aiohttp's errors are converted here. Rule: every response has a deadline and a
maximum size. Nothing is retried implicitly, except once after 401, with newer credentials. No token is ever logged.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Self

import aiohttp

from weft import __version__
from weft.kube.answers import ApiStatus, read, refusal
from weft.kube.config import ApiConnection
from weft.kube.credentials import ApiCredentials
from weft.kube.error import ApiError, ApiUnavailable, KubeError

TIMEOUT = 30.0  # seconds for a whole request
_CONNECT_TIMEOUT = 10.0
_MOST_AT_ONCE = 32  # concurrent requests, without watches: a burst of token reviews must not use all sockets
_LONGEST_ANSWER = 256 << 20  # far more than a realistic page of 500 objects
_LONGEST_REFUSAL = 1 << 20
_READ_BUFFER = 1 << 20
_JSON = "application/json"


class Transport:
    """The HTTP session with one API server. It can be created inside or outside a running event loop; the session
    opens with the first request."""

    def __init__(self, connection: ApiConnection, *, timeout: float = TIMEOUT, user_agent: str = "") -> None:
        self.connection = connection
        self._timeout = timeout
        self._user_agent = user_agent or f"weft/{__version__}"
        self._credentials = ApiCredentials(connection)
        self._opened: aiohttp.ClientSession | None = None
        self._closed = False
        self._places = asyncio.Semaphore(_MOST_AT_ONCE)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._closed = True
        if self._opened is not None:
            await self._opened.close()

    async def raw(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = _JSON,
        timeout: float | None = None,
    ) -> bytes:
        """Send a request and return the body of the successful response. Raises ApiError if the server rejects the
        request, ApiUnavailable if it does not answer in time."""
        seconds = self._timeout if timeout is None else timeout
        where = f"{method} {path}"
        try:
            async with asyncio.timeout(seconds), self._places:
                limits = aiohttp.ClientTimeout(sock_connect=_CONNECT_TIMEOUT)
                async with self._answer(
                    method, path, query=query, body=body, kind=content_type, timeout=limits
                ) as answer:
                    return await read(answer, where, _LONGEST_ANSWER)
        except TimeoutError as error:
            raise ApiUnavailable(f"no answer within {seconds:g} s", _hint(self.connection), where=where) from error

    def stream(
        self, path: str, *, query: Mapping[str, str], inactivity: float
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Open a GET request whose response does not end, such as a watch. `inactivity`: seconds without a byte
        after which the server is considered dead."""
        timeout = aiohttp.ClientTimeout(sock_connect=_CONNECT_TIMEOUT, sock_read=inactivity)
        return self._answer("GET", path, query=query, timeout=timeout)

    @asynccontextmanager
    async def upgrade(
        self, path: str, *, protocol: str, query: Mapping[str, str] | None = None, longest: int = 4 << 20
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a WebSocket with this subprotocol, whose messages have at most `longest` bytes. Raises ApiError if the
        server rejects it, ApiUnavailable if the server does not answer."""
        where = f"GET {path}"
        opened = await self._open(path, protocol, query or {}, longest, where)
        try:
            if opened.protocol != protocol:
                raise ApiUnavailable(f"the API server does not support {protocol}", where=where)
            yield opened
        except (aiohttp.ClientError, ssl.SSLError, OSError) as error:
            raise ApiUnavailable(f"the connection broke: {error or type(error).__name__}", where=where) from error
        finally:
            await opened.close()

    async def _open(
        self, path: str, protocol: str, query: Mapping[str, str], longest: int, where: str
    ) -> aiohttp.ClientWebSocketResponse:
        try:
            async with asyncio.timeout(self._timeout):
                try:
                    return await self._handshake(path, protocol, query, longest)
                except aiohttp.WSServerHandshakeError as error:
                    if error.status != 401 or not await self._credentials.renew():
                        raise
                return await self._handshake(path, protocol, query, longest)
        except aiohttp.WSServerHandshakeError as error:
            raise await self._said(path, query, error.status, where) from error
        except TimeoutError as error:
            raise ApiUnavailable(
                f"no answer within {self._timeout:g} s", _hint(self.connection), where=where
            ) from error
        except (aiohttp.ClientError, ssl.SSLError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise ApiUnavailable(
                f"the API server does not answer: {reason}", _hint(self.connection), where=where
            ) from error

    async def _handshake(
        self, path: str, protocol: str, query: Mapping[str, str], longest: int
    ) -> aiohttp.ClientWebSocketResponse:
        return await self._session().ws_connect(
            self.connection.server + path,
            params=dict(query),
            protocols=(protocol,),
            # kubelet rejects requests that accept only JSON.
            headers=[*await self._credentials.headers(), ("Accept", "*/*")],
            ssl=self._credentials.tls(),
            server_hostname=self.connection.server_name or None,
            proxy=self.connection.proxy_url or None,
            max_msg_size=longest,
        )

    async def _said(self, path: str, query: Mapping[str, str], status: int, where: str) -> ApiError:
        """Return the server's error for a WebSocket that was rejected with this HTTP `status`, with the server's
        message. A failed WebSocket handshake returns only a status code, so this sends a plain request to the same path
        to get the message. `where`: the name of the request in messages."""
        try:
            await self.raw("GET", path, query=query)
        except ApiError as error:
            if error.status == status:
                return error
        except KubeError:
            pass
        return ApiStatus().error(status, request=where)

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        kind: str = _JSON,
        timeout: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request and yield the successful response, whose body is not read yet. Raises ApiError or
        ApiUnavailable."""
        where = f"{method} {path}"
        try:
            for retry in (True, False):
                headers = [*await self._credentials.headers(), *([("Content-Type", kind)] if body is not None else [])]
                async with self._session().request(
                    method,
                    self.connection.server + path,
                    params=dict(query or {}),
                    data=body,
                    headers=headers,
                    ssl=self._credentials.tls(),
                    server_hostname=self.connection.server_name or None,
                    proxy=self.connection.proxy_url or None,
                    timeout=timeout,
                    allow_redirects=False,
                ) as answer:
                    if answer.status == 401 and retry and await self._credentials.renew():
                        continue
                    if answer.status not in (200, 201, 202):
                        raise refusal(answer, await read(answer, where, _LONGEST_REFUSAL), where)
                    yield answer
                    return
        except aiohttp.ClientConnectorCertificateError as error:
            hint = "check the CA and tls-server-name in the kubeconfig: they do not match this server's certificate"
            raise ApiUnavailable(
                f"the API server's certificate is not trusted: {error.certificate_error}", hint, where=where
            ) from error
        except aiohttp.SocketTimeoutError as error:
            raise ApiUnavailable(
                "the API server has stopped sending data", _hint(self.connection), where=where
            ) from error
        except (aiohttp.ClientError, ssl.SSLError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise ApiUnavailable(
                f"the API server does not answer: {reason}", _hint(self.connection), where=where
            ) from error

    def _session(self) -> aiohttp.ClientSession:
        if self._closed:
            raise KubeError("this client is closed")
        if self._opened is None:
            self._opened = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60.0, socket_factory=_socket),
                headers={"Accept": _JSON, "Accept-Encoding": "identity", "User-Agent": self._user_agent},
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=_READ_BUFFER,
            )
        return self._opened


def _socket(address: Any) -> socket.socket:
    """Create a socket with TCP keepalive, so that an unreachable peer is noticed within half a minute."""
    family, kind, protocol, *_ = address
    connection = socket.socket(family, kind, protocol)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return connection


def _hint(connection: ApiConnection) -> str:
    return f"check that it is up: {connection.server}/readyz (address from {connection.source or 'the connection'})"
