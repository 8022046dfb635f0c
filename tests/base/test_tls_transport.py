"""TLS connections, tested with a client that uses Python's own TLS."""

import asyncio
import contextlib
import socket
import ssl

import pytest

from authority import Authority
from eventually import eventually
from weft.base import tls_transport
from weft.base.tls_transport import MOST_WAITING, accept_tls

LARGE = bytes(range(256)) * 20_000  # 5 MB: more than all buffers on the way


class Recorder(asyncio.Protocol):
    """Records received data, and sends it back if `echo`."""

    def __init__(self, *, echo=False, paused=False):
        self.echo, self.paused = echo, paused
        self.received, self.events = bytearray(), []
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport
        self.events.append("made")
        if self.paused:
            transport.pause_reading()

    def data_received(self, data):
        assert not self.paused, "data came while reading was paused"
        self.received += data
        if self.echo:
            self.transport.write(data)

    def pause_writing(self):
        self.events.append("pause")
        self.transport.pause_reading()

    def resume_writing(self):
        self.events.append("resume")
        self.transport.resume_reading()

    def eof_received(self):
        self.events.append("eof")

    def connection_lost(self, error):
        self.events.append("lost")
        self.lost.set_result(error)

    def resume(self):
        self.paused = False
        self.transport.resume_reading()


@pytest.fixture
def contexts(tmp_path):
    authority = Authority()
    issued = authority.issue("spiffe://cluster.local/ns/a/sa/b")
    file = tmp_path / "both.pem"
    file.write_bytes(issued.key + issued.certificate)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    server.load_verify_locations(cadata=authority.root.decode())
    server.verify_mode = ssl.CERT_OPTIONAL
    server.set_alpn_protocols(["h2"])
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.set_alpn_protocols(["h2"])
    client.own_file = file
    return server, client


class Meeting:
    """A client, and the server's side of its connection."""

    def __init__(self, server, client):
        self.server, self.client = server, client
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.listening.setblocking(False)
        self.address = self.listening.getsockname()

    async def accept(self, protocol, seconds=20.0):
        connection, _ = await asyncio.get_running_loop().sock_accept(self.listening)
        try:
            return await accept_tls(protocol, connection, self.server, handshake_seconds=seconds)
        finally:
            self.connection = connection

    async def connected(self, protocol):
        accepting = asyncio.create_task(self.accept(protocol))
        streams = await asyncio.open_connection(*self.address, ssl=self.client)
        return await accepting, *streams


@pytest.fixture
async def meeting(contexts):
    made = Meeting(*contexts)
    async with asyncio.timeout(60):
        yield made
    made.listening.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_data_is_echoed_completely(meeting, version):
    meeting.client.maximum_version = meeting.client.minimum_version = version
    protocol = Recorder(echo=True)
    transport, reader, writer = await meeting.connected(protocol)
    assert transport.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
    assert transport.get_extra_info("sslcontext") is meeting.server
    assert transport.get_extra_info("peername")[0] == "127.0.0.1"
    writer.write(LARGE)
    assert await reader.readexactly(len(LARGE)) == LARGE
    writer.close()
    assert await protocol.lost is None
    assert protocol.received == LARGE
    assert [each for each in protocol.events if each not in ("pause", "resume")] == ["made", "eof", "lost"]


async def test_a_certificate_of_the_client_is_known(meeting):
    meeting.client.load_cert_chain(meeting.client.own_file)
    transport, _, writer = await meeting.connected(Recorder())
    names = transport.get_extra_info("peercert")["subjectAltName"]
    assert ("URI", "spiffe://cluster.local/ns/a/sa/b") in names
    writer.close()


async def test_while_reading_is_paused_little_is_kept_and_nothing_is_lost(meeting):
    protocol = Recorder(paused=True)
    transport, _, writer = await meeting.connected(protocol)
    writer.write(LARGE)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(writer.drain(), 0.5)
    layer = transport._layer
    assert 0 < len(layer._waiting) <= 2 * MOST_WAITING
    assert protocol.received == b"" and not transport.is_reading()
    protocol.resume()
    writer.close()
    assert await protocol.lost is None
    assert protocol.received == LARGE


async def test_what_came_before_the_end_is_read_after_a_pause(meeting):
    protocol = Recorder(paused=True)
    _, _, writer = await meeting.connected(protocol)
    writer.write(b"last words")
    await writer.drain()
    writer.transport.abort()
    await asyncio.sleep(0.1)
    assert protocol.events == ["made"]
    protocol.resume()
    await protocol.lost
    assert protocol.received == b"last words" and protocol.events == ["made", "eof", "lost"]


async def test_a_connection_that_is_reset_while_reading_is_paused_is_lost_at_once(meeting):
    protocol = Recorder(paused=True)
    _, _, writer = await meeting.connected(protocol)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))
    writer.transport.abort()
    assert isinstance(await protocol.lost, ConnectionError)


async def test_a_client_that_does_not_read_stops_the_writer(meeting):
    protocol = Recorder()
    transport, reader, writer = await meeting.connected(protocol)
    reader._transport.pause_reading()
    transport.write(LARGE)
    assert protocol.events == ["made", "pause"]
    assert transport.get_write_buffer_size() > 0
    reader._transport.resume_reading()
    assert await reader.readexactly(len(LARGE)) == LARGE
    assert protocol.events == ["made", "pause", "resume"]
    writer.close()


async def test_closing_sends_what_was_written_and_close_notify(meeting):
    protocol = Recorder()
    transport, reader, _ = await meeting.connected(protocol)
    transport.write(LARGE)
    transport.close()
    transport.write(b"too late")
    assert transport.is_closing()
    assert await reader.read() == LARGE  # an end without TLS' close_notify would be an error
    assert await protocol.lost is None


async def test_large_messages_leave_no_large_buffers(meeting):
    transport, reader, writer = await meeting.connected(Recorder(echo=True))
    writer.write(LARGE)
    await reader.readexactly(len(LARGE))
    layer = transport._layer
    assert len(layer._waiting) == len(layer._unsent) == len(layer._buffer) == 0
    assert layer._incoming.pending == layer._outgoing.pending == 0
    writer.close()


async def test_a_client_that_never_starts_the_handshake_is_disconnected(meeting):
    protocol = Recorder()
    accepting = asyncio.create_task(meeting.accept(protocol, seconds=0.2))
    reader, writer = await asyncio.open_connection(*meeting.address)
    with pytest.raises(ConnectionAbortedError, match="longer than"):
        await accepting
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    assert protocol.events == []
    writer.close()


@pytest.mark.parametrize("words", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello"])
async def test_a_client_that_does_not_speak_tls_is_disconnected(meeting, words):
    accepting = asyncio.create_task(meeting.accept(Recorder()))
    reader, writer = await asyncio.open_connection(*meeting.address)
    writer.write(words)
    with pytest.raises(ssl.SSLError):
        await accepting
    with contextlib.suppress(ConnectionError):
        await reader.read()
    writer.close()


async def test_a_client_that_disconnects_during_the_handshake_is_an_error(meeting):
    accepting = asyncio.create_task(meeting.accept(Recorder()))
    _, writer = await asyncio.open_connection(*meeting.address)
    writer.close()
    with pytest.raises(ConnectionResetError):
        await accepting


async def test_broken_records_end_the_connection(meeting):
    protocol = Recorder()
    _, reader, writer = await meeting.connected(protocol)
    writer.get_extra_info("socket")._sock.send(b"\x17\x03\x03\x00\x10" + bytes(16))
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        await reader.read()
    await protocol.lost
    assert protocol.received == b""


async def test_cancelling_ends_the_connection(meeting):
    accepting = asyncio.create_task(meeting.accept(Recorder()))
    reader, writer = await asyncio.open_connection(*meeting.address)
    writer.write(b"\x16")
    await asyncio.sleep(0.05)
    accepting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await accepting
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()


async def test_a_client_that_does_not_read_cannot_keep_a_closed_connection_open(meeting, monkeypatch):
    monkeypatch.setattr(tls_transport, "CLOSE_SECONDS", 0.2)
    protocol = Recorder()
    transport, reader, writer = await meeting.connected(protocol)
    reader._transport.pause_reading()
    transport.write(LARGE * 4)
    transport.close()
    assert transport.get_write_buffer_size() > 0
    async with asyncio.timeout(20):
        await protocol.lost
    assert transport.get_write_buffer_size() == 0
    writer.close()


async def test_a_tls_error_after_the_handshake_is_the_reason_of_the_loss(meeting):
    protocol = Recorder()
    _, reader, writer = await meeting.connected(protocol)
    writer.get_extra_info("socket")._sock.send(b"\x17\x03\x03\x00\x10" + bytes(16))
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        await reader.read()
    assert isinstance(await protocol.lost, ssl.SSLError)
    writer.close()


async def test_a_protocol_that_fails_at_the_start_fails_the_handshake(meeting):
    class Failing(Recorder):
        def connection_made(self, transport):
            raise ValueError("a defect")

    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    accepting = asyncio.create_task(meeting.accept(Failing()))
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        _, writer = await asyncio.open_connection(*meeting.address, ssl=meeting.client)
        writer.close()
    async with asyncio.timeout(20):
        with pytest.raises((OSError, ValueError)):
            await accepting


async def test_a_protocol_that_fails_after_a_pause_loses_its_connection(meeting):
    class Failing(Recorder):
        def data_received(self, data):
            raise ValueError("a defect")

    failures = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
    protocol = Failing(paused=True)
    _, _, writer = await meeting.connected(protocol)
    writer.write(b"data")
    await writer.drain()
    await eventually(lambda: protocol.transport._layer._waiting)
    protocol.resume()
    async with asyncio.timeout(20):
        assert str(await protocol.lost) == "a defect" == str(failures[0])
    writer.close()
