"""The stock of the shop, over gRPC. Messages are JSON, so no generated code is needed."""

import asyncio
import json
import signal

import grpc
import pod

STOCK = {"teapot": 12, "kettle": 3, "strainer": 40}


async def stock(request, context):
    item = request.get("item", "")
    if item not in STOCK:
        await context.abort(grpc.StatusCode.NOT_FOUND, f"no such item: {item}")
    return {"pod": pod.NAME, "caller": context.peer(), "item": item, "left": STOCK[item]}


async def main():
    server = grpc.aio.server()
    method = grpc.unary_unary_rpc_method_handler(
        stock,
        request_deserializer=json.loads,
        response_serializer=lambda value: json.dumps(value).encode(),
    )
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("shop.Inventory", {"Stock": method})])
    server.add_insecure_port(f"[::]:{pod.PORT}")  # also accepts IPv4
    await server.start()
    print(f"{pod.NAME} {pod.VERSION} listens on {pod.PORT}", flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    await server.stop(grace=pod.PATIENCE)


if __name__ == "__main__":
    asyncio.run(main())
