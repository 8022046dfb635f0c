"""Tests of debug requests on an xDS stream, as istioctl sends them, and of the clients that are denied."""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import timedelta

import grpc
import grpc.aio
import msgspec
import pytest
from envoy.admin.v3.config_dump_shared_pb2 import ClustersConfigDump
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest, DiscoveryResponse
from envoy.service.status.v3 import csds_pb2

from authority import Authority as StrangeAuthority
from cluster.test_tls_front import channel
from control.proxy import Client, changes
from control.test_plane import ORDERS
from eventually import eventually
from model.builders import group
from relay_rig import Cluster, Placed
from weft.ca.certificates import Validity, certificate_pem, make_leaf
from weft.ca.csr import read_public_key
from weft.ca.signed_tokens import TokenIssuer
from weft.ca.tokens import Caller
from weft.control.plane import ControlPlane
from weft.control.sync_status import NOT_SENT, STALE, SYNCED, ProxySync, TypeSync
from weft.inspect.attach import attach_debug
from weft.inspect.debug.stream import client_config
from weft.model.identity import Identity
from weft.node.key import Key
from weft.xds.types import CLUSTER, ENDPOINT, LISTENER

METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
SYNCZ, DUMP = "istio.io/debug/syncz", "istio.io/debug/config_dump"


class Istioctl:
    """Sends the same messages as the real istioctl: a made-up node id, and a nonce in the first request."""

    def __init__(self, to, token="", metadata=()):
        self._call = to.stream_stream(
            METHOD,
            request_serializer=DiscoveryRequest.SerializeToString,
            response_deserializer=DiscoveryResponse.FromString,
        )(metadata=(*((("authorization", f"Bearer {token}"),) if token else ()), *metadata))

    async def ask(self, type_url, *names, nonce="2026-01-01 00:00:00"):
        request = DiscoveryRequest(type_url=type_url, resource_names=names, response_nonce=nonce)
        request.node.id = "sidecar~10.0.0.1~test-1.default~default.svc.cluster.local"
        request.node.metadata.update({"GENERATOR": "event", "NAMESPACE": "istio-system", "SERVICE_ACCOUNT": "default"})
        await self._call.write(request)

    async def read(self):
        async with asyncio.timeout(30):
            return await self._call.read()

    async def code(self):
        async with asyncio.timeout(30):
            return await self._call.code()


@pytest.fixture
async def rig():
    placed = Placed()
    plane = ControlPlane(placements=placed, replica="istiod-1")
    attach_debug(plane, "istio-system")
    made = Cluster(plane, placed)
    plane.apply(changes(ORDERS))
    placed.put("uid-web-0", "node-1", group("web"))
    await made.open()
    try:
        async with channel(made, *made.certificate("shop", "web")) as to:
            made.proxy = Client(to)
            await made.proxy.subscribe(CLUSTER)
            await made.proxy.answer(await made.proxy.read())
            await eventually(lambda: plane.diagnosis.proxies()[0].sync.resources[CLUSTER].state == SYNCED)
            yield made
    finally:
        await made.close()


async def test_a_service_account_of_the_control_planes_namespace_gets_the_sync_status(rig):
    async with channel(rig, *rig.certificate("istio-system", "default")) as to:
        istioctl = Istioctl(to)
        await istioctl.ask(SYNCZ)
        response = await istioctl.read()
        about = msgspec.json.decode(response.control_plane.identifier)
        assert (about["Component"], about["ID"]) == ("istiod", "istiod-1") and about["Info"]["version"]
        (resource,) = response.resources
        config = csds_pb2.ClientConfig()
        assert response.type_url == SYNCZ and resource.Unpack(config)
        assert config.node.id == "web-0.shop" and config.node.metadata["NAMESPACE"] == "shop"
        (each,) = config.generic_xds_configs
        assert (each.type_url, each.config_status) == (CLUSTER, csds_pb2.SYNCED) and each.last_updated.seconds
        assert len(rig.plane.proxies()) == 1  # istioctl does not count as a proxy


async def test_a_config_dump_has_the_sections_of_envoys(rig):
    async with channel(rig, *rig.certificate("istio-system", "default")) as to:
        istioctl = Istioctl(to)
        await istioctl.ask(DUMP, "web-0.shop")
        resources = (await istioctl.read()).resources
        clusters = ClustersConfigDump()
        assert resources[1].Unpack(clusters)
        assert "outbound|80||orders.shop.svc.cluster.local" in str(clusters)
        await istioctl.ask(DUMP, "nobody.shop", nonce="other")
        (resource,) = (await istioctl.read()).resources
        assert b"connected to another instance" in resource.value  # after this text istioctl tries the next replica


@pytest.mark.parametrize(
    ("type_url", "names", "begins"),
    [
        ("istio.io/debug", ("syncz",), b'[{"proxy":"web-0.shop"'),
        ("istio.io/debug", ("config_dump?proxyID=web-0.shop",), b'{"configs":'),
        ("istio.io/debug", ("list",), b'["adsz"'),
        ("istio.io/debug", ("passwords",), b"404 page not found"),
        ("istio.io/debug/registryz", (), b'[{"Attributes"'),
        ("istio.io/debug/endpointz", (), b'{"orders.shop.svc.cluster.local"'),
        ("istio.io/debug/adsz", (), b'{"totalClients":1'),
    ],
)
async def test_every_page_is_served_on_the_stream(rig, type_url, names, begins):
    async with channel(rig, *rig.certificate("istio-system", "default")) as to:
        istioctl = Istioctl(to)
        await istioctl.ask(type_url, *names)
        (resource,) = (await istioctl.read()).resources
        assert resource.type_url == "istio.io/debug" and resource.value.startswith(begins)


async def test_a_workload_identity_is_denied(rig):
    async with channel(rig, *rig.certificate("shop", "web")) as to:
        for question in (SYNCZ, DUMP, "istio.io/debug"):
            istioctl = Istioctl(to)
            with contextlib.suppress(grpc.aio.AioRpcError):  # the stream may be rejected before the first request
                await istioctl.ask(question, "web-0.shop")
            assert await istioctl.code() is grpc.StatusCode.PERMISSION_DENIED
        istioctl = Istioctl(to, rig.token(Caller("shop", "web", "web-0", "uid")))
        await istioctl.ask(SYNCZ)
        assert await istioctl.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_an_unauthenticated_client_is_denied(rig):
    async with channel(rig) as to:
        for token in ("", "rubbish"):
            istioctl = Istioctl(to, token)
            await istioctl.ask(SYNCZ)
            assert await istioctl.code() is grpc.StatusCode.UNAUTHENTICATED


SYSTEM = Caller("istio-system", "istiod", "istiod-1", "uid-istiod-1")


def other_audience(rig):
    return {"token": rig.issuer.issue(SYSTEM, audience="kubernetes.default.svc")}


def expired(rig):
    return {"token": rig.issuer.issue(SYSTEM, lifetime=timedelta(minutes=-1))}


def of_a_pod_that_is_gone(rig):
    token = rig.token(SYSTEM)
    rig.issuer.revoke(SYSTEM.pod_uid)
    return {"token": token}


def of_another_issuer(rig):
    return {"token": TokenIssuer().issue(SYSTEM)}


def with_others_words(rig):
    """The claims of one token, and the signature of another."""
    theirs, ours = rig.token(SYSTEM).split("."), rig.token(Caller("shop", "web", "web-0", "uid")).split(".")
    return {"token": ".".join((*theirs[:2], ours[2]))}


def beside_anothers_certificate(rig):
    return {"certificate": rig.certificate("shop", "web"), "token": rig.token(SYSTEM)}


def named_in_headers_of_a_proxy(rig):
    """Headers in which Envoy names a caller behind it; no Envoy is in front of this port."""
    uri = "URI=spiffe://cluster.local/ns/istio-system/sa/istiod"
    return {"metadata": (("x-forwarded-client-cert", uri), ("x-forwarded-for", "127.0.0.1"), ("forwarded", "for=::1"))}


@pytest.mark.parametrize(
    "shown",
    [
        *(other_audience, expired, of_a_pod_that_is_gone, of_another_issuer, with_others_words),
        *(beside_anothers_certificate, named_in_headers_of_a_proxy),
    ],
)
async def test_forged_identities_of_the_control_plane_are_rejected(rig, shown):
    pretended = shown(rig)
    async with channel(rig, *pretended.pop("certificate", ())) as to:
        for question in (SYNCZ, DUMP, "istio.io/debug", "istio.io/debug/configz"):
            istioctl = Istioctl(to, **pretended)
            with contextlib.suppress(grpc.aio.AioRpcError):  # the stream may be rejected before the first request
                await istioctl.ask(question, "web-0.shop")
            assert await istioctl.code() is grpc.StatusCode.UNAUTHENTICATED


def certificates(rig):
    """Certificates that must be rejected, with their remaining lifetime; the last is a valid one, issued in the same
    way."""
    identity, key = Identity("cluster.local", "istio-system", "istiod"), Key()
    strange = StrangeAuthority().issue(str(identity))
    yield strange.certificate.decode(), strange.key, 0
    for left in (-60, 60):
        lasts = Validity(time.time() - 3600, time.time() + left)
        leaf = make_leaf(rig.authority._keeper.signing, read_public_key(key.request(identity)), str(identity), lasts)
        yield certificate_pem(leaf), key.secret_pem(), left


async def test_an_expired_certificate_or_one_of_another_root_cannot_connect(rig):
    for chain, key, left in certificates(rig):
        async with channel(rig, chain, key) as to:
            istioctl = Istioctl(to)
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await istioctl.ask(SYNCZ)
            if left > 0:
                assert (await istioctl.read()).resources
            else:
                assert await istioctl.code() is grpc.StatusCode.UNAVAILABLE


async def test_debug_requests_on_a_proxys_stream_get_no_response(rig):
    """The stream begins as a proxy's, with the proxy's certificate, and then sends a debug request."""
    async with channel(rig, *rig.certificate("shop", "web")) as to:
        proxy = Istioctl(to)
        for type_url in (CLUSTER, SYNCZ, "istio.io/debug/configz"):
            request = DiscoveryRequest(type_url=type_url)
            request.node.id = "sidecar~10.0.0.1~web-0.shop~shop.svc.cluster.local"
            request.node.metadata.update({"NAMESPACE": "shop"})
            await proxy._call.write(request)
        told = [(await proxy.read()).type_url]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                while (more := await proxy._call.read()) is not grpc.aio.EOF:
                    told.append(more.type_url)
        assert set(told) == {CLUSTER}


async def test_debug_requests_on_a_plaintext_listener_are_denied(rig):
    bound = await rig.plane.listen("127.0.0.1:0")
    async with grpc.aio.insecure_channel(bound) as to:
        istioctl = Istioctl(to)
        await istioctl.ask(SYNCZ)
        assert await istioctl.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_the_owners_unix_socket_serves_debug_pages(rig, tmp_path):
    bound = await rig.plane.listen(f"unix:{tmp_path}/owner.sock", owned=True)
    async with grpc.aio.insecure_channel(bound) as to:
        istioctl = Istioctl(to)
        await istioctl.ask(SYNCZ)
        assert len((await istioctl.read()).resources) == 1


async def test_without_a_namespace_every_identity_is_denied():
    placed = Placed()
    made = Cluster(ControlPlane(placements=placed), placed)
    await made.open()
    async with channel(made, *made.certificate("istio-system", "default")) as to:
        istioctl = Istioctl(to)
        await istioctl.ask(SYNCZ)
        assert await istioctl.code() is grpc.StatusCode.PERMISSION_DENIED
    await made.close()


def test_sync_states_map_to_envoys_config_status():
    sync = ProxySync(
        "web-0.shop",
        resources={
            CLUSTER: TypeSync(STALE, stale_since_push=3, stale_seconds=60, sent_time="2026-01-01T00:00:00Z"),
            ENDPOINT: TypeSync(NOT_SENT),
            LISTENER: TypeSync(SYNCED, last_error="no such filter"),
        },
    )
    clusters, endpoints, listeners = client_config(sync).generic_xds_configs
    assert clusters.config_status == csds_pb2.STALE
    assert 55 < time.time() - clusters.last_updated.seconds < 65  # the time since it is stale, not since it was sent
    assert (endpoints.config_status, endpoints.HasField("last_updated")) == (csds_pb2.NOT_SENT, False)
    assert (listeners.config_status, listeners.error_state.details) == (csds_pb2.ERROR, "no such filter")
