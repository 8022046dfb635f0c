"""Reads the Gateway API's GRPCRoute: like an HTTPRoute, but its matches name gRPC services and methods. The path of a
call is /SERVICE/METHOD."""

from __future__ import annotations

import re

from weft.api.gateway_api.filters import BACKEND, GRPC, read_filters
from weft.api.gateway_api.http_route import EVERYTHING, read_backends, read_named, read_requests, refuse_persistence
from weft.api.metadata import Meta
from weft.api.reader import Fields
from weft.model.gateway_api import RouteKind, RouteRule, StandardRoute
from weft.model.virtual_service import HttpMatch, HttpRoute, MatchKind, StringMatch

_SERVICE = re.compile(r"[a-zA-Z0-9_.]+", re.ASCII)
_METHOD = re.compile(r"[a-zA-Z0-9_]+", re.ASCII)


def read_grpc_route(root: Fields, meta: Meta) -> tuple[StandardRoute, ...]:
    return read_requests(root, meta, RouteKind.GRPC, _rule)


def _rule(item: Fields, meta: Meta, index: int) -> RouteRule:
    refuse_persistence(item)
    filters = read_filters(item, meta, GRPC)
    return RouteRule(
        route=HttpRoute(
            name=item.text("name", most=253) or f"{meta.namespace}.{meta.name}.{index}",
            headers=filters.headers,
            line=item.line,
            origin=meta.origin,
        ),
        matches=tuple(_match(match) for match in item.items("matches")) or (EVERYTHING,),
        backends=read_backends(item, meta, BACKEND),
        mirrors=filters.mirrors,
        line=item.line,
    )


def _match(match: Fields) -> HttpMatch:
    return HttpMatch(uri=_path(match.fields("method")), headers=read_named(match, "headers", headers=True))


def _path(fields: Fields | None) -> StringMatch:
    if fields is None:
        return StringMatch(MatchKind.PATH_PREFIX, "/")
    if fields.choice("type", ("Exact", "RegularExpression"), default="Exact") == "RegularExpression":
        service, method = fields.regex("service"), fields.regex("method")
        return StringMatch(MatchKind.REGEX, f"/(?:{service or '[^/]+'})/(?:{method or '[^/]+'})")
    service, method = fields.text("service", most=1_024), fields.text("method", most=1_024)
    if not service and not method:
        fields.lacks("service", "method", what="`method` needs a `service`, a `method`, or both")
    if service and not _SERVICE.fullmatch(service):
        fields.error("service", f"`{service[:80]}` is not the name of a gRPC service", "for example shop.v1.Orders")
    if method and not _METHOD.fullmatch(method):
        fields.error("method", f"`{method[:80]}` is not the name of a gRPC method", "for example Get")
    if service and method:
        return StringMatch(MatchKind.EXACT, f"/{service}/{method}")
    if service:
        return StringMatch(MatchKind.PATH_PREFIX, f"/{service}")
    return StringMatch(MatchKind.REGEX, f"/[^/]+/{re.escape(method)}")
