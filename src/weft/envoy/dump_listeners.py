"""Listeners of a dump as table rows: one for each filter chain, with its match and its destination."""

from __future__ import annotations

from typing import Any

import msgspec

from weft.envoy.dump import LISTENERS, WHY, Dump, DumpTable, Told, at, items, number, text, words
from weft.envoy.dump_routes import match

COLUMNS = ("ADDRESSES", "PORT", "MATCH", "DESTINATION")
BRIEF = ("ADDRESSES", "PORT", "TYPE")
_HTTP = "envoy.filters.network.http_connection_manager"
_TCP = "envoy.filters.network.tcp_proxy"
_BLACK_HOLE = "BlackHoleCluster"

# Lists of ALPN protocols, and the names that istioctl shows for them.
_PROTOCOLS = {
    ("http/1.0", "http/1.1", "h2c", "istio-http/1.0", "istio-http/1.1", "istio-h2"): "App: HTTP TLS",
    ("istio", "istio-http/1.0", "istio-http/1.1", "istio-h2"): "App: Istio HTTP Plain",
    ("istio-peer-exchange", "istio"): "App: TCP TLS",
    ("http/1.0", "http/1.1", "h2c"): "App: HTTP",
}


class ListenerFilter(msgspec.Struct, frozen=True):
    """Selects listeners by address, port and type (HTTP, TCP, HTTP+TCP or UNKNOWN). An empty field or 0 selects all."""

    address: str = ""
    port: int = 0
    type: str = ""  # HTTP, TCP, HTTP+TCP or UNKNOWN

    def takes(self, listener: dict[str, Any]) -> bool:
        return (
            (not self.address or self.address.lower() in [each.lower() for each in addresses(listener)])
            and self.port in (0, port(listener))
            and self.type.lower() in ("", kind(listener).lower())
        )


def listeners(dump: Dump, wanted: ListenerFilter | None = None) -> list[dict[str, Any]]:
    """Return the listeners that `wanted` selects, as complete messages, in the order of the table."""
    wanted = wanted or ListenerFilter()
    paths = (("dynamic_listeners", "active_state", "listener"), ("static_listeners", "listener"))
    messages = [each for each in dump.messages(LISTENERS, *paths) if wanted.takes(each)]
    return sorted(messages, key=lambda each: (port(each), addresses(each)[0], kind(each)))


def table(
    listeners: list[dict[str, Any]], *, verbose: bool = True, named: bool = False, why: Told | None = None
) -> DumpTable:
    """Return the table of the listeners. `verbose`: one row for each filter chain instead of each listener. `named`:
    the first column is the listener's name. `why`: returns the object that created a row's filter chain or listener,
    which becomes the last column; None: no such column."""
    rows: list[tuple[str, ...]] = []
    for listener in listeners:
        name = (f"listener/{text(listener, 'name')}",) if named else ()
        beginning = (*name, ",".join(addresses(listener)), str(port(listener)))
        for place, each in _chain_rows(listener) if verbose else [("", (kind(listener),))]:
            rows.append((*beginning, *each, *((why(text(listener, "name"), place),) if why else ())))
    columns = (*(("NAME",) if named else ()), *(COLUMNS if verbose else BRIEF), *(WHY if why else ()))
    return DumpTable(columns, tuple(rows))


def addresses(listener: dict[str, Any]) -> list[str]:
    first = text(listener, "address", "socket_address", "address") or text(listener, "address", "pipe", "path")
    more = items(listener, "additional_addresses")
    return [first, *(text(each, "address", "socket_address", "address") for each in more)]


def port(listener: dict[str, Any]) -> int:
    return number(listener, "address", "socket_address", "port_value")


def kind(listener: dict[str, Any]) -> str:
    names = [
        text(each, "name")
        for chain in _chains(listener)
        for each in items(chain, "filters")
        if text(each, "name") != _TCP or not _drops(each)
    ]
    kinds = [word for word, name in (("HTTP", _HTTP), ("TCP", _TCP)) if name in names]
    return "+".join(kinds) or "UNKNOWN"


def _chains(listener: dict[str, Any]) -> list[dict[str, Any]]:
    last = at(listener, "default_filter_chain")
    return items(listener, "filter_chains") + ([last] if isinstance(last, dict) else [])


def _chain_rows(listener: dict[str, Any]) -> list[tuple[str, tuple[str, ...]]]:
    """Return a tuple for each filter chain of a listener: the path of the chain in the listener, and the chain's
    table row."""
    named = len(items(listener, "filter_chains"))
    rows = [
        (f"filter_chains[{place}]" if place < named else "default_filter_chain", (_match(chain), _destination(chain)))
        for place, chain in enumerate(_chains(listener))
    ]
    return sorted(rows, key=lambda row: row[1][1], reverse=True)


def _match(chain: dict[str, Any]) -> str:
    wanted = at(chain, "filter_chain_match")
    parts = []
    if names := words(wanted, "server_names"):
        parts.append(f"SNI: {','.join(names)}")
    if transport := text(wanted, "transport_protocol"):
        parts.append(f"Trans: {transport}")
    if protocols := words(wanted, "application_protocols"):
        parts.append(_PROTOCOLS.get(tuple(protocols)) or f"App: {','.join(protocols)}")
    suffix = f":{number(wanted, 'destination_port')}" if at(wanted, "destination_port") is not None else ""
    ranges = [f"{text(each, 'address_prefix')}/{number(each, 'prefix_len')}" for each in items(wanted, "prefix_ranges")]
    if ranges or suffix:
        parts.append(f"Addr: {','.join(ranges) or '*'}{suffix}")
    return "; ".join(parts) or "ALL"


def _destination(chain: dict[str, Any]) -> str:
    for each in items(chain, "filters"):
        settings = at(each, "typed_config")
        if text(each, "name") == _HTTP:
            return _http_destination(settings)
        if text(each, "name") == _TCP and not _drops(each):
            return _tcp_destination(settings)
    return "Non-HTTP/Non-TCP"


def _http_destination(settings: Any) -> str:
    inline = at(settings, "route_config")
    if isinstance(inline, dict):
        return _only_cluster(inline) or f"Inline Route: {'; '.join(map(_host, items(inline, 'virtual_hosts')))}"
    fetched = text(settings, "rds", "route_config_name")
    return f"Route: {fetched}" if fetched else "HTTP"


def _tcp_destination(settings: Any) -> str:
    weighted = items(settings, "weighted_clusters", "clusters")
    if weighted:
        shares = [f"{text(each, 'name')} ({number(each, 'weight')})" for each in weighted]
        return f"Clusters: {', '.join(shares)}"
    return _cluster(text(settings, "cluster"))


def _cluster(name: str) -> str:
    return name if "Cluster" in name else f"Cluster: {name}"


def _only_cluster(route_configuration: dict[str, Any]) -> str:
    """Return the cluster to which all requests of a route configuration go; "" if there are several destinations."""
    hosts = items(route_configuration, "virtual_hosts")
    if len(hosts) != 1 or words(hosts[0], "domains") != ["*"]:
        return ""
    routes = items(hosts[0], "routes")
    if len(routes) != 1 or text(routes[0], "match", "prefix") != "/":
        return ""
    name = text(routes[0], "route", "cluster")
    return _cluster(name) if name else ""


def _host(host: dict[str, Any]) -> str:
    domains = words(host, "domains")
    matches = ", ".join(match(route) for route in items(host, "routes"))
    return matches if domains == ["*"] else f"{'/'.join(domains)} {matches}"


def _drops(network_filter: dict[str, Any]) -> bool:
    return _BLACK_HOLE in str(at(network_filter, "typed_config"))
