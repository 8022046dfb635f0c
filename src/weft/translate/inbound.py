"""Where inbound connections arrive: `virtualInbound`, the filter chains of each port that services or the workload
itself name, and a way through for all other ports.

Whether a connection may come in without TLS is decided by which chains there are: a connection that fits none of its
port's is closed. So there is no default chain. What is declared and disabled is never looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain as joined

import msgspec
from envoy.config.core.v3.base_pb2 import TrafficDirection, TransportSocket
from envoy.config.listener.v3.listener_components_pb2 import (
    Filter,
    FilterChain,
    ListenerFilter,
    ListenerFilterChainMatchPredicate,
)
from envoy.config.listener.v3.listener_pb2 import Listener
from google.protobuf.duration_pb2 import Duration

from weft.model.inbound_port import InboundPort
from weft.model.names import ObjectKey
from weft.model.peer_authentication import TlsMode
from weft.model.proxy import INBOUND_PORT, OUTBOUND_PORT
from weft.model.service import Protocol
from weft.translate import names, tls
from weft.translate.access_log import listener_logs
from weft.translate.built import Built, build
from weft.translate.callers import known_callers
from weft.translate.chains import (
    DETECTED_HTTP,
    bytes_to,
    chain,
    http_inspector,
    http_to_workload,
    original_destination,
    tls_inspector,
)
from weft.translate.guards import Guards, guards_of
from weft.translate.listeners import on_both_families, wait_for_first_bytes
from weft.translate.provenance import keys, of_objects
from weft.translate.view import GroupView

_TLS = "tls"
_PLAIN = "raw_buffer"
_HANDSHAKE = Duration(seconds=15)
_HELLO = Duration(seconds=5)  # how late a caller may begin to speak
_OWN_PORTS = (INBOUND_PORT, OUTBOUND_PORT)


class _Entrance(msgspec.Struct, frozen=True):
    """One port, or with the number 0 all those without an entrance of their own."""

    number: int
    protocol: Protocol
    mode: TlsMode
    port: InboundPort | None = None


class _Ends(msgspec.Struct, frozen=True):
    """The filters behind an entrance; of HTTP they depend on whether the caller has shown a certificate."""

    http: Callable[[bool], tuple[Filter, ...]]
    bytes: tuple[Filter, ...]


class _Sockets(msgspec.Struct, frozen=True):
    """The mesh's TLS. Where no HTTP is spoken, it takes only those whom a policy may let in."""

    http: TransportSocket
    bytes: TransportSocket


def virtual_inbound(view: GroupView) -> Built:
    settings = view.inbound_settings
    name = names.VIRTUAL_INBOUND
    result = Listener(name=name, traffic_direction=TrafficDirection.INBOUND)
    result.access_log.extend(listener_logs(settings))
    on_both_families(result, INBOUND_PORT)
    # A connection to this very port would go round for ever.
    loop = chain(f"{name}-blackhole", bytes_to(((names.BLACK_HOLE, 1),), settings))
    loop.filter_chain_match.destination_port.value = INBOUND_PORT
    result.filter_chains.append(loop)
    entrances, guards = _entrances(view), guards_of(view)
    sockets = _Sockets(tls.downstream(settings), tls.downstream(settings, known_callers(view)))
    result.filter_chains.extend(joined.from_iterable(_chains(each, view, guards, sockets) for each in entrances))
    result.listener_filters.append(original_destination())
    result.listener_filters.extend(_looking(tls_inspector(), entrances, _reads_tls))
    result.listener_filters.extend(_looking(http_inspector(), entrances, _reads_http))
    if all(each.mode is TlsMode.STRICT for each in entrances):
        # Nobody else is let in anyway: a proxy on a busy machine need not be refused for being slow to begin.
        result.listener_filters_timeout.CopyFrom(_HELLO)
        result.continue_on_listener_filters_timeout = True  # to nowhere, and the log says so
    else:
        wait_for_first_bytes(result, settings)
    # Whose fault it may be if a proxy refuses it.
    return build(name, result, _policies(view))


def _entrances(view: GroupView) -> tuple[_Entrance, ...]:
    named = {port.number: port for port in view.inbound if port.number not in _OWN_PORTS}
    entrances = [_Entrance(number, port.protocol, view.modes.at(number), port) for number, port in named.items()]
    for number, mode in view.modes.ports:
        if number not in named and number not in _OWN_PORTS and mode is not view.modes.mode:
            entrances.append(_Entrance(number, Protocol.UNDECLARED, mode))
    return (*entrances, _Entrance(0, Protocol.UNDECLARED, view.modes.mode))


def _chains(entrance: _Entrance, view: GroupView, guards: Guards, sockets: _Sockets) -> list[FilterChain]:
    """Plaintext comes in unless the mode is STRICT, TLS of the mesh unless it is DISABLE. TLS that is not the mesh's is
    the application's own business where the port may carry more than HTTP."""
    ends = _ends(entrance, view, guards)
    http = entrance.protocol.is_http or entrance.protocol is Protocol.UNDECLARED
    mixed = entrance.protocol is Protocol.UNDECLARED
    found: list[FilterChain] = []
    if entrance.mode is not TlsMode.DISABLE:
        strict = entrance.mode is TlsMode.STRICT
        if http:
            of_http = tls.OF_HTTP if mixed else () if strict else tls.OF_THE_MESH
            found.append(_chain(ends.http(True), _TLS, of_http, sockets.http))
        if not entrance.protocol.is_http:
            of_bytes = () if strict else tls.OF_BYTES if mixed else tls.OF_THE_MESH
            found.append(_chain(ends.bytes, _TLS, of_bytes, sockets.bytes))
    if entrance.mode is not TlsMode.STRICT:
        plain = _PLAIN if entrance.mode is TlsMode.PERMISSIVE else ""
        if http:
            found.append(_chain(ends.http(False), plain, DETECTED_HTTP if mixed else ()))
        if not entrance.protocol.is_http:
            found.append(_chain(ends.bytes, plain))
            if entrance.mode is TlsMode.PERMISSIVE:
                found.append(_chain(ends.bytes, _TLS))
    for entry in found:
        # The services are named by the cluster alone: another one that shares the port must not drain its connections.
        if view.modes.sources:
            entry.metadata.CopyFrom(of_objects(view.modes.sources))
        if entrance.number:
            entry.name = names.listener("0.0.0.0", entrance.number)
            entry.filter_chain_match.destination_port.value = entrance.number
        else:
            is_http = entry.filters[-1].name.endswith("http_connection_manager")
            entry.name = f"{names.VIRTUAL_INBOUND}-catchall-http" if is_http else names.VIRTUAL_INBOUND
    return found


def _ends(entrance: _Entrance, view: GroupView, guards: Guards) -> _Ends:
    settings, port = view.inbound_settings, entrance.port
    if port is None:
        cluster, prefix, host_name, pool = names.INBOUND_PASSTHROUGH, names.INBOUND_PASSTHROUGH, "inbound|http|0", None
    else:
        cluster = names.inbound_cluster(port.number)
        prefix = f"inbound_{names.listener('0.0.0.0', port.number)}"
        host_name = f"inbound|http|{port.service_port or port.number}"
        pool = port.connection_pool

    def http(certified: bool) -> tuple[Filter, ...]:
        end = http_to_workload(
            prefix,
            cluster,
            host_name,
            settings,
            guards.http,
            noted=guards.noted,
            certified=certified,
            grpc_web=entrance.protocol is Protocol.GRPC_WEB,
        )
        return (end,)

    before = guards.unknown if entrance.protocol is Protocol.UNDECLARED else guards.network
    return _Ends(http, (*before, bytes_to(((cluster, 1),), settings, pool, noted=guards.noted)))


def _chain(
    filters: tuple[Filter, ...],
    transport: str,
    protocols: tuple[str, ...] = (),
    socket: TransportSocket | None = None,
) -> FilterChain:
    result = chain("", *filters)
    result.filter_chain_match.transport_protocol = transport
    result.filter_chain_match.application_protocols.extend(protocols)
    if socket is not None:
        result.transport_socket.CopyFrom(socket)
        result.transport_socket_connect_timeout.CopyFrom(_HANDSHAKE)  # nobody holds a connection by never ending one
    return result


def _policies(view: GroupView) -> tuple[ObjectKey, ...]:
    return keys(*(each.origin for each in view.authorization), *(each.origin for each in view.authentication))


def _reads_tls(entrance: _Entrance) -> bool:
    return entrance.mode is not TlsMode.DISABLE


def _reads_http(entrance: _Entrance) -> bool:
    """Inside the mesh's TLS, ALPN tells."""
    return entrance.protocol is Protocol.UNDECLARED and entrance.mode is not TlsMode.STRICT


def _looking(
    inspector: ListenerFilter, entrances: Iterable[_Entrance], reads: Callable[[_Entrance], bool]
) -> tuple[ListenerFilter, ...]:
    """The inspector, switched off at every entrance that does not need it; none if no entrance does."""
    *named, others = entrances
    if reads(others):
        unread = [entrance.number for entrance in named if not reads(entrance)]
        inspector.filter_disabled.CopyFrom(_on_ports([*unread, INBOUND_PORT]))
        return (inspector,)
    read = [entrance.number for entrance in named if reads(entrance)]
    if not read:
        return ()
    inspector.filter_disabled.not_match.CopyFrom(_on_ports(read))
    return (inspector,)


def _on_ports(numbers: list[int]) -> ListenerFilterChainMatchPredicate:
    rules = [ListenerFilterChainMatchPredicate() for _ in numbers]
    for rule, number in zip(rules, numbers, strict=True):
        rule.destination_port_range.start, rule.destination_port_range.end = number, number + 1
    if len(rules) == 1:
        return rules[0]
    result = ListenerFilterChainMatchPredicate()
    result.or_match.rules.extend(rules)
    return result
