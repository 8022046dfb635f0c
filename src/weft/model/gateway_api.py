"""The Gateway API's objects as values, each parsed from its own document alone: a route's parents, matches and
backends, a Gateway's listeners. `mesh/gateway_api/attached.py` combines them; no other module reads these values."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from weft.model.names import Labels, ObjectKey, Origin, selects
from weft.model.virtual_service import Headers, HttpMatch, HttpRoute

ISTIO_GROUP = "networking.istio.io"
CONTROLLER = "weft.dev/gateway-controller"
GROUP = "gateway.networking.k8s.io"
GATEWAY_KIND = f"Gateway.{GROUP}"  # the kind in an ObjectKey
LISTENER_SET = "ListenerSet"
Parent = tuple[str, str, str]  # kind, namespace and name of the object that routes are attached to
# The label of a gateway's own proxies, in its namespace.
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
    """A parentRef: the object that a route attaches to. `kind`: Gateway, ListenerSet, Service or ServiceEntry.
    `section`: the name of a listener; "" for all. `port`: 0 for all ports. `host`: the full host of a Service; "" for
    other kinds. `group`: as the parentRef states it; None if it states none. `index`: the position among the route's
    parents. `namespaced`: whether the parentRef states a namespace."""

    kind: str
    namespace: str
    name: str
    section: str = ""
    port: int = 0
    host: str = ""
    group: str | None = None
    index: int = 0
    namespaced: bool = False

    @property
    def place(self) -> Parent:
        return (self.kind, self.namespace, self.name)

    def __str__(self) -> str:
        below = "".join(f" {word}" for word in (self.section, str(self.port or "")) if word)
        return f"{self.kind} {self.namespace}/{self.name}{below}"


class Backend(msgspec.Struct, frozen=True):
    """A backendRef of a rule: a Service, or with the kind `Hostname` (`is_host`) a host of any Service or ServiceEntry.
    `host`: its fully qualified host. `port`: 0 if the backendRef has none. `weight`: its share of the traffic, relative
    to the rule's other backends. `headers`: header changes for this backend only. Whether the backend can be used
    depends on services and ReferenceGrants."""

    namespace: str
    name: str
    host: str
    port: int = 0
    weight: int = 1
    group: str = ""
    kind: str = "Service"
    headers: Headers = Headers()
    line: int = 0

    @property
    def is_host(self) -> bool:
        """Whether this is Istio's kind `Hostname`."""
        return (self.group, self.kind) == (ISTIO_GROUP, "Hostname")


class RouteRule(msgspec.Struct, frozen=True):
    route: HttpRoute = HttpRoute()  # everything but matches and destinations: filters, timeouts, retries
    matches: tuple[HttpMatch, ...] = ()
    backends: tuple[Backend, ...] = ()
    mirrors: tuple[tuple[Backend, float], ...] = ()  # each with its share of the requests, in per cent
    line: int = 0


class StandardRoute(msgspec.Struct, frozen=True):
    """An HTTPRoute, GRPCRoute, TLSRoute or TCPRoute (`kind`). `parents`: the Gateways or Services to which it wants to
    be attached. `hostnames`: the hosts for which it applies; () for all hosts of its parents. `created`: the creation
    time; "" if unknown."""

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
        """Sort key: the oldest route first, then by name. A route of unknown age counts as the newest."""
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
    """A ReferenceGrant: any object that matches one of `sources` (by API group, kind and namespace) may refer to any
    object of the grant's own namespace that matches one of `targets` (by API group, kind and name)."""

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
    """The namespaces from which a listener allows routes."""

    SAME = "Same"
    ALL = "All"
    SELECTOR = "Selector"
    NONE = "None"


class LabelRequirement(msgspec.Struct, frozen=True):
    """One entry of a label selector's `matchExpressions`. `key`: the label. `operator`: In, NotIn, Exists or
    DoesNotExist."""

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


class AllowedNamespaces(msgspec.Struct, frozen=True):
    """The namespaces from which a listener allows routes, or from which a Gateway allows ListenerSets. `selector`,
    `requirements`: the labels of these namespaces, with `From.SELECTOR`."""

    source: From = From.SAME
    selector: Labels = ()
    requirements: tuple[LabelRequirement, ...] = ()

    def allow(self, namespace: str, own: str, labels: Labels) -> bool:
        """Whether `namespace`, which has these labels, is allowed. `own`: the namespace of the object with this
        setting."""
        match self.source:
            case From.ALL:
                return True
            case From.SAME:
                return namespace == own
            case From.SELECTOR:
                return selects(self.selector, labels) and all(each.holds(labels) for each in self.requirements)
        return False


class CertificateRef(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    group: str = ""
    kind: str = "Secret"


class CallersCheck(msgspec.Struct, frozen=True):
    """How the client certificates of HTTPS listeners are checked. `authorities`: the CAs of which one must have issued
    the certificate (`caCertificateRefs`); () if clients need no certificate. `port`: the check applies to the listeners
    with this port; 0: to all listeners whose port has no check of its own. `insecure`: clients without a certificate,
    or with a certificate of another CA, are accepted."""

    port: int
    authorities: tuple[CertificateRef, ...]
    insecure: bool = False


class Listener(msgspec.Struct, frozen=True):
    name: str
    port: int
    protocol: str  # HTTP, HTTPS, TLS or TCP
    hostname: str = ""  # "": any
    passthrough: bool = False  # TLS is not terminated
    client_certificates: str = ""  # "MUTUAL" or "OPTIONAL_MUTUAL": verified by the CA in the Secret; "": not requested
    certificates: tuple[CertificateRef, ...] = ()
    namespaces: AllowedNamespaces = AllowedNamespaces()  # of routes
    kinds: tuple[str, ...] = ()  # allowed route kinds; (): all that fit the protocol
    other_kinds: tuple[str, ...] = ()  # requested route kinds that weft does not support
    line: int = 0


class StandardGateway(msgspec.Struct, frozen=True):
    name: str
    namespace: str
    class_name: str
    listeners: tuple[Listener, ...]
    addresses: tuple[tuple[str, str], ...] = ()  # type and value
    labels: Labels = ()  # labels of the objects created for it
    annotations: Labels = ()
    checks: tuple[CallersCheck, ...] = ()
    client_certificate: CertificateRef | None = None  # for TLS to backends
    listener_sets: AllowedNamespaces = AllowedNamespaces(From.NONE)
    created: str = ""
    origin: Origin | None = None

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(GATEWAY_KIND, self.namespace, self.name)

    @property
    def place(self) -> Parent:
        return ("Gateway", self.namespace, self.name)

    def check_of(self, listener: Listener) -> CallersCheck | None:
        return self.check_at(listener.port) if listener.protocol == "HTTPS" else None

    def check_at(self, port: int) -> CallersCheck | None:
        """The check of client certificates for HTTPS listeners of this port."""
        by_port = {check.port: check for check in self.checks}
        return by_port.get(port) or by_port.get(0)

    @property
    def certificates(self) -> Iterator[CertificateRef]:
        """The references to all certificates that this Gateway presents, to clients and to backends."""
        yield from (each for listener in self.listeners for each in listener.certificates)
        if self.client_certificate is not None:
            yield self.client_certificate

    @property
    def bundles(self) -> tuple[tuple[str, str], ...]:
        """The (namespace, name) of each ConfigMap with CA certificates that this Gateway references to verify client
        certificates."""
        references = (each for check in self.checks for each in check.authorities)
        return tuple((each.namespace, each.name) for each in references if (each.group, each.kind) == ("", "ConfigMap"))


class ListenerSet(msgspec.Struct, frozen=True):
    """More listeners for the Gateway named `gateway_name` in `gateway_namespace`, if that Gateway allows them."""

    name: str
    namespace: str
    gateway_namespace: str
    gateway_name: str
    listeners: tuple[Listener, ...]
    created: str = ""
    origin: Origin | None = None

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(LISTENER_SET, self.namespace, self.name)

    @property
    def place(self) -> Parent:
        return (LISTENER_SET, self.namespace, self.name)

    @property
    def gateway(self) -> Parent:
        return ("Gateway", self.gateway_namespace, self.gateway_name)

    @property
    def age(self) -> tuple[str, str, str]:
        """Sort key: the oldest first, then by name."""
        return (self.created or "9999", self.namespace, self.name)

    @property
    def certificates(self) -> Iterator[CertificateRef]:
        yield from (each for listener in self.listeners for each in listener.certificates)


def listener_name(owner: StandardGateway | ListenerSet, gateway: StandardGateway, listener: Listener) -> str:
    """The name of the Gateway of the mesh for one listener of a Gateway or of a ListenerSet (`owner`). It contains `~`,
    which is invalid in Kubernetes names, so it equals the name of no object."""
    within = f"{owner.namespace}~{owner.name}~" if isinstance(owner, ListenerSet) else ""
    return f"{gateway.name}~{within}{listener.name}"


def listener_of(key: str) -> str:
    """The name of the listener for which a Gateway of the mesh was derived; "" if it is not derived. `key`: the
    NAMESPACE/NAME of that Gateway."""
    return key.split("~")[-1] if "~" in key else ""


def listener_set_of(key: str) -> str:
    """The NAMESPACE/NAME of the ListenerSet with the listener; "" if it is a listener of the Gateway itself. `key`: as
    for `listener_of`."""
    parts = key.split("~")
    return f"{parts[1]}/{parts[2]}" if len(parts) == 4 else ""


def owner_of(key: str) -> ObjectKey:
    """The Gateway of the Gateway API from which a Gateway of the mesh was derived. `key`: as for `listener_of`."""
    namespace, _, name = key.partition("~")[0].partition("/")
    return ObjectKey(GATEWAY_KIND, namespace, name)


class BackendTls(msgspec.Struct, frozen=True):
    """A BackendTLSPolicy for one target: a Service, or a ServiceEntry with all of its hosts (`target_kind`). `service`:
    the name of the target, `host`: the host of the Service. `server_name`: the SNI of the connections, which is also
    the name that the server's certificate must have unless `subject_alt_names` lists others. `section`: the name of a
    port of the target; "" for all ports. `system`: whether to trust the system's CA certificates instead of those in
    the ConfigMaps `bundles`. `other_kinds`: kinds that the policy references instead of ConfigMaps, which is not
    supported."""

    name: str
    namespace: str
    service: str
    host: str
    server_name: str
    section: str = ""
    subject_alt_names: tuple[str, ...] = ()
    system: bool = False
    bundles: tuple[str, ...] = ()
    other_kinds: tuple[str, ...] = ()
    created: str = ""
    origin: Origin | None = None
    target_kind: str = "Service"


class AuthorityBundle(msgspec.Struct, frozen=True):
    """A ConfigMap with CA certificates. `roots`: the certificates in its `ca.crt`, as PEM."""

    name: str
    namespace: str
    roots: str  # PEM
    origin: Origin | None = None
