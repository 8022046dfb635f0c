"""HTTP/1 written by hand, for faults that a well-behaved server never causes: closing idle connections under load,
trailers, wrong lengths, resets. The path selects the fault; any other path returns what arrived."""

import asyncio
import json
import os
import socket
from collections import Counter

NAME = os.environ["POD_NAME"]

received = Counter()  # by path
idle = {"seconds": 3600.0}
wanted = asyncio.Event()  # set when the bodies sent to /unread are to be read
RESET = b"\1\0\0\0\0\0\0\0"  # struct linger: on, for 0 s


async def serve(port):
    await asyncio.start_server(talk, host=None, port=port, backlog=2048, limit=1 << 20)


async def talk(reader, writer):
    try:
        while await exchange(reader, writer):
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
        pass
    writer.close()


async def exchange(reader, writer):
    """Serve one request; returns whether the connection stays open."""
    async with asyncio.timeout(idle["seconds"]):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin1")
    first, *lines = head.split("\r\n")
    method, target, version = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    path, _, _query = target.partition("?")
    received[path] += 1
    if path == "/reset":
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        writer.transport.abort()
        return False
    if path == "/early":  # responds without reading the body, then closes
        answer(writer, 413, b"too much")
        await writer.drain()
        return False
    if path == "/cut":  # resets in the middle of its response
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n" + b"x" * 1000)
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        writer.transport.abort()
        return False
    if headers.get("expect") == "100-continue":
        if path == "/refuse":
            answer(writer, 417, b"")
            return False
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if path == "/unread":
        await wanted.wait()
    body, trailers = await content(reader, headers)
    if path == "/upgrade":
        switching = (
            "HTTP/1.1 101 Switching",
            "connection: upgrade",
            f"upgrade: {headers['upgrade']}",
            f"x-method: {method}",
        )
        writer.write("\r\n".join((*switching, "", "")).encode())
        while data := await reader.read(65536):
            writer.write(data[::-1])
        return False
    if path == "/trailers":
        writer.write(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n4\r\nbody\r\n0\r\nx-sum: 42\r\n\r\n"
        )
        return True
    if path == "/too-short":  # declares a larger length than it sends
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nonly this")
        return False
    if path == "/too-long":  # sends more than it declares: the rest looks like another response
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfourHTTP/1.1 200 OK\r\nx-smuggled: 1\r\n\r\n")
        return True
    if path == "/forbidden":  # forbidden in HTTP/2
        writer.write(b"HTTP/1.1 200 OK\r\nte: gzip\r\ncontent-length: 0\r\n\r\n")
        return True
    if path == "/nonsense":
        writer.write(b"this is not HTTP\r\n\r\n")
        return False
    seen = {
        "pod": NAME, "method": method, "path": target, "version": version, "headers": headers, "size": len(body),
        "body": body[:1000].decode("latin1"), "trailers": trailers,
    }  # fmt: skip
    answer(writer, 200, json.dumps(seen).encode())
    return headers.get("connection", "") != "close"


async def content(reader, headers):
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(headers.get("content-length", 0))), {}
    parts = []
    while size := int((await reader.readline()).strip() or b"0", 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    trailers = {}
    while line := (await reader.readline()).strip():
        name, _, value = line.decode().partition(":")
        trailers[name.lower()] = value.strip()
    return b"".join(parts), trailers


def answer(writer, status, body):
    writer.write(
        b"HTTP/1.1 %d Said\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(body))
    )
    writer.write(body)


async def close_idle(after):
    """Close connections that have been idle for `after` seconds from now on, even if a request is in flight."""
    idle["seconds"] = after


async def read_on():
    global wanted
    wanted.set()
    wanted = asyncio.Event()


async def raw_received():
    return dict(received)


COMMANDS = {"close_idle": close_idle, "raw_received": raw_received, "read_on": read_on}
