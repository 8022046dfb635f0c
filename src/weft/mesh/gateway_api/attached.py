"""Combines the Gateway API's objects: routes attached to Services and Gateways become VirtualServices, Gateways and
DestinationRules of the mesh, and each object gets status conditions (`model/outcome.py`).

`mesh.py` owns this index, which derives the results again for each parent that changed. Rule: whatever depends on
several objects is decided here, once. Outside this package no code distinguishes a VirtualService from an HTTPRoute.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from weft.mesh.gateway_api.backend_tls import called_over_tls
from weft.mesh.gateway_api.gateways import Surroundings, served
from weft.mesh.gateway_api.route_rules import Precedence, ResolvedRoute, Services, resolved
from weft.model.credential import Credential
from weft.model.destination_rule import DestinationRule
from weft.model.gateway import Gateway
from weft.model.gateway_api import (
    CONTROLLER,
    GATEWAY_KIND,
    LISTENER_SET,
    AuthorityBundle,
    BackendTls,
    GatewayClass,
    ListenerSet,
    Parent,
    ParentRef,
    ReferenceGrant,
    RouteKind,
    StandardGateway,
    StandardRoute,
)
from weft.model.names import CredentialRef, Labels, ObjectKey, labels_of
from weft.model.outcome import (
    ACCEPTED,
    GatewayOutcome,
    ListenerSetOutcome,
    PolicyOutcome,
    RouteOutcome,
    StatusCondition,
    not_accepted,
)
from weft.model.service import Service
from weft.model.settings import Namespace
from weft.model.virtual_service import MESH, HttpRoute, L4Route, VirtualService

# Used as a parent's kind: the TLS settings of calls to a Service, or to the hosts of a ServiceEntry.
_TLS = {"Service": "BackendTLSPolicy", "ServiceEntry": "BackendTLSPolicy for a ServiceEntry"}
OWN_CLASS = "weft"  # this class belongs to weft even without a GatewayClass object
_NAMED = "kubernetes.io/metadata.name"  # label of every namespace, with its name


class Derived(msgspec.Struct, frozen=True):
    """Everything derived from one parent (a Gateway or a Service) and the Gateway API objects attached to it: the
    VirtualServices (`routings`), Gateways and DestinationRules (`rules`) of the mesh, and the status conditions of the
    routes, of the Gateway (`gateway`; None for a Service), of the BackendTLSPolicies (`policies`) and of the
    ListenerSets."""

    routings: tuple[VirtualService, ...] = ()
    routes: tuple[RouteOutcome, ...] = ()
    gateways: tuple[Gateway, ...] = ()
    gateway: GatewayOutcome | None = None
    rules: tuple[DestinationRule, ...] = ()
    policies: tuple[PolicyOutcome, ...] = ()
    listener_sets: tuple[ListenerSetOutcome, ...] = ()

    @property
    def values(self) -> tuple[VirtualService | Gateway | DestinationRule, ...]:
        """The derived Gateways, VirtualServices and DestinationRules, which the mesh indexes like declared ones;
        without the outcomes, which are only for the status."""
        return (*self.gateways, *self.routings, *self.rules)


class Attached:
    def __init__(self) -> None:
        self._routes: dict[ObjectKey, StandardRoute] = {}
        self._gateways: dict[Parent, StandardGateway] = {}
        self._listener_sets: dict[Parent, ListenerSet] = {}
        self._classes: dict[str, GatewayClass] = {}
        self._namespaces: dict[str, Labels] = {}
        self._policies: dict[Parent, list[BackendTls]] = defaultdict(list)
        self._bundles: dict[tuple[str, str], AuthorityBundle] = {}
        self._grants: dict[tuple[str, str], ReferenceGrant] = {}
        self._below: dict[Parent, set[ObjectKey]] = defaultdict(set)  # the routes that name a parent
        self._sending: dict[tuple[str, str], set[ObjectKey]] = defaultdict(set)  # routes that name a Service as backend

    # The interface of an index of the mesh

    def add(self, value: Any) -> None:
        match value:
            case StandardRoute():
                self._routes[value.key] = value
                for parent in parents(value):
                    self._below[parent].add(value.key)
                for place in _backends(value):
                    self._sending[place].add(value.key)
            case StandardGateway():
                self._gateways[value.place] = value
            case ListenerSet():
                self._listener_sets[value.place] = value
            case GatewayClass():
                self._classes[value.name] = value
            case Namespace():
                self._namespaces[value.name] = value.labels
            case BackendTls():
                self._policies[_called(value)].append(value)
            case AuthorityBundle():
                self._bundles[(value.namespace, value.name)] = value
            case ReferenceGrant():
                self._grants[(value.namespace, value.name)] = value

    def remove(self, value: Any) -> None:
        match value:
            case StandardRoute():
                self._routes.pop(value.key, None)
                for parent in parents(value):
                    _discard(self._below, parent, value.key)
                for place in _backends(value):
                    _discard(self._sending, place, value.key)
            case StandardGateway():
                self._gateways.pop(value.place, None)
            case ListenerSet():
                self._listener_sets.pop(value.place, None)
            case GatewayClass():
                self._classes.pop(value.name, None)
            case Namespace():
                self._namespaces.pop(value.name, None)
            case BackendTls():
                self._policies[_called(value)].remove(value)
                if not self._policies[_called(value)]:
                    del self._policies[_called(value)]
            case AuthorityBundle():
                self._bundles.pop((value.namespace, value.name), None)
            case ReferenceGrant():
                self._grants.pop((value.namespace, value.name), None)

    def changed_by(self, value: Any) -> Iterator[Parent]:
        """The parents whose result may change when this value is added or removed."""
        match value:
            case StandardRoute():
                yield from self._above(value)
            case StandardGateway():
                yield from self._with_sets(value.place)
            case ListenerSet():
                yield value.place
                yield value.gateway
            case GatewayClass():
                for gateway in self._gateways.values():
                    if gateway.class_name == value.name:
                        yield from self._with_sets(gateway.place)
            case Namespace():
                yield from self._gateways
            case BackendTls():
                yield _called(value)
            case AuthorityBundle():
                yield from (
                    place
                    for place, policies in self._policies.items()
                    if place[1] == value.namespace and any(value.name in each.bundles for each in policies)
                )
                named = (value.namespace, value.name)
                yield from (place for place, gateway in self._gateways.items() if named in gateway.bundles)
            case Credential():
                yield from (each.place for each in self._gateways.values() if _presents(each, value))
                yield from (each.gateway for each in self._listener_sets.values() if _presents(each, value))
            case ReferenceGrant():
                yield from self._gateways
                for place, keys in self._sending.items():
                    if place[0] == value.namespace:
                        yield from self._parents_of(keys)
            case Service() if self._routes or self._policies:
                place = (value.namespace, value.name)
                kind = "ServiceEntry" if value.origin and value.origin.key.kind == "ServiceEntry" else "Service"
                if (_TLS[kind], *place) in self._policies:
                    yield (_TLS[kind], *place)
                if (kind, *place) in self._below:
                    yield (kind, *place)
                yield from self._parents_of(self._sending.get(place, ()))
                yield from self._parents_of(self._sending.get(("", value.host), ()))

    def _parents_of(self, keys: Iterable[ObjectKey]) -> Iterator[Parent]:
        for key in keys:
            yield from self._above(self._routes[key])

    def _above(self, route: StandardRoute) -> Iterator[Parent]:
        """The parents of a route. For a ListenerSet, also its Gateway."""
        for parent in parents(route):
            yield parent
            if (listener_set := self._listener_sets.get(parent)) is not None:
                yield listener_set.gateway

    def _with_sets(self, gateway: Parent) -> Iterator[Parent]:
        """The Gateway and its ListenerSets."""
        yield gateway
        yield from (place for place, each in self._listener_sets.items() if each.gateway == gateway)

    def derive(
        self, parent: Parent, services: Services, credential: Callable[[CredentialRef], Credential | None]
    ) -> Derived:
        routes = self._routes_of((parent,))
        if parent[0] == _TLS["Service"]:
            policies = self._policies.get(parent, [])
            service = services(policies[0].host, parent[1]) if policies else None
            rules, outcomes = called_over_tls(policies, service, self._bundles)
            return Derived(rules=rules, policies=outcomes)
        if parent[0] == _TLS["ServiceEntry"]:
            return self._of_entry_policies(parent, services)
        if parent[0] == "Gateway":
            return self._of_gateway(parent, routes, services, credential)
        if parent[0] == LISTENER_SET:
            return self._of_listener_set(parent, routes)
        if not routes:
            return Derived()
        if parent[0] == "ServiceEntry":
            called = services.of_entry(parent[1], parent[2])
            results = [self._between_workloads(parent, routes, services, each.host, each) for each in called]
            if not results:
                return self._between_workloads(parent, routes, services, "", None)
            return replace(results[0], routings=tuple(routing for each in results for routing in each.routings))
        host = next(each.host for route in routes for each in route.parents if each.place == parent)
        return self._between_workloads(parent, routes, services, host, services(host, parent[1]))

    @staticmethod
    def _between_workloads(
        parent: Parent, routes: list[StandardRoute], services: Services, host: str, service: Service | None
    ) -> Derived:
        """Derive the routes of calls to `host`, the host of a Service or one host of a ServiceEntry (`parent`).
        `routes`: the Gateway API routes that name it as a parent. `services`: finds the services of their backends.
        `service`: the service of the host; None if the parent does not exist."""
        resolved_routes = {route.key: resolved(route, services, None, host) for route in routes}
        return _of_service(parent, routes, resolved_routes, host, service)

    def _of_entry_policies(self, parent: Parent, services: Services) -> Derived:
        """Derive the DestinationRules of the BackendTLSPolicies for a ServiceEntry (`parent`), one for each of its
        hosts. `services`: finds the services of the ServiceEntry."""
        policies = self._policies.get(parent, [])
        results = [
            called_over_tls([replace(policy, host=service.host) for policy in policies], service, self._bundles)
            for service in services.of_entry(parent[1], parent[2])
        ] or [called_over_tls(policies, None, self._bundles)]
        return Derived(rules=tuple(rule for rules, _ in results for rule in rules), policies=results[0][1])

    def _of_gateway(
        self,
        parent: Parent,
        routes: list[StandardRoute],
        services: Services,
        credential: Callable[[CredentialRef], Credential | None],
    ) -> Derived:
        gateway = self._gateways.get(parent)
        if gateway is None or not self._is_ours(gateway):
            why = self._unserved(parent)
            return Derived(
                routes=tuple(_orphaned(parent, routes, f"Gateway {parent[1]}/{parent[2]} {why}") if why else ())
            )
        listener_sets = [each for each in self._listener_sets.values() if each.gateway == parent]
        routes = self._routes_of((parent, *(each.place for each in listener_sets)))
        grants = tuple(each for _, each in sorted(self._grants.items()))
        resolved_routes = {route.key: resolved(route, services, grants) for route in routes}
        around = Surroundings(grants, self._labels, credential, self._bundles)
        result = served(gateway, listener_sets, routes, resolved_routes, around)
        return Derived(
            result.routings, result.routes, result.gateways, result.outcome, listener_sets=result.listener_sets
        )

    def _of_listener_set(self, parent: Parent, routes: list[StandardRoute]) -> Derived:
        """Derive the conditions of a ListenerSet without a Gateway of weft, and of its routes. The conditions of other
        ListenerSets are derived with their Gateway."""
        listener_set = self._listener_sets.get(parent)
        if listener_set is None:
            return Derived(
                routes=tuple(_orphaned(parent, routes, f"{parent[0]} {parent[1]}/{parent[2]} does not exist"))
            )
        why = self._unserved(listener_set.gateway)
        if not why:
            return Derived()
        what = f"Gateway {listener_set.gateway_namespace}/{listener_set.gateway_name} {why}"
        key = ObjectKey(GATEWAY_KIND, listener_set.gateway_namespace, listener_set.gateway_name)
        condition = not_accepted("ParentNotAccepted", what)
        outcome = ListenerSetOutcome(listener_set.key, key, (condition,), origin=listener_set.origin, ours=False)
        return Derived(routes=tuple(_orphaned(parent, routes, what)), listener_sets=(outcome,))

    def _unserved(self, parent: Parent) -> str:
        """Why no controller serves a Gateway; "" if weft or another controller does. Another controller writes the
        status of the routes of its Gateways."""
        gateway = self._gateways.get(parent)
        if gateway is None:
            return "does not exist"
        if self._is_ours(gateway) or gateway.class_name in self._classes:
            return ""
        return f"has the class `{gateway.class_name}`, which does not exist; weft's own class is `{OWN_CLASS}`"

    def _routes_of(self, places: Iterable[Parent]) -> list[StandardRoute]:
        """The routes that name one of these parents, the oldest first."""
        keys = {key for place in places for key in self._below.get(place, ())}
        return sorted((self._routes[key] for key in keys), key=lambda each: each.age)

    def _is_ours(self, gateway: StandardGateway) -> bool:
        known = self._classes.get(gateway.class_name)
        return known.controller == CONTROLLER if known is not None else gateway.class_name == OWN_CLASS

    def _labels(self, namespace: str) -> Labels:
        return labels_of({**dict(self._namespaces.get(namespace, ())), _NAMED: namespace})


def _presents(owner: StandardGateway | ListenerSet, credential: Credential) -> bool:
    return any((each.namespace, each.name) == (credential.namespace, credential.name) for each in owner.certificates)


def _called(policy: BackendTls) -> Parent:
    return (_TLS[policy.target_kind], policy.namespace, policy.service)


def _orphaned(parent: Parent, routes: list[StandardRoute], why: str) -> Iterator[RouteOutcome]:
    condition = not_accepted("NoMatchingParent", why)
    for route in routes:
        for reference in route.parents:
            if reference.place == parent:
                yield RouteOutcome(route.key, reference, (condition,), route.origin, ours=False)


def all_derived(values: Iterable[Any]) -> tuple[Derived, ...]:
    """Everything derived from these values, one entry per parent, for callers that analyze a whole mesh."""
    objects = tuple(values)
    attached = Attached()
    hosts: dict[tuple[str, str], Service] = {}
    entries: dict[tuple[str, str], list[Service]] = defaultdict(list)
    credentials: dict[CredentialRef, Credential] = {}
    for value in objects:
        attached.add(value)
        if isinstance(value, Service):
            hosts.setdefault((value.host, value.namespace), value)
            hosts.setdefault((value.host, ""), value)
            if value.origin is not None and value.origin.key.kind == "ServiceEntry":
                entries[(value.namespace, value.name)].append(value)
        elif isinstance(value, Credential):
            credentials[value.reference] = value
    every = sorted({parent for value in objects for parent in attached.changed_by(value)})
    services = Services(lambda host, owner: hosts.get((host, owner)), lambda *named: tuple(entries.get(named, ())))
    return tuple(attached.derive(each, services, credentials.get) for each in every)


def parents(route: StandardRoute) -> Iterator[Parent]:
    yield from dict.fromkeys(parent.place for parent in route.parents)


def _backends(route: StandardRoute) -> set[tuple[str, str]]:
    each = (backend for rule in route.rules for backend in (*rule.backends, *(mirror for mirror, _ in rule.mirrors)))
    return {("", backend.host) if backend.is_host else (backend.namespace, backend.name) for backend in each}


class _Member(msgspec.Struct, frozen=True):
    """A route and the ports at which it applies."""

    route: StandardRoute
    ports: frozenset[int]  # port numbers of the Service


def _of_service(
    parent: Parent,
    routes: list[StandardRoute],
    resolved_routes: Mapping[ObjectKey, ResolvedRoute],
    host: str,
    service: Service | None,
) -> Derived:
    """Derive the routes of `parent`, a Service or one host of a ServiceEntry, for calls between workloads. `routes`:
    the Gateway API routes that name it as a parent. `resolved_routes`: their rules, by route. Producer routes, in the
    namespace of the parent, apply to all callers. Consumer routes, in another namespace, apply only to callers in that
    namespace, and replace the producer routes at their ports. `host`: the host of the parent. `service`: the service of
    that host; None if the parent does not exist."""
    namespace = parent[1]
    named = [(route, each) for route in routes for each in route.parents if each.place == parent]
    every = frozenset(port.number for port in service.ports) if service is not None else frozenset()
    calls: dict[str, dict[int, StandardRoute]] = defaultdict(dict)  # by audience and port: the GRPCRoute that applies
    for route, reference in named:
        if route.kind is RouteKind.GRPC:
            for number in _meant(reference, every):
                calls[route.namespace].setdefault(number, route)
    outcomes: list[RouteOutcome] = []
    audiences: dict[str, list[_Member]] = defaultdict(list)
    for route, reference in named:
        ports = _meant(reference, every)
        if route.kind is RouteKind.HTTP:
            ports -= calls[route.namespace].keys()
        accepted = _at_service(route, reference, service, ports, calls[route.namespace])
        outcome = (accepted, resolved_routes[route.key].told)
        outcomes.append(
            RouteOutcome(route.key, reference, outcome, route.origin, flaws=resolved_routes[route.key].flaws)
        )
        if accepted.holds:
            audiences[route.namespace].append(_Member(route, ports))
    routings = []
    for audience, own in sorted(audiences.items()):
        left = every.difference(*(each.ports for each in own))
        theirs = audiences[namespace] if audience != namespace and left else ()
        members = (*own, *(_Member(each.route, each.ports & left) for each in theirs if each.ports & left))
        http = [
            (order, each if member.ports == every else _at_ports(each, member.ports))
            for member in members
            for order, each in resolved_routes[member.route.key].http
        ]
        first = own[0].route
        routings.append(
            VirtualService(
                name=first.name,
                namespace=audience,
                hosts=(host,),
                gateways=(MESH,),
                http=ordered(http),
                tls=_streams(members, resolved_routes, RouteKind.TLS),
                tcp=_streams(members, resolved_routes, RouteKind.TCP),
                export_to=("*",) if audience == namespace else (".",),
                created=first.created,
                origin=first.origin,
                attached=True,
                by_address=parent[0] == "Service",
            )
        )
    return Derived(tuple(routings), tuple(outcomes))


def _streams(
    members: Iterable[_Member], resolved_routes: Mapping[ObjectKey, ResolvedRoute], kind: RouteKind
) -> tuple[L4Route, ...]:
    """Return the TLS or TCP routes of the mesh for those `members` that are Gateway API routes of this kind (TLSRoute
    or TCPRoute). `resolved_routes`: the rules of each Gateway API route."""
    return tuple(
        replace(stream, match=tuple(replace(match, port=port) for match in stream.match for port in sorted(each.ports)))
        for each in members
        if each.route.kind is kind
        for stream in resolved_routes[each.route.key].streams
    )


def _meant(reference: ParentRef, every: frozenset[int]) -> frozenset[int]:
    return every & {reference.port} if reference.port else every


def _at_service(
    route: StandardRoute,
    reference: ParentRef,
    service: Service | None,
    ports: frozenset[int],
    calls: Mapping[int, StandardRoute],
) -> StatusCondition:
    named = f"{reference.kind} {reference.namespace}/{reference.name}"
    if service is None:
        return not_accepted("NoMatchingParent", f"{named} does not exist")
    if reference.port and service.port(reference.port) is None:
        numbers = ", ".join(str(each.number) for each in service.ports) or "none"
        return not_accepted("NoMatchingParent", f"{named} has no port {reference.port}; it has {numbers}")
    if not ports and calls:
        grpc = calls[reference.port] if reference.port else next(iter(calls.values()))
        return not_accepted("Conflicted", f"GRPCRoute {grpc.namespace}/{grpc.name} already routes this port")
    return ACCEPTED


def ordered(http: Iterable[tuple[Precedence, HttpRoute]]) -> tuple[HttpRoute, ...]:
    """Sort routes by their precedence, which is the order in which they are matched. `http`: pairs of a precedence and
    a route."""
    return tuple(route for _, route in sorted(http, key=lambda pair: pair[0]))


def _at_ports(route: HttpRoute, ports: frozenset[int]) -> HttpRoute:
    return replace(route, match=tuple(replace(match, port=port) for match in route.match for port in sorted(ports)))


def _discard(index: dict[Any, set[ObjectKey]], place: Any, key: ObjectKey) -> None:
    index[place].discard(key)
    if not index[place]:
        del index[place]
