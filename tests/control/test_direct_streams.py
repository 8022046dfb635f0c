"""Proxies that connect without an agent, with the certificates and tokens that they have."""

import grpc
import msgspec
import pytest

from cluster.test_tls_front import Proxy, channel
from control.proxy import changes
from control.test_quarantine import services
from eventually import eventually
from model.builders import group
from relay_rig import cluster
from weft.ca.tokens import Caller
from weft.control.access import Principal
from weft.control.direct_streams import MOST_STREAMS, Direct
from weft.model.group import ProxyKind
from weft.xds.request import NodeInfo, StreamRefused
from weft.xds.types import CLUSTER

GOLD = group("web", tier="gold")


@pytest.fixture
async def rig():
    async with cluster(changes(services())) as made:
        made.placed.put("uid-web-0", "node-1", group("web"))
        made.placed.put("uid-web-1", "node-1", GOLD)
        made.placed.put("uid-api-0", "node-1", group("api"))
        yield made


async def test_a_proxy_has_the_labels_of_its_pod_whatever_it_claims(rig):
    async with channel(rig, *rig.certificate("shop", "web")) as to:
        proxy = Proxy(to)
        proxy.labels = {"app": "api", "tier": "gold"}
        await proxy.subscribe(CLUSTER)
        assert (await proxy.read()).resources
        assert [each.group for each in rig.plane.proxies()] == [group("web")]


async def test_a_token_identifies_the_pod_whatever_the_proxy_claims(rig):
    async with channel(rig) as to:
        proxy = Proxy(to, rig.token(Caller("shop", "web", "web-1", "uid-web-1")))  # its node id claims to be web-0
        await proxy.subscribe(CLUSTER)
        assert (await proxy.read()).resources
        assert [each.group for each in rig.plane.proxies()] == [GOLD]


async def test_a_proxy_whose_pod_gets_other_labels_reconnects_in_its_new_group(rig):
    async with channel(rig, *rig.certificate("shop", "web")) as to:
        proxy = Proxy(to)
        await proxy.subscribe(CLUSTER)
        await proxy.answer(await proxy.read())
        rig.placed.put("uid-web-0", "node-1", GOLD)
        assert await proxy.code() is grpc.StatusCode.ABORTED
        again = Proxy(to)
        await again.subscribe(CLUSTER)
        assert (await again.read()).resources
        assert [each.group for each in rig.plane.proxies()] == [GOLD]
        again.cancel()
        await eventually(lambda: not rig.plane.proxies())
        assert not rig.plane._direct._unfollow


NODE = "sidecar~10.244.0.1~{}.shop~shop.svc.cluster.local"
WEB = Principal("shop", "web")


@pytest.mark.parametrize(
    ("pod", "metadata", "principal", "why"),
    [
        ("api-0", {}, WEB, "pod shop/api-0 has the account api, but its proxy has the credentials of shop/web"),
        ("web-0", {"POD_NAME": "api-0"}, WEB, "pod shop/api-0 has the account api"),
        ("web-7", {}, WEB, "pod shop/web-7 is not known to this control plane"),
        (
            "web-0",
            {},
            Principal("shop", "web", "web-7", "uid-web-7"),
            "pod shop/web-7 is not known to this control plane",
        ),
        ("web-0", {}, Principal("other", "web"), "claims to be sidecar:shop/web, but has the credentials of other/web"),
        ("web-0", {}, "somebody", "not an account of this mesh"),
        ("web-0", {}, Principal("shop", "web", only_asks=True), "not bound to a pod"),
    ],
)
def test_rejects_proxies_that_name_a_pod_of_another_account(rig, pod, metadata, principal, why):
    with pytest.raises(StreamRefused, match=why):
        Direct(rig.placed, lambda *_: None).join(1, NodeInfo(NODE.format(pod), "", metadata), group("web"), principal)


def test_the_number_of_streams_per_pod_is_limited(rig):
    direct = Direct(rig.placed, lambda *_: None)
    node = NodeInfo(NODE.format("web-0"), "", {})
    for number in range(MOST_STREAMS):
        direct.join(number, node, group("web"), WEB)
    with pytest.raises(StreamRefused, match="has 16 streams already"):
        direct.join(99, node, group("web"), WEB)
    direct.leave(0)
    direct.join(99, node, group("web"), WEB)


def test_without_placements_every_authenticated_proxy_is_rejected():
    with pytest.raises(StreamRefused, match="knows no pods"):
        Direct(None, lambda *_: None).join(1, NodeInfo(NODE.format("web-0")), group("web"), WEB)


def test_grpcs_own_client_stays_one(rig):
    claimed = msgspec.structs.replace(group("web"), kind=ProxyKind.GRPC)
    joined = Direct(rig.placed, lambda *_: None).join(1, NodeInfo(NODE.format("web-1")), claimed, WEB)
    assert (joined.kind, joined.labels) == (ProxyKind.GRPC, GOLD.labels)


def test_a_pod_with_a_sidecar_is_no_gateway_whatever_its_proxy_claims(rig):
    claimed = msgspec.structs.replace(group("web"), kind=ProxyKind.GATEWAY)
    node = NodeInfo(NODE.format("web-0").replace("sidecar", "router"))
    with pytest.raises(StreamRefused, match="claims to be a router, but pod shop/web-0 is a sidecar"):
        Direct(rig.placed, lambda *_: None).join(1, node, claimed, WEB)


def test_a_gateways_pod_has_no_sidecar_whatever_its_proxy_claims(rig):
    gateway = msgspec.structs.replace(group("web"), kind=ProxyKind.GATEWAY)
    rig.placed.put("uid-web-2", "node-1", gateway)
    direct = Direct(rig.placed, lambda *_: None)
    assert direct.join(1, NodeInfo(NODE.format("web-2").replace("sidecar", "router")), gateway, WEB) == gateway
    with pytest.raises(StreamRefused, match="claims to be a sidecar, but pod shop/web-2 is a router"):
        direct.join(2, NodeInfo(NODE.format("web-2")), group("web"), WEB)


async def test_a_sidecar_that_claims_to_be_a_router_gets_nothing(rig):
    async with channel(rig, *rig.certificate("shop", "web")) as to:
        proxy = Proxy(to)
        proxy.kind = "router"
        await proxy.subscribe(CLUSTER)
        assert await proxy.code() is grpc.StatusCode.PERMISSION_DENIED
        assert not rig.plane.proxies()
