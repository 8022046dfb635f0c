"""Builds the inbound listener `virtualInbound`: filter chains for each port that services or the workload itself
declare, and a passthrough for all other ports.

The set of filter chains decides whether plaintext is accepted: a connection that matches no chain of its port is
closed. So there is no default filter chain. Ports with a declared protocol and mTLS disabled need no inspector.

Services may declare different protocols for one port (`model/carried.py`); inside mutual TLS, ALPN distinguishes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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

from weft.model.carried import Carried
from weft.model.gateway import ServerTls
from weft.model.inbound_port import InboundPort
from weft.model.names import ObjectKey
from weft.model.peer_authentication import TlsMode
from weft.model.proxy import INBOUND_PORT, OUTBOUND_PORT
from weft.model.service import Protocol
from weft.model.settings import Settings
from weft.model.sidecar import EVERY_ADDRESS
from weft.translate import gateway_tls, names, tls
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
from weft.translate.protos import socket_address
from weft.translate.provenance import keys, of_objects
from weft.translate.view import GroupView

_TLS = "tls"
_PLAIN = "raw_buffer"
_HANDSHAKE = Duration(seconds=15)
_HELLO = Duration(seconds=5)  # in STRICT mode, how long a caller may take to send its first bytes
_OWN_PORTS = (INBOUND_PORT, OUTBOUND_PORT)
_UNKNOWN = Carried((Protocol.UNDECLARED,))


class _Entrance(msgspec.Struct, frozen=True):
    """One inbound port with its protocols (`carried`) and TLS mode. `port`: how the port is declared; None if it is not
    declared. The number 0 stands for all ports that have no `_Entrance` of their own."""

    number: int
    carried: Carried
    mode: TlsMode
    port: InboundPort | None = None

    @property
    def tls(self) -> ServerTls | None:
        """The TLS that the proxy terminates for the workload on this port, instead of the mesh's mutual TLS (a
        Sidecar's `ingress.tls`). As in Istio, it applies only where mutual TLS is disabled; None where it does not
        apply."""
        return self.port.tls if self.port is not None and self.mode is TlsMode.DISABLE else None


class _Sockets(msgspec.Struct, frozen=True):
    """The sockets that terminate mutual TLS on inbound connections: `http` for HTTP, `bytes` for all other
    protocols. `bytes` accepts only callers that a policy may allow, because policies are checked only after the
    caller's first bytes."""

    http: TransportSocket
    bytes: TransportSocket


def virtual_inbound(view: GroupView) -> Built:
    settings = view.inbound_settings
    name = names.VIRTUAL_INBOUND
    result = Listener(name=name, traffic_direction=TrafficDirection.INBOUND)
    result.access_log.extend(listener_logs(settings))
    on_both_families(result, INBOUND_PORT)
    # A connection to this listener's own port would loop for ever.
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
        # Callers without mutual TLS are rejected anyway, so the wait can be long: a slow proxy on a busy machine is not
        # rejected.
        result.listener_filters_timeout.CopyFrom(_HELLO)
        result.continue_on_listener_filters_timeout = True  # then no chain matches, and the log has a line
    else:
        wait_for_first_bytes(result, settings)
    # The policies are sources of the listener: one of them may be at fault if a proxy rejects it.
    return build(name, result, _policies(view))


def bound_inbound(view: GroupView) -> tuple[Built, ...]:
    """Return the listeners of ports on which the proxy itself listens, as a Sidecar's ingress declares
    (`captureMode: NONE`). If calls to such a port are intercepted nevertheless, `virtualInbound` handles them in the
    same way."""
    return tuple(_bound(view, port) for port in view.inbound if port.bind)


def _bound(view: GroupView, port: InboundPort) -> Built:
    settings, guards = view.inbound_settings, guards_of(view)
    result = Listener(
        name=names.own_listener(port.bind, port.number),
        traffic_direction=TrafficDirection.INBOUND,
        access_log=listener_logs(settings),
    )
    if port.bind == EVERY_ADDRESS:
        on_both_families(result, port.number)
    else:
        result.address.CopyFrom(socket_address(port.bind, port.number))
    entrance = _Entrance(port.number, port.carried, view.modes.at(port.number), port)
    sockets = _Sockets(tls.downstream(settings), tls.downstream(settings, known_callers(view)))
    result.filter_chains.extend(_chains(entrance, view, guards, sockets))
    if _reads_tls(entrance):
        result.listener_filters.append(tls_inspector())
    if _reads_http(entrance):
        result.listener_filters.append(http_inspector())
    wait_for_first_bytes(result, settings)
    return build(result.name, result, _policies(view))


def _entrances(view: GroupView) -> tuple[_Entrance, ...]:
    named = {port.number: port for port in view.inbound if port.number not in _OWN_PORTS}
    entrances = [_Entrance(number, port.carried, view.modes.at(number), port) for number, port in named.items()]
    for number, mode in view.modes.ports:
        if number not in named and number not in _OWN_PORTS and mode is not view.modes.mode:
            entrances.append(_Entrance(number, _UNKNOWN, mode))
    return (*entrances, _Entrance(0, _UNKNOWN, view.modes.mode))


def _chains(entrance: _Entrance, view: GroupView, guards: Guards, sockets: _Sockets) -> list[FilterChain]:
    """Return the filter chains of a port (`entrance`). Plaintext is accepted unless the mode is STRICT, mutual TLS
    unless the mode is DISABLE. Any other TLS is passed to the application where the port may carry more than HTTP.
    Where the proxy terminates TLS for the workload (`_terminated`), only that TLS is accepted. `guards`: the first
    filters of each chain. `sockets`: terminate mutual TLS."""
    ends = _Ends(entrance, view.inbound_settings, guards)
    filter_chains: list[FilterChain] = []
    if entrance.tls is not None:
        filter_chains.extend(_terminated(entrance, entrance.tls, ends, view))
    elif entrance.mode is not TlsMode.DISABLE:
        filter_chains.extend(_secured(entrance, ends, sockets))
    if entrance.mode is not TlsMode.STRICT and entrance.tls is None:
        filter_chains.extend(_plain(entrance, ends))
    for entry in filter_chains:
        # The chains do not name the services, only the cluster does: a new service on the port must not drain
        # connections.
        if view.modes.sources:
            entry.metadata.CopyFrom(of_objects(view.modes.sources))
        if entrance.number:
            entry.name = names.listener("0.0.0.0", entrance.number)
            entry.filter_chain_match.destination_port.value = entrance.number
        else:
            is_http = entry.filters[-1].name.endswith("http_connection_manager")
            entry.name = f"{names.VIRTUAL_INBOUND}-catchall-http" if is_http else names.VIRTUAL_INBOUND
    return filter_chains


def _secured(entrance: _Entrance, ends: _Ends, sockets: _Sockets) -> Iterator[FilterChain]:
    """Yield the chains of a port (`entrance`) for mutual TLS. The ALPN of a connection declares the protocol inside and
    so selects the chain. In STRICT mode, connections without such an ALPN get the chain for the protocol of the first
    service, so that adding a service with another protocol does not change how they are handled. `ends`: builds the
    filters of the chains. `sockets`: terminate TLS."""
    carried, strict = entrance.carried, entrance.mode is TlsMode.STRICT
    of_http: tuple[str, ...] = () if strict else tls.OF_THE_MESH
    of_bytes = of_http
    if carried.http and carried.bytes:
        of_http = () if strict and carried.first.is_http else tls.OF_HTTP
        of_bytes = () if strict and not carried.first.is_http else tls.OF_BYTES
    # HTTP/2 in ALPN comes from a caller's proxy, which relies on this proxy to convert it to the declared version.
    if carried.both_ways:
        yield _chain(ends.http(certified=True, as_called=True), _TLS, tls.OF_HTTP1, sockets.http)
        of_http = tuple(each for each in of_http if each not in tls.OF_HTTP1)
    if carried.http:
        yield _chain(ends.http(certified=True), _TLS, of_http, sockets.http)
    if carried.bytes:
        yield _chain(ends.bytes(), _TLS, of_bytes, sockets.bytes)


def _terminated(entrance: _Entrance, written: ServerTls, ends: _Ends, view: GroupView) -> Iterator[FilterChain]:
    """Yield the chain of a port where clients use TLS that is not the mesh's, and the proxy terminates it for the
    workload, as `written` declares (a Sidecar's `ingress.tls`). Plaintext is not accepted. Nothing is yielded if a
    certificate is missing: all connections to the port are then closed."""
    http = entrance.carried.http
    socket = gateway_tls.terminating(written, view, http=http)
    if socket is not None:
        yield _chain(ends.http(certified=False) if http else ends.bytes(), _TLS, (), socket)


def _plain(entrance: _Entrance, ends: _Ends) -> Iterator[FilterChain]:
    carried, plain = entrance.carried, _PLAIN if entrance.mode is TlsMode.PERMISSIVE else ""
    if carried.plain_http:
        as_called = carried.both_ways and carried.first is Protocol.UNDECLARED
        yield _chain(ends.http(certified=False, as_called=as_called), plain, DETECTED_HTTP if carried.bytes else ())
    if carried.bytes:
        yield _chain(ends.bytes(), plain)
        if entrance.mode is TlsMode.PERMISSIVE:
            yield _chain(ends.bytes(), _TLS)


class _Ends(msgspec.Struct, frozen=True):
    """Builds the filters of the chains of one port (`entrance`): the guards, then the terminal filter. `http` builds
    them for HTTP, `bytes` for other protocols."""

    entrance: _Entrance
    settings: Settings
    guards: Guards

    def http(self, *, certified: bool, as_called: bool = False) -> tuple[Filter, ...]:
        """Return the connection manager of a port. `certified`: the caller has presented a certificate. `as_called`:
        requests keep the caller's HTTP version, while other chains of the port use the declared version."""
        number, port = self.entrance.number, self.entrance.port
        # Without mutual TLS, nothing distinguishes a proxy from other clients.
        from_proxies = certified or self.entrance.mode is TlsMode.DISABLE or not self.settings.auto_mtls
        end = http_to_workload(
            names.INBOUND_PASSTHROUGH if port is None else f"inbound_{names.listener('0.0.0.0', number)}",
            names.inbound_cluster(number, as_called=True) if as_called else self._cluster,
            f"inbound|http|{0 if port is None else port.service_port or number}",
            self.settings,
            self.guards.http,
            noted=self.guards.noted,
            certified=certified,
            from_proxies=from_proxies,
            # Callers send HTTP/1.1 as HTTP/2 only to ports that services declare.
            upgrades=from_proxies and port is not None and not as_called,
            grpc_web=Protocol.GRPC_WEB in self.entrance.carried.said,
        )
        return (end,)

    def bytes(self) -> tuple[Filter, ...]:
        before = self.guards.unknown if self.entrance.carried.http else self.guards.network
        pool = self.entrance.port.connection_pool if self.entrance.port is not None else None
        return (*before, bytes_to(((self._cluster, 1),), self.settings, pool, noted=self.guards.noted))

    @property
    def _cluster(self) -> str:
        return names.INBOUND_PASSTHROUGH if self.entrance.port is None else names.inbound_cluster(self.entrance.number)


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
        result.transport_socket_connect_timeout.CopyFrom(
            _HANDSHAKE
        )  # a client cannot keep a connection open without completing the handshake
    return result


def _policies(view: GroupView) -> tuple[ObjectKey, ...]:
    return keys(*(each.origin for each in view.authorization), *(each.origin for each in view.authentication))


def _reads_tls(entrance: _Entrance) -> bool:
    return entrance.mode is not TlsMode.DISABLE or entrance.tls is not None


def _reads_http(entrance: _Entrance) -> bool:
    """Whether plaintext connections to a port (`entrance`) need the HTTP inspector. Mutual TLS does not: its ALPN names
    the protocol."""
    return entrance.carried.detected and entrance.mode is not TlsMode.STRICT


def _looking(
    inspector: ListenerFilter, entrances: Iterable[_Entrance], reads: Callable[[_Entrance], bool]
) -> tuple[ListenerFilter, ...]:
    """Return the inspector, disabled for those ports in `entrances` that do not need it; empty if no port needs it.
    `reads`: returns whether a port needs the inspector."""
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
