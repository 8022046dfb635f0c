"""Starts Envoys and the application behind them, and sends requests as bytes."""

import asyncio
import contextlib
import json
import ssl
import tempfile
from pathlib import Path

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.http.router.v3.router_pb2 import Router
from envoy.extensions.filters.listener.http_inspector.v3.http_inspector_pb2 import HttpInspector
from envoy.extensions.filters.listener.proxy_protocol.v3.proxy_protocol_pb2 import ProxyProtocol as ReadProxyProtocol
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy
from envoy.extensions.upstreams.http.v3.http_protocol_options_pb2 import HttpProtocolOptions
from google.protobuf.json_format import ParseDict

from explain.asked import Answer
from listening import until_listening
from translate.live import agent, ask_for_secrets_at
from weft.envoy import binary
from weft.explain.request import Speaks
from weft.model.destination_rule import ProxyProtocol
from weft.translate.announcement import announce_caller

HELLO = b"TLS!"  # stands for a TLS record, but is none


@contextlib.asynccontextmanager
async def app():
    """An application on loopback. Yields its port."""
    async with contextlib.AsyncExitStack() as stack:
        server = await asyncio.start_server(_answer, "127.0.0.1", 0, backlog=1000)
        stack.callback(server.close)
        yield server.sockets[0].getsockname()[1]


async def _answer(reader, writer):
    """Responds to HTTP with a header that contains the received request, echoes other lines, and acknowledges TLS."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while (first := await reader.read(1)) and first != b"\x16":
            line = first + await reader.readline()
            if line == b"ping\n":
                writer.write(line)
                continue
            head = (line + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            said = json.dumps(head.split("\r\n")[:-2]).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-app: %b\r\n\r\n" % said)
            await writer.drain()
        if first:
            writer.write(HELLO)
            await reader.read(65536)  # unread bytes would reset the connection
    writer.close()


def bridged(name, places, port, *, to_http2=False):
    """Listeners at these places, and their cluster. They let callers use HTTP/2 to the application, which supports
    only HTTP/1. With `to_http2`, they let an HTTP/1 client call a proxy over HTTP/2, with the client's PROXY
    header."""
    endpoint = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}
    made = {
        "name": name,
        "connect_timeout": "60s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}]},
    }
    cluster = ParseDict(made, Cluster())
    if to_http2:
        options = HttpProtocolOptions()
        options.explicit_http_config.http2_protocol_options.SetInParent()
        cluster.typed_extension_protocol_options[HttpProtocolOptions.DESCRIPTOR.full_name].Pack(options)
        announce_caller(cluster, ProxyProtocol.V1)
    routes = [
        {"match": match, "route": {"cluster": name, "timeout": "0s"}}
        for match in ({"connect_matcher": {}}, {"prefix": "/"})
    ]
    manager = ParseDict(
        {
            "stat_prefix": name,
            "http2_protocol_options": {"allow_connect": True},
            "upgrade_configs": [{"upgrade_type": "CONNECT"}, {"upgrade_type": "websocket"}, {"upgrade_type": "tcp"}],
            "route_config": {"virtual_hosts": [{"name": name, "domains": ["*"], "routes": routes}]},
        },
        HttpConnectionManager(),
    )
    manager.http_filters.add(name="envoy.filters.http.router").typed_config.Pack(Router())
    listeners = []
    for number, (address, own) in enumerate(places):
        listener = Listener(name=f"{name}-{number}")
        listener.address.socket_address.address, listener.address.socket_address.port_value = address, own
        chain = listener.filter_chains.add()
        chain.filters.add(name=name).typed_config.Pack(manager)
        if to_http2:
            told = listener.listener_filters.add(name="envoy.filters.listener.proxy_protocol")
            told.typed_config.Pack(ReadProxyProtocol())
        else:
            heard = listener.listener_filters.add(name="envoy.filters.listener.http_inspector")
            heard.typed_config.Pack(HttpInspector())
            chain.filter_chain_match.application_protocols.append("h2c")
            listener.default_filter_chain.filters.add(name=name).typed_config.Pack(
                TcpProxy(stat_prefix=name, cluster=name)
            )
        listeners.append(listener)
    return listeners, cluster


@contextlib.asynccontextmanager
async def envoy(document, identity, places):
    """Starts an Envoy. Yields the path of its access log."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "bootstrap.pb")
        async with agent(f"{directory}/sds", identity, {}):
            ask_for_secrets_at(document, f"{directory}/sds")
            file.write_bytes(document.SerializeToString())
            process = await asyncio.create_subprocess_exec(
                *(str(binary.find()), "--config-path", str(file), "--disable-hot-restart", "--concurrency", "1"),
                *("--log-level", "error", "--file-flush-interval-msec", "20"),
                cwd=directory,
            )
            try:
                for place in places:
                    await until_listening(*place, process)
                yield Path(directory, "access.log")
            finally:
                process.terminate()
                await process.wait()


async def ask_http(reader, writer, request):
    target = request.host if request.method == "CONNECT" else request.path
    lines = [f"{request.method} {target} HTTP/1.1", f"Host: {request.host}"]
    lines += [f"{name}: {value}" for name, value in request.headers]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    headers = {}
    for line in head.split("\r\n")[1:]:
        name, _, value = line.partition(":")
        headers.setdefault(name.lower(), value.strip())
    body = b""
    if request.method != "HEAD" and (length := int(headers.get("content-length", 0))):
        body = await reader.readexactly(length)
    if request.speaks is Speaks.HTTP2 and "x-envoy-upstream-service-time" not in headers:
        return Answer()  # a response of the bridge itself: the HTTP/2 caller got no response
    app = json.loads(headers["x-app"]) if "x-app" in headers else None
    del body
    return Answer(int(head.split()[1]), int(headers.get("grpc-status", 0)), headers.get("location", ""), app)


async def ask_tls(reader, writer, request):
    """Sends a TLS hello, as an application with its own TLS does."""
    context = ssl.create_default_context()
    if request.offers:
        context.set_alpn_protocols(list(request.offers))
    heard, said = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(heard, said, server_hostname=request.server_name).do_handshake()
    writer.write(said.read())
    return Answer(200, app=[]) if await reader.read(4) == HELLO else Answer()


async def ask_bytes(reader, writer, request):
    writer.write(b"ping\n")
    said = await reader.readline()
    return Answer(200, app=["ping"]) if said == b"ping\n" else Answer()


async def logged(log, wanted):
    """The access log by case, once it contains all wanted cases."""
    for _ in range(250):
        text = log.read_text() if log.exists() else ""
        found = {}
        for line in text.splitlines():
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                found[str(entry["case"])] = entry
        if wanted <= found.keys():
            break
        await asyncio.sleep(0.02)
    return {case: line for case, line in found.items() if case.isdigit()}
