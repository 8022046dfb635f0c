"""The shop's entry point. For each request it calls catalog (HTTP), inventory (gRPC) and payments (HTTP).

It uses plain service names and ports. The mesh does retries, traffic splitting, timeouts and fault injection.
"""

import asyncio
import json
import os

import grpc
import pod
from aiohttp import ClientError, ClientSession, ClientTimeout, web

CATALOG = os.environ.get("CATALOG", "http://catalog")
PAYMENTS = os.environ.get("PAYMENTS", "http://payments")
INVENTORY = os.environ.get("INVENTORY", "inventory:9090")


async def ask(session, method, url):
    async with session.request(method, url) as response:
        if response.status != 200:
            raise ConnectionError(f"{url} answered {response.status}: {(await response.text()).strip()}")
        return await response.json()


async def buy(request):
    session, stock = request.app[SESSION], request.app[STOCK]
    answers = await asyncio.gather(
        ask(session, "GET", f"{CATALOG}/items"),
        stock({"item": "teapot"}, timeout=pod.PATIENCE),
        ask(session, "POST", f"{PAYMENTS}/pay"),
        return_exceptions=True,
    )
    body = {"pod": pod.NAME, "caller": request.remote}
    failed = False
    for name, answer in zip(("catalog", "inventory", "payments"), answers, strict=True):
        if isinstance(answer, grpc.RpcError):
            body[name], failed = {"error": f"{answer.code().name}: {answer.details()}"}, True
        elif isinstance(answer, (ClientError, ConnectionError, TimeoutError)):
            body[name], failed = {"error": str(answer) or type(answer).__name__}, True
        elif isinstance(answer, BaseException):
            raise answer
        else:
            body[name] = answer
    return web.json_response(body, status=502 if failed else 200)


SESSION = web.AppKey("session", ClientSession)
STOCK = web.AppKey("stock", object)


async def neighbours(app):
    # gRPC without generated code: a method is a path and two functions, one to bytes and one back.
    channel = grpc.aio.insecure_channel(INVENTORY, options=[("grpc.enable_http_proxy", 0)])
    app[STOCK] = channel.unary_unary(
        "/shop.Inventory/Stock",
        request_serializer=lambda value: json.dumps(value).encode(),
        response_deserializer=json.loads,
    )
    async with ClientSession(timeout=ClientTimeout(total=pod.PATIENCE)) as session:
        app[SESSION] = session
        yield
    await channel.close()


if __name__ == "__main__":
    app = web.Application()
    app.router.add_get("/", buy)
    app.cleanup_ctx.append(neighbours)
    pod.serve(app)
