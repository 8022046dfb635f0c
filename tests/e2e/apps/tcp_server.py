"""Servers that speak no HTTP: an echo that knows half-close, one that greets first, one that closes its side first, and
one for datagrams, the only one that does not speak TCP."""

import asyncio
import os
from collections import Counter

NAME = os.environ["POD_NAME"]

seen = Counter()  # bytes, by kind
peers = []


async def serve(kind, port):
    if kind == "datagrams":
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(Datagrams, local_addr=("0.0.0.0", port))
        return
    handler = {"echo": echo, "greeting": greeting, "closer": closer, "namer": namer}[kind]
    # Both families by one socket, as most servers do.
    await asyncio.start_server(handler, host=None, port=port, backlog=2048)


class Datagrams(asyncio.DatagramProtocol):
    """Each back, with who got it and from where."""

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, peer):
        self.transport.sendto(f"{NAME} from {peer[0]}: ".encode() + data, peer)


async def echo(reader, writer):
    """Everything back; after the caller's end of file, one last word, then our own."""
    said_something = False
    while data := await _read(reader):
        if not said_something:  # probes connect too, and say nothing
            peers.append(writer.get_extra_info("peername")[0])
            said_something = True
        writer.write(data)
        await writer.drain()
    writer.write(b"<end of file seen>")
    await _close(writer)


async def greeting(reader, writer):
    """As MySQL does: the server has the first word, and needs an answer to go on."""
    writer.write(f"greetings from {NAME}\n".encode())
    while line := await reader.readline():
        writer.write(b"you said " + line)
        await writer.drain()
    await _close(writer)


async def namer(reader, writer):
    """Whatever comes first: who got it."""
    if await _read(reader):
        writer.write(NAME.encode())
    await _close(writer)


async def closer(reader, writer):
    """Says one thing, closes its own side, and goes on listening."""
    writer.write(b"that is all from me\n")
    writer.write_eof()
    while data := await _read(reader):
        seen["closer"] += len(data)
    seen["closer ended"] += 1
    await _close(writer)


async def _read(reader):
    try:
        return await reader.read(65536)
    except ConnectionError:
        return b""


async def _close(writer):
    try:
        await writer.drain()
        writer.close()
    except ConnectionError:
        pass


async def tcp_seen():
    return {"bytes": dict(seen), "peers": peers}


COMMANDS = {"tcp_seen": tcp_seen}
