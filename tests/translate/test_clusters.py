import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.extensions.clusters.dns.v3.dns_cluster_pb2 import DnsCluster
from envoy.extensions.upstreams.http.v3.http_protocol_options_pb2 import HttpProtocolOptions
from msgspec.structs import replace

from translate.views import HOST, origin, view
from weft.model.destination_rule import ConnectionPool, DestinationRule, Subset, TrafficPolicy
from weft.model.instance import Endpoint
from weft.model.mesh import InboundPort
from weft.model.names import ObjectKey
from weft.model.service import Protocol, Resolution
from weft.model.settings import Settings
from weft.translate import clusters
from weft.translate.clusters import Upstream


def _read(built):
    return Cluster.FromString(built.body)


def _options(cluster):
    (packed,) = cluster.typed_extension_protocol_options.values()
    return HttpProtocolOptions.FromString(packed.value)


def _upstream(protocol=Protocol.HTTP, *, meshed=True, pool=None, **like):
    seen = view(meshed=(80,) if meshed else (), like={"protocol": protocol, **like})
    return clusters.upstream(seen, seen.ports[0], pool)


def test_one_cluster_per_port_and_subset_each_with_its_sources():
    rule = DestinationRule(
        "r", "shop", HOST, subsets=(Subset("v1"), Subset("v2")), origin=origin("DestinationRule", "r")
    )
    seen = view(rule=rule, like={"origin": origin("Service", "orders")})
    made = clusters.outbound(seen, seen.ports[0], Settings())
    assert [built.name for built in made] == [f"outbound|80|{subset}|{HOST}" for subset in ("", "v1", "v2")]
    assert made[1].sources == (ObjectKey("Service", "shop", "orders"), ObjectKey("DestinationRule", "shop", "r"))


@pytest.mark.parametrize(
    ("arguments", "spoken"),
    [
        ({}, Upstream.HTTP2),
        ({"meshed": False}, Upstream.HTTP1),
        ({"headless": True}, Upstream.HTTP1),
        ({"protocol": Protocol.GRPC, "meshed": False}, Upstream.HTTP2),
        ({"protocol": Protocol.UNDECLARED}, Upstream.AS_CALLED),
        ({"protocol": Protocol.TCP}, None),
        ({"pool": ConnectionPool(h2_upgrade="DO_NOT_UPGRADE")}, Upstream.HTTP1),
        ({"pool": ConnectionPool(h2_upgrade="UPGRADE"), "meshed": False}, Upstream.HTTP2),
        ({"pool": ConnectionPool(use_client_protocol=True)}, Upstream.AS_CALLED),
    ],
)
def test_speaks_http2_between_proxies_and_as_declared_elsewhere(arguments, spoken):
    assert _upstream(**arguments) == spoken


def test_websockets_may_cross_http2():
    seen = view(meshed=(80,))
    (built,) = clusters.outbound(seen, seen.ports[0], Settings())
    assert _options(_read(built)).explicit_http_config.http2_protocol_options.allow_connect


def test_the_app_is_called_from_loopback_in_either_family():
    cluster = _read(clusters.inbound(InboundPort(8080, Protocol.HTTP), Settings()))
    assert (cluster.name, cluster.type) == ("inbound|8080||", Cluster.ORIGINAL_DST)
    bind = cluster.upstream_bind_config
    assert (bind.source_address.address, bind.extra_source_addresses[0].address.address) == ("127.0.0.6", "::6")
    assert not cluster.typed_extension_protocol_options


def test_a_grpc_app_is_called_with_http2():
    cluster = _read(clusters.inbound(InboundPort(9000, Protocol.GRPC), Settings()))
    assert _options(cluster).explicit_http_config.HasField("http2_protocol_options")


def test_the_server_takes_the_pool_of_its_rule_over():
    rule = DestinationRule("r", "shop", HOST, TrafficPolicy(connection_pool=ConnectionPool(max_connections=5)))
    cluster = _read(clusters.inbound(InboundPort(8080, Protocol.HTTP, service_port=80, rule=rule), Settings()))
    assert cluster.circuit_breakers.thresholds[0].max_connections.value == 5


@pytest.mark.parametrize(
    ("written", "address"),
    [("127.0.0.1:9090", "127.0.0.1"), ("[::1]:9090", "::1"), ("unix:///run/app.sock", "/run/app.sock")],
)
def test_a_default_endpoint_is_called_where_it_says(written, address):
    cluster = _read(clusters.inbound(InboundPort(80, Protocol.HTTP, default_endpoint=written), Settings()))
    found = cluster.load_assignment.endpoints[0].lb_endpoints[0].endpoint.address
    assert address in (found.socket_address.address, found.pipe.path)


def test_a_default_endpoint_on_every_address_means_another_port_of_the_same_one():
    port = InboundPort(80, Protocol.HTTP, default_endpoint="0.0.0.0:8080")
    cluster = _read(clusters.inbound(port, Settings()))
    assert cluster.original_dst_lb_config.upstream_port_override.value == 8080


def test_three_clusters_need_no_service():
    names = [built.name for built in clusters.fixed(Settings())]
    assert names == ["PassthroughCluster", "BlackHoleCluster", "InboundPassthroughCluster"]


def test_a_host_without_a_service_has_no_cluster():
    seen = replace(view(), service=None)
    assert clusters.outbound(seen, seen.ports[0], Settings()) == ()


@pytest.mark.parametrize(
    ("names", "one"), [((), False), (("a.example.com",), True), (("a.example.com", "b.example.com"), False)]
)
def test_one_logical_host_is_exactly_one_name(names, one):
    endpoints = tuple(Endpoint(name, 80) for name in names)
    seen = view(like={"resolution": Resolution.DNS_ROUND_ROBIN}, endpoints=((80, endpoints),))
    (built,) = clusters.outbound(seen, seen.ports[0], Settings())
    config = DnsCluster.FromString(_read(built).cluster_type.typed_config.value)
    assert config.all_addresses_in_single_endpoint == one
