"""The Gateway API's objects as values, as far as one object alone can tell: who a route wants to belong to, what it
matches, where it sends. What comes of several of them together is `attached.py`'s to say; nobody else reads these."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from weft.model.names import Labels, ObjectKey, Origin
from weft.model.virtual_service import Headers, HttpMatch, HttpRoute

CONTROLLER = "weft.dev/gateway-controller"
GROUP = "gateway.networking.k8s.io"
GATEWAY_KIND = f"Gateway.{GROUP}"  # as in keys
# The label by which a gateway's own proxies are known, in its namespace.
GATEWAY_NAME = "gateway.networking.k8s.io/gateway-name"


class RouteKind(StrEnum):
    HTTP = "HTTPRoute"
    GRPC = "GRPCRoute"
    TLS = "TLSRoute"
    TCP = "TCPRoute"

    @property
    def is_http(self) -> bool:
        return self in (RouteKind.HTTP, RouteKind.GRPC)


class ParentRef(msgspec.Struct, frozen=True, order=True):
    """To what a route wants to be attached."""

    kind: str  # Gateway or Service
    namespace: str
    name: str
    section: str = ""  # a listener
    port: int = 0
    host: str = ""  # of a Service
    group: str | None = None  # as written
    index: int = 0  # among the route's parents
    namespaced: bool = False  # whether its namespace is written

    @property
    def place(self) -> tuple[str, str, str]:
        return (self.kind, self.namespace, self.name)

    def __str__(self) -> str:
        below = "".join(f" {word}" for word in (self.section, str(self.port or "")) if word)
        return f"{self.kind} {self.namespace}/{self.name}{below}"


class Backend(msgspec.Struct, frozen=True):
    """To whom a rule sends. Whether that is possible depends on others: services, and ReferenceGrants."""

    namespace: str
    name: str
    host: str
    port: int = 0
    weight: int = 1
    group: str = ""
    kind: str = "Service"
    headers: Headers = Headers()
    line: int = 0


class RouteRule(msgspec.Struct, frozen=True):
    route: HttpRoute = HttpRoute()  # what happens on the way; without match and destinations
    matches: tuple[HttpMatch, ...] = ()
    backends: tuple[Backend, ...] = ()
    mirrors: tuple[tuple[Backend, float], ...] = ()  # each with its share of the requests, in per cent
    line: int = 0


class StandardRoute(msgspec.Struct, frozen=True):
    """An HTTPRoute, GRPCRoute, TLSRoute or TCPRoute."""

    kind: RouteKind
    name: str
    namespace: str
    parents: tuple[ParentRef, ...] = ()
    hostnames: tuple[str, ...] = ()
    rules: tuple[RouteRule, ...] = ()
    created: str = ""
    origin: Origin | None = None

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.kind, self.namespace, self.name)

    @property
    def age(self) -> tuple[str, str, str]:
        """The oldest first, then by name. Unknown age is newest."""
        return (self.created or "9999", self.namespace, self.name)


class GrantSource(msgspec.Struct, frozen=True):
    group: str
    kind: str
    namespace: str


class GrantTarget(msgspec.Struct, frozen=True):
    group: str
    kind: str
    name: str = ""  # "": all of them


class ReferenceGrant(msgspec.Struct, frozen=True):
    """Who may refer to what in its namespace."""

    name: str
    namespace: str
    sources: tuple[GrantSource, ...]
    targets: tuple[GrantTarget, ...]
    origin: Origin | None = None

    def allows(self, source: GrantSource, target: GrantTarget) -> bool:
        return source in self.sources and any(
            (each.group, each.kind) == (target.group, target.kind) and each.name in ("", target.name)
            for each in self.targets
        )


class GatewayClass(msgspec.Struct, frozen=True):
    name: str
    controller: str
    created: str = ""
    origin: Origin | None = None


class From(StrEnum):
    """The namespaces whose routes a listener takes."""

    SAME = "Same"
    ALL = "All"
    SELECTOR = "Selector"
    NONE = "None"


class LabelRequirement(msgspec.Struct, frozen=True):
    """One of `matchExpressions`."""

    key: str
    operator: str  # In, NotIn, Exists, DoesNotExist
    values: tuple[str, ...] = ()

    def holds(self, labels: Labels) -> bool:
        value = dict(labels).get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
        return value is None


class CertificateRef(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    group: str = ""
    kind: str = "Secret"


class CallersCheck(msgspec.Struct, frozen=True):
    """Whom callers of HTTPS listeners must have their certificates from."""

    port: int  # of the listeners; 0: all that have none of their own
    authorities: tuple[CertificateRef, ...]


class Listener(msgspec.Struct, frozen=True):
    name: str
    port: int
    protocol: str  # HTTP, HTTPS, TLS or TCP
    hostname: str = ""  # "": any
    passthrough: bool = False  # of TLS: not ended here
    certificates: tuple[CertificateRef, ...] = ()
    namespaces: From = From.SAME
    selector: Labels = ()
    requirements: tuple[LabelRequirement, ...] = ()
    kinds: tuple[str, ...] = ()  # that are allowed; (): all that fit the protocol
    other_kinds: tuple[str, ...] = ()  # that are asked for, and cannot be
    line: int = 0


class StandardGateway(msgspec.Struct, frozen=True):
    name: str
    namespace: str
    class_name: str
    listeners: tuple[Listener, ...]
    addresses: tuple[tuple[str, str], ...] = ()  # type and value
    labels: Labels = ()  # of what is made for it
    annotations: Labels = ()
    checks: tuple[CallersCheck, ...] = ()
    created: str = ""
    origin: Origin | None = None

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(GATEWAY_KIND, self.namespace, self.name)

    def check_of(self, listener: Listener) -> CallersCheck | None:
        if listener.protocol != "HTTPS":
            return None
        found = {each.port: each for each in self.checks}
        return found.get(listener.port) or found.get(0)

    @property
    def bundles(self) -> tuple[tuple[str, str], ...]:
        """The ConfigMaps with authorities, by namespace and name."""
        references = (each for check in self.checks for each in check.authorities)
        return tuple((each.namespace, each.name) for each in references if (each.group, each.kind) == ("", "ConfigMap"))


class BackendTls(msgspec.Struct, frozen=True):
    """A BackendTLSPolicy for one Service."""

    name: str
    namespace: str
    service: str
    host: str  # of the service
    server_name: str
    section: str = ""  # a port of it by name; "": all
    subject_alt_names: tuple[str, ...] = ()
    system: bool = False  # whom the system believes is believed; else who is in these ConfigMaps
    bundles: tuple[str, ...] = ()
    other_kinds: tuple[str, ...] = ()  # that are asked for in the place of ConfigMaps, and cannot be
    created: str = ""
    origin: Origin | None = None


class AuthorityBundle(msgspec.Struct, frozen=True):
    """A ConfigMap that holds certificates of authorities, as `ca.crt`."""

    name: str
    namespace: str
    roots: str  # PEM
    origin: Origin | None = None
