"""VirtualService: matches, destinations and changes of requests. Hosts are full names here; `api/virtual_service.py`
has resolved the short ones."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum

import msgspec

from weft.model.names import Labels, Origin

MESH = "mesh"  # an entry of a VirtualService's gateways that stands for all sidecars


# A header match whose name begins so matches a claim of the request's verified token, `@request.auth.claims[a][b]`.
CLAIMS = "@request.auth.claims"


def claim_path(header: str) -> tuple[str, ...]:
    """The path of the JWT claim that a header match names: the claim and its nested fields.
    `@request.auth.claims[a][b]` gives ("a", "b"). () if the match is for a real header."""
    return tuple(header[len(CLAIMS) + 1 : -1].split("][")) if header.startswith(f"{CLAIMS}[") else ()


class MatchKind(StrEnum):
    EXACT = "exact"
    PREFIX = "prefix"
    PATH_PREFIX = "path-prefix"  # by whole segments: `/v1` matches `/v1/x` but not `/v1x`; "/" matches all
    REGEX = "regex"
    PRESENT = "present"  # `{}` in a header or query match: present, with any value


class StringMatch(msgspec.Struct, frozen=True):
    kind: MatchKind
    value: str = ""


class HttpMatch(msgspec.Struct, frozen=True):
    name: str = ""
    uri: StringMatch | None = None
    scheme: StringMatch | None = None
    method: StringMatch | None = None
    authority: StringMatch | None = None
    headers: tuple[tuple[str, StringMatch], ...] = ()
    without_headers: tuple[tuple[str, StringMatch], ...] = ()
    query_params: tuple[tuple[str, StringMatch], ...] = ()
    ignore_uri_case: bool = False
    port: int = 0
    source_labels: Labels = ()
    source_namespace: str = ""
    gateways: tuple[str, ...] = ()
    stat_prefix: str = ""


class Destination(msgspec.Struct, frozen=True):
    host: str
    subset: str = ""
    port: int = 0  # 0: the port that was called, or the service's only one


class HeaderChanges(msgspec.Struct, frozen=True):
    set: tuple[tuple[str, str], ...] = ()
    add: tuple[tuple[str, str], ...] = ()
    remove: tuple[str, ...] = ()


class Headers(msgspec.Struct, frozen=True):
    request: HeaderChanges = HeaderChanges()
    response: HeaderChanges = HeaderChanges()


class WeightedDestination(msgspec.Struct, frozen=True):
    destination: Destination
    weight: int = 0  # as written; a single destination of weight 0 gets all requests
    headers: Headers = Headers()
    line: int = 0


class Redirect(msgspec.Struct, frozen=True):
    uri: str = ""
    authority: str = ""
    port: int = 0
    derive_port: str = ""  # FROM_PROTOCOL_DEFAULT or FROM_REQUEST_PORT
    scheme: str = ""
    code: int = 301
    prefix: str = ""  # replaces the matched path prefix


class DirectResponse(msgspec.Struct, frozen=True):
    status: int
    body: str = ""
    body_bytes: bytes = b""


class Rewrite(msgspec.Struct, frozen=True):
    uri: str = ""
    authority: str = ""
    regex_match: str = ""
    regex_rewrite: str = ""
    prefix: str = ""  # replaces the matched path prefix, by whole segments


class Retries(msgspec.Struct, frozen=True):
    attempts: int = 2
    per_try_timeout: timedelta | None = None
    retry_on: str = ""
    retry_remote_localities: bool = False
    ignore_previous_hosts: bool = True
    backoff: timedelta | None = None


class Delay(msgspec.Struct, frozen=True):
    fixed: timedelta
    percentage: float = 0.0  # a fault without a percentage affects no request, as in Istio


class Abort(msgspec.Struct, frozen=True):
    http_status: int = 0
    grpc_status: str = ""
    percentage: float = 0.0


class Fault(msgspec.Struct, frozen=True):
    delay: Delay | None = None
    abort: Abort | None = None


class Mirror(msgspec.Struct, frozen=True):
    destination: Destination
    percentage: float = 100.0
    line: int = 0


class CorsPolicy(msgspec.Struct, frozen=True):
    allow_origins: tuple[StringMatch, ...] = ()
    allow_methods: tuple[str, ...] = ()
    allow_headers: tuple[str, ...] = ()
    expose_headers: tuple[str, ...] = ()
    max_age: timedelta | None = None
    allow_credentials: bool | None = None
    unmatched_preflights: str = ""


class Delegate(msgspec.Struct, frozen=True):
    name: str
    namespace: str


class HttpRoute(msgspec.Struct, frozen=True):
    name: str = ""
    match: tuple[HttpMatch, ...] = ()  # any of them must match; without entries, everything matches
    route: tuple[WeightedDestination, ...] = ()
    redirect: Redirect | None = None
    direct_response: DirectResponse | None = None
    delegate: Delegate | None = None
    rewrite: Rewrite | None = None
    timeout: timedelta | None = None
    retries: Retries | None = None
    fault: Fault | None = None
    mirrors: tuple[Mirror, ...] = ()
    cors: CorsPolicy | None = None
    headers: Headers = Headers()
    line: int = 0  # line of this route in its file
    origin: Origin | None = None  # its object, if the VirtualService is derived from several; None: the same object
    failing: int = 0  # the weight of destinations that cannot be used: their requests get 500


class L4Match(msgspec.Struct, frozen=True):
    destination_subnets: tuple[str, ...] = ()
    port: int = 0
    sni_hosts: tuple[str, ...] = ()  # for tls routes only
    source_labels: Labels = ()
    source_namespace: str = ""
    gateways: tuple[str, ...] = ()


class L4Route(msgspec.Struct, frozen=True):
    """A `tcp` or `tls` route, depending on the list of the VirtualService that contains it. `match`: the connections
    that it applies to, if any of the entries matches; () for all. `route`: the destinations with their weights. `line`:
    the line of the route in its file. `failing`: the total weight of destinations that cannot be used; this share of
    the connections is closed."""

    match: tuple[L4Match, ...] = ()
    route: tuple[WeightedDestination, ...] = ()
    line: int = 0
    failing: int = 0


class VirtualService(msgspec.Struct, frozen=True, cache_hash=True):
    name: str
    namespace: str
    hosts: tuple[str, ...]
    gateways: tuple[str, ...] = (MESH,)  # MESH or NAMESPACE/NAME of a Gateway
    http: tuple[HttpRoute, ...] = ()
    tls: tuple[L4Route, ...] = ()
    tcp: tuple[L4Route, ...] = ()
    export_to: tuple[str, ...] = ()
    created: str = ""
    origin: Origin | None = None
    attached: bool = False  # derived from Gateway API routes: a VirtualService takes precedence over it
    # The HTTP routes are for requests to the addresses of the host's Service, whatever host the requests name.
    by_address: bool = False

    @property
    def origins(self) -> tuple[Origin, ...]:
        """The objects that the VirtualService and its HTTP routes come from, each once, the VirtualService's own
        first."""
        each = (self.origin, *(route.origin for route in self.http))
        return tuple(dict.fromkeys(origin for origin in each if origin is not None))


def destinations(routing: VirtualService) -> Iterator[tuple[int, Destination]]:
    """Yield (line, destination) for every destination of the routes and mirrors of `routing`. The line is that of the
    destination in the file, or else of its route."""
    for route in routing.http:
        yield from ((weighted.line or route.line, weighted.destination) for weighted in route.route)
        yield from ((mirror.line or route.line, mirror.destination) for mirror in route.mirrors)
    for stream in (*routing.tls, *routing.tcp):
        yield from ((each.line or stream.line, each.destination) for each in stream.route)


def destination_hosts(routing: VirtualService) -> frozenset[str]:
    return frozenset(destination.host for _, destination in destinations(routing))
