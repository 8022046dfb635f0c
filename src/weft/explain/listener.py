"""Finds the listener and the filter chain that match a connection. A filter chain is found criterion by criterion,
each time by the most specific value that matches. Like Envoy, the search never goes back to a less specific
value."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable

import msgspec
from envoy.config.listener.v3.listener_components_pb2 import FilterChain, ListenerFilterChainMatchPredicate
from envoy.config.listener.v3.listener_pb2 import Listener

from weft.explain.matchers import address as within
from weft.explain.request import Speaks
from weft.explain.world import EnvoyResources

OUTBOUND, INBOUND = "virtualOutbound", "virtualInbound"
AGAIN, UNKNOWN = "virtualOutboundAgain", "virtualOutboundUnknown"
_FIXED = (OUTBOUND, INBOUND, AGAIN, UNKNOWN)
_TLS_INSPECTOR, _HTTP_INSPECTOR = "envoy.filters.listener.tls_inspector", "envoy.filters.listener.http_inspector"


class IncomingConnection(msgspec.Struct, frozen=True):
    """A connection that arrives at a proxy. `source`: the address that it comes from. `address` and `port`: its
    destination. `speaks`: the protocol of its first bytes. `server_name` and `offers`: the SNI and ALPN of its TLS,
    which comes from the application or from another proxy. `held`: the proxy has held the connection for on-demand
    configuration and now matches it again."""

    source: str
    address: str
    port: int
    speaks: Speaks
    server_name: str = ""
    offers: tuple[str, ...] = ()
    held: bool = False


def outbound(resources: EnvoyResources, connection: IncomingConnection) -> Listener | None:
    """Returns the listener that handles an outbound connection. `virtualOutbound` accepts every connection and hands it
    to the listener of its original destination, if there is one. For a connection that the proxy has held for on-demand
    config (`connection.held`), `virtualOutboundAgain` has this role. None if the proxy does not have the listener with
    this role."""
    catching = resources.listeners.get(AGAIN if connection.held else OUTBOUND)
    if catching is None or not catching.use_original_dst.value:
        return catching
    everywhere = "::" if ":" in connection.address else "0.0.0.0"
    known = resources.kept.get(OUTBOUND)
    if known is None:
        known = resources.kept[OUTBOUND] = _by_address(resources)
    for place in (connection.address, everywhere):
        if known_listener := known.get((place, connection.port)):
            listener: Listener = known_listener
            return listener
    return catching


def bound(resources: EnvoyResources, connection: IncomingConnection, direction: int) -> Listener | None:
    """Returns the listener that a proxy has bound to the destination of a connection that is not intercepted; None if
    it has none. The destination must be the proxy's own pod. `direction`: OUTBOUND for calls of the proxy's own
    workload, INBOUND for calls of others. Only Sidecar objects create such listeners."""
    everywhere = "::" if ":" in connection.address else "0.0.0.0"
    places = {(connection.address, connection.port), (everywhere, connection.port)}
    for listener in resources.listeners.values():
        if listener.name in _FIXED or listener.traffic_direction != direction or not _is_bound(listener):
            continue
        addresses = (listener.address, *(each.address for each in listener.additional_addresses))
        if any((each.socket_address.address, each.socket_address.port_value) in places for each in addresses):
            return listener
    return None


def _is_bound(listener: Listener) -> bool:
    return not listener.HasField("bind_to_port") or bool(listener.bind_to_port.value)


def chain(listener: Listener, connection: IncomingConnection) -> FilterChain | None:
    transport, protocols = _detected(listener, connection)
    filter_chain = _find(chains_of(listener, connection), connection, transport, protocols)
    if filter_chain is None and listener.HasField("default_filter_chain"):
        return listener.default_filter_chain
    return filter_chain


def chains_of(listener: Listener, connection: IncomingConnection) -> list[FilterChain]:
    """The filter chains for the connection's port: those that match on this port, or, if there are none, those that
    match on no port."""
    named = [each for each in listener.filter_chains if _port(each) == connection.port]
    return named or [
        each for each in listener.filter_chains if not each.filter_chain_match.HasField("destination_port")
    ]


def _by_address(resources: EnvoyResources) -> dict[tuple[str, int], Listener]:
    listeners: dict[tuple[str, int], Listener] = {}
    for listener in resources.listeners.values():
        if listener.name in (OUTBOUND, INBOUND):
            continue
        for place in (listener.address, *(each.address for each in listener.additional_addresses)):
            listeners.setdefault((place.socket_address.address, place.socket_address.port_value), listener)
    return listeners


def _detected(listener: Listener, connection: IncomingConnection) -> tuple[str, tuple[str, ...]]:
    """What the listener's inspectors (TLS and HTTP) detect in the connection: the transport protocol, and the
    application protocols."""
    inspectors = {
        each.name
        for each in listener.listener_filters
        if not (each.HasField("filter_disabled") and _holds(each.filter_disabled, connection))
    }
    if connection.speaks is Speaks.TLS:
        return ("tls", connection.offers) if _TLS_INSPECTOR in inspectors else ("raw_buffer", ())
    if connection.speaks is Speaks.BYTES or _HTTP_INSPECTOR not in inspectors:
        return "raw_buffer", ()
    return "raw_buffer", (str(connection.speaks),)


def _holds(predicate: ListenerFilterChainMatchPredicate, connection: IncomingConnection) -> bool:
    match predicate.WhichOneof("rule"):
        case "or_match":
            return any(_holds(each, connection) for each in predicate.or_match.rules)
        case "and_match":
            return all(_holds(each, connection) for each in predicate.and_match.rules)
        case "not_match":
            return not _holds(predicate.not_match, connection)
        case "any_match":
            return bool(predicate.any_match)
        case "destination_port_range":
            ports = predicate.destination_port_range
            return bool(ports.start <= connection.port < ports.end)
    return False


def _find(
    chains: list[FilterChain], connection: IncomingConnection, transport: str, protocols: tuple[str, ...]
) -> FilterChain | None:
    left = _by_range(chains, connection.address, lambda each: each.filter_chain_match.prefix_ranges)
    left = _by_name(left, connection.server_name if connection.speaks is Speaks.TLS else "")
    left = _by_value(left, (transport,), lambda each: (each.filter_chain_match.transport_protocol or "",))
    left = _by_value(left, protocols, lambda each: each.filter_chain_match.application_protocols or ("",))
    left = _by_range(left, connection.source, lambda each: each.filter_chain_match.direct_source_prefix_ranges)
    left = _by_range(left, connection.source, lambda each: each.filter_chain_match.source_prefix_ranges)
    return left[0] if left else None


def _port(entry: FilterChain) -> int:
    return int(entry.filter_chain_match.destination_port.value)


def _by_value(
    chains: list[FilterChain], given: Iterable[str], values: Callable[[FilterChain], Iterable[str]]
) -> list[FilterChain]:
    for value in (*given, ""):
        if matching := [each for each in chains if value in values(each)]:
            return matching
    return []


def _by_name(chains: list[FilterChain], server_name: str) -> list[FilterChain]:
    """The filter chains that match the server name best: by the name itself, else by the longest wildcard
    (`*.example.com`), else those without server names."""
    name = server_name.lower()
    wanted = [name] if name else []
    start = name.find(".", 1)
    while 0 <= start < len(name) - 1:
        wanted.append(f"*{name[start:]}")
        start = name.find(".", start + 1)
    return _by_value(chains, wanted, lambda each: [n.lower() for n in each.filter_chain_match.server_names] or ("",))


def _by_range(
    chains: list[FilterChain], address: str, ranges: Callable[[FilterChain], Iterable[object]]
) -> list[FilterChain]:
    best = -1
    closest: list[FilterChain] = []
    for each in chains:
        listed = list(ranges(each))
        lengths = [one.prefix_len.value for one in listed if within(one, address)]  # type: ignore[attr-defined]
        length = max(lengths, default=-1) if listed else 0
        if listed and lengths:
            length += 1  # any range is more specific than no range, even one of length 0
        if length > best:
            best, closest = length, [each]
        elif length == best and length >= 0:
            closest.append(each)
    return closest if best >= 0 else []


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
