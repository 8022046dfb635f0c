"""The TLS port, with agents, workloads and unauthenticated clients."""

import asyncio
import gc
import socket
import ssl
import struct
import warnings
from asyncio.sslproto import SSLProtocol
from datetime import timedelta

import grpc
import grpc.aio
import pytest
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DeltaDiscoveryResponse

from authority import Authority as StrangeAuthority
from control.proxy import METHOD, Client, changes
from control.test_quarantine import services
from eventually import eventually
from model.builders import group
from relay_rig import cluster
from weft.base.tls_transport import _TlsLayer
from weft.ca.client import CertificateClient
from weft.ca.tokens import Caller
from weft.cluster import tls_front as room
from weft.cluster.tls_front import Front
from weft.model.identity import Identity
from weft.node.key import Key
from weft.xds.server import ListenError
from weft.xds.types import CLUSTER


@pytest.fixture
async def rig():
    async with cluster(changes(services())) as made:
        made.placed.put("uid-web-0", "node-1", group("web"))
        yield made


def channel(rig, chain="", key=b"", roots=None):
    credentials = grpc.ssl_channel_credentials(
        (roots or "".join(rig.authority.bundle())).encode(), key or None, chain.encode() or None
    )
    return grpc.aio.secure_channel(rig.address, credentials, options=(("grpc.use_local_subchannel_pool", 1),))


class Proxy(Client):
    """A proxy that claims to be shop/web, and may send a token."""

    def __init__(self, to, token="", namespace="shop"):
        super().__init__(to, namespace)
        self._call.cancel()
        self._call = to.stream_stream(
            METHOD,
            request_serializer=DeltaDiscoveryRequest.SerializeToString,
            response_deserializer=DeltaDiscoveryResponse.FromString,
        )(metadata=(("authorization", f"Bearer {token}"),) if token else ())


async def test_a_workload_gets_its_first_certificate_by_token_and_its_config_with_the_certificate(rig):
    client = CertificateClient(rig.address, "".join(rig.authority.bundle()))
    identity, key = Identity("cluster.local", "shop", "web"), Key()
    issued = await client.create(rig.token(Caller("shop", "web", "web-0", "uid-web-0")), key.request(identity))
    await client.close()
    async with channel(rig, "".join(issued.chain), key.secret_pem()) as to:
        proxy = Proxy(to)
        await proxy.subscribe(CLUSTER)
        assert (await proxy.read()).resources
        assert [each.group.namespace for each in rig.plane.proxies()] == ["shop"]


async def test_a_token_authenticates_like_a_certificate(rig):
    async with channel(rig) as to:
        proxy = Proxy(to, rig.token(Caller("shop", "web", "web-0", "uid-web-0")))
        await proxy.subscribe(CLUSTER)
        assert (await proxy.read()).resources


@pytest.mark.parametrize(
    ("account", "token", "namespace", "code"),
    [
        (None, "", "shop", grpc.StatusCode.UNAUTHENTICATED),
        (None, "rubbish", "shop", grpc.StatusCode.UNAUTHENTICATED),
        (("shop", "web"), "", "other", grpc.StatusCode.PERMISSION_DENIED),
        (("shop", "api"), "", "shop", grpc.StatusCode.PERMISSION_DENIED),
    ],
    ids=["nobody", "a bad token", "another namespace", "another account"],
)
async def test_no_client_is_served_with_the_identity_of_another(rig, account, token, namespace, code):
    async with channel(rig, *(rig.certificate(*account) if account else ())) as to:
        proxy = Proxy(to, token, namespace)
        await proxy.subscribe(CLUSTER)
        assert await proxy.code() is code


async def test_a_certificate_of_another_authority_is_rejected(rig):
    strange = StrangeAuthority().issue("spiffe://cluster.local/ns/shop/sa/web")
    async with channel(rig, strange.certificate.decode(), strange.key) as to:
        proxy = Proxy(to)
        with pytest.raises((grpc.aio.AioRpcError, asyncio.InvalidStateError)):
            await proxy.subscribe(CLUSTER)
            await proxy.read()
        assert await proxy.code() is grpc.StatusCode.UNAVAILABLE
    assert rig.plane.proxies() == () and rig.front._visitors == {}


async def test_after_a_change_of_roots_new_callers_are_verified_with_the_new_root(rig):
    before = rig.certificate("shop", "web")
    old_roots = "".join(rig.authority.bundle())
    async with channel(rig, *before) as to:
        stays = Proxy(to)
        await stays.subscribe(CLUSTER)
        await stays.answer(await stays.read())
        rig.authority.rotate(timedelta(hours=1))
        rig.authority.switch()
        async with channel(rig, *rig.certificate("shop", "web")) as fresh:
            proxy = Proxy(fresh)
            await proxy.subscribe(CLUSTER)
            assert (await proxy.read()).resources
        rig.plane.apply(changes(services().replace("port: 80", "port: 81")))
        assert (await stays.read()).resources  # existing connections are not affected
    assert old_roots != "".join(rig.authority.bundle())


async def test_forgets_clients_that_disconnect(rig):
    async with channel(rig, *rig.certificate("shop", "web")) as to:
        proxy = Proxy(to)
        await proxy.subscribe(CLUSTER)
        await proxy.read()
        (peer,) = rig.front._visitors
        assert rig.front.identity_of(peer) == Identity("cluster.local", "shop", "web")
        assert rig.front.host_of(peer) == "127.0.0.1"
    del proxy  # the object and the rest of its calls keep the connection alive
    gc.collect()
    await eventually(lambda: not rig.front._visitors and not rig.front._sides)
    assert rig.front.identity_of(peer) is None and rig.front.host_of(peer) == ""


async def test_forgets_clients_that_disconnect_before_the_inner_connection(rig, monkeypatch, caplog):
    front, inside, goes = rig.front, Front._inside, asyncio.Event()

    async def when_nobody_is_there(self, *, known):
        goes.set()
        await eventually(lambda: not front._sides)
        made.append(await inside(self, known=known))
        return made[-1]

    made = []
    monkeypatch.setattr(Front, "_inside", when_nobody_is_there)
    trusting = ssl.create_default_context(cadata="".join(rig.authority.bundle()))
    trusting.check_hostname = False
    host, _, port = rig.address.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=trusting)
    await goes.wait()
    # Reset the connection at once: TLS data is not read before the inner connection exists.
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    await eventually(lambda: made and not any(each.entering for each in front._acceptors))
    await eventually(lambda: not front._sides and not front._visitors and not front._hosts)
    # Closed by weft's code, not by an exception in asyncio.
    assert not [each for each in caplog.records if each.name == "asyncio"]


async def test_a_connection_holds_little_memory(rig):
    async with channel(rig, *rig.certificate("shop", "web")) as to:
        await Proxy(to).subscribe(CLUSTER)
        await eventually(lambda: rig.front._sides)
        held = [len(each._buffer) + len(each._waiting) for each in gc.get_objects() if type(each) is _TlsLayer]
        assert held
        assert max(held) <= 32 * 1024
        # Asyncio's own TLS protocol has a buffer of 256 KiB.
        assert not [each for each in gc.get_objects() if type(each) is SSLProtocol]


async def test_clients_without_tls_or_without_data_are_disconnected_and_harm_no_other(rig, monkeypatch):
    monkeypatch.setattr(room, "HANDSHAKE_SECONDS", 2.0)
    host, port = rig.address.split(":")
    silent_reader, silent = await asyncio.open_connection(host, int(port))
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    async with asyncio.timeout(30):
        await reader.read()
        await silent_reader.read()
    for each in (writer, silent):
        each.close()
    await test_a_token_authenticates_like_a_certificate(rig)


async def test_a_certificate_that_names_no_workload_is_rejected(rig):
    key, chain = rig.front._serving.pem
    async with channel(rig, chain.decode(), key) as to:
        proxy = Proxy(to)
        with pytest.raises((grpc.aio.AioRpcError, asyncio.InvalidStateError)):
            await proxy.subscribe(CLUSTER)
            await proxy.read()


async def test_only_tls_12_and_later_is_accepted(rig):
    host, port = rig.address.split(":")
    context = ssl.create_default_context(cadata="".join(rig.authority.bundle()))
    with warnings.catch_warnings(action="ignore"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection(host, int(port), ssl=context)


async def test_a_taken_port_is_an_error(rig):
    second = Front(rig.authority)
    with pytest.raises(ListenError, match="cannot serve on"):
        await second.listen(rig.address)
    await second.close()


async def test_one_host_cannot_use_up_all_connections(rig, monkeypatch):
    """A client without a certificate can keep connections open, too, and so could lock out the agents of all nodes."""
    monkeypatch.setattr(room, "MOST_OF_ONE_HOST", 2)
    host, port = rig.address.split(":")
    context = ssl.create_default_context(cadata="".join(rig.authority.bundle()))
    held = [await asyncio.open_connection(host, int(port), ssl=context, server_hostname="localhost") for _ in range(2)]
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection(host, int(port), ssl=context, server_hostname="localhost")
    for _, writer in held:
        writer.close()
    await eventually(lambda: not rig.front._hosts)
    await test_a_token_authenticates_like_a_certificate(rig)


async def test_a_client_that_disconnects_during_the_handshake_is_logged_with_a_reason(rig, caplog):
    host, port = rig.address.split(":")
    with caplog.at_level("INFO", "weft.cluster.tls_front"):
        _, writer = await asyncio.open_connection(host, int(port))
        writer.close()
        await eventually(lambda: "rejected: the connection was lost (ConnectionResetError)" in caplog.text)


async def test_a_client_without_a_certificate_cannot_fill_memory_with_long_messages(rig):
    """A message is in memory before its token is checked."""
    lots = [f"{number:06}{'x' * 3_000}" for number in range(1_000)]
    async with channel(rig) as to:
        stranger = Proxy(to, rig.token(Caller("shop", "web", "web-0", "uid-web-0")))
        await stranger.subscribe(CLUSTER, *lots)
        assert await stranger.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    async with channel(rig, *rig.certificate("shop", "web")) as to:
        proxy = Proxy(to)
        await proxy.subscribe(CLUSTER, *lots, "*")
        assert (await proxy.read()).resources
