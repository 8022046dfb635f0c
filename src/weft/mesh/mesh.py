"""The state of the mesh: every value, indexed for the lookups of translation.

`apply` takes the values of one object and returns what the change touched, so that nothing else is computed again. This
class and the indexes that it owns (the other modules of this package) are the only mutable part of the model; they
belong to the control plane's loop and are never shared between threads.
"""

from __future__ import annotations

import typing
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from contextlib import AbstractContextManager

import msgspec

from weft.mesh.called_ports import inbound_ports, published, targets
from weft.mesh.claims import patterns
from weft.mesh.credentials import CredentialIndex
from weft.mesh.destination_rules import Rules
from weft.mesh.edges import Edges
from weft.mesh.gateway_api.attached import Attached, Derived
from weft.mesh.gateway_api.route_rules import Services
from weft.mesh.gateway_api.settling import Settling
from weft.mesh.gateways import Gateways, bound
from weft.mesh.policies import Kind, Policies
from weft.mesh.reach import ReachableHosts, seen
from weft.mesh.registry import Registry
from weft.mesh.service_members import Standing
from weft.mesh.sidecars import Sidecars
from weft.mesh.touched import EVERYWHERE, Touched, joined
from weft.mesh.virtual_ranges import own_addresses
from weft.mesh.virtual_services import Routings, is_exported, wildcards_around
from weft.model.access_log import Reporter
from weft.model.authorization_policy import AuthorizationPolicy
from weft.model.credential import Credential
from weft.model.destination_rule import DestinationRule
from weft.model.edge import AUTHORITIES, Edge
from weft.model.endpoint import Endpoint, Off, endpoint_at, endpoint_of, written_endpoint
from weft.model.endpoint_slice import EndpointSlice
from weft.model.extension_provider import Authorizer
from weft.model.gateway import Gateway
from weft.model.gateway_api import (
    AuthorityBundle,
    BackendTls,
    GatewayClass,
    ListenerSet,
    ReferenceGrant,
    StandardGateway,
    StandardRoute,
)
from weft.model.group import Group, ProxyKind
from weft.model.inbound_port import InboundPort
from weft.model.instance import Instance
from weft.model.names import CredentialRef, Labels, ObjectKey, host_covers
from weft.model.on_demand import FEW, Judgement
from weft.model.peer_authentication import PeerAuthentication, PeerModes, TlsMode, peer_modes
from weft.model.policy import Policy
from weft.model.request_authentication import RequestAuthentication
from weft.model.scope import Scope, scope_of
from weft.model.service import Resolution, Service, ServicePort
from weft.model.settings import Namespace, Settings
from weft.model.sidecar import Outbound, Sidecar
from weft.model.telemetry import Telemetry, settings_for
from weft.model.value import Value
from weft.model.virtual_service import MESH, Destination, HttpRoute, VirtualService, destination_hosts


class Index(typing.Protocol):
    """An index of the mesh: keeps all values of one kind."""

    def add(self, value: typing.Any) -> None: ...

    def remove(self, value: typing.Any) -> None: ...


class Mesh:
    def __init__(self, settings: Settings | None = None, *, few: int = FEW) -> None:
        """`few`: a proxy that can reach at most this many services gets all of them at once (`on_demand.py`)."""
        self._few = few
        self._default_settings = settings or Settings()
        self.settings = self._default_settings
        self._values: dict[ObjectKey, tuple[Value, ...]] = {}
        # The resourceVersion of each object. It is not part of the values: a status update changes an object's
        # resourceVersion and must not change the mesh.
        self.revisions: dict[ObjectKey, str] = {}
        self._registry = Registry()
        self._reach = ReachableHosts(self._registry)
        self._routings = Routings()
        self._rules = Rules()
        self._sidecars = Sidecars()
        self._gateways = Gateways()
        self._credentials = CredentialIndex()
        self._policies = Policies()
        self._attached = Attached()
        self._settling = Settling(self._attached)
        self._indexes: dict[type, Index] = {
            Service: self._registry,
            VirtualService: self._routings,
            DestinationRule: self._rules,
            Sidecar: self._sidecars,
            Gateway: self._gateways,
            Credential: self._credentials,
            **dict.fromkeys(
                (PeerAuthentication, AuthorizationPolicy, RequestAuthentication, Telemetry), self._policies
            ),
            **dict.fromkeys(
                (
                    StandardRoute,
                    StandardGateway,
                    ListenerSet,
                    GatewayClass,
                    ReferenceGrant,
                    BackendTls,
                    AuthorityBundle,
                    Namespace,
                ),
                self._attached,
            ),
        }
        self._modes: dict[tuple[str, Labels], PeerModes] = {}  # effective mTLS modes, by namespace and labels
        self._edges = Edges(self._routings, self.delegate)

    # Changing

    def apply(self, key: ObjectKey, values: tuple[Value, ...]) -> Touched:
        """Replace the values of the object `key` with `values`; () means that the object was deleted. Returns what the
        change touched."""
        before = self._values.pop(key, ())
        if values:
            self._values[key] = values
        if before == values:
            return Touched()
        touched = Touched()
        mattered, ranges = self.locality_matters, self.virtual_ranges
        match before, values:
            case (Instance() as old,), (Instance() as new,):
                return self._move_instance(old, new)
            case (EndpointSlice() as old,), (EndpointSlice() as new,):
                return self._move_slice(old, new)
        self._settling.notice(before)
        for value in before:
            touched |= self._remove(value)
        for value in values:
            touched |= self._add(value)
        self._settling.notice((*before, *values))
        touched |= self.settle()
        if mattered != self.locality_matters:  # localities become part of groups, or stop being so
            touched |= Touched(inbound=frozenset({EVERYWHERE}))
        if ranges != self.virtual_ranges:  # other addresses identify services now
            self._reach.forget()
        return touched

    def together(self) -> AbstractContextManager[None]:
        """A context for a batch of changes: within it, the Gateway API's objects are not combined. The caller calls
        `settle` afterwards."""
        return self._settling.together()

    def settle(self) -> Touched:
        """Combine the Gateway API's objects that changed. Returns what that touched."""
        touched: list[Touched] = []
        for gone, new in self._settling.settle(Services(self._service_of, self._services_of_entry), self.credential):
            touched += [self._remove(value) for value in gone]
            touched += [self._add(value) for value in new]
        return joined(touched) if touched else Touched()

    def _service_of(self, host: str, namespace: str) -> Service | None:
        claims = self._registry.services.to(host)
        return next((service for service in claims if namespace in ("", service.namespace)), None)

    def _services_of_entry(self, namespace: str, name: str) -> tuple[Service, ...]:
        values = self.get(ObjectKey("ServiceEntry", namespace, name))
        return tuple(value for value in values if isinstance(value, Service))

    def _add(self, value: Value) -> Touched:
        match value:
            case Instance():
                return self._move_instance(None, value)
            case EndpointSlice():
                return self._move_slice(None, value)
            case Settings():
                return self._set(value)
        if type(value) in self._indexes:
            self._indexes[type(value)].add(value)
        return self._touched_by(value)

    def _remove(self, value: Value) -> Touched:
        match value:
            case Instance():
                return self._move_instance(value, None)
            case EndpointSlice():
                return self._move_slice(value, None)
            case Settings():
                return self._set(self._default_settings)
        if type(value) in self._indexes:
            self._indexes[type(value)].remove(value)
        return self._touched_by(value)

    def _touched_by(self, value: Value) -> Touched:
        match value:
            case Service():
                return self._touched_by_service(value)
            case VirtualService():
                self._edges.forget()
                # A headless or hidden service needs more config if routes of other hosts lead to it.
                hiding = self._sidecars.hiding
                hosts = self._routings.changed_by(value) | {
                    host
                    for host in (self._led_to(value) if hiding else destination_hosts(value))
                    if hiding or any(service.headless for service in self._registry.services.to(host))
                }
                hosts |= {each for each in wildcards_around(value) if self._registry.services.to(each)}
                # A VirtualService that is only for gateways, often with the host `*`, changes nothing for sidecars.
                alone = MESH not in value.gateways and bool(value.hosts)
                return Touched(gateways=True, at_gateways=hosts) if alone else Touched(hosts=hosts)
            case Gateway():
                self._edges.forget()
                shown = self._rules.of_policies() if value.client_certificate is not None else frozenset()
                return Touched(gateways=True, at_gateways=shown)
            case Credential():
                names = {value.name, value.name.removesuffix(AUTHORITIES)}
                hosts = frozenset(host for name in names for host in self._rules.naming(name))
                shown = self._rules.of_policies() if self._gateways.present(value.reference) else frozenset()
                return Touched(hosts=hosts, gateways=True, at_gateways=shown)
            case DestinationRule():
                return self._touched_by_rule(value)
            case Sidecar():
                return self._touched_by_sidecar(value)
            case PeerAuthentication() | AuthorizationPolicy() | RequestAuthentication() | Telemetry():
                self._modes.clear()
                return self._touched_by_policy(value)
            case _:
                return Touched()

    def _led_to(self, routing: VirtualService) -> frozenset[str]:
        """The destination hosts of a VirtualService and of its delegates."""
        delegates = (self.delegate(routing, route) for route in routing.http)
        return destination_hosts(routing).union(*(destination_hosts(each) for each in delegates if each is not None))

    def _set(self, settings: Settings) -> Touched:
        before, self.settings = self.settings, settings
        self._modes.clear()
        self._edges.forget()
        everywhere = frozenset({EVERYWHERE})
        # Another root namespace has other mesh-wide policies, which decide whether endpoints accept TLS.
        moved = before.root_namespace != settings.root_namespace
        return Touched(
            endpoints=frozenset(self.hosts()) if moved else frozenset(), inbound=everywhere, scopes=everywhere
        )

    def _move_instance(self, before: Instance | None, after: Instance | None) -> Touched:
        alike = {(each.namespace, each.labels) for each in (before, after) if each is not None}
        profiles = {place: self._registry.profiles(*place) for place in alike}
        touched = self._touched_by_answers(self._registry.move(before, after))
        inbound = {place[0] for place, known in profiles.items() if self._registry.profiles(*place) != known}
        return msgspec.structs.replace(touched, inbound=frozenset(inbound)) if inbound else touched

    def _move_slice(self, before: EndpointSlice | None, after: EndpointSlice | None) -> Touched:
        return self._touched_by_answers(self._registry.move_slice(before, after))

    def _touched_by_answers(self, moved: dict[Service, bool]) -> Touched:
        """The parts of the mesh that changes of endpoints may have affected. `moved`: the services with changed
        endpoints, each with whether its `Standing` (proxies and service accounts of all endpoints) changed."""
        hosts = {
            service.host
            for service, standing_changed in moved.items()
            # Then not only EDS but other config depends on the endpoints.
            if standing_changed
            or service.headless
            or not service.selector
            or service.resolution is not Resolution.STATIC
            or self._rules.passes_on(service.host)
        }
        return Touched(frozenset(hosts), frozenset(service.host for service in moved))

    def _touched_by_service(self, service: Service) -> Touched:
        self._reach.moved(service.host)
        around = {each for each in patterns(service.host)[1:] if self._routings.tls_hosts_inside(each)}
        touched = Touched(
            hosts=frozenset({service.host, *around.intersection(self._registry.services.names())}),
            endpoints=frozenset({service.host}),
            inbound=frozenset({service.namespace}),
        )
        if any(service.host == provider.host for provider in self.settings.extension_providers):
            everywhere = frozenset({EVERYWHERE})  # any workload may have a policy that uses this provider
            return touched | Touched(scopes=everywhere, inbound=everywhere)
        return touched

    def _touched_by_rule(self, rule: DestinationRule) -> Touched:
        # The connection pool also configures the inbound cluster of the host's workloads.
        owners = (
            {service.namespace for service in self.services() if host_covers(rule.host, service.host)}
            if rule.host.startswith("*")
            else {service.namespace for service in self._registry.services.to(rule.host)}
        )
        return Touched(hosts=frozenset({rule.host}), inbound=frozenset(owners))

    def _touched_by_sidecar(self, sidecar: Sidecar) -> Touched:
        place = EVERYWHERE if sidecar.namespace == self.settings.root_namespace else sidecar.namespace
        return Touched(scopes=frozenset({place}), inbound=frozenset({place}))

    def _touched_by_policy(self, policy: Policy) -> Touched:
        place = EVERYWHERE if policy.namespace == self.settings.root_namespace else policy.namespace
        asks = isinstance(policy, AuthorizationPolicy) and policy.provider  # then its workloads see the provider
        logs = isinstance(policy, Telemetry)  # the access log of every listener of these proxies may change
        hosts: frozenset[str] = frozenset()
        if isinstance(policy, PeerAuthentication):  # callers' endpoints or TLS settings depend on it
            hosts = frozenset(each.host for each in self.services() if place in (EVERYWHERE, each.namespace))
        return Touched(hosts=hosts, inbound=frozenset({place}), scopes=frozenset({place} if asks or logs else ()))

    # Reading

    def values(self) -> Iterator[tuple[ObjectKey, tuple[Value, ...]]]:
        yield from self._values.items()

    def derived(self) -> Iterator[Derived]:
        """What was derived from the Gateway API's objects, one entry per parent."""
        return self._settling.derived()

    def get(self, key: ObjectKey) -> tuple[Value, ...]:
        return self._values.get(key, ())

    def services(self) -> Iterator[Service]:
        return iter(self._registry.services)

    def hosts(self) -> Collection[str]:
        return self._registry.services.names()

    def service(self, host: str, scope: Scope) -> Service | None:
        """The service with this host that the scope sees; None if there is none. If several objects claim the host, the
        claim with the highest precedence decides (`seen`)."""
        return seen(self._registry, host, scope)

    @property
    def virtual_ranges(self) -> tuple[str, ...]:
        """The address ranges of services (CIDRs)."""
        return self._registry.virtual.ranges

    def services_at(self, address: str, port: int | None = None) -> Sequence[Service]:
        """The services with this virtual address that have this port; if `port` is None, all that have the address."""
        return self._registry.virtual.at(address, port)

    def addresses_of(self, host: str) -> Iterator[str]:
        """The addresses of the services that claim a host: the inverse of `services_at`."""
        for service in self._registry.services.to(host):
            yield from own_addresses(service)

    def reach(self, scope: Scope) -> Set[str]:
        """The hosts that proxies of this scope can get on demand, at their first call. The set is not a copy and
        changes with the mesh, so do not keep it."""
        return self._reach.of(scope)

    @property
    def looked_from(self) -> Set[Scope]:
        """The scopes for which `reach` was computed and which were not dropped since by `leave`."""
        return self._reach.scopes

    def leave(self, scope: Scope) -> None:
        """Drop what is cached for a scope that no proxy uses any more."""
        self._reach.forget(scope)

    def on_demand(self, scope: Scope) -> Judgement:
        """Whether sidecars of this scope get services on demand, at their first call, and why."""
        return Judgement(self.settings.on_demand, len(self.reach(scope)), self._few)

    def endpoints(self, service: Service, port: ServicePort) -> tuple[Endpoint, ...]:
        """The current endpoints of a service port, in a stable order."""
        off = self._turned_off(service.namespace)
        endpoints = [
            endpoint_at(answer.instance, answer.addresses, answer.port, off)
            if answer.instance is not None
            else Endpoint(answer.addresses[0], answer.port, extra_addresses=answer.addresses[1:])
            for answer in self._registry.answers(service, port)
        ]
        if service.selector:
            endpoints += [
                endpoint
                for instance in self._registry.members(service) or ()
                if not (instance.by_slice and service.sliced)
                and (instance.ready or service.publish_not_ready)
                and instance.can_answer(service.resolution)
                and (endpoint := endpoint_of(instance, port, off)) is not None
            ]
        endpoints.sort(key=lambda endpoint: (endpoint.instance, endpoint.address, endpoint.port))
        written = (each for each in service.static_endpoints if each.serves is None or port.name in each.serves)
        return (*endpoints, *(written_endpoint(service, each, port, off) for each in written))

    def standing(self, service: Service) -> Standing:
        return self._registry.standing(service)

    def secured_ports(self, service: Service) -> tuple[int, ...]:
        """The ports at which every endpoint of a service accepts the mesh's TLS. Used only where callers address an
        endpoint directly: elsewhere each endpoint carries its own TLS metadata."""
        return self._registry.secured(service, self._turned_off(service.namespace))

    def peer_modes(self, namespace: str, labels: Labels) -> PeerModes:
        """The mTLS modes of the workloads with these labels."""
        modes = self._modes.get((namespace, labels))
        if modes is None:
            root = self.settings.root_namespace
            modes = peer_modes(self._policies.of(PeerAuthentication, namespace, labels, root), root)
            self._modes[(namespace, labels)] = modes
        return modes

    def _turned_off(self, namespace: str) -> Off | None:
        """Return a function of (labels, port) that returns whether mTLS is disabled at this port of the namespace's
        workloads with these labels; None if it is certainly disabled nowhere in the namespace."""
        if not self._policies.by_labels(PeerAuthentication, namespace):
            everyone = self.peer_modes(namespace, ()).mode
            return None if everyone is not TlsMode.DISABLE else lambda labels, number: True
        return lambda labels, number: self.peer_modes(namespace, labels).at(number) is TlsMode.DISABLE

    def instances(self, namespace: str) -> Iterable[Instance]:
        return self._registry.instances(namespace)

    def virtual_services(self, host: str, scope: Scope) -> tuple[VirtualService, ...]:
        """The VirtualServices that apply to a host for sidecars of this scope, the deciding one first."""
        return self._routings.of(host, scope, self.settings)

    def tls_routes_inside(self, service: Service, scope: Scope) -> tuple[VirtualService, ...]:
        """The VirtualServices with `tls` routes for hosts that the wildcard host of a service covers; () if the
        service's host is no wildcard. A host counts only if `service` is the visible service with the narrowest host
        that covers it."""
        if not service.host.startswith("*."):
            return ()
        inside = sorted(self._routings.tls_hosts_inside(service.host))
        nearest = (host for host in inside if self._nearest_service(host, scope) is service)
        deciding = (next(iter(self.virtual_services(host, scope)), None) for host in nearest)
        return tuple(dict.fromkeys(routing for routing in deciding if routing is not None and routing.tls))

    def _nearest_service(self, host: str, scope: Scope) -> Service | None:
        services = (self.service(pattern, scope) for pattern in patterns(host))
        return next((service for service in services if service is not None), None)

    def is_led_to(self, host: str) -> bool:
        """Whether routes of other hosts lead to this host."""
        return self._routings.lead_to(host)

    def leading_to(self, host: str, scope: Scope) -> Iterator[VirtualService]:
        """The VirtualServices visible to sidecars of this scope whose routes lead to this host."""
        return self._routings.leading_to(host, scope, self.settings)

    def hidden_service(self, host: str, scope: Scope) -> Service | None:
        """The service of a host to which a visible VirtualService routes, with all its ports: calls can reach it by
        that route, even if the scope's Sidecar hides the service or some of its ports. None if no such route leads to
        the host, if the host has no service, or if the scope has no Sidecar."""
        if scope.imports is None or next(self.leading_to(host, scope), None) is None:
            return None
        return self.service(host, scope) or self.service(host, Scope(scope.namespace))

    def delegate(self, routing: VirtualService, route: HttpRoute) -> VirtualService | None:
        """The VirtualService to which a route of `routing` delegates; None if it does not exist, is no delegate or
        is not exported to `routing`."""
        if route.delegate is None:
            return None
        values = self.get(ObjectKey("VirtualService", route.delegate.namespace, route.delegate.name))
        delegate = next((value for value in values if isinstance(value, VirtualService) and not value.hosts), None)
        return delegate if delegate is not None and is_exported(delegate, routing.namespace, self.settings) else None

    def routed_hosts(self) -> Iterable[str]:
        """Every host or wildcard of a VirtualService."""
        return self._routings.hosts()

    def destination_rule(self, host: str, service: Service | None, group: Group) -> DestinationRule | None:
        """The DestinationRule for a group's calls to a host; None if no rule applies. The caller's namespace is
        searched first, then the service's, then the root namespace."""
        owners = [group.namespace]
        if service is not None:
            owners.append(service.namespace)
        owners.append(self.settings.root_namespace)
        return self._rules.of(host, owners, group, self.settings)

    @property
    def locality_matters(self) -> bool:
        """Whether locality load balancing may be in use for any host."""
        mesh = self.settings.locality
        asking = self._rules.asking_where + self._registry.asking_where
        return asking > 0 or (mesh.enabled and bool(mesh.distribute))

    def selects_callers(self, host: str, namespace: str) -> bool:
        """Whether some DestinationRule of a namespace for this host has a workloadSelector."""
        return self._rules.selects_callers(host, namespace)

    def policies(self, kind: type[Kind], group: Group) -> tuple[Kind, ...]:
        """The policies of one kind that select a group's workloads, the mesh-wide ones first."""
        gateway = group.kind is ProxyKind.GATEWAY
        return self._policies.of(kind, group.namespace, group.labels, self.settings.root_namespace, gateway=gateway)

    def authorizers(self, group: Group) -> tuple[Authorizer, ...]:
        """The external authorizers that a group's CUSTOM policies name, without those whose host and port no service
        has."""
        names = {policy.provider for policy in self.policies(AuthorizationPolicy, group) if policy.provider}
        return tuple(
            provider
            for provider in (self.settings.extension_providers if names else ())
            if isinstance(provider, Authorizer)
            and provider.name in names
            and any(
                provider.namespace in ("", service.namespace)
                and any(port.number == provider.port for port in service.ports)
                for service in self._registry.services.to(provider.host)
            )
        )

    def settings_of(self, group: Group, reporter: Reporter) -> Settings:
        """The mesh's settings with the access logs that Telemetries configure for a group's proxies. `reporter`:
        whether the proxies log as client or as server."""
        telemetries = self.policies(Telemetry, group)
        return settings_for(self.settings, telemetries, group.namespace, reporter)

    def sidecar(self, group: Group) -> Sidecar | None:
        """The Sidecar of a group: one that selects the group, else its namespace's, else the root namespace's."""
        return self._sidecars.of(group, self.settings)

    def scope(self, group: Group) -> Scope:
        """The scope of a group: the services that its proxies may see. These include the services that its own
        policies use (external authorizers, JWKS servers) and the egress proxy for unknown destinations."""
        asked = tuple((provider.host, provider.port) for provider in self.authorizers(group))
        if group.kind is ProxyKind.GATEWAY:
            tokens = self.policies(RequestAuthentication, group)
            keys = (rule.key_server for each in tokens for rule in each.rules)
            asked += tuple((server.host, server.port) for server in keys if server is not None and server.meshed)
            servers = bound(self._gateways.of(group), targets(group, self._registry))
            return Scope(group.namespace, asked=asked, servers=servers)
        outbound = self.outbound_policy(group)
        if isinstance(outbound, Destination):
            asked = (*asked, (outbound.host, outbound.port))
        return scope_of(group.namespace, self.sidecar(group), asked)

    def edge(self, scope: Scope) -> Edge:
        """The hosts that gateways of this scope serve, and the services that they route to."""
        return self._edges.of(scope, self.settings)

    def credential(self, reference: CredentialRef) -> Credential | None:
        return self._credentials.of(reference)

    def credentials(self) -> Iterator[Credential]:
        return iter(self._credentials)

    def bound_to(self, gateway: str, viewer: str) -> tuple[VirtualService, ...]:
        """The VirtualServices bound to a Gateway and exported to the namespace `viewer`, the one with the highest
        precedence first. `gateway`: NAMESPACE/NAME."""
        return self._routings.bound_to(gateway, viewer, self.settings)

    def gateways_of(self, group: Group) -> tuple[Gateway, ...]:
        """The Gateways that select a group's workloads, the oldest first."""
        return self._gateways.of(group)

    def client_certificate(self, group: Group) -> CredentialRef | None:
        """The Secret with the client certificate that a gateway presents to backends over TLS; None if its Gateway has
        none."""
        references = (each.client_certificate for each in self.gateways_of(group))
        return next((each for each in references if each is not None), None)

    def published(self, group: Group) -> tuple[int, ...]:
        """The ports that the instances of a gateway publish on their machine, so that clients outside the mesh can
        connect to them."""
        return published(group, self._registry)

    def outbound_policy(self, group: Group) -> Outbound:
        sidecar = self.sidecar(group)
        return (sidecar.outbound_policy if sidecar else None) or self.settings.outbound_policy

    def inbound_ports(self, group: Group) -> tuple[InboundPort, ...]:
        """The inbound ports of a group: a Sidecar's ingress, or the ports of the services that select its workloads."""
        return inbound_ports(group, self.sidecar(group), self._registry, self.destination_rule)
