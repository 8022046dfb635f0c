import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.extensions.clusters.dns.v3.dns_cluster_pb2 import DnsCluster
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import UpstreamTlsContext
from envoy.extensions.upstreams.http.v3.http_protocol_options_pb2 import HttpProtocolOptions
from msgspec.structs import replace

from translate.views import HOST, origin, view
from weft.model.destination_rule import (
    ClientTls,
    ClientTlsMode,
    ConnectionPool,
    DestinationRule,
    LoadBalancer,
    SimpleBalancer,
    Subset,
    TrafficPolicy,
)
from weft.model.endpoint import Endpoint
from weft.model.group import ProxyKind
from weft.model.inbound_port import InboundPort
from weft.model.names import ObjectKey
from weft.model.service import Protocol, Resolution, ServicePort
from weft.model.settings import Settings
from weft.translate import clusters
from weft.translate.clusters import UpstreamHttp


def _read(built):
    return Cluster.FromString(built.body)


def _options(cluster):
    (packed,) = cluster.typed_extension_protocol_options.values()
    return HttpProtocolOptions.FromString(packed.value)


def _upstream(protocol=Protocol.HTTP, *, meshed=True, pool=None, **like):
    seen = view(meshed=(80,) if meshed else (), like={"protocol": protocol, **like})
    return clusters.upstream(seen, seen.ports[0], TrafficPolicy(connection_pool=pool))


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
        ({}, UpstreamHttp.HTTP2),
        ({"meshed": False}, UpstreamHttp.HTTP1),
        ({"headless": True}, UpstreamHttp.HTTP1),
        ({"protocol": Protocol.GRPC, "meshed": False}, UpstreamHttp.HTTP2),
        ({"protocol": Protocol.UNDECLARED}, UpstreamHttp.AS_CALLED),
        ({"protocol": Protocol.TCP}, None),
        ({"pool": ConnectionPool(h2_upgrade="DO_NOT_UPGRADE")}, UpstreamHttp.HTTP1),
        ({"pool": ConnectionPool(h2_upgrade="UPGRADE"), "meshed": False}, UpstreamHttp.HTTP2),
        ({"pool": ConnectionPool(use_client_protocol=True)}, UpstreamHttp.AS_CALLED),
    ],
)
def test_uses_http2_between_proxies_and_the_declared_version_elsewhere(arguments, spoken):
    assert _upstream(**arguments) == spoken


def test_websockets_may_cross_http2():
    seen = view(meshed=(80,))
    (built,) = clusters.outbound(seen, seen.ports[0], Settings())
    assert _options(_read(built)).explicit_http_config.http2_protocol_options.allow_connect


@pytest.mark.parametrize(("kind", "window"), [(ProxyKind.SIDECAR, 1 << 20), (ProxyKind.GATEWAY, 256 << 10)])
def test_clusters_of_a_gateway_have_smaller_windows(kind, window):
    seen = view(kind=kind, like={"protocol": Protocol.GRPC})
    (built,) = clusters.outbound(seen, seen.ports[0], Settings())
    http2 = _options(_read(built)).explicit_http_config.http2_protocol_options
    assert http2.initial_stream_window_size.value == window


@pytest.mark.parametrize(("meshed", "asked"), [(True, True), (False, False)])
def test_keepalive_pings_are_sent_to_proxies_and_never_to_applications(meshed, asked):
    seen = view(meshed=(80,) if meshed else (), like={"protocol": Protocol.GRPC})
    (outbound,) = clusters.outbound(seen, seen.ports[0], Settings())
    (inbound,) = clusters.inbound(InboundPort(8080, Protocol.GRPC), Settings())
    for built, expected in ((outbound, asked), (inbound, False)):
        http2 = _options(_read(built)).explicit_http_config.http2_protocol_options
        assert http2.HasField("connection_keepalive") is expected


def test_the_app_is_called_from_loopback_in_either_family():
    cluster = _read(*clusters.inbound(InboundPort(8080, Protocol.HTTP), Settings()))
    assert (cluster.name, cluster.type) == ("inbound|8080||", Cluster.ORIGINAL_DST)
    bind = cluster.upstream_bind_config
    assert (bind.source_address.address, bind.extra_source_addresses[0].address.address) == ("127.0.0.6", "::6")
    (packed,) = cluster.typed_extension_protocol_options.values()
    options = HttpProtocolOptions.FromString(packed.value)
    assert options.common_http_protocol_options.idle_timeout.seconds == 1  # before the application closes it
    assert options.explicit_http_config.HasField("http_protocol_options")


def test_a_grpc_app_is_called_with_http2():
    cluster = _read(*clusters.inbound(InboundPort(9000, Protocol.GRPC), Settings()))
    assert _options(cluster).explicit_http_config.HasField("http2_protocol_options")


@pytest.mark.parametrize(
    ("said", "spoken"),
    [
        ((Protocol.TCP, Protocol.HTTP), ["http_protocol_options"]),
        ((Protocol.UNDECLARED, Protocol.HTTP), ["http_protocol_options", "as called"]),
        ((Protocol.GRPC, Protocol.UNDECLARED), ["http2_protocol_options", "as called"]),
        ((Protocol.UNDECLARED, Protocol.TCP), ["as called"]),
        ((Protocol.HTTP, Protocol.GRPC), ["http_protocol_options"]),
    ],
)
def test_the_first_declared_http_version_is_used_or_else_the_callers(said, spoken):
    found = list(map(_read, clusters.inbound(InboundPort(8080, said[0], others=said[1:]), Settings())))
    assert [each.name for each in found] == ["inbound|8080||", "inbound|8080|as-called|"][: len(spoken)]
    config = (_options(each).explicit_http_config.WhichOneof("protocol_config") or "as called" for each in found)
    assert list(config) == spoken


def test_the_inbound_cluster_uses_the_connection_pool_of_its_rule():
    rule = DestinationRule("r", "shop", HOST, TrafficPolicy(connection_pool=ConnectionPool(max_connections=5)))
    cluster = _read(*clusters.inbound(InboundPort(8080, Protocol.HTTP, service_port=80, rule=rule), Settings()))
    assert cluster.circuit_breakers.thresholds[0].max_connections.value == 5


@pytest.mark.parametrize(
    ("written", "address"),
    [("127.0.0.1:9090", "127.0.0.1"), ("[::1]:9090", "::1"), ("unix:///run/app.sock", "/run/app.sock")],
)
def test_a_default_endpoint_is_called_at_its_address(written, address):
    cluster = _read(*clusters.inbound(InboundPort(80, Protocol.HTTP, default_endpoint=written), Settings()))
    found = cluster.load_assignment.endpoints[0].lb_endpoints[0].endpoint.address
    assert address in (found.socket_address.address, found.pipe.path)


def test_a_default_endpoint_on_every_address_changes_only_the_port():
    port = InboundPort(80, Protocol.HTTP, default_endpoint="0.0.0.0:8080")
    cluster = _read(*clusters.inbound(port, Settings()))
    assert cluster.original_dst_lb_config.upstream_port_override.value == 8080


@pytest.mark.parametrize(("resolution", "expected"), [(Resolution.NONE, 8080), (Resolution.STATIC, 0)])
def test_where_the_caller_chooses_the_address_the_port_may_be_another(resolution, expected):
    seen = view(ports=(ServicePort(80, "http", Protocol.HTTP, 8080),), like={"resolution": resolution})
    cluster = _read(clusters.outbound(seen, seen.ports[0], Settings())[0])
    assert cluster.original_dst_lb_config.upstream_port_override.value == expected


def test_three_clusters_need_no_service():
    names = [built.name for built in clusters.fixed(Settings())]
    assert names == ["PassthroughCluster", "BlackHoleCluster", "InboundPassthroughCluster"]


def test_a_host_without_a_service_has_no_cluster():
    seen = replace(view(), service=None)
    assert clusters.outbound(seen, seen.ports[0], Settings()) == ()


@pytest.mark.parametrize(
    ("names", "one"), [((), False), (("a.example.com",), True), (("a.example.com", "b.example.com"), False)]
)
def test_a_logical_dns_cluster_has_exactly_one_name(names, one):
    endpoints = tuple(Endpoint(name, 80) for name in names)
    seen = view(like={"resolution": Resolution.DNS_ROUND_ROBIN}, endpoints=((80, endpoints),))
    (built,) = clusters.outbound(seen, seen.ports[0], Settings())
    config = DnsCluster.FromString(_read(built).cluster_type.typed_config.value)
    assert config.all_addresses_in_single_endpoint == one


def _secured(tls=None, settings=None, protocol=Protocol.HTTP, **more):
    """How a cluster is secured: the TLS contexts of its one socket, or of its sockets by match."""
    rule = DestinationRule("r", "shop", HOST, TrafficPolicy(tls=tls, load_balancer=more.pop("balancer", None)))
    seen = view(
        rule=rule, accounts=("orders",), meshed=(80,), like={"protocol": protocol, **more.pop("like", {})}, **more
    )
    cluster = _read(clusters.outbound(seen, seen.ports[0], settings or Settings())[0])
    if cluster.transport_socket_matches:
        marked, others = cluster.transport_socket_matches
        assert dict(marked.match) == {"tlsMode": "istio"} and not dict(others.match)
        assert others.transport_socket.name == "envoy.transport_sockets.raw_buffer"
        return "by endpoint", UpstreamTlsContext.FromString(marked.transport_socket.typed_config.value)
    if cluster.HasField("transport_socket"):
        return "always", UpstreamTlsContext.FromString(cluster.transport_socket.typed_config.value)
    return "never", None


def _exact(context):
    known = context.common_tls_context.combined_validation_context.default_validation_context
    return [each.matcher.exact for each in known.match_typed_subject_alt_names]


def test_by_default_each_endpoint_decides_tls_and_the_server_identities_are_set():
    when, context = _secured()
    assert (when, context.sni) == ("by endpoint", f"outbound_.80_._.{HOST}")
    assert _exact(context) == ["spiffe://cluster.local/ns/shop/sa/orders"]


@pytest.mark.parametrize(
    ("protocol", "more", "offered"),
    [
        (Protocol.HTTP, {}, ["istio-h2", "h2"]),
        (Protocol.HTTP, {"meshed": ()}, ["istio-http/1.1", "http/1.1"]),
        (Protocol.GRPC, {"meshed": ()}, ["istio-h2", "h2"]),
        (Protocol.TCP, {}, ["istio"]),
        (Protocol.TLS, {}, ["istio"]),
        (Protocol.UNDECLARED, {}, ["istio-http/1.1"]),
    ],
)
def test_the_offered_alpn_matches_the_protocol(protocol, more, offered):
    seen = view(**{"meshed": (80,), **more}, like={"protocol": protocol})
    cluster = _read(clusters.outbound(seen, seen.ports[0], Settings())[0])
    context = UpstreamTlsContext.FromString(cluster.transport_socket_matches[0].transport_socket.typed_config.value)
    assert list(context.common_tls_context.alpn_protocols) == offered


def test_a_rule_disables_or_requires_mutual_tls():
    assert _secured(ClientTls(ClientTlsMode.DISABLE))[0] == "never"
    when, context = _secured(ClientTls(ClientTlsMode.ISTIO_MUTUAL))
    assert (when, context.sni) == ("always", f"outbound_.80_._.{HOST}")
    _, context = _secured(ClientTls(ClientTlsMode.ISTIO_MUTUAL, "a.b", ("spiffe://x/y",)))
    assert (context.sni, _exact(context)) == ("a.b", ["spiffe://x/y"])


def test_subject_alt_names_of_a_service_entry_replace_the_identities_of_its_accounts():
    assert _exact(_secured(like={"subject_alt_names": ("spiffe://x/y",)})[1]) == ["spiffe://x/y"]


def test_outside_hosts_and_a_mesh_without_auto_mtls_have_no_tls():
    assert _secured(like={"external": True})[0] == "never"
    assert _secured(settings=Settings(auto_mtls=False))[0] == "never"
    assert _secured(ClientTls(ClientTlsMode.ISTIO_MUTUAL), Settings(auto_mtls=False))[0] == "always"


@pytest.mark.parametrize(
    "by_address", [{"like": {"headless": True}}, {"balancer": LoadBalancer(SimpleBalancer.PASSTHROUGH)}]
)
def test_a_service_called_by_address_has_tls_only_if_all_endpoints_accept_it(by_address):
    assert _secured(**by_address, secured=(80,))[0] == "always"
    assert _secured(**by_address, secured=())[0] == "never"


def test_a_gateway_does_not_use_its_clients_http_version_for_an_undeclared_port():
    seen = view(kind=ProxyKind.GATEWAY, like={"protocol": Protocol.UNDECLARED})
    assert clusters.upstream(seen, seen.ports[0], TrafficPolicy()) is UpstreamHttp.HTTP1
    asked = TrafficPolicy(connection_pool=ConnectionPool(use_client_protocol=True))
    assert clusters.upstream(seen, seen.ports[0], asked) is UpstreamHttp.AS_CALLED


def test_a_gateway_calls_a_headless_service_at_its_endpoints():
    seen = view(kind=ProxyKind.GATEWAY, meshed=(80,), like={"headless": True})
    cluster = _read(clusters.outbound(seen, seen.ports[0], Settings())[0])
    assert cluster.type == Cluster.EDS
    assert clusters.upstream(seen, seen.ports[0], TrafficPolicy()) is UpstreamHttp.HTTP2
    assert cluster.transport_socket_matches  # TLS by what each endpoint accepts


def test_the_proxy_chooses_a_pod_of_a_headless_service_for_routes_of_other_hosts():
    pods = ((80, (Endpoint("10.0.0.1", 8080, meshed=True), Endpoint("10.0.0.2", 8080))),)
    seen = view(meshed=(80,), like={"headless": True}, endpoints=pods, led_to=True)
    named, chosen = map(_read, clusters.outbound(seen, seen.ports[0], Settings()))
    assert (named.name, named.type) == (f"outbound|80||{HOST}", Cluster.ORIGINAL_DST)
    assert (chosen.name, chosen.type) == (f"outbound|80|~|{HOST}", Cluster.STATIC)
    places = chosen.load_assignment.endpoints[0].lb_endpoints
    assert [each.endpoint.address.socket_address.address for each in places] == ["10.0.0.1", "10.0.0.2"]
    assert chosen.transport_socket_matches  # TLS by what each endpoint accepts


def test_a_closed_rule_has_a_cluster_without_endpoints():
    rule = DestinationRule("r", "shop", HOST, TrafficPolicy(tls=ClientTls(ClientTlsMode.CLOSED)))
    for like in ({}, {"headless": True}, {"resolution": Resolution.DNS}):
        seen = view(rule=rule, like=like)
        cluster = _read(clusters.outbound(seen, seen.ports[0], Settings())[0])
        assert cluster.type == Cluster.STATIC and not cluster.HasField("load_assignment")


def test_tls_of_a_rule_does_not_imply_http2():
    seen = view(meshed=(80,))
    chosen = TrafficPolicy(tls=ClientTls(ClientTlsMode.SIMPLE))
    assert clusters.upstream(seen, seen.ports[0], chosen) is UpstreamHttp.HTTP1


def test_a_file_that_is_missing_is_the_rules_fault_and_not_the_services():
    tls = TrafficPolicy(tls=ClientTls(ClientTlsMode.SIMPLE, authorities="/nowhere/ca.pem"))
    rule = DestinationRule("r", "shop", HOST, tls, origin=origin("DestinationRule", "r"))
    seen = view(rule=rule, like={"origin": origin("Service", "orders")})
    cluster, roots = clusters.outbound(seen, seen.ports[0], Settings())
    assert len(cluster.sources) == 2
    assert (roots.name, roots.sources) == (f"{cluster.name}/roots", (ObjectKey("DestinationRule", "shop", "r"),))
