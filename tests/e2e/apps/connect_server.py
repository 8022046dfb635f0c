"""A proxy that opens tunnels for HTTP/1.1 requests: CONNECT, followed by raw bytes, and POST, whose body is the
tunnel. It records the requests."""

import asyncio

asked = []


async def serve(port):
    await asyncio.start_server(talk, host=None, port=port, backlog=2048)


async def talk(reader, writer):
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin1")
        first, *lines = head.split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        goal = target if method == "CONNECT" else headers["host"]
        asked.append([method, goal])
        if method not in ("CONNECT", "POST"):
            writer.write(b"HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n")
            return
        await carry(method, goal, reader, writer)
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def carry(method, goal, reader, writer):
    host, _, port = goal.rpartition(":")
    try:
        far_reader, far_writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except OSError:
        writer.write(b"HTTP/1.1 502 Nobody there\r\ncontent-length: 0\r\n\r\n")
        return
    if method == "CONNECT":
        writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        there, back = plain(reader, far_writer), plain(far_reader, writer)
    else:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        there, back = unpacked(reader, far_writer), packed(far_reader, writer)
    await asyncio.gather(there, back)
    far_writer.close()


async def plain(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


async def unpacked(reader, writer):
    while size := int((await reader.readline()).strip() or b"0", 16):
        writer.write(await reader.readexactly(size))
        await reader.readexactly(2)
    writer.write_eof()


async def packed(reader, writer):
    while data := await reader.read(65536):
        writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        await writer.drain()
    writer.write(b"0\r\n\r\n")


async def tunnels():
    return asked


COMMANDS = {"tunnels": tunnels}
