"""Find the problems that a mesh would have if it ran: with the same parsing, analysis and translation as in a
control plane, for objects that are not served. Input: documents. Output: problems, each with the line of its
field."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from weft.analyze.facts import Facts, facts_of
from weft.analyze.findings import findings, settled
from weft.api.document import Document
from weft.api.parse import OF_PODS, Parsed, parse
from weft.base.problem import Problem, Severity
from weft.files.problem_lines import located
from weft.mesh.claims import patterns
from weft.mesh.mesh import Mesh
from weft.model.destination_rule import DestinationRule
from weft.model.group import Group, ProxyKind, group_of
from weft.model.instance import Instance, pod_of
from weft.model.names import ObjectKey, selects
from weft.model.scope import Scope
from weft.model.settings import Settings
from weft.model.value import Admit, Value, as_it_is
from weft.model.virtual_service import VirtualService, destinations
from weft.model.workload import Workload
from weft.translate.findings import problems_of
from weft.translate.view import service_view

_ADDRESS = "192.0.2.1"  # address of generated pods: a documentation address (RFC 5737)
_MOST_ASKED = 5  # groups that are tried until one sees the host

Values = tuple[ObjectKey, tuple[Value, ...]]
_Scoped = tuple[Group, Scope]
Kind = TypeVar("Kind")


class Rehearsed(msgspec.Struct, frozen=True):
    facts: Facts
    problems: tuple[Problem, ...]


def rehearse(
    documents: Iterable[Document], domain: str = "cluster.local", admit: Admit = as_it_is
) -> tuple[Problem, ...]:
    """Return the problems of a mesh of these documents. `admit`: completes each value, for example with an address for
    a service that has none. Never raises, whatever the documents contain."""
    return rehearsed(documents, domain, admit).problems


def rehearsed(
    documents: Iterable[Document],
    domain: str = "cluster.local",
    admit: Admit = as_it_is,
    *,
    others: Iterable[Values] = (),
    least: Severity = Severity.WARNING,
    read: Callable[[Document, str], Parsed] = parse,
) -> Rehearsed:
    """Return the facts and problems of a mesh of these documents. `admit`: completes each value, for example with an
    address. `others`: objects that are not documents, such as running pods. `least`: findings below this severity
    are left out. `read`: parses a document."""
    problems: list[Problem] = []
    written = {document.key: document for document in documents}
    on_one_machine = any(key.kind == "Workload" for key in written)
    meant: dict[ObjectKey, tuple[Value, ...]] = {}
    in_force: dict[ObjectKey, tuple[Value, ...]] = {}
    refused: set[ObjectKey] = set()
    for document in written.values():
        if document.key.kind in OF_PODS and not on_one_machine:
            continue  # these files are for a cluster, whose pods are in `others`
        parsed = read(document, domain)
        problems += parsed.problems
        if parsed.meant:
            refused.add(document.key)
        # A rejected object counts as far as it could be parsed, so that references to it are not reported as wrong.
        meant[document.key] = tuple(map(admit, parsed.values or parsed.meant))
        in_force[document.key] = meant[document.key] if parsed.values else tuple(map(admit, parsed.closed))
    there = tuple(others)
    mesh = _mesh(meant, there, domain)
    facts, translated = _facts(mesh), tuple(_of_translation(mesh))
    certain: Facts | None = None
    if refused:
        without = _mesh(in_force, there, domain)
        certain, translated = _facts(without), settled(translated, _of_translation(without))
    silent = {str(key) for key in refused}
    problems += (problem for problem in translated if problem.where.object not in silent)
    problems += findings(facts, refused, in_force=certain, least=least)
    return Rehearsed(facts, located(dict.fromkeys(problems), written.values()))


def _mesh(written: Mapping[ObjectKey, tuple[Value, ...]], others: Iterable[Values], domain: str) -> Mesh:
    mesh = Mesh(Settings(domain=domain))
    with mesh.together():
        for key, values in written.items():
            mesh.apply(key, values)
    mesh.settle()
    for key, values in others:
        mesh.apply(key, values)
    for workload in _workloads(mesh):
        mesh.apply(ObjectKey("Pod", workload.namespace, workload.name), (pod_of(workload, workload.name, (_ADDRESS,)),))
    return mesh


def _facts(mesh: Mesh) -> Facts:
    return facts_of(mesh.settings, (values for _, values in mesh.values()))


def own_problems(document: Document, domain: str = "cluster.local") -> tuple[Problem, ...]:
    """The problems of an object that can be found without other objects."""
    return () if document.key.kind in OF_PODS else parse(document, domain).problems


def _of_translation(mesh: Mesh) -> Iterator[Problem]:
    callers = _Callers(mesh)
    for host in sorted({*mesh.hosts(), *mesh.routed_hosts()}):
        for group, scope in callers.of(host):
            view = service_view(mesh, group, scope, host)
            if view is not None:
                yield from problems_of(view, mesh)


class _Callers:
    """Selects the groups of proxies for which a host is translated: one group for each different view of the host
    (the services, routes and rules that apply to its callers). Not all groups are translated, since a large mesh
    has very many hosts and callers.

    A namespace may have its own view of the host if it owns one of the host's objects, or if such an object is exported
    to it by name. All other namespaces have the same view. A group with a Sidecar is included if the Sidecar may import
    the host.
    """

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._every = [(group, mesh.scope(group)) for group in _groups(mesh)]
        self._free: dict[str, list[_Scoped]] = defaultdict(list)  # namespace -> groups without a Sidecar
        self._shown: dict[str, list[_Scoped]] = defaultdict(list)  # namespace -> groups whose Sidecar shows it
        self._asking: dict[str, list[_Scoped]] = defaultdict(list)  # host -> groups whose proxies call it themselves
        for group, scope in self._every:
            for host, _ in scope.asked:
                self._asking[host].append((group, scope))
            if scope.imports is None:
                self._free[group.namespace].append((group, scope))
            for place in dict.fromkeys(each.namespace for each in scope.imports or ()):
                self._shown[place].append((group, scope))
        self._services: dict[str, set[str]] = defaultdict(set)  # host -> namespaces with a different view
        for service in mesh.services():
            self._services[service.host] |= {service.namespace, *service.export_to}
        self._rules: dict[str, set[str]] = defaultdict(set)  # host or wildcard -> namespaces with a different view
        for rule in _of_kind(mesh, DestinationRule):
            self._rules[rule.host] |= {rule.namespace, *rule.export_to}
        self._routes: dict[str, list[VirtualService]] = defaultdict(list)  # key: host or wildcard
        for routing in _of_kind(mesh, VirtualService):
            for host in routing.hosts:
                self._routes[host].append(routing)

    def of(self, host: str) -> Iterable[_Scoped]:
        routing = [each for pattern in patterns(host) for each in self._routes.get(pattern, ())]
        if not routing:
            return self._for_ports(host)
        places = {place for each in routing for place in (each.namespace, *each.export_to)}
        for goal in {host, *(goal.host for each in routing for _, goal in destinations(each))}:
            places |= self._services.get(goal, set())
            for pattern in patterns(goal):
                places |= self._rules.get(pattern, set())
        different = [each for place in sorted(places) for each in self._free.get(place, ())]
        others = next((callers[:1] for place, callers in self._free.items() if place not in places), [])
        owners = {*self._services.get(host, ()), *(each.namespace for each in routing), "*"}
        bounded = [each for place in sorted(owners) for each in self._shown.get(place, ())]
        return dict.fromkeys([*different, *others, *bounded, *self._asking.get(host, ())])

    def _for_ports(self, host: str) -> Iterator[_Scoped]:
        """Yield one group that sees the host, with its scope; nothing if no group sees it. For a host without routes
        one group is enough, because the problems are the same for all groups that see it."""
        own = [each for place in sorted(self._services.get(host, ())) for each in self._free.get(place, ())[:1]]
        for group, scope in [*own, *self._every[:_MOST_ASKED]]:
            if self._mesh.service(host, scope) is not None:
                yield group, scope
                return


def _groups(mesh: Mesh) -> list[Group]:
    """One group for each different view of the mesh: the groups of the workloads, or one per namespace of Services and
    VirtualServices if there are no workloads."""
    seen: dict[object, Group] = {}
    selecting: dict[str, list[DestinationRule]] = defaultdict(list)
    for rule in _of_kind(mesh, DestinationRule):
        if rule.workload_selector:
            selecting[rule.namespace].append(rule)
    for group in dict.fromkeys(_running(mesh)):
        ruled = tuple(selects(rule.workload_selector, group.labels) for rule in selecting[group.namespace])
        seen.setdefault((mesh.scope(group), ruled), group)
    if seen:
        return list(seen.values())
    names = {each.namespace for each in mesh.services()} | {each.namespace for each in _of_kind(mesh, VirtualService)}
    return [Group(ProxyKind.SIDECAR, name) for name in sorted(names)]


def _running(mesh: Mesh) -> Iterator[Group]:
    for value in _values(mesh):
        match value:
            case Workload(inject=True) | Instance(proxied=True, by_slice=True):
                yield group_of(value)


def _workloads(mesh: Mesh) -> list[Workload]:
    return list(_of_kind(mesh, Workload))


def _of_kind(mesh: Mesh, kind: type[Kind]) -> Iterator[Kind]:
    return (value for value in _values(mesh) if isinstance(value, kind))


def _values(mesh: Mesh) -> Iterator[Value]:
    return (value for _, values in mesh.values() for value in values)
