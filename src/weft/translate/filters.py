"""Builds the HTTP filters that routes enable: faults, CORS, gRPC-Web, and a metadata mark on responses that the proxy
sends itself.

Every outbound connection manager has these filters, disabled; the per-route config enables them. For a request on a
route that enables none of them, each filter only costs a lookup in an empty map. Adding a fault to a VirtualService
changes only routes: no listener is replaced and no connection is drained.
"""

from __future__ import annotations

from functools import lru_cache

from envoy.config.route.v3.route_components_pb2 import FilterConfig, Route
from envoy.extensions.filters.common.fault.v3.fault_pb2 import FaultDelay
from envoy.extensions.filters.http.cors.v3.cors_pb2 import Cors, CorsPolicy
from envoy.extensions.filters.http.fault.v3.fault_pb2 import FaultAbort, HTTPFault
from envoy.extensions.filters.http.grpc_web.v3.grpc_web_pb2 import GrpcWeb
from envoy.extensions.filters.http.header_to_metadata.v3.header_to_metadata_pb2 import Config as HeaderToMetadata
from envoy.extensions.filters.http.router.v3.router_pb2 import Router
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import HttpFilter
from google.protobuf.any_pb2 import Any

from weft.api.syntax import words
from weft.model.virtual_service import CorsPolicy as WrittenCors
from weft.model.virtual_service import Fault, HttpRoute
from weft.translate.actions import fraction
from weft.translate.matches import string_matcher
from weft.translate.protos import duration, packed

FAULT = "envoy.filters.http.fault"
CORS = "envoy.filters.http.cors"
GRPC_WEB = "envoy.filters.http.grpc_web"
MARK = "envoy.filters.http.header_to_metadata"
ROUTER = "envoy.filters.http.router"

# Metadata namespace and key of the mark. No response flag distinguishes redirects and direct responses of the proxy
# from responses of an upstream, so their routes set this mark.
MARKS = "weft"
ANSWERED = "answered_by_proxy"

_GRPC_CODES = words("""
    OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED
    RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS
    UNAUTHENTICATED
""")
_GRPC_STATUS = {name: number for number, name in enumerate(_GRPC_CODES)}


def outbound_filters(*, grpc_web: bool = False) -> tuple[HttpFilter, ...]:
    """Return the HTTP filters of outbound and gateway connection managers. `grpc_web`: enable gRPC-Web for all routes,
    because their callers may be browsers."""
    return (
        HttpFilter(name=FAULT, typed_config=packed(HTTPFault()), disabled=True),
        HttpFilter(name=CORS, typed_config=packed(Cors()), disabled=True),
        HttpFilter(name=GRPC_WEB, typed_config=packed(GrpcWeb()), disabled=not grpc_web),
        HttpFilter(name=MARK, typed_config=packed(HeaderToMetadata()), disabled=True),
        HttpFilter(name=ROUTER, typed_config=packed(Router())),
    )


def inbound_filters(*, grpc_web: bool = False) -> tuple[HttpFilter, ...]:
    """Return the HTTP filters of inbound connection managers. `grpc_web`: convert gRPC-Web to gRPC. These filters
    collect no upstream statistics, because the caller's proxy has the same ones."""
    router = Router()
    router.dynamic_stats.value = False
    end = HttpFilter(name=ROUTER, typed_config=packed(router))
    return (HttpFilter(name=GRPC_WEB, typed_config=packed(GrpcWeb())), end) if grpc_web else (end,)


def enable(route: Route, written: HttpRoute) -> None:
    if written.fault is not None and (fault := _fault(written.fault)) is not None:
        route.typed_per_filter_config[FAULT].CopyFrom(packed(fault))
    if written.cors is not None:
        route.typed_per_filter_config[CORS].CopyFrom(packed(_cors(written.cors)))
    if written.redirect is not None or written.direct_response is not None:
        route.typed_per_filter_config[MARK].CopyFrom(_mark())


def translate_grpc_web(route: Route) -> None:
    """Enable the conversion from gRPC-Web to gRPC for a route, so that browsers can call a gRPC server without another
    converter."""
    route.typed_per_filter_config[GRPC_WEB].CopyFrom(_as_it_stands())


@lru_cache(maxsize=1)
def _as_it_stands() -> Any:
    config = FilterConfig()
    config.config.SetInParent()
    return packed(config)


@lru_cache(maxsize=1)
def _mark() -> Any:
    config = HeaderToMetadata()
    rule = config.request_rules.add(header=":path")  # every request has a path
    rule.on_header_present.metadata_namespace = MARKS
    rule.on_header_present.key = ANSWERED
    rule.on_header_present.value = "1"
    return packed(config)


def _fault(written: Fault) -> HTTPFault | None:
    """Translate a fault (delay or abort) of a route; None if it affects no request, such as a fault without a
    percentage."""
    result = HTTPFault()
    if written.delay is not None and written.delay.percentage > 0:
        result.delay.CopyFrom(
            FaultDelay(fixed_delay=duration(written.delay.fixed), percentage=fraction(written.delay.percentage))
        )
    if written.abort is not None and written.abort.percentage > 0:
        abort = FaultAbort(percentage=fraction(written.abort.percentage))
        if written.abort.grpc_status:
            abort.grpc_status = _GRPC_STATUS.get(written.abort.grpc_status.upper(), _GRPC_STATUS["UNKNOWN"])
        else:
            abort.http_status = written.abort.http_status
        result.abort.CopyFrom(abort)
    return result if result.ByteSize() else None


def _cors(written: WrittenCors) -> CorsPolicy:
    result = CorsPolicy(
        allow_origin_string_match=[string_matcher(origin) for origin in written.allow_origins],
        allow_methods=",".join(written.allow_methods),
        allow_headers=",".join(written.allow_headers),
        expose_headers=",".join(written.expose_headers),
    )
    if written.max_age is not None:
        result.max_age = str(int(written.max_age.total_seconds()))
    if written.allow_credentials is not None:
        result.allow_credentials.value = written.allow_credentials
    result.filter_enabled.default_value.numerator = 100
    result.forward_not_matching_preflights.value = written.unmatched_preflights != "IGNORE"
    return result
