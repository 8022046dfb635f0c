from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy

from translate.views import view
from weft.model.endpoint import Endpoint
from weft.model.service import Protocol, Resolution
from weft.model.settings import Settings
from weft.model.sidecar import OutboundPolicy
from weft.model.virtual_service import Destination
from weft.translate.listeners import (
    chains_without_address,
    http_port,
    own_addresses,
    shared_port,
    virtual_outbound,
)

PROXY = Destination("proxy.example.com", port=3128)
ANY, ONLY = OutboundPolicy.ALLOW_ANY, OutboundPolicy.REGISTRY_ONLY


def _read(built):
    return Listener.FromString(built.body)


def _own(**more):
    seen = view(**more)
    return [_read(built) for built in own_addresses(seen, seen.ports[0], Settings())]


def _shared(**like):
    endpoints = like.pop("endpoints", ())
    seen = view(like=like, endpoints=((80, endpoints),))
    return chains_without_address(seen, seen.ports[0], Settings())


def _cluster(chain):
    return TcpProxy.FromString(chain.filters[0].typed_config.value).cluster


def test_a_connection_to_the_proxy_itself_is_closed():
    listener = _read(virtual_outbound(ANY, Settings()))
    loop, rest = listener.filter_chains
    assert loop.filter_chain_match.destination_port.value == 15001 and _cluster(loop) == "BlackHoleCluster"
    assert _cluster(rest) == "PassthroughCluster" and listener.use_original_dst.value
    assert _cluster(_read(virtual_outbound(ONLY, Settings())).filter_chains[1]) == "BlackHoleCluster"


def test_an_http_port_listens_in_both_families_and_binds_nothing():
    listener = _read(http_port(80, ANY, Settings()))
    assert listener.name == "0.0.0.0_80" and not listener.bind_to_port.value
    assert listener.additional_addresses[0].address.socket_address.address == "::"
    assert listener.HasField("listener_filters_timeout") and not listener.listener_filters_timeout.ToMilliseconds()
    assert _cluster(listener.default_filter_chain) == "PassthroughCluster"
    assert _cluster(_read(http_port(80, ONLY, Settings())).default_filter_chain) == "BlackHoleCluster"


def test_a_tcp_service_has_a_listener_per_address_and_no_listener_filter():
    v4, v6 = _own(like={"protocol": Protocol.MYSQL, "addresses": ("10.96.0.1", "fd00::1")})
    assert (v4.name, v6.name) == ("10.96.0.1_80", "fd00::1_80")
    assert not v4.listener_filters


def test_an_undeclared_port_waits_for_first_bytes_and_falls_back_to_tcp():
    (listener,) = _own(like={"protocol": Protocol.UNDECLARED, "addresses": ("10.96.0.1",)})
    assert [entry.name for entry in listener.listener_filters] == ["envoy.filters.listener.http_inspector"]
    assert listener.continue_on_listener_filters_timeout
    state, end = listener.default_filter_chain.filters
    assert b"istio" in state.typed_config.value  # without it, the cluster would offer the ALPN of HTTP
    assert TcpProxy.FromString(end.typed_config.value).cluster.startswith("outbound|80||orders")


def test_a_headless_tcp_service_has_a_listener_per_pod():
    pods = (Endpoint("10.244.0.1", 80, ("fd00::1",)), Endpoint("not-an-address", 80))
    found = _own(like={"protocol": Protocol.TCP, "headless": True}, endpoints=((80, pods),))
    assert [listener.name for listener in found] == ["10.244.0.1_80", "fd00::1_80"]


def test_http_has_no_listener_of_its_own():
    assert _own(like={"addresses": ("10.96.0.1",)}) == []


def test_tls_without_an_address_is_matched_by_server_name():
    (chain,) = _shared(protocol=Protocol.TLS, resolution=Resolution.DNS)
    assert chain.matches == ("orders.shop.svc.cluster.local",) and chain.reads_server_name
    listener = _read(shared_port(443, [chain, chain], ANY, Settings(), http=False))
    assert len(listener.filter_chains) == 1
    assert [entry.name for entry in listener.listener_filters] == ["envoy.filters.listener.tls_inspector"]


def test_tcp_without_an_address_matches_its_endpoints_rather_than_the_whole_port():
    (chain,) = _shared(protocol=Protocol.TCP, endpoints=(Endpoint("198.51.100.7", 80),))
    assert chain.matches == ("198.51.100.7",)
    (chain,) = _shared(protocol=Protocol.TCP, resolution=Resolution.NONE)
    assert chain.matches == ()
    listener = _read(shared_port(80, [chain], ONLY, Settings(), http=True))
    assert _cluster(listener.default_filter_chain).startswith("outbound|80||orders")


def test_a_range_of_addresses_is_a_chain_and_a_virtual_address_is_not():
    (chain,) = _shared(protocol=Protocol.TCP, addresses=("203.0.113.0/24",), resolution=Resolution.NONE)
    assert chain.matches == ("203.0.113.0/24",)
    assert _shared(protocol=Protocol.TCP, addresses=("10.96.0.1",)) == ()


def test_calls_to_unknown_hosts_go_to_the_egress_proxy():
    for built in (virtual_outbound(PROXY, Settings()), shared_port(80, (), PROXY, Settings(), http=True)):
        made = _read(built)
        last = made.default_filter_chain if made.HasField("default_filter_chain") else made.filter_chains[-1]
        assert TcpProxy.FromString(last.filters[-1].typed_config.value).cluster == "outbound|3128||proxy.example.com"
