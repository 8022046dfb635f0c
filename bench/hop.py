"""The app of each pod in `bench/amplification.py`: forwards HTTP and gRPC requests to the service $NEXT and returns
the status of the response. The last pod of the chain has no $NEXT and always fails. `/drive` makes the app send
requests at a fixed rate; `/count` returns how many requests of each kind it received."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections import Counter
from typing import Any

import grpc
from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, web

HTTP_PORT, GRPC_PORT = 8080, 9090
NEXT = os.environ.get("NEXT", "")
_METHOD = "/bench.Hop/Call"
_RESET = b"\1\0\0\0\0\0\0\0"  # struct linger: on, for 0 s; close() then sends a TCP reset

asked: Counter[str] = Counter()


class Onward:
    """The HTTP and gRPC clients for the service $NEXT."""

    def __init__(self) -> None:
        self._session = ClientSession(timeout=ClientTimeout(total=20), connector=TCPConnector(limit=0))
        options = [("grpc.enable_http_proxy", 0), ("grpc.enable_retries", 0)]
        self._channel = grpc.aio.insecure_channel(f"{NEXT}:{GRPC_PORT}", options=options) if NEXT else None

    async def http(self, path: str) -> int:
        try:
            async with self._session.get(f"http://{NEXT}{path}") as response:
                await response.read()
                return response.status
        except (ClientError, TimeoutError, OSError):
            return 0

    async def grpc(self) -> grpc.StatusCode:
        assert self._channel is not None
        try:
            call: Any = self._channel.unary_unary(_METHOD)
            await call(b"", timeout=20)
        except grpc.aio.AioRpcError as error:
            return error.code()
        return grpc.StatusCode.OK


async def main() -> None:
    onward = Onward()

    async def answer(request: web.Request) -> web.Response:
        path = request.path
        asked[path.strip("/")] += 1
        if NEXT:
            return web.Response(status=await onward.http(path) or 503)
        if path == "/reset" and request.transport is not None:
            held: Any = request.transport.get_extra_info("socket")
            held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            request.transport.abort()
        return web.Response(status=503)

    async def call(request: bytes, context: Any) -> bytes:
        asked["grpc"] += 1
        code = await onward.grpc() if NEXT else grpc.StatusCode.UNAVAILABLE
        await context.abort(code, "as always")
        return b""

    async def count(request: web.Request) -> web.Response:
        return web.json_response(dict(asked))

    async def drive(request: web.Request) -> web.Response:
        """Send requests of one kind to $NEXT at a fixed rate, whether they succeed or not. Return how many were
        sent."""
        kind, rate, seconds = (request.query[name] for name in ("kind", "rate", "seconds"))
        number, begun = int(rate) * int(seconds), time.monotonic()
        tasks = []
        for index in range(number):
            await asyncio.sleep(max(0.0, begun + index / int(rate) - time.monotonic()))
            tasks.append(asyncio.create_task(onward.grpc() if kind == "grpc" else onward.http(f"/{kind}")))
        await asyncio.gather(*tasks)
        return web.json_response({"sent": number})

    app = web.Application()
    app.router.add_get("/count", count)
    app.router.add_get("/drive", drive)
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=3600)
    await runner.setup()
    await web.TCPSite(runner, host=None, port=HTTP_PORT, backlog=2048).start()
    server = grpc.aio.server()
    handlers: dict[str, Any] = {"Call": grpc.unary_unary_rpc_method_handler(call)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("bench.Hop", handlers)])
    server.add_insecure_port(f"[::]:{GRPC_PORT}")
    await server.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
