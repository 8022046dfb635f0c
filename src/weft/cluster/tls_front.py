"""The TLS port for the CA and for discovery (xDS). A client is identified by its certificate, if it has one.

gRPC's TLS can only require client certificates of all clients or of none. Clients of this port differ: an agent has a
certificate, and a workload that requests its first one has none. So this module terminates TLS and forwards the bytes
to a gRPC server in this process, over a Unix connection with a unique name; a handler looks up the client's identity by
that name. Rule: only this module can open such a connection.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, cast

import grpc
import grpc.aio
import msgspec
from cryptography import x509

from weft.base.accepting import Acceptor, bind
from weft.base.secrecy import memory_file
from weft.base.tls_transport import accept_tls
from weft.ca.authority import Authority
from weft.ca.serving import ServingCertificate
from weft.model.identity import Identity, parse_identity
from weft.xds.server import OPTIONS, ListenError

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 20_000
MOST_OF_ONE_HOST = 256  # an agent has three; connecting needs no credentials, so one host must not use up all
HANDSHAKE_SECONDS = 15.0
_LONGEST_TOKEN_METADATA = 32 * 1024
# Limits for clients without a certificate: such a client is authenticated only when its whole message is in memory. A
# CSR is 2 KB, the first request of a proxy with many resources 1 MB.
_STRANGERS = {"grpc.max_receive_message_length": 2 << 20, "grpc.max_concurrent_streams": 8}
_BACKLOG = 512
_ABSTRACT = "unix-abstract:"


class TlsPeer(msgspec.Struct, frozen=True):
    address: str  # HOST:PORT
    identity: Identity | None  # from the client's certificate, verified with a root of the mesh


class Front:
    """The TLS port. gRPC handlers pass gRPC's peer string to `identity_of` and `host_of` to identify the client."""

    def __init__(self, authority: Authority, *, names: tuple[str, ...] = ()) -> None:
        """`names` are additional DNS names of the serving certificate. Raises AuthorityError."""
        self._authority = authority
        self._serving = ServingCertificate(authority, names)
        self._context: ssl.SSLContext | None = None
        self._made_of: tuple[object, ...] = ()
        # The name is unguessable, because other processes of this pod can connect to abstract sockets, too.
        self._inner = f"weft-front-{secrets.token_hex(16)}"
        self._numbers = itertools.count()
        self._visitors: dict[str, TlsPeer] = {}
        self._sides: set[_Side] = set()
        self._hosts: Counter[str] = Counter()  # connections per host, including handshakes
        self._acceptors: list[Acceptor] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._servers: list[grpc.aio.Server] = []

    async def listen(self, address: str, *handlers: grpc.GenericRpcHandler) -> str:
        """Serve `handlers` on HOST:PORT; port 0 picks a free port. Returns the address with the actual port. Raises
        ListenError."""
        host, _, port = address.rpartition(":")
        try:
            listening = bind(host.strip("[]"), int(port), backlog=_BACKLOG)
        except (OSError, ValueError) as error:
            raise ListenError(f"cannot serve on {address}: {error}") from error
        options = {
            **dict(OPTIONS),
            "grpc.max_metadata_size": _LONGEST_TOKEN_METADATA,
            "grpc.absolute_max_metadata_size": 2 * _LONGEST_TOKEN_METADATA,
        }
        for known, of_these in ((True, options), (False, options | _STRANGERS)):
            server = grpc.aio.server(options=tuple(of_these.items()))
            server.add_generic_rpc_handlers(handlers)
            server.add_insecure_port(f"{_ABSTRACT}{self._inner_of(known=known)}")
            await server.start()
            self._servers.append(server)
        self._tasks.append(asyncio.create_task(self._serving.run(), name="front-certificate"))
        acceptor = Acceptor(listening, self._has_room, self._enter, name="front-accept")
        self._acceptors.append(acceptor)
        return f"{host}:{acceptor.port}"

    async def close(self, grace: float | None = None) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *(each.close() for each in self._acceptors), return_exceptions=True)
        await asyncio.gather(*(server.stop(grace) for server in self._servers))
        for side in tuple(self._sides):
            side.close()

    def identity_of(self, peer: str) -> Identity | None:
        """Return the identity of a client, given gRPC's peer string; None if the client has no certificate."""
        visitor = self._visitors.get(peer)
        return visitor.identity if visitor is not None else None

    def host_of(self, peer: str) -> str:
        visitor = self._visitors.get(peer)
        return visitor.address.rpartition(":")[0] if visitor is not None else ""

    def _has_room(self, host: str) -> bool:
        return self._hosts[host] < MOST_OF_ONE_HOST and self._hosts.total() < MOST_CONNECTIONS

    def _enter(self, connection: socket.socket, host: str, port: int) -> Coroutine[None, None, None]:
        self._hosts[host] += 1  # counted before the task starts, because another connection may arrive first
        return self._let_in_or_forget(connection, host, port)

    async def _let_in_or_forget(self, connection: socket.socket, host: str, port: int) -> None:
        entered = False
        try:
            entered = await self._let_in(connection, host, f"{host}:{port}")
        finally:
            if not entered:
                self._has_gone(host)

    def _has_gone(self, host: str) -> None:
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]

    async def _let_in(self, connection: socket.socket, host: str, address: str) -> bool:
        loop = asyncio.get_running_loop()
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        outer = _Side(self._sides)
        try:
            await accept_tls(outer, connection, self._tls(), handshake_seconds=HANDSHAKE_SECONDS)
            visitor = TlsPeer(address, _identity(outer.transport))
            inside, name = await self._inside(known=visitor.identity is not None)
        except (OSError, ValueError) as error:
            why = str(error) or f"the connection was lost ({type(error).__name__})"
            log.info("connection from %s rejected: %s", address, why)
            outer.close()
            connection.close()
            return False
        peer = f"{_ABSTRACT}{name}"

        inner = _Side(self._sides)

        def ended() -> None:
            """Called when a side of the forwarded connection has ended. When the inner side (to the gRPC server) has
            ended, the client is forgotten. For the limit per host, the connection counts until the outer side (to
            the client) has ended as well: a client that does not read keeps it open for a while."""
            if inner.lost:
                self._visitors.pop(peer, None)
            if inner.lost and outer.lost:
                self._has_gone(host)

        inner.ended = outer.ended = ended
        # Registered before a handler can look up the peer.
        self._visitors[peer] = visitor
        outer.other, inner.other = inner, outer
        try:
            await loop.create_unix_connection(lambda: inner, sock=inside)
        except BaseException:
            inner.ended = outer.ended = lambda: None  # the caller counts
            self._visitors.pop(peer, None)
            outer.close()
            inside.close()
            raise
        outer.start()
        return True

    def _inner_of(self, *, known: bool) -> str:
        return f"{self._inner}-{'known' if known else 'strangers'}"

    async def _inside(self, *, known: bool) -> tuple[socket.socket, str]:
        name = f"{self._inner}-{next(self._numbers)}"
        inside = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            inside.bind(f"\0{name}")
            await asyncio.get_running_loop().sock_connect(inside, f"\0{self._inner_of(known=known)}")
        except BaseException:
            inside.close()
            raise
        return inside, name

    def _tls(self) -> ssl.SSLContext:
        """Return the TLS context for new connections; it is rebuilt when the certificate or the roots change."""
        made_of = (self._serving.pem, self._authority.bundle())
        if self._context is None or made_of != self._made_of:
            key, chain = self._serving.pem
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.verify_mode = ssl.CERT_OPTIONAL
            context.set_alpn_protocols(["h2"])
            context.load_verify_locations(cadata="".join(self._authority.bundle()))
            with memory_file(chain + key) as path:
                context.load_cert_chain(path)
            self._context, self._made_of = context, made_of
        return self._context


class _Side(asyncio.Protocol):
    """One side of a forwarded connection: the client's, or the one to the gRPC server. Bytes that a side receives are
    written to the side `other`. A side that is connected before `other` is set does not read until `start` is
    called."""

    def __init__(self, sides: set[_Side]) -> None:
        self.other: _Side | None = None
        self.transport: asyncio.Transport | None = None
        self.lost = False
        self.ended: Callable[[], object] = lambda: None  # called when this connection is lost
        self._sides = sides
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._sides.add(self)
        if self.other is None:
            self.transport.pause_reading()

    def start(self) -> None:
        if self.transport is None or self.transport.is_closing():
            # This connection was lost before `other` was set, so `other` is still open.
            if self.other is not None:
                self.other.close()
            return
        for some in self._early:
            self.data_received(some)
        self._early.clear()
        self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            self._early.append(data)
        else:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._sides.discard(self)
        self.lost = True
        self.ended()
        if self.other is not None:
            self.other.close()

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()
        elif self.other is not None and self.other.transport is not None:
            self.other.transport.close()


def _identity(transport: asyncio.Transport | None) -> Identity | None:
    """Return the identity in the certificate of the client at the other end of `transport`; None if it has no
    certificate. Raises ValueError for a verified certificate that is not a workload's."""
    secured: Any = transport.get_extra_info("ssl_object") if transport is not None else None
    shown = secured.getpeercert(binary_form=True) if secured is not None else None
    if not shown:
        return None
    try:
        names = x509.load_der_x509_certificate(shown).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound as error:
        raise ValueError("its certificate has no subject alternative name") from error
    uris = names.value.get_values_for_type(x509.UniformResourceIdentifier)
    if len(uris) != 1:
        raise ValueError("its certificate is not a workload's: it must have exactly one URI")
    return parse_identity(uris[0])
