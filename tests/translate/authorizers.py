"""Small real authorizers, one for HTTP and one for gRPC. Both allow requests with `x-user: good`, do not respond for
`x-user: slow`, and record the requests that they get."""

import asyncio
import contextlib

import grpc
from envoy.config.core.v3.base_pb2 import HeaderValue, HeaderValueOption
from envoy.service.auth.v3.external_auth_pb2 import CheckRequest, CheckResponse
from google.rpc.code_pb2 import PERMISSION_DENIED


class Asked(list):
    """The heads (HTTP) or the CheckRequests (gRPC) so far."""


@contextlib.asynccontextmanager
async def http_authorizer():
    asked = Asked()

    async def answer(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
                body = (await reader.readexactly(int(fields.get("content-length", "0")))).decode()
                asked.append((head, body))
                if fields.get("x-user") == "slow":
                    await asyncio.sleep(60)
                if fields.get("x-user") == "good":
                    headers = "x-checked: yes\r\nx-hidden: no\r\nset-cookie: a=b\r\n"
                    writer.write(f"HTTP/1.1 200 OK\r\n{headers}content-length: 0\r\n\r\n".encode())
                else:
                    headers = "www-authenticate: Basic\r\nx-hidden: no\r\n"
                    writer.write(f"HTTP/1.1 401 Unauthorized\r\n{headers}content-length: 4\r\n\r\nwho?".encode())
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], asked
    finally:
        server.close()


@contextlib.asynccontextmanager
async def grpc_authorizer():
    asked = Asked()

    async def check(request, context):
        asked.append(request)
        headers = request.attributes.request.http.headers
        peer = request.attributes.source.principal
        if headers.get("x-user") == "slow":
            await asyncio.sleep(60)
        response = CheckResponse()
        if headers.get("x-user") == "good" or peer.endswith("/sa/good"):
            option = HeaderValueOption(header=HeaderValue(key="x-checked", value="yes"))
            response.ok_response.headers.append(option)
        else:
            response.status.code = PERMISSION_DENIED
        return response

    handler = grpc.unary_unary_rpc_method_handler(
        check, request_deserializer=CheckRequest.FromString, response_serializer=CheckResponse.SerializeToString
    )
    server = grpc.aio.server()
    service = "envoy.service.auth.v3.Authorization"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Check": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port, asked
    finally:
        await server.stop(0)
