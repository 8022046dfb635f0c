"""Real TLS handshakes between two Envoys, and between an Envoy and other clients and servers."""

import asyncio
import contextlib
import datetime
import socket
import ssl
import tempfile
from pathlib import Path

import pytest
from envoy.extensions.transport_sockets.tls.v3.common_pb2 import TlsParameters
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import DownstreamTlsContext, UpstreamTlsContext

from authority import Authority
from eventually import eventually
from golden.render import compile_group
from model.builders import group, instance, put, service
from translate.live import FRONTEND, ORDERS, app, both, pair
from weft.mesh.mesh import Mesh
from weft.model.peer_authentication import PeerAuthentication, TlsMode
from weft.model.service import Protocol
from weft.model.settings import Settings
from weft.translate import tls

STRICT = PeerAuthentication("default", "shop", mode=TlsMode.STRICT)
DISABLE = PeerAuthentication("default", "shop", mode=TlsMode.DISABLE)
REFUSED = (ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)


async def _ask(port, headers="", context=None):
    """The response to an HTTP request; "" if the connection is closed instead."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    except REFUSED:
        return ""
    with contextlib.suppress(*REFUSED):
        writer.write(f"GET / HTTP/1.1\r\nHost: orders\r\nConnection: close\r\n{headers}\r\n".encode())
        answer = await asyncio.wait_for(reader.read(), 30)
        writer.close()
        return answer.decode()
    return ""


def _answering(seen):
    async def handle(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError):
            seen.append((await reader.readuntil(b"\r\n\r\n")).decode().lower())
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
            await writer.drain()
        writer.close()

    return handle


async def _echo(reader, writer):
    writer.write(await reader.readexactly(4))
    await writer.drain()
    writer.close()


async def _echoed(port, context=None):
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(b"\x00\x01ok")
        return await asyncio.wait_for(reader.readexactly(4), 30) == b"\x00\x01ok"
    except REFUSED:
        return False


def _client(identity=None, protocols=("istio-http/1.1",), least=None, most=None):
    """The TLS context of a client without a proxy, which verifies no certificate but may have one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(protocols)
    context.minimum_version = least or context.minimum_version
    context.maximum_version = most or context.maximum_version
    if identity is not None:
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory, "pair.pem")
            file.write_bytes(identity.key + identity.certificate)
            context.load_cert_chain(file)
    return context


def _server(identity):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "pair.pem")
        file.write_bytes(identity.key + identity.certificate)
        context.load_cert_chain(file)
    return context


async def test_by_default_two_proxies_use_mutual_tls():
    seen = []
    async with app(_answering(seen)) as app_port, pair(app_port, STRICT) as port:
        assert (await _ask(port)).endswith("hi")
    assert f"uri={FRONTEND}" in seen[0]


async def test_permissive_accepts_plaintext_and_strict_rejects_it():
    for policies, answer in (((), "hi"), ((STRICT,), "")):
        async with app(_answering([])) as app_port, both(app_port, *policies) as made:
            assert (await _ask(made.inbound))[-2:] == answer


async def test_a_disabled_workload_is_called_in_plaintext():
    seen = []
    async with app(_answering(seen)) as app_port, pair(app_port, DISABLE) as port:
        assert (await _ask(port)).endswith("hi")
    assert "x-forwarded-client-cert" not in seen[0]


@pytest.mark.parametrize(
    ("server", "answer"),
    [
        (ORDERS, "200"),
        ("spiffe://cluster.local/ns/shop/sa/cart", "503"),
        ("spiffe://cluster.local/ns/other/sa/orders", "503"),
        ("spiffe://elsewhere/ns/shop/sa/orders", "503"),
        ("orders.shop.svc.cluster.local", "503"),
    ],
)
async def test_the_server_must_have_the_identity_of_the_services_endpoints(server, answer):
    authority = Authority()
    async with (
        app(_answering([])) as app_port,
        pair(app_port, authority=authority, server=authority.issue(server)) as port,
    ):
        assert (await _ask(port)).startswith(f"HTTP/1.1 {answer}")


async def test_a_service_without_endpoints_accepts_no_server_identity():
    """Not even one of this mesh: Envoy treats an empty list of names as any name."""
    assert tls.identities("shop", (), Settings()) == ("spiffe://cluster.local/ns/shop/sa/",)
    async with app(_answering([])) as app_port, pair(app_port, service_account="") as port:
        assert (await _ask(port)).startswith("HTTP/1.1 503")


async def test_both_sides_accept_a_former_trust_domain():
    settings = Settings(trust_domain_aliases=("old.example",))
    authority = Authority()
    old = [authority.issue(name.replace("cluster.local", "old.example")) for name in (FRONTEND, ORDERS)]
    async with (
        app(_answering([])) as app_port,
        pair(app_port, STRICT, settings=settings, authority=authority, caller=old[0], server=old[1]) as port,
    ):
        assert (await _ask(port)).startswith("HTTP/1.1 200")


async def test_a_strict_workload_rejects_callers_without_a_valid_certificate_of_the_mesh():
    seen = []
    async with app(_answering(seen)) as app_port, both(app_port, STRICT) as made:
        stranger, home = Authority(), made.authority
        expired = home.issue(FRONTEND, lifetime=datetime.timedelta(minutes=-5))
        refused = {
            "without a certificate": None,
            "another root": stranger.issue(FRONTEND),
            "another trust domain": home.issue("spiffe://elsewhere/ns/shop/sa/frontend"),
            "a trust domain that only begins like ours": home.issue("spiffe://cluster.local.evil/ns/shop/sa/x"),
            "a DNS name": home.issue("frontend.shop"),
            "expired": expired,
        }
        for why, identity in refused.items():
            assert await _ask(made.inbound, context=_client(identity)) == "", why
        assert seen == []
        assert (await _ask(made.inbound, context=_client(home.issue(FRONTEND)))).endswith("hi")


async def test_versions_below_tls_1_2_and_weak_ciphers_are_rejected():
    v12, v13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    async with app(_answering([])) as app_port, both(app_port, STRICT) as made:
        me = made.authority.issue(FRONTEND)
        for version in (v12, v13):
            assert (await _ask(made.inbound, context=_client(me, least=version, most=version))).endswith("hi")
        weak = _client(me, most=v12)
        weak.set_ciphers("AES128-SHA:ECDHE-ECDSA-AES128-SHA:ECDHE-ECDSA-AES128-SHA256:@SECLEVEL=0")
        assert await _ask(made.inbound, context=weak) == ""
    async with app(_answering([])) as app_port, both(app_port, settings=Settings(mtls_least="TLSV1_3")) as made:
        me = made.authority.issue(FRONTEND)
        assert await _ask(made.inbound, context=_client(me, most=v12)) == ""
        assert (await _ask(made.outbound)).endswith("hi")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_session_is_resumed(version):
    async with app(_answering([])) as app_port, both(app_port, STRICT) as made:
        context = _client(made.authority.issue(FRONTEND), most=version)
        first = await asyncio.to_thread(_handshake, context, made.inbound)
        again = await asyncio.to_thread(_handshake, context, made.inbound, first.session)
        assert (first.session_reused, again.session_reused) == (False, True)
        if version is ssl.TLSVersion.TLSv1_2:
            assert first.session.ticket_lifetime_hint == 3600


def _handshake(context, port, session=None):
    with socket.create_connection(("127.0.0.1", port)) as plain:
        wrapped = context.wrap_socket(plain, session=session)
        wrapped.sendall(b"GET / HTTP/1.1\r\nHost: orders\r\n\r\n")
        wrapped.recv(1)  # in TLS 1.3 the ticket comes before the first answer
        return wrapped


async def test_a_caller_cannot_forge_the_forwarded_client_cert_header():
    forged = "x-forwarded-client-cert: URI=spiffe://cluster.local/ns/shop/sa/admin\r\n"
    seen = []
    async with app(_answering(seen)) as app_port, both(app_port) as made:
        assert (await _ask(made.outbound, forged)).endswith("hi")  # an application, through its proxy
        assert (await _ask(made.inbound, forged)).endswith("hi")  # an outsider without a certificate
    assert f"uri={FRONTEND}" in seen[0] and "admin" not in seen[0]
    assert "x-forwarded-client-cert" not in seen[1]


@pytest.mark.parametrize("policies", [(), (STRICT,)])
async def test_an_undeclared_port_carries_http_and_anything_else_inside_the_meshs_tls(policies):
    seen = []
    settings = Settings(detection_timeout=datetime.timedelta(milliseconds=200))
    more = {"protocol": Protocol.UNDECLARED, "settings": settings}
    async with app(_answering(seen)) as app_port, pair(app_port, *policies, **more) as port:
        assert (await _ask(port)).endswith("hi")
    assert f"uri={FRONTEND}" in seen[0]  # so the receiving proxy has read it as HTTP, out of TLS
    async with app(_echo) as app_port, pair(app_port, *policies, **more) as port:
        assert await _echoed(port)


async def test_an_undeclared_port_carries_http_2_as_it_is_called():
    heads = []

    async def http2(reader, writer):
        heads.append(await reader.readexactly(24))
        writer.close()

    async with app(http2) as app_port, pair(app_port, STRICT, protocol=Protocol.UNDECLARED) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        headers = b"\x82\x86\x84\x41\x06orders"  # GET, http, /, and the authority
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5))
        writer.write(len(headers).to_bytes(3, "big") + b"\x01\x05" + (1).to_bytes(4, "big") + headers)
        await asyncio.wait_for(reader.read(9), 30)
        await eventually(lambda: heads)
        writer.close()
    assert heads[0].startswith(b"PRI * HTTP/2.0")


async def test_tcp_of_a_declared_port_uses_mutual_tls():
    async with app(_echo) as app_port, both(app_port, STRICT, protocol=Protocol.TCP) as made:
        assert await _echoed(made.outbound)
        assert not await _echoed(made.inbound)


@pytest.mark.parametrize("protocol", [Protocol.TCP, Protocol.TLS, Protocol.UNDECLARED])
async def test_a_permissive_port_passes_an_applications_own_tls_through(protocol):
    own = Authority().issue("orders.example")
    server = await asyncio.start_server(_echo, "127.0.0.1", 0, ssl=_server(own))
    async with server, both(server.sockets[0].getsockname()[1], protocol=protocol) as made:
        for port in (made.inbound, made.outbound):  # from outside, and inside the mesh's TLS
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=_client(protocols=("h2", "http/1.1")))
            shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            assert ssl.DER_cert_to_PEM_cert(shown).strip() == own.certificate.decode().strip()
            writer.write(b"ping")
            assert await asyncio.wait_for(reader.readexactly(4), 30) == b"ping"
            writer.close()


async def test_between_proxies_http_is_http_2_and_the_application_sees_http_1():
    seen = []
    async with app(_answering(seen)) as app_port, both(app_port) as made:
        context = _client(made.authority.issue(FRONTEND), ("istio-h2", "h2"))
        _, writer = await asyncio.open_connection("127.0.0.1", made.inbound, ssl=context)
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        writer.close()
        assert (await _ask(made.outbound)).endswith("hi")
    assert seen[0].startswith("get / http/1.1")


async def test_workloads_without_a_proxy_are_called_in_plaintext():
    """The cluster is the same; only the endpoint's metadata decides between TLS and plaintext."""
    seen = []
    async with app(_answering(seen)) as app_port:
        bare = instance("orders-0", "orders", address="127.0.0.1", meshed=False, ports=(("http", app_port),))
        async with pair(app_port, bare) as port:
            assert (await _ask(port)).endswith("hi")
    assert "x-forwarded-client-cert" not in seen[0]


async def test_without_auto_mtls_callers_use_plaintext():
    seen = []
    async with app(_answering(seen)) as app_port, pair(app_port, settings=Settings(auto_mtls=False)) as port:
        assert (await _ask(port)).endswith("hi")
    assert "x-forwarded-client-cert" not in seen[0]


def test_both_sides_get_their_identity_from_the_agent_and_use_only_strong_tls():
    server = DownstreamTlsContext.FromString(tls.downstream(Settings()).typed_config.value)
    client = UpstreamTlsContext.FromString(tls.upstream((ORDERS,), "a", tls.HTTP2, Settings()).typed_config.value)
    assert server.require_client_certificate.value
    for context in (server.common_tls_context, client.common_tls_context):
        assert [each.name for each in context.tls_certificate_sds_secret_configs] == ["default"]
        source = context.combined_validation_context.validation_context_sds_secret_config
        assert source.name == "ROOTCA"
        (agent,) = source.sds_config.api_config_source.grpc_services
        assert agent.envoy_grpc.cluster_name == "sds-grpc"
        assert agent.envoy_grpc.retry_policy.retry_back_off.max_interval.seconds == 1
        assert source.sds_config.HasField("initial_fetch_timeout")
        assert not source.sds_config.initial_fetch_timeout.seconds
        assert context.tls_params.tls_minimum_protocol_version == TlsParameters.TLSv1_2
        assert context.tls_params.tls_maximum_protocol_version == TlsParameters.TLSv1_3
        assert all(name.startswith("ECDHE-") and name[-3:] != "SHA" for name in context.tls_params.cipher_suites)


def test_identities_combine_every_account_with_every_trust_domain():
    settings = Settings(trust_domain="new", trust_domain_aliases=("old", "new"))
    assert tls.identities("shop", ("a", "b"), settings) == (
        "spiffe://new/ns/shop/sa/a",
        "spiffe://new/ns/shop/sa/b",
        "spiffe://old/ns/shop/sa/a",
        "spiffe://old/ns/shop/sa/b",
    )


def test_a_mesh_without_agents_requests_no_certificate():
    mesh = Mesh(Settings(auto_mtls=False))
    put(mesh, service("orders"), instance("orders-0", "orders", meshed=True))
    put(mesh, PeerAuthentication("default", "istio-system", mode=TlsMode.DISABLE))
    for name in ("orders", "frontend"):
        resources, _ = compile_group(mesh, group(name))
        assert all(b"sds-grpc" not in each.SerializeToString() for each in (*resources.clusters, *resources.listeners))
