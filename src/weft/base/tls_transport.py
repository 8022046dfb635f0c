"""TLS for asyncio with little memory per connection. Input: sockets. Output: transports that encrypt and decrypt.

asyncio's own TLS allocates a read buffer of 256 KiB for every connection as long as the connection exists, and has
no public way to change that. Here a read buffer exists for one read only. Data is passed to OpenSSL in pieces of at
most one TLS record, because an `ssl.MemoryBIO` never releases memory. An idle connection needs OpenSSL's own state
and little else.

Rules: while the protocol has paused reading, the connection is still read, up to `MOST_WAITING` bytes, so that a lost
connection is noticed; a peer that does not read cannot keep a closed connection open for longer than `CLOSE_SECONDS`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, cast

MOST_WAITING = 64 * 1024  # encrypted bytes that may be buffered for a protocol that has paused reading
CLOSE_SECONDS = 30.0  # for the last bytes to be sent after `close`, as in asyncio's own TLS
_READ = 32 * 1024  # bytes of one read
_RECORD = 16 * 1024  # bytes; the maximum size of a TLS record
_PIECE = 8 * 1024  # bytes passed to OpenSSL at once


async def accept_tls(
    protocol: asyncio.Protocol, connection: socket.socket, context: ssl.SSLContext, *, handshake_seconds: float
) -> asyncio.Transport:
    """Do the TLS handshake as the server on an accepted connection, and return the transport. Raises OSError
    (ssl.SSLError is one) if the handshake fails; the connection is then closed."""
    loop = asyncio.get_running_loop()
    layer = _TlsLayer(loop, protocol, context, handshake_seconds, server_side=True)
    return await layer.shake_hands(loop.connect_accepted_socket(lambda: layer, connection))


async def connect_tls(
    protocol: asyncio.Protocol,
    connect: Callable[[Callable[[], asyncio.BaseProtocol]], Coroutine[Any, Any, tuple[asyncio.Transport, Any]]],
    context: ssl.SSLContext,
    *,
    server_hostname: str | None,
    handshake_seconds: float,
) -> asyncio.Transport:
    """Open a TCP connection, do the TLS handshake as the client, and return the transport. `connect` opens the TCP
    connection; it is called with a protocol factory, and returns the TCP transport and its protocol. Raises OSError
    (ssl.SSLError is one) if the connection or the handshake fails; the connection is then closed."""
    layer = _TlsLayer(asyncio.get_running_loop(), protocol, context, handshake_seconds, server_hostname=server_hostname)
    return await layer.shake_hands(connect(lambda: layer))


class TlsTransport(asyncio.Transport):
    """The transport that a protocol gets for a TLS connection. It cannot be half-closed."""

    def __init__(self, layer: _TlsLayer, plain: asyncio.Transport) -> None:
        super().__init__()
        self._layer, self._plain = layer, plain

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        tls = self._layer.tls
        if name == "ssl_object":
            return tls
        if name == "sslcontext":
            return tls.context
        if name == "peercert":
            return tls.getpeercert()
        return self._plain.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._layer.protocol = cast(asyncio.Protocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._layer.protocol

    def is_closing(self) -> bool:
        return self._layer.closing or self._plain.is_closing()

    def is_reading(self) -> bool:
        return not self._layer.paused and not self.is_closing()

    def pause_reading(self) -> None:
        self._layer.paused = True

    def resume_reading(self) -> None:
        self._layer.resume()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.is_closing():
            self._layer.send(data)

    def can_write_eof(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._plain.set_write_buffer_limits(high, low)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._plain.get_write_buffer_limits()

    def get_write_buffer_size(self) -> int:
        return self._plain.get_write_buffer_size()

    def close(self) -> None:
        self._layer.close()

    def abort(self) -> None:
        self._plain.abort()


class _TlsLayer(asyncio.BufferedProtocol):
    """The layer between a TCP connection and its protocol: does the TLS handshake, then decrypts received and
    encrypts sent data."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.Protocol,
        context: ssl.SSLContext,
        handshake_seconds: float,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
    ) -> None:
        self._loop = loop
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side, server_hostname)
        self.protocol = protocol
        self.paused = False
        self.closing = False
        self.handshaken: asyncio.Future[TlsTransport] = loop.create_future()
        self._handshake_seconds = handshake_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._plain: asyncio.Transport | None = None
        self._transport: TlsTransport | None = None  # None until the handshake is done
        self._buffer = bytearray()
        self._waiting = bytearray()  # received, but not yet passed to OpenSSL
        self._unsent = bytearray()  # waits for encryption until a renegotiation has ended
        self._at_end = False  # the peer has closed its side of the connection
        self._error: Exception | None = None  # the TLS error that ended the connection

    async def shake_hands(self, connecting: Coroutine[Any, Any, tuple[asyncio.Transport, Any]]) -> asyncio.Transport:
        plain, _ = await connecting
        try:
            return await self.handshaken
        except asyncio.CancelledError:
            plain.abort()
            raise

    # Callbacks of the TCP connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._plain = cast(asyncio.Transport, transport)
        self._timer = self._loop.call_later(self._handshake_seconds, self._too_slow)
        self._advance()  # the client begins the handshake

    def get_buffer(self, sizehint: int) -> bytearray:
        self._buffer = bytearray(_READ)
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        buffer, self._buffer = self._buffer, bytearray()
        self._waiting += memoryview(buffer)[:nbytes]
        self._advance()

    def eof_received(self) -> bool:
        self._at_end = True
        self._advance()
        return True  # the connection is closed after the protocol has read everything

    def pause_writing(self) -> None:
        if self._transport is not None:
            self.protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._transport is not None:
            self.protocol.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self.closing = True
        self._stop_timer()
        error = error or self._error
        self._fail_handshake(error or ConnectionResetError())
        if self._transport is not None:
            self.protocol.connection_lost(error)

    # Calls of the protocol

    def resume(self) -> None:
        self.paused = False
        self._loop.call_soon(self._continue)

    def send(self, data: bytes | bytearray | memoryview) -> None:
        if self._unsent:
            self._unsent += data
            return
        view, sent, encrypted = memoryview(data), 0, []
        while sent < len(view):
            try:
                sent += self.tls.write(view[sent : sent + _RECORD])
            except ssl.SSLWantReadError:
                self._unsent += view[sent:]
                break
            except ssl.SSLError as error:
                self._fail(error)
                return
            encrypted.append(self._outgoing.read())
        # Not writelines(): in some versions of Python it never pauses the protocol (CVE-2024-12254).
        if self._plain is not None:
            self._plain.write(b"".join(encrypted))

    def close(self) -> None:
        """Send everything that has been written and a TLS close_notify, then close the connection."""
        if self.closing or self._plain is None:
            return
        self.closing = True
        if self._transport is not None:
            with suppress(ssl.SSLError):  # the peer has not sent close_notify yet; weft does not wait for it
                self.tls.unwrap()
        self._close_plain()

    def _close_plain(self) -> None:
        self._flush()
        self._stop_timer()
        if self._plain is not None:
            self._timer = self._loop.call_later(CLOSE_SECONDS, self._plain.abort)
            self._plain.close()

    # Encryption and decryption

    def _continue(self) -> None:
        """Continue reading after a pause. If the protocol raises an exception, the connection is aborted; asyncio
        does the same if a callback of a TCP connection raises one."""
        try:
            self._advance()
        except Exception as error:  # noqa: BLE001 - a defect of a protocol costs its connection
            self._loop.call_exception_handler({"message": "a protocol failed", "exception": error})
            self._error = error
            if self._plain is not None:
                self._plain.abort()

    def _advance(self) -> None:
        """Do the TLS handshake, then decrypt received data and pass it to the protocol, until no data is left or the
        protocol pauses reading."""
        while not self.closing and not self.paused:
            try:
                if self._transport is None:
                    self.tls.do_handshake()
                    self._shaken()
                elif data := self._read():
                    self.protocol.data_received(data)
                else:
                    self._at_end = True
                    break
            except ssl.SSLWantReadError:
                if not self._waiting:
                    break
                self._incoming.write(self._waiting[:_PIECE])
                del self._waiting[:_PIECE]
            except ssl.SSLError as error:
                self._fail(error)
        if self.closing:
            return
        self._flush()
        if self._unsent:
            unsent, self._unsent = self._unsent, bytearray()
            self.send(unsent)
        if self._at_end and not self.paused:
            self._end()
        elif self._plain is not None and not self._at_end:
            if len(self._waiting) > MOST_WAITING:
                self._plain.pause_reading()
            elif not self._plain.is_reading():
                self._plain.resume_reading()

    def _read(self) -> bytes:
        """Return decrypted bytes, or b"" after the peer's close_notify. Raises SSLWantReadError if more data is
        needed."""
        try:
            return self.tls.read(_RECORD)
        except ssl.SSLZeroReturnError:
            return b""

    def _end(self) -> None:
        if self._transport is None:
            self._fail_handshake(ConnectionResetError())
        else:
            self.protocol.eof_received()
        self.close()

    def _shaken(self) -> None:
        assert self._plain is not None  # noqa: S101 - bytes have come from there
        self._stop_timer()
        self._transport = TlsTransport(self, self._plain)
        self._flush()
        self.protocol.connection_made(self._transport)
        if not self.handshaken.done():
            self.handshaken.set_result(self._transport)

    def _flush(self) -> None:
        if self._plain is not None and self._outgoing.pending:
            self._plain.write(self._outgoing.read())

    def _fail(self, error: ssl.SSLError) -> None:
        """End the connection with a TLS alert after `error`: the peer violated TLS or is not trusted."""
        self._fail_handshake(error)
        self._error = error
        self.closing = True
        self._close_plain()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _too_slow(self) -> None:
        what = f"the TLS handshake took longer than {self._handshake_seconds:g} s"
        self._fail_handshake(ConnectionAbortedError(what))
        self.closing = True
        if self._plain is not None:
            self._plain.abort()

    def _fail_handshake(self, error: Exception) -> None:
        if not self.handshaken.done():
            self.handshaken.set_exception(error)
