"""The input of the checks: the parsed values of a mesh's objects, by kind, and the workloads that run or are to run
in it.

Facts are frozen and share no mutable state, so that checks can run on another thread than the mesh's own. Rule: a
Workload counts as running whether or not its pods exist yet, so that a starting mesh has no findings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from weft.analyze.templates import PLACES
from weft.mesh.claims import strength
from weft.mesh.gateway_api.attached import OWN_CLASS, Derived, all_derived
from weft.mesh.gateways import age as gateway_age
from weft.mesh.gateways import bound
from weft.mesh.policies import age
from weft.model.authorization_policy import AuthorizationPolicy
from weft.model.credential import Credential
from weft.model.destination_rule import DestinationRule
from weft.model.edge import BoundServer
from weft.model.gateway import Gateway
from weft.model.gateway_api import GATEWAY_NAME, GatewayClass, ListenerSet, StandardGateway
from weft.model.instance import Instance, pod_of
from weft.model.names import CredentialRef, Labels, host_covers, selects
from weft.model.peer_authentication import PeerAuthentication, PeerModes, peer_modes
from weft.model.request_authentication import RequestAuthentication
from weft.model.service import Protocol, Service
from weft.model.settings import Namespace, ServiceAccount, Settings
from weft.model.sidecar import Sidecar
from weft.model.telemetry import Telemetry
from weft.model.value import Value
from weft.model.virtual_service import VirtualService
from weft.model.workload import PublishedPort, Workload

Kind = TypeVar("Kind")


class Runner(msgspec.Struct, frozen=True):
    """A running program with its labels and ports: a Workload, or an instance (such as a Kubernetes pod) that belongs
    to no Workload. `ports`: the name ("" without one) and number of each port; None if no ports are declared.
    `instance`: the program as the mesh sees it, or would see it. `publish`: the ports that a gateway of the local
    engine publishes on the machine. `count`: the number of pods; None if unknown."""

    name: str
    labels: Labels
    ports: tuple[tuple[str, int], ...] | None  # names (or "") and numbers; None: not declared
    instance: Instance  # as the mesh has it, or would have it
    count: int | None = None  # pods; None: not known, as for the template of a Deployment
    publish: tuple[PublishedPort, ...] = ()  # published ports of a gateway of the local engine, as in its `publish`


class Facts(msgspec.Struct, frozen=True):
    settings: Settings
    services: tuple[Service, ...] = ()
    virtual_services: tuple[VirtualService, ...] = ()
    rules: tuple[DestinationRule, ...] = ()
    sidecars: tuple[Sidecar, ...] = ()
    spoken: Mapping[
        int, frozenset[Protocol]
    ] = {}  # by port: protocols of Sidecar egress listeners, which override those of services
    policies: tuple[AuthorizationPolicy, ...] = ()
    peer_authentications: Mapping[str, tuple[PeerAuthentication, ...]] = {}  # by namespace, the oldest first
    authentications: tuple[RequestAuthentication, ...] = ()
    telemetries: tuple[Telemetry, ...] = ()
    gateways: Mapping[str, Gateway] = {}  # by NAMESPACE/NAME
    credentials: Mapping[CredentialRef, Credential] = {}
    accounts: frozenset[str] = frozenset()  # NAMESPACE/NAME: declared, or used by a workload
    namespaces: frozenset[str] = frozenset()  # namespaces that contain any object
    declared: Mapping[str, Namespace] = {}  # namespaces that have an object of their own
    runners: Mapping[str, tuple[Runner, ...]] = {}  # by namespace
    by_label: Mapping[tuple[str, tuple[str, str]], tuple[Runner, ...]] = {}  # by namespace and one of their labels
    by_host: Mapping[str, tuple[Service, ...]] = {}
    wildcards: tuple[Service, ...] = ()
    standard_gateways: Mapping[tuple[str, str], StandardGateway] = {}  # by namespace and name
    listener_sets: Mapping[tuple[str, str], ListenerSet] = {}  # by namespace and name
    standard: tuple[Derived, ...] = ()  # derived from the objects of the Gateway API
    classless: tuple[StandardGateway, ...] = ()  # Gateways of a class that is not weft's and has no GatewayClass
    confined: bool = False  # pods run on one machine and cannot reach hosts outside the mesh

    @property
    def runs(self) -> bool:
        """Whether any workload is known. If none is, selectors cannot be checked, and their checks are skipped."""
        return bool(self.runners)

    def selected(self, namespace: str, labels: Labels) -> tuple[Runner, ...]:
        """The runners (workloads or pods) of a namespace that have all of these labels."""
        candidates = (self.by_label.get((namespace, pair), ()) for pair in labels)
        fewest = min(candidates, key=len, default=self.runners.get(namespace, ()))
        return tuple(runner for runner in fewest if selects(labels, runner.labels))

    def chosen(self, namespace: str, labels: Labels, targets: tuple[str, ...] = ()) -> list[tuple[str, Runner]]:
        """The runners (workloads or pods) to which a policy of this namespace with the selector `labels` applies, each
        with its namespace. A policy in the root namespace applies to all namespaces. `targets`: the policy's
        targetRefs, each as `KIND NAME`; if there are any, the policy applies only to the proxies of these Gateways."""
        if targets:
            own = [each for each in self.selected(namespace, labels) if each.instance.gateway]
            return [
                (namespace, each) for each in own if f"Gateway {dict(each.labels).get(GATEWAY_NAME, '')}" in targets
            ]
        places = self.runners if namespace == self.settings.root_namespace else (namespace,)
        return [(place, runner) for place in places for runner in self.selected(place, labels)]

    def modes(self, namespace: str, labels: Labels) -> PeerModes:
        """The mutual TLS modes of a workload with these labels in this namespace, by the PeerAuthentications that apply
        to it."""
        root = self.settings.root_namespace
        places = dict.fromkeys((root, namespace))
        there = (each for place in places for each in self.peer_authentications.get(place, ()))
        return peer_modes((each for each in there if selects(each.selector, labels)), root)

    def servers(self, namespace: str, runner: Runner) -> tuple[BoundServer, ...]:
        """The servers of all Gateways that select the gateway `runner` of this namespace, each with the ports at which
        its proxy listens; empty for a runner that is no gateway."""
        if not runner.instance.gateway:
            return ()
        every = (*self.gateways.values(), *(gateway for derived in self.standard for gateway in derived.gateways))
        own = [each for each in every if each.within in ("", namespace) and selects(each.selector, runner.labels)]
        leads: dict[int, dict[int, None]] = {}  # from the ports of its Services to the workload's ports
        for service in sorted(self.services, key=strength):
            if service.namespace == namespace and service.selector and selects(service.selector, runner.labels):
                for port in service.ports:
                    if (number := runner.instance.port_for(port)) is not None:
                        leads.setdefault(port.number, {})[number] = None
        return bound(sorted(own, key=gateway_age), lambda number: leads.get(number, ()))

    def services_of(self, host: str) -> tuple[Service, ...]:
        """The services that have exactly this host. If there are none: for a wildcard, the services whose hosts it
        covers; for any other host, the services whose own host is a wildcard that covers it."""
        services = self.by_host.get(host)
        if services is not None:
            return services
        if host.startswith("*"):
            return tuple(service for service in self.services if host_covers(host, service.host))
        return tuple(service for service in self.wildcards if host_covers(service.host, host))


def facts_of(settings: Settings, objects: Iterable[tuple[Value, ...]], *, egress: bool = False) -> Facts:
    """Build the Facts of a mesh from its settings and `objects`, the values of each object. `egress`: whether the pods
    of a mesh on one machine can reach hosts outside the mesh."""
    values = [value for members in objects for value in members]
    services = _of_kind(values, Service)
    runners = _runners(_of_kind(values, Workload), _of_kind(values, Instance))
    by_host: dict[str, list[Service]] = defaultdict(list)
    for service in services:
        by_host[service.host].append(service)
    by_label: dict[tuple[str, tuple[str, str]], list[Runner]] = defaultdict(list)
    for namespace, each in runners.items():
        for runner in each:
            for pair in runner.labels:
                by_label[(namespace, pair)].append(runner)
    namespaces = {value.name if isinstance(value, Namespace) else value.namespace
                  for value in values if not isinstance(value, Settings | GatewayClass)}  # fmt: skip
    return Facts(
        settings=settings,
        services=services,
        virtual_services=_of_kind(values, VirtualService),
        rules=_of_kind(values, DestinationRule),
        sidecars=_of_kind(values, Sidecar),
        spoken=_spoken(_of_kind(values, Sidecar)),
        policies=_of_kind(values, AuthorizationPolicy),
        peer_authentications=_by_namespace(sorted(_of_kind(values, PeerAuthentication), key=age)),
        authentications=_of_kind(values, RequestAuthentication),
        telemetries=_of_kind(values, Telemetry),
        gateways={f"{gateway.namespace}/{gateway.name}": gateway for gateway in _of_kind(values, Gateway)},
        credentials={each.reference: each for each in _of_kind(values, Credential)},
        accounts=frozenset(
            [f"{account.namespace}/{account.name}" for account in _of_kind(values, ServiceAccount)]
            + [f"{place}/{each.instance.service_account}" for place, members in runners.items() for each in members]
        ),
        namespaces=frozenset(namespaces | {settings.root_namespace}),
        declared={namespace.name: namespace for namespace in _of_kind(values, Namespace)},
        runners=runners,
        by_label={place: tuple(each) for place, each in by_label.items()},
        by_host={host: tuple(claims) for host, claims in by_host.items()},
        wildcards=tuple(service for service in services if service.host.startswith("*")),
        standard_gateways={(each.namespace, each.name): each for each in _of_kind(values, StandardGateway)},
        listener_sets={(each.namespace, each.name): each for each in _of_kind(values, ListenerSet)},
        standard=all_derived(values),
        classless=_classless(values),
        confined=not egress and any(isinstance(value, Workload) for value in values),
    )


def _of_kind(values: Iterable[Value], kind: type[Kind]) -> tuple[Kind, ...]:
    return tuple(value for value in values if isinstance(value, kind))


def _spoken(sidecars: Iterable[Sidecar]) -> dict[int, frozenset[Protocol]]:
    by_number: dict[int, set[Protocol]] = defaultdict(set)
    for port in (listener.port for sidecar in sidecars for listener in sidecar.egress):
        if port is not None and port.protocol is not Protocol.UNDECLARED:
            by_number[port.number].add(port.protocol)
    return {number: frozenset(protocols) for number, protocols in by_number.items()}


def _classless(values: Iterable[Value]) -> tuple[StandardGateway, ...]:
    listed = tuple(values)
    known = {OWN_CLASS, *(each.name for each in _of_kind(listed, GatewayClass))}
    return tuple(each for each in _of_kind(listed, StandardGateway) if each.class_name not in known)


def _by_namespace(policies: Iterable[PeerAuthentication]) -> dict[str, tuple[PeerAuthentication, ...]]:
    by_namespace: dict[str, list[PeerAuthentication]] = defaultdict(list)
    for policy in policies:
        by_namespace[policy.namespace].append(policy)
    return {namespace: tuple(each) for namespace, each in by_namespace.items()}


def _runners(workloads: tuple[Workload, ...], instances: tuple[Instance, ...]) -> dict[str, tuple[Runner, ...]]:
    by_namespace: dict[str, list[Runner]] = defaultdict(list)
    known = {(workload.namespace, workload.name) for workload in workloads}
    for workload in workloads:
        ports = tuple((port.name, port.number) for port in workload.ports)
        by_namespace[workload.namespace].append(
            Runner(
                workload.name,
                workload.labels,
                ports or None,
                pod_of(workload, workload.name, ()),
                workload.replicas,
                workload.publish,
            )
        )
    for instance in instances:
        if (instance.namespace, instance.workload) not in known:
            is_template = instance.origin is not None and instance.origin.key.kind in PLACES.keys() - {"Pod"}
            count = None if is_template else 1
            by_namespace[instance.namespace].append(Runner(instance.name, instance.labels, None, instance, count))
    return {namespace: tuple(runners) for namespace, runners in by_namespace.items()}
