"""Takes payments and writes each into the ledger over a new TCP connection. The response has the version of this
program."""

import asyncio
import os

import pod
from aiohttp import web

LEDGER = os.environ.get("LEDGER", "ledger:7000")


async def pay(request):
    try:
        entry = await asyncio.wait_for(record(2900), timeout=0.6 * pod.PATIENCE)
    except (OSError, TimeoutError, EOFError, ValueError) as error:
        return web.json_response({"pod": pod.NAME, "version": pod.VERSION, "error": f"ledger: {error!r}"}, status=500)
    return web.json_response({"pod": pod.NAME, "version": pod.VERSION, "caller": request.remote, "entry": entry})


async def record(cents):
    host, port = LEDGER.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        await reader.readuntil(b"\n")  # the ledger sends its greeting first
        writer.write(b"ADD %d\n" % cents)
        answer = (await reader.readuntil(b"\n")).decode().split()
        if answer[:1] != ["OK"]:
            raise ValueError(" ".join(answer))
        return int(answer[1])
    finally:
        writer.close()


if __name__ == "__main__":
    app = web.Application()
    app.router.add_post("/pay", pay)
    app.router.add_get("/pay", pay)
    pod.serve(app)
