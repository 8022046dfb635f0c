"""The state of the mesh: every value there is, indexed for the questions that translation asks.

Values come in by object (`apply`), and out goes what the change touched, so that nobody looks at the rest. It and the
indexes it owns (`registry.py`, `claims.py`, `policies.py`) are all of the model that is not frozen; they belong to the
control plane's loop and are never shared between threads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import msgspec

from weft.model.access_log import Reporter
from weft.model.authorization_policy import AuthorizationPolicy
from weft.model.claims import Claims, patterns, strength
from weft.model.destination_rule import DestinationRule, passes_on
from weft.model.endpoint import Endpoint, Off, endpoint_at, endpoint_of, written_endpoint
from weft.model.endpoint_slice import EndpointSlice
from weft.model.extension_provider import Authorizer
from weft.model.gateway import Gateway
from weft.model.group import Group
from weft.model.instance import Instance
from weft.model.names import Labels, ObjectKey, host_covers, selects
from weft.model.peer_authentication import PeerAuthentication, PeerModes, TlsMode, peer_modes
from weft.model.policies import Kind, Policies, Policy
from weft.model.registry import Registry
from weft.model.request_authentication import RequestAuthentication
from weft.model.scope import Scope, exported, scope_of
from weft.model.service import Protocol, Resolution, Service, ServicePort
from weft.model.settings import Namespace, ServiceAccount, Settings
from weft.model.sidecar import OutboundPolicy, Sidecar
from weft.model.standing import Standing
from weft.model.telemetry import Telemetry, settings_for
from weft.model.virtual_service import VirtualService
from weft.model.workload import Workload

Value = (
    Service
    | Instance
    | EndpointSlice
    | VirtualService
    | DestinationRule
    | Sidecar
    | Gateway
    | Workload
    | Namespace
    | ServiceAccount
    | Settings
    | Policy
)

EVERYWHERE = "*"


class Touched(msgspec.Struct, frozen=True):
    """What a change may have changed, in the words that `control/push.py` thinks in. Hosts may be wildcards."""

    hosts: frozenset[str] = frozenset()  # services, routes or rules under these names
    endpoints: frozenset[str] = frozenset()  # only who answers under these names
    inbound: frozenset[str] = frozenset()  # what proxies of these namespaces receive
    scopes: frozenset[str] = frozenset()  # what proxies of these namespaces may see; EVERYWHERE for all

    def __or__(self, other: Touched) -> Touched:
        return Touched(
            self.hosts | other.hosts,
            self.endpoints | other.endpoints,
            self.inbound | other.inbound,
            self.scopes | other.scopes,
        )

    def __bool__(self) -> bool:
        return bool(self.hosts or self.endpoints or self.inbound or self.scopes)


def joined(touches: Iterable[Touched]) -> Touched:
    """All of them in one, at the price of each: thousands come at once when a cluster is read."""
    held = tuple(touches)
    return Touched(
        frozenset().union(*(each.hosts for each in held)),
        frozenset().union(*(each.endpoints for each in held)),
        frozenset().union(*(each.inbound for each in held)),
        frozenset().union(*(each.scopes for each in held)),
    )


class InboundPort(msgspec.Struct, frozen=True):
    """A port on which a group's workloads are called, and everything that shapes how."""

    number: int
    protocol: Protocol
    services: tuple[Service, ...] = ()
    service_port: int = 0  # the number that callers use, of the first service
    rule: DestinationRule | None = None
    default_endpoint: str = ""  # from a Sidecar's ingress; "": the port itself


class Mesh:
    def __init__(self, settings: Settings | None = None) -> None:
        self._default_settings = settings or Settings()
        self.settings = self._default_settings
        self._values: dict[ObjectKey, tuple[Value, ...]] = {}
        self._registry = Registry()
        self._virtual_services: Claims[VirtualService] = Claims()  # by host or wildcard
        self._rules: Claims[DestinationRule] = Claims()  # by host or wildcard
        self._sidecars: Claims[Sidecar] = Claims()  # by namespace
        self._policies = Policies()
        self._modes: dict[tuple[str, Labels], PeerModes] = {}  # what the policies come to, by namespace and labels

    # Changing

    def apply(self, key: ObjectKey, values: tuple[Value, ...]) -> Touched:
        """Put these values in the place of what the object was before; no values means the object is gone."""
        before = self._values.pop(key, ())
        if values:
            self._values[key] = values
        if before == values:
            return Touched()
        touched = Touched()
        match before, values:
            case (Instance() as old,), (Instance() as new,):
                return self._move_instance(old, new)
            case (EndpointSlice() as old,), (EndpointSlice() as new,):
                return self._move_slice(old, new)
        for value in before:
            touched |= self._remove(value)
        for value in values:
            touched |= self._add(value)
        return touched

    def _add(self, value: Value) -> Touched:
        match value:
            case Service():
                self._registry.add(value)
                return self._touched_by_service(value)
            case Instance():
                return self._move_instance(None, value)
            case EndpointSlice():
                return self._move_slice(None, value)
            case VirtualService():
                for host in value.hosts:
                    self._virtual_services.add(host, value)
                return self._touched_by_routes(value)
            case DestinationRule():
                self._rules.add(value.host, value)
                return self._touched_by_rule(value)
            case Sidecar():
                self._sidecars.add(value.namespace, value)
                return self._touched_by_sidecar(value)
            case PeerAuthentication() | AuthorizationPolicy() | RequestAuthentication() | Telemetry():
                self._policies.add(value)
                self._modes.clear()
                return self._touched_by_policy(value)
            case Settings():
                return self._set(value)
            case _:
                return Touched()

    def _remove(self, value: Value) -> Touched:
        match value:
            case Service():
                self._registry.remove(value)
                return self._touched_by_service(value)
            case Instance():
                return self._move_instance(value, None)
            case EndpointSlice():
                return self._move_slice(value, None)
            case VirtualService():
                for host in value.hosts:
                    self._virtual_services.discard(host, value)
                return self._touched_by_routes(value)
            case DestinationRule():
                self._rules.discard(value.host, value)
                return self._touched_by_rule(value)
            case Sidecar():
                self._sidecars.discard(value.namespace, value)
                return self._touched_by_sidecar(value)
            case PeerAuthentication() | AuthorizationPolicy() | RequestAuthentication() | Telemetry():
                self._policies.remove(value)
                self._modes.clear()
                return self._touched_by_policy(value)
            case Settings():
                return self._set(self._default_settings)
            case _:
                return Touched()

    def _set(self, settings: Settings) -> Touched:
        before, self.settings = self.settings, settings
        self._modes.clear()
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
            or self._passed_on(service.host)
        }
        return Touched(frozenset(hosts), frozenset(service.host for service in moved))

    def _touched_by_service(self, service: Service) -> Touched:
        touched = Touched(
            hosts=frozenset({service.host}),
            endpoints=frozenset({service.host}),
            inbound=frozenset({service.namespace}),
        )
        if any(service.host == provider.host for provider in self.settings.extension_providers):
            everywhere = frozenset({EVERYWHERE})  # whoever has a policy that makes it ask there
            return touched | Touched(scopes=everywhere, inbound=everywhere)
        return touched

    def _touched_by_routes(self, routes: VirtualService) -> Touched:
        hosts = set(routes.hosts)
        if not hosts:  # a delegate: whoever delegates to it changes with it
            hosts = {
                host
                for entry in self._virtual_services
                if any(route.delegate and route.delegate.name == routes.name for route in entry.http)
                for host in entry.hosts
            }
        return Touched(hosts=frozenset(hosts))

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

    def get(self, key: ObjectKey) -> tuple[Value, ...]:
        return self._values.get(key, ())

    def services(self) -> Iterator[Service]:
        return iter(self._registry.services)

    def hosts(self) -> Collection[str]:
        return self._registry.services.names()

    def service(self, host: str, scope: Scope) -> Service | None:
        """The service that a host means to a viewer: its own namespace's claim, then the best claim it may see."""
        visible = [service for service in self._registry.services.to(host) if scope.ports(service)]
        own = next((service for service in visible if service.namespace == scope.namespace), None)
        return own or next(iter(visible), None)

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

    def _passed_on(self, host: str) -> bool:
        """Whether some rule has calls to the host go to the very address that the caller wrote."""
        return any(passes_on(rule) for rule in self._rules.covering(host))

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
        """The VirtualServices that speak for a host to sidecars of this scope, the deciding one first.

        An exact host beats a wildcard, a longer wildcard a shorter one; among equals the oldest object decides.
        """
        for pattern in patterns(host):
            found = [
                routes
                for routes in self._virtual_services.to(pattern)
                if "mesh" in routes.gateways
                and exported(self._export_to(routes), owner=routes.namespace, viewer=scope.namespace)
                and scope.sees_routes(routes.namespace, host)
            ]
            if found:
                return tuple(found)
        return ()

    def delegate(self, namespace: str, name: str) -> VirtualService | None:
        values = self.get(ObjectKey("VirtualService", namespace, name))
        return next((value for value in values if isinstance(value, VirtualService)), None)

    def routed_hosts(self) -> Iterable[str]:
        """Every host or wildcard that some VirtualService speaks for."""
        return self._virtual_services.names()

    def destination_rule(self, host: str, service: Service | None, group: Group) -> DestinationRule | None:
        """The rule for calls to a host: the caller's namespace first, then the service's, then the root's."""
        owners = [group.namespace]
        if service is not None:
            owners.append(service.namespace)
        owners.append(self.settings.root_namespace)
        candidates = self._rules.covering(host)
        for owner in owners if candidates else ():
            for rule in candidates:
                if rule.namespace != owner:
                    continue
                if owner != group.namespace and (
                    rule.workload_selector
                    or not exported(self._export_to(rule), owner=rule.namespace, viewer=group.namespace)
                ):
                    continue
                if rule.workload_selector and not selects(rule.workload_selector, group.labels):
                    continue
                return rule
        return None

    def selects_callers(self, host: str, namespace: str) -> bool:
        """Whether some rule for calls to a host is for those workloads of a namespace alone that have its labels."""
        return any(rule.workload_selector and rule.namespace == namespace for rule in self._rules.covering(host))

    def policies(self, kind: type[Kind], group: Group) -> tuple[Kind, ...]:
        """Those of one kind that select a group's workloads, the mesh-wide ones first."""
        return self._policies.of(kind, group.namespace, group.labels, self.settings.root_namespace)

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
        own = self._sidecars.to(group.namespace)
        chosen = next((s for s in own if s.selector and selects(s.selector, group.labels)), None)
        chosen = chosen or next((s for s in own if not s.selector), None)
        if chosen is None:
            root = self._sidecars.to(self.settings.root_namespace)
            chosen = next((s for s in root if not s.selector), None)
        return chosen

    def scope(self, group: Group) -> Scope:
        """A group also sees whom its own policies make it ask."""
        asked = tuple(provider.host for provider in self.authorizers(group))
        return scope_of(group.namespace, self.sidecar(group), asked)

    def outbound_policy(self, group: Group) -> OutboundPolicy:
        sidecar = self.sidecar(group)
        return (sidecar.outbound_policy if sidecar else None) or self.settings.outbound_policy

    def inbound_ports(self, group: Group) -> tuple[InboundPort, ...]:
        """On which ports a group's workloads are called: a Sidecar's ingress, or the services that select them."""
        sidecar = self.sidecar(group)
        if sidecar is not None and sidecar.ingress:
            return tuple(
                InboundPort(
                    number=listener.port.number,
                    protocol=listener.port.protocol,
                    service_port=listener.port.number,
                    default_endpoint=listener.default_endpoint,
                )
                for listener in sidecar.ingress
            )
        nobody = Instance(name="", namespace=group.namespace, addresses=(), labels=group.labels)
        instances = self._registry.samples(group.namespace, group.labels) or [nobody]
        ports: dict[int, InboundPort] = {}
        for service in sorted(self._registry.selecting(instances[0]), key=strength):
            for port in service.ports:
                if port.protocol is Protocol.UDP:
                    continue
                # Pods with the same labels may serve a named port at different numbers, as during a rollout.
                for number in dict.fromkeys(instance.port_for(port) for instance in instances):
                    if number is not None:
                        ports[number] = self._inbound_port(ports.get(number), number, service, port, group)
        for number, protocol in dict.fromkeys(each for instance in instances for each in instance.protocols):
            known = ports.get(number)
            if known is None:
                ports[number] = InboundPort(number=number, protocol=protocol)
            elif known.protocol is Protocol.UNDECLARED:
                ports[number] = msgspec.structs.replace(known, protocol=protocol)
        return tuple(ports[number] for number in sorted(ports))

    def _inbound_port(
        self, known: InboundPort | None, number: int, service: Service, port: ServicePort, group: Group
    ) -> InboundPort:
        """What one more service port makes of an inbound port. The first one decides how it is spoken to."""
        if known is not None:
            return msgspec.structs.replace(known, services=(*known.services, service))
        return InboundPort(
            number=number,
            protocol=port.protocol,
            services=(service,),
            service_port=port.number,
            rule=self.destination_rule(service.host, service, group),
        )

    def _export_to(self, value: VirtualService | DestinationRule) -> tuple[str, ...]:
        if value.export_to:
            return value.export_to
        if isinstance(value, VirtualService):
            return self.settings.virtual_service_export_to
        return self.settings.destination_rule_export_to
