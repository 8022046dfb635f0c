"""A first call is held, not lost. Where a proxy has only what its workload calls, a connection to any other address of
the mesh waits here until the proxy has been told of the service: Envoy asks for a cluster named after the address, and
keeps the connection. The answer, sent when all else has been taken, leads the connection back into this proxy, with the
addresses it came with (PROXY protocol), to be met as one that has just come: by the service's own listener.

Rule: what has been here once goes on. It is told by its direct source, and held by no chain a second time.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from functools import lru_cache
from ipaddress import ip_network

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.base_pb2 import TrafficDirection
from envoy.config.listener.v3.listener_components_pb2 import Filter, FilterChain
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.common.set_filter_state.v3.value_pb2 import FilterStateValue
from envoy.extensions.filters.network.set_filter_state.v3.set_filter_state_pb2 import Config as SetFilterState
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy

from weft.model.destination_rule import ProxyProtocol as Announcement
from weft.model.proxy import AGAIN_PORT
from weft.model.settings import Settings
from weft.translate import names
from weft.translate.announcement import announce_caller
from weft.translate.built import Built, build
from weft.translate.chains import bytes_to, chain
from weft.translate.protos import duration, from_control_plane, packed, socket_address
from weft.translate.streams import matching

WAIT = timedelta(seconds=5)  # for the control plane; then the connection is closed

_HOLD, _HELD = "hold", "held"
CHAINS = (_HOLD, _HELD, names.AGAIN)

_LOOPBACK = "127.0.0.1"
_MOST = 2**32 - 1


def chains(ranges: tuple[str, ...], rest: str, settings: Settings) -> tuple[FilterChain, ...]:
    """For a listener that others share: calls to these ranges are held. `rest`: where those go who have been."""
    if not ranges:
        return ()
    held = chain(_HOLD, _cluster_by_address(), _wait_for_cluster())
    again = chain(_HELD, bytes_to(((rest, 1),), settings))
    for each in (held, again):
        each.filter_chain_match.CopyFrom(matching((), ranges))
    again.filter_chain_match.direct_source_prefix_ranges.extend(matching((), (_LOOPBACK,)).prefix_ranges)
    return held, again


def without(ranges: tuple[str, ...], taken: Iterable[str]) -> tuple[str, ...]:
    """Envoy refuses a listener with two chains for the same range: what somebody wrote has it."""
    written = {ip_network(each, strict=False) for each in taken if _is_range(each)}
    return tuple(each for each in ranges if ip_network(each) not in written)


def listener(rest: str, settings: Settings) -> Built:
    """Where held calls come back to. Who is met by no other listener then goes where an unknown call goes."""
    result = Listener(name=names.AGAIN, traffic_direction=TrafficDirection.OUTBOUND)
    result.address.CopyFrom(socket_address(_LOOPBACK, AGAIN_PORT))
    result.use_original_dst.value = True
    result.filter_chains.append(chain(names.AGAIN, bytes_to(((rest, 1),), settings)))
    # The filter of that name would stand before the one that `use_original_dst` brings along, which then takes the
    # kernel's word for where the connection goes: to this very listener. By the old field it stands behind it.
    result.filter_chains[0].use_proxy_proto.value = True
    return build(names.AGAIN, result)


@lru_cache(maxsize=8192)
def answer(name: str) -> Built:
    """The cluster that a held call goes on by."""
    result = Cluster(name=name, type=Cluster.STATIC, connect_timeout=duration(timedelta(seconds=1)))
    result.load_assignment.cluster_name = name
    endpoint = result.load_assignment.endpoints.add().lb_endpoints.add().endpoint
    endpoint.address.CopyFrom(socket_address(_LOOPBACK, AGAIN_PORT))
    limits = result.circuit_breakers.thresholds.add()
    for limit in (limits.max_connections, limits.max_pending_requests):
        limit.value = _MOST
    announce_caller(result, Announcement.V2)
    return build(name, result)


def _cluster_by_address() -> Filter:
    state = FilterStateValue(object_key="envoy.tcp_proxy.cluster")
    state.format_string.text_format_source.inline_string = f"{names.HOLD}%DOWNSTREAM_LOCAL_ADDRESS%"
    return Filter(
        name="envoy.filters.network.set_filter_state", typed_config=packed(SetFilterState(on_new_connection=[state]))
    )


def _wait_for_cluster() -> Filter:
    """Nothing is logged, and nothing ends it: that is for who meets the connection next."""
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
