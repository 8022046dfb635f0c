import socket

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy

from weft.model.settings import Settings
from weft.model.sidecar import OutboundPolicy
from weft.netns.interception import Interception
from weft.translate import hold
from weft.translate.listeners import http_port, shared_port, virtual_outbound
from weft.translate.names import BLACK_HOLE, PASSTHROUGH, called_at, called_host, held

RANGES = ("10.96.0.0/16", "fd00::/112")
ANY = OutboundPolicy.ALLOW_ANY


def chains(built):
    return {each.name: each for each in Listener.FromString(built.body).filter_chains}


def ranges_of(chain):
    return {f"{each.address_prefix}/{each.prefix_len.value}" for each in chain.filter_chain_match.prefix_ranges}


def test_only_calls_to_the_ranges_are_held():
    for built in (virtual_outbound(ANY, Settings(), RANGES), http_port(80, ANY, Settings(), RANGES)):
        assert ranges_of(chains(built)["hold"]) == set(RANGES)
    assert "hold" not in chains(virtual_outbound(ANY, Settings()))


def test_a_held_call_has_no_idle_timeout_and_requests_a_cluster_by_its_address():
    state, proxy = chains(virtual_outbound(ANY, Settings(), RANGES))["hold"].filters
    by = b"hold|%DOWNSTREAM_DIRECT_LOCAL_PORT%|%DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT%"
    assert by in state.typed_config.value
    waiting = TcpProxy.FromString(proxy.typed_config.value)
    assert waiting.HasField("idle_timeout") and not waiting.idle_timeout.ToMilliseconds()
    assert waiting.on_demand.timeout.ToTimedelta() == hold.WAIT
    assert not waiting.access_log


def test_calls_to_a_configured_range_are_not_held():
    assert hold.without(RANGES, ("10.96.7.7/16", "shop.example")) == ("fd00::/112",)
    assert "hold" not in chains(shared_port(80, (), ANY, Settings(), (), http=True))


@pytest.mark.parametrize("family", [4, 6])
def test_the_on_demand_cluster_goes_to_the_original_destination_with_the_mark(family):
    address, options = {
        4: ("10.96.0.1", [(0, socket.IP_TOS), (0, socket.IP_TTL)]),
        6: ("fd00::1", [(41, socket.IPV6_TCLASS), (41, socket.IPV6_UNICAST_HOPS)]),
    }[family]
    rules = Interception().rules(family).splitlines()
    for name, port in zip(held(address), (15002, 15003), strict=True):
        cluster = Cluster.FromString(hold.answer(name).body)
        assert (cluster.type, cluster.lb_policy) == (Cluster.ORIGINAL_DST, Cluster.CLUSTER_PROVIDED)
        (limits,) = cluster.circuit_breakers.thresholds
        assert limits.max_connections.value == 2**32 - 1
        mark, hops = set_to = cluster.upstream_bind_config.socket_options
        assert [(each.level, each.name) for each in set_to] == options and hops.int_value == 1
        marked = f"-A ISTIO_OUTPUT -p tcp -m dscp --dscp {mark.int_value >> 2} "
        first = [rule for rule in rules if rule.startswith("-A ISTIO_OUTPUT")][:4]
        assert [rule for rule in first if rule.startswith(marked)] == [
            f"{marked}-m owner --{who}-owner 1337 -j REDIRECT --to-ports {port}" for who in ("uid", "gid")
        ]


def test_a_returned_call_is_passed_on_once_and_no_filter_reads_its_bytes():
    again, unknown = (Listener.FromString(each.body) for each in hold.listeners(PASSTHROUGH, Settings()))
    assert (again.use_original_dst.value, unknown.use_original_dst.value) == (True, False)
    assert not again.listener_filters
    assert [each.name for each in unknown.listener_filters] == ["envoy.filters.listener.original_dst"]
    for each, port in ((again, 15002), (unknown, 15003)):
        places = [each.address.socket_address, *(more.address.socket_address for more in each.additional_addresses)]
        assert [(place.address, place.port_value) for place in places] == [("127.0.0.1", port), ("::1", port)]
        assert each.freebind.value, "where there is no IPv6, there is no ::1"
        round_, rest = each.filter_chains
        assert round_.filter_chain_match.destination_port.value == port
        clusters = [TcpProxy.FromString(made.filters[0].typed_config.value).cluster for made in (round_, rest)]
        assert clusters == [BLACK_HOLE, PASSTHROUGH]


def test_cluster_names_and_addresses_convert_both_ways():
    for address in ("10.96.0.1", "fd00::1"):
        assert {called_at(name) for name in held(address)} == {address}
    wrong = (
        "hold|",
        "hold|10.96.0.1",
        "hold|80|10.96.0.1",
        "hold|15001|FD00::1",
        "hold|15001|[fd00::1]",
        "hold|15001|a",
    )
    for name in (*wrong, "outbound|80||a", "outbound|15001||10.96.0.1", ""):
        assert called_at(name) == ""
    assert called_host("outbound|80|v1|a.example") == "a.example"
    assert called_host("hold|15001|10.96.0.1") == called_host("inbound|80||") == ""
