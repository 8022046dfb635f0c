"""The state of the mesh: every value there is, indexed for the questions that translation asks.

Values come in by object (`apply`), and out goes what the change touched, so that nobody looks at the rest. It and the
indexes it owns (`registry.py`, `routings.py`, `rules.py`, `sidecars.py`, `gateways.py`, `edges.py`, `credentials.py`,
`policies.py`, `attached.py`, `settling.py`) are all of the model that is not frozen; they belong to the control plane's
loop and are never shared between threads.
"""

from __future__ import annotations

import typing
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from contextlib import AbstractContextManager

import msgspec

from weft.mesh.called_ports import inbound_ports, published, targets
from weft.mesh.credentials import CredentialIndex
from weft.mesh.destination_rules import Rules
from weft.mesh.edges import Edges
from weft.mesh.gateway_api.attached import Attached, Derived
from weft.mesh.gateway_api.settling import Settling
from weft.mesh.gateways import Gateways, bound
from weft.mesh.policies import Kind, Policies
from weft.mesh.reach import ReachableHosts, seen
from weft.mesh.registry import Registry
from weft.mesh.service_members import Standing
from weft.mesh.sidecars import Sidecars
from weft.mesh.touched import EVERYWHERE, Touched, joined
from weft.mesh.virtual_ranges import own_addresses
from weft.mesh.virtual_services import Routings, is_exported
from weft.model.access_log import Reporter
from weft.model.authorization_policy import AuthorizationPolicy
from weft.model.credential import Credential
from weft.model.destination_rule import DestinationRule
from weft.model.edge import AUTHORITIES, Edge
from weft.model.endpoint import Endpoint, Off, endpoint_at, endpoint_of, written_endpoint
from weft.model.endpoint_slice import EndpointSlice
from weft.model.extension_provider import Authorizer
from weft.model.gateway import CredentialRef, Gateway
from weft.model.gateway_api import (
    AuthorityBundle,
    BackendTls,
    GatewayClass,
    ReferenceGrant,
    StandardGateway,
    StandardRoute,
)
from weft.model.group import Group, ProxyKind
from weft.model.inbound_port import InboundPort
from weft.model.instance import Instance
from weft.model.names import Labels, ObjectKey, host_covers
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
    """What keeps all values of a kind, for its questions."""

    def add(self, value: typing.Any) -> None: ...

    def remove(self, value: typing.Any) -> None: ...


class Mesh:
    def __init__(self, settings: Settings | None = None, *, few: int = FEW) -> None:
        """`few`: services of which every proxy is told at once that may call no more (`on_demand.py`)."""
        self._few = few
        self._default_settings = settings or Settings()
        self.settings = self._default_settings
        self._values: dict[ObjectKey, tuple[Value, ...]] = {}
        # What a cluster calls the version of an object. It is no part of any value: a status that somebody writes gives
        # the object another one, and must change nothing.
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
                (StandardRoute, StandardGateway, GatewayClass, ReferenceGrant, BackendTls, AuthorityBundle, Namespace),
                self._attached,
            ),
        }
        self._modes: dict[tuple[str, Labels], PeerModes] = {}  # what the policies come to, by namespace and labels
        self._edges = Edges(self._routings, self.delegate)

    # Changing

    def apply(self, key: ObjectKey, values: tuple[Value, ...]) -> Touched:
        """Put these values in the place of what the object was before; no values means the object is gone."""
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
        if mattered != self.locality_matters:  # then groups look from other places
            touched |= Touched(inbound=frozenset({EVERYWHERE}))
        if ranges != self.virtual_ranges:  # then other addresses tell services apart
            self._reach.forget()
        return touched

    def together(self) -> AbstractContextManager[None]:
        """Many objects come at once: what several of them come to together is looked at when the last is there. Whoever
        opens this settles it."""
        return self._settling.together()

    def settle(self) -> Touched:
        """See what the Gateway API's objects come to now."""
        touched: list[Touched] = []
        for gone, new in self._settling.settle(self._service_of, self.credential):
            touched += [self._remove(value) for value in gone]
            touched += [self._add(value) for value in new]
        return joined(touched) if touched else Touched()

    def _service_of(self, host: str, namespace: str) -> Service | None:
        claims = self._registry.services.to(host)
        return next((service for service in claims if service.namespace == namespace), None)

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
                # Of a service that routes of others lead to there is more to tell, if it is headless or hidden.
                hiding = self._sidecars.hiding
                hosts = self._routings.changed_by(value) | {
                    host
                    for host in (self._led_to(value) if hiding else destination_hosts(value))
                    if hiding or any(service.headless for service in self._registry.services.to(host))
                }
                # A VirtualService for gateways alone, often for `*`, is nothing to all the sidecars.
                alone = MESH not in value.gateways and bool(value.hosts)
                return Touched(gateways=True, at_gateways=hosts) if alone else Touched(hosts=hosts)
            case Gateway():
                self._edges.forget()
                return Touched(gateways=True)
            case Credential():
                names = {value.name, value.name.removesuffix(AUTHORITIES)}
                hosts = frozenset(host for name in names for host in self._rules.naming(name))
                return Touched(hosts=hosts, gateways=True)
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
        """By itself, or by those whom it hands over to."""
        delegates = (self.delegate(routing, route) for route in routing.http)
        return destination_hosts(routing).union(*(destination_hosts(each) for each in delegates if each is not None))

    def _set(self, settings: Settings) -> Touched:
        before, self.settings = self.settings, settings
        self._modes.clear()
        self._edges.forget()
        everywhere = frozenset({EVERYWHERE})
        # Another root namespace has other policies for the mesh, and endpoints take TLS or not by them.
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
        """By services that others answer for now; and whether that changes their standing."""
        hosts = {
            service.host
            for service, standing_changed in moved.items()
            # More than EDS depends on who is there.
            if standing_changed
            or service.headless
            or not service.selector
            or service.resolution is not Resolution.STATIC
            or self._rules.passes_on(service.host)
        }
        return Touched(frozenset(hosts), frozenset(service.host for service in moved))

    def _touched_by_service(self, service: Service) -> Touched:
        self._reach.moved(service.host)
        touched = Touched(
            hosts=frozenset({service.host}),
            endpoints=frozenset({service.host}),
            inbound=frozenset({service.namespace}),
        )
        if any(service.host == provider.host for provider in self.settings.extension_providers):
            everywhere = frozenset({EVERYWHERE})  # whoever has a policy that makes it ask there
            return touched | Touched(scopes=everywhere, inbound=everywhere)
        return touched

    def _touched_by_rule(self, rule: DestinationRule) -> Touched:
        # The connection pool also shapes the inbound cluster of whoever serves the host.
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
        logs = isinstance(policy, Telemetry)  # then every listener of these proxies may log otherwise
        hosts: frozenset[str] = frozenset()
        if isinstance(policy, PeerAuthentication):  # callers follow it, by their endpoints or by how they call
            hosts = frozenset(each.host for each in self.services() if place in (EVERYWHERE, each.namespace))
        return Touched(hosts=hosts, inbound=frozenset({place}), scopes=frozenset({place} if asks or logs else ()))

    # Asking

    def values(self) -> Iterator[tuple[ObjectKey, tuple[Value, ...]]]:
        yield from self._values.items()

    def derived(self) -> Iterator[Derived]:
        """What came of the Gateway API's objects, parent by parent."""
        return self._settling.derived()

    def get(self, key: ObjectKey) -> tuple[Value, ...]:
        return self._values.get(key, ())

    def services(self) -> Iterator[Service]:
        return iter(self._registry.services)

    def hosts(self) -> Collection[str]:
        return self._registry.services.names()

    def service(self, host: str, scope: Scope) -> Service | None:
        """The service that a host means to a viewer: its own namespace's claim, then the best claim it may see."""
        return seen(self._registry, host, scope)

    @property
    def virtual_ranges(self) -> tuple[str, ...]:
        """Where services have their addresses."""
        return self._registry.virtual.ranges

    def services_at(self, address: str, port: int | None = None) -> Sequence[Service]:
        """Those that have an address for themselves, and the port; None: any."""
        return self._registry.virtual.at(address, port)

    def addresses_of(self, host: str) -> Iterator[str]:
        """At which addresses those are called who claim a host: `services_at`, the other way round."""
        for service in self._registry.services.to(host):
            yield from own_addresses(service)

    def reach(self, scope: Scope) -> Set[str]:
        """Hosts that need not be told of before somebody calls them from there. Not to be kept: it changes."""
        return self._reach.of(scope)

    @property
    def looked_from(self) -> Set[Scope]:
        """From where somebody has looked, and has not left."""
        return self._reach.scopes

    def leave(self, scope: Scope) -> None:
        """Nobody looks from there any more."""
        self._reach.forget(scope)

    def on_demand(self, scope: Scope) -> Judgement:
        """Whether sidecars that look from there are told of services when they first call them."""
        return Judgement(self.settings.on_demand, len(self.reach(scope)), self._few)

    def endpoints(self, service: Service, port: ServicePort) -> tuple[Endpoint, ...]:
        """Who answers on a service port now, in a stable order."""
        off = self._turned_off(service.namespace)
        found = [
            endpoint_at(answer.instance, answer.addresses, answer.port, off)
            if answer.instance is not None
            else Endpoint(answer.addresses[0], answer.port, extra_addresses=answer.addresses[1:])
            for answer in self._registry.answers(service, port)
        ]
        if service.selector:
            found += [
                endpoint
                for instance in self._registry.members(service) or ()
                if not (instance.by_slice and service.sliced)
                and (instance.ready or service.publish_not_ready)
                and instance.can_answer(service.resolution)
                and (endpoint := endpoint_of(instance, port, off)) is not None
            ]
        found.sort(key=lambda endpoint: (endpoint.instance, endpoint.address, endpoint.port))
        return (*found, *(written_endpoint(service, written, port, off) for written in service.static_endpoints))

    def standing(self, service: Service) -> Standing:
        return self._registry.standing(service)

    def secured_ports(self, service: Service) -> tuple[int, ...]:
        """The ports at which everyone behind a service takes the mesh's TLS. Asked only where callers name an address:
        elsewhere each endpoint says it for itself."""
        return self._registry.secured(service, self._turned_off(service.namespace))

    def peer_modes(self, namespace: str, labels: Labels) -> PeerModes:
        """Whom the workloads with these labels let in."""
        known = self._modes.get((namespace, labels))
        if known is None:
            root = self.settings.root_namespace
            known = peer_modes(self._policies.of(PeerAuthentication, namespace, labels, root), root)
            self._modes[(namespace, labels)] = known
        return known

    def _turned_off(self, namespace: str) -> Off | None:
        """Whether the workloads with these labels take no TLS at a port; None if there are none that take none."""
        if not self._policies.by_labels(PeerAuthentication, namespace):
            everyone = self.peer_modes(namespace, ()).mode
            return None if everyone is not TlsMode.DISABLE else lambda labels, number: True
        return lambda labels, number: self.peer_modes(namespace, labels).at(number) is TlsMode.DISABLE

    def instances(self, namespace: str) -> Iterable[Instance]:
        return self._registry.instances(namespace)

    def virtual_services(self, host: str, scope: Scope) -> tuple[VirtualService, ...]:
        """The VirtualServices that speak for a host to sidecars of this scope, the deciding one first."""
        return self._routings.of(host, scope, self.settings)

    def is_led_to(self, host: str) -> bool:
        """Whether routes of other hosts lead there."""
        return self._routings.lead_to(host)

    def leading_to(self, host: str, scope: Scope) -> Iterator[VirtualService]:
        """Those whose routes lead there, of the ones that sidecars of a scope see."""
        return self._routings.leading_to(host, scope, self.settings)

    def hidden_service(self, host: str, scope: Scope) -> Service | None:
        """One that a Sidecar may hide from a scope, in whole or some ports, and that routes which it shows lead to."""
        if scope.imports is None or next(self.leading_to(host, scope), None) is None:
            return None
        return self.service(host, scope) or self.service(host, Scope(scope.namespace))

    def delegate(self, routing: VirtualService, route: HttpRoute) -> VirtualService | None:
        """Whom a route of a VirtualService hands over to, if that one is a delegate and exported to its namespace."""
        if route.delegate is None:
            return None
        values = self.get(ObjectKey("VirtualService", route.delegate.namespace, route.delegate.name))
        found = next((value for value in values if isinstance(value, VirtualService) and not value.hosts), None)
        return found if found is not None and is_exported(found, routing.namespace, self.settings) else None

    def routed_hosts(self) -> Iterable[str]:
        """Every host or wildcard that some VirtualService speaks for."""
        return self._routings.hosts()

    def destination_rule(self, host: str, service: Service | None, group: Group) -> DestinationRule | None:
        """The rule for calls to a host: the caller's namespace first, then the service's, then the root's."""
        owners = [group.namespace]
        if service is not None:
            owners.append(service.namespace)
        owners.append(self.settings.root_namespace)
        return self._rules.of(host, owners, group, self.settings)

    @property
    def locality_matters(self) -> bool:
        """Whether where a caller is may decide whom it calls, for any host."""
        mesh = self.settings.locality
        return self._rules.asking_where > 0 or (mesh.enabled and bool(mesh.distribute))

    def selects_callers(self, host: str, namespace: str) -> bool:
        """Whether some rule for calls to a host is for those workloads of a namespace alone that have its labels."""
        return self._rules.selects_callers(host, namespace)

    def policies(self, kind: type[Kind], group: Group) -> tuple[Kind, ...]:
        """Those of one kind that select a group's workloads, the mesh-wide ones first."""
        gateway = group.kind is ProxyKind.GATEWAY
        return self._policies.of(kind, group.namespace, group.labels, self.settings.root_namespace, gateway=gateway)

    def authorizers(self, group: Group) -> tuple[Authorizer, ...]:
        """Who decides for a group's CUSTOM policies, as far as there is a service with that port."""
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
        """The settings as a group's proxies have them where they call, or where they are called."""
        telemetries = self.policies(Telemetry, group)
        return settings_for(self.settings, telemetries, group.namespace, reporter)

    def sidecar(self, group: Group) -> Sidecar | None:
        """The Sidecar that rules a group: one that selects it, then the namespace's, then the root namespace's."""
        return self._sidecars.of(group, self.settings)

    def scope(self, group: Group) -> Scope:
        """A group also sees whom its own policies make it ask, and the proxy that takes what it does not know."""
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
        """What gateways of this scope answer for, and lead to."""
        return self._edges.of(scope, self.settings)

    def credential(self, reference: CredentialRef) -> Credential | None:
        return self._credentials.of(reference)

    def credentials(self) -> Iterator[Credential]:
        return iter(self._credentials)

    def bound_to(self, gateway: str, viewer: str) -> tuple[VirtualService, ...]:
        """The VirtualServices that a Gateway's proxies in a namespace may take, the oldest first."""
        return self._routings.bound_to(gateway, viewer, self.settings)

    def gateways_of(self, group: Group) -> tuple[Gateway, ...]:
        """Those that select a group's workloads, the oldest first."""
        return self._gateways.of(group)

    def published(self, group: Group) -> tuple[int, ...]:
        """The ports of a gateway that callers of its machine reach, too."""
        return published(group, self._registry)

    def outbound_policy(self, group: Group) -> Outbound:
        sidecar = self.sidecar(group)
        return (sidecar.outbound_policy if sidecar else None) or self.settings.outbound_policy

    def inbound_ports(self, group: Group) -> tuple[InboundPort, ...]:
        """On which ports a group's workloads are called: a Sidecar's ingress, or the services that select them."""
        return inbound_ports(group, self.sidecar(group), self._registry, self.destination_rule)
