"""Servers of other protocols than HTTP: an echo that supports half-close, a server-first greeting, a server that
half-closes first, and one for datagrams, the only one over UDP."""

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
    # One socket for both families, as most servers do.
    await asyncio.start_server(handler, host=None, port=port, backlog=2048)


class Datagrams(asyncio.DatagramProtocol):
    """Returns each datagram with the pod's name and the sender's address."""

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, peer):
        self.transport.sendto(f"{NAME} from {peer[0]}: ".encode() + data, peer)


async def echo(reader, writer):
    """Return all bytes; after the caller's end of file, send a last line, then close."""
    said_something = False
    while data := await _read(reader):
        if not said_something:  # probes connect without sending anything
            peers.append(writer.get_extra_info("peername")[0])
            said_something = True
        writer.write(data)
        await writer.drain()
    writer.write(b"<end of file seen>")
    await _close(writer)


async def greeting(reader, writer):
    """Server-first, like MySQL: send a greeting and wait for a response."""
    writer.write(f"greetings from {NAME}\n".encode())
    while line := await reader.readline():
        writer.write(b"you said " + line)
        await writer.drain()
    await _close(writer)


async def namer(reader, writer):
    """Return the pod's name after the first bytes."""
    if await _read(reader):
        writer.write(NAME.encode())
    await _close(writer)


async def closer(reader, writer):
    """Send one line, half-close, and keep reading."""
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
