"""Reads the Gateway API's TCPRoute and TLSRoute: routes of connections by port, and for TLS by SNI. A route has exactly
one rule: connections of a second rule could not be distinguished from those of the first."""

from __future__ import annotations

from weft.api.gateway_api.http_route import read_backends
from weft.api.gateway_api.references import read_hostnames, read_parents
from weft.api.metadata import Meta
from weft.api.reader import Fields
from weft.model.gateway_api import RouteKind, RouteRule, StandardRoute


def read_tcp_route(root: Fields, meta: Meta) -> tuple[StandardRoute, ...]:
    return _read(root, meta, RouteKind.TCP)


def read_tls_route(root: Fields, meta: Meta) -> tuple[StandardRoute, ...]:
    return _read(root, meta, RouteKind.TLS)


def _read(root: Fields, meta: Meta, kind: RouteKind) -> tuple[StandardRoute, ...]:
    spec = root.fields("spec", required=True)
    if spec is None:
        return ()
    items = spec.items("rules", required=True)
    if len(items) > 1:
        spec.error(("rules", 1), f"a {kind} can have one rule", f"write a separate {kind} for each rule")
    hostnames = read_hostnames(spec) if kind is RouteKind.TLS else ()
    rules = []
    for item in items:
        item.text("name", most=253)  # a valid field without effect
        rules.append(RouteRule(backends=read_backends(item, meta, ()), line=item.line))
        if not item.raw("backendRefs"):
            item.lacks("backendRefs", what="the rule has no `backendRefs`")
    return (
        StandardRoute(
            kind=kind,
            name=meta.name,
            namespace=meta.namespace,
            parents=read_parents(spec, meta),
            hostnames=hostnames,
            rules=tuple(rules),
            created=meta.created,
            origin=meta.origin,
        ),
    )
