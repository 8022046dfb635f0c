"""HTTP/1.1 upgrades through two proxies with HTTP/2 between them, as the applications on both ends see them."""

import asyncio
import ssl

import pytest
from envoy.config.route.v3.route_components_pb2 import Route
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)

from translate.live import FRONTEND, app, both, pair
from translate.raw_http2 import ask_by_http2
from weft.translate.upgrades import UPGRADES, allow_upgrades, receive_upgrades, send_upgrades


async def ask(port, method, protocol):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"{method} /chat HTTP/1.1\r\nHost: orders\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n"
    writer.write(head.encode())
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
    writer.close()
    return answer.decode()


@pytest.mark.parametrize("protocol", UPGRADES)
async def test_an_upgrade_keeps_its_method_and_a_switch_of_protocols_its_status(protocol):
    async def switch(reader, writer):
        method = (await reader.readuntil(b"\r\n\r\n")).decode().split(" ")[0]
        head = (
            "HTTP/1.1 101 Switching Protocols",
            f"Upgrade: {protocol}",
            "Connection: Upgrade",
            f"X-Method: {method}",
        )
        writer.write("\r\n".join((*head, "", "")).encode())
        await reader.read()
        writer.close()

    async with app(switch) as app_port, pair(app_port) as port:
        for method in ("GET", "POST"):
            answer = await ask(port, method, protocol)
            assert answer.startswith("HTTP/1.1 101") and f"x-method: {method}" in answer, answer


@pytest.mark.parametrize(("protocol", "status"), [("websocket", 200), ("spdy/3.1", 203), ("tcp", 203)])
@pytest.mark.parametrize("own", [200, 204, 404])
async def test_an_application_that_ignores_an_upgrade_does_not_switch_protocols(protocol, status, own):
    seen = []

    async def ignore(reader, writer):
        seen.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(f"HTTP/1.1 {own} Fine\r\nX-Own: yes\r\nContent-Length: 0\r\n\r\n".encode())
        await reader.read()
        writer.close()

    async with app(ignore) as app_port, pair(app_port) as port:
        answer = await ask(port, "POST", protocol)
    assert answer.startswith(f"HTTP/1.1 {status if own == 200 else own} "), answer
    assert "x-own: yes" in answer and "upgrade: " not in answer
    assert seen[0].startswith("POST /chat") and "x-weft-upgrade-method" not in seen[0]


@pytest.mark.parametrize(
    ("named", "line"),
    [
        ("POST", "POST /chat HTTP/1.1"),
        (
            "GET /admin HTTP/1.1",
            "GET /chat HTTP/1.1",
        ),  # a server may take /admin for the path, which no policy has seen
        ("get", "GET /chat HTTP/1.1"),
        ("", "GET /chat HTTP/1.1"),
    ],
)
async def test_a_client_can_write_only_a_method_into_the_request_line(tmp_path, named, line):
    seen = []

    async def ignore(reader, writer):
        seen.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 404 Gone\r\nContent-Length: 0\r\n\r\n")
        await reader.read()
        writer.close()

    headers = ((":protocol", "websocket"), ("x-weft-upgrade-method", named))
    async with app(ignore) as app_port, both(app_port) as proxies:
        tls = client_tls(proxies.authority.issue(FRONTEND), tmp_path)
        assert await ask_by_http2("127.0.0.1", proxies.inbound, "CONNECT", "/chat", headers, tls=tls) == 404
    assert seen[0].startswith(f"{line}\r\n") and "x-weft-upgrade" not in seen[0].lower()


def client_tls(credentials, directory):
    """The TLS of a client with a certificate of the mesh that is not weft's proxy."""
    file = directory / "client.pem"
    file.write_bytes(credentials.key + credentials.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(file)
    context.set_alpn_protocols(["istio-h2"])
    return context


def test_an_upgrade_runs_all_filters_of_other_requests():
    """Guards above all: Envoy runs for an upgrade only the filters of the upgrade's own chain."""
    manager = HttpConnectionManager()
    allow_upgrades(manager)
    for name in ("guard", "router"):
        manager.http_filters.add(name=name)
    send_upgrades(manager)
    assert [each.upgrade_type for each in manager.upgrade_configs] == list(UPGRADES)
    for each in manager.upgrade_configs:
        assert [one.name for one in each.filters[1:]] == ["guard", "router"]


def test_other_requests_run_no_filter_for_upgrades():
    manager, route = HttpConnectionManager(), Route(name="default")
    for_upgrades = receive_upgrades(manager, route)
    (restoring,) = manager.http_filters
    assert restoring.disabled
    assert list(for_upgrades.typed_per_filter_config) == [restoring.name] and not route.typed_per_filter_config
    assert [header.name for header in for_upgrades.match.headers] == ["upgrade"]
