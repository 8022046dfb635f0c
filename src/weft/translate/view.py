"""Collects the inputs of translation from the mesh, for one group: exactly what its config depends on. A view is frozen
and hashable. Equal views give equal resources, so a view is the cache key of everything that is built from it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from weft.mesh.gateways import references
from weft.mesh.mesh import Mesh
from weft.mesh.service_members import Standing
from weft.model.access_log import Reporter
from weft.model.authorization_policy import AuthorizationPolicy
from weft.model.credential import Credential
from weft.model.destination_rule import (
    ClientTls,
    ClientTlsMode,
    DestinationRule,
    credentials_of,
    effective,
    levels,
    passes_on,
    with_tls,
)
from weft.model.edge import AUTHORITIES, BoundServer, ServedName
from weft.model.endpoint import Endpoint
from weft.model.extension_provider import Authorizer
from weft.model.group import Group, ProxyKind
from weft.model.inbound_port import InboundPort
from weft.model.locality import Whereabouts, looks_at_labels, whereabouts, without_rule
from weft.model.names import CredentialRef, Labels
from weft.model.on_demand import EVERYTHING, Telling
from weft.model.peer_authentication import PeerModes
from weft.model.request_authentication import RequestAuthentication
from weft.model.scope import OwnListener, Scope
from weft.model.service import Protocol, Resolution, Service, ServicePort
from weft.model.settings import Settings
from weft.model.sidecar import Outbound, OutboundPolicy
from weft.model.virtual_service import MESH, HttpMatch, L4Match, Retries, VirtualService, destinations

_CLOSED = ClientTls(ClientTlsMode.CLOSED)
_FOREIGN = (ClientTlsMode.SIMPLE, ClientTlsMode.MUTUAL)


class CallerView(msgspec.Struct, frozen=True):
    """The properties of a caller that the config of a host depends on. `namespace` and `labels` are set only if a route
    or a short name depends on them, so that most groups share one view. `gateways`: the gateways through which the
    caller calls, for matches on gateways; `mesh` for a sidecar. `encrypted`: at a gateway, whether the client uses TLS,
    which the gateway terminates. `whereabouts`: the caller's locality; None without locality load balancing. `retries`:
    the mesh's retries for routes that set none; None for weft's default."""

    kind: ProxyKind
    namespace: str = ""  # only if short names exist for the caller, or some route matches on it
    labels: Labels = ()  # only if some route matches on source labels
    gateways: tuple[str, ...] = (MESH,)  # the gateways through which it calls, for matches on gateways
    encrypted: bool = False  # whether it calls a gateway with TLS, which the gateway terminates
    whereabouts: Whereabouts | None = None  # its locality; only with locality load balancing
    retries: Retries | None = None  # the mesh's retries for routes that set none; None: weft's default


class RouteTarget(msgspec.Struct, frozen=True):
    """A host that is a destination of another host's routes: the properties that those routes depend on. `known`: the
    routes can reach a service of this host. `ports`, `subsets`: those that the host has. `rule`: the host's
    DestinationRule, only if it has settings that go into routes. `chosen`: the host is headless and the proxy chooses
    the pod. `offering_http`: the ports where mutual TLS offers the ALPN of HTTP, unless the route's filter chain sets
    another."""

    host: str
    known: bool = True
    ports: tuple[int, ...] = ()
    subsets: tuple[str, ...] = ()
    rule: DestinationRule | None = None  # only if it has settings that go into routes, not clusters
    chosen: bool = False  # whether it is headless and the proxy chooses the pod, not the caller
    offering_http: tuple[
        int, ...
    ] = ()  # ports where mutual TLS offers the ALPN of HTTP unless the caller's chain sets another


class ServiceView(msgspec.Struct, frozen=True):
    """One host as one group sees it. If `service` is None, only a VirtualService defines the host. `ports`: the ports
    that the group sees at the service's addresses. `own`: listeners of the group's Sidecar with addresses of their own,
    at which the host is called. `behind`: hidden ports, to which only routes of other hosts lead. `rule`: the effective
    DestinationRule. `routes`: the VirtualServices of the host, the deciding one first. `inside`: for a wildcard host,
    the VirtualServices with `tls` routes for hosts that it covers. `delegates`: the VirtualServices to which `routes`
    delegate.

    `meshed`: the ports at which all endpoints have a proxy. `secured`: the ports at which all endpoints accept mutual
    TLS; set only if the caller, not the proxy, chooses the endpoint's address (a headless service, or the load balancer
    PASSTHROUGH), else empty. `accounts`: the service accounts of the endpoints. `endpoints`: by port; empty if only EDS
    needs them. `targets`: the other hosts to which the routes lead. `doors`: for a gateway, the servers of Gateways
    that serve the host (these are not the sockets that are called doors elsewhere). `credentials`: the Secrets that the
    DestinationRule names. `held`: whether calls to addresses without config are held; an HTTP service then has
    listeners on its own addresses, too. `led_to`: the service is headless and routes of other hosts lead to it."""

    host: str
    caller: CallerView
    service: Service | None = None
    ports: tuple[ServicePort, ...] = ()  # the ports visible to the group, with the protocol that it uses
    own: tuple[OwnListener, ...] = ()  # a Sidecar's listeners with addresses of their own, at which it is called
    behind: tuple[ServicePort, ...] = ()  # hidden ports that routes of other hosts lead to; they only have clusters
    rule: DestinationRule | None = None
    routes: tuple[VirtualService, ...] = ()  # the VirtualServices of the host, the deciding one first
    inside: tuple[VirtualService, ...] = ()  # only for a wildcard: those with `tls` routes for hosts that it covers
    delegates: tuple[VirtualService, ...] = ()  # the VirtualServices to which these routes delegate
    meshed: tuple[int, ...] = ()  # ports at which all endpoints have a proxy of the mesh
    secured: tuple[int, ...] = ()  # ports where all endpoints accept mutual TLS; only if the caller chooses the address
    accounts: tuple[str, ...] = ()  # the service accounts of its endpoints, in its namespace
    endpoints: tuple[tuple[int, tuple[Endpoint, ...]], ...] = ()  # by port; empty if only EDS needs them
    targets: tuple[RouteTarget, ...] = ()  # the other hosts that the routes name
    doors: tuple[ServedName, ...] = ()  # only for gateways: the servers of Gateways that serve the host
    credentials: tuple[Credential, ...] = ()  # the Secrets that the DestinationRule names
    held: bool = False  # calls to addresses without config are held, so HTTP services have listeners on their addresses
    led_to: bool = False  # whether it is headless and routes of other hosts lead to it: then the proxy chooses a pod

    def target(self, host: str) -> RouteTarget | None:
        return next((target for target in self.targets if target.host == host), None)


class ServerView(msgspec.Struct, frozen=True):
    """A server of a Gateway, bound to a port of the proxies (`bound`), and the TCP or TLS routes of its connections
    (`streams`; None for an HTTP server)."""

    bound: BoundServer
    streams: ServiceView | None = None


class GroupView(msgspec.Struct, frozen=True):
    """The inputs of that part of a group's config that depends on no service: its own listeners, guards and
    certificates. `inbound`: the ports of the workload. `policy`: what happens to calls to unknown destinations.
    `settings` apply to outbound calls, `called` to inbound calls; None if they are equal. `modes`: the TLS modes that
    the ports accept. `authorization`, `authentication`: the policies that select the group; `authorizers`: the external
    authorizers that they name. `telling`: whether the group gets all services at once or on demand.

    Only for gateways: `namespace`: that of their Secrets. `servers`: what they serve. `published`: the ports that are
    published on the machine. `credentials`: the Secrets that the servers name and that exist."""

    kind: ProxyKind
    inbound: tuple[InboundPort, ...]
    policy: Outbound
    settings: Settings  # settings for outbound calls
    modes: PeerModes = PeerModes()  # the TLS modes that its ports accept
    authorization: tuple[AuthorizationPolicy, ...] = ()  # the policies that select it, the mesh-wide ones first
    authentication: tuple[RequestAuthentication, ...] = ()
    authorizers: tuple[Authorizer, ...] = ()  # the external authorizers that its policies name and that exist
    called: Settings | None = None  # the settings for inbound calls; None if they equal `settings`
    locality: str = ""  # only if a call in the mesh depends on localities
    namespace: str = ""  # only for gateways: the namespace of their Secrets
    servers: tuple[ServerView, ...] = ()  # only for gateways
    published: tuple[int, ...] = ()  # ports of the servers that are also published on the machine
    credentials: tuple[Credential, ...] = ()  # the Secrets that its servers name and that exist
    telling: Telling = EVERYTHING  # how it gets the config of services: all of it, or on demand

    def authorizer(self, name: str) -> Authorizer | None:
        return next((each for each in self.authorizers if each.name == name), None)

    @property
    def inbound_settings(self) -> Settings:
        return self.called or self.settings


def service_view(mesh: Mesh, group: Group, scope: Scope, host: str, *, held: bool = False) -> ServiceView | None:
    """Return the view of a host for a group; None if the host is not visible to the group. `scope`: the services that
    the group may see. `held`: whether the group's proxies hold, or have held, calls to addresses without config
    (on-demand CDS); see `model.on_demand.Telling`."""
    if group.kind is ProxyKind.GATEWAY:
        edge = mesh.edge(scope)
        doors = edge.doors.get(host, ())
        service = mesh.service(host, scope) if host in edge.destinations else None
        routings = dict.fromkeys(routing for door in doors for routing in door.routes)
        return _seen(mesh, group, scope, host, service, tuple(routings), doors) if service or doors else None
    hidden = mesh.hidden_service(host, scope)
    service = hidden or mesh.service(host, scope)
    routes = mesh.virtual_services(host, scope)
    if service is None and not routes:
        return None
    seen = _seen(mesh, group, scope, host, service, routes, held=held)
    if hidden is None:
        return seen
    visible = {port.number for port in (*seen.ports, *(each.port for each in seen.own))}
    behind = tuple(port for port in hidden.ports if port.number not in visible)
    return msgspec.structs.replace(seen, behind=behind)


def _seen(
    mesh: Mesh,
    group: Group,
    scope: Scope,
    host: str,
    service: Service | None,
    routes: tuple[VirtualService, ...],
    doors: tuple[ServedName, ...] = (),
    *,
    held: bool = False,
) -> ServiceView:
    delegates = tuple(
        delegate
        for routing in routes
        for route in routing.http
        if (delegate := mesh.delegate(routing, route)) is not None
    )
    inside = mesh.tls_routes_inside(service, scope) if service and group.kind is ProxyKind.SIDECAR else ()
    routing = (*routes, *inside, *delegates)
    targets = tuple(
        _target(mesh, group, scope, name)
        for name in sorted({destination.host for each in routing for _, destination in destinations(each)} - {host})
    )
    conditions = tuple(_conditions(routing))
    by_namespace = (
        f".{group.namespace}.svc." in host
        or any(match.source_namespace for match in conditions)
        or not all(target.known for target in targets)  # a warning names the caller's namespace
    )
    standing = mesh.standing(service) if service else Standing()
    rule, credentials = _usable(mesh, mesh.destination_rule(host, service, group), group)
    by_labels = any(match.source_labels for match in conditions)
    return ServiceView(
        host=host,
        caller=CallerView(
            group.kind,
            group.namespace if by_namespace else "",
            group.labels if by_labels else (),
            whereabouts=whereabouts(rule, without_rule(service, mesh.settings.locality), group.locality, group.labels)
            if service
            and (group.kind is ProxyKind.GATEWAY or not service.headless)
            and service.resolution not in (Resolution.NONE, Resolution.DYNAMIC_DNS)
            else None,
            retries=mesh.settings.retries,
        ),
        service=service,
        ports=scope.addressed(service) if service else (),
        own=scope.own_listeners(service) if service else (),
        rule=rule,
        routes=routes,
        inside=inside,
        delegates=delegates,
        meshed=standing.meshed,
        secured=mesh.secured_ports(service) if service and (service.headless or passes_on(rule)) else (),
        accounts=standing.accounts,
        endpoints=tuple(
            (port.number, mesh.endpoints(service, port)) for port in service.ports if port.protocol is not Protocol.UDP
        )
        if service and (service.headless or not service.selector or service.resolution is not Resolution.STATIC)
        else (),
        targets=targets,
        doors=doors,
        credentials=credentials,
        held=held,
        led_to=_by_pod(service, group) and mesh.is_led_to(host),
    )


def deciding(view: ServiceView) -> VirtualService | None:
    """Return the VirtualService whose HTTP routes apply to a host in the mesh: the first one with HTTP routes; None if
    there is none."""
    return next((routing for routing in view.routes if routing.http), None)


def speaking(view: ServiceView) -> tuple[VirtualService, ...]:
    """Return the VirtualServices whose HTTP routes apply to the view's host. For a caller in the mesh this is at most
    one: the first with HTTP routes. For a gateway it is every VirtualService of the view that has HTTP routes; their
    routes are then merged."""
    if view.caller.kind is ProxyKind.GATEWAY:
        return tuple(routing for routing in view.routes if routing.http)
    decided = deciding(view)
    return (decided,) if decided is not None else ()


def told_by_name(view: ServiceView, port: ServicePort) -> bool:
    """Whether clients of a port send the name of the host in SNI: the protocol is TLS or HTTPS."""
    return port.protocol in (Protocol.TLS, Protocol.HTTPS) and view.host != "*"


def takes_whole_port(view: ServiceView, port: ServicePort) -> bool:
    """Whether connections to this service cannot be distinguished from other connections to the same port, by
    address or by server name. The service then gets all of them."""
    service = view.service
    return (
        service is not None
        and port.protocol.is_tcp
        and not service.headless
        and not service.addresses
        and not told_by_name(view, port)
        and service.resolution is not Resolution.STATIC
    )


def depends_on_labels(mesh: Mesh, view: ServiceView, namespace: str) -> bool:
    """Whether the view of the host depends on the labels of groups in this namespace."""
    hosts = (view.host, *(target.host for target in view.targets))
    if view.caller.whereabouts is not None and looks_at_labels(view.rule, mesh.settings.locality):
        return True
    return any(match.source_labels for match in _conditions((*view.routes, *view.delegates))) or any(
        mesh.selects_callers(host, namespace) for host in hosts
    )


def group_view(mesh: Mesh, group: Group, telling: Telling = EVERYTHING) -> GroupView:
    if group.kind is ProxyKind.GATEWAY:
        return _gateway_view(mesh, group)
    return GroupView(
        group.kind,
        mesh.inbound_ports(group),
        mesh.outbound_policy(group),
        mesh.settings_of(group, Reporter.CLIENT),
        modes=mesh.peer_modes(group.namespace, group.labels),
        authorization=mesh.policies(AuthorizationPolicy, group),
        authentication=mesh.policies(RequestAuthentication, group),
        authorizers=mesh.authorizers(group),
        called=mesh.settings_of(group, Reporter.SERVER),
        locality=group.locality if mesh.locality_matters else "",
        telling=telling,
    )


def _usable(
    mesh: Mesh, rule: DestinationRule | None, group: Group
) -> tuple[DestinationRule | None, tuple[Credential, ...]]:
    """Return the rule in the form in which the group can apply it (None if there is no rule), and the Secrets of the
    group's namespace that it uses. If a Secret is missing, no endpoint may be called with the returned rule. Only
    gateways use Secrets: otherwise an author of rules could get a gateway's key delivered to their own pod, although
    Kubernetes does not let them read it."""
    rule, client_certificate = _presenting(mesh, rule, group)
    named = credentials_of(rule)
    if rule is None or not named:
        return rule, client_certificate
    credentials: dict[str, tuple[Credential, ...]] = {}
    if group.kind is ProxyKind.GATEWAY:
        for name in sorted(named):
            references = (CredentialRef(f"{name}{AUTHORITIES}", group.namespace), CredentialRef(name, group.namespace))
            credentials[name] = tuple(each for ref in references if (each := mesh.credential(ref)) is not None)
    usable = with_tls(rule, lambda tls: tls if _is_complete(tls, credentials.get(tls.credential, ())) else _CLOSED)
    kept = {each for tls in levels(usable) if tls.tls for each in credentials.get(tls.tls.credential, ())}
    return usable, (*sorted(kept, key=lambda each: each.name), *client_certificate)


def _presenting(
    mesh: Mesh, rule: DestinationRule | None, group: Group
) -> tuple[DestinationRule | None, tuple[Credential, ...]]:
    """Return the rule with the client certificate that the group's Gateway presents to backends, and the Secret with
    that certificate. If the Secret is missing, no endpoint may be called with the returned rule."""
    if group.kind is not ProxyKind.GATEWAY or not any(level.tls and level.tls.of_gateway for level in levels(rule)):
        return rule, ()
    reference = mesh.client_certificate(group)
    if rule is None or reference is None:
        return rule, ()
    credential = mesh.credential(reference)
    if credential is None or not credential.chain:
        closed = msgspec.structs.replace(_CLOSED, of_gateway=True)
        return with_tls(rule, lambda tls: closed if tls.of_gateway else tls), ()

    def presenting(tls: ClientTls) -> ClientTls:
        mutual = msgspec.structs.replace(tls, mode=ClientTlsMode.MUTUAL, pair=reference)
        return mutual if tls.of_gateway else tls

    return with_tls(rule, presenting), (credential,)


def _is_complete(tls: ClientTls, credentials: tuple[Credential, ...]) -> bool:
    if not tls.credential:
        return True
    shows = tls.mode is not ClientTlsMode.MUTUAL or any(
        each.chain and each.name == tls.credential for each in credentials
    )
    return shows and (not tls.verify or any(each.roots for each in credentials))


def _gateway_view(mesh: Mesh, group: Group) -> GroupView:
    scope = mesh.scope(group)
    edge = mesh.edge(scope)
    servers = scope.servers or ()
    named = {
        reference if reference.namespace else CredentialRef(reference.name, group.namespace)
        for server in servers
        for reference in references(server.server.tls)
    }
    credentials = (mesh.credential(reference) for reference in sorted(named))
    return GroupView(
        group.kind,
        (),
        OutboundPolicy.REGISTRY_ONLY,
        mesh.settings_of(group, Reporter.CLIENT),
        authorization=mesh.policies(AuthorizationPolicy, group),
        authentication=mesh.policies(RequestAuthentication, group),
        authorizers=mesh.authorizers(group),
        locality=group.locality if mesh.locality_matters else "",
        namespace=group.namespace,
        servers=tuple(
            ServerView(
                server,
                _seen(mesh, group, scope, "", None, edge.streams[server]) if server in edge.streams else None,
            )
            for server in servers
        ),
        published=mesh.published(group),
        credentials=tuple(credential for credential in credentials if credential is not None),
    )


def _target(mesh: Mesh, group: Group, scope: Scope, host: str) -> RouteTarget:
    service = mesh.service(host, scope) or mesh.hidden_service(host, scope)
    rule = mesh.destination_rule(host, service, group)
    return RouteTarget(
        host=host,
        known=service is not None,
        ports=tuple(port.number for port in service.ports) if service else (),
        subsets=tuple(subset.name for subset in rule.subsets) if rule else (),
        rule=rule if rule and _stands_in_routes(rule) else None,
        chosen=_by_pod(service, group),
        offering_http=offering_http(service, rule),
    )


def _by_pod(service: Service | None, group: Group) -> bool:
    """Whether the group's workloads call single pods of a service by the pods' addresses: the service is headless and
    the group's proxies are sidecars. Gateways and gRPC's own clients choose a pod themselves."""
    headless = service is not None and service.headless and service.resolution is Resolution.STATIC
    return headless and group.kind is ProxyKind.SIDECAR


def offering_http(service: Service | None, rule: DestinationRule | None) -> tuple[int, ...]:
    if service is None or service.external:
        return ()
    ports = (port.number for port in service.ports if not port.protocol.is_tcp)
    return tuple(number for number in ports if not _is_foreign_at(rule, number))


def _is_foreign_at(rule: DestinationRule | None, port: int) -> bool:
    """Whether the rule makes callers use TLS other than the mesh's mutual TLS at the port (SIMPLE or MUTUAL), for the
    whole host or for one of its subsets. False without a rule."""
    settings = (effective(rule, port, subset).tls for subset in (None, *(rule.subsets if rule else ())))
    return any(tls is not None and tls.mode in _FOREIGN for tls in settings)


def _stands_in_routes(rule: DestinationRule) -> bool:
    """Whether the rule has settings that go into routes: hash keys, the TCP idle timeout, the longest duration of TCP
    connections, tunnels."""
    for level in levels(rule):
        balancer, pool = level.load_balancer, level.connection_pool
        lasts = pool is not None and (pool.tcp_idle_timeout is not None or pool.max_connection_duration is not None)
        if level.tunnel or lasts or (balancer and balancer.consistent_hash):
            return True
    return False


def _conditions(routing: tuple[VirtualService, ...]) -> Iterator[HttpMatch | L4Match]:
    for entry in routing:
        for route in entry.http:
            yield from route.match
        for stream in (*entry.tls, *entry.tcp):
            yield from stream.match
