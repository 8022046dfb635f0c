"""A gRPC server without generated code: messages are the bytes themselves, one method of each kind."""

import os
from collections import Counter

import grpc

NAME = os.environ["POD_NAME"]
SERVICE = "e2e.Echo"

script = []
received = Counter()
running = []


async def serve(port):
    server = grpc.aio.server()
    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "ServerStream": grpc.unary_stream_rpc_method_handler(server_stream),
        "ClientStream": grpc.stream_unary_rpc_method_handler(client_stream),
        "Both": grpc.stream_stream_rpc_method_handler(both),
        "Fail": grpc.unary_unary_rpc_method_handler(fail),
        "Scripted": grpc.unary_unary_rpc_method_handler(scripted),
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])
    server.add_insecure_port(f"[::]:{port}")
    await server.start()
    running.append(server)  # it stops when it is garbage-collected


async def script_grpc(codes):
    """Set the status codes of the next calls of `Scripted`; later calls succeed."""
    script[:] = codes


async def grpc_received():
    return received["Scripted"]


async def scripted(request, context):
    received["Scripted"] += 1
    if script:
        await context.abort(grpc.StatusCode[script.pop(0)], "as scripted")
    return b"well"


async def unary(request, context):
    return request + b" from " + NAME.encode()


async def server_stream(request, context):
    for number in range(int(request)):
        yield b"%d" % number


async def client_stream(requests, context):
    total = 0
    async for request in requests:
        total += int(request)
    return b"%d" % total


async def both(requests, context):
    async for request in requests:
        yield b"again " + request
    yield b"and that was all"


async def fail(request, context):
    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "as asked")


COMMANDS = {"script_grpc": script_grpc, "grpc_received": grpc_received}
