"""The config for gRPC's own xDS client, and calls of such a client, in a separate process, with it."""

import asyncio
import json
import os
import sys
from datetime import timedelta

import grpc
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)

from model.builders import instance, service
from translate.views import HOST, route, routing, to, view
from weft.control.plane import ControlPlane
from weft.model.destination_rule import (
    ClientTls,
    ClientTlsMode,
    ConnectionPool,
    ConsistentHash,
    DestinationRule,
    HashKey,
    LoadBalancer,
    OutlierDetection,
    Subset,
    TrafficPolicy,
)
from weft.model.group import ProxyKind
from weft.model.names import ObjectKey, labels_of
from weft.model.service import Protocol, Resolution
from weft.model.settings import Settings
from weft.model.virtual_service import (
    Abort,
    CorsPolicy,
    DirectResponse,
    Fault,
    HttpMatch,
    MatchKind,
    Mirror,
    Retries,
    StringMatch,
)
from weft.translate.grpc import contribute


def _made(*http, **more):
    return contribute(view(*http, kind=ProxyKind.GRPC, **more), Settings())


def test_a_target_may_be_any_name_of_the_service_with_its_port():
    made = _made(like={"protocol": Protocol.GRPC})
    names = {built.name for built in made.listeners}
    assert {f"{HOST}:80", "orders.shop:80", "orders.shop.svc:80", "orders:80"} <= names
    manager = HttpConnectionManager()
    Listener.FromString(made.listeners[0].body).api_listener.api_listener.Unpack(manager)
    assert manager.rds.route_config_name == f"{HOST}:80"
    assert manager.http_filters[-1].name == "envoy.filters.http.router"


def test_clusters_use_only_balancers_that_the_client_supports():
    rule = DestinationRule("r", "shop", HOST, subsets=(Subset("v1"),))
    found = [Cluster.FromString(built.body) for built in _made(rule=rule).clusters]
    assert [cluster.name for cluster in found] == [f"outbound|80||{HOST}", f"outbound|80|v1|{HOST}"]
    assert {cluster.lb_policy for cluster in found} == {Cluster.ROUND_ROBIN}
    assert {cluster.type for cluster in found} == {Cluster.EDS}


def test_a_filter_that_the_client_does_not_have_is_not_configured():
    ((name, host),) = _made(
        route(cors=CorsPolicy(), match=(HttpMatch(uri=StringMatch(MatchKind.EXACT, "/a")),)),
        route(direct_response=DirectResponse(503)),
    ).hosts
    (made,) = RouteConfiguration.FromString(host.fragment).virtual_hosts
    assert name == f"{HOST}:80" and not made.routes[0].typed_per_filter_config
    assert list(made.domains) == ["*"]


def test_a_rule_with_tls_has_no_cluster_for_plaintext_calls():
    for mode in ClientTlsMode:
        rule = DestinationRule("r", "shop", HOST, TrafficPolicy(tls=ClientTls(mode)))
        assert bool(_made(rule=rule).clusters) is (mode is ClientTlsMode.DISABLE)


def test_what_the_client_cannot_resolve_is_left_out():
    assert not _made(like={"resolution": Resolution.NONE}).clusters
    assert not _made(like={"protocol": Protocol.TCP}).clusters


CALLER = """
import sys, grpc
with grpc.insecure_channel("xds:///orders.shop:80") as channel:
    for line in sys.stdin:
        try:
            print(channel.unary_unary(line.strip())(b"", timeout=20).decode(), flush=True)
        except grpc.RpcError as error:
            print(error.code().name, *error.details().split(), flush=True)
"""


async def _serving(plane):
    async def hello(request, context):
        return b"hello"

    server = grpc.aio.server()
    handlers = {name: grpc.unary_unary_rpc_method_handler(hello) for name in ("Hello", "Broken")}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("demo.Greeter", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    for value in (
        service("orders", protocol=Protocol.GRPC, target=port, addresses=("10.96.0.1",)),
        instance("orders-0", "orders", address="127.0.0.1", labels={"version": "v1"}),
    ):
        plane.put(ObjectKey(type(value).__name__, value.namespace, value.name), (value,))
    return server


async def _client(plane, tmp_path):
    node = {"id": "grpc~127.0.0.1~caller.shop~shop.svc.cluster.local", "metadata": {"NAMESPACE": "shop"}}
    xds = {"server_uri": await plane.listen("127.0.0.1:0"), "channel_creds": [{"type": "insecure"}]}
    bootstrap = tmp_path / "bootstrap.json"
    bootstrap.write_text(json.dumps({"xds_servers": [{**xds, "server_features": ["xds_v3"]}], "node": node}))
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CALLER),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "GRPC_XDS_BOOTSTRAP": str(bootstrap)},
    )


async def _call(process, method):
    process.stdin.write(f"/demo.Greeter/{method}\n".encode())
    return (await asyncio.wait_for(process.stdout.readline(), 30)).decode().strip()


async def test_grpcs_own_client_accepts_the_config_of_all_settings_and_calls_by_it(tmp_path):
    matched = HttpMatch(uri=StringMatch(MatchKind.EXACT, "/demo.Greeter/Broken"))
    broken = Fault(abort=Abort(grpc_status="RESOURCE_EXHAUSTED", percentage=100))
    pool = ConnectionPool(max_requests=5, max_connections=5, connect_timeout=timedelta(seconds=1))
    hashing = LoadBalancer(consistent_hash=ConsistentHash(HashKey.HEADER, "x-user"))
    values = (
        DestinationRule(
            "orders",
            "shop",
            HOST,
            TrafficPolicy(hashing, pool, OutlierDetection(consecutive_5xx=5, interval=timedelta(seconds=5))),
            (Subset("v1", labels_of({"version": "v1"})), Subset("v2", labels_of({"version": "v2"}))),
        ),
        routing(
            route(match=(matched,), fault=broken),
            route(match=(HttpMatch(query_params=(("x", StringMatch(MatchKind.PRESENT)),)),)),
            route(
                to(subset="v1", weight=100),
                to(subset="v2", weight=0),
                timeout=timedelta(seconds=10),
                retries=Retries(attempts=3, retry_on="unavailable,503", per_try_timeout=timedelta(seconds=3)),
                cors=CorsPolicy(allow_origins=(StringMatch(MatchKind.EXACT, "*"),)),
                mirrors=(Mirror(to().destination),),
            ),
        ),
    )
    plane = ControlPlane()
    plane.apply(())
    server = await _serving(plane)
    for value in values:
        plane.put(ObjectKey(type(value).__name__, value.namespace, value.name), (value,))
    process = await _client(plane, tmp_path)
    try:
        assert await _call(process, "Hello") == "hello"
        assert (await _call(process, "Broken")).startswith("RESOURCE_EXHAUSTED")
        assert [proxy.errors for proxy in plane.proxies()] == [()]
    finally:
        process.kill()
        await process.wait()
        await server.stop(None)
        await plane.close()
