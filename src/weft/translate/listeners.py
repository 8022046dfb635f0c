"""Builds the outbound listeners. iptables redirects all connections to `virtualOutbound`, which passes each connection
to the listener of its original destination: that of a service's own address, or that of a port that several services
share. Those listeners bind no socket.

Only a listener that must detect the protocol reads the first bytes of a connection. If the protocol is undeclared, it
waits at most `detection_timeout`: a server-first protocol is delayed by that time, but works. If HTTP is declared, it
waits without a limit: a client that connects early and sends late, as connection pools do, also sends HTTP, and its
connection must not be forwarded without mutual TLS.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache

from envoy.config.core.v3.address_pb2 import Address
from envoy.config.core.v3.base_pb2 import TrafficDirection
from envoy.config.listener.v3.listener_components_pb2 import FilterChain
from envoy.config.listener.v3.listener_pb2 import AdditionalAddress, Listener

from weft.api.syntax import is_address
from weft.model.names import ObjectKey
from weft.model.proxy import OUTBOUND_PORT, TAKEN_PORTS
from weft.model.scope import OwnListener
from weft.model.service import Resolution, ServicePort
from weft.model.settings import Settings
from weft.model.sidecar import EVERY_ADDRESS, Outbound, OutboundPolicy
from weft.model.virtual_service import Destination
from weft.translate import hold, names
from weft.translate.access_log import listener_logs
from weft.translate.built import Built, build
from weft.translate.chains import (
    DETECTED_HTTP,
    bytes_to,
    chain,
    going_round,
    http_by_route,
    http_inspector,
    tls_inspector,
)
from weft.translate.contribution import Chain
from weft.translate.domains import virtual_addresses
from weft.translate.protos import duration, socket_address
from weft.translate.provenance import of_objects
from weft.translate.routes import configuration_name, stands_alone
from weft.translate.streams import StreamRoute, filter_chain, matching, own_stream, streams
from weft.translate.view import ServiceView, told_by_name

_FOR_EVERY_USER = 0o666  # the application runs as another user than the proxy; its directory protects a Unix socket


def virtual_outbound(policy: Outbound, settings: Settings, ranges: tuple[str, ...] = ()) -> Built:
    """Return the listener `virtualOutbound`, to which iptables redirects all outbound connections. `policy`: what
    happens to calls to unknown destinations. `ranges`: address ranges in which calls to destinations without config are
    held (`hold.py`)."""
    name = names.VIRTUAL_OUTBOUND
    result = Listener(name=name, traffic_direction=TrafficDirection.OUTBOUND)
    result.access_log.extend(listener_logs(settings))
    on_both_families(result, OUTBOUND_PORT)
    result.use_original_dst.value = True
    catchall = chain(f"{name}-catchall-tcp", bytes_to(((rest(policy), 1),), settings))
    result.filter_chains.extend([going_round(name, OUTBOUND_PORT, settings), catchall])
    result.filter_chains.extend(hold.chains(ranges))
    return build(name, result)


@lru_cache(maxsize=4096)
def http_port(number: int, policy: Outbound, settings: Settings, ranges: tuple[str, ...] = ()) -> Built:
    """Return the shared listener of a port on which services declare HTTP and no service needs a filter chain of its
    own. It is the same for all callers. `ranges`: as for `virtual_outbound`."""
    return shared_port(number, (), policy, settings, ranges, http=True)


def shared_port(
    number: int,
    shared: Sequence[Chain],
    policy: Outbound,
    settings: Settings,
    ranges: tuple[str, ...] = (),
    *,
    http: bool,
) -> Built:
    """Return the listener `0.0.0.0_PORT`, which services share. It has an HTTP chain if a service on the port declares
    HTTP (`http`), and the chains of services that have no address (`shared`). Other connections are sent to their
    original destination or are closed, depending on the outbound policy. `ranges`: as for `virtual_outbound`."""
    name = names.listener("0.0.0.0", number)
    result = _unbound(name)
    on_both_families(result, number)
    if http:
        result.filter_chains.append(_http_chain(name, str(number), settings))
    taken: set[str] = set()
    sources: dict[ObjectKey, None] = {}
    whole: bytes = b""
    for entry in shared:
        if not entry.matches:
            whole = whole or entry.fragment
        elif taken.isdisjoint(entry.matches):
            result.MergeFromString(entry.fragment)
        else:
            continue
        taken.update(entry.matches)
        sources |= dict.fromkeys(entry.sources)
    if whole:
        result.default_filter_chain.CopyFrom(Listener.FromString(whole).filter_chains[0])
    else:
        result.default_filter_chain.CopyFrom(chain("PassthroughFilterChain", bytes_to(((rest(policy), 1),), settings)))
    result.filter_chains.extend(hold.chains(hold.without(ranges, taken)))
    if any(entry.reads_server_name for entry in shared):
        result.listener_filters.append(tls_inspector())
    if http:
        result.listener_filters.append(http_inspector())
    if http and not shared:
        result.listener_filters_timeout.CopyFrom(duration(timedelta(0)))  # 0: no timeout
    elif result.listener_filters:
        wait_for_first_bytes(result, settings)
    if sources:
        result.metadata.CopyFrom(of_objects(tuple(sources)))
    return build(name, result, tuple(sources))


def own_addresses(view: ServiceView, port: ServicePort, settings: Settings) -> tuple[Built, ...]:
    """Return a listener on each address that belongs only to this service: its virtual addresses, or the pods of a
    headless service. () for a service that only needs the listener that it shares with others (`shares_port`), such as
    an HTTP service; but with on-demand config (`view.held`), such a service has listeners on its virtual addresses,
    too."""
    if view.service is None or (shares_port(view, port) and (view.service.headless or not view.held)):
        return ()
    routes = (own_stream(view, port),) if port.protocol.is_http else streams(view, port)
    return tuple(_at_address(view, port, address, routes, settings) for address in _addresses(view, port))


def own_listener(view: ServiceView, own: OwnListener, settings: Settings) -> Built:
    """Return a Sidecar's listener with an address of its own, at which the view's host is called. If several hosts
    share an HTTP listener, the result is equal for all of them, and the route configuration with the listener's name
    has the virtual hosts of all of them. If several hosts share a listener with another protocol, one of them gets all
    connections."""
    name = names.own_listener(own.at.address, own.number)
    result = Listener(name=name, traffic_direction=TrafficDirection.OUTBOUND)
    if own.at.captured:
        result.bind_to_port.value = False
    if own.at.address == EVERY_ADDRESS:
        on_both_families(result, own.number)
    else:
        result.address.CopyFrom(socket_address(own.at.address, own.number))
    if own.at.is_path:
        result.address.pipe.mode = _FOR_EVERY_USER
    by_sidecar = (own.at.sidecar,) if own.at.sidecar is not None else ()
    if own.port.protocol.is_http:
        result.filter_chains.append(chain("", http_by_route(f"outbound_{name}", name, settings)))
        sources = by_sidecar
    else:
        routes = streams(view, own.port)
        sources = tuple(dict.fromkeys((*by_sidecar, *(source for stream in routes for source in stream.sources))))
        _add_chains(result, view, own.port, routes, name, settings)
    result.metadata.CopyFrom(of_objects(sources))
    return build(name, result, sources)


def shares_port(view: ServiceView, port: ServicePort) -> bool:
    """Whether a service port needs no listener on the service's own addresses, but only the listener that all
    services on this port number share. That is enough for HTTP, because each request names its host."""
    return port.protocol.is_http and not stands_alone(view, port)


def chains_without_address(view: ServiceView, port: ServicePort, settings: Settings) -> tuple[Chain, ...]:
    """Return the filter chains of a TCP service that has no addresses or only address ranges, for the shared listener
    of its port. They match by address range or by server name (SNI). If the service has neither, they match the
    addresses of the endpoints if its resolution is STATIC, else every connection to the port."""
    service = view.service
    if service is None or not port.protocol.is_tcp or service.headless or port.number in TAKEN_PORTS:
        return ()
    ranges = tuple(address for address in service.addresses if "/" in address)
    if service.addresses and not ranges:
        return ()
    by_name = not ranges and told_by_name(view, port)
    if not ranges and not by_name and service.resolution is Resolution.STATIC:
        # Matching the endpoints' addresses is better than matching the whole port: only connections to them can be for
        # this service.
        known = dict(view.endpoints).get(port.number, ())
        ranges = tuple(dict.fromkeys(endpoint.address for endpoint in known if is_address(endpoint.address)))
        if not ranges:
            return ()
    return tuple(
        _shared_chain(stream, view, port, settings, ranges, (view.host,) if by_name else ())
        for stream in streams(view, port)
    )


def wait_for_first_bytes(listener: Listener, settings: Settings) -> None:
    listener.listener_filters_timeout.CopyFrom(duration(settings.detection_timeout))
    listener.continue_on_listener_filters_timeout = True


def on_both_families(listener: Listener, port: int) -> None:
    listener.address.CopyFrom(socket_address("0.0.0.0", port))
    listener.additional_addresses.append(AdditionalAddress(address=socket_address("::", port)))


def _at_address(
    view: ServiceView, port: ServicePort, address: str, routes: tuple[StreamRoute, ...], settings: Settings
) -> Built:
    name = names.listener(address, port.number)
    result = _unbound(name)
    where: Address = socket_address(address, port.number)
    result.address.CopyFrom(where)
    _add_chains(result, view, port, routes, configuration_name(view, port), settings)
    if port.protocol.is_http:
        result.listener_filters_timeout.CopyFrom(duration(timedelta(0)))  # 0: no timeout
    sources = tuple(dict.fromkeys(source for stream in routes for source in stream.sources))
    result.metadata.CopyFrom(of_objects(sources))
    return build(name, result, sources)


def _add_chains(
    listener: Listener,
    view: ServiceView,
    port: ServicePort,
    routes: tuple[StreamRoute, ...],
    route_name: str,
    settings: Settings,
) -> None:
    """Add the filter chains of a service port to a listener that only this port uses, and the inspectors that they
    need: a chain for each of `routes`, the last of which takes every connection that no other chain matches; and,
    unless the protocol is TCP, a chain for detected HTTP with the route configuration `route_name`."""
    ends = [filter_chain(stream, view, port, settings) for stream in routes]
    if not port.protocol.is_tcp:
        listener.listener_filters.append(http_inspector())
        listener.filter_chains.append(_http_chain(listener.name, route_name, settings))
    if any(stream.server_names for stream in routes):
        listener.listener_filters.append(tls_inspector())
    if listener.listener_filters:
        wait_for_first_bytes(listener, settings)
    if len(ends) == 1 and not listener.filter_chains:
        listener.filter_chains.extend(ends)
    else:
        listener.filter_chains.extend(ends[:-1])
        listener.default_filter_chain.CopyFrom(ends[-1])


def _addresses(view: ServiceView, port: ServicePort) -> tuple[str, ...]:
    if view.service is None:
        return ()
    if not view.service.headless:
        return virtual_addresses(view.service)
    pods = dict(view.endpoints).get(port.number, ())
    candidates = (address for pod in pods for address in (pod.address, *pod.extra_addresses))
    return tuple(dict.fromkeys(address for address in candidates if is_address(address)))


def _shared_chain(
    stream: StreamRoute,
    view: ServiceView,
    port: ServicePort,
    settings: Settings,
    ranges: tuple[str, ...],
    server_names: tuple[str, ...],
) -> Chain:
    end = filter_chain(stream, view, port, settings)
    wanted_names, wanted_ranges = stream.server_names or server_names, stream.ranges or ranges
    end.name = f"{view.host}:{port.number}"
    if wanted_names or wanted_ranges:
        end.filter_chain_match.CopyFrom(matching(wanted_names, wanted_ranges))
    fragment: bytes = Listener(filter_chains=[end]).SerializeToString(deterministic=True)
    return Chain((*wanted_names, *wanted_ranges), fragment, bool(wanted_names), stream.sources)


def _http_chain(name: str, route_name: str, settings: Settings) -> FilterChain:
    result = chain("", http_by_route(f"outbound_{name}", route_name, settings))
    result.filter_chain_match.application_protocols.extend(DETECTED_HTTP)
    return result


def _unbound(name: str) -> Listener:
    result = Listener(name=name, traffic_direction=TrafficDirection.OUTBOUND)
    result.bind_to_port.value = False
    return result


def rest(policy: Outbound) -> str:
    """Return the name of the cluster for calls to unknown destinations: the original destination, an egress proxy or
    BlackHoleCluster, as the outbound policy declares."""
    if isinstance(policy, Destination):
        return names.outbound_cluster(policy.host, policy.port, policy.subset)
    return names.PASSTHROUGH if policy is OutboundPolicy.ALLOW_ANY else names.BLACK_HOLE
