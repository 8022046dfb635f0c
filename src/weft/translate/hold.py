"""Holds the first call to a service, for proxies with on-demand config. Such a proxy has config only for the services
that its workload calls. A connection to any other address of the mesh waits here until the proxy has the service's
config.

To do so, Envoy requests a cluster named after the address (on-demand CDS) and keeps the connection open. The control
plane sends that cluster after the proxy has accepted all other config. The cluster connects to the original destination
and marks the packets (DSCP). The pod's iptables rules (`netns/interception.py`) redirect marked connections back into
the same proxy, where the service's own listener accepts them like new calls. Nothing is sent to the destination before
the caller's first bytes, and no filter of this module reads those bytes.

Rule: no call is held for ever. A held call returns to the proxy at another port than a new call, and a caller cannot
choose this port. If a call that arrives at that port is held again, it is sent to the cluster for unknown destinations.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from datetime import timedelta
from functools import lru_cache
from ipaddress import ip_network

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.base_pb2 import TrafficDirection
from envoy.config.core.v3.socket_option_pb2 import SocketOption
from envoy.config.listener.v3.listener_components_pb2 import Filter, FilterChain
from envoy.config.listener.v3.listener_pb2 import AdditionalAddress, Listener
from envoy.extensions.filters.common.set_filter_state.v3.value_pb2 import FilterStateValue
from envoy.extensions.filters.network.set_filter_state.v3.set_filter_state_pb2 import Config as SetFilterState
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy

from weft.model.proxy import AGAIN_PORT, MARKS, UNKNOWN_PORT
from weft.model.settings import Settings
from weft.translate import names
from weft.translate.built import Built, build
from weft.translate.chains import bytes_to, chain, going_round, original_destination
from weft.translate.protos import duration, from_control_plane, packed, socket_address
from weft.translate.streams import matching

WAIT = timedelta(seconds=5)  # how long a connection waits for the control plane; then it is closed

_HOLD = "hold"
CHAINS = (_HOLD, names.AGAIN, names.UNKNOWN)

_MOST = 2**32 - 1
# Socket options (level, traffic class for the mark, hop limit), by whether the address is IPv6.
_OPTIONS = {
    False: (socket.IPPROTO_IP, socket.IP_TOS, socket.IP_TTL),
    True: (socket.IPPROTO_IPV6, socket.IPV6_TCLASS, socket.IPV6_UNICAST_HOPS),
}
# Hop limit: if the pod's rules do not match the mark, the packets would leave in plaintext, and the next router drops
# them.
_NO_HOPS = 1


def chains(ranges: tuple[str, ...]) -> tuple[FilterChain, ...]:
    """Return one filter chain that holds calls to addresses in these ranges, for a listener that also has other chains;
    () if there are no ranges."""
    if not ranges:
        return ()
    hold_chain = chain(_HOLD, _cluster_by_address(), _wait_for_cluster())
    hold_chain.filter_chain_match.CopyFrom(matching((), ranges))
    return (hold_chain,)


def without(ranges: tuple[str, ...], taken: Iterable[str]) -> tuple[str, ...]:
    """Return those of `ranges` that have no filter chain yet. `taken`: the ranges that have one. Envoy rejects a
    listener with two chains for the same range."""
    written = {ip_network(each, strict=False) for each in taken if _is_range(each)}
    return tuple(each for each in ranges if ip_network(each) not in written)


def listeners(rest: str, settings: Settings) -> tuple[Built, Built]:
    """Return the two listeners at which held calls return. The first passes a call to the listener of its original
    destination; if there is none, the call goes to the cluster `rest`, which gets all calls to unknown destinations. A
    call that is held a second time returns at the second listener, which sends all calls to `rest`."""
    again = _on_loopback(names.AGAIN, AGAIN_PORT, rest, settings)
    again.use_original_dst.value = True
    unknown = _on_loopback(names.UNKNOWN, UNKNOWN_PORT, rest, settings)
    unknown.listener_filters.append(original_destination())
    return build(again.name, again), build(unknown.name, unknown)


@lru_cache(maxsize=16384)
def answer(name: str) -> Built:
    """Return the on-demand cluster through which a held call continues. `name` is one of the names that `names.held`
    returns."""
    result = Cluster(
        name=name,
        type=Cluster.ORIGINAL_DST,
        lb_policy=Cluster.CLUSTER_PROVIDED,
        connect_timeout=duration(timedelta(seconds=1)),
    )
    _, port, address = name.split("|")
    mark, _ = MARKS[int(port)]
    level, class_of, hops = _OPTIONS[":" in address]
    result.upstream_bind_config.socket_options.extend(
        SocketOption(level=level, name=option, int_value=value, state=SocketOption.STATE_PREBIND)
        for option, value in ((class_of, mark << 2), (hops, _NO_HOPS))
    )
    limits = result.circuit_breakers.thresholds.add()
    for limit in (limits.max_connections, limits.max_pending_requests):
        limit.value = _MOST
    return build(name, result)


def _on_loopback(name: str, port: int, rest: str, settings: Settings) -> Listener:
    result = Listener(name=name, traffic_direction=TrafficDirection.OUTBOUND)
    result.address.CopyFrom(socket_address("127.0.0.1", port))
    result.additional_addresses.append(AdditionalAddress(address=socket_address("::1", port)))
    result.freebind.value = True  # a pod without IPv6 has no ::1; the listener must start there, too
    result.filter_chains.extend([going_round(name, port, settings), chain(name, bytes_to(((rest, 1),), settings))])
    return result


def _cluster_by_address() -> Filter:
    """Return the filter that selects the on-demand cluster by the destination address. The destination port is not part
    of the cluster's name: a caller that tries many ports creates only one cluster."""
    state = FilterStateValue(object_key="envoy.tcp_proxy.cluster")
    state.format_string.text_format_source.inline_string = (
        f"{names.HOLD}%DOWNSTREAM_DIRECT_LOCAL_PORT%|%DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT%"
    )
    return Filter(
        name="envoy.filters.network.set_filter_state", typed_config=packed(SetFilterState(on_new_connection=[state]))
    )


def _wait_for_cluster() -> Filter:
    """Return the TCP proxy filter that requests the on-demand cluster and waits for it. It has no access log and no
    idle timeout: both are settings of the listener that accepts the connection next."""
    proxy = TcpProxy(stat_prefix="hold", cluster=names.BLACK_HOLE)
    proxy.on_demand.odcds_config.CopyFrom(from_control_plane())
    proxy.on_demand.timeout.CopyFrom(duration(WAIT))
    proxy.idle_timeout.CopyFrom(duration(timedelta(0)))
    return Filter(name="envoy.filters.network.tcp_proxy", typed_config=packed(proxy))


def _is_range(text: str) -> bool:
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return True
