"""Reads Istio's VirtualService: hosts, gateways and routes. Short host names become fully qualified here."""

from __future__ import annotations

from weft.api.http_route import read_destinations, read_http_route
from weft.api.metadata import Meta, export_to, gateway_names
from weft.api.reader import Fields
from weft.api.syntax import is_address, is_dns_label, is_wildcard_host
from weft.model.names import host_covers
from weft.model.virtual_service import MESH, HttpRoute, L4Match, L4Route, VirtualService


def read_virtual_service(root: Fields, meta: Meta) -> tuple[VirtualService, ...]:
    spec = root.fields("spec", required=True)
    if spec is None:
        return ()
    delegated = not spec.raw("hosts")
    gateways = gateway_names(spec, meta)
    hosts = _hosts(spec, meta, mesh=not gateways or MESH in gateways)
    if delegated:
        _check_delegated(spec)
    http = tuple(read_http_route(item, meta, delegated=delegated) for item in spec.items("http"))
    _check_reachable(spec, http)
    if not any(spec.raw(name) for name in ("http", "tls", "tcp")):
        spec.lacks("http", "tls", "tcp", what="the VirtualService has no routes", hint="set `http`, `tls` or `tcp`")
    return (
        VirtualService(
            name=meta.name,
            namespace=meta.namespace,
            hosts=hosts,
            gateways=gateways or (MESH,),
            http=http,
            tls=tuple(_l4_route(item, meta, hosts, tls=True) for item in spec.items("tls")),
            tcp=tuple(_l4_route(item, meta, hosts, tls=False) for item in spec.items("tcp")),
            export_to=export_to(spec, meta),
            created=meta.created,
            origin=meta.origin,
        ),
    )


def _hosts(spec: Fields, meta: Meta, *, mesh: bool) -> tuple[str, ...]:
    written: dict[str, str] = {}  # the host as written, by its full name
    wildcards: list[str] = []
    hint = "write a name, `*.example.com` or an IP address"
    for index, host in spec.numbered_texts("hosts", _is_routed, "a host name", hint):
        if host == "*" and mesh:
            spec.error(
                ("hosts", index),
                "the host `*` is not allowed for sidecars (the `mesh` gateway)",
                "name the hosts, or name a gateway in `gateways`",
            )
        full = meta.host(host.removesuffix("."))
        # Only a wildcard covers other hosts, so most hosts are compared with few others.
        others = written if full.startswith("*") else (full, *wildcards)
        double = next((each for each in others if each in written and _overlap(each, full)), "")
        if double:
            other = written[double]
            spec.error(("hosts", index), f"`{host}` and `{other}` are the same host, or one covers the other")
        written.setdefault(full, host)
        if full.startswith("*"):
            wildcards.append(full)
    return tuple(written)


def _overlap(host: str, other: str) -> bool:
    return host_covers(host, other) or host_covers(other, host)


def _check_delegated(spec: Fields) -> None:
    hint = "a VirtualService without `hosts` is a delegate: part of the http routes of another VirtualService"
    for name in ("gateways", "tls", "tcp"):
        if spec.has(name):
            spec.lacks("hosts", at=name, what=f"without `hosts` there can be no `{name}`", hint=hint)


def _check_reachable(spec: Fields, routes: tuple[HttpRoute, ...]) -> None:
    """Warn about routes that are never used: those below a route without a match, which matches every request."""
    catching = next((index for index, route in enumerate(routes) if not route.match), len(routes))
    for index in range(catching + 1, len(routes)):
        spec.warning(
            ("http", index),
            f"this route is never used: http[{catching}] (line {routes[catching].line}) matches everything",
            f"move this route above http[{catching}]",
            code="WFT0111",
        )


def _l4_route(item: Fields, meta: Meta, hosts: tuple[str, ...], *, tls: bool) -> L4Route:
    matches = tuple(_l4_match(match, meta, hosts, tls=tls) for match in item.items("match", required=tls))
    if not item.raw("route"):
        item.lacks("route", what="`route` is required")
    return L4Route(matches, read_destinations(item, meta, headers=False), item.line)


def _l4_match(match: Fields, meta: Meta, hosts: tuple[str, ...], *, tls: bool) -> L4Match:
    names = match.numbered_texts("sniHosts", _is_routed, "a host name", required=True) if tls else []
    for index, name in names:
        if not any(host_covers(host, meta.host(name)) or host_covers(host, name) for host in hosts):
            match.error(
                ("sniHosts", index),
                f"the SNI host `{name}` is not among the VirtualService's hosts",
                f"its hosts are: {', '.join(hosts[:5])}",
            )
    match.refused(
        "sourceSubnet",
        "neither weft nor Istio supports `sourceSubnet`",
        "use `sourceLabels` or `sourceNamespace`",
    )
    return L4Match(
        destination_subnets=match.ranges("destinationSubnets"),
        port=match.port("port"),
        sni_hosts=tuple(name for _, name in names),
        source_labels=match.labels("sourceLabels"),
        source_namespace=match.checked("sourceNamespace", is_dns_label, "a namespace", most=63),
        gateways=gateway_names(match, meta),
    )


def _is_routed(host: str) -> bool:
    return is_wildcard_host(host) or is_address(host)
