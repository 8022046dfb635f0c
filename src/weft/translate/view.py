"""Exactly what translation reads, gathered from the mesh for one group. A view is frozen and hashable: equal views give
equal resources, so a view is the cache key of everything that is made from it."""

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
from weft.model.gateway import CredentialRef
from weft.model.group import Group, ProxyKind
from weft.model.inbound_port import InboundPort
from weft.model.locality import Whereabouts, looks_at_labels, whereabouts
from weft.model.names import Labels
from weft.model.on_demand import EVERYTHING, Telling
from weft.model.peer_authentication import PeerModes
from weft.model.request_authentication import RequestAuthentication
from weft.model.scope import Scope
from weft.model.service import Protocol, Resolution, Service, ServicePort
from weft.model.settings import Settings
from weft.model.sidecar import Outbound, OutboundPolicy
from weft.model.virtual_service import MESH, HttpMatch, L4Match, VirtualService, destinations

_CLOSED = ClientTls(ClientTlsMode.CLOSED)
_FOREIGN = (ClientTlsMode.SIMPLE, ClientTlsMode.MUTUAL)


class CallerView(msgspec.Struct, frozen=True):
    """Who asks, as far as the answer depends on it. What it does not depend on is left out, so that most groups share
    one view, whatever their namespace and labels."""

    kind: ProxyKind
    namespace: str = ""  # of callers for whom short names exist, or where some route asks for it
    labels: Labels = ()  # where some route asks for source labels
    gateways: tuple[str, ...] = (MESH,)  # through which it calls: what a match may ask for
    encrypted: bool = False  # whether it comes to a gateway by TLS that ends there
    whereabouts: Whereabouts | None = None  # where a rule has callers go to those near them


class RouteTarget(msgspec.Struct, frozen=True):
    """Another host that the routes send to, as far as a route depends on it."""

    host: str
    known: bool = True
    ports: tuple[int, ...] = ()
    subsets: tuple[str, ...] = ()
    rule: DestinationRule | None = None  # only where it says something that stands in routes and not in clusters
    chosen: bool = False  # whether the proxy chooses one of its pods, where a caller would name one
    offering_http: tuple[int, ...] = ()  # ports to which the mesh's TLS is HTTP's unless the caller says otherwise


class ServiceView(msgspec.Struct, frozen=True):
    """One host as one group sees it. Without a service it is a host that only a VirtualService speaks for."""

    host: str
    caller: CallerView
    service: Service | None = None
    ports: tuple[ServicePort, ...] = ()  # those visible to the group, with what it speaks to them
    behind: tuple[
        ServicePort, ...
    ] = ()  # those hidden from it, that routes of others lead to: told of as clusters alone
    rule: DestinationRule | None = None
    routes: tuple[VirtualService, ...] = ()  # the deciding one first
    delegates: tuple[VirtualService, ...] = ()  # those the routes delegate to
    meshed: tuple[int, ...] = ()  # ports at which everyone who answers is met by a proxy of the mesh
    secured: tuple[int, ...] = ()  # where callers name an address: ports at which everyone takes the mesh's TLS
    accounts: tuple[str, ...] = ()  # the service accounts of everyone behind it, in its namespace
    endpoints: tuple[tuple[int, tuple[Endpoint, ...]], ...] = ()  # by port; only where more than EDS reads them
    targets: tuple[RouteTarget, ...] = ()  # the other hosts that the routes name
    doors: tuple[ServedName, ...] = ()  # of a gateway: where it answers for the host
    credentials: tuple[Credential, ...] = ()  # the Secrets that the rule names
    held: bool = False  # whether calls to others are held, so that HTTP, too, is told by its address
    led_to: bool = False  # whether others' routes lead to its pods, of which the caller's proxy chooses one

    def target(self, host: str) -> RouteTarget | None:
        return next((target for target in self.targets if target.host == host), None)


class ServerView(msgspec.Struct, frozen=True):
    """A server of a Gateway, and the routes for its connections where they are not looked into for HTTP."""

    bound: BoundServer
    streams: ServiceView | None = None


class GroupView(msgspec.Struct, frozen=True):
    """What a group's own listeners read."""

    kind: ProxyKind
    inbound: tuple[InboundPort, ...]
    policy: Outbound
    settings: Settings  # as it calls
    modes: PeerModes = PeerModes()  # whom it lets in
    authorization: tuple[AuthorizationPolicy, ...] = ()  # that guard it, the mesh-wide ones first
    authentication: tuple[RequestAuthentication, ...] = ()
    authorizers: tuple[Authorizer, ...] = ()  # that its policies name, and that there are
    called: Settings | None = None  # the settings as it is called; None: the same
    locality: str = ""  # where it is, if that matters to any call in the mesh
    namespace: str = ""  # of gateways, whose Secrets are there
    servers: tuple[ServerView, ...] = ()  # of gateways
    published: tuple[int, ...] = ()  # of these, ports that callers of the machine reach, too
    credentials: tuple[Credential, ...] = ()  # those that there are of the ones that its servers name
    telling: Telling = EVERYTHING  # how it is told of services

    def authorizer(self, name: str) -> Authorizer | None:
        return next((each for each in self.authorizers if each.name == name), None)

    @property
    def inbound_settings(self) -> Settings:
        return self.called or self.settings


def service_view(mesh: Mesh, group: Group, scope: Scope, host: str, *, held: bool = False) -> ServiceView | None:
    """None if the group does not see the host at all. `held`: as its `Telling` says."""
    if group.kind is ProxyKind.GATEWAY:
        edge = mesh.edge(scope)
        doors = edge.doors.get(host, ())
        service = mesh.service(host, scope) if host in edge.destinations else None
        found = dict.fromkeys(routing for door in doors for routing in door.routes)
        return _seen(mesh, group, scope, host, service, tuple(found), doors) if service or doors else None
    hidden = mesh.hidden_service(host, scope)
    service = hidden or mesh.service(host, scope)
    routes = mesh.virtual_services(host, scope)
    if service is None and not routes:
        return None
    seen = _seen(mesh, group, scope, host, service, routes, held=held)
    if hidden is None:
        return seen
    visible = {port.number for port in seen.ports}
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
        found for routing in routes for route in routing.http if (found := mesh.delegate(routing, route)) is not None
    )
    routing = (*routes, *delegates)
    targets = tuple(
        _target(mesh, group, scope, name)
        for name in sorted({destination.host for each in routing for _, destination in destinations(each)} - {host})
    )
    conditions = tuple(_conditions(routing))
    by_namespace = (
        f".{group.namespace}.svc." in host
        or any(match.source_namespace for match in conditions)
        or not all(target.known for target in targets)  # the warning says from where it is not seen
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
            whereabouts=whereabouts(rule, mesh.settings.locality, group.locality, group.labels)
            if service
            and (group.kind is ProxyKind.GATEWAY or not service.headless)
            and service.resolution is not Resolution.NONE
            else None,
        ),
        service=service,
        ports=scope.ports(service) if service else (),
        rule=rule,
        routes=routes,
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
    """One VirtualService speaks for a host in the mesh: the first with a route for HTTP."""
    return next((routing for routing in view.routes if routing.http), None)


def speaking(view: ServiceView) -> tuple[VirtualService, ...]:
    """All whose http routes are taken for a host. At a gateway they are merged."""
    if view.caller.kind is ProxyKind.GATEWAY:
        return tuple(routing for routing in view.routes if routing.http)
    decided = deciding(view)
    return (decided,) if decided is not None else ()


def told_by_name(view: ServiceView, port: ServicePort) -> bool:
    """Whether connections to a port say for which host they are."""
    return port.protocol in (Protocol.TLS, Protocol.HTTPS) and view.host != "*"


def takes_whole_port(view: ServiceView, port: ServicePort) -> bool:
    """Whether nothing tells connections to this service from any others to its port."""
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
    """Whether groups of this namespace may see the host in another way for their labels alone."""
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
    """The rule as a group can follow it, and the Secrets of its namespace that it takes for it. Where one is missing
    nobody is called; nor by any proxy but a gateway: whoever may write a rule could have a gateway's key brought to
    their own pod, and Kubernetes would not have let them read it."""
    named = credentials_of(rule)
    if rule is None or not named:
        return rule, ()
    found: dict[str, tuple[Credential, ...]] = {}
    if group.kind is ProxyKind.GATEWAY:
        for name in sorted(named):
            references = (CredentialRef(f"{name}{AUTHORITIES}", group.namespace), CredentialRef(name, group.namespace))
            found[name] = tuple(each for ref in references if (each := mesh.credential(ref)) is not None)
    usable = with_tls(rule, lambda tls: tls if _is_complete(tls, found.get(tls.credential, ())) else _CLOSED)
    kept = {each for tls in levels(usable) if tls.tls for each in found.get(tls.tls.credential, ())}
    return usable, tuple(sorted(kept, key=lambda each: each.name))


def _is_complete(tls: ClientTls, held: tuple[Credential, ...]) -> bool:
    if not tls.credential:
        return True
    shows = tls.mode is not ClientTlsMode.MUTUAL or any(each.chain and each.name == tls.credential for each in held)
    return shows and (not tls.verify or any(each.roots for each in held))


def _gateway_view(mesh: Mesh, group: Group) -> GroupView:
    scope = mesh.scope(group)
    edge = mesh.edge(scope)
    servers = scope.servers or ()
    named = {
        reference if reference.namespace else CredentialRef(reference.name, group.namespace)
        for server in servers
        for reference in references(server.server.tls)
    }
    held = (mesh.credential(reference) for reference in sorted(named))
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
        credentials=tuple(credential for credential in held if credential is not None),
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
    """Whether callers name a pod's address. Gateways and gRPC's own clients always choose."""
    headless = service is not None and service.headless and service.resolution is Resolution.STATIC
    return headless and group.kind is ProxyKind.SIDECAR


def offering_http(service: Service | None, rule: DestinationRule | None) -> tuple[int, ...]:
    if service is None or service.external:
        return ()
    ports = (port.number for port in service.ports if not port.protocol.is_tcp)
    return tuple(number for number in ports if not _is_foreign_at(rule, number))


def _is_foreign_at(rule: DestinationRule | None, port: int) -> bool:
    """Whether TLS that is not the mesh's is spoken to anybody there."""
    found = (effective(rule, port, subset).tls for subset in (None, *(rule.subsets if rule else ())))
    return any(tls is not None and tls.mode in _FOREIGN for tls in found)


def _stands_in_routes(rule: DestinationRule) -> bool:
    """By what is hashed, how long connections of bytes last, whether they go through a tunnel."""
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
