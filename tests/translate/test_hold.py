from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy

from weft.model.settings import Settings
from weft.model.sidecar import OutboundPolicy
from weft.translate import hold
from weft.translate.listeners import http_port, shared_port, virtual_outbound
from weft.translate.names import PASSTHROUGH, called_at, called_host, held

RANGES = ("10.96.0.0/16", "fd00::/112")
ANY = OutboundPolicy.ALLOW_ANY


def chains(built):
    return {each.name: each for each in Listener.FromString(built.body).filter_chains}


def ranges_of(chain):
    return {f"{each.address_prefix}/{each.prefix_len.value}" for each in chain.filter_chain_match.prefix_ranges}


def test_only_calls_to_the_ranges_are_held_and_who_comes_back_is_not():
    for built in (virtual_outbound(ANY, Settings(), RANGES), http_port(80, ANY, Settings(), RANGES)):
        found = chains(built)
        assert ranges_of(found["hold"]) == ranges_of(found["held"]) == set(RANGES)
        assert not found["hold"].filter_chain_match.direct_source_prefix_ranges
        (source,) = found["held"].filter_chain_match.direct_source_prefix_ranges
        assert (source.address_prefix, source.prefix_len.value) == ("127.0.0.1", 32)
        assert TcpProxy.FromString(found["held"].filters[0].typed_config.value).cluster == PASSTHROUGH
    assert "hold" not in chains(virtual_outbound(ANY, Settings()))


def test_what_is_held_has_no_end_of_its_own_and_asks_by_its_address():
    state, proxy = chains(virtual_outbound(ANY, Settings(), RANGES))["hold"].filters
    assert b"hold|%DOWNSTREAM_LOCAL_ADDRESS%" in state.typed_config.value
    waiting = TcpProxy.FromString(proxy.typed_config.value)
    assert waiting.HasField("idle_timeout") and not waiting.idle_timeout.ToMilliseconds()
    assert waiting.on_demand.timeout.ToTimedelta() == hold.WAIT
    assert not waiting.access_log


def test_a_range_that_somebody_wrote_is_not_held():
    assert hold.without(RANGES, ("10.96.7.7/16", "shop.example")) == ("fd00::/112",)
    assert "hold" not in chains(shared_port(80, (), ANY, Settings(), (), http=True))


def test_the_answer_leads_back_on_loopback_and_is_limited_by_nothing():
    built = hold.answer("hold|10.96.0.1:80")
    cluster = Cluster.FromString(built.body)
    (limits,) = cluster.circuit_breakers.thresholds
    where = cluster.load_assignment.endpoints[0].lb_endpoints[0].endpoint.address.socket_address
    assert (where.address, where.port_value) == ("127.0.0.1", 15002)
    assert limits.max_connections.value == 2**32 - 1
    assert cluster.transport_socket.name == "envoy.transport_sockets.upstream_proxy_protocol"
    back = Listener.FromString(hold.listener(PASSTHROUGH, Settings()).body)
    assert back.address.socket_address == where and back.use_original_dst.value


def test_names_and_addresses_are_each_others():
    for address in (("10.96.0.1", 80), ("fd00::1", 65535)):
        assert called_at(held(*address)) == address
    for name in ("hold|", "hold|10.96.0.1", "hold|10.96.0.1:65536", "hold|[FD00::1]:80", "outbound|80||a"):
        assert called_at(name) is None
    assert called_host("outbound|80|v1|a.example") == "a.example"
    assert called_host("hold|10.96.0.1:80") == called_host("inbound|80||") == ""
