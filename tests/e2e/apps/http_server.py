"""An HTTP server that returns what it received, counts requests, and follows the script of a test; also WebSocket
and large bodies."""

import asyncio
import hashlib
import os
import socket
from collections import Counter, defaultdict
from pathlib import Path

from aiohttp import WSMsgType, web

NAME, VERSION = os.environ["POD_NAME"], os.environ.get("VERSION", "")
CHUNK = bytes(range(256)) * 256

received = Counter()  # by path
scripts = defaultdict(list)  # by path: the steps of the next requests, each {status, delay}
always = {}  # by path
runners = []


async def serve(port=0, *, path=""):
    """Listen on a port, or on a Unix socket that every user may open."""
    app = web.Application(client_max_size=1 << 20)
    app.router.add_get("/bytes/{size}", download)
    app.router.add_post("/sum", upload)
    app.router.add_get("/socket", websocket)
    app.router.add_route("*", "/{path:.*}", echo)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=5, keepalive_timeout=3600)
    await runner.setup()
    if path:
        await web.UnixSite(runner, path).start()
        Path(path).chmod(0o777)
    else:
        await web.TCPSite(runner, host=None, port=port, backlog=2048).start()
    runners.append(runner)


async def drain():
    for runner in runners:
        await runner.cleanup()


async def echo(request):
    received[request.path] += 1
    step = scripts[request.path].pop(0) if scripts.get(request.path) else always.get(request.path, {})
    if step.get("delay"):
        await asyncio.sleep(step["delay"])
    if step.get("reset"):
        request.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        request.transport.abort()
    body = {
        "pod": NAME,
        "version": VERSION,
        "method": request.method,
        "path": request.raw_path,
        "host": request.host,
        "headers": [[name.lower(), value] for name, value in request.headers.items()],
        "peer": next(iter(request.transport.get_extra_info("peername")), "") if request.transport else "",
        "body": await request.text(),
    }
    return web.json_response(body, status=step.get("status", 200), headers=step.get("headers", {"server-says": NAME}))


async def download(request):
    size = int(request.match_info["size"])
    response = web.StreamResponse()
    await response.prepare(request)
    for start in range(0, size, len(CHUNK)):
        await response.write(CHUNK[: size - start])
    await response.write_eof()
    return response


async def upload(request):
    digest, size = hashlib.sha256(), 0
    async for chunk in request.content.iter_any():
        digest.update(chunk)
        size += len(chunk)
    return web.json_response({"size": size, "sha256": digest.hexdigest()})


async def websocket(request):
    received["/socket"] += 1
    connection = web.WebSocketResponse()
    await connection.prepare(request)
    async for message in connection:
        if message.type is WSMsgType.TEXT:
            await connection.send_str(f"{NAME}: {message.data}")
        elif message.type is WSMsgType.BINARY:
            await connection.send_bytes(message.data[::-1])
    return connection


async def script(path, steps=None, forever=None):
    """The next requests to a path get these steps, one each; `forever` is for those after."""
    scripts[path] = list(steps or [])
    always.pop(path, None)
    if forever:
        always[path] = forever


async def counts():
    return dict(received)


COMMANDS = {"script": script, "received": counts}
