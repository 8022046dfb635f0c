"""The program of a pod in tests: it serves on 8080, calls the given URLs steadily, and counts failures.

It runs from the image that has Python and aiohttp. On 9090, which is not intercepted, a test queries it.
"""

import asyncio
import os
import sys
import time

import aiohttp
from aiohttp import web

PERIOD = 0.05
_counts = {"sent": 0, "failed": {}, "failures": []}  # `failed` by URL; `failures` has the last ten


async def hello(request):
    shown = request.headers.get("x-forwarded-client-cert", "")
    return web.json_response({"pod": os.environ.get("HOSTNAME", ""), "client": shown})


async def counts(_request):
    return web.json_response(_counts)


async def fetch(request):
    """The response that this pod gets from a URL."""
    try:
        timeout = aiohttp.ClientTimeout(5)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(request.query["url"]) as answer:
            return web.json_response({"status": answer.status, "body": await answer.text()})
    except (aiohttp.ClientError, TimeoutError) as error:
        return web.json_response({"status": 0, "body": repr(error)})


async def call(session, url):
    _counts["sent"] += 1
    try:
        async with session.get(url) as answer:
            body = await answer.text()
            said = "" if answer.status == 200 else f"{answer.status}: {body[:200]}"
    except (aiohttp.ClientError, TimeoutError) as error:
        said = repr(error)
    if said:
        _counts["failed"][url] = _counts["failed"].get(url, 0) + 1
        _counts["failures"] = [*_counts["failures"][-9:], f"{time.strftime('%H:%M:%S')} {url} {said}"]


async def call_steadily(urls):
    """Calls one URL after the other, each over a kept connection to the proxy."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(15)) as session:
        while urls:
            for url in urls:
                await call(session, url)
                await asyncio.sleep(PERIOD)


async def main():
    app, asked = web.Application(), web.Application()
    app.router.add_get("/{path:.*}", hello)
    asked.router.add_get("/counts", counts)
    asked.router.add_get("/fetch", fetch)
    for application, port in ((app, 8080), (asked, 9090)):
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "0.0.0.0", port).start()
    await call_steadily(sys.argv[1:])
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
