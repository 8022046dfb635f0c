from datetime import timedelta

import msgspec
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy

from translate.views import HOST, route, routing, to, view
from weft.model.destination_rule import (
    ClientTls,
    ClientTlsMode,
    ConnectionPool,
    ConsistentHash,
    DestinationRule,
    HashKey,
    LoadBalancer,
    Subset,
    TrafficPolicy,
    Tunnel,
)
from weft.model.service import Protocol
from weft.model.settings import Settings
from weft.model.virtual_service import L4Match, L4Route
from weft.translate.streams import filter_chain, matching, own_stream, streams
from weft.translate.view import RouteTarget

TCP, TLS = {"protocol": Protocol.TCP}, {"protocol": Protocol.TLS}


def _found(like=TCP, http=(), **routes):
    seen = view(routes=(routing(*http, **routes),), like=like)
    return streams(seen, seen.ports[0])


def test_without_routes_connections_go_to_the_service():
    seen = view(like=TCP)
    assert streams(seen, seen.ports[0]) == (own_stream(seen, seen.ports[0]),)


def test_a_route_for_another_port_changes_nothing():
    (only,) = _found(tcp=(L4Route((L4Match(port=81),), (to(subset="v1"),)),))
    assert only.clusters == ((f"outbound|80||{HOST}", 1),)


def test_a_route_without_conditions_is_the_last():
    found = _found(
        tcp=(L4Route((L4Match(destination_subnets=("10.0.0.0/8",)),), (to(),)), L4Route((), (to(), to("b"))))
    )
    assert [stream.ranges for stream in found] == [("10.0.0.0/8",), ()]
    assert [weight for _, weight in found[1].clusters] == [1, 1]


def test_a_server_name_without_a_route_goes_to_the_service():
    found = _found(TLS, tls=(L4Route((L4Match(sni_hosts=("a.example.com",)),), (to("a"),)),))
    assert [stream.server_names for stream in found] == [("a.example.com",), ()]
    assert found[1].clusters == ((f"outbound|80||{HOST}", 1),)


def test_objects_that_do_not_affect_a_chain_are_not_its_sources():
    """A changed list of sources would replace the listener and drain its connections."""
    http = _found(like={}, http=(route(),))
    tcp = _found(tcp=(L4Route((L4Match(destination_subnets=("10.0.0.0/8",)),), (to(),)),))
    assert [[key.kind for key in each.sources] for each in (*http, *tcp)] == [[], ["VirtualService"], []]


def test_the_rule_sets_idle_timeout_and_hash():
    hashing = LoadBalancer(consistent_hash=ConsistentHash(HashKey.SOURCE_IP))
    pool = ConnectionPool(tcp_idle_timeout=timedelta(seconds=90))
    seen = view(rule=DestinationRule("r", "shop", HOST, TrafficPolicy(hashing, pool)), like=TCP)
    made = filter_chain(own_stream(seen, seen.ports[0]), seen, seen.ports[0], Settings())
    proxy = TcpProxy.FromString(made.filters[0].typed_config.value)
    assert proxy.idle_timeout.seconds == 90 and proxy.hash_policy[0].HasField("source_ip")


def test_ranges_and_single_addresses_match_by_prefix():
    found = matching((), ("10.0.0.0/8", "fd00::1"))
    assert [(entry.address_prefix, entry.prefix_len.value) for entry in found.prefix_ranges] == [
        ("10.0.0.0", 8),
        ("fd00::1", 128),
    ]


def test_the_first_of_two_routes_for_the_same_connection_wins():
    subnet, same = L4Match(destination_subnets=("10.0.0.0/8",)), L4Match(destination_subnets=("10.1.2.3/8",))
    found = _found(tcp=(L4Route((subnet,), (to("a"),)), L4Route((same,), (to("b"),))))
    assert [stream.first.host for stream in found] == ["a", HOST]


def _says_bytes(stream, seen):
    names = [each.name for each in filter_chain(stream, seen, seen.ports[0], Settings()).filters]
    return names == ["envoy.filters.network.set_filter_state", "envoy.filters.network.tcp_proxy"]


def test_tcp_to_a_port_that_expects_http_offers_the_alpn_of_tcp():
    tcp, undeclared = view(like=TCP), view(like={"protocol": Protocol.UNDECLARED})
    assert not _says_bytes(own_stream(tcp, tcp.ports[0]), tcp)
    assert _says_bytes(own_stream(undeclared, undeclared.ports[0]), undeclared)


def test_tcp_routed_to_another_host_offers_the_alpn_of_tcp():
    routes = (routing(tcp=(L4Route((), (to("b"),)),)),)
    for target, says in (
        (RouteTarget("b", ports=(80,)), False),
        (RouteTarget("b", ports=(80,), offering_http=(80,)), True),
    ):
        seen = view(routes=routes, like=TCP, targets=(target,))
        assert _says_bytes(streams(seen, seen.ports[0])[0], seen) is says


def test_a_server_outside_the_mesh_is_not_offered_the_meshs_alpn():
    rule = DestinationRule("r", "shop", HOST, TrafficPolicy(tls=ClientTls(ClientTlsMode.SIMPLE)))
    seen = view(rule=rule, like={"protocol": Protocol.UNDECLARED})
    assert not _says_bytes(own_stream(seen, seen.ports[0]), seen)
    seen = view(like={"protocol": Protocol.UNDECLARED, "external": True})
    assert not _says_bytes(own_stream(seen, seen.ports[0]), seen)


def test_a_tunnel_is_that_of_the_destination_that_the_route_names():
    far = Tunnel("2001:db8::1", 443, by_post=True)
    rule = DestinationRule("x", "shop", "proxy", subsets=(Subset("deep", policy=TrafficPolicy(tunnel=far)),))
    route = L4Route((), (to("proxy", subset="deep"),))
    seen = view(routes=(routing(tcp=(route,)),), like=TCP)
    seen = msgspec.structs.replace(seen, targets=(RouteTarget("proxy", ports=(3128,), subsets=("deep",), rule=rule),))
    (only,) = streams(seen, seen.ports[0])
    proxy = TcpProxy.FromString(filter_chain(only, seen, seen.ports[0], Settings()).filters[-1].typed_config.value)
    assert (proxy.tunneling_config.hostname, proxy.tunneling_config.use_post) == ("[2001:db8::1]:443", True)
    assert only.clusters == (("outbound|3128|deep|proxy", 1),)
